/*
 * prune_zone.c
 *		What the bounds of a zone say about a test: see prune_zone.h.
 */
#include "exec/scan/prune_zone.h"

#include "access/stratnum.h"
#include "utils/float.h"

/* Longer lists are not compared by function, one value after the other, with each block. */
#define DATUM_VALUES_MAX 256

/* Nor are lists of more values asked whether one of them does for all rows. */
#define ALL_VALUES_MAX 16

static double
get_bound_real(const ZoneBound *bound)
{
	double value;

	memcpy(&value, &bound->number, sizeof(value));
	return value;
}

/*
 * A byte bound compared with a value.  A cut minimum is smaller than what it was cut
 * from: still a bound.  A cut maximum is larger than all that begins with it.
 */
static int
compare_byte_bound(const ZoneBound *bound, bool is_cut_maximum, const PruneValue *value)
{
	int order = memcmp(bound->bytes, value->bytes, Min(bound->length, value->length));

	if (order != 0)
		return order;
	if (is_cut_maximum)
		return 1;
	return bound->length < value->length ? -1 : bound->length > value->length;
}

static int
compare_datum_bound(PruneTest *test, const ZoneBound *bound, const PruneValue *value)
{
	const ColumnType *type = &test->type;
	MemoryContext caller = MemoryContextSwitchTo(test->scratch);
	Datum datum;
	int order;

	if (type->form == FORM_INT || type->form == FORM_FLOAT)
		datum = column_type_from_int(type, bound->number);
	else
		datum = column_type_from_bytes(type, bound->bytes, bound->length);
	order = DatumGetInt32(FunctionCall2Coll(&test->compare, test->collation, datum, value->datum));
	MemoryContextSwitchTo(caller);
	return order;
}

/* Negative, zero, positive: the zone's minimum or maximum is less than, equal to, greater than it. */
static int
compare_bound(PruneTest *test, const ZoneMap *zone, bool is_maximum, const PruneValue *value)
{
	const ZoneBound *bound = is_maximum ? &zone->max : &zone->min;

	switch (test->form)
	{
		case PRUNE_INT:
			return bound->number < value->number ? -1 : bound->number > value->number;
		case PRUNE_FLOAT:
			return float8_cmp_internal(get_bound_real(bound), value->real);
		case PRUNE_BYTES:
			return compare_byte_bound(bound, is_maximum && zone->max_is_prefix, value);
		case PRUNE_DATUM:
			return compare_datum_bound(test, bound, value);
	}
	return 0;
}

bool
prune_zone_may_hold_value(PruneTest *test, const ZoneMap *zone, const PruneValue *value)
{
	switch (test->strategy)
	{
		case BTLessStrategyNumber:
			return compare_bound(test, zone, false, value) < 0;
		case BTLessEqualStrategyNumber:
			return compare_bound(test, zone, false, value) <= 0;
		case BTEqualStrategyNumber:
			return compare_bound(test, zone, false, value) <= 0 &&
				   compare_bound(test, zone, true, value) >= 0;
		case BTGreaterEqualStrategyNumber:
			return compare_bound(test, zone, true, value) >= 0;
		case BTGreaterStrategyNumber:
			return compare_bound(test, zone, true, value) > 0;
		default:
			return true;
	}
}

/* The first of the ascending values that is not below the zone's minimum. */
static uint32
find_first_in_zone(PruneTest *test, const ZoneMap *zone)
{
	uint32 low = 0;
	uint32 high = test->nvalues;

	while (low < high)
	{
		uint32 middle = low + (high - low) / 2;

		if (compare_bound(test, zone, false, &test->values[middle]) > 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* May "column op ANY (values)" be true within the bounds? */
static bool
may_hold_any(PruneTest *test, const ZoneMap *zone)
{
	uint32 value;

	if (test->form == PRUNE_DATUM)
	{
		if (test->nvalues > DATUM_VALUES_MAX)
			return true;
		for (uint32 i = 0; i < test->nvalues; i++)
			if (prune_zone_may_hold_value(test, zone, &test->values[i]))
				return true;
		return false;
	}
	switch (test->strategy)
	{
		case BTLessStrategyNumber:
		case BTLessEqualStrategyNumber:
			value = test->nvalues - 1;
			break;
		case BTEqualStrategyNumber:
			value = find_first_in_zone(test, zone);
			break;
		default:
			value = 0;
			break;
	}
	return value < test->nvalues && prune_zone_may_hold_value(test, zone, &test->values[value]);
}

/* May a value within the bounds begin with this prefix? */
static bool
may_have_prefix(const ZoneMap *zone, const PruneValue *prefix)
{
	uint32 common = Min(zone->min.length, prefix->length);

	/* a minimum beyond the prefix differs from it within their common length */
	if (memcmp(zone->min.bytes, prefix->bytes, common) > 0)
		return false;
	return compare_byte_bound(&zone->max, zone->max_is_prefix, prefix) >= 0;
}

bool
prune_zone_may_hold(PruneTest *test, const ZoneMap *zone)
{
	if (test->kind == PRUNE_NULL)
		return zone->nnulls > 0;
	/* all others need a value */
	if (zone->nnulls == zone->nrows)
		return false;
	if ((test->kind == PRUNE_COMPARE || test->kind == PRUNE_PREFIX) && test->nvalues == 0)
		return false;
	if (!zone->has_bounds)
		return true;

	switch (test->kind)
	{
		case PRUNE_COMPARE:
			return may_hold_any(test, zone);
		case PRUNE_PREFIX:
			return may_have_prefix(zone, &test->values[0]);
		case PRUNE_BOOLEAN:
			return test->truth ? zone->max.number != 0 : zone->min.number == 0;
		default:
			return true;
	}
}

/* ---- all rows ---------------------------------------------------------------------------------- */

/* Is "column op value" true for all values within the bounds? */
static bool
all_hold_value(PruneTest *test, const ZoneMap *zone, const PruneValue *value)
{
	switch (test->strategy)
	{
		case BTLessStrategyNumber:
			return compare_bound(test, zone, true, value) < 0;
		case BTLessEqualStrategyNumber:
			return compare_bound(test, zone, true, value) <= 0;
		case BTEqualStrategyNumber:
			return compare_bound(test, zone, false, value) == 0 &&
				   compare_bound(test, zone, true, value) == 0;
		case BTGreaterEqualStrategyNumber:
			return compare_bound(test, zone, false, value) >= 0;
		case BTGreaterStrategyNumber:
			return compare_bound(test, zone, false, value) > 0;
		default:
			return false;
	}
}

/* Of several values one has to do for all rows. */
static bool
all_hold_any(PruneTest *test, const ZoneMap *zone)
{
	if (test->nvalues > ALL_VALUES_MAX)
		return false;
	for (uint32 i = 0; i < test->nvalues; i++)
		if (all_hold_value(test, zone, &test->values[i]))
			return true;
	return false;
}

bool
prune_zone_all_hold(PruneTest *test, const ZoneMap *zone)
{
	if (test->kind == PRUNE_NULL)
		return zone->nnulls == zone->nrows;
	if (zone->nnulls > 0)
		return false;
	if (test->kind == PRUNE_NOT_NULL)
		return true;
	if (!zone->has_bounds)
		return false;
	switch (test->kind)
	{
		case PRUNE_COMPARE:
			return all_hold_any(test, zone);
		case PRUNE_BOOLEAN:
			return (zone->min.number != 0) == test->truth && (zone->max.number != 0) == test->truth;
		default:
			return false;
	}
}
