/*
 * decorrelate_source.c
 *		Relations of the outer query whose conditions say which keys are asked for.
 *
 * What is repeated of the outer query in a sub-select must say the same there: relations that are
 * read twice in one snapshot and give the same rows, and conditions that cannot fail and do not
 * depend on the order or the number of evaluations.  It refers to nothing but the relation itself,
 * so that it may stand at any query level.
 *
 * A condition that is left out only makes the set of keys larger, which is never wrong.
 */
#include "compat.h"

#include "decorrelate_internal.h"

#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "utils/float.h"
#include "utils/lsyscache.h"

/* ---- what may be repeated ------------------------------------------------------------------------- */

bool
decorrelate_rows_may_differ(const RangeTblEntry *rte)
{
	ListCell *cell;

	if (rte->tablesample != NULL || rte->relkind == RELKIND_FOREIGN_TABLE)
		return true;
	if (!rte->inh || !has_subclass(rte->relid))
		return false;
	foreach(cell, find_all_inheritors(rte->relid, NoLock, NULL))
		if (get_rel_relkind(lfirst_oid(cell)) == RELKIND_FOREIGN_TABLE)
			return true;
	return false;
}

bool
decorrelate_is_plain(Query *query)
{
	ListCell *cell;

	if (query->setOperations != NULL || query->hasAggs || query->groupClause != NIL ||
		query->groupingSets != NIL || query->havingQual != NULL || query->hasWindowFuncs ||
		query->hasTargetSRFs || query->distinctClause != NIL || query->limitCount != NULL ||
		query->limitOffset != NULL || query->cteList != NIL || query->jointree->fromlist == NIL)
		return false;
	foreach(cell, query->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, cell);

		/* a WITH query is part of the query that reads it, and then runs for each copy of that */
		if (rte->rtekind == RTE_CTE ||
			(rte->rtekind == RTE_RELATION && decorrelate_rows_may_differ(rte)))
			return false;
		if (rte->rtekind == RTE_SUBQUERY && !decorrelate_is_plain(rte->subquery))
			return false;
	}
	return true;
}

/* May the sub-select or derived table be evaluated once more, for any rows? */
static bool
is_repeatable(Query *query)
{
	return decorrelate_is_plain(query) && decorrelate_is_movable(query) &&
		   !decorrelate_rows_may_fail(query);
}

/* Can the entry be read a second time, on its own? */
static bool
is_repeatable_entry(RangeTblEntry *rte)
{
	if (rte->lateral || rte->security_barrier || rte->securityQuals != NIL)
		return false;
	if (rte->rtekind == RTE_RELATION)
		return !decorrelate_rows_may_differ(rte) &&
			   (rte->relkind == RELKIND_RELATION || rte->relkind == RELKIND_MATVIEW ||
				rte->relkind == RELKIND_PARTITIONED_TABLE);
	return rte->rtekind == RTE_SUBQUERY && is_repeatable(rte->subquery) &&
		   !contain_vars_of_level((Node *) rte->subquery, 1) &&
		   !decorrelate_may_fail((Node *) rte->subquery->targetList);
}

bool
decorrelate_is_source(const DecorrelateOuter *outer, Index varno)
{
	RangeTblEntry *rte = rt_fetch(varno, outer->query->rtable);

	return (outer->is_late || rte->rtekind == RTE_RELATION) && is_repeatable_entry(rte) &&
		   !bms_is_member((int) varno, outer->nullable);
}

typedef struct ForeignContext
{
	Index varno;
	Index depth;
} ForeignContext;

/* A column that is not of the relation, or an aggregate of its query or one further out. */
static bool
find_foreign(Node *node, void *context)
{
	ForeignContext *foreign = context;

	if (node == NULL)
		return false;
	if (IsA(node, Var))
	{
		Var *var = (Var *) node;

		return var->varlevelsup > foreign->depth ||
			   (var->varlevelsup == foreign->depth && (Index) var->varno != foreign->varno);
	}
	if (IsA(node, Aggref) && ((Aggref *) node)->agglevelsup >= foreign->depth)
		return true;
	if (IsA(node, GroupingFunc))
		return true;
	if (IsA(node, Query))
	{
		bool found;

		foreign->depth++;
		found = query_tree_walker((Query *) node, find_foreign, context, 0);
		foreign->depth--;
		return found;
	}
	return expression_tree_walker(node, find_foreign, context);
}

/* The only relation that the expression refers to; 0 if it refers to none, or to more. */
Index
decorrelate_only_source(Node *expression)
{
	ForeignContext foreign = {0, 0};
	Relids varnos = pull_varnos(NULL, expression);
	int varno;

	if (!bms_get_singleton_member(varnos, &varno))
		return 0;
	foreign.varno = (Index) varno;
	return find_foreign(expression, &foreign) ? 0 : foreign.varno;
}

/* IN (sub-select) or EXISTS (sub-select) that core makes a join of. */
static bool
is_usable_link(SubLink *link)
{
	Query *subselect = (Query *) link->subselect;

	if (!is_repeatable(subselect))
		return false;
	if (link->subLinkType == EXISTS_SUBLINK)
		return decorrelate_core_pulls_up(subselect);
	return link->subLinkType == ANY_SUBLINK && !checkExprHasSubLink(link->testexpr) &&
		   !decorrelate_may_fail(link->testexpr) && !contain_vars_of_level((Node *) subselect, 1) &&
		   !decorrelate_may_fail((Node *) subselect->targetList);
}

/* May the condition, of one relation, be repeated, and is it worth it? */
static bool
is_usable_condition(Node *condition, bool late)
{
	if (contain_volatile_functions(condition))
		return false;
	if (IsA(condition, SubLink))
		return late && is_usable_link((SubLink *) condition);
	return !IsA(condition, NullTest) && !decorrelate_may_fail(condition);
}

/* ---- conditions ------------------------------------------------------------------------------------- */

/* Adds the conditions that are true for all rows that the join tree returns. */
static List *
add_conditions(Node *node, List *conditions)
{
	if (IsA(node, FromExpr))
	{
		FromExpr *from = (FromExpr *) node;
		ListCell *cell;

		foreach(cell, from->fromlist)
			conditions = add_conditions(lfirst(cell), conditions);
		return list_concat(conditions, decorrelate_conjuncts(from->quals));
	}
	if (IsA(node, JoinExpr))
	{
		JoinExpr *join = (JoinExpr *) node;

		if (join->jointype == JOIN_INNER || join->jointype == JOIN_LEFT)
			conditions = add_conditions(join->larg, conditions);
		if (join->jointype == JOIN_INNER || join->jointype == JOIN_RIGHT)
			conditions = add_conditions(join->rarg, conditions);
		if (join->jointype == JOIN_INNER)
			conditions = list_concat(conditions, decorrelate_conjuncts(join->quals));
	}
	return conditions;
}

void
decorrelate_outer_init(DecorrelateOuter *outer, Query *query, List *gates, bool is_late)
{
	outer->query = query;
	outer->conditions = add_conditions((Node *) query->jointree, list_copy(gates));
	outer->nullable = decorrelate_nullable(query);
	outer->is_late = is_late;
}

/* Has the derived table conditions that are no joins? */
static bool
filters_rows(Query *query)
{
	ListCell *cell;

	foreach(cell, add_conditions((Node *) query->jointree, NIL))
		if (bms_membership(pull_varnos(NULL, lfirst(cell))) == BMS_SINGLETON)
			return true;
	foreach(cell, query->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, cell);

		if (rte->rtekind == RTE_SUBQUERY && filters_rows(rte->subquery))
			return true;
	}
	return false;
}

/* The rows of its largest table, as last counted; infinite if that is not known. */
static double
count_rows(RangeTblEntry *rte)
{
	double rows = 0;
	ListCell *cell;

	if (rte->rtekind == RTE_RELATION)
	{
		HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(rte->relid));

		if (HeapTupleIsValid(tuple))
		{
			rows = ((Form_pg_class) GETSTRUCT(tuple))->reltuples;
			ReleaseSysCache(tuple);
		}
		return rows < 0 ? get_float8_infinity() : rows;
	}
	foreach(cell, rte->subquery->rtable)
	{
		RangeTblEntry *inner = lfirst_node(RangeTblEntry, cell);

		/* a view's rule has entries of the view itself, which nobody reads */
		if (inner->rtekind == RTE_SUBQUERY ||
			(inner->rtekind == RTE_RELATION && inner->relkind != RELKIND_VIEW))
			rows = Max(rows, count_rows(inner));
	}
	return rows;
}

double
decorrelate_source_rows(const DecorrelateOuter *outer, Index varno)
{
	return count_rows(rt_fetch(varno, outer->query->rtable));
}

bool
decorrelate_source_filters(const DecorrelateOuter *outer, Index varno)
{
	RangeTblEntry *rte = rt_fetch(varno, outer->query->rtable);

	return rte->rtekind == RTE_SUBQUERY && filters_rows(rte->subquery);
}

/* `a = b` of single relations, with a of this one; NULL if the condition is none, else a copy. */
static OpExpr *
find_equality(Node *condition, Index varno, Index *other)
{
	OpExpr *result = (OpExpr *) condition;
	Index left;

	if (!IsA(condition, OpExpr) || list_length(result->args) != 2 ||
		decorrelate_may_fail(condition) || contain_volatile_functions(condition) ||
		!op_mergejoinable(result->opno, exprType(linitial(result->args))))
		return NULL;
	left = decorrelate_only_source(linitial(result->args));
	*other = decorrelate_only_source(lsecond(result->args));
	if (left == 0 || *other == 0 || left == *other || (left != varno && *other != varno))
		return NULL;
	result = copyObject(result);
	if (left != varno)
	{
		if (!OidIsValid(get_commutator(result->opno)))
			return NULL;
		CommuteOpExpr(result);
		*other = left;
	}
	return result;
}

List *
decorrelate_source_equalities(const DecorrelateOuter *outer, Index varno)
{
	List *result = NIL;
	Index other;
	ListCell *cell;

	foreach(cell, outer->conditions)
	{
		OpExpr *equality = find_equality(lfirst(cell), varno, &other);

		if (equality != NULL && decorrelate_is_source(outer, other))
			result = lappend(result, equality);
	}
	return result;
}

/* The relation has no conditions of its own: those of smaller ones that it is joined to. */
static List *
collect_joined(const DecorrelateOuter *outer, Index varno)
{
	List *result = NIL;
	List *conditions;
	ListCell *cell;

	foreach(cell, decorrelate_source_equalities(outer, varno))
	{
		OpExpr *equality = lfirst(cell);
		Index other = decorrelate_only_source(lsecond(equality->args));

		if (decorrelate_source_rows(outer, other) < decorrelate_source_rows(outer, varno) &&
			decorrelate_source_restricts(outer, other, &conditions))
			result = lappend(result, decorrelate_source_membership(outer, other, conditions,
																   list_make1(equality)));
	}
	return result;
}

bool
decorrelate_source_restricts(const DecorrelateOuter *outer, Index varno, List **conditions)
{
	ListCell *cell;

	check_stack_depth();
	*conditions = NIL;
	foreach(cell, outer->conditions)
		if (decorrelate_only_source(lfirst(cell)) == varno &&
			is_usable_condition(lfirst(cell), outer->is_late))
			*conditions = lappend(*conditions, lfirst(cell));
	if (*conditions != NIL || decorrelate_source_filters(outer, varno))
		return true;
	if (outer->is_late)
		*conditions = collect_joined(outer, varno);
	return *conditions != NIL;
}

/* ---- IN --------------------------------------------------------------------------------------------- */

/* SELECT (no columns yet) FROM relation WHERE conditions */
static Query *
make_query(const DecorrelateOuter *outer, Index varno, List *conditions)
{
	Query *result = makeNode(Query);
	RangeTblEntry *rte = copyObject(rt_fetch(varno, outer->query->rtable));
	RangeTblRef *reference = makeNode(RangeTblRef);
	Node *quals = decorrelate_conjunction(copyObject(conditions));

	ChangeVarNodes(quals, (int) varno, 1, 0);
	reference->rtindex = 1;
	result->commandType = CMD_SELECT;
	result->querySource = outer->query->querySource;
	result->canSetTag = true;
	result->rtable = list_make1(rte);
	compat_copy_permissions(result, rte, outer->query);
	result->jointree = makeFromExpr(list_make1(reference), quals);
	result->hasSubLinks = checkExprHasSubLink(quals);
	return result;
}

SubLink *
decorrelate_source_membership(const DecorrelateOuter *outer, Index varno, List *conditions,
							  List *tests)
{
	Query *query = make_query(outer, varno, conditions);
	SubLink *result = makeNode(SubLink);
	List *comparisons = NIL;
	ListCell *cell;

	foreach(cell, tests)
	{
		OpExpr *comparison = copyObject(lfirst_node(OpExpr, cell));
		Node *value = lsecond(comparison->args);
		int number = foreach_current_index(cell) + 1;
		Param *param = makeNode(Param);

		param->paramkind = PARAM_SUBLINK;
		param->paramid = number;
		param->paramtype = exprType(value);
		param->paramtypmod = exprTypmod(value);
		param->paramcollid = exprCollation(value);
		param->location = -1;
		lsecond(comparison->args) = param;
		comparisons = lappend(comparisons, comparison);

		ChangeVarNodes(value, (int) varno, 1, 0);
		query->targetList = lappend(
			query->targetList,
			makeTargetEntry((Expr *) value, number, psprintf("key%d", number), false));
	}
	result->subLinkType = ANY_SUBLINK;
	result->testexpr = decorrelate_conjunction(comparisons);
	result->operName = list_make1(makeString(pstrdup("=")));
	result->subselect = (Node *) query;
	result->location = -1;
	return result;
}
