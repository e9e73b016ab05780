/*
 * statement_snapshot.c
 *		Which snapshots a statement reads under, here and on the workers.
 *
 * READ COMMITTED.  A statement with one Gather over several workers and nothing else to read has each
 * worker take its snapshot in the very message that brings the SQL (worker/src/pinned_snapshot.c), so that it
 * costs no round trip:
 *
 *		statement_snapshot_prepare()	open the wires, enter the gate
 *		send							BEGIN ...; SELECT strata_worker.pin_snapshot(0, n); COPY (...) TO STDOUT
 *		snapshot_pin_sent()				wait until each worker says that it has its snapshot, leave the gate
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
 * REPEATABLE READ.  The transaction has its snapshots (transaction/snapshot_pin.c).  What they do
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

#include "execute/statement_snapshot.h"

#include "access/xact.h"
#include "executor/executor.h"
#include "tcop/pquery.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"

#include "cluster/metadata.h"
#include "execute/gather.h"
#include "execute/statement_reads.h"
#include "transaction/snapshot_pin.h"
#include "transaction/snapshot_renew.h"
#include "transaction/standby_read.h"

typedef struct Scope
{
	Snapshot snapshot; /* NULL: no statement's */
	uint64 token;
	List *wires;	 /* of WorkerConnection: they keep a snapshot under the token */
	bool early;		 /* taken for several readers, before the first one */
	bool pending;	 /* to be taken when the first of them reads */
	QueryDesc *lazy; /* whose snapshots may be taken then, or taken anew; else NULL */
	int uses;		 /* SQL texts that were, or are to be, sent under it */
	MemoryContext context;
	MemoryContextCallback forget;
} Scope;

RunningQuery *statement_snapshot_running = NULL;

static List *scopes = NIL; /* in TopMemoryContext, the elements in their queries' memory */
static uint64 last_token = 0;

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

		if (scope->snapshot != NULL && scope->snapshot == snapshot)
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
		((WorkerConnection *) lfirst(lc))->snapshot.kept--;
	scopes = list_delete_ptr(scopes, scope);
}

/* The outermost running query with this snapshot. */
static QueryDesc *
find_owner(Snapshot snapshot)
{
	QueryDesc *owner = NULL;

	for (RunningQuery *running = statement_snapshot_running; running != NULL;
		 running = running->outer)
	{
		if (running->query->estate != NULL && running->query->snapshot == snapshot)
			owner = running->query;
	}
	return owner;
}

static Scope *
create_scope_in(MemoryContext context, Snapshot snapshot)
{
	MemoryContext previous = MemoryContextSwitchTo(context);
	Scope *scope = palloc0(sizeof(Scope));

	scope->context = context;
	scope->snapshot = snapshot;
	scope->token = ++last_token;
	scope->forget.func = forget_scope;
	scope->forget.arg = scope;
	MemoryContextSwitchTo(TopMemoryContext);
	scopes = lappend(scopes, scope);
	MemoryContextSwitchTo(previous);
	MemoryContextRegisterResetCallback(context, &scope->forget);
	return scope;
}

static Scope *
create_scope(EState *estate)
{
	QueryDesc *owner = find_owner(estate->es_snapshot);

	return create_scope_in(owner != NULL ? owner->estate->es_query_cxt : estate->es_query_cxt,
						   estate->es_snapshot);
}

static void
add_wire(Scope *scope, WorkerConnection *conn)
{
	MemoryContext previous = MemoryContextSwitchTo(scope->context);

	scope->wires = lappend(scope->wires, conn);
	conn->snapshot.kept++;
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

/* What has a worker take a snapshot, for the scope if there is one. */
static char *
pin_command(const Scope *scope)
{
	return snapshot_pin_command(scope != NULL ? scope->token : 0, oldest_token());
}

/* Have the workers keep snapshots for the scope. */
static void
take_pins(Scope *scope, List *wires, bool in_gate)
{
	ListCell *lc;

	snapshot_pin_take(wires, pin_command(scope), in_gate);
	foreach(lc, wires)
		add_wire(scope, lfirst(lc));
}

/* ----------------------------------------------------------------
 * Statements
 * ----------------------------------------------------------------
 */

/* Is this the query of a portal whose rows are fetched by further commands? */
static bool
is_cursor(void)
{
	return ActivePortal != NULL && ActivePortal->name[0] != '\0' &&
		   ActivePortal->status == PORTAL_DEFINED;
}

/* The standbys of all workers that the statement may read, or none of them. */
static void
prepare_standbys(const QueryDesc *query, const StatementReads *reads)
{
	Bitmapset *workers = NULL;
	ListCell *lc;

	if (!standby_read_is_checked())
		return;
	foreach(lc, reads->gathers)
		workers = bms_add_members(workers, gather_possible_workers(lfirst(lc)));
	if (statement_reads_functions(query->plannedstmt))
		workers = bms_add_members(workers, metadata_all_workers());
	standby_read_prepare(workers);
	bms_free(workers);
}

/* All wires that the statement may read from; in SERIALIZABLE those that it is certain to. */
static List *
wires_of_statement(const QueryDesc *query, const StatementReads *reads)
{
	bool certain = IsolationIsSerializable();
	List *wires = NIL;
	ListCell *lc;

	prepare_standbys(query, reads);
	foreach(lc, reads->gathers)
	{
		GatherScanState *gather = lfirst(lc);
		RemoteRole saved;

		if (certain && !bms_is_empty(gather->param_ids))
			continue;
		saved = gather_enter_role(gather);
		wires = list_concat_unique_ptr(wires, standby_read_ready(gather_possible_workers(gather)));
		(void) remote_role_enter(saved);
	}
	if (!certain && statement_reads_functions(query->plannedstmt))
		wires = list_concat_unique_ptr(wires, standby_read_ready(metadata_all_workers()));
	return wires;
}

static void
take_scope(Scope *scope, const QueryDesc *query, const StatementReads *reads)
{
	bool in_gate = !IsolationUsesXactSnapshot();
	bool renew = in_gate && reads->local && !IsInParallelMode() &&
				 find_owner(query->snapshot) == NULL;
	List *wires = wires_of_statement(query, reads);
	Snapshot fresh = NULL;

	if (in_gate)
		fresh = snapshot_pin_enter_gate(snapshot_pin_workers(wires), renew);
	if (renew)
		snapshot_renew(query->snapshot, fresh, scope->context);
	take_pins(scope, wires, in_gate);
}

/* Is nothing read before the first Gather, not even by a function, that would have to fit in? */
static bool
can_be_lazy(const QueryDesc *query, const StatementReads *reads)
{
	return !IsolationUsesXactSnapshot() && !reads->local && !is_cursor() &&
		   find_owner(query->snapshot) == NULL && !statement_reads_writes(query->plannedstmt) &&
		   !statement_reads_functions(query->plannedstmt);
}

static void
start_scope(QueryDesc *query, const StatementReads *reads)
{
	Scope *scope = create_scope(query->estate);

	scope->early = true;
	scope->lazy = can_be_lazy(query, reads) ? query : NULL;
	scope->pending = scope->lazy != NULL;
	if (!scope->pending)
		take_scope(scope, query, reads);
}

void
statement_snapshot_take_pending(const EState *estate)
{
	Scope *scope = find_scope(estate->es_snapshot);
	StatementReads reads;

	if (scope == NULL || !scope->pending)
		return;
	reads = statement_reads_collect(scope->lazy->planstate);
	take_scope(scope, scope->lazy, &reads);
	scope->pending = false;
}

void
statement_snapshot_start(QueryDesc *query, int eflags)
{
	StatementReads reads;

	if ((eflags & EXEC_FLAG_EXPLAIN_ONLY) || !metadata_available())
		return;
	snapshot_pin_transaction(query->snapshot);
	reads = statement_reads_collect(query->planstate);
	if (reads.gathers == NIL || find_scope(query->snapshot) != NULL)
		return;
	if (is_cursor() ||
		(IsolationUsesXactSnapshot() ? statement_reads_writes(query->plannedstmt)
									 : list_length(reads.gathers) > 1 || reads.local ||
										   reads.repeatedly || query->plannedstmt->hasModifyingCTE))
		start_scope(query, &reads);
}

/* What stands in front of the statement on a wire: use what is kept there, or take a snapshot. */
static void
set_command(WorkerConnection *conn, const Scope *scope)
{
	if (scope != NULL && list_member_ptr(scope->wires, conn))
		snprintf(conn->snapshot.command, sizeof(conn->snapshot.command),
				 "SELECT strata_worker.use_snapshot(" UINT64_FORMAT ")", scope->token);
	else
		strlcpy(conn->snapshot.command, pin_command(scope), sizeof(conn->snapshot.command));
}

/* A scope for a statement whose functions may read anywhere, begun by a read on some workers. */
static Scope *
start_function_scope(EState *estate, const Bitmapset *workers)
{
	Scope *scope = create_scope(estate);
	List *wires;

	if (IsolationUsesXactSnapshot() || bms_is_subset(metadata_all_workers(), workers))
		return scope; /* the read itself takes all snapshots there are */
	scope->early = true;
	wires = snapshot_pin_reachable_wires();
	(void) snapshot_pin_enter_gate(snapshot_pin_workers(wires), false);
	take_pins(scope, wires, true);
	return scope;
}

List *
statement_snapshot_prepare(EState *estate, const Bitmapset *workers)
{
	Scope *scope = find_scope(estate->es_snapshot);
	QueryDesc *owner = find_owner(estate->es_snapshot);
	List *wires;
	List *missing = NIL;
	ListCell *lc;

	/* what a transaction's snapshot does not do: hide what the calling statement writes */
	if (scope == NULL && IsolationUsesXactSnapshot() &&
		(owner == NULL || owner->estate == estate || !statement_reads_writes(owner->plannedstmt)))
	{
		standby_read_prepare(workers);
		return standby_read_ready(workers);
	}
	if (scope == NULL && (statement_reads_functions(estate->es_plannedstmt) ||
						  (owner != NULL && owner->estate != estate)))
		scope = start_function_scope(estate, workers);
	if (scope != NULL)
		scope->uses++;
	standby_read_prepare(workers);
	if (scope == NULL && bms_num_members(workers) < 2)
	{
		if (!standby_read_is_active())
			snapshot_pin_wait(bms_next_member(workers, -1));
		return standby_read_ready(workers);
	}

	wires = standby_read_ready(workers);
	foreach(lc, wires)
	{
		WorkerConnection *conn = lfirst(lc);

		set_command(conn, scope);
		if (scope != NULL && list_member_ptr(scope->wires, conn))
			continue;
		conn->snapshot.pinned = false;
		missing = lappend(missing, conn);
		if (scope != NULL)
			add_wire(scope, conn);
	}
	if (missing == NIL || IsolationUsesXactSnapshot())
		return wires;
	(void) snapshot_pin_enter_gate(workers, false);
	snapshot_pin_open_window(missing);
	return wires;
}

List *
statement_snapshot_prepare_scan(const Bitmapset *workers)
{
	List *wires;
	ListCell *lc;

	standby_read_prepare(workers);
	wires = standby_read_ready(workers);
	if (IsolationUsesXactSnapshot())
		return wires;
	foreach(lc, wires)
	{
		WorkerConnection *conn = lfirst(lc);

		set_command(conn, NULL);
		conn->snapshot.pinned = false;
	}
	(void) snapshot_pin_enter_gate(workers, false);
	snapshot_pin_open_window(wires);
	return wires;
}

/* ----------------------------------------------------------------
 * Kept for several commands
 * ----------------------------------------------------------------
 */

KeptSnapshot *
statement_snapshot_keep(int worker_id, MemoryContext context)
{
	const Bitmapset *worker = bms_make_singleton(worker_id);
	Scope *scope = create_scope_in(context, NULL);
	List *wires;

	standby_read_prepare(worker);
	wires = standby_read_ready(worker);
	(void) snapshot_pin_enter_gate(worker, false);
	take_pins(scope, wires, true);
	return scope;
}

List *
statement_snapshot_prepare_kept(KeptSnapshot *kept)
{
	ListCell *lc;

	foreach(lc, kept->wires)
	{
		remote_transaction_ready(lfirst(lc));
		set_command(lfirst(lc), kept);
	}
	return kept->wires;
}

uint64
statement_snapshot_token(const KeptSnapshot *kept)
{
	return kept->token;
}

/* ----------------------------------------------------------------
 * Again
 * ----------------------------------------------------------------
 */

bool
statement_snapshot_can_restart(EState *estate)
{
	const Scope *scope = find_scope(estate->es_snapshot);

	if (scope == NULL)
		return scopes == NIL;
	return list_length(scopes) == 1 && (!scope->early || scope->lazy != NULL) && scope->uses <= 1;
}

bool
statement_snapshot_is_alone(EState *estate)
{
	return find_scope(estate->es_snapshot) == NULL;
}

void
statement_snapshot_restart(void)
{
	ListCell *cell;

	snapshot_pin_abort();
	foreach(cell, scopes)
	{
		Scope *scope = lfirst(cell);
		ListCell *lc;

		foreach(lc, scope->wires)
			((WorkerConnection *) lfirst(lc))->snapshot.kept--;
		scope->wires = NIL;
		scope->uses = 0;
		scope->pending = scope->lazy != NULL;
	}
}
