/*
 * prune.c
 *		Asking zone maps and Bloom filters whether a row group or block can qualify.
 *
 * The values of a test are taken once per (re)scan.  A block is asked after its
 * group was, so Bloom filters, which are the group's, are asked once.
 *
 * Memory: tests and functions live in the pruner's context, values in one that
 * is reset with each rescan, what comparison functions leak in one that is reset
 * with each question.
 */
#include "prune.h"

#include "access/stratnum.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "utils/array.h"
#include "utils/datum.h"
#include "utils/float.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "prune_test.h"

/* Longer lists are not compared by function, one value after the other, with each block. */
#define DATUM_VALUES_MAX 256
/* More values than this are not looked up in a Bloom filter: one of them would be found by error. */
#define BLOOM_VALUES_MAX 64

/* Rows whose value is not within are of no use to the node above. */
typedef struct PruneLimit
{
	AttrNumber attribute;
	int64 low;
	int64 high;
	bool nulls; /* but NULLs are of use */
} PruneLimit;

struct Pruner
{
	RowPruner callbacks; /* first member */
	MemoryContext context;
	List *limits; /* PruneLimit */
	PlanState *parent;
	PruneTest *test; /* NULL: keep everything */
	List *clauses;
	bool has_values;
	MemoryContext values;
	MemoryContext scratch;
	PruneCounters counters;
};

/* ---- values ------------------------------------------------------------------------------------ */

/* The fixed text at the beginning of a LIKE pattern, in place of the pattern; its length. */
static uint32
cut_pattern(char *pattern, uint32 length)
{
	uint32 kept = 0;

	/* no multibyte character of a server encoding contains an ASCII byte */
	for (uint32 i = 0; i < length; i++)
	{
		if (pattern[i] == '%' || pattern[i] == '_')
			break;
		if (pattern[i] == '\\' && ++i == length)
			break;
		pattern[kept++] = pattern[i];
	}
	return kept;
}

static int64
get_integer(const PruneTest *test, Datum value)
{
	switch (test->value_type)
	{
		case INT2OID:
			return DatumGetInt16(value);
		case INT4OID:
			return DatumGetInt32(value);
		case INT8OID:
			return DatumGetInt64(value);
		default:
			return column_type_to_int(&test->type, value);
	}
}

/* Adds a value that is not NULL; copies it to the current context. */
static void
add_value(PruneTest *test, Datum datum, int16 length, bool byval)
{
	PruneValue *value = &test->values[test->nvalues++];

	if (!byval && length == -1)
		datum = PointerGetDatum(PG_DETOAST_DATUM_COPY(datum));
	else
		datum = datumCopy(datum, byval, length);
	value->datum = datum;

	switch (test->form)
	{
		case PRUNE_INT:
			value->number = get_integer(test, datum);
			break;
		case PRUNE_FLOAT:
			value->real = test->value_type == FLOAT4OID ? (double) DatumGetFloat4(datum)
														: DatumGetFloat8(datum);
			break;
		case PRUNE_BYTES:
			value->bytes = length == -1 ? VARDATA(datum) : DatumGetPointer(datum);
			value->length = length == -1 ? VARSIZE(datum) - VARHDRSZ : (uint32) length;
			if (test->is_pattern)
				value->length = cut_pattern((char *) value->bytes, value->length);
			if (test->value_type == NAMEOID)
				value->length = strnlen(value->bytes, value->length);
			value->length = zone_map_trim(&test->type, value->bytes, value->length);
			break;
		case PRUNE_DATUM:
			break;
	}
	if (OidIsValid(test->hash.fn_oid))
		value->hash = DatumGetUInt64(
			FunctionCall2Coll(&test->hash, test->type.collation, datum, Int64GetDatum(0)));
}

static int
compare_bytes(const PruneValue *a, const PruneValue *b)
{
	int order = memcmp(a->bytes, b->bytes, Min(a->length, b->length));

	if (order != 0)
		return order;
	return a->length < b->length ? -1 : a->length > b->length;
}

static int
compare_values(const void *a, const void *b, void *form)
{
	const PruneValue *left = a;
	const PruneValue *right = b;

	switch (*(PruneForm *) form)
	{
		case PRUNE_INT:
			return left->number < right->number ? -1 : left->number > right->number;
		case PRUNE_FLOAT:
			return float8_cmp_internal(left->real, right->real);
		case PRUNE_BYTES:
			return compare_bytes(left, right);
		case PRUNE_DATUM:
			break;
	}
	return 0;
}

/* The elements of an array that are not NULL, ascending. */
static void
add_elements(PruneTest *test, Datum datum)
{
	ArrayType *array = DatumGetArrayTypeP(datum);
	Datum *elements;
	bool *nulls;
	int count;
	int16 length;
	bool byval;
	char align;

	get_typlenbyvalalign(ARR_ELEMTYPE(array), &length, &byval, &align);
	deconstruct_array(array, ARR_ELEMTYPE(array), length, byval, align, &elements, &nulls, &count);
	test->values = palloc0(sizeof(PruneValue) * Max(count, 1));
	for (int i = 0; i < count; i++)
		if (!nulls[i])
			add_value(test, elements[i], length, byval);
	qsort_arg(test->values, test->nvalues, sizeof(PruneValue), compare_values, &test->form);
}

/* Takes the values of a test for this scan, allocated in the current context. */
static void
take_values(PruneTest *test, ExprContext *econtext)
{
	ListCell *cell;
	Datum datum;
	bool isnull;

	foreach(cell, test->parts)
		take_values(lfirst(cell), econtext);
	if (test->state == NULL)
		return;

	test->nvalues = 0;
	test->values = NULL;
	datum = ExecEvalExprSwitchContext(test->state, econtext, &isnull);
	if (isnull)
		return; /* strict: true for no row */
	if (test->is_array)
		add_elements(test, datum);
	else
	{
		int16 length;
		bool byval;

		get_typlenbyval(exprType((Node *) test->value), &length, &byval);
		test->values = palloc0(sizeof(PruneValue));
		add_value(test, datum, length, byval);
	}
}

static void
make_states(PruneTest *test, PlanState *parent, MemoryContext scratch)
{
	ListCell *cell;

	foreach(cell, test->parts)
		make_states(lfirst(cell), parent, scratch);
	test->scratch = scratch;
	if (test->value != NULL)
		test->state = ExecInitExpr(test->value, parent);
}

/* ---- bounds ------------------------------------------------------------------------------------ */

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

/* May "column op value" be true within the bounds? */
static bool
may_hold_value(PruneTest *test, const ZoneMap *zone, const PruneValue *value)
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
			if (may_hold_value(test, zone, &test->values[i]))
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
	return value < test->nvalues && may_hold_value(test, zone, &test->values[value]);
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

static bool
may_hold_in_zone(PruneTest *test, const ZoneMap *zone)
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

/* ---- row groups and blocks --------------------------------------------------------------------- */

/* May the chunk have one of the values that its bounds allow? */
static bool
may_hold_in_filter(PruneTest *test, RowGroupReader *reader, const ChunkSummary *summary)
{
	ChunkReader *chunk;

	if (!OidIsValid(test->hash.fn_oid) || !summary->has_bloom || test->nvalues > BLOOM_VALUES_MAX)
		return true;
	chunk = row_group_reader_chunk(reader, test->attribute);
	for (uint32 i = 0; i < test->nvalues; i++)
	{
		const PruneValue *value = &test->values[i];

		if ((!summary->zone.has_bounds || may_hold_value(test, &summary->zone, value)) &&
			chunk_reader_may_contain(chunk, value->hash))
			return true;
	}
	return false;
}

static bool
may_hold_in_group(PruneTest *test, RowGroupReader *reader)
{
	const ChunkSummary *summary = row_group_reader_summary(reader, test->attribute);

	/* a column that was added later: all rows have the default */
	if (summary == NULL)
		return true;
	return may_hold_in_zone(test, &summary->zone) && may_hold_in_filter(test, reader, summary);
}

static bool
may_hold_in_block(PruneTest *test, RowGroupReader *reader, uint32 block)
{
	ChunkReader *chunk;

	if (row_group_reader_summary(reader, test->attribute) == NULL)
		return true;
	chunk = row_group_reader_chunk(reader, test->attribute);
	return may_hold_in_zone(test, chunk_reader_zone(chunk, block));
}

/* `block` -1: the row group as a whole. */
static bool
may_hold(PruneTest *test, RowGroupReader *reader, int64 block)
{
	ListCell *cell;

	if (test->parts == NIL)
		return block < 0 ? may_hold_in_group(test, reader)
						 : may_hold_in_block(test, reader, (uint32) block);
	foreach(cell, test->parts)
	{
		bool part = may_hold(lfirst(cell), reader, block);

		if (part == (test->kind == PRUNE_OR))
			return part;
	}
	return test->kind == PRUNE_AND;
}

static bool
is_within_limit(const PruneLimit *limit, RowGroupReader *reader, int64 block)
{
	const ChunkSummary *summary = row_group_reader_summary(reader, limit->attribute);
	const ZoneMap *zone;

	if (summary == NULL || row_group_reader_type(reader, limit->attribute)->zone != ZONE_INT)
		return true;
	zone = block < 0 ? &summary->zone
					 : chunk_reader_zone(row_group_reader_chunk(reader, limit->attribute),
										 (uint32) block);
	if (zone->nnulls == zone->nrows)
		return limit->nulls;
	if (!zone->has_bounds || (limit->nulls && zone->nnulls > 0))
		return true;
	return zone->min.number <= limit->high && zone->max.number >= limit->low;
}

static bool
are_within_limits(const Pruner *pruner, RowGroupReader *reader, int64 block)
{
	ListCell *cell;

	foreach(cell, pruner->limits)
		if (!is_within_limit(lfirst(cell), reader, block))
			return false;
	return true;
}

static bool
ask(Pruner *pruner, RowGroupReader *reader, int64 block)
{
	bool keep;

	if (!are_within_limits(pruner, reader, block))
		return false;
	if (pruner->test == NULL)
		return true;
	if (!pruner->has_values)
	{
		MemoryContext caller;

		MemoryContextReset(pruner->values);
		caller = MemoryContextSwitchTo(pruner->values);
		take_values(pruner->test, pruner->parent->ps_ExprContext);
		MemoryContextSwitchTo(caller);
		pruner->has_values = true;
	}
	keep = may_hold(pruner->test, reader, block);
	MemoryContextReset(pruner->scratch);
	return keep;
}

static bool
keep_group(RowPruner *callbacks, RowGroupReader *reader)
{
	Pruner *pruner = (Pruner *) callbacks;
	bool keep = ask(pruner, reader, -1);

	pruner->counters.groups++;
	pruner->counters.groups_pruned += !keep;
	return keep;
}

static bool
keep_block(RowPruner *callbacks, RowGroupReader *reader, uint32 block)
{
	Pruner *pruner = (Pruner *) callbacks;
	bool keep = ask(pruner, reader, block);

	pruner->counters.blocks++;
	pruner->counters.blocks_pruned += !keep;
	return keep;
}

/* Limits may have been added since. */
static bool
keep_still(RowPruner *callbacks, RowGroupReader *reader, uint32 block)
{
	Pruner *pruner = (Pruner *) callbacks;
	bool keep = are_within_limits(pruner, reader, block);

	pruner->counters.blocks_pruned += !keep;
	return keep;
}

/* ---- interface --------------------------------------------------------------------------------- */

Pruner *
pruner_create(Relation relation, Index varno, List *clauses, PlanState *parent)
{
	Pruner *pruner = palloc0(sizeof(Pruner));
	List *tests = NIL;
	ListCell *cell;

	pruner->context = CurrentMemoryContext;
	pruner->callbacks.keep_group = keep_group;
	pruner->callbacks.keep_block = keep_block;
	pruner->callbacks.keep_still = keep_still;
	pruner->parent = parent;
	foreach(cell, clauses)
	{
		PruneTest *test = prune_test_make(lfirst(cell), varno, RelationGetDescr(relation));

		if (test == NULL)
			continue;
		tests = lappend(tests, test);
		pruner->clauses = lappend(pruner->clauses, lfirst(cell));
	}
	if (tests == NIL)
		return pruner;

	pruner->test = palloc0(sizeof(PruneTest));
	pruner->test->kind = PRUNE_AND;
	pruner->test->parts = tests;
	pruner->values = AllocSetContextCreate(CurrentMemoryContext, "columnar prune values",
										   ALLOCSET_SMALL_SIZES);
	pruner->scratch = AllocSetContextCreate(CurrentMemoryContext, "columnar prune scratch",
											ALLOCSET_SMALL_SIZES);
	make_states(pruner->test, parent, pruner->scratch);
	return pruner;
}

RowPruner *
pruner_callbacks(Pruner *pruner)
{
	return &pruner->callbacks;
}

List *
pruner_clauses(const Pruner *pruner)
{
	return pruner->clauses;
}

void
pruner_reset(Pruner *pruner)
{
	pruner->has_values = false;
}

void
pruner_add_limit(Pruner *pruner, AttrNumber attribute, int64 low, int64 high, bool nulls)
{
	MemoryContext caller;
	PruneLimit *limit;
	ListCell *cell;

	foreach(cell, pruner->limits)
	{
		limit = lfirst(cell);
		if (limit->attribute != attribute || limit->nulls != nulls)
			continue;
		limit->low = Max(limit->low, low);
		limit->high = Min(limit->high, high);
		return;
	}
	caller = MemoryContextSwitchTo(pruner->context);
	limit = palloc(sizeof(PruneLimit));
	*limit = (PruneLimit){.attribute = attribute, .low = low, .high = high, .nulls = nulls};
	pruner->limits = lappend(pruner->limits, limit);
	MemoryContextSwitchTo(caller);
}

void
pruner_forget_limits(Pruner *pruner)
{
	list_free_deep(pruner->limits);
	pruner->limits = NIL;
}

const PruneCounters *
pruner_counters(const Pruner *pruner)
{
	return &pruner->counters;
}

AttrNumber
prune_clause_attribute(Node *clause, Index varno, TupleDesc descriptor)
{
	PruneTest *test = prune_test_make(clause, varno, descriptor);

	return test == NULL ? 0 : prune_test_attribute(test);
}
