/*
 * statement_text.c
 *		Can a statement that changes rows be sent to the workers as it was written?
 *
 * Its text lacks what only the plan knows, the value of a sub-select, the clauses of row security, and it may name what workers
 * do not have, though the planner has folded that away.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "catalog/pg_class.h"
#include "nodes/nodeFuncs.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "cluster/metadata.h"
#include "plan/only_here.h"
#include "plan/shippable.h"
#include "plan/statement_text.h"

/* Does the text of the statement lack something that the plan knows, or name what workers do not have? */
static bool
walk_incomplete_text(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
		return ((RangeTblEntry *) node)->securityQuals != NIL;
	if (IsA(node, Var)) /* a worker would take its partition's */
		return ((Var *) node)->varattno == TableOidAttributeNumber;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, walk_incomplete_text, context,
								 QTW_EXAMINE_RTES_BEFORE);
	if (only_here_node(node)) /* the planner may have computed it */
		return true;
	return expression_tree_walker(node, walk_incomplete_text, context);
}

/* WITH queries that run on the coordinator, on their own, have no place in the shipped text. */
void
statement_text_strip_ctes(PlannerInfo *root, Query *original)
{
	List *inlined = NIL;
	int i = 0;
	ListCell *lc;

	foreach(lc, original->cteList)
	{
		if (i >= list_length(root->cte_plan_ids) || list_nth_int(root->cte_plan_ids, i) < 0)
			inlined = lappend(inlined, lfirst(lc));
		i++;
	}
	original->cteList = inlined;
}

/*
 * Does the text, shipped whole, name what workers do not have, and the planner has perhaps folded away: a local
 * table, the row of a view?
 */
static bool
walk_unreadable_text(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = (RangeTblEntry *) node;

		return rte->rtekind == RTE_RELATION && rte->relkind != RELKIND_VIEW &&
			   metadata_table(rte->relid) == NULL;
	}
	if (IsA(node, RowExpr) || IsA(node, Var))
	{
		if (type_is_rowtype(exprType(node)) && !shippable_row_type(exprType(node)))
			return true;
	}
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, walk_unreadable_text, context,
								 QTW_EXAMINE_RTES_BEFORE | QTW_IGNORE_JOINALIASES);
	return expression_tree_walker(node, walk_unreadable_text, context);
}

/*
 * MERGE through a view, which says what becomes of rows without a match?  In SQL over its table those outside of the view
 * would be such.
 */
static bool
merges_rest_of_view(Query *text)
{
	ListCell *lc;

	if (text->commandType != CMD_MERGE || text->jointree->quals == NULL)
		return false;
	foreach(lc, text->mergeActionList)
	{
		if (compat_merges_unmatched_target((MergeAction *) lfirst(lc)))
			return true;
	}
	return false;
}

/* Can workers read the statement as it was written? */
bool
statement_text_is_readable(PlannerInfo *root, Query *original)
{
	Query *text = copyObject(original);

	statement_text_strip_ctes(root, text);
	if (merges_rest_of_view(text))
		return false;
	return !walk_unreadable_text((Node *) text, NULL);
}

bool
statement_text_names_all(Node *node)
{
	return !walk_incomplete_text(node, NULL);
}

bool
statement_text_is_complete(PlannerInfo *root, Query *original)
{
	ListCell *lc;

	if (original == NULL || walk_incomplete_text((Node *) original, NULL))
		return false;
	foreach(lc, root->init_plans)
	{
		if (((SubPlan *) lfirst(lc))->subLinkType != CTE_SUBLINK)
			return false;
	}
	return true;
}
