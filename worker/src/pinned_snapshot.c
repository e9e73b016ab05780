/*
 * pinned_snapshot.c
 *		Snapshots that are taken before the statements that use them.
 *
 * A statement of the coordinator that reads several workers must see one state of all of them.
 * So the coordinator has each worker take a snapshot while no distributed commit is under way
 * (coordinator/src/commit/gate.c), and sends the statement, or several that belong together, under
 * it:
 *
 *		BEGIN ...; SELECT strata_worker.pin_snapshot(0, 0); COPY (SELECT ...) TO STDOUT
 *
 * pin_snapshot() touches no table, so it waits for no lock.  It tells the coordinator at once, by a
 * message of level INFO: the function's result would stay in a buffer until the COPY ends.  That takes
 * no more round trips than the COPY alone.
 *
 * A pin with a token is kept: use_snapshot() puts the next statement under it, as often as
 * wanted, until a later pin_snapshot() says that it is no longer needed, or the transaction ends.  It
 * has the command id of the moment when it was taken: parts of one statement do not
 * see what other parts of it have written.  An UPDATE, DELETE or MERGE gets the current
 * command id, as it would otherwise complain about rows that were changed since.
 *
 * "The next statement" is the next top-level one of the same message that the executor starts: the
 * query in COPY, or an UPDATE.  What functions run inside of it takes its snapshots as usual: STABLE functions use the
 * statement's, as it is the active one while the statement runs.
 *
 * In REPEATABLE READ the transaction has one snapshot anyway, which the first pin_snapshot() makes
 * core take.
 *
 * Snapshots belong to TopTransactionResourceOwner, so that they survive savepoints; they are given
 * back before a commit or PREPARE looks for leaks.
 */
#include "postgres.h"

#include "pinned_snapshot.h"

#include "access/xact.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "nodes/pg_list.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

#include "caller.h"
#include "compat.h"
#include "function_guard.h"
#include "partial_upgrade.h"
#include "session_mark.h"

COMPAT_MODULE_MAGIC("strata_worker");

/* SQLSTATE of the message to the coordinator, which knows it (connection.c). */
#define SNAPSHOT_IS_PINNED MAKE_SQLSTATE('S', 'T', '0', '0', '1')

typedef struct Pin
{
	uint64 token;
	Snapshot snapshot;
	CommandId command;
} Pin;

static List *pins = NIL; /* of Pin, in TopTransactionContext */

/* What the next statement runs under; its snapshot is NULL when that is nothing special. */
static Pin next_statement = {0};
static bool next_is_own = false;	 /* it is registered for this statement alone */
static TimestampTz next_message = 0; /* when the message came that it is a part of */

static QueryDesc *pinned_query = NULL; /* the running statement under a pinned snapshot */
static SubTransactionId pinned_level = InvalidSubTransactionId; /* that it was started in */

static ExecutorStart_hook_type previous_executor_start = NULL;
static ExecutorRun_hook_type previous_executor_run = NULL;
static ExecutorFinish_hook_type previous_executor_finish = NULL;
static ExecutorEnd_hook_type previous_executor_end = NULL;

void _PG_init(void);

PG_FUNCTION_INFO_V1(strata_worker_pin_snapshot);
PG_FUNCTION_INFO_V1(strata_worker_use_snapshot);

/* ----------------------------------------------------------------
 * Pins
 * ----------------------------------------------------------------
 */

static void
release_snapshot(Snapshot snapshot)
{
	UnregisterSnapshotFromOwner(snapshot, TopTransactionResourceOwner);
}

static void
forget_next_statement(void)
{
	if (next_statement.snapshot != NULL && next_is_own)
		release_snapshot(next_statement.snapshot);
	next_statement.snapshot = NULL;
}

/* Give back what has a token smaller than `oldest`. */
static void
release_pins(uint64 oldest)
{
	ListCell *lc;

	foreach(lc, pins)
	{
		Pin *pin = lfirst(lc);

		if (pin->token >= oldest)
			continue;
		release_snapshot(pin->snapshot);
		pins = foreach_delete_current(pins, lc);
		pfree(pin);
	}
}

/* The next statement runs under a pin that is kept. */
static void
use_pin(const Pin *pin)
{
	next_message = GetCurrentStatementStartTimestamp();
	next_statement = *pin;
	next_is_own = false;
}

static void
keep_pin(uint64 token, Snapshot snapshot)
{
	MemoryContext previous = MemoryContextSwitchTo(TopTransactionContext);
	Pin *pin = palloc(sizeof(Pin));

	pin->token = token;
	pin->snapshot = RegisterSnapshotOnOwner(snapshot, TopTransactionResourceOwner);
	pin->command = GetCurrentCommandId(false);
	pins = lappend(pins, pin);
	MemoryContextSwitchTo(previous);
	use_pin(pin);
}

/*
 * strata_worker.pin_snapshot(token, oldest): take a snapshot for the next statement, and tell the
 * coordinator.  It is kept unless the token is 0.  Pins with tokens below `oldest` are not needed
 * any more.
 */
Datum
strata_worker_pin_snapshot(PG_FUNCTION_ARGS)
{
	uint64 token = (uint64) PG_GETARG_INT64(0);
	Snapshot snapshot = GetTransactionSnapshot();

	forget_next_statement();
	release_pins((uint64) PG_GETARG_INT64(1));
	if (token != 0)
		keep_pin(token, snapshot);
	else if (!IsolationUsesXactSnapshot())
	{
		next_message = GetCurrentStatementStartTimestamp();
		next_statement.snapshot = RegisterSnapshotOnOwner(snapshot, TopTransactionResourceOwner);
		next_is_own = true;
		next_statement.command = GetCurrentCommandId(false);
	}
	ereport(INFO, (errcode(SNAPSHOT_IS_PINNED), errmsg_internal("snapshot is pinned"),
				   errhidestmt(true), errhidecontext(true)));
	PG_RETURN_VOID();
}

/* The pin that is kept under a token; ERROR when there is none. */
static const Pin *
find_pin(uint64 token)
{
	ListCell *lc;

	foreach(lc, pins)
	{
		const Pin *pin = lfirst(lc);

		if (pin->token == token)
			return pin;
	}
	ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
					errmsg("this transaction has no snapshot " UINT64_FORMAT, token)));
}

Snapshot
pinned_snapshot_find(uint64 token)
{
	return find_pin(token)->snapshot;
}

/*
 * strata_worker.use_snapshot(token): the next statement runs under a pin that was kept; if it changes rows it sees
 * all that this transaction has done.
 */
Datum
strata_worker_use_snapshot(PG_FUNCTION_ARGS)
{
	forget_next_statement();
	use_pin(find_pin((uint64) PG_GETARG_INT64(0)));
	PG_RETURN_VOID();
}

/* ----------------------------------------------------------------
 * Statements
 * ----------------------------------------------------------------
 */

/* Exchange the snapshot of a statement that has not started; ours is active on return. */
static void
replace_snapshot(QueryDesc *query)
{
	bool changes = query->operation != CMD_SELECT || query->plannedstmt->hasModifyingCTE;

	PushCopiedSnapshot(next_statement.snapshot);
	GetActiveSnapshot()->curcid = changes ? GetCurrentCommandId(false) : next_statement.command;
	UnregisterSnapshot(query->snapshot);
	query->snapshot = RegisterSnapshot(GetActiveSnapshot());
	forget_next_statement();
	pinned_query = query;
	pinned_level = GetCurrentSubTransactionId();
}

static void
start_query(QueryDesc *query, int eflags)
{
	/* the text is the client's, not a function's */
	bool pinned = next_statement.snapshot != NULL && query->sourceText == debug_query_string &&
				  next_message == GetCurrentStatementStartTimestamp();

	if (pinned)
		replace_snapshot(query);
	if (previous_executor_start)
		previous_executor_start(query, eflags);
	else
		standard_ExecutorStart(query, eflags);
	if (pinned)
		PopActiveSnapshot();
}

static void
run_query(COMPAT_RUN_ARGUMENTS(query))
{
	bool pinned = query == pinned_query;

	if (pinned)
		PushActiveSnapshot(query->snapshot);
	if (previous_executor_run)
		previous_executor_run(COMPAT_PASS_RUN(query));
	else
		standard_ExecutorRun(COMPAT_PASS_RUN(query));
	if (pinned)
		PopActiveSnapshot();
}

static void
finish_query(QueryDesc *query)
{
	bool pinned = query == pinned_query;

	if (pinned)
		PushActiveSnapshot(query->snapshot);
	if (previous_executor_finish)
		previous_executor_finish(query);
	else
		standard_ExecutorFinish(query);
	if (pinned)
		PopActiveSnapshot();
}

static void
end_query(QueryDesc *query)
{
	if (query == pinned_query)
		pinned_query = NULL;
	if (previous_executor_end)
		previous_executor_end(query);
	else
		standard_ExecutorEnd(query);
}

/* ----------------------------------------------------------------
 * Transactions
 * ----------------------------------------------------------------
 */

static void
end_transaction(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			forget_next_statement();
			release_pins(PG_UINT64_MAX);
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:
		case XACT_EVENT_ABORT:
			/* an abort releases what the resource owner has */
			next_statement.snapshot = NULL;
			pinned_query = NULL;
			pins = NIL;
			break;
		default:
			break;
	}
}

/* The statement that the pin was for was undone, perhaps before it started, or a part inside of it. */
static void
end_subtransaction(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	if (event != SUBXACT_EVENT_ABORT_SUB)
		return;
	forget_next_statement();
	if (pinned_level >= mine)
		pinned_query = NULL;
}

void
_PG_init(void)
{
	static char *version;

	DefineCustomStringVariable("strata_worker.version", "Version of the library that runs.", NULL,
							   &version, STRATA_VERSION, PGC_INTERNAL,
							   GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE, NULL, NULL, NULL);
	previous_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = start_query;
	previous_executor_run = ExecutorRun_hook;
	ExecutorRun_hook = run_query;
	previous_executor_finish = ExecutorFinish_hook;
	ExecutorFinish_hook = finish_query;
	previous_executor_end = ExecutorEnd_hook;
	ExecutorEnd_hook = end_query;
	RegisterXactCallback(end_transaction, NULL);
	RegisterSubXactCallback(end_subtransaction, NULL);
	function_guard_initialize();
	session_mark_initialize();
	caller_initialize();
	own_statement_initialize();
	users_code_initialize();
	constraint_names_initialize();
	partial_upgrade_initialize();
}
