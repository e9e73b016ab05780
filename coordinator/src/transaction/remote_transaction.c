/*
 * remote_transaction.c
 *		Workers join, follow and leave the local transaction.
 *
 * Nothing is sent for a worker's sake alone: BEGIN, SAVEPOINT, RELEASE and changed
 * settings wait for the next statement and travel in front of it as one simple
 * query, so they cost no round trip:
 *
 *		RELEASE SAVEPOINT s3; SAVEPOINT s2; SET datestyle = 'ISO'; SELECT ...
 *
 * connection.c skips the preamble's results.
 *
 * Depth.  conn->transaction.depth is what exists on the worker: 0 no transaction, n: BEGIN
 * and the savepoints s2 .. sn, where level 1 is our top transaction, as in
 * GetCurrentTransactionNestLevel().  After a local subcommit its savepoints remain
 * there until the next statement (conn->transaction.release_depth is the lowest of them).
 *
 * Savepoints and streams.  What is sent belongs to the savepoint that was set
 * before it, so a stream of rows to write must have ended when the next savepoint is set:
 * the callback at the start of a subtransaction flushes all pending inserts, at the level
 * of the enclosing one.  A stream of rows to read that began outside goes on beside an
 * inner subtransaction until somebody needs its wire.
 *
 * Abort.  When a subtransaction aborts, wires that were used inside it are
 * cancelled, drained and rolled back to the savepoint.  The occupants of such wires must not be
 * touched: core has already freed the memory of their queries.  A stream whose
 * occupancy was taken away notices that itself.
 *
 * A worker whose transaction failed outside of the aborting subtransaction is rolled
 * back altogether and joins anew, if it was only read in READ COMMITTED; else it is
 * marked as failed, and any further use, COMMIT included, is an error.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "commit/commit_protocol.h"
#include "commit/decision_log.h"
#include "commit/participants.h"
#include "transaction/constraint_mode.h"
#include "transaction/pending_rows.h"
#include "transaction/remote_transaction.h"
#include "transaction/serializable.h"
#include "transaction/snapshot_pin.h"
#include "wire/remote_role.h"
#include "wire/session_settings.h"
#include "wire/wire_cleanup.h"
#include "wire/wire_reclaim.h"
#include "wire/worker_use.h"

/* A longer statement gets a message of its own. */
#define LONG_STATEMENT_BYTES (1024 * 1024)

/* Has a worker joined the current transaction? */
static bool participating = false;

/* While there is a subtransaction: is the transaction around it READ ONLY? */
static bool top_is_read_only = false;

/* Level of the subtransaction that aborts. */
static int aborting_level = 0;

/* Nesting level for which statements are sent, if it is not the current one; else 0. */
static int level_override = 0;

static inline int
current_level(void)
{
	return level_override > 0 ? level_override : GetCurrentTransactionNestLevel();
}

/* Savepoints that count: those to be released do not. */
static inline int
logical_depth(const WorkerConnection *conn)
{
	return conn->transaction.release_depth > 0 ? conn->transaction.release_depth - 1
											   : conn->transaction.depth;
}

bool
remote_transaction_is_read_only(void)
{
	return GetCurrentTransactionNestLevel() > 1 ? top_is_read_only : XactReadOnly;
}

static const char *
choose_begin(const WorkerConnection *conn)
{
	bool read_only = remote_transaction_is_read_only() || conn->standby;

	if (IsolationIsSerializable())
		return read_only ? "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY; "
						 : "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE; ";
	if (IsolationUsesXactSnapshot())
		return read_only ? "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; "
						 : "BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE; ";
	return read_only ? "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; "
					 : "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; ";
}

/*
 * Append the commands that bring the worker to the current subtransaction, and note
 * that they are there.  (If the message fails half-way the transaction aborts, and
 * abort looks at what libpq says about the wire's state.)  Returns their number.
 */
static int
append_transaction_commands(StringInfo message, WorkerConnection *conn)
{
	int level = current_level();
	bool joins = conn->transaction.depth == 0;
	int count = 0;

	if (conn->transaction.release_depth > 0)
	{
		appendStringInfo(message, "RELEASE SAVEPOINT s%d; ", conn->transaction.release_depth);
		conn->transaction.depth = conn->transaction.release_depth - 1;
		conn->transaction.release_depth = 0;
		count++;
	}
	if (conn->transaction.depth == 0)
	{
		appendStringInfoString(message, choose_begin(conn));
		conn->transaction.depth = 1;
		count++;
		remote_role_begin(conn);
		count += constraint_mode_append(message, 1);
	}
	while (conn->transaction.depth < level)
	{
		appendStringInfo(message, "SAVEPOINT s%d; ", ++conn->transaction.depth);
		count++;
		if (joins)
			count += constraint_mode_append(message, conn->transaction.depth);
	}
	return count;
}

/* Complain about wires on which no statement may be sent. */
static void
check_wire(WorkerConnection *conn)
{
	if (conn->transaction.failed)
		ereport(ERROR, (errcode(ERRCODE_CONNECTION_EXCEPTION),
						errmsg("transaction on worker \"%s\" was lost", conn->worker_name),
						errdetail("Its rollback to a savepoint failed."),
						errhint("Roll back the whole transaction.")));
	if (conn->pg == NULL || PQstatus(conn->pg) != CONNECTION_OK)
		connection_report(ERROR, conn, NULL, "");
}

/* Make the wire idle and fit for the next statement. */
static void
prepare_wire(WorkerConnection *conn)
{
	connection_vacate(conn);
	connection_settle(conn);
	if (conn->pg != NULL && wire_is_orphaned(conn))
		wire_reclaim(&conn, 1);
	connection_settle(conn);
	check_wire(conn);
}

/* Make the wire idle, and wait for what the worker's first snapshot must see. */
static void
ready_wire(WorkerConnection *conn)
{
	prepare_wire(conn);
	serializable_check_join(conn);
	if (IsolationIsSerializable() && conn->transaction.depth == 0)
		snapshot_pin_wait(conn->worker_id);
	snapshot_pin_transaction(NULL);
}

void
remote_transaction_ready(WorkerConnection *conn)
{
	pending_rows_flush();
	ready_wire(conn);
}

List *
remote_transaction_ready_wires(List *wires)
{
	ListCell *lc;

	foreach(lc, wires)
		ready_wire(lfirst(lc));
	return wires;
}

List *
remote_transaction_ready_all(const Bitmapset *workers)
{
	pending_rows_flush();
	return remote_transaction_ready_wires(connection_open_all(workers));
}

/* The wire to a worker, of several. */
static WorkerConnection *
find_wire(const List *wires, int worker_id)
{
	ListCell *lc;

	foreach(lc, wires)
	{
		WorkerConnection *conn = lfirst(lc);

		if (conn->worker_id == worker_id)
			return conn;
	}
	elog(ERROR, "worker %d has no wire", worker_id);
	pg_unreachable();
}

List *
remote_transaction_ready_each(const int *worker_ids, int count)
{
	Bitmapset *workers = NULL;
	List *ready;
	List *wires = NIL;

	for (int i = 0; i < count; i++)
		workers = bms_add_member(workers, worker_ids[i]);
	ready = remote_transaction_ready_all(workers);
	for (int i = 0; i < count; i++)
		wires = lappend(wires, find_wire(ready, worker_ids[i]));
	list_free(ready);
	bms_free(workers);
	return wires;
}

/* Send a statement on a ready wire, behind what the worker has to know before. */
static void
send_in_transaction(WorkerConnection *conn, const char *sql)
{
	StringInfoData message;
	bool lexical;
	int commands;

	initStringInfo(&message);
	commands = append_transaction_commands(&message, conn);
	commands += session_settings_append(&message, conn, &lexical);
	commands += remote_role_append(&message, conn);
	if (lexical || (commands > 0 && strlen(sql) > LONG_STATEMENT_BYTES))
	{
		/*
		 * The lexer reads a message as a whole before it executes the first command.  A long
		 * statement is not copied behind its preamble.
		 */
		connection_send(conn, message.data, commands, message.data);
		if (connection_get_result(conn) != NULL)
			elog(ERROR, "unexpected result of a preamble from worker \"%s\"", conn->worker_name);
		resetStringInfo(&message);
		commands = 0;
	}
	if (conn->snapshot.command[0] != '\0')
	{
		appendStringInfo(&message, "%s; ", conn->snapshot.command);
		conn->snapshot.command[0] = '\0';
		commands++;
	}
	if (commands > 0)
	{
		appendStringInfoString(&message, sql);
		connection_send(conn, message.data, commands, sql);
	}
	else
		connection_send(conn, sql, 0, sql);
	pfree(message.data);
}

void
remote_transaction_send(WorkerConnection *conn, RemoteAccess access, const char *sql)
{
	if (access == REMOTE_READ)
		pending_rows_flush();
	ready_wire(conn);
	remote_transaction_send_ready(conn, access, sql);
}

void
remote_transaction_send_ready(WorkerConnection *conn, RemoteAccess access, const char *sql)
{
	Assert(access == REMOTE_READ || !conn->standby);
	serializable_check_join(conn); /* another wire may have joined since it was ready */
	snapshot_pin_check_join(conn);
	participants_reserve(); /* callbacks must not need memory */
	participating = true;
	worker_use_note_statement();
	if (access != REMOTE_READ)
		conn->transaction.written = true;
	if (RecoveryInProgress())
		conn->transaction.unproven = true;
	send_in_transaction(conn, sql);
}

bool
remote_transaction_has_begun(void)
{
	return participating;
}

void
remote_transaction_run_on_participants(const char *sql)
{
	ListCell *lc;

	if (!participating)
		return;
	foreach(lc, connection_list())
	{
		WorkerConnection *conn = lfirst(lc);

		if (!remote_transaction_participates(conn))
			continue;
		prepare_wire(conn);
		if (remote_transaction_participates(conn)) /* a cancelled reader begins anew later */
			send_in_transaction(conn, sql);
	}
	foreach(lc, connection_list())
	{
		WorkerConnection *conn = lfirst(lc);
		PGresult *result;

		if (!remote_transaction_participates(conn))
			continue;
		while ((result = connection_get_result(conn)) != NULL)
		{
			if (PQresultStatus(result) != PGRES_COMMAND_OK)
				connection_report(ERROR, conn, result, NULL);
			PQclear(result);
		}
	}
}

bool
remote_transaction_can_restart(void)
{
	ListCell *lc;

	if (IsolationUsesXactSnapshot() || GetCurrentTransactionNestLevel() > 1 ||
		TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return false;
	foreach(lc, connection_list())
	{
		const WorkerConnection *conn = lfirst(lc);

		if (conn->transaction.written || conn->transaction.failed || conn->silent ||
			conn->prepared.state != PREPARE_NONE)
			return false;
	}
	return true;
}

void
remote_transaction_restart(void)
{
	commit_protocol_abort();
}

/* ----------------------------------------------------------------
 * Subtransactions
 * ----------------------------------------------------------------
 */

/* Rows buffered so far belong to the enclosing level. */
static void
flush_for_enclosing_level(void)
{
	level_override = GetCurrentTransactionNestLevel() - 1;
	PG_TRY();
	{
		pending_rows_flush();
	}
	PG_FINALLY();
	{
		level_override = 0;
	}
	PG_END_TRY();
}

static void
release_savepoints(int level)
{
	ListCell *lc;

	foreach(lc, connection_list())
	{
		WorkerConnection *conn = lfirst(lc);

		if (logical_depth(conn) >= level)
			conn->transaction.release_depth = level;
	}
}

/* Was the wire used in the aborting subtransaction, or did it fail serving something from outside? */
static bool
is_concerned(const WorkerConnection *conn)
{
	return !conn->transaction.failed && conn->transaction.depth > 0 &&
		   (logical_depth(conn) >= aborting_level || conn->statement_failed ||
			PQstatus(conn->pg) != CONNECTION_OK);
}

/* Does a statement still run there, of which what has arrived was thrown away? */
static bool
is_still_running(const WorkerConnection *conn)
{
	return conn->concerned && conn->cleanup.outcome != WIRE_LOST &&
		   PQtransactionStatus(conn->pg) == PQTRANS_ACTIVE;
}

/* Has it a savepoint to go back to? */
static bool
has_savepoint(const WorkerConnection *conn)
{
	return conn->concerned && conn->cleanup.outcome != WIRE_LOST &&
		   logical_depth(conn) >= aborting_level && PQtransactionStatus(conn->pg) != PQTRANS_IDLE;
}

/* Can its transaction not go on at the level that remains, but begin anew? */
static bool
is_to_restart(const WorkerConnection *conn)
{
	return conn->concerned && conn->transaction.failed && conn->cleanup.outcome != WIRE_LOST &&
		   !conn->transaction.written && conn->snapshot.kept == 0 && !IsolationUsesXactSnapshot();
}

/* Make the wires idle, whatever runs; the outcome is WIRE_LOST where that was not possible. */
static void
stop_statements(int count, int64 deadline)
{
	for (int i = 0; i < count; i++)
	{
		WorkerConnection *conn = participants[i];

		wire_cleanup_begin(conn);
		conn->occupant = NULL;
		if (PQstatus(conn->pg) != CONNECTION_OK)
			conn->cleanup.outcome = WIRE_LOST;
		else if (PQtransactionStatus(conn->pg) == PQTRANS_ACTIVE)
			(void) wire_drain_arrived(conn);
	}
	wire_stop(participants, participants_select(is_still_running), deadline);
}

/* Run a command on the selected wires; those that are not in a transaction then have failed. */
static void
rollback_to_savepoint(int count, int64 deadline)
{
	char text[80];

	snprintf(text, sizeof(text), "ROLLBACK TO SAVEPOINT s%d; RELEASE SAVEPOINT s%d", aborting_level,
			 aborting_level);
	for (int i = 0; i < count; i++)
		participant_commands[i] = text;
	wire_run(participants, participant_commands, count, deadline, NULL);
	for (int i = 0; i < count; i++)
	{
		participants[i]->transaction.depth = aborting_level - 1;
		participants[i]->transaction.release_depth = 0;
	}
}

/* What became of a wire's transaction. */
static void
judge_wire(WorkerConnection *conn)
{
	conn->end_pending = false;
	conn->statement_failed = false; /* what failed is undone with the savepoint */
	session_settings_rolled_back(conn);
	remote_role_forget(conn);
	if (conn->cleanup.outcome == WIRE_LOST || PQstatus(conn->pg) != CONNECTION_OK)
		conn->transaction.failed = true;
	else if (PQtransactionStatus(conn->pg) == PQTRANS_IDLE)
		connection_leave_transaction(conn, false); /* not even BEGIN was executed */
	else if (PQtransactionStatus(conn->pg) != PQTRANS_INTRANS ||
			 logical_depth(conn) >= aborting_level)
		conn->transaction.failed = true;
}

/* Give up transactions that only read: they begin anew with their next statement. */
static void
restart_failed_readers(int64 deadline)
{
	int count = participants_select(is_to_restart);

	for (int i = 0; i < count; i++)
		participant_commands[i] = "ROLLBACK";
	wire_run(participants, participant_commands, count, deadline, NULL);
	for (int i = 0; i < count; i++)
	{
		WorkerConnection *conn = participants[i];

		if (conn->cleanup.outcome == WIRE_OK && PQtransactionStatus(conn->pg) == PQTRANS_IDLE)
			connection_leave_transaction(conn, false);
	}
}

/* Never throws: core is aborting.  All wires at once, under one deadline. */
static void
abort_subtransaction(int level)
{
	int64 deadline = wire_end_deadline();
	ListCell *lc;
	int count;

	pending_rows_reset();
	aborting_level = level;
	count = participants_select(is_concerned);
	if (count == 0)
		return;
	for (int i = 0; i < count; i++)
	{
		participants[i]->concerned = true;
		participants[i]->quiet = true;
	}
	stop_statements(count, deadline);
	rollback_to_savepoint(participants_select(has_savepoint), deadline);
	foreach(lc, connection_list())
	{
		if (((WorkerConnection *) lfirst(lc))->concerned)
			judge_wire(lfirst(lc));
	}
	restart_failed_readers(deadline);
	foreach(lc, connection_list())
	{
		WorkerConnection *conn = lfirst(lc);

		if (conn->concerned)
			conn->quiet = false;
		conn->concerned = false;
	}
}

void
remote_transaction_subtransaction_event(SubXactEvent event)
{
	switch (event)
	{
		case SUBXACT_EVENT_START_SUB:
			if (GetCurrentTransactionNestLevel() == 2)
				top_is_read_only = XactReadOnly;
			flush_for_enclosing_level();
			break;
		case SUBXACT_EVENT_PRE_COMMIT_SUB:
			pending_rows_flush();
			break;
		case SUBXACT_EVENT_COMMIT_SUB:
			if (participating)
				release_savepoints(GetCurrentTransactionNestLevel());
			break;
		case SUBXACT_EVENT_ABORT_SUB:
			level_override = 0;
			snapshot_pin_abort();
			if (participating)
				abort_subtransaction(GetCurrentTransactionNestLevel());
			else
				pending_rows_reset();
			break;
	}
}

/* ----------------------------------------------------------------
 * Transactions
 * ----------------------------------------------------------------
 */

void
remote_transaction_transaction_event(XactEvent event)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			if (participating)
				commit_protocol_prepare();
			break;
		case XACT_EVENT_PRE_PREPARE:
			pending_rows_flush();
			if (participating && !commit_protocol_end_readers())
				ereport(
					ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot PREPARE a transaction in which workers take part"),
					 errdetail("It has changed or locked rows of distributed or reference tables, "
							   "or changed what workers have, too, such as functions and types."),
					 errhint("Use COMMIT: it is atomic over all workers.")));
			break;
		case XACT_EVENT_PREPARE:
			snapshot_pin_end_transaction();
			pending_rows_reset();
			worker_use_leave();
			wire_drop_swollen();
			participating = false;
			break;
		case XACT_EVENT_COMMIT:
			if (participating)
				commit_protocol_finish();
			snapshot_pin_end_transaction();
			pending_rows_reset();
			worker_use_leave();
			wire_drop_swollen();
			participating = false;
			break;
		case XACT_EVENT_ABORT:
			level_override = 0;
			snapshot_pin_abort();
			snapshot_pin_end_transaction();
			if (participating)
				commit_protocol_abort();
			pending_rows_reset();
			worker_use_leave();
			wire_drop_swollen();
			participating = false;
			break;
		default: /* parallel workers have no connections */
			break;
	}
}

void
remote_transaction_initialize(void)
{
	decision_log_initialize();
}
