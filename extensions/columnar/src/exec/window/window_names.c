/*
 * window_names.c
 *		What EXPLAIN calls the results of a ColumnarWindow, which other nodes may refer to.
 *
 * By stand-ins (extensions/common/window_names.h).  The node itself keeps the functions elsewhere
 * (WINDOW_PRIVATE_FUNCTIONS).
 */
#include "exec/window/window_internal.h"

#include "optimizer/planner.h"
#include "utils/ruleutils.h"

#include "window_names.h"

static planner_hook_type previous_planner_hook = NULL;

static PlannedStmt *
plan_and_name(COMPAT_PLAN_ARGUMENTS(query))
{
	uint64 before = window_plans_made;
	PlannedStmt *result;

	if (previous_planner_hook)
		result = previous_planner_hook(COMPAT_PASS_PLAN(query));
	else
		result = standard_planner(COMPAT_PASS_PLAN(query));
	if (window_plans_made != before)
		window_names_give(result, &window_scan_methods);
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
