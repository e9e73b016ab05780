/*
 * gather_retry.c
 *		A worker is lost before it has given a row: ask again.
 *
 * A worker that is restarted in the middle of a query, or right when the query is sent over an idle
 * wire, need not fail it.  The query may be sent again if nobody can tell the difference:
 *
 *	- the statement is all of the transaction, only reads, and is in READ COMMITTED;
 *	- its rows are read once, and nothing of it has arrived here;
 *	- nobody else has read under its snapshots (snapshot_pin.c): all workers take new
 *	  ones together.  So of several Gathers it is the first one that reads, in a statement which reads
 *	  nothing here and calls no functions that could.
 *
 * Below an aggregate, a sort or a hash table nothing can be returned before all rows are here, so there the
 * first row is handed up only when every worker has one: the work, mostly, is done by then.
 *
 * A worker that is lost when the second Gather reads fails the statement.  The nodes of the plan have the
 * first one's rows then, of a state that the worker may have left; only a new executor could
 * begin again, and PostgreSQL has no way to throw away a running one but to abort its (sub)transaction.
 *
 * A standby that cancels the query, because replay would wait for it, is as good as lost (transaction/standby_read.c).
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

#include "execute/gather_retry.h"
#include "execute/statement_snapshot.h"
#include "server/clock.h"
#include "server/settings.h"
#include "server/statement_depth.h"
#include "transaction/remote_transaction.h"
#include "transaction/standby_read.h"

/* Time between two attempts to reach the worker. */
#define PAUSE_MS 100

static bool
has_received(const GatherScanState *state)
{
	ListCell *cell;

	foreach(cell, state->traffic)
	{
		if (((const RemoteTraffic *) lfirst(cell))->rows > 0)
			return true;
	}
	return false;
}

bool
gather_retry_is_possible(const GatherScanState *state)
{
	const PlannedStmt *plan = state->css.ss.ps.state->es_plannedstmt;

	return state->plan.kind == GATHER_SELECT && !state->plan.writes && !state->store_rows &&
		   !has_received(state) && plan->commandType == CMD_SELECT && !plan->hasModifyingCTE &&
		   plan->rowMarks == NIL && statement_depth == 1 && !IsTransactionBlock() &&
		   (state->plan.reference || !IsInParallelMode()) && remote_transaction_can_restart() &&
		   statement_snapshot_can_restart(state->css.ss.ps.state);
}

static bool waits_in_list(List *plans, const Plan *mine, bool waits);

/* Is `mine` in this plan, below a node that returns nothing before it has read everything? */
static bool
waits_in_plan(const Plan *plan, const Plan *mine, bool waits)
{
	if (plan == NULL)
		return false;
	if (plan == mine)
		return waits;
	waits |= IsA(plan, Agg) || IsA(plan, Sort) || IsA(plan, Hash);
	if (IsA(plan, Append))
		return waits_in_list(((const Append *) plan)->appendplans, mine, waits);
	if (IsA(plan, MergeAppend))
		return waits_in_list(((const MergeAppend *) plan)->mergeplans, mine, waits);
	if (IsA(plan, SubqueryScan))
		return waits_in_plan(((const SubqueryScan *) plan)->subplan, mine, waits);
	return waits_in_plan(outerPlan(plan), mine, waits) ||
		   waits_in_plan(innerPlan(plan), mine, waits);
}

static bool
waits_in_list(List *plans, const Plan *mine, bool waits)
{
	ListCell *lc;

	foreach(lc, plans)
	{
		if (waits_in_plan(lfirst(lc), mine, waits))
			return true;
	}
	return false;
}

bool
gather_retry_may_wait(const GatherScanState *state)
{
	const PlannedStmt *plan = state->css.ss.ps.state->es_plannedstmt;
	const Plan *mine = state->css.ss.ps.plan;

	return waits_in_plan(plan->planTree, mine, false) || waits_in_list(plan->subplans, mine, false);
}

bool
gather_retry_accept(GatherRetry *retry, const GatherScanState *state)
{
	int sqlstate = geterrcode();
	int64 now = clock_now();

	if (!gather_retry_is_possible(state))
		return false;
	if (standby_read_accept_failure(sqlstate))
		return true;
	/* our own copies are at hand */
	if (state->plan.reference)
		return ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_CONNECTION_EXCEPTION &&
			   statement_snapshot_is_alone(state->css.ss.ps.state);
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
	statement_snapshot_restart();
	remote_transaction_restart();
	if (!retry->pause)
		return;
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, PAUSE_MS,
					 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}
