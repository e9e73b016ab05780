/*
 * window_names.c
 *		What EXPLAIN calls the results of a ColumnarWindow, which other nodes may refer to.
 *
 * Since 18 ruleutils.c prints a window function by the name of its WindowAgg's window, and fails without a WindowAgg.
 * So, when the plan is made and all references are resolved, each function in the list of what the node computes gets a
 * stand-in, which prints as the function without its window.  The node itself keeps the functions elsewhere
 * (WINDOW_PRIVATE_FUNCTIONS).
 */
#include "exec/window/window_internal.h"

#include "optimizer/planner.h"
#include "utils/ruleutils.h"

static planner_hook_type previous_planner_hook = NULL;

static Expr *
make_stand_in(const WindowFunc *function)
{
	FuncExpr *call;

	if (function->winagg)
		return (Expr *) window_make_aggref(function);
	call = makeNode(FuncExpr);
	call->funcid = function->winfnoid;
	call->funcresulttype = function->wintype;
	call->funcformat = COERCE_EXPLICIT_CALL;
	call->funccollid = function->wincollid;
	call->inputcollid = function->inputcollid;
	call->args = function->args;
	call->location = -1;
	return (Expr *) call;
}

static void
name_results(CustomScan *scan)
{
	ListCell *cell;

	foreach(cell, scan->custom_scan_tlist)
	{
		TargetEntry *target = lfirst_node(TargetEntry, cell);

		if (IsA(target->expr, WindowFunc))
			target->expr = make_stand_in((WindowFunc *) target->expr);
	}
}

static void walk_plans(List *plans);

static void
walk_plan(Plan *plan)
{
	if (plan == NULL)
		return;
	if (IsA(plan, CustomScan))
	{
		CustomScan *scan = (CustomScan *) plan;

		if (scan->methods == &window_scan_methods)
			name_results(scan);
		walk_plans(scan->custom_plans);
	}
	else if (IsA(plan, Append))
		walk_plans(((Append *) plan)->appendplans);
	else if (IsA(plan, MergeAppend))
		walk_plans(((MergeAppend *) plan)->mergeplans);
	else if (IsA(plan, SubqueryScan))
		walk_plan(((SubqueryScan *) plan)->subplan);
	walk_plan(plan->lefttree);
	walk_plan(plan->righttree);
}

static void
walk_plans(List *plans)
{
	ListCell *cell;

	foreach(cell, plans)
		walk_plan(lfirst(cell));
}

static PlannedStmt *
plan_and_name(Query *query, const char *query_string, int cursor_options, ParamListInfo params)
{
	uint64 before = window_plans_made;
	PlannedStmt *result;

	if (previous_planner_hook)
		result = previous_planner_hook(query, query_string, cursor_options, params);
	else
		result = standard_planner(query, query_string, cursor_options, params);
	if (window_plans_made != before)
	{
		walk_plan(result->planTree);
		walk_plans(result->subplans);
	}
	return result;
}

char *
window_name(const ColumnarWindowState *state, int number, List *context, bool prefix)
{
	const CustomScan *plan = (const CustomScan *) state->custom.ss.ps.plan;
	Node *expression = (Node *) list_nth_node(TargetEntry, plan->custom_scan_tlist,
											  state->ncolumns + number)
						   ->expr;
	char *name = deparse_expression(expression, context, prefix, false);

	return IsA(expression, WindowFunc) ? name : psprintf("%s OVER (?)", name);
}

void
window_names_initialize(void)
{
	if (!COMPAT_WINDOWS_HAVE_NAMES)
		return;
	previous_planner_hook = planner_hook;
	planner_hook = plan_and_name;
}
