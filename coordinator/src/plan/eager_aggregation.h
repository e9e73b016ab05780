/*
 * eager_aggregation.h
 *		Aggregates of the optional side of an outer join, made before the join.
 */
#ifndef STRATA_EAGER_AGGREGATION_H
#define STRATA_EAGER_AGGREGATION_H

#include "nodes/parsenodes.h"

/* Has this level of a query (query_levels.h) aggregates over such a join with a distributed table? */
extern bool eager_aggregation_may_apply(Query *level);

/*
 * Rewrites the level in place: give it a copy if the original is needed.  False if nothing changed.
 * The result is for the planner.
 */
extern bool eager_aggregation_rewrite(Query *level);

#endif
