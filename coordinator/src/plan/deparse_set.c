/*
 * deparse_set.c
 *		The Query of a set operation: a tree over sub-selects, as the parser makes it.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"

#include "plan/deparse_path.h"
#include "plan/deparse_set.h"

typedef struct SetTree
{
	Query *query;
	List *queries; /* those that are not in the tree yet */
} SetTree;

/* A leaf: the next query as a range-table entry. */
static Node *
add_leaf(SetTree *tree)
{
	RangeTblEntry *rte = makeNode(RangeTblEntry);
	RangeTblRef *ref = makeNode(RangeTblRef);

	rte->rtekind = RTE_SUBQUERY;
	rte->subquery = linitial_node(Query, tree->queries);
	tree->queries = list_delete_first(tree->queries);
	tree->query->rtable = lappend(tree->query->rtable, rte);
	ref->rtindex = list_length(tree->query->rtable);
	rte->eref = makeAlias(
		psprintf("*SELECT* %d", ref->rtindex),
		deparse_path_column_names(ExecCleanTargetListLength(rte->subquery->targetList)));
	return (Node *) ref;
}

/* The operation over its branches, from left to right. */
static Node *
add_operation(SetTree *tree, const DistPath *path)
{
	Node *left = NULL;
	ListCell *lc;
	ListCell *lc2;

	foreach(lc, path->branches)
	{
		DistPath *branch = lfirst(lc);
		Node *item = branch->branches != NIL ? add_operation(tree, branch) : add_leaf(tree);
		SetOperationStmt *operation;

		if (left == NULL)
		{
			left = item;
			continue;
		}
		operation = makeNode(SetOperationStmt);
		operation->op = path->set_operation;
		operation->all = path->set_all;
		operation->larg = left;
		operation->rarg = item;
		foreach(lc2, path->target)
		{
			TargetEntry *tle = lfirst(lc2);

			if (tle->resjunk)
				continue;
			operation->colTypes = lappend_oid(operation->colTypes, exprType((Node *) tle->expr));
			operation->colTypmods = lappend_int(operation->colTypmods, -1);
			operation->colCollations = lappend_oid(operation->colCollations,
												   exprCollation((Node *) tle->expr));
		}
		left = (Node *) operation;
	}
	return left;
}

Query *
deparse_set_query(const DistPath *path, List *queries)
{
	SetTree tree = {.query = makeNode(Query), .queries = list_copy(queries)};
	Query *query = tree.query;
	List *names = NIL;
	ListCell *lc;

	query->commandType = CMD_SELECT;
	query->querySource = QSRC_ORIGINAL;
	query->canSetTag = true;
	query->setOperations = add_operation(&tree, path);
	query->jointree = makeFromExpr(NIL, NULL);
	names = deparse_path_column_names(list_length(path->target));
	foreach(lc, path->target)
	{
		TargetEntry *tle = flatCopyTargetEntry(lfirst(lc));
		Node *expr = (Node *) tle->expr;

		if (tle->resjunk)
			continue;
		tle->resno = list_length(query->targetList) + 1;
		tle->expr = (Expr *) makeVar(1, tle->resno, exprType(expr), exprTypmod(expr),
									 exprCollation(expr), 0);
		tle->resname = strVal(list_nth(names, tle->resno - 1));
		query->targetList = lappend(query->targetList, tle);
	}
	return query;
}
