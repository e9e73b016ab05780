/*
 * join_estimate.h
 *		How many rows a join by all columns of a unique index has.
 */
#ifndef STRATA_JOIN_ESTIMATE_H
#define STRATA_JOIN_ESTIMATE_H

#include "postgres.h"

#include "nodes/pathnodes.h"

/*
 * For set_rel_pathlist_hook, before core looks at joins of the relation: tells core what its unique indexes say (if has_keys), or
 * what the keys of a sub-select do that decorrelation made.
 */
extern void
join_estimate_relation(PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte, bool has_keys);

#endif
