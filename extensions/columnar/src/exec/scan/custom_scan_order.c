/*
 * custom_scan_order.c
 *		In which order a ColumnarScan evaluates its conditions.
 *
 * The planner orders conditions by what they cost, which is the same for all simple ones.  To the
 * scan it matters more how many blocks of rows a condition leaves, as the columns of the next
 * one are decoded for these only.  Conditions that cannot raise an error, which core marks as
 * leakproof, may change places with their like; others stay where they are, and so does what is
 * before and behind them.
 */
#include "exec/scan/custom_scan.h"

#include <math.h>

#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"

/* What leaving out a row is worth, against a whole block. */
#define ROW_WORTH 0.1

/* What a column that is no number costs, in numbers. */
#define BYTES_COST 4.0

typedef struct OrderedClause
{
	RestrictInfo *clause;
	double worth;
} OrderedClause;

/* What evaluating the clause saves those behind it, by what it costs. */
static double
estimate_worth(PlannerInfo *root, RelOptInfo *rel, RestrictInfo *clause)
{
	double kept = clause_selectivity(root, (Node *) clause, rel->relid, JOIN_INNER, NULL);
	double worth = pow(1 - kept, BLOCK_ROWS) + ROW_WORTH * (1 - kept);
	double cost = 0;
	List *vars = pull_var_clause((Node *) clause->clause, PVC_RECURSE_PLACEHOLDERS);
	ListCell *cell;

	foreach(cell, vars)
	{
		const Var *var = lfirst(cell);

		if (IsA(var, Var) && var->varno == rel->relid)
			cost += get_typbyval(var->vartype) ? 1 : BYTES_COST;
	}
	return worth / Max(cost, 1);
}

static bool
may_move(const RestrictInfo *clause)
{
	return !clause->pseudoconstant && !contain_leaked_vars((Node *) clause->clause) &&
		   !contain_volatile_functions((Node *) clause->clause) &&
		   !contain_subplans((Node *) clause->clause);
}

/* By falling worth; the order of equals stays. */
static void
sort_clauses(OrderedClause *clauses, int count)
{
	for (int i = 1; i < count; i++)
	{
		OrderedClause moved = clauses[i];
		int place = i;

		for (; place > 0 && clauses[place - 1].worth < moved.worth; place--)
			clauses[place] = clauses[place - 1];
		clauses[place] = moved;
	}
}

List *
custom_scan_order_clauses(PlannerInfo *root, RelOptInfo *rel, List *clauses)
{
	int count = list_length(clauses);
	OrderedClause *ordered = palloc(sizeof(OrderedClause) * Max(count, 1));
	List *result = NIL;
	int first = 0;

	/* (the first of those that may change places with the one that is looked at) */
	for (int i = 0; i < count; i++)
	{
		RestrictInfo *clause = list_nth_node(RestrictInfo, clauses, i);

		ordered[i].clause = clause;
		if (!may_move(clause))
		{
			sort_clauses(ordered + first, i - first);
			first = i + 1;
			continue;
		}
		if (clause->security_level != ordered[first].clause->security_level)
		{
			sort_clauses(ordered + first, i - first);
			first = i;
		}
		ordered[i].worth = estimate_worth(root, rel, clause);
	}
	sort_clauses(ordered + first, count - first);
	for (int i = 0; i < count; i++)
		result = lappend(result, ordered[i].clause);
	return result;
}
