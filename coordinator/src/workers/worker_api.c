/*
 * worker_api.c
 *		SQL functions that add, remove and address workers.
 *
 * Adding is two steps: the server is checked and prepared over a connection of its
 * own (worker_check.c), then it becomes a worker in the local transaction, with all
 * that the others have (worker_seed.c).  A new worker holds no shards, so no query
 * goes there until a table is distributed or shards move.
 *
 * Both adding and removing hold the placement lock from the beginning.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "cluster/cluster_identity.h"
#include "cluster/metadata.h"
#include "cluster/metadata_write.h"
#include "cluster/worker_state.h"
#include "commit/in_doubt.h"
#include "server/argument.h"
#include "server/clock.h"
#include "server/settings.h"
#include "stream/kept_shard.h"
#include "stream/remote_command.h"
#include "stream/remote_ddl.h"
#include "stream/try_command.h"
#include "wire/connection.h"
#include "workers/lost_worker.h"
#include "workers/worker_api.h"
#include "workers/worker_check.h"
#include "workers/worker_seed.h"

/* The heartbeat notices within its interval and so long that a worker is gone. */
#define HEARTBEAT_NOTICES_MS 4000

PG_FUNCTION_INFO_V1(strata_add_worker);
PG_FUNCTION_INFO_V1(strata_remove_worker);
PG_FUNCTION_INFO_V1(strata_conninfo_address);
PG_FUNCTION_INFO_V1(strata_run_on_worker);

/* ---------------------------------------------------------------- add */

static void
check_new_worker(const char *name, const char *conninfo)
{
	const Bitmapset *workers = metadata_all_workers();
	char *address = worker_check_address(conninfo);
	int worker_id = -1;

	if (name[0] == '\0')
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("the name of a worker must not be empty")));
	while ((worker_id = bms_next_member(workers, worker_id)) >= 0)
	{
		const Worker *worker = metadata_worker(worker_id);

		if (strcmp(worker->name, name) == 0)
			ereport(ERROR, (errcode(ERRCODE_DUPLICATE_OBJECT),
							errmsg("worker \"%s\" already exists", name),
							errdetail("Its address is %s.", worker_check_address(worker->conninfo)),
							errhint("Choose another name.")));
		if (strcmp(worker_check_address(worker->conninfo), address) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_OBJECT),
					 errmsg("worker \"%s\" already has the address %s", worker->name, address)));
	}
}

/*
 * Two addresses may lead to one server.  A worker that does not answer now is not
 * asked: its being down must not stop the cluster from growing.
 */
static void
check_new_server(const char *identity)
{
	const Bitmapset *workers = metadata_all_workers();
	int worker_id = -1;

	while ((worker_id = bms_next_member(workers, worker_id)) >= 0)
	{
		WorkerAnswer answer = try_command(worker_id, REMOTE_READ, worker_check_identity_sql);

		if (answer.success && answer.value != NULL && strcmp(answer.value, identity) == 0)
			ereport(ERROR, (errcode(ERRCODE_DUPLICATE_OBJECT),
							errmsg("worker \"%s\" already is this server",
								   metadata_worker(worker_id)->name),
							errdetail("Both connection strings lead to the same database.")));
	}
}

/* It holds no shards: say how it gets some. */
static void
tell_of_rebalance(const char *name)
{
	if (metadata_write_tables(CATALOG_KIND_DISTRIBUTED) != NIL)
		ereport(NOTICE,
				(errmsg("worker \"%s\" holds no shards yet", name),
				 errhint("SELECT strata.rebalance_start() moves some of the other workers' there; "
						 "strata.rebalance_plan() shows which.")));
}

Datum
strata_add_worker(PG_FUNCTION_ARGS)
{
	char *name = argument_get_text(fcinfo, 0, "name");
	char *conninfo = worker_check_normalize(name, argument_get_text(fcinfo, 1, "conninfo"));
	int worker_id;

	PreventCommandIfReadOnly("strata.add_worker()");
	cluster_identity_require(); /* which waits for what our locks would keep from happening */
	remote_ddl_lock_for_seed();
	metadata_write_lock_placement();
	check_new_worker(name, conninfo);
	worker_check_prepare(name, conninfo, check_new_server);

	worker_id = metadata_write_add_worker(name, conninfo);
	CommandCounterIncrement();

	/* the statement's own snapshot is older than the DDL that the lock waited for */
	PushActiveSnapshot(GetLatestSnapshot());
	worker_seed(worker_id);
	PopActiveSnapshot();
	in_doubt_look_at_commit();
	remote_ddl_seed_version(worker_id);
	tell_of_rebalance(name);
	PG_RETURN_INT32(worker_id);
}

/* ---------------------------------------------------------------- remove */

int
worker_api_find(const char *name)
{
	const Bitmapset *workers = metadata_all_workers();
	int worker_id = -1;

	while ((worker_id = bms_next_member(workers, worker_id)) >= 0)
	{
		if (strcmp(metadata_worker(worker_id)->name, name) == 0)
			return worker_id;
	}
	ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("worker \"%s\" does not exist", name),
					errhint("SELECT * FROM strata.workers lists the workers.")));
}

/* Does the worker let us in?  Then NULL, else what it, or the network, says. */
static char *
find_trouble(int worker_id)
{
	WorkerAnswer answer = try_command(worker_id, REMOTE_READ, "SELECT 1");

	if (answer.success)
		return NULL;
	if (answer.error->detail == NULL)
		return answer.error->message;
	return psprintf("%s: %s", answer.error->message, answer.error->detail);
}

/* Move its shards to the other workers. */
static void
drain_worker(const char *name)
{
	Oid types[] = {TEXTOID};
	Datum values[] = {CStringGetTextDatum(name)};

	SPI_connect();
	if (SPI_execute_with_args("SELECT strata.move_shard(p.relation, p.shard, p.target)"
							  " FROM strata.rebalance_plan('bytes', $1, 1) AS p",
							  1, types, values, NULL, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not move shards");
	SPI_finish();
}

static void
check_empty(int worker_id)
{
	const char *name = metadata_worker(worker_id)->name;
	const char *example = NULL;
	const char *trouble;
	int tables = 0;
	ListCell *cell;

	foreach(cell, metadata_write_tables(CATALOG_KIND_DISTRIBUTED))
	{
		const DistributedTable *table = metadata_table(lfirst_oid(cell));

		if (table == NULL || !bms_is_member(worker_id, table->colocation->workers))
			continue;
		if (example == NULL)
			example = get_rel_name(table->relation);
		tables++;
	}
	if (tables == 0)
		return;

	trouble = find_trouble(worker_id);
	if (trouble != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE), errmsg("worker \"%s\" still holds shards", name),
				 errdetail_plural("%d table has shards there: \"%s\". It does not answer: %s",
								  "%d tables have shards there, \"%s\" among them. It does not "
								  "answer: %s",
								  tables, tables, example, trouble),
				 errhint("If it is lost for good, with its rows, run SELECT "
						 "strata.remove_worker(%s, lost => true).",
						 quote_literal_cstr(name))));
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE), errmsg("worker \"%s\" still holds shards", name),
			 errdetail_plural("%d table has shards there: \"%s\".",
							  "%d tables have shards there, \"%s\" among them.", tables, tables,
							  example),
			 errhint("SELECT strata.remove_worker(%s, drain => true) moves them to other workers "
					 "before.",
					 quote_literal_cstr(name))));
}

/*
 * Once the worker is unknown nobody ends its prepared transactions, which hold locks there.  One
 * that is gone, and of which nothing is known, can be removed.
 */
static void
check_resolved(int worker_id)
{
	InDoubtEntry *entries;

	if (!in_doubt_is_checked(worker_id) && find_trouble(worker_id) == NULL)
		in_doubt_wait(worker_id);
	if (in_doubt_entries(worker_id, &entries) > 0)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE),
						errmsg("worker \"%s\" has transactions in doubt",
							   metadata_worker(worker_id)->name),
						errdetail("They are to be ended there before it is removed."),
						errhint("Try again when strata.in_doubt no longer shows the worker.")));
}

/* A worker that answers leaves in order: its tables are dropped, and it may join another cluster. */
static void
take_leave(int worker_id)
{
	const char *drop_kept = "SELECT strata_worker.drop_kept_shard('strata_kept'); ";
	WorkerAnswer answer = try_command(worker_id, REMOTE_WRITE,
									  psprintf("%s%sSELECT strata_worker.detach_coordinator('%s')",
											   kept_shard_is_known() ? drop_kept : "",
											   worker_seed_undo_command(),
											   connection_cluster_id()));

	if (answer.success)
		check_resolved(worker_id);
	else
		ereport(WARNING,
				(errcode(answer.error->sqlerrcode),
				 errmsg("worker \"%s\" was not cleaned up", metadata_worker(worker_id)->name),
				 errdetail_internal("%s", answer.error->message),
				 errhint("Before it joins a cluster again, drop its tables and call "
						 "strata_worker.leave_cluster() there.")));
}

/*
 * One that is given up must be gone: whoever still had rows there, or a commit under way, would lose
 * what he was promised.  A worker that only its heartbeat reaches is not gone, nor is one whose
 * standby waits to be promoted.
 */
static void
check_status(int worker_id, const char *detail)
{
	WorkerState state;

	(void) worker_state_get(worker_id, &state);
	if (state.status == WORKER_UP || state.status == WORKER_READ_ONLY)
		ereport(
			ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("worker \"%s\" is not lost: its status is \"%s\"",
					metadata_worker(worker_id)->name, worker_state_status_name(state.status)),
			 errdetail_internal("%s", detail),
			 state.status == WORKER_READ_ONLY
				 ? errhint("Promote its standby; or stop the server, to give up its rows.")
				 : errhint("Repair the access to it; or stop the server, to give up its rows.")));
}

static void
check_gone(int worker_id)
{
	const char *trouble = find_trouble(worker_id);
	int64 deadline = clock_now() + strata_heartbeat_interval + HEARTBEAT_NOTICES_MS;
	WorkerState state;

	if (trouble == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("worker \"%s\" still answers", metadata_worker(worker_id)->name),
				 errdetail("Only a worker that cannot be reached can be given up as lost."),
				 errhint("To remove it, drop or undistribute the tables that have shards there; to "
						 "give it up with its rows, stop its server first.")));
	while (worker_state_get(worker_id, &state) && state.status == WORKER_UP &&
		   clock_now() < deadline)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 100,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	check_status(worker_id, trouble);
}

Datum
strata_remove_worker(PG_FUNCTION_ARGS)
{
	char *name = argument_get_text(fcinfo, 0, "name");
	bool drain = !PG_ARGISNULL(1) && PG_GETARG_BOOL(1);
	bool lost = !PG_ARGISNULL(2) && PG_GETARG_BOOL(2);
	int worker_id;

	PreventCommandIfReadOnly("strata.remove_worker()");
	if (drain && lost)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("a worker that is lost cannot be drained")));
	if (lost)
	{
		worker_id = worker_api_find(name);
		check_gone(worker_id);
		lost_worker_write_off(worker_id);
		check_status(worker_id, "It came back while this command waited for writers.");
	}
	else
	{
		if (drain)
			drain_worker(name);
		metadata_write_lock_placement();
		worker_id = worker_api_find(name);
		check_empty(worker_id);
		take_leave(worker_id);
	}
	in_doubt_forget(worker_id);
	metadata_write_remove_worker(worker_id);
	CommandCounterIncrement();
	PG_RETURN_VOID();
}

/* ---------------------------------------------------------------- commands */

/* run_on_worker(worker_id, command, writes): (success, result) */
Datum
strata_run_on_worker(PG_FUNCTION_ARGS)
{
	char *command = argument_get_text(fcinfo, 1, "command");
	RemoteAccess access = PG_ARGISNULL(2) || PG_GETARG_BOOL(2) ? REMOTE_WRITE : REMOTE_READ;
	int worker_id;
	WorkerAnswer answer;
	const char *result;
	TupleDesc desc;
	Datum values[2];
	bool nulls[2] = {false};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (access == REMOTE_WRITE)
		PreventCommandIfReadOnly("strata.run_command_on_workers()");

	argument_refuse_null(fcinfo, 0, "worker_id");
	worker_id = PG_GETARG_INT32(0);
	metadata_worker(worker_id); /* it must exist */
	answer = try_command(worker_id, access, command);
	result = answer.success ? answer.value : answer.error->message;
	if (!answer.success && answer.error->detail != NULL)
		result = psprintf("%s: %s", result, answer.error->detail);

	values[0] = BoolGetDatum(answer.success);
	nulls[1] = result == NULL;
	values[1] = result != NULL ? CStringGetTextDatum(result) : (Datum) 0;
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

Datum
strata_conninfo_address(PG_FUNCTION_ARGS)
{
	char *conninfo = text_to_cstring(PG_GETARG_TEXT_PP(0));

	PG_RETURN_TEXT_P(cstring_to_text(worker_check_address(conninfo)));
}
