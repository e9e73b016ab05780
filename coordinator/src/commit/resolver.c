/*
 * resolver.c
 *		Ends prepared transactions that their sessions could not end.
 *
 * Runs in the maintenance worker, as superuser: COMMIT PREPARED of another role's transaction needs
 * that.  A round visits workers one after the other, and for each transaction of this cluster that
 * is prepared there does, in exactly this order:
 *
 *	1. the name is seen on the worker: PREPARE was sent, so its session had registered before;
 *	2. the session does not run any more (decision_log_is_running());
 *	3. with a snapshot taken now, the decision row is looked for: a session that has left
 *	   has committed it visibly, or never will;
 *	4. if there is one, and the coordinator's synchronous replica has it, COMMIT PREPARED;
 *	   if there is none, ROLLBACK PREPARED.
 *
 * In any other order a committed transaction could be rolled back.
 *
 * Decision rows.  Those of sessions that have heard all acknowledgements are deleted by
 * decision_log.c.  All others are deleted here, at the end of a round that has reached every
 * registered worker and found none that still lists their name; and after each worker has
 * confirmed a write of its own, which its replica confirms only after the COMMIT PREPAREDs that
 * went before.  Rows are read before the workers are asked, and rows of running sessions left out.
 *
 * A round visits all workers at the start and every strata.resolver_interval; meanwhile those that are
 * in doubt, less and less often while they do not answer.  One that fails does not keep others
 * from being served: each is visited in a subtransaction.  Names that do not end with the id of the
 * worker that has them are left alone: the server is not what it was, and nobody knows which decisions
 * were kept for it.
 */
#include "postgres.h"

#include "commit/resolver.h"

#include <limits.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "commit/decision_log.h"
#include "wire/connection_internal.h"
#include "fault_point.h"
#include "cluster/metadata.h"
#include "cluster/retry.h"
#include "cluster/worker_state.h"
#include "commit/in_doubt.h"
#include "commit/prepared_gid.h"
#include "server/clock.h"
#include "server/settings.h"
#include "server/subtransaction.h"

/* How long one command on a worker may take, if strata.worker_timeout does not say less. */
#define COMMAND_TIMEOUT_MS 10000

/* How long to wait for the coordinator's replica before the transaction is left for later. */
#define REPLICA_WAIT_MS 1000

/* The longest distance of visits to a worker that is in doubt. */
#define LONGEST_RETRY_MS 2000

/* A name that is not on the worker may still come there while a lost session works on it. */
#define LATE_PREPARE_MS 2000

static List *visits = NIL; /* of Retry: the workers in doubt */
static TimestampTz last_full_round = 0;
static TimestampTz last_run_end = 0;
static uint32 seen_generation = 0;
static bool work_left = false;

/* ----------------------------------------------------------------
 * When
 * ----------------------------------------------------------------
 */

int
resolver_interval_ms(void)
{
	TimestampTz next = TimestampTzPlusMilliseconds(last_full_round, strata_resolver_interval);
	ListCell *cell;

	if (in_doubt_generation() != seen_generation)
		return 0;
	if (work_left)
	{
		foreach(cell, visits)
		{
			const Retry *visit = lfirst(cell);

			if (visit->distance_ms > 0 && visit->next < next)
				next = visit->next;
		}
	}
	return (int) Min(TimestampDifferenceMilliseconds(last_run_end, next), INT_MAX);
}

static int64
command_deadline(void)
{
	int timeout = COMMAND_TIMEOUT_MS;

	if (strata_worker_timeout > 0)
		timeout = Min(timeout, strata_worker_timeout);
	return clock_now() + timeout;
}

/* ----------------------------------------------------------------
 * One transaction
 * ----------------------------------------------------------------
 */

/* Run a command on an idle wire; its SQLSTATE, 0 when it succeeded.  ERROR when the wire is lost. */
static int
run_command(WorkerConnection *conn, const char *sql)
{
	int64 deadline = command_deadline();
	int sqlstate = 0;
	PGresult *result;

	connection_send(conn, sql, 0, sql);
	while ((result = connection_get_result_until(conn, deadline)) != NULL)
	{
		ExecStatusType status = PQresultStatus(result);

		if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
		{
			const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

			if (state == NULL || strlen(state) != 5 || connection_is_fatal(conn, result))
				connection_report(ERROR, conn, result, sql);
			sqlstate = MAKE_SQLSTATE(state[0], state[1], state[2], state[3], state[4]);
			if (sqlstate != ERRCODE_UNDEFINED_OBJECT &&
				sqlstate != ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE)
				ereport(LOG, (errmsg("worker \"%s\" could not end a prepared transaction",
									 conn->worker_name),
							  errdetail_internal("%s", PQresultErrorMessage(result)),
							  errcontext("remote SQL: %s", sql)));
		}
		PQclear(result);
	}
	return sqlstate;
}

/* The row is visible; does the replica have it?  Its commit was flushed here before it was seen. */
static bool
await_replica(void)
{
	XLogRecPtr upto = GetFlushRecPtr(NULL);
	int64 deadline = clock_now() + REPLICA_WAIT_MS;

	while (!decision_log_is_replicated(upto))
	{
		if (clock_now() > deadline)
			return false;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	return true;
}

static void
end_transaction(WorkerConnection *conn, const PreparedGid *gid, bool committed)
{
	InDoubtDecision decision = committed ? IN_DOUBT_COMMIT : IN_DOUBT_ROLLBACK;
	char name[CONNECTION_GID_SIZE];
	char sql[CONNECTION_GID_SIZE + 32];

	prepared_gid_format(name, connection_cluster_id(), gid);
	snprintf(sql, sizeof(sql), "%s PREPARED '%s'", committed ? "COMMIT" : "ROLLBACK", name);
	(void) in_doubt_add(conn->worker_id, gid, decision, IN_DOUBT_LEFT_OVER);
	FAULT_POINT("resolver_decided");
	switch (run_command(conn, sql))
	{
		case 0:
			ereport(LOG, (errmsg("prepared transaction of worker \"%s\" was resolved",
								 conn->worker_name),
						  errdetail("%s", sql)));
			FAULT_POINT("resolver_ended");
			in_doubt_remove(conn->worker_id, gid);
			break;
		case ERRCODE_UNDEFINED_OBJECT: /* somebody has ended it */
			in_doubt_remove(conn->worker_id, gid);
			break;
		case ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE:
			(void) in_doubt_add(conn->worker_id, gid, decision, IN_DOUBT_BUSY);
			break;
		default:
			(void) in_doubt_add(conn->worker_id, gid, decision, IN_DOUBT_REFUSED);
			break;
	}
}

static void
resolve_transaction(WorkerConnection *conn, const PreparedGid *gid)
{
	bool committed;

	if (gid->worker_id != conn->worker_id)
	{
		if (in_doubt_add(conn->worker_id, gid, IN_DOUBT_UNKNOWN, IN_DOUBT_FOREIGN_WORKER))
			ereport(WARNING,
					(errmsg("worker \"%s\" has a transaction that was prepared on another worker",
							conn->worker_name),
					 errdetail("Worker %d prepared it as counter " UINT64_FORMAT
							   " of incarnation " UINT64_FORMAT ".",
							   gid->worker_id, gid->counter, gid->incarnation),
					 errhint("It is left alone: end it by hand.")));
		return;
	}
	FAULT_POINT("resolver_listed");
	if (decision_log_is_running(gid->incarnation, gid->counter))
		return;
	committed = decision_log_exists((Decision){gid->incarnation, gid->counter});
	if (committed && !await_replica())
		(void) in_doubt_add(conn->worker_id, gid, IN_DOUBT_COMMIT, IN_DOUBT_REPLICA);
	else
		end_transaction(conn, gid, committed);
}

/* ----------------------------------------------------------------
 * One worker
 * ----------------------------------------------------------------
 */

static bool
is_listed(List *gids, const PreparedGid *gid)
{
	ListCell *cell;

	foreach(cell, gids)
	{
		const PreparedGid *other = lfirst(cell);

		if (other->incarnation == gid->incarnation && other->counter == gid->counter &&
			other->worker_id == gid->worker_id)
			return true;
	}
	return false;
}

/*
 * Entries made before the worker was asked, and not in its answer, have ended; but what aborted while
 * it was being prepared may still appear.
 */
static void
remove_ended(List *gids, const InDoubtEntry *entries, int count)
{
	TimestampTz now = GetCurrentTimestamp();

	for (int i = 0; i < count; i++)
	{
		const InDoubtEntry *entry = &entries[i];

		if (!is_listed(gids, &entry->gid) &&
			(entry->decision == IN_DOUBT_COMMIT ||
			 TimestampDifferenceExceeds(entry->since, now, LATE_PREPARE_MS)))
			in_doubt_remove(entry->worker_id, &entry->gid);
	}
}

/* Returns the names that the worker listed. */
static List *
visit_worker(int worker_id)
{
	uint32 generation = in_doubt_generation();
	WorkerConnection *conn = connection_open_as(worker_id, GetUserId());
	InDoubtEntry *entries;
	int count = in_doubt_entries(worker_id, &entries);
	List *gids;
	ListCell *cell;

	conn->quiet = true;
	if (run_command(conn, "SET synchronous_commit = on") != 0)
		connection_report(ERROR, conn, NULL, NULL);
	gids = prepared_gid_list(conn, command_deadline());
	remove_ended(gids, entries, count);
	foreach(cell, gids)
		resolve_transaction(conn, lfirst(cell));
	in_doubt_checked(worker_id, generation);
	return gids;
}

/* After what the worker has committed before, durably: see decision rows in the header. */
static void
confirm_durability(int worker_id)
{
	WorkerConnection *conn = connection_open_as(worker_id, GetUserId());

	conn->replica_wait_cancelled = false;
	if (run_command(conn, "SELECT pg_catalog.pg_logical_emit_message(true, 'strata', '')") != 0 ||
		conn->replica_wait_cancelled)
		ereport(ERROR, (errcode(ERRCODE_CONNECTION_EXCEPTION),
						errmsg("worker \"%s\" has not confirmed its commits", conn->worker_name)));
}

static void
log_failure(Retry *visit, const ErrorData *error)
{
	if (retry_is_new_complaint(visit, error))
		ereport(LOG, (errmsg("could not resolve transactions in doubt: %s", error->message),
					  error->detail ? errdetail_internal("%s", error->detail) : 0));
}

/* A visit of one worker. */
typedef struct Attempt
{
	int worker_id;
	bool confirm; /* what it did is durable; else list what it has prepared */
	List *gids;	  /* what it listed */
} Attempt;

static void
run_attempt(void *argument)
{
	Attempt *attempt = argument;

	if (attempt->confirm)
		confirm_durability(attempt->worker_id);
	else
		attempt->gids = visit_worker(attempt->worker_id);
}

/*
 * Visit a worker in a subtransaction; false when that failed.  *gids is what it listed.  One that the
 * heartbeat knows to be down is not even tried: others wait for their turn.
 */
static bool
try_worker(Retry *visit, bool confirm, List **gids)
{
	Attempt attempt = {visit->worker_id, confirm, NIL};
	ErrorData *error;

	if (worker_state_is_down(visit->worker_id))
	{
		in_doubt_attempted(visit->worker_id, IN_DOUBT_WORKER_SILENT);
		return false;
	}
	error = subtransaction_try(run_attempt, &attempt);
	if (error == NULL)
	{
		visit->complaint[0] = '\0';
		if (!confirm)
			*gids = attempt.gids;
		return true;
	}
	connection_drop_worker(visit->worker_id); /* nobody knows their state */
	in_doubt_attempted(visit->worker_id, IN_DOUBT_WORKER_SILENT);
	log_failure(visit, error);
	FreeErrorData(error);
	return false;
}

/* ----------------------------------------------------------------
 * A round
 * ----------------------------------------------------------------
 */

/* Rows that no session will delete. */
static List *
list_finished_decisions(void)
{
	List *finished = NIL;
	ListCell *cell;

	foreach(cell, decision_log_list())
	{
		Decision *decision = lfirst(cell);

		if (!decision_log_is_running(decision->incarnation, decision->counter))
			finished = lappend(finished, decision);
	}
	return finished;
}

/* Leave out those that a worker still lists. */
static List *
subtract_listed(List *decisions, List *gids)
{
	ListCell *cell;

	foreach(cell, decisions)
	{
		const Decision *decision = lfirst(cell);
		ListCell *other;

		foreach(other, gids)
		{
			const PreparedGid *gid = lfirst(other);

			if (gid->incarnation == decision->incarnation && gid->counter == decision->counter)
				break;
		}
		if (other != NULL)
			decisions = foreach_delete_current(decisions, cell);
	}
	return decisions;
}

/* Is there something to be done on this worker? */
static bool
is_in_doubt(int worker_id)
{
	InDoubtEntry *entries;
	int count = in_doubt_entries(worker_id, &entries);
	bool found = false;

	for (int i = 0; i < count; i++)
		found |= entries[i].reason != IN_DOUBT_FOREIGN_WORKER;
	pfree(entries);
	return found || !in_doubt_is_checked(worker_id);
}

/* Delete decision rows after a round that has reached all workers. */
static void
delete_decisions(const Bitmapset *workers, List *decisions)
{
	int worker_id = -1;

	if (decisions == NIL)
		return;
	while ((worker_id = bms_next_member(workers, worker_id)) >= 0)
	{
		if (!try_worker(retry_find(&visits, worker_id, sizeof(Retry)), true, NULL))
			return;
	}
	/* nobody needs this deletion to last: without it they are deleted again */
	(void) set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_LOCAL, true, 0, false);
	FAULT_POINT("resolver_confirmed");
	decision_log_delete(decisions);
	FAULT_POINT("resolver_deleted");
}

/*
 * Nobody waits to visit them again; a visit that is always due would have us run without a pause.  What
 * a session noted of one while it was being removed is forgotten; a worker so new that we have not
 * heard of it counts as unseen by that.
 */
static void
forget_removed_workers(const Bitmapset *workers)
{
	InDoubtEntry *entries;
	int count = in_doubt_entries(0, &entries);

	for (int i = 0; i < count; i++)
	{
		if (!bms_is_member(entries[i].worker_id, workers))
			in_doubt_forget(entries[i].worker_id);
	}
	pfree(entries);
	retry_forget_others(&visits, workers);
}

void
resolver_run(void)
{
	TimestampTz now = GetCurrentTimestamp();
	bool full = TimestampDifferenceExceeds(last_full_round, now, strata_resolver_interval);
	Bitmapset *workers = bms_copy(metadata_all_workers());
	List *decisions = NIL;
	List *listed = NIL;
	bool complete = true;
	int worker_id = -1;

	seen_generation = in_doubt_generation();
	work_left = false;
	forget_removed_workers(workers);
	if (full)
	{
		decisions = list_finished_decisions();
		last_full_round = now;
	}
	while ((worker_id = bms_next_member(workers, worker_id)) >= 0)
	{
		Retry *visit = retry_find(&visits, worker_id, sizeof(Retry));
		List *gids = NIL;

		if (full || (is_in_doubt(worker_id) && visit->next <= now))
			complete &= try_worker(visit, false, &gids);
		listed = list_concat(listed, gids);
		if (is_in_doubt(worker_id))
		{
			work_left = true;
			if (visit->next <= now)
				retry_postpone(visit, LONGEST_RETRY_MS);
		}
		else
			visit->distance_ms = 0;
	}
	if (full && complete)
		delete_decisions(workers, subtract_listed(decisions, listed));
	last_run_end = GetCurrentTimestamp();
}
