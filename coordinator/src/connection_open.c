/*
 * connection_open.c
 *		Log in to workers: several at once, without blocking, under one deadline.
 *
 * Each attempt is a small state machine (libpq's handshake, then ours), driven by
 * one loop.  Our handshake pins settings that must not depend on the worker's
 * configuration and asks the worker whether it belongs to this cluster.  Settings
 * that users see are not pinned but propagated, see session_settings.c.
 *
 * If one attempt fails all are given up: the statement needs them all.  The PGconns are
 * closed and their file descriptors released on every way out.
 *
 * libpq resolves host names with a blocking call; conninfos with hostaddr, or names in
 * /etc/hosts, avoid that.  The deadline is one for all hosts of a multi-host
 * conninfo.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "compat.h"
#include "connection_internal.h"
#include "maintenance_worker.h"
#include "metadata.h"
#include "settings.h"

/* Columns of strata.cluster. */
#define CLUSTER_ID 1
#define CLUSTER_EPOCH 2

/*
 * Timeouts are the coordinator's business, which cancels; a warning of the lexer
 * would tell the user about SQL that he has not written.
 */
#define PINNED_SETTINGS                                                        \
	"SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; " \
	"SET idle_session_timeout = 0; SET escape_string_warning = off; "          \
	"SET default_transaction_deferrable = off; " COMPAT_PINNED_SETTINGS

/* A connection being made. */
typedef struct Attempt
{
	WorkerConnection *conn;
	const Worker *worker;
	PGconn *pg;
	PostgresPollingStatusType poll;
	bool handshaking; /* libpq is done, our own handshake runs */
	bool done;
} Attempt;

static WaitEventSet *connect_set = NULL;
static char cluster_id[UUID_LEN * 2 + 5];
static int64 cluster_epoch;

const char *
connection_cluster_id(int64 *epoch)
{
	Relation catalog;
	SysScanDesc scan;
	HeapTuple tuple;

	catalog = table_open(metadata_catalog_oid("cluster"), AccessShareLock);
	scan = systable_beginscan(catalog, InvalidOid, false, NULL, 0, NULL);
	tuple = systable_getnext(scan);
	if (!HeapTupleIsValid(tuple))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("the cluster has no identity"),
						errdetail("Table strata.cluster is empty.")));
	else
	{
		bool isnull;
		Datum id = heap_getattr(tuple, CLUSTER_ID, RelationGetDescr(catalog), &isnull);

		strlcpy(cluster_id, DatumGetCString(DirectFunctionCall1(uuid_out, id)), sizeof(cluster_id));
		cluster_epoch = DatumGetInt64(
			heap_getattr(tuple, CLUSTER_EPOCH, RelationGetDescr(catalog), &isnull));
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	if (epoch != NULL)
		*epoch = cluster_epoch;
	return cluster_id;
}

static void
start_attempt(Attempt *attempt)
{
	const char *role = GetUserNameFromId(attempt->conn->role, false);
	const char *const keywords[] = {
		"application_name", "tcp_user_timeout", "dbname", "user", "client_encoding", NULL};
	/* the worker's conninfo is expanded at "dbname": what stands behind it cannot be overridden */
	const char *const values[] = {
		"strata", "30000", attempt->worker->conninfo, role, GetDatabaseEncodingName(), NULL};

	if (!AcquireExternalFD())
		ereport(ERROR, (errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
						errmsg("could not connect to worker \"%s\"", attempt->worker->name),
						errdetail("There are too many open files."),
						errhint("Raise max_files_per_process.")));
	attempt->pg = PQconnectStartParams(keywords, values, 1);
	if (attempt->pg == NULL)
	{
		ReleaseExternalFD();
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	}
	PQsetNoticeReceiver(attempt->pg, connection_receive_notice, attempt->conn);
	attempt->poll = PGRES_POLLING_WRITING;
}

static void
report_failed_attempt(Attempt *attempt, const char *detail)
{
	ereport(ERROR, (errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
					errmsg("could not connect to worker \"%s\"", attempt->worker->name),
					errdetail_internal("%s", detail)));
}

/* libpq has logged in: check what text rows rely on, and ask whether the worker is ours. */
static void
begin_handshake(Attempt *attempt)
{
	const char *encoding = PQparameterStatus(attempt->pg, "server_encoding");
	char message[1024];

	if (encoding == NULL || strcmp(encoding, GetDatabaseEncodingName()) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("worker \"%s\" has another encoding", attempt->worker->name),
				 errdetail("Its database uses %s, the coordinator's %s.",
						   encoding ? encoding : "an unknown one", GetDatabaseEncodingName()),
				 errhint("Create the worker's database with the coordinator's encoding.")));

	snprintf(message, sizeof(message),
			 "%sSELECT strata_worker.check_coordinator('%s', " INT64_FORMAT ")", PINNED_SETTINGS,
			 cluster_id, cluster_epoch);
	PQsetnonblocking(attempt->pg, 1);
	if (!PQsendQuery(attempt->pg, message))
		report_failed_attempt(attempt, pchomp(PQerrorMessage(attempt->pg)));
	attempt->handshaking = true;
	attempt->poll = PGRES_POLLING_READING;
}

/* An answer to our handshake that is an error. */
static void
report_refusal(Attempt *attempt, PGresult *result)
{
	int sqlstate = connection_make_sqlstate(PQresultErrorField(result, PG_DIAG_SQLSTATE));

	attempt->conn->pg = attempt->pg; /* for the report; connection_connect() cleans up */
	if (sqlstate == ERRCODE_UNDEFINED_SCHEMA || sqlstate == ERRCODE_UNDEFINED_FUNCTION)
	{
		PQclear(result);
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("worker \"%s\" is not prepared", attempt->worker->name),
						errdetail("Its database does not have the extension strata_worker, or an "
								  "old version of it."),
						errhint("Run CREATE EXTENSION strata_worker in the worker's database.")));
	}
	connection_report(ERROR, attempt->conn, result, "SELECT strata_worker.check_coordinator(...)");
}

static void
advance_handshake(Attempt *attempt)
{
	bool intact = PQconsumeInput(attempt->pg) != 0;

	if (intact && PQflush(attempt->pg) < 0)
		intact = false;
	while (!intact || !PQisBusy(attempt->pg))
	{
		PGresult *result = PQgetResult(attempt->pg);
		ExecStatusType status;

		if (result == NULL)
		{
			if (!intact)
				report_failed_attempt(attempt, pchomp(PQerrorMessage(attempt->pg)));
			attempt->done = true;
			return;
		}
		status = PQresultStatus(result);
		if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
			report_refusal(attempt, result);
		PQclear(result);
	}
}

static void
advance_attempt(Attempt *attempt)
{
	if (attempt->handshaking)
	{
		advance_handshake(attempt);
		return;
	}
	attempt->poll = PQconnectPoll(attempt->pg);
	if (attempt->poll == PGRES_POLLING_FAILED)
		report_failed_attempt(attempt, pchomp(PQerrorMessage(attempt->pg)));
	if (attempt->poll == PGRES_POLLING_OK)
		begin_handshake(attempt);
}

/*
 * Wait until one of the attempts can go on.  The set is made anew each time: libpq changes
 * its socket between polls.  Returns the number of events.
 */
static int
wait_for_attempts(Attempt *attempts, int count, WaitEvent *events, long timeout)
{
	if (connect_set != NULL)
		FreeWaitEventSet(connect_set);
	connect_set = NULL;
	connect_set = connection_make_wait_set(count);
	for (int i = 0; i < count; i++)
	{
		uint32 wanted = WL_SOCKET_READABLE;

		if (attempts[i].done)
			continue;
		if (!attempts[i].handshaking && attempts[i].poll == PGRES_POLLING_WRITING)
			wanted = WL_SOCKET_WRITEABLE;
		if (PQsocket(attempts[i].pg) == PGINVALID_SOCKET)
			report_failed_attempt(&attempts[i], pchomp(PQerrorMessage(attempts[i].pg)));
		AddWaitEventToSet(connect_set, wanted, PQsocket(attempts[i].pg), NULL, &attempts[i]);
	}
	return WaitEventSetWait(connect_set, timeout, events, count + 1, PG_WAIT_EXTENSION);
}

static void
report_silence(Attempt *attempts, int count)
{
	for (int i = 0; i < count; i++)
	{
		if (!attempts[i].done)
			report_failed_attempt(
				&attempts[i], psprintf("It did not answer within %d s (strata.connect_timeout).",
									   strata_connect_timeout));
	}
}

static void
drive_attempts(Attempt *attempts, int count)
{
	WaitEvent *events = palloc((count + 1) * sizeof(WaitEvent));
	TimestampTz deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
													   (int64) strata_connect_timeout * 1000);
	int open = count;

	for (int i = 0; i < count; i++)
	{
		start_attempt(&attempts[i]);
		if (PQstatus(attempts[i].pg) == CONNECTION_BAD)
			report_failed_attempt(&attempts[i], pchomp(PQerrorMessage(attempts[i].pg)));
	}
	while (open > 0)
	{
		long timeout = -1;
		int occurred;

		if (strata_connect_timeout > 0)
		{
			timeout = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), deadline);
			if (timeout <= 0)
				report_silence(attempts, count);
		}
		occurred = wait_for_attempts(attempts, count, events, timeout);
		for (int i = 0; i < occurred; i++)
		{
			if (events[i].events & WL_LATCH_SET)
				connection_handle_latch();
			else
			{
				Attempt *attempt = events[i].user_data;

				advance_attempt(attempt);
				if (attempt->done)
					open--;
			}
		}
	}
	pfree(events);
}

void
connection_connect(WorkerConnection **conns, int count)
{
	Attempt *attempts = palloc0(count * sizeof(Attempt));

	(void) connection_cluster_id(NULL);
	maintenance_worker_require();
	for (int i = 0; i < count; i++)
	{
		attempts[i].conn = conns[i];
		attempts[i].worker = metadata_worker(conns[i]->worker_id);
	}

	PG_TRY();
	{
		drive_attempts(attempts, count);
		for (int i = 0; i < count; i++)
		{
			if (conns[i]->conninfo != NULL)
				pfree(conns[i]->conninfo);
			pfree(conns[i]->worker_name);
			conns[i]->conninfo = MemoryContextStrdup(TopMemoryContext,
													 attempts[i].worker->conninfo);
			conns[i]->worker_name = MemoryContextStrdup(TopMemoryContext, attempts[i].worker->name);
			conns[i]->pg = attempts[i].pg;
			attempts[i].pg = NULL;
		}
	}
	PG_CATCH();
	{
		for (int i = 0; i < count; i++)
		{
			if (attempts[i].pg == NULL)
				continue;
			conns[i]->pg = NULL;
			PQfinish(attempts[i].pg);
			ReleaseExternalFD();
		}
		PG_RE_THROW();
	}
	PG_END_TRY();
	pfree(attempts);
}
