/*
 * distinct_branches.h
 *		Aggregates over different distinct values as branches of a UNION ALL, one for each.
 */
#ifndef STRATA_DISTINCT_BRANCHES_H
#define STRATA_DISTINCT_BRANCHES_H

#include "postgres.h"

#include "nodes/parsenodes.h"

/* Has this level of a query (query_levels.h) such aggregates over distributed tables? */
extern bool distinct_branches_may_apply(Query *level);

/*
 * Rewrites the level in place: give it a copy if the original is needed.  False if nothing changed.
 * The result is for the planner.
 */
extern bool distinct_branches_rewrite(Query *level);

#endif
