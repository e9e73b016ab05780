/*
 * decorrelate_plan.c
 *		The cheapest plan of a query: with its correlated sub-selects as it was written, or as joins.
 */
#include "compat.h"

#include "nodes/plannodes.h"
#include "optimizer/planmain.h"
#include "utils/guc.h"

#include "decorrelate.h"

const struct config_enum_entry decorrelate_modes[] = {
	{"off", DECORRELATE_OFF, false},	   {"on", DECORRELATE_ON, false},
	{"always", DECORRELATE_ALWAYS, false}, {"false", DECORRELATE_OFF, true},
	{"true", DECORRELATE_ON, true},		   {"no", DECORRELATE_OFF, true},
	{"yes", DECORRELATE_ON, true},		   {"0", DECORRELATE_OFF, true},
	{"1", DECORRELATE_ON, true},		   {NULL, 0, false}};

/* What the planner minimised: the cost of all rows, or of those that a cursor is expected to read. */
static Cost
plan_cost(PlannedStmt *plan, int cursor_options)
{
	Cost startup = plan->planTree->startup_cost;
	double fraction = 1;

	if (cursor_options & CURSOR_OPT_FAST_PLAN)
		fraction = cursor_tuple_fraction;
	return startup + fraction * (plan->planTree->total_cost - startup);
}

PlannedStmt *
decorrelate_choose(PlannedStmt *best, PlannedStmt *other, int cursor_options)
{
	int more = compat_disabled_nodes(other->planTree) - compat_disabled_nodes(best->planTree);

	if (more != 0)
		return more < 0 ? other : best;
	return plan_cost(other, cursor_options) < plan_cost(best, cursor_options) ? other : best;
}

PlannedStmt *
decorrelate_plan(COMPAT_PLAN_ARGUMENTS(query), DecorrelateMode mode, DecorrelateJudge judge,
				 planner_hook_type planner)
{
	Query *joined;
	Query *restricted;
	PlannedStmt *best;

	if (mode == DECORRELATE_OFF || !decorrelate_may_apply(query, judge))
		return planner(COMPAT_PASS_PLAN(query));

	joined = copyObject(query);
	restricted = copyObject(query);
	if (!decorrelate_query(joined, judge, false))
		return planner(COMPAT_PASS_PLAN(query));
	if (!decorrelate_query(restricted, judge, true))
		restricted = NULL;
	if (mode == DECORRELATE_ALWAYS)
		return planner(COMPAT_PASS_PLAN(restricted ? restricted : joined));
	best = planner(COMPAT_PASS_PLAN(query));
	best = decorrelate_choose(best, planner(COMPAT_PASS_PLAN(joined)), cursor_options);
	if (restricted != NULL)
		best = decorrelate_choose(best, planner(COMPAT_PASS_PLAN(restricted)), cursor_options);
	return best;
}
