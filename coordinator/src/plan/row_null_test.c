/*
 * row_null_test.c
 *		IS NULL of composite columns, so that a worker's partitions keep their rows.
 *
 * `k IS NULL` is true for a row of NULLs, too, but PostgreSQL's partition pruning
 * (match_clause_to_partition_key()) takes it for the partition of the NULL itself.  The shards
 * of a worker are partitions by the key, so that rows whose key is (,) were lost.  Pruning does not
 * look into `(k IS NULL) IS TRUE`, which means the same.
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"

#include "plan/row_null_test.h"

static bool
is_row_null_test(Node *node)
{
	NullTest *test = (NullTest *) node;

	return IsA(node, NullTest) && test->argisrow && test->nulltesttype == IS_NULL &&
		   !IsA(test->arg, RowExpr);
}

static bool
walk_tests(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (is_row_null_test(node))
		return true;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, walk_tests, context, 0);
	return expression_tree_walker(node, walk_tests, context);
}

static Node *
guard_tests(Node *node, void *context)
{
	if (node == NULL)
		return NULL;
	if (is_row_null_test(node))
	{
		BooleanTest *guard = makeNode(BooleanTest);

		guard->arg = copyObject((Expr *) node);
		guard->booltesttype = IS_TRUE;
		guard->location = -1;
		return (Node *) guard;
	}
	if (IsA(node, Query))
		return (Node *) query_tree_mutator((Query *) node, guard_tests, context, 0);
	return expression_tree_mutator(node, guard_tests, context);
}

Query *
row_null_test_guard(Query *query)
{
	if (!walk_tests((Node *) query, NULL))
		return query;
	return (Query *) guard_tests((Node *) query, NULL);
}
