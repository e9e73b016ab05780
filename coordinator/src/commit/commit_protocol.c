/*
 * commit_protocol.c
 *		One- and two-phase commit over the workers.
 *
 * The protocol (README.md draws it):
 *
 *		PRE_COMMIT	readers: COMMIT, not waited for
 *					one writer and nothing written here: COMMIT there, and wait
 *					else: PREPARE TRANSACTION on all writers, decision row here
 *		commit		the decision becomes durable with the local commit record
 *		COMMIT		COMMIT PREPARED on all writers, bounded wait
 *
 * gate.c hears of a two-phase commit when all is prepared, and of each worker that has committed.
 *
 * Names and decision rows are in decision_log.c.
 *
 * A decision row may be deleted only when every worker has acknowledged its COMMIT
 * PREPARED durably.  Therefore synchronous_commit is raised to "on" for PREPARE (there), for
 * the decision (here) and for COMMIT PREPARED (there).
 *
 * After the local commit nothing may be thrown: an ERROR would be a PANIC.  All texts and
 * arrays are made before; wire_cleanup.c does the talking.  A worker that does not
 * answer in time is in doubt (in_doubt.c): it keeps its prepared transaction until the resolver,
 * reading the decision row, ends it.  So does a PREPARE whose answer nobody has heard.
 *
 * After the worker's COMMIT of the one-phase protocol nothing may fail either, or the user would be
 * told an error for what is committed.  Therefore interrupts are held from then on, and
 * transactions for which core still has to do what can fail (NOTIFY, temporary tables) take two
 * phases.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "commands/async.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

#include "commit/commit_abort.h"
#include "commit/commit_protocol.h"
#include "commit/decision_log.h"
#include "wire/connection.h"
#include "fault_point.h"
#include "commit/gate.h"
#include "commit/participants.h"
#include "commit/prepared_gid.h"
#include "commit/replica_wait.h"
#include "server/clock.h"
#include "wire/session_map.h"
#include "wire/session_settings.h"
#include "wire/wire_cleanup.h"
#include "wire/wire_reclaim.h"

/* How long the workers together may take for COMMIT PREPARED. */
#define FINISH_TIMEOUT_MS 10000

/* So often who waits for a COMMIT looks whether he shall end. */
#define COMMIT_LOOK_MS 100

typedef enum CommitProtocol
{
	COMMIT_READ_ONLY,
	COMMIT_ONE_PHASE,
	COMMIT_TWO_PHASE
} CommitProtocol;

/* A session that waits for its only writer's COMMIT. */
typedef struct CommitWait
{
	int64 deadline;
	bool cancelled; /* somebody wants it to end; a cancel was passed on */
} CommitWait;

/* The worker has committed in one phase; interrupts wait until we have, too. */
static bool holding_interrupts = false;

/* The coordinator's replicas must have the decision before the workers: replica_wait.c. */
static bool must_survive = false;

/* ----------------------------------------------------------------
 * Choosing connections
 * ----------------------------------------------------------------
 */

static bool
is_reader(const WorkerConnection *conn)
{
	return conn->transaction.depth > 0 && !conn->transaction.written;
}

static bool
is_writer(const WorkerConnection *conn)
{
	return conn->transaction.depth > 0 && conn->transaction.written;
}

static bool
is_prepared(const WorkerConnection *conn)
{
	return conn->prepared.state == PREPARE_DONE;
}

/*
 * Are there NOTIFYs to be queued by the commit?  Core tells nobody, but refuses to PREPARE such a
 * transaction; its check does nothing else, so its error can be caught without a subtransaction.
 */
static bool
has_notifications(void)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool found = false;

	PG_TRY();
	{
		AtPrepare_Notify();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
		found = true;
	}
	PG_END_TRY();
	return found;
}

/* Can the local commit, in which nothing was written, still fail once the worker has committed? */
static bool
can_local_commit_fail(void)
{
	return IsolationIsSerializable() || (MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE) != 0 ||
		   has_notifications();
}

/* One-phase only where the one writer's COMMIT is all that can fail. */
static CommitProtocol
choose_protocol(int writers, bool has_local_xid)
{
	if (writers == 0)
		return COMMIT_READ_ONLY;
	if (writers == 1 && !has_local_xid && !can_local_commit_fail())
		return COMMIT_ONE_PHASE;
	return COMMIT_TWO_PHASE;
}

/* ----------------------------------------------------------------
 * Before the commit
 * ----------------------------------------------------------------
 */

/* No worker may have lost its transaction: COMMIT would answer ROLLBACK, without an error. */
static void
check_participant(WorkerConnection *conn)
{
	conn->occupant = NULL; /* rows nobody has asked for until now are of no use */
	if (PQtransactionStatus(conn->pg) == PQTRANS_ACTIVE)
		wire_reclaim(&conn, 1);
	if (conn->transaction.depth == 0)
		return;
	if (PQstatus(conn->pg) != CONNECTION_OK)
	{
		/* of what was only read nothing is lost; but SERIALIZABLE would not know who read what */
		if (is_reader(conn) && !IsolationIsSerializable())
		{
			connection_drop(conn);
			return;
		}
		connection_report(ERROR, conn, NULL, "COMMIT");
	}
	if (conn->transaction.failed || PQtransactionStatus(conn->pg) != PQTRANS_INTRANS)
		ereport(ERROR,
				(errcode(ERRCODE_IN_FAILED_SQL_TRANSACTION),
				 errmsg("transaction on worker \"%s\" was aborted", conn->worker_name),
				 errdetail("Statements that ran there earlier in this transaction were undone."),
				 errhint("Repeat the whole transaction.")));
}

static void
report_unexpected_tag(const WorkerConnection *conn, const char *received, const char *expected)
{
	ereport(ERROR, (errcode(ERRCODE_TRANSACTION_ROLLBACK),
					errmsg("worker \"%s\" rolled the transaction back", conn->worker_name),
					errdetail("It answered \"%s\" where \"%s\" was expected.", received, expected),
					errhint("Repeat the whole transaction.")));
}

/* Fetch the result of a command that ends a transaction; ERROR unless the tag is as expected. */
static void
expect_tag(WorkerConnection *conn, const char *tag)
{
	char received[64] = "";
	PGresult *result;

	while ((result = connection_get_result(conn)) != NULL)
	{
		if (PQresultStatus(result) != PGRES_COMMAND_OK)
			connection_report(ERROR, conn, result, NULL);
		strlcpy(received, PQcmdStatus(result), sizeof(received));
		PQclear(result);
	}
	if (strcmp(received, tag) != 0)
		report_unexpected_tag(conn, received, tag);
}

/*
 * Readers cannot fail in their COMMIT, so nobody waits for it; the next user of the wire
 * collects the result.  Only a SERIALIZABLE reader may be told that it read what cannot be.
 */
static void
commit_readers(void)
{
	int count = participants_select(is_reader);

	for (int i = 0; i < count; i++)
		connection_send(participants[i], "COMMIT", 0, "COMMIT");
	for (int i = 0; i < count; i++)
	{
		if (IsolationIsSerializable())
			expect_tag(participants[i], "COMMIT");
		else
			participants[i]->end_pending = true;
		connection_leave_transaction(participants[i], true);
	}
}

static void
report_unknown_outcome(WorkerConnection *conn, PGresult *result, const char *reason)
{
	if (reason == NULL)
		reason = pchomp(result ? PQresultErrorMessage(result) : PQerrorMessage(conn->pg));

	PQclear(result);
	ereport(ERROR,
			(errcode(ERRCODE_TRANSACTION_RESOLUTION_UNKNOWN),
			 errmsg("connection to worker \"%s\" was lost while it committed", conn->worker_name),
			 errdetail("Whether the transaction was committed is not known. %s", reason),
			 errhint("Check the data before you repeat the transaction.")));
}

/* What the session waits for when it commits may have changed since its last statement there. */
static void
send_commit_with_setting(WorkerConnection *conn)
{
	char message[64];

	snprintf(message, sizeof(message), "SET synchronous_commit = '%s'; COMMIT",
			 GetConfigOption("synchronous_commit", false, false));
	session_settings_synchronous_commit_changed(conn);
	connection_send(conn, message, 1, "COMMIT");
}

/*
 * The next result of COMMIT; interrupts are held.  A COMMIT may wait there, for a deferred
 * constraint or for a replica, as long as it must: the wait ends when the worker is silent, and soon when
 * the session is to end.  A cancel is passed on: the worker knows whether it still can.
 */
static PGresult *
await_commit(WorkerConnection *conn, CommitWait *wait)
{
	PGresult *result = NULL;

	while (
		!connection_await_result(conn, Min(wait->deadline, clock_now() + COMMIT_LOOK_MS), &result))
	{
		if ((QueryCancelPending || ProcDiePending) && !wait->cancelled)
		{
			wait->cancelled = true;
			wait->deadline = Min(wait->deadline, clock_now() + WIRE_END_TIMEOUT_MS);
			if (QueryCancelPending)
				wire_cancel(&conn, 1, wait->deadline);
		}
		if (clock_now() < wait->deadline && !connection_is_silent(conn))
			continue;
		conn->transaction.failed = true; /* the abort, too, need not ask */
		report_unknown_outcome(conn, NULL, "It did not answer in time.");
	}
	return result;
}

/*
 * The one-phase commit.  Neither cancel nor termination end the session's part from now until the
 * end of the local commit: nobody could say what became of the transaction.
 */
static void
commit_single_writer(WorkerConnection *conn)
{
	CommitWait wait = {.deadline = PG_INT64_MAX};
	char tag[64] = "";
	PGresult *result;

	gate_commit_single(conn->worker_id);
	FAULT_POINT("single_commit");
	if (session_settings_synchronous_commit_is_sent(conn))
		connection_send(conn, "COMMIT", 0, "COMMIT");
	else
		send_commit_with_setting(conn);
	FAULT_POINT("single_commit_sent");
	HOLD_INTERRUPTS();
	while ((result = await_commit(conn, &wait)) != NULL)
	{
		if (PQresultStatus(result) != PGRES_COMMAND_OK)
		{
			if (connection_is_fatal(conn, result))
				report_unknown_outcome(conn, result, NULL);
			connection_report(ERROR, conn, result, NULL);
		}
		strlcpy(tag, PQcmdStatus(result), sizeof(tag));
		PQclear(result);
	}
	if (tag[0] == '\0')
		report_unknown_outcome(conn, NULL, NULL);
	if (strcmp(tag, "COMMIT") != 0)
		ereport(ERROR, (errcode(ERRCODE_TRANSACTION_ROLLBACK),
						errmsg("worker \"%s\" rolled the transaction back", conn->worker_name),
						errhint("Repeat the whole transaction.")));
	connection_leave_transaction(conn, true);
	holding_interrupts = true;
	FAULT_POINT("single_committed");
}

/* Name the transaction on each writer, and make the texts that are needed when nothing may fail. */
static void
assign_identities(int count)
{
	const char *cluster = connection_cluster_id();
	uint64 counter = decision_log_take_counter();

	session_map_set_prepared(counter);
	for (int i = 0; i < count; i++)
	{
		WorkerConnection *conn = participants[i];
		char gid[CONNECTION_GID_SIZE];
		PreparedGid name;

		conn->prepared.counter = counter;
		name = participant_gid(conn);
		prepared_gid_format(gid, cluster, &name);
		snprintf(conn->prepared.commit, sizeof(conn->prepared.commit), "COMMIT PREPARED '%s'", gid);
		snprintf(conn->prepared.rollback, sizeof(conn->prepared.rollback), "ROLLBACK PREPARED '%s'",
				 gid);
	}
}

static void
send_prepare(WorkerConnection *conn)
{
	const char *gid = conn->prepared.commit + strlen("COMMIT PREPARED ");
	char message[CONNECTION_GID_SIZE + 96];
	bool weak = synchronous_commit < SYNCHRONOUS_COMMIT_REMOTE_FLUSH ||
				!session_settings_synchronous_commit_is_sent(conn);

	/* not SET LOCAL: COMMIT PREPARED, outside of the transaction, needs it, too */
	snprintf(message, sizeof(message), "%sPREPARE TRANSACTION %s",
			 weak ? "SET synchronous_commit = on; " : "", gid);
	if (weak)
		session_settings_synchronous_commit_changed(conn);
	conn->replica_wait_cancelled = false;
	conn->prepared.state = PREPARE_SENT;
	connection_send(conn, message, weak ? 1 : 0, message);
}

/*
 * Wait for the answer.  prepared.state is kept true at each moment: we may be interrupted between
 * the answer and the end of the message.
 */
static void
finish_prepare(WorkerConnection *conn)
{
	bool replicated = conn->transaction.replicated;
	char received[64] = "";
	PGresult *result;

	while ((result = connection_get_result(conn)) != NULL)
	{
		if (PQresultStatus(result) != PGRES_COMMAND_OK)
		{
			if (!connection_is_fatal(conn, result))
				conn->prepared.state = PREPARE_NONE;
			connection_report(ERROR, conn, result, NULL);
		}
		strlcpy(received, PQcmdStatus(result), sizeof(received));
		conn->prepared.state = strcmp(received, "PREPARE TRANSACTION") == 0 ? PREPARE_DONE
																			: PREPARE_NONE;
		PQclear(result);
	}
	if (conn->prepared.state != PREPARE_DONE)
		report_unexpected_tag(conn, received, "PREPARE TRANSACTION");
	connection_leave_transaction(conn, true);
	if (conn->replica_wait_cancelled)
		ereport(ERROR,
				(errcode(ERRCODE_TRANSACTION_ROLLBACK),
				 errmsg("worker \"%s\" did not wait for its replica", conn->worker_name),
				 errdetail("The wait was cancelled there while the transaction was prepared.")));
	if (replicated)
		replica_wait(conn);
}

/* To the gate, which must know before the coordinator's own rows can be seen. */
static void
announce_commit(int count)
{
	int *worker_ids = palloc(sizeof(int) * count);

	for (int i = 0; i < count; i++)
		worker_ids[i] = participants[i]->worker_id;
	gate_commit_announce(worker_ids, count);
	pfree(worker_ids);
}

static void
prepare_writers(int count)
{
	assign_identities(count);
	must_survive = false;
	for (int i = 0; i < count; i++)
		must_survive |= participants[i]->transaction.replicated;
	for (int i = 0; i < count; i++)
	{
		FAULT_POINT_OF("prepare", i);
		send_prepare(participants[i]);
		FAULT_POINT_OF("prepare_sent", i);
	}
	decision_log_write(participants[0]->prepared.counter); /* while the workers flush */
	FAULT_POINT("decision_written");
	for (int i = 0; i < count; i++)
	{
		finish_prepare(participants[i]);
		FAULT_POINT_OF("prepared", i);
	}
	if (must_survive)
		replica_wait_here();
	FAULT_POINT("replicas_asked");

	/* a weaker local commit would not wait for the replica: a failover would forget the decision */
	if (synchronous_commit < SYNCHRONOUS_COMMIT_REMOTE_FLUSH)
		(void) set_config_option("synchronous_commit", "on", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_LOCAL, true, 0, false);
	announce_commit(count);
}

static void
check_participants(void)
{
	ListCell *lc;

	participants_reserve();
	foreach(lc, connection_list())
	{
		WorkerConnection *conn = lfirst(lc);

		if (conn->transaction.failed || conn->transaction.depth > 0)
			check_participant(conn);
	}
}

bool
commit_protocol_end_readers(void)
{
	check_participants();
	if (participants_select(is_writer) > 0)
		return false;
	commit_readers();
	return true;
}

void
commit_protocol_prepare(void)
{
	bool has_local_xid = TransactionIdIsValid(GetTopTransactionIdIfAny());
	int writers;

	check_participants();
	commit_readers();
	writers = participants_select(is_writer);
	switch (choose_protocol(writers, has_local_xid))
	{
		case COMMIT_READ_ONLY:
			break;
		case COMMIT_ONE_PHASE:
			commit_single_writer(participants[0]);
			break;
		case COMMIT_TWO_PHASE:
			prepare_writers(writers);
			break;
	}
}

/* ----------------------------------------------------------------
 * After the commit
 * ----------------------------------------------------------------
 */

static bool
is_committed(const WorkerConnection *conn)
{
	return conn->cleanup.outcome == WIRE_OK && strcmp(conn->cleanup.tag, "COMMIT PREPARED") == 0;
}

/* Did every worker acknowledge the transaction durably? */
static bool
is_acknowledged_everywhere(int count)
{
	for (int i = 0; i < count; i++)
		if (!is_committed(participants[i]) || participants[i]->replica_wait_cancelled)
			return false;
	return true;
}

/* What has been committed there can be seen there; what is in doubt holds the gate until the end. */
static void
acknowledge_to_gate(const WorkerConnection *conn)
{
	if (is_committed(conn))
		gate_commit_acknowledge(conn->worker_id);
}

/* True when a worker did not acknowledge. */
static bool
commit_prepared_writers(int count)
{
	bool doubt = false;

	for (int i = 0; i < count; i++)
	{
		participants[i]->quiet = true;
		participants[i]->replica_wait_cancelled = false;
		participant_commands[i] = participants[i]->prepared.commit;
	}
	FAULT_POINT("committed");
	wire_run(participants, participant_commands, count, clock_now() + FINISH_TIMEOUT_MS,
			 acknowledge_to_gate);
	FAULT_POINT("acknowledged");

	if (is_acknowledged_everywhere(count))
		decision_log_acknowledge(participants[0]->prepared.counter);
	for (int i = 0; i < count; i++)
	{
		WorkerConnection *conn = participants[i];
		bool done = is_committed(conn);

		conn->quiet = false;
		if (!done)
		{
			participant_leave_in_doubt(
				conn, IN_DOUBT_COMMIT,
				conn->cleanup.outcome == WIRE_ERROR ? IN_DOUBT_REFUSED : IN_DOUBT_WORKER_SILENT);
			connection_drop(conn);
			doubt = true;
		}
		participant_forget_prepared(conn);
	}
	return doubt;
}

/* The replica's confirmation can be cancelled, and core then goes on; but the workers must not. */
static void
leave_all_in_doubt(int count)
{
	for (int i = 0; i < count; i++)
	{
		participant_leave_in_doubt(participants[i], IN_DOUBT_COMMIT, IN_DOUBT_REPLICA);
		participant_forget_prepared(participants[i]);
	}
}

void
commit_protocol_finish(void)
{
	int count = participants_select(is_prepared);
	bool doubt = true;

	if (holding_interrupts)
		RESUME_INTERRUPTS(); /* core holds them, too */
	holding_interrupts = false;
	decision_log_end(true);
	if (count > 0)
	{
		if (must_survive)
			replica_wait_for_decision(XactLastCommitEnd);
		gate_commit_begin(); /* also to mark as in doubt: nobody may be taking snapshots meanwhile */
		if (decision_log_is_replicated(XactLastCommitEnd))
			doubt = commit_prepared_writers(count);
		else
			leave_all_in_doubt(count);
	}
	gate_end(); /* what is in doubt is marked by now */
	if (count > 0)
		participants_end(doubt);
}

/* ----------------------------------------------------------------
 * Abort
 * ----------------------------------------------------------------
 */

void
commit_protocol_abort(void)
{
	holding_interrupts = false; /* the error has released them */
	gate_end();
	decision_log_end(false);
	commit_abort_workers();
}
