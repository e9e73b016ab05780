/*
 * dependent_columns.c
 *		Columns beside GROUP BY that depend on what is grouped.
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "parser/parse_clause.h"
#include "parser/parse_oper.h"

#include "plan/dependent_columns.h"

typedef struct DependentContext
{
	List *grouped;
	List *inside;  /* columns in grouped expressions */
	List *columns; /* the result */
} DependentContext;

/*
 * Walker: columns outside of aggregates that GROUP BY does not have.  Not what a grouped expression has: the planner may have
 * given a use of that expression another form, in which we do not find it, and further groups would be wrong.
 */
static bool
find_dependent_columns(Node *node, DependentContext *context)
{
	if (node == NULL || IsA(node, Aggref) || IsA(node, Query) ||
		list_member(context->grouped, node))
		return false;
	if (IsA(node, Var))
	{
		if (!list_member(context->inside, node))
			context->columns = list_append_unique(context->columns, node);
		return false;
	}
	return expression_tree_walker(node, find_dependent_columns, context);
}

/* The target that is the column, a further one that nobody sees if there is none. */
static TargetEntry *
have_target(Query *query, Node *column)
{
	TargetEntry *tle = tlist_member((Expr *) column, query->targetList);

	if (tle == NULL)
	{
		tle = makeTargetEntry((Expr *) copyObject(column), list_length(query->targetList) + 1, NULL,
							  true);
		query->targetList = lappend(query->targetList, tle);
	}
	return tle;
}

void
dependent_columns_group(Query *query)
{
	DependentContext context = {
		.grouped = get_sortgrouplist_exprs(query->groupClause, query->targetList)};
	ListCell *lc;

	foreach(lc, query->targetList)
	{
		Expr *expr = ((TargetEntry *) lfirst(lc))->expr;

		if (IsA(expr, Var) && !list_member(context.grouped, expr))
			context.columns = list_append_unique(context.columns, expr);
	}
	context.inside = pull_vars_of_level((Node *) context.grouped, 0);
	find_dependent_columns((Node *) query->targetList, &context);
	find_dependent_columns(query->havingQual, &context);
	foreach(lc, context.columns)
	{
		SortGroupClause *clause = makeNode(SortGroupClause);

		get_sort_group_operators(exprType(lfirst(lc)), false, false, false, &clause->sortop,
								 &clause->eqop, NULL, &clause->hashable);
		if (!OidIsValid(clause->eqop))
			continue; /* of a type like json: the workers have the primary key, too */
		clause->tleSortGroupRef = assignSortGroupRef(have_target(query, lfirst(lc)),
													 query->targetList);
		query->groupClause = lappend(query->groupClause, clause);
	}
}
