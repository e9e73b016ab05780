/*
 * vector_aggregate_sum_state.c
 *		From the sums of a group to the state that core's transition function would have made.
 *
 * Several levels make one state: their sums are terms of its total, and the largest scale that
 * a value was shown with is the state's.
 */
#include "compat.h"

#include "libpq/pqformat.h"
#include "utils/array.h"
#include "utils/fmgroids.h"

#include "exec/states/vector_aggregate_sum.h"

/* What of a group's state is in the levels. */
typedef struct SumTotal
{
	int64 count;
	int32 scale;	   /* the largest of a value */
	int64 scale_count; /* values that have it */
	int nterms;
	WireTerm sums[LEVELS_MAX];
	WireTerm squares[LEVELS_MAX];
} SumTotal;

static void
find_total(const SumAggregate *sum, uint32 group, SumTotal *total)
{
	total->count = 0;
	total->scale = 0;
	total->scale_count = 0;
	total->nterms = 0;
	for (int i = 0; i < sum->nlevels; i++)
	{
		const SumLevel *level = &sum->levels[i];
		int64 count = level->narrow[group].count;

		total->count += count;
		if (count > 0 && level->scale >= total->scale)
		{
			total->scale = level->scale;
			total->scale_count = count;
		}
		/* without a count: nothing, or padded values */
		total->sums[total->nterms] = wire_term(sum_of_level(level, group), level->scale);
		if (level->squares != NULL)
			total->squares[total->nterms] = wire_term(level->squares[group], 2 * level->scale);
		total->nterms++;
	}
}

/* Of integers: the sum, and of how many values.  (In unsigned arithmetic, as parts may overflow.) */
static int128
find_int_total(const SumAggregate *sum, uint32 group, int64 *count)
{
	const SumAggregate *of = sum->of ? sum->of : sum;
	int128 total = of->nlevels > 0 ? sum_of_level(&of->levels[0], group) : 0;

	*count = of->nlevels > 0 ? of->levels[0].narrow[group].count : 0;
	if (sum->of == NULL)
		return total;
	return (int128) ((uint128) total * (uint128) (int128) sum->factor +
					 (uint128) (int128) sum->offset * (uint128) *count);
}

/* As numeric_avg_serialize() and numeric_serialize(), without infinities and NaNs. */
static Datum
serialize_numeric(const SumAggregate *sum, const SumTotal *total)
{
	StringInfoData buffer;

	pq_begintypsend(&buffer);
	pq_sendint64(&buffer, total->count);
	wire_put_total(&buffer, total->sums, total->nterms, total->scale);
	if (sum_has_squares(sum))
		wire_put_total(&buffer, total->squares, total->nterms, 2 * total->scale);
	pq_sendint32(&buffer, total->scale);
	pq_sendint64(&buffer, total->scale_count);
	pq_sendint64(&buffer, 0); /* NaNs */
	pq_sendint64(&buffer, 0); /* infinities */
	pq_sendint64(&buffer, 0); /* negative ones */
	return PointerGetDatum(pq_endtypsend(&buffer));
}

/* As int8_avg_serialize() and numeric_poly_serialize(). */
static Datum
serialize_int128(const SumAggregate *sum, uint32 group)
{
	StringInfoData buffer;
	int64 count;
	int128 total = find_int_total(sum, group, &count);

	pq_begintypsend(&buffer);
	pq_sendint64(&buffer, count);
	wire_put_int128(&buffer, total);
	if (sum_has_squares(sum))
		wire_put_int128(&buffer, sum->nlevels > 0 ? sum->levels[0].squares[group] : 0);
	return PointerGetDatum(pq_endtypsend(&buffer));
}

/* Had the group a row with NULL? */
static bool
has_seen(const SumAggregate *sum, uint32 group)
{
	return sum->seen != NULL && sum->seen[group];
}

/* A state of core's transition function combined with what the levels hold. */
static Datum
combine_with_core(SumAggregate *sum, uint32 group, bool *isnull)
{
	ScalarStates *scalar = sum->base.scalar;
	SumTotal total;

	find_total(sum, group, &total);
	if (total.count == 0)
		return scalar_states_state(scalar, group, isnull);
	*isnull = false;
	if (sum->base.variant == SUM_NUMERIC_SQUARES)
		return scalar_states_combine(scalar, group, serialize_numeric(sum, &total),
									 F_NUMERIC_DESERIALIZE, F_NUMERIC_COMBINE);
	if (sum->base.variant == SUM_NUMERIC)
		return scalar_states_combine(scalar, group, serialize_numeric(sum, &total),
									 F_NUMERIC_AVG_DESERIALIZE, F_NUMERIC_AVG_COMBINE);
	if (sum->base.variant == SUM_INT128_SQUARES)
		return scalar_states_combine(scalar, group, serialize_int128(sum, group),
									 F_NUMERIC_POLY_DESERIALIZE, F_NUMERIC_POLY_COMBINE);
	elog(ERROR, "an integer does not fit its sum");
}

static Datum
get_int_state(const SumAggregate *sum, uint32 group, bool *isnull)
{
	int64 count;
	int128 total = find_int_total(sum, group, &count);

	*isnull = count == 0;
	switch ((SumVariant) sum->base.variant)
	{
		case SUM_INT64:
		case SUM_MONEY:
			return Int64GetDatum((int64) total);
		case SUM_AVERAGE:
			*isnull = false;
			return wire_average_array(count, (int64) total);
		default:
			*isnull = count == 0 && !has_seen(sum->of ? sum->of : sum, group);
			return *isnull ? (Datum) 0 : serialize_int128(sum, group);
	}
}

Datum
sum_state(VectorAggregate *aggregate, uint32 group, bool *isnull)
{
	SumAggregate *sum = (SumAggregate *) aggregate;
	SumTotal total;

	if (aggregate->scalar != NULL && scalar_states_has(aggregate->scalar, group))
		return combine_with_core(sum, group, isnull);
	if (aggregate->variant != SUM_NUMERIC && aggregate->variant != SUM_NUMERIC_SQUARES)
		return get_int_state(sum, group, isnull);
	find_total(sum, group, &total);
	*isnull = total.count == 0 && !has_seen(sum, group);
	return *isnull ? (Datum) 0 : serialize_numeric(sum, &total);
}

/* Values of several scales, or that core's function added, are no simple total. */
bool
sum_total(VectorAggregate *aggregate, uint32 group, AggregateTotal *total)
{
	const SumAggregate *sum = (SumAggregate *) aggregate;

	total->count = 0;
	if (aggregate->scalar != NULL && scalar_states_has(aggregate->scalar, group))
		return false;
	if (sum->of != NULL)
	{
		total->mantissa = find_int_total(sum, group, &total->count);
		total->scale = 0;
		return total->count > 0;
	}
	for (int i = 0; i < sum->nlevels; i++)
	{
		const SumLevel *level = &sum->levels[i];
		int64 count = level->narrow[group].count;
		int128 mantissa = sum_of_level(level, group);

		if (count == 0 && mantissa == 0)
			continue;
		if (count == 0 || total->count > 0)
			return false;
		*total = (AggregateTotal){.mantissa = mantissa, .scale = level->scale, .count = count};
	}
	return total->count > 0;
}
