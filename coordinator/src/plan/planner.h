/*
 * planner.h
 *		The planner hooks, in the order in which a query passes them.
 *
 *		plan_scan.c		a base relation gets a DistPath and a Gather over it
 *		plan_set.c		UNION, INTERSECT and EXCEPT
 *		plan_join.c		two DistPaths that meet on the workers become one
 *		plan_upper.c	the stages above: windows, DISTINCT, ORDER BY, LIMIT
 *		plan_grouping.c	grouping
 *		plan_modify.c	INSERT, UPDATE, DELETE and MERGE become shipped statements
 *		planner.c		installs the hooks
 */
#ifndef STRATA_PLANNER_H
#define STRATA_PLANNER_H

#include "nodes/pathnodes.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"

#include "cluster/metadata.h"

extern void planner_initialize(void); /* from _PG_init */

extern void plan_scan_relation_info(PlannerInfo *root, RelOptInfo *rel);
extern void plan_scan(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte);

/* ERROR if the query names the ctid of a distributed table, its range-table entry rti. */
extern void plan_scan_check_ctid(PlannerInfo *root, Index rti);

/* The distributed table that the query itself changes; NULL: it changes none. */
extern const DistributedTable *plan_scan_changed_table(const Query *query);

/* UNION ALL that core has flattened into a relation of the level. */
extern void plan_append(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte);

/* A node of a tree of set operations, of which core has made its own paths already. */
extern void plan_set_operation(PlannerInfo *root, RelOptInfo *rel);

/* What a Gather of a relation, a table or a join, brings: columns. */
extern List *plan_scan_fetch(RelOptInfo *rel);
/* Can it? */
extern bool plan_join_can_fetch(PlannerInfo *root, RelOptInfo *rel, List *fetch);
extern void plan_join(PlannerInfo *root, RelOptInfo *joinrel, RelOptInfo *outerrel,
					  RelOptInfo *innerrel, JoinType jointype, JoinPathExtraData *extra);
extern void plan_grouping(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *output_rel,
						  GroupPathExtraData *extra);
extern void plan_upper(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input_rel,
					   RelOptInfo *output_rel, void *extra);

/*
 * The final stage of INSERT, UPDATE, DELETE and MERGE: replaces the paths of a
 * statement that writes a distributed table, or raises the error that says why
 * it cannot run.
 */
extern void plan_modify(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *final_rel);

/* Is the entry a distributed table?  Does the tree, a Query at any level, read one? */
extern bool planner_is_distributed(const RangeTblEntry *rte);
extern bool planner_reads_distributed(Node *node);

extern bool planner_is_active(void);

/* The statement being planned, as it was before planning; NULL for a SELECT that modifies nothing. */
extern Query *planner_original_query(void);

/* Parts of the statement share tables, so that no change may run on the workers as a statement. */
extern bool planner_changes_here(void);

/* The workers will read, or change, this table in a part of the statement. */
extern void planner_note_access(Oid relation, bool writes);

/* A relation that the plan reads although core does not know: its permissions and invalidations must count. */
extern void planner_add_hidden_root(PlannerInfo *root);

#endif
