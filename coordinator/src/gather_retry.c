/*
 * gather_retry.c
 *		A worker is lost before it has given a row: ask again.
 *
 * A worker that is restarted in the middle of a query, or right when the query is sent over an idle
 * wire, need not fail it.  The query may be sent again if nobody can tell the difference:
 *
 *	- the statement is all of the transaction, only reads, and is in READ COMMITTED;
 *	- it has one Gather, whose rows are read once, and nothing of it has arrived here;
 *	- nobody else has read under its snapshots (snapshot_pin.c): all workers take new
 *	  ones together.
 *
 * Below an aggregate or a sort nothing can be returned before all rows are here, so there the first row
 * is handed up only when every worker has one: the work, mostly, is done by then.
 *
 * All wires are then rolled back, and the whole remote statement starts anew, once.  A worker that was
 * lost on the way is given strata.connect_timeout to come back.  One that is silent is not: who
 * waited for it has waited strata.worker_timeout.
 *
 * The error is caught without a subtransaction.  That is sound here because it was thrown by the reader
 * of a wire, which holds nothing but memory and the wires that are cleaned up as an
 * abort would do it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"

#include "executor_hooks.h"
#include "gather_retry.h"
#include "remote_transaction.h"
#include "settings.h"
#include "snapshot_pin.h"
#include "wire_cleanup.h"

/* Time between two attempts to reach the worker. */
#define PAUSE_MS 100

bool
gather_retry_is_possible(const GatherScanState *state)
{
	const PlannedStmt *plan = state->css.ss.ps.state->es_plannedstmt;

	return state->plan.kind == GATHER_SELECT && !state->plan.writes && !state->store_rows &&
		   state->rows_received == 0 && plan->commandType == CMD_SELECT && !plan->hasModifyingCTE &&
		   plan->rowMarks == NIL && executor_depth == 1 && !IsTransactionBlock() &&
		   !IsInParallelMode() && remote_transaction_can_restart() &&
		   snapshot_pin_can_restart(state->css.ss.ps.state);
}

bool
gather_retry_may_wait(const GatherScanState *state)
{
	const Plan *mine = state->css.ss.ps.plan;
	bool waits = false;

	for (const Plan *plan = state->css.ss.ps.state->es_plannedstmt->planTree; plan != mine;
		 plan = outerPlan(plan))
	{
		if (plan == NULL)
			return false;
		waits |= IsA(plan, Agg) || IsA(plan, Sort);
	}
	return waits;
}

bool
gather_retry_accept(GatherRetry *retry, const GatherScanState *state)
{
	int sqlstate = geterrcode();
	int64 now = wire_now();

	if (!gather_retry_is_possible(state))
		return false;
	if (sqlstate == ERRCODE_CONNECTION_FAILURE && retry->deadline == 0)
	{
		retry->deadline = now + (int64) strata_connect_timeout * 1000;
		retry->pause = false;
		return true;
	}
	/* it is not back yet */
	retry->pause = true;
	return sqlstate == ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION &&
		   now + PAUSE_MS < retry->deadline;
}

void
gather_retry_begin(const GatherRetry *retry)
{
	remote_transaction_restart();
	if (!retry->pause)
		return;
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, PAUSE_MS,
					 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}
