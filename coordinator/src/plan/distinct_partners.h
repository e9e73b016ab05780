/*
 * distinct_partners.h
 *		What a semi or anti join here looks for comes once from each worker.
 */
#ifndef STRATA_DISTINCT_PARTNERS_H
#define STRATA_DISTINCT_PARTNERS_H

#include "plan/dist_path.h"

/*
 * The path with rows that are equal in these columns once for each worker, as such a join's inner side may be; NULL if they
 * cannot be put together.
 */
extern DistPath *distinct_partners_path(PlannerInfo *root, DistPath *dist, List *fetch);

/* Adds the join by hash with such an inner side. */
extern void distinct_partners_join(PlannerInfo *root, RelOptInfo *joinrel, RelOptInfo *outerrel,
								   RelOptInfo *innerrel, JoinType jointype,
								   JoinPathExtraData *extra, List *clauses);

#endif
