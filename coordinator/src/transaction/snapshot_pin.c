/*
 * snapshot_pin.c
 *		Workers take their snapshots together, between two commits.
 *
 * All of them while we are in the gate (commit/gate.c), so that they see the same transactions: for a statement
 * (execute/statement_snapshot.c), or, in REPEATABLE READ, for the transaction.  A worker is asked by a command in front
 * of its SQL, and says that it has its snapshot before it runs that (worker/src/pinned_snapshot.c):
 *
 *		snapshot_pin_enter_gate()
 *		snapshot_pin_open_window()	the wires that are sent such a command
 *		send						BEGIN ...; SELECT strata_worker.pin_snapshot(0, n); COPY (...) TO STDOUT
 *		snapshot_pin_sent()			wait until each worker says that it has its snapshot, leave the gate
 *
 * Standbys have no gate (standby_read.c): each takes a snapshot of its own, of about the same time.
 *
 * REPEATABLE READ.  The first statement of the transaction, whatever it reads, has all workers
 * take their transactions' snapshots, and replaces the coordinator's in place (snapshot_renew.c).  A worker that
 * cannot be reached then is left out, and using it later in the transaction is an error.
 */
#include "postgres.h"

#include "transaction/snapshot_pin.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "cluster/metadata.h"
#include "commit/gate.h"
#include "commit/in_doubt.h"
#include "transaction/snapshot_renew.h"
#include "transaction/standby_read.h"

/* Wires that were sent something while we are in the gate; NIL when we are not. */
static List *window = NIL;
static bool window_open = false;

/* REPEATABLE READ: the transaction's snapshots have been taken. */
static bool transaction_pinned = false;
static bool transaction_pins_sent = false; /* some workers may have theirs */
static bool snapshot_imported = false;	   /* by SET TRANSACTION SNAPSHOT */
static bool transaction_pinning = false;

/* ----------------------------------------------------------------
 * The gate
 * ----------------------------------------------------------------
 */

/*
 * Wait for a worker that may hold a prepared transaction whose commit is decided; was there one?
 * To be asked inside the gate: a commit leaves it after it has marked its workers.
 */
static bool
wait_for_doubtful(const Bitmapset *workers)
{
	int worker_id = -1;

	while ((worker_id = bms_next_member(workers, worker_id)) >= 0)
	{
		if (!in_doubt_blocks(worker_id))
			continue;
		gate_end();
		in_doubt_wait(worker_id);
		return true;
	}
	return false;
}

Snapshot
snapshot_pin_enter_gate(const Bitmapset *workers, bool with_snapshot)
{
	if (standby_read_is_active())
		return with_snapshot ? GetLatestSnapshot() : NULL;
	for (;;)
	{
		Snapshot fresh = NULL;

		CHECK_FOR_INTERRUPTS();
		gate_snapshot_begin(workers);
		if (with_snapshot)
			fresh = GetLatestSnapshot();
		if (fresh != NULL && gate_snapshot_is_ahead(fresh, workers))
			gate_end();
		else if (!wait_for_doubtful(workers))
			return fresh;
	}
}

/* ----------------------------------------------------------------
 * Wires
 * ----------------------------------------------------------------
 */

void
snapshot_pin_open_window(List *wires)
{
	MemoryContext previous = MemoryContextSwitchTo(TopMemoryContext);

	window = list_copy(wires);
	window_open = true;
	MemoryContextSwitchTo(previous);
}

/* Wait until all wires of the window have said that they have their snapshot; leave the gate. */
static void
close_window(void)
{
	WorkerConnection **waiting = palloc((list_length(window) + 1) * sizeof(WorkerConnection *));

	for (;;)
	{
		int count = 0;
		ListCell *lc;

		foreach(lc, window)
		{
			WorkerConnection *conn = lfirst(lc);

			if (!connection_poll_pin(conn))
				waiting[count++] = conn;
		}
		if (count == 0)
			break;
		connection_wait_any(waiting, count);
	}
	if (!standby_read_is_active())
		gate_snapshot_check();
	gate_end();
	pfree(waiting);
	list_free(window);
	window = NIL;
	window_open = false;
}

char *
snapshot_pin_command(uint64 token, uint64 oldest)
{
	return psprintf("SELECT strata_worker.pin_snapshot(" UINT64_FORMAT ", " UINT64_FORMAT ")",
					token, oldest);
}

void
snapshot_pin_take(List *wires, const char *command, bool in_gate)
{
	ListCell *lc;

	foreach(lc, wires)
	{
		WorkerConnection *conn = lfirst(lc);

		conn->snapshot.pinned = false;
		remote_transaction_send_ready(conn, REMOTE_READ, command);
	}
	if (in_gate)
	{
		snapshot_pin_open_window(wires);
		close_window();
	}
	foreach(lc, wires)
	{
		WorkerConnection *conn = lfirst(lc);
		PGresult *result;

		while ((result = connection_get_result(conn)) != NULL)
		{
			if (PQresultStatus(result) != PGRES_TUPLES_OK)
				connection_report(ERROR, conn, result, NULL);
			PQclear(result);
		}
	}
}

Bitmapset *
snapshot_pin_workers(List *wires)
{
	Bitmapset *workers = NULL;
	ListCell *lc;

	foreach(lc, wires)
		workers = bms_add_member(workers, ((WorkerConnection *) lfirst(lc))->worker_id);
	return workers;
}

void
snapshot_pin_sent(void)
{
	if (window_open)
		close_window();
}

/* ----------------------------------------------------------------
 * REPEATABLE READ
 * ----------------------------------------------------------------
 */

List *
snapshot_pin_reachable_wires(void)
{
	const Bitmapset *workers = metadata_all_workers();
	List *wires = NIL;
	int worker_id = -1;

	if (standby_read_is_active())
		standby_read_prepare(workers);
	if (standby_read_is_active())
		return standby_read_ready(workers);
	while ((worker_id = bms_next_member(workers, worker_id)) >= 0)
	{
		WorkerConnection *conn = connection_try(worker_id, false);

		if (conn == NULL)
			continue;
		remote_transaction_ready(conn);
		wires = lappend(wires, conn);
	}
	standby_read_prepare_primaries(wires);
	return wires;
}

void
snapshot_pin_transaction(Snapshot snapshot)
{
	List *wires;
	Bitmapset *workers;
	Snapshot fresh;
	Snapshot first;

	/* SERIALIZABLE uses one node only: serializable.c */
	if (!IsolationUsesXactSnapshot() || IsolationIsSerializable() || transaction_pinned ||
		transaction_pinning || snapshot_imported || IsInParallelMode() ||
		metadata_all_workers() == NULL)
		return;

	/* a savepoint does not undo the snapshots of those workers that have taken one */
	if (transaction_pins_sent)
		ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
						errmsg("transaction has no snapshot of all workers"),
						errdetail("An error occurred while the snapshots were taken."),
						errhint("Repeat the whole transaction.")));

	transaction_pinning = true;
	wires = snapshot_pin_reachable_wires();
	workers = snapshot_pin_workers(wires);
	fresh = snapshot_pin_enter_gate(workers, true);
	first = GetTransactionSnapshot();
	if (snapshot != NULL && snapshot != first)
		snapshot_renew(snapshot, fresh, TopTransactionContext);
	snapshot_renew(first, fresh, TopTransactionContext);
	transaction_pins_sent = true;
	snapshot_pin_take(wires, snapshot_pin_command(0, 0), true);
	transaction_pinning = false;

	transaction_pinned = true;
	bms_free(workers);
	list_free(wires);
}

void
snapshot_pin_note_import(void)
{
	snapshot_imported = true;
}

bool
snapshot_pin_is_imported(void)
{
	return snapshot_imported;
}

void
snapshot_pin_check_join(const WorkerConnection *conn)
{
	if (snapshot_imported)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot use worker \"%s\" under an imported snapshot", conn->worker_name),
				 errdetail("The snapshot says nothing of what the workers have committed."),
				 errhint("Use one transaction of your own; pg_dump without --jobs does.")));
	if (IsolationUsesXactSnapshot() && transaction_pinned && conn->transaction.depth == 0)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("transaction has no snapshot of worker \"%s\"", conn->worker_name),
				 errdetail("The worker was not there when the transaction took its snapshots, or "
						   "lost it since."),
				 errhint("Repeat the whole transaction.")));
}

void
snapshot_pin_wait(int worker_id)
{
	Bitmapset *worker = bms_make_singleton(worker_id);

	do
	{
		gate_read_single(worker_id);
	} while (wait_for_doubtful(worker));
	bms_free(worker);
}

/* ----------------------------------------------------------------
 * Ends
 * ----------------------------------------------------------------
 */

void
snapshot_pin_abort(void)
{
	ListCell *lc;

	gate_end();
	list_free(window);
	window = NIL;
	window_open = false;
	transaction_pinning = false;
	foreach(lc, connection_list())
		((WorkerConnection *) lfirst(lc))->snapshot.command[0] = '\0';
}

void
snapshot_pin_end_transaction(void)
{
	transaction_pinned = false;
	transaction_pins_sent = false;
	snapshot_imported = false;
}
