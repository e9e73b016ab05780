/*
 * hash_join.h
 *		Joins here of rows that come from the workers, by hash.
 */
#ifndef STRATA_HASH_JOIN_H
#define STRATA_HASH_JOIN_H

#include "nodes/pathnodes.h"

/* The clauses, if both sides can be had, and joined by hash; else NIL. */
extern List *hash_join_clauses(RelOptInfo *joinrel, RelOptInfo *outerrel, RelOptInfo *innerrel,
							   JoinType jointype, List *restrictlist);

/* The join by hash of these paths of the two sides. */
extern Path *hash_join_path(PlannerInfo *root, RelOptInfo *joinrel, Path *outer, Path *inner,
							JoinType jointype, JoinPathExtraData *extra, List *clauses);

/* Takes a join by hash in place of loops that look through one of the sides once for each row of the other, if one is gathered. */
extern void hash_join_replace_loops(PlannerInfo *root, RelOptInfo *joinrel, RelOptInfo *outerrel,
									RelOptInfo *innerrel, JoinType jointype,
									JoinPathExtraData *extra, List *clauses);

#endif
