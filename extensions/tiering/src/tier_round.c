/*
 * tier_round.c
 *		The background process that makes the moves of a round.
 *
 * The coordinator starts it every few minutes (strata_tiering.start()) in each database with tables; a round
 * that is still running goes on alone: a session-level advisory lock tells.  Whatever happens to the
 * coordinator, a move that has begun ends here.
 *
 *	1. begin_round(): keeps the heat, cleans up after a server that stopped.
 *	2. plan(): the moves, by the policies that the coordinator sent.
 *	3. Each move: a row of strata_tiering.move says that it runs (committed); the files' numbers are
 *	   committed; the leaf is moved; the row says how it ended.  Before each, a look at the replicas and
 *	   the kill switch.
 *
 * A move that fails (the leaf is in use, the disk is full) is logged and left to a later round.
 */
#include "tier_round.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* Of the advisory lock: nobody else's by convention. */
#define ROUND_LOCK_CLASS 0x73747261
#define ROUND_LOCK_OBJECT 1

/* One move of the plan, as text for the commands that make it. */
typedef struct RoundMove
{
	char *leaf;
	char *parent;
	char *from;
	char *to;
	char *reason;
	char *bytes;
	char *heat;
	const char *with_indexes; /* "true" or "false" */
} RoundMove;

PG_FUNCTION_INFO_V1(strata_tiering_start);

/* start(): see tiers.sql. */
Datum
strata_tiering_start(PG_FUNCTION_ARGS)
{
	BackgroundWorker worker = {0};
	BackgroundWorkerHandle *handle;

	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	snprintf(worker.bgw_library_name, sizeof(worker.bgw_library_name), "strata_tiering");
	snprintf(worker.bgw_function_name, sizeof(worker.bgw_function_name), "strata_tiering_round");
	snprintf(worker.bgw_name, BGW_MAXLEN, "strata tiers of database %u", MyDatabaseId);
	snprintf(worker.bgw_type, BGW_MAXLEN, "strata tiers");
	worker.bgw_main_arg = ObjectIdGetDatum(MyDatabaseId);
	PG_RETURN_BOOL(RegisterDynamicBackgroundWorker(&worker, &handle));
}

/* ---- statements, each a transaction -------------------------------------------------------------- */

static void
begin(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	SPI_connect();
	PushActiveSnapshot(GetTransactionSnapshot());
}

static void
commit(void)
{
	SPI_finish();
	PopActiveSnapshot();
	CommitTransactionCommand();
	pgstat_report_stat(false);
}

/* Runs a statement; its first column of the first row as text in `context`, or NULL. */
static char *
run(MemoryContext context, const char *statement)
{
	char *value = NULL;
	int result = SPI_execute(statement, false, 0);

	if (result < 0)
		elog(ERROR, "could not run \"%s\": %s", statement, SPI_result_code_string(result));
	if (SPI_tuptable != NULL && SPI_processed > 0)
		value = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	return value == NULL ? NULL : MemoryContextStrdup(context, value);
}

static char *
run_alone(MemoryContext context, const char *statement)
{
	char *value;

	begin();
	value = run(context, statement);
	commit();
	return value;
}

/* After an error: ends the transaction; the message in `context`. */
static char *
recover(MemoryContext context)
{
	ErrorData *error;
	char *message;

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	message = error->detail == NULL ? pstrdup(error->message)
									: psprintf("%s (%s)", error->message, error->detail);
	HOLD_INTERRUPTS();
	/* that a leaf is in use is no news for the log: strata_tiering.move says it */
	if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
		EmitErrorReport();
	FlushErrorState();
	AbortCurrentTransaction();
	FreeErrorData(error);
	RESUME_INTERRUPTS();
	return message;
}

/* ---- the plan ------------------------------------------------------------------------------------ */

static List *
read_plan(MemoryContext context)
{
	List *moves = NIL;
	MemoryContext caller;

	begin();
	if (SPI_execute(
			"SELECT p.leaf, p.parent, p.from_tier, p.to_tier, p.reason, p.bytes, p.heat, "
			"p.index_tier"
			" FROM strata_tiering.plan((SELECT s.value::float8 FROM strata_tiering.setting AS s"
			" WHERE s.name OPERATOR(pg_catalog.=) 'seconds')) AS p"
			" WHERE EXISTS (SELECT FROM strata_tiering.setting AS s"
			" WHERE s.name OPERATOR(pg_catalog.=) 'seconds')",
			false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not plan the moves");
	caller = MemoryContextSwitchTo(context);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple tuple = SPI_tuptable->vals[i];
		TupleDesc descriptor = SPI_tuptable->tupdesc;
		RoundMove *move = palloc(sizeof(RoundMove));

		move->leaf = SPI_getvalue(tuple, descriptor, 1);
		move->parent = SPI_getvalue(tuple, descriptor, 2);
		move->from = SPI_getvalue(tuple, descriptor, 3);
		move->to = SPI_getvalue(tuple, descriptor, 4);
		move->reason = SPI_getvalue(tuple, descriptor, 5);
		move->bytes = SPI_getvalue(tuple, descriptor, 6);
		move->heat = SPI_getvalue(tuple, descriptor, 7);
		/* back to the hot tier they come in any case */
		move->with_indexes = strcmp(SPI_getvalue(tuple, descriptor, 8), "follow") == 0 ||
									 strcmp(move->to, "hot") == 0
								 ? "true"
								 : "false";
		moves = lappend(moves, move);
	}
	MemoryContextSwitchTo(caller);
	commit();
	return moves;
}

/* ---- one move ------------------------------------------------------------------------------------ */

/* Notes that the move begins, if it still may; the id of its row, or NULL. */
static char *
note_begin(MemoryContext context, const RoundMove *move)
{
	return run_alone(
		context,
		psprintf(
			"INSERT INTO strata_tiering.move (leaf, parent, leaf_name, from_tier, to_tier, reason,"
			" bytes, heat) SELECT c.oid, %s, c.relname, '%s', '%s', %s, %s, %s"
			" FROM pg_catalog.pg_class AS c WHERE c.oid OPERATOR(pg_catalog.=) %s"
			" AND strata_tiering.may_move() RETURNING id",
			move->parent, move->from, move->to, quote_literal_cstr(move->reason), move->bytes,
			move->heat, move->leaf));
}

static void
note_end(MemoryContext context, const char *id, const char *state, const char *written,
		 const char *error)
{
	run_alone(context, psprintf("UPDATE strata_tiering.move SET state = '%s', bytes_written = %s,"
								" error = %s, ended = pg_catalog.clock_timestamp()"
								" WHERE id OPERATOR(pg_catalog.=) %s",
								state, written == NULL ? "NULL" : written,
								error == NULL ? "NULL" : quote_literal_cstr(error), id));
}

static void
make_move(MemoryContext context, const RoundMove *move)
{
	char *id = note_begin(context, move);
	char *files;
	char *volatile written = NULL;
	char *volatile error = NULL;

	if (id == NULL)
		return;
	pgstat_report_activity(STATE_RUNNING, psprintf("moving leaf %s to %s", move->leaf, move->to));
	PG_TRY();
	{
		files = run_alone(context, psprintf("SELECT strata_columnar.begin_move(%s, '%s', %s)",
											move->leaf, move->to, move->with_indexes));
		begin();
		written = run(context, psprintf("SELECT strata_columnar.finish_move(%s, '%s', '%s', true,"
										" strata_tiering.move_rate(), 60000, %s)",
										move->leaf, move->to, files, move->with_indexes));
		commit();
	}
	PG_CATCH();
	{
		error = recover(context);
	}
	PG_END_TRY();
	note_end(context, id, error == NULL ? "done" : "failed", written, error);
	pgstat_report_activity(STATE_IDLE, NULL);
}

/* ---- the process --------------------------------------------------------------------------------- */

/* Is this the only round of the database?  Until the process ends. */
static bool
become_round(void)
{
	LOCKTAG tag;
	bool alone;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, ROUND_LOCK_CLASS, ROUND_LOCK_OBJECT, 2);
	alone = LockAcquire(&tag, ExclusiveLock, true, true) != LOCKACQUIRE_NOT_AVAIL;
	CommitTransactionCommand();
	return alone;
}

static void
release_round(int code, Datum argument)
{
	LOCKTAG tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, ROUND_LOCK_CLASS, ROUND_LOCK_OBJECT, 2);
	LockRelease(&tag, ExclusiveLock, true);
}

/* The extension may have been dropped, or not be there yet. */
static bool
has_extension(MemoryContext context)
{
	return run_alone(context, "SELECT 1 FROM pg_catalog.pg_extension AS e"
							  " WHERE e.extname OPERATOR(pg_catalog.=) 'strata_tiering'") != NULL;
}

void
strata_tiering_round(Datum argument)
{
	MemoryContext context;
	ListCell *cell;

	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(argument), InvalidOid, 0);
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SET, true, 0, false);
	/* see move_columnar_table(): whoever commits on the new files waits for the replicas */
	(void) set_config_option("synchronous_commit", "local", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SET, true, 0, false);
	pgstat_report_appname("strata tiers");
	if (!become_round())
		proc_exit(0);
	before_shmem_exit(release_round, (Datum) 0);

	context = AllocSetContextCreate(TopMemoryContext, "strata tiers", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(context);
	if (!has_extension(context))
		proc_exit(0);
	run_alone(context, "SELECT strata_tiering.begin_round()");
	MemoryContextSwitchTo(context);
	foreach(cell, read_plan(context))
	{
		CHECK_FOR_INTERRUPTS();
		MemoryContextSwitchTo(context);
		make_move(context, lfirst(cell));
	}
	proc_exit(0);
}
