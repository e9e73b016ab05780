/*
 * take_over.c
 *		Epochs: a worker serves one coordinator, and the last one that took over.
 *
 * Two servers that both believe to be the coordinator would resolve each other's transactions: the
 * resolver of one does not know the other's decisions and rolls back.  It happens when a
 * coordinator was replaced by its replica and still runs behind a partition, and when a
 * backup of it is started somewhere.  Both look at the workers with the same cluster id and the same
 * certificates.  The one must succeed without anybody's help, the other one never.
 *
 * What tells them apart:
 *
 *	restart		same timeline, marked (coordinator_mark.c): nothing to do, the epoch is still its own
 *	promotion	another timeline than strata.cluster says, and marked as a standby that was fed by
 *				its primary: takes over, by itself, and is marked as the coordinator
 *	copy		not marked: whether it recovered to a point in time (a new timeline) or was just
 *				started (the old one), or is a copy of the database on this server, it has no
 *				workers.  It says so in its row (timeline is NULL), so that standbys of it do not
 *				take over either.
 *
 * A copy that knows no workers has nothing to share: it becomes a cluster of its own, with another id,
 * so that of two databases made from one template (template1 with the extension, say) neither can
 * claim the other's workers.  One that shall not be the coordinator gets there when its workers are
 * written off in it (lost_worker.c), of which they notice nothing.
 *
 * strata.take_over() is the administrator's word that a copy is the coordinator from now on: after
 * a restore, a move by backup, or pg_upgrade.
 *
 * To take over is, in this order:
 *
 *	1. epoch + 1 and a new holder are committed here, and confirmed by the replica, if there is one;
 *	2. on each worker the epoch is raised, and that is confirmed by its replica: sessions of older
 *	   epochs are refused from now on;
 *	3. there, sessions of older epochs are ended (each is marked: worker/src/session_mark.c); what
 *	   they prepared is the resolver's, what they committed has been committed;
 *	4. then that worker lets ours in.
 *
 * So at no time sessions of two epochs write on one worker, and what an old coordinator decided
 * without its replica's confirmation it never tells a worker (decision_log.c).  Workers are
 * independent of each other: one that cannot be reached hears of it later, before anything else.
 * Sessions wait on the worker for step 4, and here for step 1.
 *
 * Two standbys that are promoted at once get the same epoch, and different holders: each worker
 * serves the first one.  A replica that had not received its primary's last take-over
 * (asynchronous replication) raises to an epoch that the workers have seen, and is refused.
 * Both are for strata.take_over(), which asks the workers first.
 *
 * Steps 2 to 4 are the maintenance worker's, as the bootstrap superuser; users may not raise epochs.
 * After each start it visits every worker once; that changes nothing where the epoch is known, but
 * ends what dead sessions have left there (dead_sessions.c).  So does a visit when a worker is back.
 */
#include "postgres.h"

#include "workers/take_over.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "cluster/cluster_identity.h"
#include "cluster/coordinator_mark.h"
#include "cluster/metadata.h"
#include "cluster/retry.h"
#include "cluster/worker_state.h"
#include "server/clock.h"
#include "server/launcher.h"
#include "server/service_transaction.h"
#include "server/subtransaction.h"
#include "stream/try_command.h"
#include "transaction/remote_transaction.h"
#include "values/row_format.h"
#include "wire/connection_internal.h"
#include "wire/wire_cleanup.h"
#include "workers/dead_sessions.h"

/* The longest distance of visits to a worker that could not be told. */
#define LONGEST_RETRY_MS 5000

/* While it is down: how often we look whether it is up. */
#define DOWN_LOOK_MS 200

/* How long a worker may take to end older sessions: longer than it tries. */
#define FENCE_TIMEOUT_MS 15000

/* What the maintenance worker remembers of a worker. */
typedef struct Telling
{
	Retry retry;
	int64 epoch;	/* that it was told */
	uint32 returns; /* how often it had come back then, as the heartbeat counts */
} Telling;

static List *tellings = NIL; /* of Telling */
static bool has_run = false;
static uint32 seen_requests = 0;
static uint32 seen_returns = 0; /* of all workers: those that were added since are in no telling */
static bool request_at_commit = false;

PG_FUNCTION_INFO_V1(strata_claim_server);
PG_FUNCTION_INFO_V1(strata_take_over);

/* Change the row; the lock keeps DDL from doing so at the same time (remote_ddl.c). */
static void
update_row(const char *assignments)
{
	int level = row_format_enter_sql_mode();

	LockRelationOid(metadata_catalog_oid("cluster"), ShareUpdateExclusiveLock);
	SPI_connect();
	if (SPI_execute(psprintf("UPDATE strata.cluster SET %s", assignments), false, 0) !=
			SPI_OK_UPDATE ||
		SPI_processed != 1)
		elog(ERROR, "could not update strata.cluster");
	SPI_finish();
	row_format_leave_sql_mode(level);
}

static void
raise_epoch(int64 epoch)
{
	update_row(psprintf("epoch = " INT64_FORMAT ", holder = pg_catalog.gen_random_uuid(), "
						"timeline = %u, database = %u",
						epoch, GetWALInsertionTimeLine(), MyDatabaseId));
	/* a failover must not forget it, whatever the session says */
	if (synchronous_commit < SYNCHRONOUS_COMMIT_REMOTE_FLUSH)
		(void) set_config_option("synchronous_commit", "on", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_LOCAL, true, 0, false);
}

/* pg_upgrade gives collations other OIDs, and the tables' columns know them: so do the groups again. */
static void
find_collations(void)
{
	int level = row_format_enter_sql_mode();

	SPI_connect();
	if (SPI_execute("UPDATE strata.colocation AS g SET key_collation = a.attcollation "
					"FROM strata.distributed_table AS t JOIN pg_catalog.pg_attribute AS a "
					"ON a.attrelid = t.relation AND a.attnum = t.key_attribute "
					"WHERE t.colocation_id = g.colocation_id AND a.attcollation <> g.key_collation",
					false, 0) != SPI_OK_UPDATE)
		elog(ERROR, "could not update strata.colocation");
	SPI_finish();
	row_format_leave_sql_mode(level);
	CacheInvalidateRelcacheByRelid(metadata_catalog_oid("colocation"));
}

/* Take another id; nobody knows it yet. */
static void
found_cluster(void)
{
	coordinator_mark_make();
	raise_epoch(1);
	update_row("id = pg_catalog.gen_random_uuid()");
}

/* ----------------------------------------------------------------
 * The maintenance worker tells the workers
 * ----------------------------------------------------------------
 */

static uint32
count_returns(int worker_id)
{
	WorkerState state;

	(void) worker_state_get(worker_id, &state);
	return state.returns;
}

int
take_over_interval_ms(void)
{
	TimestampTz now = GetCurrentTimestamp();
	long wait = 3600 * 1000;
	ListCell *cell;

	if (!has_run || cluster_identity_requests() != seen_requests ||
		worker_state_all_returns() != seen_returns)
		return 0;
	foreach(cell, tellings)
	{
		const Telling *telling = lfirst(cell);

		if (telling->retry.distance_ms > 0)
			wait = Min(wait, Max(TimestampDifferenceMilliseconds(now, telling->retry.next), 1));
	}
	return (int) wait;
}

/* Open a wire that greets the worker in this way; a wire that there is is closed. */
static WorkerConnection *
open_greeting(int worker_id, ConnectionGreeting greeting)
{
	WorkerConnection *volatile conn;

	connection_drop_worker(worker_id);
	connection_set_greeting(greeting);
	PG_TRY();
	{
		conn = connection_open_as(worker_id, GetUserId());
	}
	PG_FINALLY();
	{
		connection_set_greeting(CONNECTION_GREETING_MEMBER);
	}
	PG_END_TRY();
	return conn;
}

/*
 * The wire is closed afterwards: it has no mark, and no later coordinator would find it.  Another one has, by which the worker's own
 * administrator sees that it is in use (strata_worker.leave_cluster()).
 */
static void
tell_worker(int worker_id, const ClusterIdentity *identity)
{
	WorkerConnection *conn = open_greeting(worker_id, CONNECTION_GREETING_ATTACH);
	char *sql = psprintf("SELECT strata_worker.end_older_sessions(" INT64_FORMAT ")",
						 identity->epoch);
	int64 deadline = clock_now() + FENCE_TIMEOUT_MS;
	PGresult *result;

	connection_send(conn, sql, 0, sql);
	while ((result = connection_get_result_until(conn, deadline)) != NULL)
	{
		int ended;

		if (PQresultStatus(result) != PGRES_TUPLES_OK)
			connection_report(ERROR, conn, result, NULL);
		ended = atoi(PQgetvalue(result, 0, 0));
		PQclear(result);
		if (ended > 0)
			ereport(LOG, (errmsg("worker \"%s\" ended %d sessions of an older coordinator",
								 conn->worker_name, ended)));
	}
	dead_sessions_end(conn, deadline);
	connection_drop_worker(worker_id);
	(void) connection_open_as(worker_id, GetUserId());
}

static void
note_failure(Telling *telling, const ErrorData *error)
{
	retry_postpone(&telling->retry, LONGEST_RETRY_MS);
	if (retry_is_new_complaint(&telling->retry, error))
		ereport(LOG, (errmsg("could not take over a worker: %s", error->message),
					  error->detail ? errdetail_internal("%s", error->detail) : 0,
					  error->hint ? errhint("%s", error->hint) : 0));
}

typedef struct Attempt
{
	int worker_id;
	const ClusterIdentity *identity;
} Attempt;

static void
run_attempt(void *argument)
{
	const Attempt *attempt = argument;

	tell_worker(attempt->worker_id, attempt->identity);
}

/* In a subtransaction: one that fails does not keep others from being told. */
static void
try_worker(Telling *telling, const ClusterIdentity *identity)
{
	Attempt attempt = {telling->retry.worker_id, identity};
	uint32 returns = count_returns(telling->retry.worker_id);
	ErrorData *error = subtransaction_try(run_attempt, &attempt);

	if (error == NULL)
	{
		telling->epoch = identity->epoch;
		telling->returns = returns;
		telling->retry.distance_ms = 0;
		telling->retry.complaint[0] = '\0';
		return;
	}
	connection_drop_worker(telling->retry.worker_id);
	note_failure(telling, error);
	FreeErrorData(error);
}

/* One that is down is told as soon as it is up. */
static void
postpone(Telling *telling)
{
	telling->retry.distance_ms = Max(telling->retry.distance_ms, RETRY_FIRST_MS);
	telling->retry.next = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), DOWN_LOOK_MS);
}

/* Somebody was refused: what the workers know may not be what they were told. */
static void
take_requests(void)
{
	uint32 now = cluster_identity_requests();
	ListCell *cell;

	if (now == seen_requests)
		return;
	seen_requests = now;
	foreach(cell, tellings)
		((Telling *) lfirst(cell))->epoch = 0;
}

static void
tell_workers(const ClusterIdentity *identity)
{
	Bitmapset *workers = bms_copy(metadata_all_workers());
	int worker_id = -1;

	retry_forget_others(&tellings, workers); /* nobody counts their returns */
	while ((worker_id = bms_next_member(workers, worker_id)) >= 0)
	{
		Telling *telling = retry_find(&tellings, worker_id, sizeof(Telling));

		if (telling->epoch == identity->epoch && telling->returns == count_returns(worker_id))
			continue;
		if (worker_state_is_down(worker_id))
			postpone(telling);
		else if (telling->retry.distance_ms == 0 || telling->retry.next <= GetCurrentTimestamp())
			try_worker(telling, identity);
	}
}

void
take_over_run(void)
{
	ClusterIdentity identity;

	has_run = true;
	seen_returns = worker_state_all_returns();
	take_requests();
	cluster_identity_read(&identity);
	if (identity.timeline == 0 || !cluster_identity_is_member(&identity))
		retry_forget_others(&tellings, NULL); /* it has none */
	if (cluster_identity_is_free_copy(&identity))
	{
		ereport(LOG, (errmsg("this database is a copy without workers and becomes a cluster of its "
							 "own")));
		found_cluster();
		return;
	}
	if (identity.timeline == 0)
		return;
	if (!cluster_identity_is_member(&identity))
	{
		ereport(WARNING, (errmsg("this server is a copy of a coordinator and gets no workers"),
						  errdetail("Its data directory came from a backup, or the like."),
						  errhint("If it shall be the coordinator from now on, run SELECT "
								  "strata.take_over().")));
		update_row("timeline = NULL");
		return;
	}
	if (identity.timeline == GetWALInsertionTimeLine())
	{
		tell_workers(&identity);
		return;
	}
	ereport(LOG, (errmsg("taking over the workers with epoch " INT64_FORMAT, identity.epoch + 1),
				  errdetail("This server was promoted: timeline %u follows " INT64_FORMAT ".",
							GetWALInsertionTimeLine(), identity.timeline)));
	coordinator_mark_make();
	raise_epoch(identity.epoch + 1);
	service_transaction_next(); /* no worker hears of what could be forgotten */
	cluster_identity_read(&identity);
	tell_workers(&identity);
}

/* ----------------------------------------------------------------
 * The administrator's word
 * ----------------------------------------------------------------
 */

/* strata.claim_server(): for CREATE EXTENSION */
Datum
strata_claim_server(PG_FUNCTION_ARGS)
{
	coordinator_mark_make();
	PG_RETURN_INT64(GetWALInsertionTimeLine());
}

/* Ask a worker that may refuse us. */
static WorkerAnswer
ask_stranger(int worker_id, const char *sql)
{
	WorkerAnswer answer;

	connection_drop_worker(worker_id);
	connection_set_greeting(CONNECTION_GREETING_NONE);
	PG_TRY();
	{
		answer = try_command(worker_id, REMOTE_READ, sql);
	}
	PG_FINALLY();
	{
		connection_set_greeting(CONNECTION_GREETING_MEMBER);
		connection_drop_worker(worker_id);
	}
	PG_END_TRY();
	return answer;
}

/* One that was restored to an earlier time than the workers does not know of their last changes of the schema. */
static void
warn_of_newer_schema(int worker_id, int64 theirs, int64 ours)
{
	if (theirs > ours)
		ereport(
			WARNING,
			(errmsg("worker \"%s\" has changes of the schema that this coordinator does not know",
					metadata_worker(worker_id)->name),
			 errdetail("It has change number " INT64_FORMAT ", and this coordinator " INT64_FORMAT
					   ".",
					   theirs, ours),
			 errhint(
				 "It is not used before SELECT strata.adopt_shards() has looked for shards that "
				 "have moved since. strata.check_health() tells then what else differs.")));
}

/* The highest epoch that the workers have seen of this cluster; WARNING of those that know more than this server. */
static int64
find_last_epoch(const ClusterIdentity *identity)
{
	const Bitmapset *workers = metadata_all_workers();
	char *sql = psprintf(
		"SELECT c.epoch || ' ' || "
		"(SELECT coalesce(max(v.version >> 32), 0) FROM strata_worker.schema_version AS v) "
		"FROM strata_worker.cluster AS c WHERE c.id = '%s'",
		identity->id);
	int64 last = identity->epoch;
	int worker_id = -1;

	while ((worker_id = bms_next_member(workers, worker_id)) >= 0)
	{
		WorkerAnswer answer = ask_stranger(worker_id, sql);

		if (!answer.success)
			ereport(
				WARNING,
				(errmsg("worker \"%s\" could not be asked for its epoch",
						metadata_worker(worker_id)->name),
				 errdetail_internal("%s", answer.error->message),
				 errhint("If it refuses this coordinator later, run strata.take_over() again.")));
		else if (answer.value != NULL)
		{
			char *rest = NULL;

			last = Max(last, strtoi64(answer.value, &rest, 10));
			warn_of_newer_schema(worker_id, strtoi64(rest, NULL, 10),
								 SCHEMA_CHANGE_OF(identity->schema_version));
		}
	}
	return last;
}

/* strata.take_over() */
Datum
strata_take_over(PG_FUNCTION_ARGS)
{
	ClusterIdentity identity;
	int64 epoch;

	PreventCommandDuringRecovery("strata.take_over()");
	PreventCommandIfReadOnly("strata.take_over()");
	if (remote_transaction_has_begun())
		ereport(ERROR, (errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
						errmsg("cannot take over in a transaction that has used workers")));
	cluster_identity_read(&identity);
	if (cluster_identity_is_free_copy(&identity))
	{
		found_cluster();
		PG_RETURN_INT64(1);
	}
	epoch = find_last_epoch(&identity) + 1;
	coordinator_mark_make();
	raise_epoch(epoch);
	find_collations();
	request_at_commit = true;
	PG_RETURN_INT64(epoch);
}

void
take_over_transaction_event(XactEvent event)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT)
		return;
	if (request_at_commit && event == XACT_EVENT_COMMIT)
		cluster_identity_request();
	request_at_commit = false;
}
