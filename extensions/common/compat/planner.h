/*
 * compat/planner.h
 *		Differences between major versions: paths, their costs and orders.
 */
#ifndef STRATA_COMPAT_PLANNER_H
#define STRATA_COMPAT_PLANNER_H

/* GROUP BY and DISTINCT without clauses that others make redundant, which the planner removes since 16. */
#if PG_VERSION_NUM >= 160000
#define compat_group_clauses(root) ((root)->processed_groupClause)
#define compat_distinct_clauses(root) ((root)->processed_distinctClause)
#else
#define compat_group_clauses(root) ((root)->parse->groupClause)
#define compat_distinct_clauses(root) ((root)->parse->distinctClause)
#endif

/* Since 16 core sorts the input of a DISTINCT aggregate beforehand, and has pathkeys for that after those of GROUP BY. */
#if PG_VERSION_NUM >= 160000
#define compat_forget_presorted(aggref) ((aggref)->aggpresorted = false)
#define compat_group_pathkeys(root) \
	list_copy_head((root)->group_pathkeys, (root)->num_groupby_pathkeys)
#else
#define compat_forget_presorted(aggref) ((void) (aggref))
#define compat_group_pathkeys(root) ((root)->group_pathkeys)
#endif

/* The conditions of a WindowAggPath that end it early: in its clause, and since 17 in the path. */
#if PG_VERSION_NUM >= 170000
#define compat_window_run_condition(path) ((path)->runCondition)
#else
#define compat_window_run_condition(path) ((path)->winclause->runCondition)
#endif

/*
 * Since 16 a Var tells which outer joins below may have made it NULL; `join` is the range-table
 * index of one, or 0.
 */
#if PG_VERSION_NUM >= 160000
#define compat_var_is_nulled_by(var, join) \
	((var)->varnullingrels = (join) > 0 ? bms_make_singleton(join) : NULL)
#else
#define compat_var_is_nulled_by(var, join) ((void) (join))
#endif

/* The clauses by which classes hold columns of two relations equal; since 16 of the side of an outer join, too. */
#if PG_VERSION_NUM >= 160000
#define compat_join_equalities(root, both, one, other) \
	generate_join_implied_equalities(root, both, one, other, NULL)
#else
#define compat_join_equalities(root, both, one, other) \
	generate_join_implied_equalities(root, both, one, other)
#endif

/* Is the Var in the result of find_nonnullable_vars(), which is a list of sets since 16? */
#if PG_VERSION_NUM >= 160000
#include "access/sysattr.h"
#include "nodes/multibitmapset.h"

#define compat_contains_var(vars, var) \
	mbms_is_member((var)->varno, (var)->varattno - FirstLowInvalidHeapAttributeNumber, vars)
#else
#define compat_contains_var(vars, var) list_member(vars, var)
#endif

/*
 * What enable_seqscan = off and its like do to a path: 18 counts its disabled nodes, and compares these before
 * costs; before, a huge cost was added, which made all other costs of such a plan look the same.
 */
#if PG_VERSION_NUM >= 180000
#define compat_disabled_nodes(path) ((path)->disabled_nodes)
#define compat_set_disabled_nodes(path, count) ((path)->disabled_nodes = (count))
#define compat_disable(path) ((path)->disabled_nodes += 1)
#else
#define compat_disabled_nodes(path) 0
#define compat_set_disabled_nodes(path, count) ((void) (count))
#define compat_disable(path) ((path)->startup_cost += disable_cost)
#endif
#define compat_is_cheaper(path, other)                                \
	(compat_disabled_nodes(path) != compat_disabled_nodes(other)      \
		 ? compat_disabled_nodes(path) < compat_disabled_nodes(other) \
		 : (path)->total_cost < (other)->total_cost)

/* The cost of sorting an input in which nothing is disabled; needs optimizer/cost.h. */
#if PG_VERSION_NUM >= 180000
#define compat_cost_sort(path, root, pathkeys, cost, rows, width, comparison, memory, limit) \
	cost_sort(path, root, pathkeys, 0, cost, rows, width, comparison, memory, limit)
#else
#define compat_cost_sort cost_sort
#endif

/*
 * How operators order: 18 says it by CompareType, which has btree's numbers for what btree has, so that
 * access methods other than btree may order.
 */
#if PG_VERSION_NUM >= 180000
#define CompatStrategy CompareType
#define CompatOpInterpretation OpIndexInterpretation
#define compat_op_interpretations(opno) get_op_index_interpretation(opno)
#define compat_pathkey_is_descending(pathkey) ((pathkey)->pk_cmptype == COMPARE_GT)
#else
#define CompatStrategy int16
#define CompatOpInterpretation OpBtreeInterpretation
#define compat_op_interpretations(opno) get_op_btree_interpretation(opno)
#define compat_pathkey_is_descending(pathkey) ((pathkey)->pk_strategy == BTGreaterStrategyNumber)
#endif

/* planner_hook: since 19 it is handed the EXPLAIN that asks for the plan, for options of extensions; NULL otherwise. */
#if PG_VERSION_NUM >= 190000
#define COMPAT_PLAN_ARGUMENTS(query)                                                        \
	Query *query, const char *query_string, int cursor_options, ParamListInfo bound_params, \
		ExplainState *explain
#define COMPAT_PASS_PLAN(query) query, query_string, cursor_options, bound_params, explain
#else
#define COMPAT_PLAN_ARGUMENTS(query) \
	Query *query, const char *query_string, int cursor_options, ParamListInfo bound_params
#define COMPAT_PASS_PLAN(query) query, query_string, cursor_options, bound_params
#endif

/*
 * The hook that sees a base relation made: 19 calls it for entries of every kind, and after all of the
 * relation's fields are set.  Needs optimizer/pathnode.h and optimizer/plancat.h.
 */
#if PG_VERSION_NUM >= 190000
#define compat_relation_hook build_simple_rel_hook
#define CompatRelationHook build_simple_rel_hook_type
#define COMPAT_RELATION_ARGUMENTS PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *entry
#define COMPAT_PASS_RELATION root, rel, entry
#else
#define compat_relation_hook get_relation_info_hook
#define CompatRelationHook get_relation_info_hook_type
#define COMPAT_RELATION_ARGUMENTS \
	PlannerInfo *root, Oid relation_id, bool has_members, RelOptInfo *rel
#define COMPAT_PASS_RELATION root, relation_id, has_members, rel
#endif

/* Eager aggregation, since 19: a join with partial aggregates of one side, which has the relids of that without. */
#if PG_VERSION_NUM >= 190000
#define compat_is_grouped_join(joinrel) IS_GROUPED_REL(joinrel)
#else
#define compat_is_grouped_join(joinrel) false
#endif

/* One path after the other, of no order; 19 takes the paths of an Append as a struct. */
#if PG_VERSION_NUM >= 190000
#define compat_create_append_path(root, rel, paths) \
	create_append_path(root, rel, (AppendPathInput){.subpaths = (paths)}, NIL, NULL, 0, false, -1)
#else
#define compat_create_append_path(root, rel, paths) \
	create_append_path(root, rel, paths, NIL, NIL, NULL, 0, false, -1)
#endif

/* A Material that is needed, whatever enable_material says, which 19 asks whoever makes one. */
#if PG_VERSION_NUM >= 190000
#define compat_create_material_path(rel, path) create_material_path(rel, path, true)
#else
#define compat_create_material_path create_material_path
#endif

/* The Unique of DISTINCT ON; since 19 semijoins have no other node of this name. */
#if PG_VERSION_NUM >= 190000
#define compat_create_unique_path create_unique_path
#else
#define compat_create_unique_path create_upper_unique_path
#endif

/* Rows of an UPDATE may change the partition: found out by the executor since 19. */
#if PG_VERSION_NUM >= 190000
#define compat_forget_partition_update(path) ((void) (path))
#else
#define compat_forget_partition_update(path) ((path)->partColsUpdated = false)
#endif

/* Does the plan change the rows of the range table's entry?  19 has a set of these. */
#if PG_VERSION_NUM >= 190000
#define compat_is_result_relation(plan, index) bms_is_member(index, (plan)->resultRelationRelids)
#else
#define compat_is_result_relation(plan, index) list_member_int((plan)->resultRelations, index)
#endif

#endif
