/*
 * commit_abort.c
 *		The workers' part of an abort: cancel, ROLLBACK, ROLLBACK PREPARED.
 *
 * Runs in the abort callback: nothing may be thrown, nothing may need memory, and all workers together have
 * WIRE_END_TIMEOUT_MS.  A wire that does not become idle is dropped; what it may have prepared
 * is in doubt, and the resolver rolls it back, as it finds no decision.
 */
#include "postgres.h"

#include "commit/commit_abort.h"

#include "fault_point.h"
#include "commit/participants.h"
#include "wire/wire_cleanup.h"

static bool
is_concerned(const WorkerConnection *conn)
{
	return conn->transaction.depth > 0 || conn->transaction.failed ||
		   conn->prepared.state != PREPARE_NONE;
}

/* A wire on which something still runs, after what has arrived was thrown away. */
static bool
is_busy(const WorkerConnection *conn)
{
	return is_concerned(conn) && conn->cleanup.outcome == WIRE_PENDING &&
		   PQtransactionStatus(conn->pg) == PQTRANS_ACTIVE;
}

static bool
needs_rollback(const WorkerConnection *conn)
{
	return is_concerned(conn) && conn->cleanup.outcome != WIRE_LOST;
}

/*
 * What the answer to PREPARE was, as far as it was still to come when we were aborted.  Silence
 * says nothing: part of the answer may have been read before.
 */
static void
note_prepare_answer(WorkerConnection *conn)
{
	if (conn->prepared.state != PREPARE_SENT)
		return;
	if (strcmp(conn->cleanup.tag, "PREPARE TRANSACTION") == 0)
		conn->prepared.state = PREPARE_DONE;
	else if (conn->cleanup.outcome == WIRE_ERROR)
		conn->prepared.state = PREPARE_NONE;
}

/* Cancel and drain whatever runs; wires that do not become idle are WIRE_LOST. */
static void
stop_statements(int64 deadline)
{
	int count = participants_select(is_concerned);

	for (int i = 0; i < count; i++)
	{
		WorkerConnection *conn = participants[i];

		conn->occupant = NULL;
		conn->quiet = true;
		wire_cleanup_begin(conn);
		conn->end_pending = false;
		if (PQstatus(conn->pg) != CONNECTION_OK || conn->transaction.failed)
			conn->cleanup.outcome = WIRE_LOST;
		else if (PQtransactionStatus(conn->pg) == PQTRANS_ACTIVE)
		{
			(void) wire_drain_arrived(conn);
			note_prepare_answer(conn);
		}
	}

	for (int i = 0; i < count; i++)
	{
		/* an error in the middle of a statement leaves its last result, but it is still running */
		if (participants[i]->cleanup.outcome != WIRE_LOST &&
			PQtransactionStatus(participants[i]->pg) == PQTRANS_ACTIVE)
			participants[i]->cleanup.outcome = WIRE_PENDING;
	}
	count = participants_select(is_busy);
	if (count == 0)
		return;
	wire_cancel(participants, count, deadline);
	wire_drain(participants, count, deadline);
	for (int i = 0; i < count; i++)
		note_prepare_answer(participants[i]);
}

/* The command that undoes what is there, NULL when nothing is. */
static const char *
choose_rollback(const WorkerConnection *conn)
{
	switch (PQtransactionStatus(conn->pg))
	{
		case PQTRANS_INTRANS:
		case PQTRANS_INERROR:
			return "ROLLBACK";
		default:
			return conn->prepared.state != PREPARE_NONE ? conn->prepared.rollback : NULL;
	}
}

static void
run_rollbacks(int64 deadline)
{
	int candidates = participants_select(needs_rollback);
	int count = 0;

	for (int i = 0; i < candidates; i++)
	{
		const char *command = choose_rollback(participants[i]);

		if (command == NULL)
			continue;
		participants[count] = participants[i];
		participant_commands[count++] = command;
	}
	wire_run(participants, participant_commands, count, deadline, NULL);
	for (int i = 0; i < count; i++)
	{
		if (participants[i]->cleanup.outcome == WIRE_OK)
			participants[i]->prepared.state = PREPARE_NONE;
		else
			participants[i]->cleanup.outcome = WIRE_LOST;
	}
}

void
commit_abort_workers(void)
{
	int64 deadline = wire_end_deadline();
	bool doubt = false;
	int count;

	if (!in_error_recursion_trouble())
	{
		FAULT_POINT("abort");
		stop_statements(deadline);
		FAULT_POINT("abort_stopped");
		run_rollbacks(deadline);
		FAULT_POINT("abort_rolled_back");
	}

	count = participants_select(is_concerned);
	for (int i = 0; i < count; i++)
	{
		WorkerConnection *conn = participants[i];

		conn->quiet = false;
		if (conn->prepared.state != PREPARE_NONE)
		{
			participant_leave_in_doubt(conn, IN_DOUBT_ROLLBACK, IN_DOUBT_WORKER_SILENT);
			doubt = true;
		}
		participant_forget_prepared(conn);
		if (conn->cleanup.outcome == WIRE_LOST || PQstatus(conn->pg) != CONNECTION_OK ||
			PQtransactionStatus(conn->pg) != PQTRANS_IDLE)
			connection_drop(conn);
		else
			connection_leave_transaction(conn, false);
	}
	participants_end(doubt);
}
