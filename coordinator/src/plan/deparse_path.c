/*
 * deparse_path.c
 *		The Query that says in SQL what a DistPath does.
 *
 * The planner has taken the user's query apart; what it found - the relations,
 * the clauses with constants folded, the join order's freedom - is put together
 * again as a Query that core's pg_get_querydef() prints.  Nothing of ruleutils
 * is copied.
 *
 * Levels.  A Query is built per SQL level: the path itself, each derived table
 * (DistSub), each [NOT] EXISTS made of a semi or anti join, each sub-select made
 * of a SubPlan.  Every level has a complete range table of its planner root, with
 * RTE_RESULT in the place of relations it does not use, so that no Var is
 * renumbered; only varlevelsup is set, by looking for the level that owns the
 * Var's relation.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/tlist.h"
#include "parser/parse_relation.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "plan/deparse_path.h"
#include "plan/deparse_returning.h"
#include "plan/deparse_set.h"
#include "plan/deparse_text.h"
#include "plan/dependent_columns.h"
#include "plan/grouping_sets.h"
#include "plan/partial_aggregate.h"
#include "plan/shippable.h"

typedef struct DeparseLevel
{
	struct DeparseLevel *parent;
	DistPath *path;
	SubPlan *subplan; /* how the level above embeds this one; NULL: in its FROM or EXISTS */
	List *lateral;	  /* PlannerParamItem: what it takes from its neighbours in FROM */
	List **params;
} DeparseLevel;

static Query *build_query(DeparseLevel *level, List *tlist);
static Node *mutate_expr(Node *node, DeparseLevel *level);

/* The expression under another collation than its own, if that is one. */
static Node *
collate(Node *expr, Oid collation)
{
	CollateExpr *result;

	if (!OidIsValid(collation) || collation == exprCollation(expr))
		return expr;
	result = makeNode(CollateExpr);
	result->arg = (Expr *) expr;
	result->collOid = collation;
	result->location = -1;
	return (Node *) result;
}

Node *
deparse_path_param(Node *expr, int id)
{
	Param *param = makeNode(Param);

	param->paramkind = PARAM_EXTERN;
	param->paramid = id;
	param->paramtype = exprType(expr);
	param->paramtypmod = -1;
	param->paramcollid = get_typcollation(param->paramtype);
	param->location = -1;
	return collate((Node *) param, exprCollation(expr));
}

/* Ship the value of an expression: $n. */
static Node *
make_shipped_param(Node *expr, DeparseLevel *level)
{
	int id = 1;
	ListCell *lc;

	foreach(lc, *level->params)
	{
		if (equal(lfirst(lc), expr))
			break;
		id++;
	}
	if (id > list_length(*level->params))
		*level->params = lappend(*level->params, copyObject(expr));
	return deparse_path_param(expr, id);
}

/*
 * The object identifier of the relation that a row comes from: the shell's, not a
 * partition's; NULL where an outer join has found no row.
 */
static Node *
make_tableoid(Var *var, Index levelsup, RangeTblEntry *rte)
{
	CaseExpr *expr = makeNode(CaseExpr);
	CaseWhen *when = makeNode(CaseWhen);
	NullTest *test = makeNode(NullTest);

	test->arg = (Expr *) makeVar(var->varno, SelfItemPointerAttributeNumber, TIDOID, -1, InvalidOid,
								 levelsup);
	test->nulltesttype = IS_NOT_NULL;
	test->location = -1;
	when->expr = (Expr *) test;
	when->result = (Expr *) makeConst(OIDOID, -1, InvalidOid, sizeof(Oid),
									  ObjectIdGetDatum(rte->relid), false, true);
	when->location = -1;
	expr->casetype = OIDOID;
	expr->args = list_make1(when);
	expr->defresult = (Expr *) makeNullConst(OIDOID, -1, InvalidOid);
	expr->location = -1;
	return (Node *) expr;
}

static Node *
mutate_var(Var *var, DeparseLevel *level)
{
	Index levelsup = 0;
	RangeTblEntry *rte;

	for (DeparseLevel *owner = level; owner != NULL; owner = owner->parent, levelsup++)
	{
		ListCell *lc;

		if (owner->path->root != level->path->root)
			break;
		foreach(lc, owner->path->aliases)
		{
			DistAlias *alias = lfirst(lc);

			if (equal(alias->var, var))
			{
				Node *expr = mutate_expr((Node *) alias->expr, owner);

				IncrementVarSublevelsUp(expr, levelsup, 0);
				return expr;
			}
		}
		if (bms_is_member(var->varno, owner->path->nulled))
			return (Node *) makeNullConst(var->vartype, var->vartypmod, var->varcollid);
		if (!bms_is_member(var->varno, owner->path->relids))
			continue;

		rte = planner_rt_fetch(var->varno, owner->path->root);
		if (var->varattno == TableOidAttributeNumber)
			return make_tableoid(var, levelsup, rte);
		var = copyObject(var);
		var->varlevelsup = levelsup;
		var->varnosyn = 0;
		var->varattnosyn = 0;
		return (Node *) var;
	}
	elog(ERROR, "column %d of relation %d belongs to no level of the remote query", var->varattno,
		 var->varno);
}

/* The expression of the level above by which it sets a parameter of this one; NULL if it does not. */
static Node *
find_outer_value(Param *param, DeparseLevel *level)
{
	ListCell *lc;
	ListCell *lc2;

	foreach(lc, level->lateral)
	{
		PlannerParamItem *item = lfirst(lc);

		if (item->paramId == param->paramid)
			return item->item;
	}
	if (level->subplan == NULL)
		return NULL;
	forboth(lc, level->subplan->parParam, lc2, level->subplan->args)
	{
		if (lfirst_int(lc) == param->paramid)
			return lfirst(lc2);
	}
	return NULL;
}

/* A parameter that an outer query sets: the expression it stands for, seen from here. */
static Node *
mutate_outer_param(Param *param, DeparseLevel *level)
{
	int levelsup = 1;

	for (DeparseLevel *inner = level; inner->parent != NULL; inner = inner->parent, levelsup++)
	{
		Node *value = find_outer_value(param, inner);

		if (value == NULL)
			continue;
		value = mutate_expr(value, inner->parent);
		IncrementVarSublevelsUp(value, levelsup, 0);
		return value;
	}
	elog(ERROR, "parameter %d belongs to no level of the remote query", param->paramid);
}

/* The test expression of `x IN (SELECT ...)`: columns of the sub-select as PARAM_SUBLINK. */
typedef struct TestContext
{
	DeparseLevel *level;
	SubPlan *subplan;
} TestContext;

static Node *
mutate_test(Node *node, TestContext *context)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Param))
	{
		Param *param = (Param *) node;
		int column = 1;
		ListCell *lc;

		foreach(lc, context->subplan->paramIds)
		{
			if (param->paramkind == PARAM_EXEC && param->paramid == lfirst_int(lc))
			{
				param = copyObject(param);
				param->paramkind = PARAM_SUBLINK;
				param->paramid = column;
				return (Node *) param;
			}
			column++;
		}
	}
	return expression_tree_mutator(node, mutate_test, context);
}

static Node *
make_sublink(SubPlan *subplan, DeparseLevel *level)
{
	SubLink *link = makeNode(SubLink);
	DeparseLevel inner = {.parent = level, .subplan = subplan, .params = level->params};
	TestContext context = {level, subplan};

	inner.path = shippable_subplan_path(level->path->root, subplan);
	if (inner.path == NULL)
		elog(ERROR, "sub-plan %d is not on the workers", subplan->plan_id);

	link->subLinkType = subplan->subLinkType;
	link->testexpr = mutate_test(subplan->testexpr, &context);
	/* the parameters of the sub-select's columns are not ours: mutate_expr leaves PARAM_SUBLINK alone */
	link->testexpr = mutate_expr(link->testexpr, level);
	link->subselect = (Node *) build_query(&inner, NIL);
	link->location = -1;
	return (Node *) link;
}

static Node *
make_exists(DistSemiJoin *semijoin, DeparseLevel *level)
{
	SubLink *link = makeNode(SubLink);
	DeparseLevel inner = {.parent = level, .params = level->params};
	DistPath *path = dist_path_copy(semijoin->inner);

	path->quals = list_concat_copy(path->quals, semijoin->clauses);
	inner.path = path;
	link->subLinkType = EXISTS_SUBLINK;
	link->subselect = (Node *) build_query(&inner, NIL);
	link->location = -1;
	if (semijoin->anti)
		return (Node *) makeBoolExpr(NOT_EXPR, list_make1(link), -1);
	return (Node *) link;
}

/* An expression of level->path's planner root as SQL of this level. */
static Node *
mutate_expr(Node *node, DeparseLevel *level)
{
	PlannerInfo *root = level->path->root;

	if (node == NULL)
		return NULL;

	switch (nodeTag(node))
	{
		case T_Var:
			return mutate_var((Var *) node, level);
		case T_Param:
		{
			Param *param = (Param *) node;

			if (param->paramkind == PARAM_SUBLINK)
				return copyObject(node);
			if (shippable_param_is_outer(root, param))
				return mutate_outer_param(param, level);
			return make_shipped_param(node, level);
		}
		case T_RestrictInfo:
			return mutate_expr((Node *) ((RestrictInfo *) node)->clause, level);
		case T_AlternativeSubPlan:
			return mutate_expr(linitial(((AlternativeSubPlan *) node)->subplans), level);
		case T_SubPlan:
			return make_sublink((SubPlan *) node, level);
		case T_RelabelType:
			/* what the planner makes of COLLATE, and ruleutils would not print */
			if (shippable_is_shipped_value(root, node))
				return make_shipped_param(node, level);
			{
				RelabelType *relabel = (RelabelType *) expression_tree_mutator(node, mutate_expr,
																			   level);
				Oid collation = relabel->resultcollid;

				relabel->resultcollid = exprCollation((Node *) relabel->arg);
				if (relabel->resulttype == exprType((Node *) relabel->arg) &&
					collation != relabel->resultcollid)
					return collate((Node *) relabel->arg, collation);
				return collate((Node *) relabel, collation);
			}
		case T_WindowFunc:
		{
			WindowFunc *function = makeNode(WindowFunc);

			*function = *(WindowFunc *) node;
			compat_forget_run_conditions((Node *) function);
			return expression_tree_mutator((Node *) function, mutate_expr, level);
		}
		case T_Aggref:
			node = expression_tree_mutator(node, mutate_expr, level);
			return (Node *) partial_aggregate_rename((Aggref *) node);
		default:
			if (shippable_is_shipped_value(root, node))
				return make_shipped_param(node, level);
			break;
	}
	return expression_tree_mutator(node, mutate_expr, level);
}

/* Number of columns of a range-table entry that a join sees, and which. */
static List *
visible_columns(RangeTblEntry *rte)
{
	List *columns = NIL;
	AttrNumber attno = 0;
	ListCell *lc;

	foreach(lc, rte->eref->colnames)
	{
		attno++;
		if (strVal(lfirst(lc))[0] != '\0') /* not a dropped column */
			columns = lappend_int(columns, attno);
	}
	return columns;
}

void
deparse_path_join_rte(Query *query, JoinExpr *join)
{
	RangeTblEntry *rte = makeNode(RangeTblEntry);
	int children[2];

	children[0] = IsA(join->larg, JoinExpr) ? ((JoinExpr *) join->larg)->rtindex
											: ((RangeTblRef *) join->larg)->rtindex;
	children[1] = IsA(join->rarg, JoinExpr) ? ((JoinExpr *) join->rarg)->rtindex
											: ((RangeTblRef *) join->rarg)->rtindex;

	rte->rtekind = RTE_JOIN;
	rte->jointype = join->jointype;
	rte->eref = makeAlias("unnamed_join", NIL);
	rte->inFromCl = true;
	for (int side = 0; side < 2; side++)
	{
		RangeTblEntry *child = rt_fetch(children[side], query->rtable);
		List *columns = visible_columns(child);
		ListCell *lc;

		foreach(lc, columns)
		{
			rte->eref->colnames = lappend(rte->eref->colnames,
										  list_nth(child->eref->colnames, lfirst_int(lc) - 1));
			/* only its number counts, never its type */
			rte->joinaliasvars = lappend(rte->joinaliasvars, makeVar(children[side], lfirst_int(lc),
																	 INT4OID, -1, InvalidOid, 0));
		}
		if (side == 0)
			rte->joinleftcols = columns;
		else
			rte->joinrightcols = columns;
	}
	query->rtable = lappend(query->rtable, rte);
	join->rtindex = list_length(query->rtable);
}

RangeTblEntry *
deparse_path_unused_rte(void)
{
	RangeTblEntry *rte = makeNode(RangeTblEntry);

	rte->rtekind = RTE_RESULT;
	rte->eref = makeAlias("unused", NIL);
	return rte;
}

List *
deparse_path_column_names(int count)
{
	List *names = NIL;

	for (int i = 1; i <= count; i++)
		names = lappend(names, makeString(psprintf("c%d", i)));
	return names;
}

/* The range-table entry of a relation that the level reads. */
static RangeTblEntry *
make_used_rte(DeparseLevel *level, Index rti)
{
	RangeTblEntry *rte = makeNode(RangeTblEntry);
	ListCell *lc;

	memcpy(rte, planner_rt_fetch(rti, level->path->root), sizeof(RangeTblEntry));
	rte->securityQuals = NIL;
	rte->lateral = false;
	if (rte->rtekind == RTE_SUBQUERY)
		rte->inh = false; /* a flattened UNION ALL has it */
	rte->inFromCl =
		true; /* the planner's own entries, made of sub-selects, lack it and would not be printed */

	switch (rte->rtekind)
	{
		case RTE_RELATION:
			/* the planner clears inh on childless tables, which would print ONLY */
			rte->inh = rte->inh || !shippable_has_tree(rte->relid);
			rte->tablesample = (TableSampleClause *) mutate_expr((Node *) rte->tablesample, level);
			break;
		case RTE_SUBQUERY:
			foreach(lc, level->path->subs)
			{
				DistSub *sub = lfirst(lc);
				DeparseLevel inner = {.parent = level, .path = sub->path, .params = level->params};
				List *names;

				if (sub->rti != rti)
					continue;
				inner.lateral = find_base_rel(level->path->root, rti)->subplan_params;
				rte->lateral = inner.lateral != NIL;
				rte->subquery = build_query(&inner, NIL);
				names = deparse_path_column_names(
					ExecCleanTargetListLength(rte->subquery->targetList));
				rte->eref = makeAlias(rte->eref->aliasname, names);
				rte->alias = makeAlias(rte->eref->aliasname, NIL);
			}
			break;
		case RTE_FUNCTION:
			rte->functions = (List *) mutate_expr((Node *) rte->functions, level);
			break;
		case RTE_VALUES:
			rte->values_lists = (List *) mutate_expr((Node *) rte->values_lists, level);
			break;
		case RTE_RESULT:
			rte->rtekind = RTE_SUBQUERY;
			rte->subquery = makeNode(Query);
			rte->subquery->commandType = CMD_SELECT;
			rte->subquery->canSetTag = true;
			rte->subquery->jointree = makeFromExpr(NIL, NULL);
			rte->alias = rte->eref = makeAlias("one_row", NIL);
			break;
		default:
			elog(ERROR, "relation kind %d cannot be read by workers", (int) rte->rtekind);
	}
	return rte;
}

/* FROM items with their range-table entries; children before parents. */
static Node *
build_from_item(Node *item, Query *query, DeparseLevel *level)
{
	JoinExpr *join;

	if (IsA(item, RangeTblRef))
	{
		Index rti = ((RangeTblRef *) item)->rtindex;

		lfirst(list_nth_cell(query->rtable, rti - 1)) = make_used_rte(level, rti);
		return copyObject(item);
	}
	join = makeNode(JoinExpr);
	join->jointype = ((JoinExpr *) item)->jointype;
	join->larg = build_from_item(((JoinExpr *) item)->larg, query, level);
	join->rarg = build_from_item(((JoinExpr *) item)->rarg, query, level);
	join->quals = (Node *) make_ands_explicit(
		(List *) mutate_expr(((JoinExpr *) item)->quals, level));
	if (((JoinExpr *) item)->quals == NULL)
		join->quals = NULL;
	deparse_path_join_rte(query, join);
	return (Node *) join;
}

static Node *
build_conjunction(List *quals, DeparseLevel *level)
{
	if (quals == NIL)
		return NULL;
	return (Node *) make_ands_explicit((List *) mutate_expr((Node *) quals, level));
}

/* NULL in the place of a column that nobody reads: a NULL of a domain would be asked whether it may be one. */
static Node *
without_domain(Node *expr)
{
	Const *value = (Const *) expr;
	int32 typmod;
	Oid type;

	if (!IsA(expr, Const) || !value->constisnull)
		return expr;
	typmod = value->consttypmod;
	type = getBaseTypeAndTypmod(value->consttype, &typmod);
	return type == value->consttype ? expr
									: (Node *) makeNullConst(type, typmod, value->constcollid);
}

static List *
build_target(List *target, DeparseLevel *level)
{
	List *result = NIL;
	int visible = 0;
	ListCell *lc;

	foreach(lc, target)
	{
		TargetEntry *tle = flatCopyTargetEntry(lfirst(lc));

		tle->expr = (Expr *) mutate_expr(without_domain((Node *) tle->expr), level);
		tle->resno = list_length(result) + 1;
		tle->resname = tle->resjunk ? NULL : psprintf("c%d", ++visible);
		result = lappend(result, tle);
	}
	return result;
}

/* The position in a target list of each WindowFunc; other expressions are the level's own. */
typedef struct FilterContext
{
	DeparseLevel *level;
	List *target;
} FilterContext;

static Node *
mutate_filter(Node *node, FilterContext *context)
{
	if (node != NULL && IsA(node, WindowFunc))
	{
		TargetEntry *tle = tlist_member((Expr *) node, context->target);

		return (Node *) makeVarFromTargetEntry(1, tle);
	}
	if (!contain_window_function(node))
		return mutate_expr(node, context->level);
	return expression_tree_mutator(node, mutate_filter, context);
}

/* A target list with the window functions that the filter looks at as further columns. */
static List *
add_filter_columns(List *target, List *filter)
{
	ListCell *lc;

	foreach(lc, pull_var_clause((Node *) filter, PVC_INCLUDE_WINDOWFUNCS | PVC_RECURSE_AGGREGATES |
													 PVC_RECURSE_PLACEHOLDERS))
	{
		if (IsA(lfirst(lc), WindowFunc) && tlist_member(lfirst(lc), target) == NULL)
			target = lappend(list_copy(target),
							 makeTargetEntry(lfirst(lc), list_length(target) + 1, NULL, true));
	}
	return target;
}

/*
 * SELECT ... FROM (windows) WHERE filter: SQL has no clause that sees the results of window functions.
 * What comes after the filter moves out.  target: the inner target list as the planner has it.
 */
static Query *
filter_windows(Query *inner, List *target, DeparseLevel *level)
{
	FilterContext context = {level, target};
	Query *outer = makeNode(Query);
	RangeTblEntry *rte = makeNode(RangeTblEntry);
	RangeTblRef *ref = makeNode(RangeTblRef);
	List *filter = (List *) mutate_filter((Node *) level->path->window_filter, &context);
	List *names = deparse_path_column_names(list_length(inner->targetList));
	ListCell *lc;

	outer->commandType = CMD_SELECT;
	outer->querySource = QSRC_ORIGINAL;
	outer->canSetTag = true;
	foreach(lc, inner->targetList)
	{
		TargetEntry *tle = lfirst(lc);
		TargetEntry *column = flatCopyTargetEntry(tle);

		column->expr = (Expr *) makeVarFromTargetEntry(1, tle);
		outer->targetList = lappend(outer->targetList, column);
		tle->resjunk = false;
		tle->resname = strVal(list_nth(names, tle->resno - 1));
	}
	outer->distinctClause = inner->distinctClause;
	outer->sortClause = inner->sortClause;
	outer->limitCount = inner->limitCount;
	outer->limitOffset = inner->limitOffset;
	outer->limitOption = inner->limitOption;
	outer->hasSubLinks = checkExprHasSubLink((Node *) outer) ||
						 checkExprHasSubLink((Node *) filter);
	inner->distinctClause = inner->sortClause = NIL;
	inner->limitCount = inner->limitOffset = NULL;

	IncrementVarSublevelsUp((Node *) inner, 1, 1);
	rte->rtekind = RTE_SUBQUERY;
	rte->subquery = inner;
	rte->eref = makeAlias("filtered", names);
	rte->alias = makeAlias("filtered", NIL);
	rte->inFromCl = true;
	ref->rtindex = 1;
	outer->rtable = list_make2(rte, deparse_path_unused_rte()); /* so that columns are qualified */
	outer->jointree = makeFromExpr(list_make1(ref), (Node *) make_ands_explicit(filter));
	return outer;
}

/* The queries that a set operation puts together, those of nested ones, too. */
static List *
build_branches(DistPath *path, DeparseLevel *level)
{
	List *queries = NIL;
	ListCell *lc;

	foreach(lc, path->branches)
	{
		DistPath *branch = lfirst(lc);
		DeparseLevel inner = {.parent = level, .path = branch, .params = level->params};

		if (branch->branches != NIL)
			queries = list_concat(queries, build_branches(branch, level));
		else
			queries = lappend(queries, build_query(&inner, NIL));
	}
	return queries;
}

static Query *
build_set_query(DeparseLevel *level)
{
	DistPath *path = level->path;
	Query *query = deparse_set_query(path, build_branches(path, level));

	query->sortClause = copyObject(path->sort_clause);
	query->limitCount = mutate_expr(path->limit_count, level);
	query->limitOffset = mutate_expr(path->limit_offset, level);
	query->limitOption = path->limit_option;
	query->hasSubLinks = checkExprHasSubLink((Node *) query);
	return query;
}

static Query *
build_query(DeparseLevel *level, List *tlist)
{
	DistPath *path = level->path;
	Query *query;
	List *target = add_filter_columns(path->target ? path->target : tlist, path->window_filter);
	List *from = NIL;
	List *quals;
	ListCell *lc;

	if (path->branches != NIL)
		return build_set_query(level);
	query = makeNode(Query);
	query->commandType = CMD_SELECT;
	query->querySource = QSRC_ORIGINAL;
	query->canSetTag = true;

	for (int i = 0; i < list_length(path->root->parse->rtable); i++)
		query->rtable = lappend(query->rtable, deparse_path_unused_rte());
	if (list_length(query->rtable) == 1)
		query->rtable = lappend(query->rtable,
								deparse_path_unused_rte()); /* so that columns are qualified */

	foreach(lc, path->from)
		from = lappend(from, build_from_item(lfirst(lc), query, level));
	quals = (List *) mutate_expr((Node *) path->quals, level);
	foreach(lc, path->semijoins)
		quals = lappend(quals, make_exists(lfirst(lc), level));
	query->jointree = makeFromExpr(from, quals == NIL ? NULL : (Node *) make_ands_explicit(quals));

	query->targetList = build_target(target, level);
	query->groupClause = copyObject(path->group_clause);
	query->havingQual = build_conjunction(path->having, level);
	if (query->groupClause != NIL && path->grouping_sets == NIL)
		dependent_columns_group(query);
	query->groupingSets = grouping_sets_clause(path->grouping_sets);

	/* The planner dropped aggregates that nobody reads; their grouping into one row remains. */
	if (path->has_aggs && path->group_clause == NIL && query->havingQual == NULL &&
		!contain_agg_clause((Node *) query->targetList))
		query->havingQual = makeBoolConst(true, false);
	query->windowClause = (List *) mutate_expr((Node *) path->window_clause, level);
	foreach(lc, query->windowClause)
		compat_forget_run_conditions(lfirst(lc));
	query->distinctClause = copyObject(path->distinct_clause);
	query->sortClause = copyObject(path->sort_clause);
	query->limitCount = mutate_expr(path->limit_count, level);
	query->limitOffset = mutate_expr(path->limit_offset, level);
	query->limitOption = path->limit_option;
	query->hasAggs = path->has_aggs;
	query->hasWindowFuncs = path->has_windows;
	query->hasSubLinks = checkExprHasSubLink((Node *) query);

	foreach(lc, path->locks)
	{
		DistLock *lock = lfirst(lc);
		RowMarkClause *mark = makeNode(RowMarkClause);

		mark->rti = lock->rti;
		mark->strength = lock->strength;
		mark->waitPolicy = lock->wait_policy;
		query->rowMarks = lappend(query->rowMarks, mark);
		query->hasForUpdate = true;
	}
	return path->window_filter == NIL ? query : filter_windows(query, target, level);
}

Query *
deparse_path_query(DistPath *path, List *tlist, List **params)
{
	DeparseLevel level = {.path = path, .params = params};

	return build_query(&level, tlist);
}

Query *
deparse_path_modify(DistPath *path, CmdType command, Index target, List *set_list, List *returning,
					List **params)
{
	DeparseLevel level = {.path = path, .params = params};
	Query *query = build_query(&level, NIL);

	query->commandType = command;
	query->resultRelation = target;
	/* so that it is printed as the target only, not in FROM or USING */
	rt_fetch(target, query->rtable)->inFromCl = false;
	query->targetList = (List *) mutate_expr((Node *) set_list, &level);
	query->returningList = deparse_text_transport_tlist(
		deparse_returning((List *) mutate_expr((Node *) returning, &level), target));
	compat_copy_returning_names(query, path->root->parse);
	return query;
}

static void
add_system_column(Query *query, Index target, AttrNumber attno, Oid type)
{
	int position = list_length(query->targetList) + 1;

	query->targetList = lappend(
		query->targetList, makeTargetEntry((Expr *) makeVar(target, attno, type, -1, InvalidOid, 0),
										   position, psprintf("c%d", position), false));
}

Query *
deparse_path_locked(DistPath *path, List *tlist, Index target, LockClauseStrength strength,
					List **params)
{
	DistPath *locked = dist_path_copy(path);
	DistLock *lock = palloc0(sizeof(DistLock));
	Query *query;

	lock->rti = target;
	lock->strength = strength;
	lock->wait_policy = LockWaitBlock;
	locked->locks = list_make1(lock);
	query = deparse_path_query(locked, tlist, params);
	add_system_column(query, target, TableOidAttributeNumber, OIDOID);
	add_system_column(query, target, SelfItemPointerAttributeNumber, TIDOID);
	query->targetList = deparse_text_transport_tlist(query->targetList);
	return query;
}
