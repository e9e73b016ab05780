/*
 * grouping_sets.h
 *		GROUPING SETS, ROLLUP and CUBE: which of them workers can make, and how partial ones are finished.
 */
#ifndef STRATA_GROUPING_SETS_H
#define STRATA_GROUPING_SETS_H

#include "nodes/pathnodes.h"

#include "plan/dist_path.h"

/* Does SQL made of the planner's expressions say the same as the query's own? */
extern bool grouping_sets_possible(PlannerInfo *root);

/* Expressions over groups as the input of the sets computes them, with its columns. */
extern List *grouping_sets_input(PlannerInfo *root, List *exprs);

/* Are all rows of each group, in every set, on one worker? */
extern bool grouping_sets_complete(PlannerInfo *root, DistPath *input);

/* The grouping columns that are still the distribution key when the sets have made some of them NULL. */
extern List *grouping_sets_keys(PlannerInfo *root, DistPath *input);

/* The sets as a Query has them. */
extern List *grouping_sets_clause(List *sets);

/*
 * Core's paths of the stage, over rows that the workers have brought together by all grouping columns.  These are rows,
 * without duplicates, or, if `partial`, states of aggregates.
 */
extern void
grouping_sets_finish(PlannerInfo *root, RelOptInfo *output_rel, Path *input, bool partial);

#endif
