/*
 * decorrelate.c
 *		Walks the levels of a query from the innermost out, and joins what can be joined.
 *
 * The new joins go on top of what they refer to: of the whole FROM clause for sub-selects in WHERE
 * and in the target list, of the join for those in the ON of an inner join.  A grouped sub-select
 * has one row per key, so a left join changes neither the outer rows nor their number, and it does
 * not matter whether WHERE comes before or after it.
 *
 * For expressions over groups the join is below the grouping, too.  It then adds a column that is
 * neither grouped nor aggregated but depends on grouping columns, as other columns do on a primary
 * key; core takes it from any row of the group.
 *
 * Equal sub-selects are joined once.  That also keeps expressions with them equal to grouping
 * expressions with them.
 */
#include "compat.h"

#include "decorrelate_internal.h"

#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "utils/lsyscache.h"

/* A rewrite of a whole statement. */
typedef struct Rewrite
{
	DecorrelateJudge judge;
	bool judges_with; /* is what reads WITH to be joined? */
	bool changed;
	bool restricts; /* grouped sub-selects to keys that are asked for */
	bool restricted;
} Rewrite;

/* A sub-select that was joined above `anchor`. */
typedef struct Joined
{
	FromExpr *anchor;
	SubLink *link;
	Index varno;
	DecorrelateJoin join;
} Joined;

/* The level whose expressions are being rewritten, and where in them we are. */
typedef struct Level
{
	Rewrite *rewrite;
	Query *query;
	List *joined;
	FromExpr *anchor; /* what new joins go on top of */
	bool is_filter;	  /* in WHERE or ON, not in the target list or HAVING */
	bool is_guarded;  /* below a node that evaluates only some of its arguments */
	bool is_grouped;  /* evaluated over groups */

	/* targets of GROUP BY before and after they were rewritten */
	List *groups_before;
	List *groups_after;
} Level;

static void rewrite_query(Query *query, Rewrite *rewrite);
static Node *rewrite_expression(Node *node, void *context);

/* ---- attaching joins ------------------------------------------------------------------------------------ */

/* The next two entries of the range table are the sub-select's and the join's. */
static Index
next_entry(Level *level)
{
	return list_length(level->query->rtable) + 1;
}

static void
attach_left_join(Level *level, DecorrelateJoin *parts)
{
	FromExpr *anchor = level->anchor;
	RangeTblRef *reference = makeNode(RangeTblRef);
	RangeTblEntry *rte = makeNode(RangeTblEntry);
	JoinExpr *join = makeNode(JoinExpr);

	reference->rtindex = next_entry(level);
	level->query->rtable = lappend(level->query->rtable,
								   decorrelate_subquery_entry(parts->query, "decorrelated"));

	/* nothing refers to columns of the join itself */
	rte->rtekind = RTE_JOIN;
	rte->jointype = JOIN_LEFT;
	rte->eref = makeAlias("unnamed_join", NIL);
	join->rtindex = next_entry(level);
	level->query->rtable = lappend(level->query->rtable, rte);

	join->jointype = JOIN_LEFT;
	join->larg = list_length(anchor->fromlist) == 1 ? (Node *) linitial(anchor->fromlist)
													: (Node *) makeFromExpr(anchor->fromlist, NULL);
	join->rarg = (Node *) reference;
	join->quals = parts->condition;
	anchor->fromlist = list_make1(join);
}

/* ---- one sub-select ------------------------------------------------------------------------------------- */

/* Does the outer side of the condition say the same for all rows of a group? */
static bool
is_of_group(DecorrelateCondition *condition, Level *level)
{
	Node *outer = copyObject(list_nth(condition->comparison->args, condition->outer_argument));
	ListCell *cell;

	IncrementVarSublevelsUp(outer, -1, 1);
	foreach(cell, level->query->groupClause)
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, cell);

		if (equal(get_sortgroupclause_expr(clause, level->query->targetList), outer) &&
			equality_ops_are_compatible(clause->eqop, condition->comparison->opno) &&
			exprCollation(outer) == condition->comparison->inputcollid)
			return true;
	}
	return false;
}

/* Did a sub-select become the entry? */
static bool
is_decorrelated(const RangeTblEntry *rte)
{
	return rte->alias != NULL && strcmp(rte->alias->aliasname, "decorrelated") == 0;
}

static bool
find_correlated_link(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, SubLink) && contain_vars_of_level(((SubLink *) node)->subselect, 1))
		return true;
	return expression_tree_walker(node, find_correlated_link, context);
}

/* Has the query correlated sub-selects among its conditions, or had it, which became joins? */
static bool
has_nested(Query *query)
{
	ListCell *cell;

	foreach(cell, query->rtable)
		if (is_decorrelated(lfirst_node(RangeTblEntry, cell)))
			return true;
	return find_correlated_link((Node *) query->jointree, NULL);
}

/*
 * May the sub-select be evaluated for all keys, considering where it stands?  Core evaluates nested
 * sub-selects last, for rows that fulfil the other conditions, the correlation among them.
 */
static bool
may_join_here(DecorrelateSplit *split, Level *level)
{
	List *outer = NIL;
	ListCell *cell;

	if (level->anchor == NULL)
		return false;
	foreach(cell, split->conditions)
	{
		DecorrelateCondition *condition = lfirst(cell);

		outer = lappend(outer, list_nth(condition->comparison->args, condition->outer_argument));
		if (level->is_grouped && !is_of_group(condition, level))
			return false;
	}
	if (level->is_grouped && (split->gates != NIL || level->query->groupingSets != NIL ||
							  compat_has_group_relation(level->query)))
		return false;
	outer = list_concat(outer, split->gates);
	if ((level->is_guarded || !level->is_filter) && decorrelate_may_fail((Node *) outer))
		return false;
	return !(level->is_guarded || has_nested(split->query)) ||
		   !(decorrelate_rows_may_fail(split->query) || decorrelate_may_fail((Node *) split->keys));
}

/* The join for EXPR or EXISTS as the next entries; false if there is none. */
static bool
make_join(SubLink *link, Level *level, DecorrelateJoin *join)
{
	Query *subselect = (Query *) link->subselect;
	bool exists = link->subLinkType == EXISTS_SUBLINK;
	bool one_row = decorrelate_is_one_row(subselect);
	Index varno = next_entry(level);
	DecorrelateSplit split;

	if ((!exists && !one_row) || !decorrelate_split(subselect, &split) ||
		!may_join_here(&split, level))
		return false;
	return one_row ? decorrelate_group_scalar(&split, exists, varno, varno + 1, join)
				   : decorrelate_group_exists(&split, varno, varno + 1, join);
}

/* What stands for EXPR or EXISTS after it was joined; NULL if it cannot be. */
static Node *
join_subselect(SubLink *link, Level *level)
{
	DecorrelateJoin join;
	Joined *joined;
	ListCell *cell;

	if (!make_join(link, level, &join))
		return NULL;
	foreach(cell, level->joined)
	{
		joined = lfirst(cell);
		if (joined->anchor == level->anchor && equal(joined->link, link))
			return copyObject(joined->join.value);
	}
	joined = palloc(sizeof(Joined));
	joined->anchor = level->anchor;
	joined->link = link;
	joined->varno = next_entry(level);
	joined->join = join;
	attach_left_join(level, &join);
	level->joined = lappend(level->joined, joined);
	level->rewrite->changed = true;
	return copyObject(join.value);
}

/* EXISTS with a correlated OR among its conditions: a join for each of its arms, or NULL. */
static Node *
join_alternatives(SubLink *link, Level *level)
{
	List *arms = NIL;
	List *values = NIL;
	DecorrelateJoin join;
	ListCell *cell;

	foreach(cell, decorrelate_alternatives((Query *) link->subselect))
	{
		SubLink *arm = decorrelate_exists(lfirst(cell), link->location);

		if (!make_join(arm, level, &join))
			return NULL;
		arms = lappend(arms, arm);
	}
	foreach(cell, arms)
		values = lappend(values, join_subselect(lfirst(cell), level));
	return values ? (Node *) makeBoolExpr(OR_EXPR, values, -1) : NULL;
}

static Node *
join_exists(SubLink *link, Level *level)
{
	Node *value = join_subselect(link, level);

	return value ? value : join_alternatives(link, level);
}

/* Is the sub-select one that we move, if we can? */
static bool
is_candidate(SubLink *link, Level *level)
{
	Query *subselect = (Query *) link->subselect;

	return level->anchor != NULL &&
		   decorrelate_reads_judged(subselect, level->rewrite->judge,
									level->rewrite->judges_with) &&
		   decorrelate_is_movable(subselect);
}

/* ANY or ALL of one row is the comparison with it. */
static Node *
join_compared(SubLink *link, Level *level)
{
	Query *subselect = (Query *) link->subselect;
	SubLink *scalar = makeNode(SubLink);
	Node *value;

	if (!decorrelate_is_one_row(subselect) || subselect->havingQual != NULL ||
		list_length(subselect->targetList) > 1)
		return NULL;
	scalar->subLinkType = EXPR_SUBLINK;
	scalar->subselect = link->subselect;
	scalar->location = link->location;
	value = join_subselect(scalar, level);
	return value ? decorrelate_replace_outputs(link->testexpr, list_make1(value)) : NULL;
}

/* Rewrites what is inside the sub-select; its own copy of the node. */
static SubLink *
rewrite_inside(SubLink *link, Level *level)
{
	bool was_guarded = level->is_guarded;
	SubLink *result = makeNode(SubLink);

	*result = *link;
	rewrite_query((Query *) result->subselect, level->rewrite);
	level->is_guarded = true;
	result->testexpr = rewrite_expression(link->testexpr, level);
	level->is_guarded = was_guarded;
	return result;
}

/* What takes the place of a sub-select anywhere in an expression; itself if nothing does. */
static Node *
join_link(SubLink *link, Level *level)
{
	Node *value = NULL;

	if (!contain_vars_of_level(link->subselect, 1) || !is_candidate(link, level))
		return (Node *) link;
	if (link->subLinkType == EXPR_SUBLINK)
		value = join_subselect(link, level);
	else if (link->subLinkType == EXISTS_SUBLINK)
		value = join_exists(link, level);
	else if (link->subLinkType == ANY_SUBLINK || link->subLinkType == ALL_SUBLINK)
		value = join_compared(link, level);
	return value ? value : (Node *) link;
}

/* ---- expressions ---------------------------------------------------------------------------------------- */

static Node *
rewrite_expression(Node *node, void *context)
{
	Level *level = context;
	bool was_guarded = level->is_guarded;
	bool was_grouped = level->is_grouped;
	Node *result;
	ListCell *before;
	ListCell *after;

	if (node == NULL)
		return NULL;
	check_stack_depth();
	if (level->is_grouped)
	{
		forboth(before, level->groups_before, after, level->groups_after)
		{
			if (equal(node, lfirst(before)))
				return copyObject(lfirst(after));
		}
	}
	switch (nodeTag(node))
	{
		case T_SubLink:
			return join_link(rewrite_inside((SubLink *) node, level), level);

		case T_Aggref:
			/* the arguments of an outer query's aggregate are that query's business */
			if (((Aggref *) node)->agglevelsup > 0)
				return node;
			level->is_grouped = false;
			level->is_guarded = true;
			break;
		case T_BoolExpr:
			if (!is_notclause(node))
				level->is_guarded = true;
			break;
		case T_CaseExpr:
		case T_CoalesceExpr:
		case T_RowCompareExpr:
		case T_WindowFunc:
			level->is_guarded = true;
			break;
		default:
			break;
	}
	result = expression_tree_mutator(node, rewrite_expression, context);
	level->is_guarded = was_guarded;
	level->is_grouped = was_grouped;
	return result;
}

/* The sub-select of a condition that is nothing else, or the negation of it; else NULL. */
static SubLink *
find_condition_link(Node *condition, bool *negated)
{
	*negated = is_notclause(condition);
	if (*negated)
		condition = (Node *) get_notclausearg((Expr *) condition);
	return IsA(condition, SubLink) ? (SubLink *) condition : NULL;
}

/*
 * Core makes joins of sub-selects that stand alone in WHERE or ON.  Brings one into the form in which
 * it does; NULL if there is no such form.
 */
static Node *
prepare_for_core(SubLink *link, bool negated, Level *level)
{
	Query *subselect = (Query *) link->subselect;
	Node *result;

	if (!is_candidate(link, level))
		return NULL;
	if (link->subLinkType == EXISTS_SUBLINK)
	{
		DecorrelateSplit split;

		if (!decorrelate_core_pulls_up(subselect) && decorrelate_hoist_conditions(subselect))
			level->rewrite->changed = true;
		if (!decorrelate_core_pulls_up(subselect))
			return NULL;
		/* without an equality core would join by a nested loop */
		result = decorrelate_split(subselect, &split) ? NULL : join_alternatives(link, level);
		if (result == NULL)
			result = (Node *) link;
		return negated ? (Node *) makeBoolExpr(NOT_EXPR, list_make1(result), -1) : result;
	}
	result = decorrelate_membership(level->query, link, negated,
									level->anchor == level->query->jointree);
	if (result != NULL)
		level->rewrite->changed = true;
	return result;
}

/* One of the conditions of WHERE or ON. */
static Node *
rewrite_condition(Node *condition, Level *level)
{
	bool negated;
	SubLink *link = find_condition_link(condition, &negated);
	Node *result;

	if (link == NULL)
		return rewrite_expression(condition, level);
	link = rewrite_inside(link, level);
	result = prepare_for_core(link, negated, level);
	if (result != NULL)
		return result;
	result = join_link(link, level);
	return negated ? (Node *) makeBoolExpr(NOT_EXPR, list_make1(result), -1) : result;
}

static Node *
rewrite_conditions(Node *quals, Level *level)
{
	List *result = NIL;
	ListCell *cell;

	foreach(cell, decorrelate_conjuncts(quals))
		result = lappend(result, rewrite_condition(lfirst(cell), level));
	return decorrelate_conjunction(result);
}

/* ---- levels --------------------------------------------------------------------------------------------- */

/* Rewrites the queries of sub-selects in an expression whose own sub-selects stay. */
static bool
visit_subselects(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		rewrite_query((Query *) node, context);
		return false;
	}
	return expression_tree_walker(node, visit_subselects, context);
}

/* Rewrites conditions in the join tree; returns what takes the node's place. */
static Node *
rewrite_join_tree(Node *node, Level *level)
{
	if (IsA(node, FromExpr))
	{
		FromExpr *from = (FromExpr *) node;
		ListCell *cell;

		foreach(cell, from->fromlist)
			lfirst(cell) = rewrite_join_tree(lfirst(cell), level);
		level->anchor = from;
		from->quals = rewrite_conditions(from->quals, level);
	}
	else if (IsA(node, JoinExpr))
	{
		JoinExpr *join = (JoinExpr *) node;
		FromExpr *from = makeFromExpr(list_make1(join), NULL);

		join->larg = rewrite_join_tree(join->larg, level);
		join->rarg = rewrite_join_tree(join->rarg, level);
		level->anchor = join->jointype == JOIN_INNER ? from : NULL;
		join->quals = rewrite_conditions(join->quals, level);
		if (linitial(from->fromlist) != join)
		{
			from->quals = join->quals;
			join->quals = NULL;
			return (Node *) from;
		}
	}
	return node;
}

static void
rewrite_targets(Level *level)
{
	Query *query = level->query;
	bool grouped = query->hasAggs || query->groupClause != NIL || query->groupingSets != NIL;
	List *groups = NIL;
	ListCell *cell;

	level->is_filter = false;
	foreach(cell, query->targetList)
	{
		TargetEntry *target = lfirst_node(TargetEntry, cell);

		if (target->ressortgroupref == 0 || query->groupingSets != NIL ||
			get_sortgroupref_clause_noerr(target->ressortgroupref, query->groupClause) == NULL)
			continue;
		groups = lappend(groups, target);
		level->groups_before = lappend(level->groups_before, copyObject(target->expr));
	}
	foreach(cell, groups)
	{
		TargetEntry *target = lfirst_node(TargetEntry, cell);

		target->expr = (Expr *) rewrite_expression((Node *) target->expr, level);
		level->groups_after = lappend(level->groups_after, target->expr);
	}
	level->is_grouped = grouped;
	foreach(cell, query->targetList)
	{
		TargetEntry *target = lfirst_node(TargetEntry, cell);

		if (!list_member_ptr(groups, target))
			target->expr = (Expr *) rewrite_expression((Node *) target->expr, level);
	}
	query->havingQual = rewrite_expression(query->havingQual, level);
	level->is_grouped = false;
}

/* An entry of the parser's has the same name in both places. */
static void
mark_restricted(RangeTblEntry *rte)
{
	rte->eref->aliasname = pstrdup("restricted");
}

bool
decorrelate_is_restricted(const RangeTblEntry *rte)
{
	return is_decorrelated(rte) && strcmp(rte->eref->aliasname, "restricted") == 0;
}

/* When all conditions of the level are known: tells its joins which keys are asked for. */
static void
restrict_joins(Level *level)
{
	ListCell *cell;

	foreach(cell, level->joined)
	{
		Joined *joined = lfirst(cell);

		if (decorrelate_restrict(level->query, joined->anchor, joined->varno, &joined->join))
		{
			level->rewrite->restricted = true;
			mark_restricted(rt_fetch(joined->varno, level->query->rtable));
		}
	}
}

/* The expressions of one level: SELECT without locks and set operations. */
static void
rewrite_level(Query *query, Rewrite *rewrite)
{
	Level level = {.rewrite = rewrite, .query = query, .is_filter = true};
	bool secured = false;
	ListCell *cell;

	foreach(cell, query->rtable)
		secured = secured || lfirst_node(RangeTblEntry, cell)->securityQuals != NIL;
	if (query->commandType != CMD_SELECT || query->setOperations != NULL ||
		query->rowMarks != NIL || query->jointree->fromlist == NIL || secured)
	{
		query_tree_walker(query, visit_subselects, rewrite, QTW_IGNORE_RC_SUBQUERIES);
		return;
	}
	foreach(cell, query->rtable)
		range_table_entry_walker(lfirst(cell), visit_subselects, rewrite, QTW_IGNORE_RT_SUBQUERIES);
	rewrite_join_tree((Node *) query->jointree, &level);
	level.anchor = query->jointree;
	rewrite_targets(&level);
	if (rewrite->restricts)
		restrict_joins(&level);
	visit_subselects(query->limitCount, rewrite);
	visit_subselects(query->limitOffset, rewrite);
	query->hasSubLinks = checkExprHasSubLink((Node *) query);
}

static void
rewrite_query(Query *query, Rewrite *rewrite)
{
	ListCell *cell;

	check_stack_depth();
	foreach(cell, query->cteList)
	{
		Node *cte = lfirst_node(CommonTableExpr, cell)->ctequery;

		if (IsA(cte, Query))
			rewrite_query((Query *) cte, rewrite);
	}
	foreach(cell, query->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, cell);

		if (rte->rtekind == RTE_SUBQUERY)
			rewrite_query(rte->subquery, rewrite);
	}
	if (query->hasSubLinks)
		rewrite_level(query, rewrite);
}

bool
decorrelate_query(Query *query, DecorrelateJudge judge, bool restricts)
{
	Rewrite rewrite = {.judge = judge,
					   .judges_with = decorrelate_with_reads_judged(query, judge),
					   .restricts = restricts};

	(void) decorrelate_flatten_groups((Node *) query, NULL);
	rewrite_query(query, &rewrite);
	return restricts ? rewrite.restricted : rewrite.changed;
}

static bool
has_sublinks(Query *query)
{
	ListCell *cell;

	if (query->hasSubLinks)
		return true;
	foreach(cell, query->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, cell);

		if (rte->rtekind == RTE_SUBQUERY && has_sublinks(rte->subquery))
			return true;
	}
	foreach(cell, query->cteList)
	{
		Node *cte = lfirst_node(CommonTableExpr, cell)->ctequery;

		if (IsA(cte, Query) && has_sublinks((Query *) cte))
			return true;
	}
	return false;
}

static bool
find_judged_link(Node *node, void *context)
{
	Rewrite *rewrite = context;

	if (node == NULL)
		return false;
	if (IsA(node, SubLink) && IsA(((SubLink *) node)->subselect, Query) &&
		decorrelate_reads_judged((Query *) ((SubLink *) node)->subselect, rewrite->judge,
								 rewrite->judges_with))
		return true;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, find_judged_link, context, 0);
	return expression_tree_walker(node, find_judged_link, context);
}

bool
decorrelate_may_apply(Query *query, DecorrelateJudge judge)
{
	Rewrite rewrite = {.judge = judge};

	if (!has_sublinks(query))
		return false;
	rewrite.judges_with = decorrelate_with_reads_judged(query, judge);
	return find_judged_link((Node *) query, &rewrite);
}
