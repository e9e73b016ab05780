/*
 * eager_aggregation.h
 *		Aggregates of the optional side of an outer join, made before the join.
 */
#ifndef STRATA_EAGER_AGGREGATION_H
#define STRATA_EAGER_AGGREGATION_H

#include "nodes/parsenodes.h"

/* Has the query, in FROM or WITH or itself, aggregates over such a join with a distributed table? */
extern bool eager_aggregation_may_apply(Query *query);

/*
 * Rewrites these levels of the query in place: give it a copy if the original is needed.  False if nothing changed.
 * The result is for the planner.
 */
extern bool eager_aggregation_rewrite(Query *query);

#endif
