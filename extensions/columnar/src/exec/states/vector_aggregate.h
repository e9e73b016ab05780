/*
 * vector_aggregate.h
 *		Aggregation of vectors into the transition states of core's aggregates.
 *
 * One object per transition (sum(x) and avg(x) may share one), with the states of all
 * groups in arrays.  States are handed out as core's Partial Aggregate would: serialized
 * where the state's type is internal, so that core's Finalize Aggregate, here or on the
 * coordinator, computes the result.  An aggregate without a kernel runs its transition
 * function for each row, with the values of the vectors.
 *
 * Results are exactly PostgreSQL's.  Sums of floats are taken in the order of the rows.
 */
#ifndef COLUMNAR_VECTOR_AGGREGATE_H
#define COLUMNAR_VECTOR_AGGREGATE_H

#include "exec/vector/vector.h"

#include "nodes/primnodes.h"

typedef struct VectorAggregate VectorAggregate;

/* With so few groups the rows of each are counted, once for all aggregates. */
#define VECTOR_FEW_GROUPS 64

/*
 * Rows of a batch and their groups, for all aggregates that take the same rows (those with
 * the same FILTER): what the aggregates have in common is computed once.  Fill it with
 * vector_rows_init(); the arrays are borrowed.
 */
typedef struct VectorRows
{
	uint32 nrows;			 /* of the batch */
	const uint16 *selection; /* positions, ascending */
	uint32 nselected;
	const uint32 *groups; /* of row selection[i]; NULL: all are in group 0 */
	uint32 ngroups;		  /* there are so many groups */
	bool counted;		  /* private: are counts[] computed? */
	uint32 counts[VECTOR_FEW_GROUPS];
} VectorRows;

static inline void
vector_rows_init(VectorRows *rows, uint32 nrows, const uint16 *selection, uint32 nselected,
				 const uint32 *groups, uint32 ngroups)
{
	rows->nrows = nrows;
	rows->selection = selection;
	rows->nselected = nselected;
	rows->groups = ngroups > 1 ? groups : NULL;
	rows->ngroups = ngroups;
	rows->counted = false;
}

/* mantissa / 10^scale, the sum of so many values; their largest scale is this one. */
typedef struct AggregateTotal
{
	int128 mantissa;
	int32 scale;
	int64 count;
} AggregateTotal;

/* What must be known of a column for the state that all of its values would make. */
typedef enum AggregateUse
{
	AGGREGATE_USES_ROWS,  /* each value */
	AGGREGATE_USES_COUNT, /* how many are not NULL */
	AGGREGATE_USES_TOTAL, /* their sum, too */
	AGGREGATE_USES_MIN,
	AGGREGATE_USES_MAX
} AggregateUse;

/*
 * `aggref`: a plain aggregate without DISTINCT and ORDER BY, with AGGSPLIT_INITIAL_SERIAL.
 * Memory: a child of the current context.
 */
extern VectorAggregate *vector_aggregate_create(const Aggref *aggref, PlanState *parent);

/* Has the transition a kernel?  (A pure look-up, for planner and EXPLAIN.) */
extern bool vector_aggregate_has_kernel(const Aggref *aggref);

/* There are so many groups now (more than before): the new ones get the initial state. */
extern void vector_aggregate_resize(VectorAggregate *aggregate, uint32 ngroups);

/* Adds the rows. `arguments`: as many vectors as the aggregate has arguments (none for count(*)). */
extern void
vector_aggregate_advance(VectorAggregate *aggregate, Vector *const *arguments, VectorRows *rows);

extern AggregateUse vector_aggregate_use(const Aggref *aggref);

/* AGGREGATE_USES_COUNT, _TOTAL: adds the values of a total, and NULLs, to group 0. */
extern void
vector_aggregate_add(VectorAggregate *aggregate, const AggregateTotal *total, uint64 nnulls);
/* Can it be added? */
extern bool vector_aggregate_fits(const VectorAggregate *aggregate, const AggregateTotal *total);

/* The sum of integers; to derive others from. */
extern VectorAggregate *vector_aggregate_create_sum(PlanState *parent);
/*
 * The aggregate is that of factor * x + offset for the values x of `of`: it needs no rows from now
 * on.  False if it is no sum or average of integers.
 */
extern bool vector_aggregate_derive(VectorAggregate *aggregate, const VectorAggregate *of,
									int64 factor, int64 offset);

/* The state of a group as Partial Aggregate returns it, in the current memory context. */
extern Datum vector_aggregate_state(VectorAggregate *aggregate, uint32 group, bool *isnull);

/* Bytes in use. */
extern Size vector_aggregate_memory(const VectorAggregate *aggregate);

/* Forgets all groups. */
extern void vector_aggregate_reset(VectorAggregate *aggregate);

#endif
