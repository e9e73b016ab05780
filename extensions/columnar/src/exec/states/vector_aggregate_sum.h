/*
 * vector_aggregate_sum.h
 *		The sums of an aggregate's groups, which vector_aggregate_sum.c makes and
 *		vector_aggregate_sum_state.c hands out.
 */
#ifndef COLUMNAR_VECTOR_AGGREGATE_SUM_H
#define COLUMNAR_VECTOR_AGGREGATE_SUM_H

#include "exec/states/vector_aggregate_internal.h"

#define LEVELS_MAX 8

typedef struct NarrowSum
{
	int64 sum;
	int64 count;
} NarrowSum;

typedef struct SumLevel
{
	int32 scale;
	NarrowSum *narrow;
	uint64 bound;	 /* no |narrow[].sum| is larger */
	int128 *wide;	 /* what was moved here from narrow[].sum; or NULL */
	int128 *squares; /* or NULL */
	uint128 squares_bound;
} SumLevel;

typedef struct SumAggregate
{
	VectorAggregate base;
	int nlevels;
	SumLevel levels[LEVELS_MAX];
	bool *seen; /* groups that had a row with NULL, which gives core a state too; or NULL */
	/* integers: the sum is factor * the sum of `of` + offset * its count; or NULL */
	const struct SumAggregate *of;
	int64 factor;
	int64 offset;
} SumAggregate;

static inline bool
sum_has_squares(const SumAggregate *sum)
{
	return sum->base.variant == SUM_INT128_SQUARES || sum->base.variant == SUM_NUMERIC_SQUARES;
}

static inline int128
sum_of_level(const SumLevel *level, uint32 group)
{
	return level->narrow[group].sum + (level->wide != NULL ? level->wide[group] : 0);
}

/* AggregateKernel.state and .total */
extern Datum sum_state(VectorAggregate *aggregate, uint32 group, bool *isnull);
extern bool sum_total(VectorAggregate *aggregate, uint32 group, AggregateTotal *total);

#endif
