/*
 * aggregate_key_cost.c
 *		For the planner: what it costs to compute the keys of a row, where they are no columns.
 *
 * Processes that share groups out (aggregate_share.c) compute the keys of all rows, each of them;
 * those that share rows out, of their own alone.  Catalogs say that every function of core costs
 * the same, which regular expressions are farthest from.
 */
#include "exec/aggregate/aggregate_path.h"

#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "utils/fmgroids.h"

/* What matching a regular expression costs, in units of cpu_operator_cost. */
#define REGEXP_COST 100

static bool
is_regexp(Oid function, void *context)
{
	switch (function)
	{
		case F_TEXTREGEXEQ:
		case F_TEXTREGEXNE:
		case F_TEXTICREGEXEQ:
		case F_TEXTICREGEXNE:
		case F_SUBSTRING_TEXT_TEXT:
		case F_REGEXP_MATCH_TEXT_TEXT:
		case F_REGEXP_MATCH_TEXT_TEXT_TEXT:
		case F_REGEXP_REPLACE_TEXT_TEXT_TEXT:
		case F_REGEXP_REPLACE_TEXT_TEXT_TEXT_TEXT:
		case F_REGEXP_SPLIT_TO_ARRAY_TEXT_TEXT:
			return true;
		default:
			return false;
	}
}

static bool
count_regexps(Node *node, int *count)
{
	if (node == NULL)
		return false;
	*count += check_functions_in_node(node, is_regexp, NULL);
	return expression_tree_walker(node, count_regexps, count);
}

Cost
aggregate_key_cost(const AggregateQuery *query)
{
	Cost sum = 0;
	ListCell *cell;

	foreach(cell, query->partial->exprs)
	{
		Node *expression = lfirst(cell);
		QualCost cost;
		int regexps = 0;

		if (IsA(expression, Aggref))
			continue;
		cost_qual_eval_node(&cost, expression, query->root);
		count_regexps(expression, &regexps);
		sum += cost.per_tuple / 5 + regexps * REGEXP_COST * cpu_operator_cost;
	}
	return sum;
}
