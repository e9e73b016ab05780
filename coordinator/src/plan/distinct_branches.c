/*
 * distinct_branches.c
 *		Aggregates over different distinct values as branches of a UNION ALL, one for each.
 *
 *		SELECT g, count(DISTINCT a), count(DISTINCT b), sum(c) FROM ... GROUP BY g
 *
 * needs all rows in one place, if groups do not hold the distribution key: what workers make of one distinct
 * value (plan_grouping.c) does not go together with anything else.  Each by itself they can make:
 *
 *		SELECT g, max(a), max(b), max(c) FROM
 *			(SELECT g, count(DISTINCT a) AS a, NULL AS b, NULL AS c, 1 AS branch FROM ... GROUP BY g
 *			 UNION ALL
 *			 SELECT g, NULL, count(DISTINCT b), NULL, 2 FROM ... GROUP BY g
 *			 UNION ALL
 *			 SELECT g, NULL, NULL, sum(c), 3 FROM ... GROUP BY g) AS branches
 *		GROUP BY g
 *
 * A group has one row of each branch, so max() meets at most one value and takes it as it is; types that have no
 * max() go through array_agg() FILTER (WHERE branch = ...).  What is in FROM and WHERE is read once for each
 * branch: it must be the same each time, to the last bit, or a group would lack a branch.  Therefore only tables and
 * conditions are taken, no sub-selects that count, sort or choose.  Whether it is cheaper the caller finds out.
 */
#include "postgres.h"

#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "parser/parse_func.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "decorrelate.h"
#include "plan/distinct_branches.h"
#include "plan/planner.h"
#include "plan/query_levels.h"

/* More would be planned for long, and read the rows too often. */
#define MOST_BRANCHES 8

/* The only entry in the range table of the rewritten level, and in that of a branch's level the same. */
#define BRANCHES_VARNO 1

/* Aggregates that one branch computes: those over the same distinct values, or those over all. */
typedef struct Branch
{
	int number;		 /* from 1 */
	List *arguments; /* what is DISTINCT, as Aggref.args; NIL: nothing */
	bool counts;	 /* are all of them count(DISTINCT x)? */
} Branch;

/* A column of the UNION ALL: a grouping expression, or an aggregate of one branch. */
typedef struct Column
{
	Node *expr;
	Index group_ref; /* of a grouping expression, else 0 */
	Branch *branch;	 /* of an aggregate, else NULL */
} Column;

typedef struct Split
{
	Query *query;
	List *branches; /* of Branch */
	List *columns;	/* of Column: first the grouping expressions */
	bool failed;
} Split;

/* ---- which levels ---------------------------------------------------------------------------------------- */

/* May what is read differ from one time to the next?  Below the level of the aggregates. */
static bool
walk_varying(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = (RangeTblEntry *) node;

		return rte->rtekind == RTE_CTE || rte->rtekind == RTE_NAMEDTUPLESTORE ||
			   (rte->rtekind == RTE_RELATION && decorrelate_rows_may_differ(rte));
	}
	if (IsA(node, Query))
	{
		Query *query = (Query *) node;

		return query->hasAggs || query->hasWindowFuncs || query->hasDistinctOn ||
			   query->hasTargetSRFs || query->limitCount != NULL || query->limitOffset != NULL ||
			   query->cteList != NIL || query->rowMarks != NIL ||
			   query_tree_walker(query, walk_varying, context, QTW_EXAMINE_RTES_BEFORE);
	}
	return expression_tree_walker(node, walk_varying, context);
}

/* Are FROM and WHERE, and what is grouped by, the same whenever they are read? */
static bool
reads_the_same(Query *query)
{
	return !range_table_walker(query->rtable, walk_varying, NULL, QTW_EXAMINE_RTES_BEFORE) &&
		   !walk_varying((Node *) query->jointree, NULL) &&
		   !walk_varying((Node *) query->targetList, NULL) &&
		   !contain_volatile_functions((Node *) query);
}

static bool
may_be_split(Query *query)
{
	return query->commandType == CMD_SELECT && query->hasAggs && query->groupingSets == NIL &&
		   query->setOperations == NULL && query->cteList == NIL && query->rowMarks == NIL &&
		   !query->hasModifyingCTE && !query->hasForUpdate &&
		   planner_reads_distributed((Node *) query) && reads_the_same(query);
}

/* ---- columns --------------------------------------------------------------------------------------------- */

static Branch *
find_branch(Split *split, Aggref *aggregate)
{
	List *arguments = aggregate->aggdistinct != NIL ? aggregate->args : NIL;
	Branch *branch;
	ListCell *cell;

	foreach(cell, split->branches)
	{
		branch = lfirst(cell);
		if (equal(branch->arguments, arguments))
			break;
	}
	if (cell == NULL)
	{
		branch = palloc(sizeof(Branch));
		branch->arguments = arguments;
		branch->counts = true;
		split->branches = lappend(split->branches, branch);
		branch->number = list_length(split->branches);
	}
	branch->counts &= aggregate->aggfnoid == F_COUNT_ANY;
	return branch;
}

/* Notes all aggregates of the level. */
static bool
collect_aggregates(Node *node, void *context)
{
	Split *split = context;
	Column *column;
	ListCell *cell;

	if (node == NULL)
		return false;
	if (!IsA(node, Aggref) || ((Aggref *) node)->agglevelsup > 0)
		return expression_tree_walker(node, collect_aggregates, context);
	foreach(cell, split->columns)
	{
		column = lfirst(cell);
		if (equal(column->expr, node))
			return false;
	}
	column = palloc0(sizeof(Column));
	column->expr = node;
	column->branch = find_branch(split, (Aggref *) node);
	split->columns = lappend(split->columns, column);
	return false;
}

static void
collect_columns(Split *split)
{
	Query *query = split->query;
	ListCell *cell;

	foreach(cell, query->groupClause)
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, cell);
		Column *column = palloc0(sizeof(Column));

		column->expr = get_sortgroupclause_expr(clause, query->targetList);
		column->group_ref = clause->tleSortGroupRef;
		split->columns = lappend(split->columns, column);
	}
	(void) collect_aggregates((Node *) query->targetList, split);
	(void) collect_aggregates(query->havingQual, split);
}

/* Is it worth while?  One distinct value, if only counted, goes with all else as it is. */
static bool
needs_branches(List *branches)
{
	int distinct = 0;
	bool counts = true;
	ListCell *cell;

	foreach(cell, branches)
	{
		Branch *branch = lfirst(cell);

		distinct += branch->arguments != NIL;
		counts &= branch->arguments == NIL || branch->counts;
	}
	return list_length(branches) > 1 && list_length(branches) <= MOST_BRANCHES &&
		   (distinct > 1 || !counts);
}

/* ---- the branches ---------------------------------------------------------------------------------------- */

static Query *
make_branch(Split *split, Branch *branch)
{
	Query *result = copyObject(split->query);
	AttrNumber resno = 0;
	ListCell *cell;

	result->targetList = NIL;
	foreach(cell, split->columns)
	{
		Column *column = lfirst(cell);
		Node *expr = column->expr;
		TargetEntry *target;

		if (column->branch != NULL && column->branch != branch)
			expr = (Node *) makeNullConst(exprType(expr), exprTypmod(expr), exprCollation(expr));
		resno++;
		target = makeTargetEntry(copyObject((Expr *) expr), resno, psprintf("c%d", resno), false);
		target->ressortgroupref = column->group_ref;
		result->targetList = lappend(result->targetList, target);
	}
	result->targetList = lappend(
		result->targetList,
		makeTargetEntry((Expr *) makeConst(INT4OID, -1, InvalidOid, sizeof(int32),
										   Int32GetDatum(branch->number), false, true),
						resno + 1, "branch", false));
	result->havingQual = NULL;
	result->sortClause = NIL;
	result->distinctClause = NIL;
	result->hasDistinctOn = false;
	result->windowClause = NIL;
	result->hasWindowFuncs = false;
	result->hasTargetSRFs = false;
	result->limitCount = NULL;
	result->limitOffset = NULL;
	result->hasSubLinks = checkExprHasSubLink((Node *) result);
	IncrementVarSublevelsUp((Node *) result, 2, 1); /* in the UNION ALL, which is in the level */
	return result;
}

static Node *
add_branch(Query *all, Node *so_far, Query *branch)
{
	RangeTblRef *reference = makeNode(RangeTblRef);
	SetOperationStmt *operation;
	ListCell *cell;

	all->rtable = lappend(all->rtable, decorrelate_subquery_entry(branch, "branch"));
	reference->rtindex = list_length(all->rtable);
	if (so_far == NULL)
		return (Node *) reference;
	operation = makeNode(SetOperationStmt);
	operation->op = SETOP_UNION;
	operation->all = true;
	operation->larg = so_far;
	operation->rarg = (Node *) reference;
	foreach(cell, branch->targetList)
	{
		Node *expr = (Node *) lfirst_node(TargetEntry, cell)->expr;

		operation->colTypes = lappend_oid(operation->colTypes, exprType(expr));
		operation->colTypmods = lappend_int(operation->colTypmods, exprTypmod(expr));
		operation->colCollations = lappend_oid(operation->colCollations, exprCollation(expr));
	}
	return (Node *) operation;
}

static Query *
make_union(Split *split)
{
	Query *result = makeNode(Query);
	Query *branch = NULL;
	ListCell *cell;

	result->commandType = CMD_SELECT;
	result->querySource = split->query->querySource;
	result->jointree = makeFromExpr(NIL, NULL);
	foreach(cell, split->branches)
	{
		branch = make_branch(split, lfirst(cell));
		result->setOperations = add_branch(result, result->setOperations, branch);
	}
	foreach(cell, branch->targetList)
	{
		TargetEntry *target = lfirst_node(TargetEntry, cell);
		Var *var = makeVarFromTargetEntry(BRANCHES_VARNO, target);

		result->targetList = lappend(
			result->targetList,
			makeTargetEntry((Expr *) var, target->resno, pstrdup(target->resname), false));
	}
	return result;
}

/* ---- the level above them -------------------------------------------------------------------------------- */

/* array_agg(value) FILTER (WHERE branch = number), of which the first; NULL if the type has no arrays. */
static Node *
make_first_of_branch(Split *split, Var *value, int number)
{
	Oid array = get_array_type(value->vartype);
	Var *branch = makeVar(BRANCHES_VARNO, list_length(split->columns) + 1, INT4OID, -1, InvalidOid,
						  0);
	Const *of = makeConst(INT4OID, -1, InvalidOid, sizeof(int32), Int32GetDatum(number), false,
						  true);
	Const *first = makeConst(INT4OID, -1, InvalidOid, sizeof(int32), Int32GetDatum(1), false, true);
	SubscriptingRef *result;
	Aggref *all;

	if (!OidIsValid(array))
		return NULL;
	all = query_levels_aggregate(F_ARRAY_AGG_ANYNONARRAY, array, (Node *) value, value->varcollid);
	all->aggfilter = make_opclause(Int4EqualOperator, BOOLOID, false, (Expr *) branch, (Expr *) of,
								   InvalidOid, InvalidOid);
	result = makeNode(SubscriptingRef);
	result->refcontainertype = array;
	result->refelemtype = value->vartype;
	result->refrestype = value->vartype;
	result->reftypmod = value->vartypmod;
	result->refcollid = value->varcollid;
	result->refupperindexpr = list_make1(first);
	result->refexpr = (Expr *) all;
	return (Node *) result;
}

/* The value of an aggregate's column, which is NULL but in one branch. */
static Node *
make_value(Split *split, Column *column, Var *value)
{
	Oid max = InvalidOid;

	if (type_is_array(value->vartype))
		max = F_MAX_ANYARRAY;
	else
		max = LookupFuncName(list_make2(makeString("pg_catalog"), makeString("max")), 1,
							 &value->vartype, true);
	if (OidIsValid(max))
		return (Node *) query_levels_aggregate(max, value->vartype, (Node *) value,
											   value->varcollid);
	return make_first_of_branch(split, value, column->branch->number);
}

/* Expressions over groups in terms of the branches' columns. */
static Node *
replace_columns(Node *node, void *context)
{
	Split *split = context;
	int number = 0;
	ListCell *cell;

	if (node == NULL || split->failed)
		return NULL;
	foreach(cell, split->columns)
	{
		Column *column = lfirst(cell);
		Node *value;

		number++;
		if (!equal(column->expr, node))
			continue;
		value = (Node *) makeVar(BRANCHES_VARNO, number, exprType(node), exprTypmod(node),
								 exprCollation(node), 0);
		if (column->branch != NULL)
			value = make_value(split, column, (Var *) value);
		split->failed |= value == NULL;
		return value;
	}
	/* a column that depends on grouping columns; a sub-select may name one, too */
	if ((IsA(node, Var) && ((Var *) node)->varlevelsup == 0) || IsA(node, SubLink) ||
		IsA(node, GroupingFunc))
	{
		split->failed = true;
		return NULL;
	}
	return expression_tree_mutator(node, replace_columns, context);
}

/* The level over the branches; NULL if it asks for more than they have. */
static Query *
make_level(Split *split)
{
	Query *result = makeNode(Query);
	RangeTblRef *reference = makeNode(RangeTblRef);

	*result = *split->query;
	result->targetList = (List *) replace_columns((Node *) result->targetList, split);
	result->havingQual = replace_columns(result->havingQual, split);
	if (split->failed)
		return NULL;
	reference->rtindex = BRANCHES_VARNO;
	result->rtable = list_make1(decorrelate_subquery_entry(make_union(split), "branches"));
	compat_forget_permissions(result);
	result->jointree = makeFromExpr(list_make1(reference), NULL);
	return result;
}

/* Does the level need branches, and can it have them? */
static bool
find_columns(Split *split)
{
	if (!split->query->hasAggs)
		return false;
	collect_columns(split);
	return needs_branches(split->branches) && may_be_split(split->query);
}

bool
distinct_branches_may_apply(Query *level)
{
	Split split = {.query = level};

	return find_columns(&split);
}

bool
distinct_branches_rewrite(Query *query)
{
	Split split = {.query = query};
	Query *level;

	if (query->groupingSets == NIL)
		compat_flatten_groups(query);
	if (!find_columns(&split))
		return false;
	level = make_level(&split);
	if (level == NULL)
		return false;
	*query = *level;
	return true;
}
