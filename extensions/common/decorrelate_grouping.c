/*
 * decorrelate_grouping.c
 *		The grouped query and the value that take the place of a sub-select.
 *
 * The grouped query has the keys as its first columns, key1, key2 ..., then the distinct aggregates
 * of the select expression and of HAVING.  Everything over the aggregates moves into the outer
 * query: a left join gives NULL for all of them where no row matches, and that is what they give
 * for no rows, but for count().
 */
#include "compat.h"

#include "decorrelate_internal.h"

#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "parser/parse_clause.h"
#include "parser/parse_oper.h"
#include "rewrite/rewriteManip.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

/* Adds an expression to the targets, as a grouping one if a list of clauses is given. */
static void
add_target(Query *query, Node *expression, const char *name, List **clauses)
{
	int number = list_length(query->targetList) + 1;
	TargetEntry *target = makeTargetEntry((Expr *) expression, number, pstrdup(name), false);

	if (clauses != NULL)
	{
		SortGroupClause *clause = makeNode(SortGroupClause);

		target->ressortgroupref = assignSortGroupRef(target, query->targetList);
		clause->tleSortGroupRef = target->ressortgroupref;
		get_sort_group_operators(exprType(expression), false, true, false, &clause->sortop,
								 &clause->eqop, NULL, &clause->hashable);
		*clauses = lappend(*clauses, clause);
	}
	query->targetList = lappend(query->targetList, target);
}

/* The column of the grouped query that stands at this position, seen from the outer query. */
static Var *
make_output(Query *query, int position, Index varno, Index join)
{
	TargetEntry *target = list_nth_node(TargetEntry, query->targetList, position);
	Var *var = makeVarFromTargetEntry(varno, target);

	compat_var_is_nulled_by(var, join);
	return var;
}

/* The condition as one of the outer query, with a column of the grouped query for the key. */
static Node *
make_join_clause(DecorrelateSplit *split, DecorrelateCondition *condition, Index varno)
{
	OpExpr *clause = copyObject(condition->comparison);
	Node *outer = list_nth(clause->args, condition->outer_argument);
	Node *inner = (Node *) make_output(split->query, condition->key, varno, 0);

	IncrementVarSublevelsUp(outer, -1, 1);
	clause->args = condition->outer_argument == 0 ? list_make2(outer, inner)
												  : list_make2(inner, outer);
	return (Node *) clause;
}

/* The grouped query's keys are its first targets. */
static Node *
make_join_condition(DecorrelateSplit *split, Index varno)
{
	List *clauses = NIL;
	ListCell *cell;

	foreach(cell, split->conditions)
		clauses = lappend(clauses, make_join_clause(split, lfirst(cell), varno));
	foreach(cell, split->gates)
	{
		Node *gate = copyObject(lfirst(cell));

		IncrementVarSublevelsUp(gate, -1, 1);
		clauses = lappend(clauses, gate);
	}
	return decorrelate_conjunction(clauses);
}

/* Makes the keys the only targets, each with an entry in the list of clauses. */
static void
set_key_targets(DecorrelateSplit *split, List **clauses)
{
	ListCell *cell;

	split->query->targetList = NIL;
	foreach(cell, split->keys)
	{
		int number = foreach_current_index(cell) + 1;

		add_target(split->query, lfirst(cell), psprintf("key%d", number), clauses);
	}
}

/* Drops what does not change whether there is a row, or which one. */
static void
drop_order(Query *query)
{
	query->sortClause = NIL;
	query->windowClause = NIL;
	query->distinctClause = NIL;
	query->hasDistinctOn = false;
	query->limitCount = NULL;
}

static bool
find_aggregate(Node *node, void *context)
{
	List **aggregates = context;

	if (node == NULL)
		return false;
	if (IsA(node, Aggref))
	{
		*aggregates = list_append_unique(*aggregates, node);
		return false;
	}
	return expression_tree_walker(node, find_aggregate, context);
}

typedef struct OutputContext
{
	List *aggregates;
	Query *query;
	int nkeys;
	Index varno;
	Index join;
} OutputContext;

/* What the aggregate is in the outer query: for no match what it gives for no rows. */
static Node *
make_aggregate_output(Aggref *aggregate, OutputContext *context)
{
	int position = context->nkeys;
	ListCell *cell;
	Var *var;

	foreach(cell, context->aggregates)
	{
		if (equal(lfirst(cell), aggregate))
			break;
		position++;
	}
	Assert(position < list_length(context->query->targetList));
	var = make_output(context->query, position, context->varno, context->join);
	if (aggregate->aggfnoid == F_COUNT_ || aggregate->aggfnoid == F_COUNT_ANY)
	{
		CoalesceExpr *coalesce = makeNode(CoalesceExpr);

		coalesce->coalescetype = INT8OID;
		coalesce->args = list_make2(var, makeConst(INT8OID, -1, InvalidOid, sizeof(int64),
												   Int64GetDatum(0), false, FLOAT8PASSBYVAL));
		coalesce->location = -1;
		return (Node *) coalesce;
	}
	return (Node *) var;
}

static Node *
replace_aggregates(Node *node, void *context)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Aggref))
		return make_aggregate_output((Aggref *) node, context);
	return expression_tree_mutator(node, replace_aggregates, context);
}

/* CASE WHEN condition THEN value END */
static Node *
make_case(Node *condition, Node *value)
{
	CaseExpr *result = makeNode(CaseExpr);
	CaseWhen *when = makeNode(CaseWhen);

	when->expr = (Expr *) condition;
	when->result = (Expr *) value;
	when->location = -1;
	result->casetype = exprType(value);
	result->casecollid = exprCollation(value);
	result->args = list_make1(when);
	result->defresult = (Expr *) makeNullConst(exprType(value), exprTypmod(value),
											   exprCollation(value));
	result->location = -1;
	return (Node *) result;
}

static Node *
make_null_test(Node *argument, NullTestType type)
{
	NullTest *test = makeNode(NullTest);

	test->arg = (Expr *) argument;
	test->nulltesttype = type;
	test->argisrow = false;
	test->location = -1;
	return (Node *) test;
}

/* Whether HAVING lets the row pass; without it, aggregates always have a row. */
static Node *
make_is_true(Node *having)
{
	BooleanTest *test;

	if (having == NULL)
		return makeBoolConst(true, false);
	test = makeNode(BooleanTest);
	test->arg = (Expr *) having;
	test->booltesttype = IS_TRUE;
	test->location = -1;
	return (Node *) test;
}

/*
 * The value below a condition which is always true, but which the planner cannot evaluate without
 * the outer row: so that no qual with the value is evaluated for groups that have no outer row.
 */
static Node *
bind_to_outer_row(Node *value, DecorrelateSplit *split, Index varno, Index join)
{
	DecorrelateCondition *condition = linitial(split->conditions);
	Node *inner = (Node *) make_output(split->query, condition->key, varno, join);
	OpExpr *match = (OpExpr *) make_join_clause(split, condition, varno);
	List *args;

	lfirst(list_nth_cell(match->args, 1 - condition->outer_argument)) = copyObject(inner);
	args = list_make2(make_null_test(inner, IS_NULL), match);
	return make_case((Node *) makeBoolExpr(OR_EXPR, args, -1), value);
}

/* A column outside of aggregates, or a sub-select. */
static bool
find_ungrouped(Node *node, void *context)
{
	if (node == NULL || IsA(node, Aggref))
		return false;
	if (IsA(node, Var))
		return ((Var *) node)->varlevelsup == 0;
	return IsA(node, SubLink) || expression_tree_walker(node, find_ungrouped, context);
}

/* Are these expressions over harmless aggregates, without anything else of the sub-select? */
static bool
are_over_aggregates(List *expressions, List *aggregates)
{
	ListCell *cell;

	if (find_ungrouped((Node *) expressions, NULL))
		return false;
	foreach(cell, aggregates)
	{
		if (contain_vars_of_level(lfirst(cell), 1) || decorrelate_aggregate_may_fail(lfirst(cell)))
			return false;
	}
	return true;
}

/*
 * Groups a sub-select of one row (decorrelate_is_one_row()).  The value is its select expression,
 * or with `exists` whether it has a row.  False if it cannot be done.
 */
bool
decorrelate_group_scalar(DecorrelateSplit *split, bool exists, Index varno, Index join,
						 DecorrelateJoin *result)
{
	Query *query = split->query;
	/* EXISTS (SELECT FROM ...) may have no columns */
	Node *value = exists ? NULL : (Node *) linitial_node(TargetEntry, query->targetList)->expr;
	Node *having = query->havingQual;
	List *expressions = exists ? list_make1(having) : list_make2(value, having);
	OutputContext outputs = {.varno = varno, .join = join, .query = query};
	bool may_fail = decorrelate_may_fail((Node *) expressions);
	ListCell *cell;

	find_aggregate((Node *) expressions, &outputs.aggregates);
	if (!are_over_aggregates(expressions, outputs.aggregates))
		return false;

	query->havingQual = NULL;
	query->hasAggs = outputs.aggregates != NIL;
	drop_order(query);
	set_key_targets(split, &query->groupClause);
	outputs.nkeys = list_length(split->keys);
	foreach(cell, outputs.aggregates)
	{
		int number = foreach_current_index(cell) + 1;

		add_target(query, lfirst(cell), psprintf("value%d", number), NULL);
	}
	if (contain_vars_of_level((Node *) query, 1))
		return false;
	query->hasSubLinks = checkExprHasSubLink((Node *) query);

	having = replace_aggregates(having, &outputs);
	IncrementVarSublevelsUp(having, -1, 1);
	if (exists)
		value = make_is_true(having);
	else
	{
		value = replace_aggregates(value, &outputs);
		IncrementVarSublevelsUp(value, -1, 1);
		if (having != NULL)
			value = make_case(having, value);
	}

	/* a join that nothing refers to would be removed, and privileges on its tables not checked */
	if (may_fail || outputs.aggregates == NIL)
		value = bind_to_outer_row(value, split, varno, join);
	result->query = query;
	result->condition = make_join_condition(split, varno);
	result->value = value;
	return true;
}

/* Keeps GROUP BY and HAVING, below DISTINCT keys if it has others; false if HAVING may fail. */
static bool
group_within_keys(DecorrelateSplit *split)
{
	Query *query = split->query;
	List *targets = query->targetList;
	List *groups = query->groupClause;
	List *aggregates = NIL;
	ListCell *cell;

	if (query->groupClause == NIL || query->groupingSets != NIL ||
		compat_has_group_relation(query) || query->setOperations != NULL || query->hasWindowFuncs ||
		query->hasTargetSRFs || !decorrelate_limit_leaves_a_row(query) ||
		decorrelate_may_fail(query->havingQual))
		return false;
	find_aggregate(query->havingQual, &aggregates);
	foreach(cell, aggregates)
	{
		if (decorrelate_aggregate_may_fail(lfirst(cell)))
			return false;
	}
	drop_order(query);
	query->groupClause = NIL;
	set_key_targets(split, &query->groupClause);
	foreach(cell, groups)
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, cell);
		Node *group = get_sortgroupclause_expr(clause, targets);

		if (list_member(split->keys, group))
			continue;
		if (query->distinctClause == NIL)
			query->distinctClause = copyObject(query->groupClause);
		add_target(query, group, "group", &query->groupClause);
		llast_node(TargetEntry, query->targetList)->resjunk = true;
		*llast_node(SortGroupClause, query->groupClause) = *clause;
		llast_node(SortGroupClause, query->groupClause)->tleSortGroupRef =
			llast_node(TargetEntry, query->targetList)->ressortgroupref;
	}
	query->hasAggs = aggregates != NIL;
	return true;
}

/* Groups the sub-select of an EXISTS by its keys; the value is whether there is a group. */
bool
decorrelate_group_exists(DecorrelateSplit *split, Index varno, Index join, DecorrelateJoin *result)
{
	Query *query = split->query;

	if (decorrelate_is_simple_exists(query))
	{
		drop_order(query);
		query->groupClause = NIL;
		set_key_targets(split, &query->groupClause);
	}
	else if (!group_within_keys(split))
		return false;
	if (contain_vars_of_level((Node *) query, 1))
		return false;
	query->hasSubLinks = checkExprHasSubLink((Node *) query);
	result->query = query;
	result->condition = make_join_condition(split, varno);
	result->value = make_null_test((Node *) make_output(query, 0, varno, join), IS_NOT_NULL);
	return true;
}

/* ---- the relation of groups --------------------------------------------------------------------------- */

/* May HAVING tell values apart that GROUP BY holds equal?  Then it must go on naming groups. */
static bool
having_may_tell_apart(Query *query)
{
	ListCell *cell;

	if (query->havingQual == NULL)
		return false;
	foreach(cell, query->groupClause)
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, cell);
		Node *group = get_sortgroupclause_expr(clause, query->targetList);
		Oid type = exprType(group);
		Oid collation = exprCollation(group);

		if (get_typtype(getBaseType(type)) == TYPTYPE_COMPOSITE || type == RECORDOID ||
			clause->eqop != lookup_type_cache(type, TYPECACHE_EQ_OPR)->eq_opr ||
			(OidIsValid(collation) && !get_collation_isdeterministic(collation)))
			return true;
	}
	return false;
}

/* Walker: groups become their expressions at all levels of the query, in place, where that changes nothing. */
bool
decorrelate_flatten_groups(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		Query *query = (Query *) node;

		if (compat_has_group_relation(query) && query->groupingSets == NIL &&
			!having_may_tell_apart(query))
			compat_flatten_groups(query);
		return query_tree_walker(query, decorrelate_flatten_groups, context, 0);
	}
	return expression_tree_walker(node, decorrelate_flatten_groups, context);
}
