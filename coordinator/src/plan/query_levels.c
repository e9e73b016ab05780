/*
 * query_levels.c
 *		The levels of a query: its own, those in FROM and WITH; not those in expressions.
 */
#include "postgres.h"

#include "miscadmin.h"

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
