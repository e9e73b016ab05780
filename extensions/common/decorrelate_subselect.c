/*
 * decorrelate_subselect.c
 *		Which sub-selects can be joined; splits off their correlated conditions.
 *
 * A sub-select in an expression and a derived table in FROM are both one query level below the
 * outer query.  So what moves from the one place to the other keeps the levels of its Vars and
 * CTE references; only conditions and select expressions that move into the outer query itself
 * lose a level.
 */
#include "compat.h"

#include "decorrelate_internal.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "parser/parse_oper.h"
#include "rewrite/rewriteManip.h"
#include "utils/lsyscache.h"

List *
decorrelate_conjuncts(Node *quals)
{
	List *result = NIL;
	ListCell *cell;

	if (quals == NULL)
		return NIL;
	if (!is_andclause(quals))
		return list_make1(quals);
	foreach(cell, ((BoolExpr *) quals)->args)
		result = list_concat(result, decorrelate_conjuncts(lfirst(cell)));
	return result;
}

Node *
decorrelate_conjunction(List *conjuncts)
{
	if (conjuncts == NIL)
		return NULL;
	if (list_length(conjuncts) == 1)
		return linitial(conjuncts);
	return (Node *) make_andclause(conjuncts);
}

RangeTblEntry *
decorrelate_subquery_entry(Query *query, const char *name)
{
	RangeTblEntry *rte = makeNode(RangeTblEntry);
	List *names = NIL;
	ListCell *cell;

	foreach(cell, query->targetList)
	{
		TargetEntry *target = lfirst_node(TargetEntry, cell);

		if (!target->resjunk)
			names = lappend(names,
							makeString(pstrdup(target->resname ? target->resname : "?column?")));
	}
	rte->rtekind = RTE_SUBQUERY;
	rte->subquery = query;
	rte->alias = makeAlias(name, NIL);
	rte->eref = makeAlias(name, names);
	return rte;
}

SubLink *
decorrelate_exists(Query *query, int location)
{
	SubLink *result = makeNode(SubLink);

	result->subLinkType = EXISTS_SUBLINK;
	result->subselect = (Node *) query;
	result->location = location;
	return result;
}

/* ---- which sub-selects ---------------------------------------------------------------------------- */

/* Does the sub-select read a relation to which decorrelation shall apply? */
bool
decorrelate_reads_judged(Query *subselect, DecorrelateJudge judge, bool judges_with)
{
	ListCell *cell;

	foreach(cell, subselect->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, cell);

		if ((rte->rtekind == RTE_RELATION && judge(rte)) ||
			(rte->rtekind == RTE_CTE && judges_with) ||
			(rte->rtekind == RTE_SUBQUERY &&
			 decorrelate_reads_judged(rte->subquery, judge, judges_with)))
			return true;
	}
	foreach(cell, subselect->cteList)
	{
		Node *cte = lfirst_node(CommonTableExpr, cell)->ctequery;

		if (IsA(cte, Query) && decorrelate_reads_judged((Query *) cte, judge, judges_with))
			return true;
	}
	return false;
}

bool
decorrelate_with_reads_judged(Query *query, DecorrelateJudge judge)
{
	ListCell *cell;

	foreach(cell, query->cteList)
	{
		Node *cte = lfirst_node(CommonTableExpr, cell)->ctequery;

		if (IsA(cte, Query) && decorrelate_reads_judged((Query *) cte, judge, false))
			return true;
	}
	foreach(cell, query->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, cell);

		if (rte->rtekind == RTE_SUBQUERY && decorrelate_with_reads_judged(rte->subquery, judge))
			return true;
	}
	return false;
}

/* What keeps a sub-select where it is, at any depth; *context is the depth. */
static bool
find_obstacle(Node *node, void *context)
{
	int *depth = context;

	if (node == NULL)
		return false;
	if (IsA(node, Var))
		return ((Var *) node)->varlevelsup > *depth + 1;
	if (IsA(node, Aggref) && ((Aggref *) node)->agglevelsup > *depth)
		return true;
	if (IsA(node, GroupingFunc) && ((GroupingFunc *) node)->agglevelsup > *depth)
		return true;
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = (RangeTblEntry *) node;

		return rte->securityQuals != NIL || rte->security_barrier || rte->tablesample != NULL;
	}
	if (IsA(node, Query))
	{
		bool found;

		if (((Query *) node)->rowMarks != NIL || ((Query *) node)->commandType != CMD_SELECT)
			return true;
		(*depth)++;
		found = query_tree_walker((Query *) node, find_obstacle, depth, QTW_EXAMINE_RTES_BEFORE);
		(*depth)--;
		return found;
	}
	return expression_tree_walker(node, find_obstacle, context);
}

/*
 * May the sub-select be evaluated in another place, and a different number of times?  True if it
 * refers to nothing beyond the next outer query, to no aggregate of that, and to nothing that
 * depends on when it runs.
 */
bool
decorrelate_is_movable(Query *subselect)
{
	int depth = -1;

	return !subselect->hasModifyingCTE && !find_obstacle((Node *) subselect, &depth) &&
		   !contain_volatile_functions((Node *) subselect);
}

/* No LIMIT, or of a positive constant, which does not change whether there is a row? */
bool
decorrelate_limit_leaves_a_row(Query *subselect)
{
	Const *limit;

	if (subselect->limitOffset != NULL)
		return false;
	if (subselect->limitCount == NULL)
		return true;
	limit = (Const *) eval_const_expressions(NULL, copyObject(subselect->limitCount));
	return IsA(limit, Const) && (limit->constisnull || DatumGetInt64(limit->constvalue) > 0);
}

/* Aggregates without GROUP BY: one row, or none by HAVING. */
bool
decorrelate_is_one_row(Query *subselect)
{
	return subselect->hasAggs && subselect->groupClause == NIL && subselect->groupingSets == NIL &&
		   subselect->setOperations == NULL && !subselect->hasWindowFuncs &&
		   !subselect->hasTargetSRFs && !subselect->hasDistinctOn &&
		   decorrelate_limit_leaves_a_row(subselect);
}

/* Nothing but FROM, WHERE, and what does not change whether there is a row? */
bool
decorrelate_is_simple_exists(Query *subselect)
{
	return subselect->setOperations == NULL && !subselect->hasAggs &&
		   subselect->groupingSets == NIL && !subselect->hasWindowFuncs &&
		   !subselect->hasTargetSRFs && subselect->havingQual == NULL &&
		   decorrelate_limit_leaves_a_row(subselect);
}

/* Will convert_EXISTS_sublink_to_join() pull up an EXISTS of this sub-select in WHERE? */
bool
decorrelate_core_pulls_up(Query *subselect)
{
	Query *rest;
	bool result;

	if (!decorrelate_is_simple_exists(subselect) || subselect->cteList != NIL ||
		subselect->jointree->fromlist == NIL ||
		!contain_vars_of_level(subselect->jointree->quals, 1))
		return false;
	rest = copyObject(subselect);
	rest->jointree->quals = NULL;
	rest->targetList = NIL;
	result = !contain_vars_of_level((Node *) rest, 1);
	pfree(rest);
	return result;
}

/* May a condition of the join tree fail? */
static bool
conditions_may_fail(Node *node)
{
	if (IsA(node, FromExpr))
	{
		ListCell *cell;

		foreach(cell, ((FromExpr *) node)->fromlist)
		{
			if (conditions_may_fail(lfirst(cell)))
				return true;
		}
		return decorrelate_may_fail(((FromExpr *) node)->quals);
	}
	if (IsA(node, JoinExpr))
	{
		JoinExpr *join = (JoinExpr *) node;

		return conditions_may_fail(join->larg) || conditions_may_fail(join->rarg) ||
			   decorrelate_may_fail(join->quals);
	}
	return false;
}

static bool
find_failing_aggregate(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Aggref))
		return decorrelate_aggregate_may_fail((Aggref *) node);
	return expression_tree_walker(node, find_failing_aggregate, context);
}

/* May the evaluation of FROM and WHERE fail?  Not known to be harmless: all but joined tables. */
bool
decorrelate_rows_may_fail(Query *subselect)
{
	ListCell *cell;

	if (subselect->setOperations != NULL || subselect->cteList != NIL)
		return true;
	foreach(cell, subselect->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, cell);
		Query *subquery = rte->subquery;

		if (rte->rtekind == RTE_RELATION || rte->rtekind == RTE_JOIN)
			continue;
		if (rte->rtekind != RTE_SUBQUERY || subquery->limitCount != NULL ||
			subquery->limitOffset != NULL || decorrelate_rows_may_fail(subquery) ||
			decorrelate_may_fail((Node *) subquery->targetList) ||
			decorrelate_may_fail(subquery->havingQual) ||
			find_failing_aggregate((Node *) subquery->targetList, NULL) ||
			find_failing_aggregate(subquery->havingQual, NULL))
			return true;
	}
	return conditions_may_fail((Node *) subselect->jointree);
}

/* ---- splitting off the correlation ------------------------------------------------------------------ */

/* Moves conditions with outer Vars out of *quals to the end of the list. */
static List *
take_correlated(Node **quals, List *taken)
{
	List *rest = NIL;
	ListCell *cell;

	if (!contain_vars_of_level(*quals, 1))
		return taken;
	foreach(cell, decorrelate_conjuncts(*quals))
	{
		if (contain_vars_of_level(lfirst(cell), 1))
			taken = lappend(taken, lfirst(cell));
		else
			rest = lappend(rest, lfirst(cell));
	}
	*quals = decorrelate_conjunction(rest);
	return taken;
}

/* ... out of all conditions below that may as well stand in WHERE. */
static List *
take_correlated_below(Node *node, List *taken)
{
	if (IsA(node, FromExpr))
	{
		FromExpr *from = (FromExpr *) node;
		ListCell *cell;

		foreach(cell, from->fromlist)
			taken = take_correlated_below(lfirst(cell), taken);
		taken = take_correlated(&from->quals, taken);
	}
	else if (IsA(node, JoinExpr))
	{
		JoinExpr *join = (JoinExpr *) node;

		if (join->jointype == JOIN_INNER || join->jointype == JOIN_LEFT)
			taken = take_correlated_below(join->larg, taken);
		if (join->jointype == JOIN_INNER)
		{
			taken = take_correlated_below(join->rarg, taken);
			taken = take_correlated(&join->quals, taken);
		}
	}
	return taken;
}

/* Moves correlated conditions of inner joins into WHERE; true if there were any. */
bool
decorrelate_hoist_conditions(Query *subselect)
{
	FromExpr *from = subselect->jointree;
	List *taken = NIL;
	ListCell *cell;

	foreach(cell, from->fromlist)
		taken = take_correlated_below(lfirst(cell), taken);
	if (taken == NIL)
		return false;
	from->quals = decorrelate_conjunction(list_concat(decorrelate_conjuncts(from->quals), taken));
	return true;
}

/*
 * Can one group by the expression so that each group is what one outer value is equal to, by this
 * operator and collation?
 */
static bool
can_group_by(Node *key, Oid equality, Oid collation)
{
	Oid group_equality;
	bool hashable;
	Oid less;

	get_sort_group_operators(exprType(key), false, false, false, &less, &group_equality, NULL,
							 &hashable);
	return OidIsValid(group_equality) && (hashable || OidIsValid(less)) &&
		   equality_ops_are_compatible(equality, group_equality) && exprCollation(key) == collation;
}

/* Adds `outer = inner` to the split; false if the condition is of another form. */
static bool
add_equality(Node *condition, DecorrelateSplit *split)
{
	OpExpr *comparison = (OpExpr *) condition;

	if (!IsA(condition, OpExpr) || list_length(comparison->args) != 2 ||
		!op_strict(comparison->opno))
		return false;
	for (int outer = 0; outer < 2; outer++)
	{
		Node *inner = list_nth(comparison->args, 1 - outer);
		Node *left = linitial(comparison->args);
		DecorrelateCondition *result;
		ListCell *cell;

		if (contain_vars_of_level(list_nth(comparison->args, outer), 0) ||
			contain_vars_of_level(inner, 1) || !contain_vars_of_level(inner, 0))
			continue;
		if (checkExprHasSubLink(condition) ||
			!(op_mergejoinable(comparison->opno, exprType(left)) ||
			  op_hashjoinable(comparison->opno, exprType(left))) ||
			!can_group_by(inner, comparison->opno, comparison->inputcollid))
			return false;

		result = palloc(sizeof(DecorrelateCondition));
		result->comparison = comparison;
		result->outer_argument = outer;
		result->key = 0;
		foreach(cell, split->keys)
		{
			if (equal(lfirst(cell), inner))
				break;
			result->key++;
		}
		if (result->key == list_length(split->keys))
			split->keys = lappend(split->keys, inner);
		split->conditions = lappend(split->conditions, result);
		return true;
	}
	return false;
}

/* (a = o.a AND b) OR (a = o.a AND c) as a = o.a AND (b OR c). */
static void
factor_alternatives(Query *subselect)
{
	ListCell *cell;

	foreach(cell, decorrelate_conjuncts(subselect->jointree->quals))
	{
		if (!is_orclause(lfirst(cell)) || !contain_vars_of_level(lfirst(cell), 1))
			continue;
		subselect->jointree->quals = (Node *) canonicalize_qual((Expr *) subselect->jointree->quals,
																false);
		return;
	}
}

/* Splits a copy of the sub-select; false if it cannot be done. */
bool
decorrelate_split(Query *subselect, DecorrelateSplit *split)
{
	List *correlated;
	ListCell *cell;

	memset(split, 0, sizeof(*split));
	if (subselect->jointree->fromlist == NIL)
		return false;
	split->query = copyObject(subselect);
	factor_alternatives(split->query);
	correlated = take_correlated_below((Node *) split->query->jointree, NIL);
	foreach(cell, correlated)
	{
		Node *condition = lfirst(cell);

		if (add_equality(condition, split))
			continue;
		if (contain_vars_of_level(condition, 0) || checkExprHasSubLink(condition))
			return false;
		split->gates = lappend(split->gates, condition);
	}
	return split->keys != NIL;
}

/*
 * A sub-select for each arm of a correlated OR among the conditions, which together find what the
 * given one finds; NIL if there is no such OR, or it may fail.
 */
List *
decorrelate_alternatives(Query *subselect)
{
	List *conjuncts = decorrelate_conjuncts(subselect->jointree->quals);
	List *result = NIL;
	ListCell *cell;

	foreach(cell, conjuncts)
	{
		Node *condition = lfirst(cell);
		ListCell *arm;

		if (!is_orclause(condition) || !contain_vars_of_level(condition, 1) ||
			decorrelate_may_fail(condition))
			continue;
		foreach(arm, ((BoolExpr *) condition)->args)
		{
			Query *alternative = copyObject(subselect);
			List *others = list_delete_ptr(list_copy(conjuncts), condition);

			alternative->jointree->quals = copyObject(
				decorrelate_conjunction(lappend(others, lfirst(arm))));
			result = lappend(result, alternative);
		}
		break;
	}
	return result;
}
