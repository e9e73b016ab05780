/*
 * join_estimate.h
 *		How many rows a join by all columns of a unique index has.
 */
#ifndef STRATA_JOIN_ESTIMATE_H
#define STRATA_JOIN_ESTIMATE_H

#include "postgres.h"

#include "access/attnum.h"
#include "nodes/pathnodes.h"

/*
 * For set_rel_pathlist_hook, before core looks at joins of the relation: tells core what its unique indexes say (if has_keys), or
 * what the keys of a sub-select do that decorrelation made.
 */
extern void
join_estimate_relation(PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte, bool has_keys);

/*
 * The relation of an entry; NULL: not yet one.  For get_relation_stats_hook: the VariableStatData that it is handed is not set
 * at all when it comes from brincostestimate().
 */
extern RelOptInfo *join_estimate_find_relation(const PlannerInfo *root, const RangeTblEntry *rte);

/* The class that holds a column of the relation equal to something; NULL: none. */
extern EquivalenceClass *
join_estimate_find_class(const PlannerInfo *root, const RelOptInfo *rel, AttrNumber attribute);

/* The column of the relation among what the class holds equal, any if attribute is 0; NULL if it is not. */
extern EquivalenceMember *
join_estimate_find_member(const EquivalenceClass *ec, Index relid, AttrNumber attribute);

#endif
