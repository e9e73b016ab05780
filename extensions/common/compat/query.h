/*
 * compat/query.h
 *		Differences between major versions: parsed queries and their expressions.
 */
#ifndef STRATA_COMPAT_QUERY_H
#define STRATA_COMPAT_QUERY_H

#include "nodes/parsenodes.h"

/* What MERGE compares, in a query that is not planned yet: it left the FROM items' quals in 17. */
#if PG_VERSION_NUM >= 170000
#define compat_merge_condition(query) (&(query)->mergeJoinCondition)
#define compat_merges_unmatched_source(action) \
	((action)->matchKind == MERGE_WHEN_NOT_MATCHED_BY_TARGET)
#define compat_merges_unmatched_target(action) \
	((action)->matchKind == MERGE_WHEN_NOT_MATCHED_BY_SOURCE)
#else
#define compat_merge_condition(query) (&(query)->jointree->quals)
#define compat_merges_unmatched_source(action) (!(action)->matched)
#define compat_merges_unmatched_target(action) ((void) (action), false)
#endif

/* RETURNING tells rows before and after since 18, under names that the query has; which row is it? */
#if PG_VERSION_NUM >= 180000
#define compat_copy_returning_names(to, from)             \
	((to)->returningOldAlias = (from)->returningOldAlias, \
	 (to)->returningNewAlias = (from)->returningNewAlias)
#define compat_names_old_or_new(var) ((var)->varreturningtype != VAR_RETURNING_DEFAULT)
/* a view's expression over one of these rows: NULL if the node is none */
#define compat_returned_value(node) \
	(IsA(node, ReturningExpr) ? (Node *) ((ReturningExpr *) (node))->retexpr : NULL)
#define compat_returned_level(node) (((ReturningExpr *) (node))->retlevelsup)
#define compat_name_row_of(var, node)                                                 \
	((var)->varreturningtype = ((ReturningExpr *) (node))->retold ? VAR_RETURNING_OLD \
																  : VAR_RETURNING_NEW)
#else
#define compat_copy_returning_names(to, from) ((void) 0)
#define compat_names_old_or_new(var) false
#define compat_returned_value(node) NULL
#define compat_returned_level(node) 0
#define compat_name_row_of(var, node) ((void) 0)
#endif

/* A column tells which outer joins above it may make it NULL; since 16. */
#if PG_VERSION_NUM >= 160000
#define compat_forget_nulling(var) ((var)->varnullingrels = NULL)
#define compat_set_nulling(var, join) ((var)->varnullingrels = bms_make_singleton(join))
#define compat_remove_nulling(node, join) \
	remove_nulling_relids((Node *) (node), bms_make_singleton(join), NULL)
#define compat_remove_all_nulling(root, node) \
	remove_nulling_relids((Node *) (node), (root)->outer_join_rels, NULL)
#else
#define compat_forget_nulling(var) ((void) 0)
#define compat_set_nulling(var, join) ((void) (join))
#define compat_remove_nulling(node, join) ((void) (join), (Node *) (node))
#define compat_remove_all_nulling(root, node) ((Node *) (node))
#endif

/* Columns of joins in an expression of the query as what they stand for; needs optimizer/optimizer.h. */
#if PG_VERSION_NUM >= 160000
#define compat_flatten_joins(query, node) flatten_join_alias_vars(NULL, query, (Node *) (node))
#else
#define compat_flatten_joins(query, node) flatten_join_alias_vars(query, (Node *) (node))
#endif

/*
 * What GROUP BY groups by is a relation of the range table since 18: the target list and HAVING name its columns,
 * so that the planner knows what a grouping set makes NULL, and what HAVING may not ask of single rows.
 * compat_flatten_groups() puts the expressions in their place, as before 18; not with grouping sets.
 */
#if PG_VERSION_NUM >= 180000
#include "optimizer/optimizer.h"
#include "rewrite/rewriteManip.h"

#define compat_has_group_relation(query) ((query)->hasGroupRTE)

static inline void
compat_flatten_groups(Query *query)
{
	ListCell *cell;

	if (!query->hasGroupRTE)
		return;
	query->targetList = (List *) flatten_group_exprs(NULL, query, (Node *) query->targetList);
	query->havingQual = flatten_group_exprs(NULL, query, query->havingQual);
	foreach(cell, query->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, cell);

		if (rte->rtekind != RTE_GROUP)
			continue;
		rte->rtekind = RTE_RESULT;
		rte->groupexprs = NIL;
	}
	query->hasGroupRTE = false;
}

/* An expression over groups as its input computes it: nothing that a grouping set has made NULL. */
#define compat_forget_grouping(root, node) \
	((root)->group_rtindex == 0            \
		 ? (node)                          \
		 : remove_nulling_relids((node), bms_make_singleton((int) (root)->group_rtindex), NULL))
#else
#define compat_has_group_relation(query) ((void) (query), false)
#define compat_flatten_groups(query) ((void) (query))
#define compat_forget_grouping(root, node) (node)
#endif

/* merge_action() in RETURNING, since 17: a value of the row, though it names no column. */
#if PG_VERSION_NUM >= 170000
#define compat_is_merge_action(node) IsA(node, MergeSupportFunc)
#else
#define compat_is_merge_action(node) false
#endif

/* A call of a JSON function that is a node of its own, since 16: of JSON_OBJECT() and its like; since 17: JSON_QUERY(). */
#if PG_VERSION_NUM >= 170000
#define compat_is_json_function(node) (IsA(node, JsonConstructorExpr) || IsA(node, JsonExpr))
#elif PG_VERSION_NUM >= 160000
#define compat_is_json_function(node) IsA(node, JsonConstructorExpr)
#else
#define compat_is_json_function(node) false
#endif

/* JSON_ARRAY(SELECT ...) has the query as it was written beside its expression since 19, and is printed by that. */
#if PG_VERSION_NUM >= 190000
#define compat_is_json_array_of_query(node) \
	(IsA(node, JsonConstructorExpr) &&      \
	 ((JsonConstructorExpr *) (node))->type == JSCTOR_JSON_ARRAY_QUERY)
#else
#define compat_is_json_array_of_query(node) false
#endif

/* Clauses of a JSON function as ruleutils prints them and the parser reads them; since 17. */
#if PG_VERSION_NUM >= 170000
#define compat_forget_json_clauses(node)                                                      \
	do                                                                                        \
	{                                                                                         \
		if (IsA(node, JsonExpr))                                                              \
		{                                                                                     \
			JsonExpr *json_ = (JsonExpr *) (node);                                            \
                                                                                              \
			json_->format = makeJsonFormat(JS_FORMAT_DEFAULT, JS_ENC_DEFAULT, -1);            \
			json_->returning = copyObject(json_->returning);                                  \
			json_->returning->format = makeJsonFormat(JS_FORMAT_DEFAULT, JS_ENC_DEFAULT, -1); \
			if (json_->wrapper == JSW_UNSPEC)                                                 \
				json_->wrapper = JSW_NONE;                                                    \
		}                                                                                     \
	} while (0)
#else
#define compat_forget_json_clauses(node) ((void) 0)
#endif

/*
 * The conditions on results of window functions (row_number() <= 1) that the planner has moved from
 * the WHERE clause around a query into its windows, where they end the computation early: as
 * operators over the WindowFuncs of `target`.  A list of the window clause, and since 17 of each function.
 */
#if PG_VERSION_NUM >= 170000
#include "catalog/pg_type_d.h"
#include "optimizer/optimizer.h"
#endif

static inline List *
compat_run_conditions(Query *query, List *target)
{
	List *conditions = NIL;
	ListCell *cell;
#if PG_VERSION_NUM >= 170000
	ListCell *cell2;

	foreach(cell,
			pull_var_clause((Node *) target, PVC_RECURSE_AGGREGATES | PVC_INCLUDE_WINDOWFUNCS |
												 PVC_RECURSE_PLACEHOLDERS))
	{
		WindowFunc *function = lfirst(cell);

		if (!IsA(function, WindowFunc))
			continue;
		foreach(cell2, function->runCondition)
		{
			WindowFuncRunCondition *run = lfirst(cell2);
			OpExpr *condition = makeNode(OpExpr);

			condition->opno = run->opno;
			condition->opresulttype = BOOLOID;
			condition->inputcollid = run->inputcollid;
			condition->args = run->wfunc_left ? list_make2(function, run->arg)
											  : list_make2(run->arg, function);
			condition->location = -1;
			if (!list_member(conditions, condition))
				conditions = lappend(conditions, condition);
		}
	}
#else
	foreach(cell, query->windowClause)
		conditions = list_concat_copy(conditions, ((WindowClause *) lfirst(cell))->runCondition);
#endif
	return conditions;
}

/* IGNORE NULLS of a window function, since 19. */
#if PG_VERSION_NUM >= 190000
#define compat_ignores_nulls(function) ((function)->ignore_nulls != NO_NULLTREATMENT)
#else
#define compat_ignores_nulls(function) false
#endif

/* Is the node such a condition, below its function? It is no expression. */
#if PG_VERSION_NUM >= 170000
#define compat_is_run_condition(node) IsA(node, WindowFuncRunCondition)
#else
#define compat_is_run_condition(node) false
#endif

/* What a statement for others says as a condition, its windows need not have. */
static inline void
compat_forget_run_conditions(Node *node)
{
#if PG_VERSION_NUM >= 170000
	if (IsA(node, WindowFunc))
		((WindowFunc *) node)->runCondition = NIL;
#else
	if (IsA(node, WindowClause))
		((WindowClause *) node)->runCondition = NIL;
#endif
}

#endif
