/*
 * snapshot_pin.c
 *		Which snapshots a statement reads under, here and on the workers.
 *
 * READ COMMITTED.  A statement with one Gather over several workers and nothing else to read has each
 * worker take its snapshot in the very message that brings the SQL (worker/src/pinned_snapshot.c), so that it
 * costs no round trip:
 *
 *		snapshot_pin_prepare()	open the wires, enter the gate
 *		send					BEGIN ...; SELECT strata_worker.pin_snapshot(0, n); COPY (...) TO STDOUT
 *		snapshot_pin_sent()		wait until each worker says that it has its snapshot, leave the gate
 *
 * A statement that reads in several places, several Gathers or a Gather and rows of the
 * coordinator, takes all these snapshots after ExecutorStart, or, if it has nothing but Gathers to read, when the
 * first of these does: then losing a worker right there is no reason to fail (gather_retry.c).  They form a Scope: a token under
 * which the workers keep them, and the local snapshot that stands for them.  A cursor has a scope because its
 * rows are read later.  So has what a Gather below a nested loop reads.
 *
 * The local snapshot that core took before ExecutorStart is older than the gate: snapshot_renew.c.
 *
 * A scope is found by the address of the local snapshot.  PostgreSQL's rule for functions so holds by
 * itself: what a STABLE function reads it reads with the calling statement's snapshot, hence in
 * its scope; a VOLATILE function's statements have snapshots, and scopes, of their own.  A scope
 * belongs to the outermost running query with that snapshot and ends with its memory.
 *
 * REPEATABLE READ.  The first statement of the transaction, whatever it reads, has all workers
 * take their transactions' snapshots, and replaces the coordinator's in place.  A worker that
 * cannot be reached then is left out, and using it later in the transaction is an error.  What such a snapshot does
 * not tell is how much of its own transaction a statement sees: cursors and statements that
 * write have a scope, too, whose tokens stand for the command ids that the workers had.
 *
 * Functions.  A STABLE function may read workers that the calling statement does not.  So a scope that begins
 * with such a statement's first read takes the snapshots of all workers that can be reached, though the
 * read itself may be routed.
 *
 * Not covered: a STABLE function that reads distributed tables, called by a statement which does
 * not: its workers' snapshots are taken at its first read, newer than the statement's local one.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "tcop/pquery.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"

#include "cluster/metadata.h"
#include "commit/gate.h"
#include "commit/in_doubt.h"
#include "execute/gather.h"
#include "execute/plan_reads.h"
#include "stream/remote_command.h"
#include "stream/remote_insert.h"
#include "transaction/snapshot_pin.h"
#include "transaction/snapshot_renew.h"

typedef struct Scope
{
	Snapshot snapshot;
	uint64 token;
	List *wires;	 /* of WorkerConnection: they keep a snapshot under the token */
	bool early;		 /* taken for several readers, before the first one */
	bool pending;	 /* to be taken when the first of them reads */
	QueryDesc *lazy; /* whose snapshots may be taken then, or taken anew; else NULL */
	int uses;		 /* SQL texts that were, or are to be, sent under it */
	MemoryContext context;
	MemoryContextCallback forget;
} Scope;

RunningQuery *snapshot_pin_running = NULL;

static List *scopes = NIL; /* in TopMemoryContext, the elements in their queries' memory */
static uint64 last_token = 0;

/* Wires that were sent something while we are in the gate; NIL when we are not. */
static List *window = NIL;
static bool window_open = false;

/* REPEATABLE READ: the transaction's snapshots have been taken. */
static bool transaction_pinned = false;
static bool transaction_pins_sent = false; /* some workers may have theirs */
static bool snapshot_imported = false;	   /* by SET TRANSACTION SNAPSHOT */
static bool transaction_pinning = false;

/* ----------------------------------------------------------------
 * Scopes
 * ----------------------------------------------------------------
 */

static Scope *
find_scope(Snapshot snapshot)
{
	ListCell *lc;

	foreach(lc, scopes)
	{
		Scope *scope = lfirst(lc);

		if (scope->snapshot == snapshot)
			return scope;
	}
	return NULL;
}

/* The memory that a scope lives in goes. */
static void
forget_scope(void *arg)
{
	Scope *scope = arg;
	ListCell *lc;

	foreach(lc, scope->wires)
		((WorkerConnection *) lfirst(lc))->kept_snapshots--;
	scopes = list_delete_ptr(scopes, scope);
}

/* The outermost running query with this snapshot. */
static QueryDesc *
find_owner(Snapshot snapshot)
{
	QueryDesc *owner = NULL;

	for (RunningQuery *running = snapshot_pin_running; running != NULL; running = running->outer)
	{
		if (running->query->estate != NULL && running->query->snapshot == snapshot)
			owner = running->query;
	}
	return owner;
}

static Scope *
create_scope(EState *estate)
{
	QueryDesc *owner = find_owner(estate->es_snapshot);
	MemoryContext context = owner != NULL ? owner->estate->es_query_cxt : estate->es_query_cxt;
	MemoryContext previous = MemoryContextSwitchTo(context);
	Scope *scope = palloc0(sizeof(Scope));

	scope->context = context;
	scope->snapshot = estate->es_snapshot;
	scope->token = ++last_token;
	scope->forget.func = forget_scope;
	scope->forget.arg = scope;
	MemoryContextSwitchTo(TopMemoryContext);
	scopes = lappend(scopes, scope);
	MemoryContextSwitchTo(previous);
	MemoryContextRegisterResetCallback(context, &scope->forget);
	return scope;
}

static void
add_wire(Scope *scope, WorkerConnection *conn)
{
	MemoryContext previous = MemoryContextSwitchTo(scope->context);

	scope->wires = lappend(scope->wires, conn);
	conn->kept_snapshots++;
	MemoryContextSwitchTo(previous);
}

/* The smallest token that is still in use. */
static uint64
oldest_token(void)
{
	uint64 oldest = last_token + 1;
	ListCell *lc;

	foreach(lc, scopes)
		oldest = Min(oldest, ((Scope *) lfirst(lc))->token);
	return oldest;
}

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

/*
 * Enter the gate; with a snapshot that is new and sees no transaction of which a worker does not know
 * yet, when one is wanted.  It is valid until the next one is taken.
 */
static Snapshot
enter_gate(const Bitmapset *workers, bool with_snapshot)
{
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

/* From now on snapshots are asked for on these wires; we are in the gate. */
static void
open_window(List *wires)
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
	gate_snapshot_check();
	gate_end();
	pfree(waiting);
	list_free(window);
	window = NIL;
	window_open = false;
}

/* Open wires, and bring them to where a statement can be sent at once. */
static List *
ready_wires(const Bitmapset *workers, RemoteAccess access)
{
	List *wires = NIL;
	int worker_id = -1;

	remote_insert_flush_all();
	connection_open_all(workers);
	while ((worker_id = bms_next_member(workers, worker_id)) >= 0)
	{
		WorkerConnection *conn = connection_open(worker_id);

		remote_transaction_ready(conn, access);
		wires = lappend(wires, conn);
	}
	return wires;
}

static char *
make_pin_command(uint64 token)
{
	return psprintf("SELECT strata_worker.pin_snapshot(" UINT64_FORMAT ", " UINT64_FORMAT ")",
					token, oldest_token());
}

/* Have snapshots taken on wires that are ready, in a message of their own; inside the gate. */
static void
take_pins(List *wires, uint64 token, bool in_gate)
{
	char *command = make_pin_command(token);
	ListCell *lc;

	foreach(lc, wires)
	{
		WorkerConnection *conn = lfirst(lc);

		conn->snapshot_pinned = false;
		remote_transaction_send(conn, REMOTE_READ, command);
	}
	if (in_gate)
	{
		open_window(wires);
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
	pfree(command);
}

static Bitmapset *
workers_of(List *wires)
{
	Bitmapset *workers = NULL;
	ListCell *lc;

	foreach(lc, wires)
		workers = bms_add_member(workers, ((WorkerConnection *) lfirst(lc))->worker_id);
	return workers;
}

/* ----------------------------------------------------------------
 * REPEATABLE READ
 * ----------------------------------------------------------------
 */

/* The wires to all workers that can be reached. */
static List *
reachable_wires(void)
{
	const Bitmapset *workers = metadata_all_workers();
	List *wires = NIL;
	int worker_id = -1;

	while ((worker_id = bms_next_member(workers, worker_id)) >= 0)
	{
		WorkerConnection *conn = connection_try(worker_id);

		if (conn == NULL)
			continue;
		remote_transaction_ready(conn, REMOTE_READ);
		wires = lappend(wires, conn);
	}
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
	wires = reachable_wires();
	workers = workers_of(wires);
	fresh = enter_gate(workers, true);
	first = GetTransactionSnapshot();
	if (snapshot != NULL && snapshot != first)
		snapshot_renew(snapshot, fresh, TopTransactionContext);
	snapshot_renew(first, fresh, TopTransactionContext);
	transaction_pins_sent = true;
	take_pins(wires, 0, true);
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

void
snapshot_pin_check_join(const WorkerConnection *conn)
{
	if (snapshot_imported)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot use worker \"%s\" under an imported snapshot", conn->worker_name),
				 errdetail("The snapshot says nothing of what the workers have committed."),
				 errhint("Use one transaction of your own; pg_dump without --jobs does.")));
	if (IsolationUsesXactSnapshot() && transaction_pinned && conn->xact_depth == 0)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("transaction has no snapshot of worker \"%s\"", conn->worker_name),
				 errdetail("The worker was not there when the transaction took its snapshots, or "
						   "lost it since."),
				 errhint("Repeat the whole transaction.")));
}

/* ----------------------------------------------------------------
 * Statements
 * ----------------------------------------------------------------
 */

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

/* Is this the query of a portal whose rows are fetched by further commands? */
static bool
is_cursor(void)
{
	return ActivePortal != NULL && ActivePortal->name[0] != '\0' &&
		   ActivePortal->status == PORTAL_DEFINED;
}

/* All wires that the statement may read from; in SERIALIZABLE those that it is certain to. */
static List *
wires_of_statement(const QueryDesc *query, const PlanReads *reads)
{
	bool certain = IsolationIsSerializable();
	List *wires = NIL;
	ListCell *lc;

	foreach(lc, reads->gathers)
	{
		GatherScanState *gather = lfirst(lc);
		RemoteRole saved;

		if (certain && !bms_is_empty(gather->param_ids))
			continue;
		saved = gather_enter_role(gather);
		wires = list_concat_unique_ptr(wires,
									   ready_wires(gather_possible_workers(gather), REMOTE_READ));
		(void) remote_role_enter(saved);
	}
	if (!certain && plan_reads_functions(query->plannedstmt))
		wires = list_concat_unique_ptr(wires, ready_wires(metadata_all_workers(), REMOTE_READ));
	return wires;
}

static void
take_scope(Scope *scope, const QueryDesc *query, const PlanReads *reads)
{
	bool in_gate = !IsolationUsesXactSnapshot();
	bool renew = in_gate && reads->local && !IsInParallelMode() &&
				 find_owner(query->snapshot) == NULL;
	List *wires = wires_of_statement(query, reads);
	Snapshot fresh = NULL;
	ListCell *lc;

	if (in_gate)
		fresh = enter_gate(workers_of(wires), renew);
	if (renew)
		snapshot_renew(query->snapshot, fresh, scope->context);
	take_pins(wires, scope->token, in_gate);
	foreach(lc, wires)
		add_wire(scope, lfirst(lc));
}

/* Is nothing read before the first Gather, not even by a function, that would have to fit in? */
static bool
can_be_lazy(const QueryDesc *query, const PlanReads *reads)
{
	return !IsolationUsesXactSnapshot() && !reads->local && !is_cursor() &&
		   find_owner(query->snapshot) == NULL && !plan_reads_writes(query->plannedstmt) &&
		   !plan_reads_functions(query->plannedstmt);
}

static void
start_scope(QueryDesc *query, const PlanReads *reads)
{
	Scope *scope = create_scope(query->estate);

	scope->early = true;
	scope->lazy = can_be_lazy(query, reads) ? query : NULL;
	scope->pending = scope->lazy != NULL;
	if (!scope->pending)
		take_scope(scope, query, reads);
}

void
snapshot_pin_take_pending(const EState *estate)
{
	Scope *scope = find_scope(estate->es_snapshot);
	PlanReads reads;

	if (scope == NULL || !scope->pending)
		return;
	reads = plan_reads_collect(scope->lazy->planstate);
	take_scope(scope, scope->lazy, &reads);
	scope->pending = false;
}

void
snapshot_pin_start_query(QueryDesc *query, int eflags)
{
	PlanReads reads;

	if ((eflags & EXEC_FLAG_EXPLAIN_ONLY) || !metadata_available())
		return;
	snapshot_pin_transaction(query->snapshot);
	reads = plan_reads_collect(query->planstate);
	if (reads.gathers == NIL || find_scope(query->snapshot) != NULL)
		return;
	if (is_cursor() || (IsolationUsesXactSnapshot()
							? plan_reads_writes(query->plannedstmt)
							: list_length(reads.gathers) > 1 || reads.local || reads.repeatedly))
		start_scope(query, &reads);
}

/* What stands in front of the statement on a wire: use what is kept there, or take a snapshot. */
static void
set_command(WorkerConnection *conn, const Scope *scope, RemoteAccess access)
{
	if (scope != NULL && list_member_ptr(scope->wires, conn))
		snprintf(conn->snapshot_command, sizeof(conn->snapshot_command),
				 "SELECT strata_worker.use_snapshot(" UINT64_FORMAT ", %s)", scope->token,
				 access == REMOTE_READ ? "false" : "true");
	else
		strlcpy(conn->snapshot_command, make_pin_command(scope != NULL ? scope->token : 0),
				sizeof(conn->snapshot_command));
}

/* A scope for a statement whose functions may read anywhere, begun by a read on some workers. */
static Scope *
start_function_scope(EState *estate, const Bitmapset *workers)
{
	Scope *scope = create_scope(estate);
	List *wires;
	ListCell *lc;

	if (IsolationUsesXactSnapshot() || bms_is_subset(metadata_all_workers(), workers))
		return scope; /* the read itself takes all snapshots there are */
	scope->early = true;
	wires = reachable_wires();
	(void) enter_gate(workers_of(wires), false);
	take_pins(wires, scope->token, true);
	foreach(lc, wires)
		add_wire(scope, lfirst(lc));
	return scope;
}

void
snapshot_pin_prepare(EState *estate, const Bitmapset *workers, RemoteAccess access)
{
	Scope *scope = find_scope(estate->es_snapshot);
	QueryDesc *owner = find_owner(estate->es_snapshot);
	List *wires;
	List *missing = NIL;
	ListCell *lc;

	/* what a transaction's snapshot does not do: hide what the calling statement writes */
	if (scope == NULL && IsolationUsesXactSnapshot() &&
		(owner == NULL || owner->estate == estate || !plan_reads_writes(owner->plannedstmt)))
		return;
	if (scope == NULL && (plan_reads_functions(estate->es_plannedstmt) ||
						  (owner != NULL && owner->estate != estate)))
		scope = start_function_scope(estate, workers);
	if (scope != NULL)
		scope->uses++;
	if (scope == NULL && bms_num_members(workers) < 2)
	{
		snapshot_pin_wait(bms_next_member(workers, -1));
		return;
	}

	wires = ready_wires(workers, access);
	foreach(lc, wires)
	{
		WorkerConnection *conn = lfirst(lc);

		set_command(conn, scope, access);
		if (scope != NULL && list_member_ptr(scope->wires, conn))
			continue;
		conn->snapshot_pinned = false;
		missing = lappend(missing, conn);
		if (scope != NULL)
			add_wire(scope, conn);
	}
	if (missing == NIL || IsolationUsesXactSnapshot())
		return;
	(void) enter_gate(workers, false);
	open_window(missing);
}

void
snapshot_pin_prepare_scan(const Bitmapset *workers)
{
	List *wires;
	ListCell *lc;

	if (IsolationUsesXactSnapshot())
		return;
	wires = ready_wires(workers, REMOTE_READ);
	foreach(lc, wires)
	{
		WorkerConnection *conn = lfirst(lc);

		set_command(conn, NULL, REMOTE_READ);
		conn->snapshot_pinned = false;
	}
	(void) enter_gate(workers, false);
	open_window(wires);
}

void
snapshot_pin_sent(void)
{
	if (window_open)
		close_window();
}

/* ----------------------------------------------------------------
 * Again
 * ----------------------------------------------------------------
 */

bool
snapshot_pin_can_restart(EState *estate)
{
	const Scope *scope = find_scope(estate->es_snapshot);

	if (scope == NULL)
		return scopes == NIL;
	return list_length(scopes) == 1 && (!scope->early || scope->lazy != NULL) && scope->uses <= 1;
}

void
snapshot_pin_restart(void)
{
	ListCell *cell;

	snapshot_pin_abort();
	foreach(cell, scopes)
	{
		Scope *scope = lfirst(cell);
		ListCell *lc;

		foreach(lc, scope->wires)
			((WorkerConnection *) lfirst(lc))->kept_snapshots--;
		scope->wires = NIL;
		scope->uses = 0;
		scope->pending = scope->lazy != NULL;
	}
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
		((WorkerConnection *) lfirst(lc))->snapshot_command[0] = '\0';
}

void
snapshot_pin_end_transaction(void)
{
	transaction_pinned = false;
	transaction_pins_sent = false;
	snapshot_imported = false;
}
