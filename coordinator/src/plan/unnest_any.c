/*
 * unnest_any.c
 *		x = ANY (SELECT unnest(array)) as x = ANY (array).
 *
 * Clients that send a list as one parameter write it so.  As a sub-select it is a join, for which all rows would come
 * here; as an array it is a condition, which tells the shards, and goes to the workers.
 *
 * The two differ in one case: for an array that is NULL, the first is false and the second NULL.  To a condition of
 * WHERE, ON or HAVING they are the same, also below AND and OR, but not below anything else.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteManip.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "plan/unnest_any.h"

Node *
unnest_any_make(Oid operator, Oid collation, Node *value, Node *array)
{
	ScalarArrayOpExpr *result = makeNode(ScalarArrayOpExpr);

	result->opno = operator;
	set_sa_opfuncid(result);
	result->useOr = true;
	result->inputcollid = collation;
	result->args = list_make2(value, array);
	result->location = -1;
	return (Node *) result;
}

/* The array, in terms of the query around, if the query is SELECT unnest(array) and nothing else; else NULL. */
static Node *
find_unnested(Query *query)
{
	FuncExpr *call;
	Node *array;

	if (query->commandType != CMD_SELECT || query->rtable != NIL || query->cteList != NIL ||
		query->setOperations != NULL || query->jointree->quals != NULL || query->hasAggs ||
		query->hasWindowFuncs || query->groupClause != NIL || query->groupingSets != NIL ||
		query->havingQual != NULL || query->limitCount != NULL || query->limitOffset != NULL ||
		list_length(query->targetList) != 1)
		return NULL;
	call = (FuncExpr *) linitial_node(TargetEntry, query->targetList)->expr;
	if (!IsA(call, FuncExpr) || call->funcid != F_UNNEST_ANYARRAY)
		return NULL;
	array = linitial(call->args);
	if (contain_subplans(array) || contain_volatile_functions(array) ||
		expression_returns_set(array) || contain_vars_of_level(array, 0))
		return NULL;
	array = copyObject(array);
	IncrementVarSublevelsUp(array, -1, 1);
	return array;
}

static Node *
rewrite_link(SubLink *link)
{
	OpExpr *test = (OpExpr *) link->testexpr;
	Param *output;
	Node *array;

	if (link->subLinkType != ANY_SUBLINK || !IsA(test, OpExpr) || list_length(test->args) != 2)
		return (Node *) link;
	output = lsecond(test->args);
	if (!IsA(output, Param) || output->paramkind != PARAM_SUBLINK)
		return (Node *) link;
	array = find_unnested(castNode(Query, link->subselect));
	if (array == NULL || get_base_element_type(exprType(array)) != output->paramtype)
		return (Node *) link;

	return unnest_any_make(test->opno, test->inputcollid, linitial(test->args), array);
}

/* One condition, which is NULL or false for nothing. */
static Node *
rewrite_condition(Node *condition)
{
	ListCell *cell;

	check_stack_depth();
	if (condition == NULL)
		return NULL;
	if (IsA(condition, SubLink))
		return rewrite_link((SubLink *) condition);
	if (is_andclause(condition) || is_orclause(condition))
	{
		foreach(cell, ((BoolExpr *) condition)->args)
			lfirst(cell) = rewrite_condition(lfirst(cell));
	}
	return condition;
}

static bool
walk_conditions(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		Query *query = (Query *) node;

		/* most levels have no sub-selects in expressions: their expressions are not looked at */
		if (!query->hasSubLinks)
			return range_table_walker(query->rtable, walk_conditions, context, 0) ||
				   walk_conditions((Node *) query->cteList, context);
		query->havingQual = rewrite_condition(query->havingQual);
		return query_tree_walker(query, walk_conditions, context, 0);
	}
	if (IsA(node, FromExpr))
		((FromExpr *) node)->quals = rewrite_condition(((FromExpr *) node)->quals);
	else if (IsA(node, JoinExpr))
		((JoinExpr *) node)->quals = rewrite_condition(((JoinExpr *) node)->quals);
	return expression_tree_walker(node, walk_conditions, context);
}

void
unnest_any_rewrite(Query *query)
{
	(void) walk_conditions((Node *) query, NULL);
}
