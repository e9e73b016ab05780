/*
 * query_levels.c
 *		What writes a query in other forms: see query_levels.h.
 */
#include "postgres.h"

#include "catalog/pg_aggregate.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "utils/lsyscache.h"

#include "plan/query_levels.h"

bool
query_levels_visit(Query *query, bool (*visit)(Query *level))
{
	bool result = false;
	ListCell *cell;

	check_stack_depth();
	foreach(cell, query->cteList)
		result |= query_levels_visit((Query *) lfirst_node(CommonTableExpr, cell)->ctequery, visit);
	foreach(cell, query->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, cell);

		if (rte->rtekind == RTE_SUBQUERY)
			result |= query_levels_visit(rte->subquery, visit);
	}
	return result | visit(query);
}

CommonTableExpr *
query_levels_find_with(PlannerInfo *root, const RangeTblEntry *rte)
{
	ListCell *cell;

	for (Index level = 0; level < rte->ctelevelsup; level++)
		root = root->parent_root;
	foreach(cell, root->parse->cteList)
	{
		CommonTableExpr *with = lfirst_node(CommonTableExpr, cell);

		if (strcmp(with->ctename, rte->ctename) == 0)
			return with;
	}
	elog(ERROR, "could not find WITH \"%s\"", rte->ctename);
}

Aggref *
query_levels_aggregate(Oid function, Oid type, Node *argument, Oid collation)
{
	Aggref *result = makeNode(Aggref);

	result->aggfnoid = function;
	result->aggtype = type; /* aggtranstype is the planner's business */
	result->aggcollid = type_is_collatable(type) ? collation : InvalidOid;
	result->inputcollid = collation;
	result->aggargtypes = list_make1_oid(exprType(argument));
	result->args = list_make1(makeTargetEntry((Expr *) argument, 1, NULL, false));
	result->aggkind = AGGKIND_NORMAL;
	result->aggsplit = AGGSPLIT_SIMPLE;
	result->aggno = -1;
	result->aggtransno = -1;
	result->location = -1;
	return result;
}
