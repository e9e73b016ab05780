/*
 * statement_reads.c
 *		What a statement's plan reads, and where.
 *
 * Decides how the statement's snapshots are taken (snapshot_pin.c).  What functions read is not in a plan:
 * statement_reads_functions() only says that there are some.
 */
#include "postgres.h"

#include "nodes/nodeFuncs.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "execute/statement_reads.h"

static bool
look_at_plan(PlanState *state, StatementReads *reads)
{
	GatherScanState *gather;

	if (state == NULL)
		return false;
	gather = gather_from_plan_state(state);
	if (gather != NULL && gather->plan.reference && gather->reads_here)
		gather = NULL; /* its child reads */
	if (gather != NULL)
	{
		if (gather->plan.kind != GATHER_INSERT_ROWS)
			reads->gathers = lappend(reads->gathers, gather);
		reads->repeatedly |= !bms_is_empty(gather->param_ids);
		if (gather->plan.reference)
			return false;
	}
	else if (nodeTag(state) >= T_ScanState && nodeTag(state) <= T_CustomScanState)
	{
		Relation relation = ((ScanState *) state)->ss_currentRelation;

		reads->local |= relation != NULL;
	}
	reads->repeatedly |= IsA(state, NestLoopState) || state->subPlan != NIL;
	return planstate_tree_walker(state, look_at_plan, reads);
}

StatementReads
statement_reads_collect(PlanState *state)
{
	StatementReads reads = {0};

	(void) look_at_plan(state, &reads);
	return reads;
}

bool
statement_reads_functions(const PlannedStmt *plan)
{
	ListCell *lc;

	foreach(lc, plan->invalItems)
	{
		if (((PlanInvalItem *) lfirst(lc))->cacheId == PROCOID)
			return true;
	}
	return false;
}

bool
statement_reads_writes(const PlannedStmt *plan)
{
	return plan->commandType != CMD_SELECT || plan->hasModifyingCTE;
}
