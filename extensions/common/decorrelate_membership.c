/*
 * decorrelate_membership.c
 *		x IN, x NOT IN and x <> ALL (sub-select), standing as conditions, as EXISTS.
 *
 * A condition that is NULL is as good as false, so IN is EXISTS with one more condition.  NOT IN
 * is NULL for a row where a comparison is NULL and none is true, NOT EXISTS is true: they are the
 * same only where no comparison can be NULL.  That is derived from NOT NULL columns (not_null.c) and from
 * other conditions of the same WHERE.  Where it cannot be, x NOT IN (SELECT y ...) without correlation
 * also wants that no y is NULL, and that x is not, unless there is no row at all: two more sub-selects, each run once.
 */
#include "compat.h"

#include "decorrelate_internal.h"
#include "not_null.h"

#include "access/transam.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "utils/lsyscache.h"

/* ---- NULL ---------------------------------------------------------------------------------------------- */

/* Adds the entries that an outer join at or below this node fills with NULL. */
static Relids
add_nullable(Node *node, bool nullable, Relids result)
{
	if (IsA(node, RangeTblRef))
		return nullable ? bms_add_member(result, ((RangeTblRef *) node)->rtindex) : result;
	if (IsA(node, FromExpr))
	{
		ListCell *cell;

		foreach(cell, ((FromExpr *) node)->fromlist)
			result = add_nullable(lfirst(cell), nullable, result);
	}
	else
	{
		JoinExpr *join = castNode(JoinExpr, node);
		bool left = join->jointype == JOIN_RIGHT || join->jointype == JOIN_FULL;
		bool right = join->jointype == JOIN_LEFT || join->jointype == JOIN_FULL;

		result = add_nullable(join->larg, nullable || left, result);
		result = add_nullable(join->rarg, nullable || right, result);
	}
	return result;
}

Relids
decorrelate_nullable(Query *query)
{
	return add_nullable((Node *) query->jointree, false, NULL);
}

/* Is the expression, evaluated over rows of the query that pass the quals, known not to be NULL? */
static bool
is_never_null(Node *node, Query *query, Node *quals)
{
	while (IsA(node, RelabelType))
		node = (Node *) ((RelabelType *) node)->arg;
	if (IsA(node, Const))
		return !((Const *) node)->constisnull;
	if (IsA(node, FuncExpr))
	{
		FuncExpr *function = (FuncExpr *) node;

		/* built-in casts that are known to be harmless do not make NULL of anything else */
		return function->funcformat != COERCE_EXPLICIT_CALL &&
			   function->funcid < FirstNormalObjectId && !decorrelate_may_fail(node) &&
			   is_never_null(linitial(function->args), query, quals);
	}
	if (IsA(node, Var) && ((Var *) node)->varlevelsup == 0 && query->groupingSets == NIL)
	{
		Var *var = (Var *) node;
		RangeTblEntry *rte = rt_fetch(var->varno, query->rtable);

		if (compat_contains_var(find_nonnullable_vars(quals), var))
			return true;
		if (bms_is_member(var->varno, decorrelate_nullable(query)))
			return false;
		if (rte->rtekind == RTE_RELATION)
			return not_null_is_declared(rte->relid, var->varattno, rte->inh);
		if (rte->rtekind == RTE_SUBQUERY && var->varattno > 0 &&
			rte->subquery->setOperations == NULL)
		{
			TargetEntry *target = get_tle_by_resno(rte->subquery->targetList, var->varattno);

			return is_never_null((Node *) target->expr, rte->subquery,
								 rte->subquery->jointree->quals);
		}
	}
	return false;
}

/* An argument of a sub-select's test: the sub-select's column, maybe below casts, if it is one. */
static Param *
find_output(Node *node)
{
	while (!IsA(node, Param))
	{
		if (IsA(node, RelabelType))
			node = (Node *) ((RelabelType *) node)->arg;
		else if (IsA(node, FuncExpr) && list_length(((FuncExpr *) node)->args) >= 1)
			node = linitial(((FuncExpr *) node)->args);
		else
			return NULL;
	}
	return ((Param *) node)->paramkind == PARAM_SUBLINK ? (Param *) node : NULL;
}

static bool
is_argument_never_null(Node *argument, Query *query, Node *quals, Query *subselect)
{
	Param *output = find_output(argument);
	TargetEntry *target;
	List *outputs = NIL;
	ListCell *cell;

	if (output == NULL)
		return is_never_null(argument, query, quals);
	if (subselect->setOperations != NULL)
		return false;
	foreach(cell, subselect->targetList)
	{
		target = lfirst_node(TargetEntry, cell);
		if (!target->resjunk)
			outputs = lappend(outputs, target->expr);
	}
	return is_never_null(decorrelate_replace_outputs(argument, outputs), subselect,
						 subselect->jointree->quals);
}

/* Does it compare two values, so that it is NULL only if one of them is?  With `equality`, as a join can. */
static bool
is_comparison(OpExpr *comparison, bool equality)
{
	Oid type;

	if (list_length(comparison->args) != 2 || compat_op_interpretations(comparison->opno) == NIL)
		return false;
	type = exprType(linitial(comparison->args));
	return !equality || op_mergejoinable(comparison->opno, type) ||
		   op_hashjoinable(comparison->opno, type);
}

/* Can no comparison of the test be NULL? */
static bool
is_test_never_null(Node *test, Query *query, Node *quals, Query *subselect, bool equality)
{
	ListCell *cell;

	foreach(cell, decorrelate_conjuncts(test))
	{
		OpExpr *comparison = lfirst(cell);

		if (!IsA(comparison, OpExpr) || !is_comparison(comparison, equality) ||
			!is_argument_never_null(linitial(comparison->args), query, quals, subselect) ||
			!is_argument_never_null(lsecond(comparison->args), query, quals, subselect))
			return false;
	}
	return true;
}

/* ---- EXISTS --------------------------------------------------------------------------------------------- */

static Node *
replace_output(Node *node, void *context)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Param) && ((Param *) node)->paramkind == PARAM_SUBLINK)
		return copyObject(list_nth((List *) context, ((Param *) node)->paramid - 1));
	return expression_tree_mutator(node, replace_output, context);
}

/* The test of a sub-select with these expressions for the sub-select's columns. */
Node *
decorrelate_replace_outputs(Node *testexpr, List *outputs)
{
	return replace_output(testexpr, outputs);
}

/*
 * The sub-select with the test as a condition; NULL if it does more than to filter rows, or if the
 * test may fail for rows that do not match.
 */
static Query *
add_test(Query *subselect, Node *test)
{
	Query *result = copyObject(subselect);
	List *outputs = NIL;
	ListCell *cell;

	if (result->setOperations != NULL || result->hasAggs || result->groupingSets != NIL ||
		result->hasWindowFuncs || result->hasTargetSRFs || result->havingQual != NULL ||
		result->limitOffset != NULL || result->limitCount != NULL || result->hasDistinctOn)
		return NULL;
	foreach(cell, result->targetList)
	{
		TargetEntry *target = lfirst_node(TargetEntry, cell);

		if (!target->resjunk)
			outputs = lappend(outputs, target->expr);
	}
	test = decorrelate_replace_outputs(test, outputs);
	if (decorrelate_may_fail(test))
		return NULL;
	result->jointree->quals = decorrelate_conjunction(
		list_concat(decorrelate_conjuncts(result->jointree->quals), decorrelate_conjuncts(test)));
	result->targetList = NIL;
	result->groupClause = NIL;
	result->windowClause = NIL;
	result->distinctClause = NIL;
	result->sortClause = NIL;
	result->hasSubLinks = checkExprHasSubLink((Node *) result);
	return result;
}

/* SELECT FROM (the sub-select) WHERE test */
static Query *
wrap_with_test(Query *subselect, Node *test)
{
	Query *result = makeNode(Query);
	Query *inner = copyObject(subselect);
	RangeTblRef *reference = makeNode(RangeTblRef);
	List *outputs = NIL;
	ListCell *cell;

	IncrementVarSublevelsUp((Node *) inner, 1, 1);
	foreach(cell, subselect->targetList)
	{
		TargetEntry *target = lfirst_node(TargetEntry, cell);

		if (!target->resjunk)
			outputs = lappend(outputs, makeVarFromTargetEntry(1, target));
	}
	reference->rtindex = 1;

	result->commandType = CMD_SELECT;
	result->querySource = subselect->querySource;
	result->rtable = list_make1(decorrelate_subquery_entry(inner, "decorrelated"));
	result->jointree = makeFromExpr(list_make1(reference),
									decorrelate_replace_outputs(test, outputs));
	return result;
}

/* The comparison that is true where the given one is false; NULL if there is none. */
static Node *
negate_comparison(Node *test)
{
	OpExpr *result;

	if (!IsA(test, OpExpr) || !OidIsValid(get_negator(((OpExpr *) test)->opno)))
		return NULL;
	result = copyObject((OpExpr *) test);
	result->opno = get_negator(result->opno);
	result->opfuncid = InvalidOid;
	return (Node *) result;
}

static Node *
make_not_exists(Query *query, int location)
{
	return (Node *) makeBoolExpr(NOT_EXPR, list_make1(decorrelate_exists(query, location)), -1);
}

static Node *
make_null_test(Node *argument, NullTestType type)
{
	NullTest *result = makeNode(NullTest);

	result->arg = (Expr *) copyObject(argument);
	result->nulltesttype = type;
	result->location = -1;
	return (Node *) result;
}

/* Does the query read tables of which core would take `column IS NULL` for false where the snapshot shows NULLs? */
static bool
reads_new_not_null(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
		return ((RangeTblEntry *) node)->rtekind == RTE_RELATION &&
			   not_null_is_new(((RangeTblEntry *) node)->relid);
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, reads_new_not_null, context,
								 QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, reads_new_not_null, context);
}

/*
 * What x NOT IN (SELECT y ...) asks of NULLs beside NOT EXISTS: conditions, appended to *result.  The test is
 * `x = y`.  False if it cannot be said.
 */
static bool
ask_for_nulls(Query *query, Node *quals, SubLink *link, Node *test, List **result)
{
	Query *subselect = (Query *) link->subselect;
	ListCell *cell;

	if (!IsA(test, OpExpr) || !is_comparison((OpExpr *) test, true) ||
		!decorrelate_is_plain(subselect) || reads_new_not_null((Node *) query, NULL))
		return false;
	foreach(cell, ((OpExpr *) test)->args)
	{
		Node *argument = lfirst(cell);

		if (is_argument_never_null(argument, query, quals, subselect))
			continue;
		/* a row of NULLs is NULL for IS NULL, but not for = */
		if (type_is_rowtype(exprType(argument)))
			return false;
		if (find_output(argument) != NULL)
		{
			Query *nulls = wrap_with_test(subselect, make_null_test(argument, IS_NULL));

			*result = lappend(*result, make_not_exists(nulls, link->location));
		}
		else
		{
			Node *none = make_not_exists(wrap_with_test(subselect, NULL), link->location);
			Node *given = make_null_test(argument, IS_NOT_NULL);

			*result = lappend(*result, makeBoolExpr(OR_EXPR, list_make2(given, none), -1));
		}
	}
	return true;
}

/*
 * A condition of the query's WHERE, or of ON of an inner join: ANY (negated or not) or ALL (not
 * negated), of a sub-select that is movable.  The same as [NOT] EXISTS if core can make a join of that, else NULL.
 */
Node *
decorrelate_membership(Query *query, SubLink *link, bool negated, bool in_where)
{
	Query *subselect = (Query *) link->subselect;
	bool correlated = contain_vars_of_level((Node *) subselect, 1);
	Node *test = copyObject(link->testexpr);
	Node *quals = in_where ? query->jointree->quals : NULL;
	bool absent = negated;
	List *conditions = NIL;
	Query *tested;

	if (link->subLinkType == ALL_SUBLINK && !negated)
	{
		test = negate_comparison(test);
		absent = true;
	}
	else if (link->subLinkType != ANY_SUBLINK)
		return NULL;
	if (test == NULL || checkExprHasSubLink(test) || contain_volatile_functions(test) ||
		!contain_vars_of_level(test, 0) || (!absent && !correlated))
		return NULL;
	if (absent && !is_test_never_null(test, query, quals, subselect, !correlated) &&
		(correlated || !ask_for_nulls(query, quals, link, test, &conditions)))
		return NULL;

	IncrementVarSublevelsUp(test, 1, 0);
	tested = correlated ? add_test(subselect, test) : wrap_with_test(subselect, test);
	if (tested == NULL || !decorrelate_core_pulls_up(tested))
		return NULL;
	/* a join meets its conditions for rows that no row outside asks for */
	if (correlated && decorrelate_rows_may_fail(tested))
		return NULL;
	if (!absent)
		return (Node *) decorrelate_exists(tested, link->location);
	return decorrelate_conjunction(lcons(make_not_exists(tested, link->location), conditions));
}
