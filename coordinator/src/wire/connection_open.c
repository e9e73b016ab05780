/*
 * connection_open.c
 *		Log in to workers: several at once, without blocking, under one deadline.
 *
 * Each attempt is a small state machine (host_connect.c's log-in to one of the worker's hosts, then our
 * handshake), driven by one loop.  Our handshake pins settings that must not depend on the worker's
 * configuration and asks the worker whether it belongs to this cluster.  Settings
 * that users see are not pinned but propagated, see session_settings.c.
 *
 * If one attempt fails all are given up: the statement needs them all.  The PGconns are
 * closed and their file descriptors released on every way out.
 *
 * A worker commits no DDL that is not committed here.  One that has some which this coordinator does not know proves that the
 * coordinator was restored to an earlier time, or is a replica that its primary's last commits had not reached: shards may
 * be elsewhere since, and an empty place is no error.  So nobody uses it until strata.adopt_shards() has found them, except who
 * does that, and what ends transactions.
 *
 * Where several hosts are named, the one that the heartbeat knows as primary is tried first; for a standby one of the
 * others, by the number of this process, so that sessions spread over them.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "compat.h"
#include "cluster/cluster_identity.h"
#include "cluster/metadata.h"
#include "cluster/worker_state.h"
#include "server/clock.h"
#include "server/incarnation.h"
#include "server/launcher.h"
#include "server/settings.h"
#include "wire/connection_internal.h"
#include "wire/host_connect.h"
#include "wire/session_map.h"
#include "wire/wire_cleanup.h"
#include "wire/worker_use.h"

/*
 * Timeouts are the coordinator's business, which cancels; a warning of the lexer
 * would tell the user about SQL that he has not written.
 */
#define PINNED_SETTINGS                                               \
	"SET idle_in_transaction_session_timeout = 0; "                   \
	"SET idle_session_timeout = 0; SET escape_string_warning = off; " \
	"SET default_transaction_deferrable = off; "                      \
	"SET array_nulls = on; SET xmloption = content; " COMPAT_PINNED_SETTINGS

/* So often a statement on a worker looks whether its coordinator is still there. */
#define CLIENT_CHECK_MS 1000

/* So many seconds a standby is waited for that can be done without. */
#define STANDBY_PATIENCE 1

/* Replay holds locks there as long as it must, be it halted: so long who reads waits for them. */
#define STANDBY_LOCK_MS 1000

/* A connection being made. */
typedef struct Attempt
{
	WorkerConnection *conn;
	const Worker *worker;
	uint32 generation; /* of the worker, before we connected */
	uint32 hold_generation;
	HostConnect *connect;
	PGconn *pg;			  /* logged in, our own handshake runs; still belongs to connect */
	bool introduced;	  /* the worker knows who we are */
	int64 newest_change;  /* the number of its last DDL, 0 if it was not asked */
	int64 unknown_change; /* the same if this coordinator does not know it */
	bool done;
} Attempt;

static WaitEventSet *connect_set = NULL;
static ClusterIdentity identity;
static ConnectionGreeting greeting = CONNECTION_GREETING_MEMBER;
static bool accepting = false;			/* workers' changes that are not known here */
static bool accepting_for_good = false; /* in all transactions */

const char *
connection_cluster_id(void)
{
	cluster_identity_read(&identity);
	return identity.id;
}

void
connection_set_greeting(ConnectionGreeting wanted)
{
	greeting = wanted;
}

void
connection_drop_worker(int worker_id)
{
	ListCell *cell;

	foreach(cell, connection_list())
	{
		WorkerConnection *conn = lfirst(cell);

		if (conn->worker_id == worker_id && conn->pg != NULL)
			connection_drop(conn);
	}
}

static void
start_attempt(Attempt *attempt)
{
	WorkerState state;
	HostConnectRequest request = {.conninfo = attempt->worker->conninfo,
								  .user = GetUserNameFromId(attempt->conn->role, false),
								  .application_name = MyBgworkerEntry != NULL ? "strata maintenance"
																			  : "strata",
								  .receive_notice = connection_receive_notice,
								  .receiver_argument = attempt->conn};

	(void) worker_state_get(attempt->worker->id, &state);
	attempt->generation = state.generation;
	attempt->hold_generation = worker_use_generation(attempt->conn);
	request.preferred_host = state.host;
	if (attempt->conn->standby)
		request.role = "standby";
	attempt->connect = host_connect_create(&request);
	if (attempt->conn->standby && attempt->connect->count > 1)
		attempt->connect->first = (attempt->connect->first + 1 +
								   MyProcPid % (attempt->connect->count - 1)) %
								  attempt->connect->count;
	attempt->connect->owner = attempt;
}

static void
report_failed_attempt(Attempt *attempt, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
			 attempt->conn->standby
				 ? errmsg("could not connect to a standby of worker \"%s\"", attempt->worker->name)
				 : errmsg("could not connect to worker \"%s\"", attempt->worker->name),
			 errdetail_internal("%s", detail)));
}

/*
 * A worker whose coordinator is gone without a word (its host, the network) ends the session, and
 * so its locks, within strata.worker_timeout, also in the middle of a statement.  Of
 * these settings those of TCP have no effect on unix sockets.
 */
static void
append_liveness_settings(StringInfo message)
{
	HostKeepalives keepalives = host_connect_keepalives();

	appendStringInfo(message, "SET client_connection_check_interval = %d; ", CLIENT_CHECK_MS);
	if (keepalives.count > 0)
		appendStringInfo(message,
						 "SET tcp_keepalives_idle = %d; SET tcp_keepalives_interval = %d; "
						 "SET tcp_keepalives_count = %d; SET tcp_user_timeout = %d; ",
						 keepalives.idle, keepalives.interval, keepalives.count,
						 keepalives.user_timeout_ms);
}

/* libpq has logged in: check what text rows rely on, and ask whether the worker is ours. */
static void
begin_handshake(Attempt *attempt)
{
	const char *encoding = PQparameterStatus(attempt->pg, "server_encoding");
	StringInfoData message;

	if (encoding == NULL || strcmp(encoding, GetDatabaseEncodingName()) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("worker \"%s\" has another encoding", attempt->worker->name),
				 errdetail("Its database uses %s, the coordinator's %s.",
						   encoding ? encoding : "an unknown one", GetDatabaseEncodingName()),
				 errhint("Create the worker's database with the coordinator's encoding.")));

	initStringInfo(&message);
	appendStringInfoString(&message, PINNED_SETTINGS);
	append_liveness_settings(&message);
	if (attempt->conn->standby)
		appendStringInfo(&message, "SET lock_timeout = %d; ", STANDBY_LOCK_MS);
	switch (greeting)
	{
		case CONNECTION_GREETING_MEMBER: /* introduce() follows */
			appendStringInfoString(&message,
								   "SET default_transaction_isolation = 'read committed'; "
								   "SET search_path = pg_catalog, pg_temp");
			break;
		case CONNECTION_GREETING_ATTACH:
			appendStringInfo(&message,
							 "SET default_transaction_isolation = 'read committed'; "
							 "SET synchronous_commit = on; BEGIN; "
							 "SELECT strata_worker.attach_coordinator('%s', " INT64_FORMAT
							 ", '%s'); COMMIT",
							 identity.id, identity.epoch, identity.holder);
			break;
		case CONNECTION_GREETING_NONE:
			break;
	}
	PQsetnonblocking(attempt->pg, 1);
	if (!PQsendQuery(attempt->pg, message.data))
		report_failed_attempt(attempt, pchomp(PQerrorMessage(attempt->pg)));
}

void
connection_accept_unknown_changes(bool for_good)
{
	accepting = true;
	accepting_for_good |= for_good;
}

bool
connection_accepts_unknown_changes(void)
{
	return accepting || accepting_for_good;
}

void
connection_open_transaction_event(XactEvent event)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT)
		accepting = false;
}

/*
 * Can the workers tell?  Theirs is the version of the coordinator's SQL, but for the transaction that updates it here first.  A
 * standby is behind, as it may be.
 */
static bool
can_ask_for_changes(void)
{
	HeapTuple tuple;
	bool updated_before;

	if (RecoveryInProgress())
		return false;
	tuple = SearchSysCache3(PROCNAMEARGSNSP, CStringGetDatum("adopt_shards"),
							PointerGetDatum(buildoidvector(NULL, 0)),
							ObjectIdGetDatum(get_namespace_oid("strata", false)));
	if (!HeapTupleIsValid(tuple))
		return false;
	updated_before = !TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data));
	ReleaseSysCache(tuple);
	return updated_before;
}

/* The number of the worker's last DDL, if this coordinator does not know it; else 0.  ERROR unless that is accepted. */
static int64
check_newest_change(const Attempt *attempt)
{
	int64 ours;

	if (attempt->newest_change <= SCHEMA_CHANGE_OF(identity.schema_version))
		return 0;
	cluster_identity_read(&identity); /* some may have been committed since we asked */
	ours = SCHEMA_CHANGE_OF(identity.schema_version);
	if (attempt->newest_change <= ours)
		return 0;
	if (!connection_accepts_unknown_changes())
		ereport(
			ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("worker \"%s\" has changes of the schema that this coordinator does not know",
					attempt->worker->name),
			 errdetail("It has change number " INT64_FORMAT ", and this coordinator " INT64_FORMAT
					   ": it was restored to an earlier time, or was a replica that lacked the "
					   "last commits.",
					   attempt->newest_change, ours),
			 errhint("Run SELECT strata.adopt_shards() as a superuser: it looks for shards that "
					 "have moved since. Other changes are to be repeated, or undone on the "
					 "workers, by hand.")));
	return attempt->newest_change;
}

/*
 * Say who we are.  Who can say so is let to all tables by the worker (worker/src/own_statement.c), and the user whose
 * session this is may see its SQL there: so `holder`, which superusers know, is a parameter.
 */
static void
introduce(Attempt *attempt)
{
	const char *values[] = {identity.id, psprintf(INT64_FORMAT, identity.epoch), identity.holder,
							psprintf(INT64_FORMAT, identity.schema_version),
							psprintf(INT64_FORMAT, (int64) incarnation_get())};
	/* a standby reads the workers, too, and nobody ends its sessions for it, nor those on a worker's standby */
	bool registers = !RecoveryInProgress() && !attempt->conn->standby;
	char *sql = psprintf("SELECT strata_worker.check_coordinator($1, $2, $3), "
						 "strata_worker.check_schema_version($4), %s%s",
						 can_ask_for_changes() ? "strata_worker.newest_change()" : "0",
						 registers ? ", strata_worker.register_session($5)" : "");

	attempt->introduced = true;
	if (!PQsendQueryParams(attempt->pg, sql, registers ? 5 : 4, NULL, values, NULL, NULL, 0))
		report_failed_attempt(attempt, pchomp(PQerrorMessage(attempt->pg)));
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
	if (sqlstate == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE &&
		greeting == CONNECTION_GREETING_MEMBER)
		cluster_identity_request(); /* a worker that was restored may have forgotten who we are */
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
			if (greeting == CONNECTION_GREETING_MEMBER && !attempt->introduced)
			{
				introduce(attempt);
				intact = PQflush(attempt->pg) >= 0;
				continue;
			}
			attempt->done = true;
			return;
		}
		status = PQresultStatus(result);
		if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
			report_refusal(attempt, result);
		if (attempt->introduced && status == PGRES_TUPLES_OK)
			attempt->newest_change = pg_strtoint64(PQgetvalue(result, 0, 2));
		PQclear(result);
	}
}

static void
advance_attempt(HostAttempt *host)
{
	Attempt *attempt = host->connect->owner;

	if (attempt->pg != NULL)
	{
		if (host->pg == attempt->pg)
			advance_handshake(attempt);
		return;
	}
	host_connect_advance(host);
	if (attempt->connect->winner != NULL)
	{
		attempt->pg = attempt->connect->winner->pg;
		attempt->conn->worker_pid = PQbackendPID(attempt->pg);
		session_map_add(attempt->conn); /* before the worker registers it */
		begin_handshake(attempt);
	}
}

/*
 * Begin what is due and wait until one of the attempts can go on.  The set is made anew each
 * time: libpq changes its socket between polls.  Returns the number of events.
 */
static int
wait_for_attempts(Attempt *attempts, int count, WaitEvent *events, int capacity, int64 deadline)
{
	int64 wake_at = deadline;

	for (int i = 0; i < count; i++)
	{
		int64 due = host_connect_begin_due(attempts[i].connect);

		if (host_connect_has_failed(attempts[i].connect))
			report_failed_attempt(&attempts[i],
								  host_connect_describe_failure(attempts[i].connect, ""));
		if (due > 0)
			wake_at = Min(wake_at, due);
	}

	if (connect_set != NULL)
		FreeWaitEventSet(connect_set);
	connect_set = NULL;
	connect_set = connection_make_wait_set(capacity);
	for (int i = 0; i < count; i++)
	{
		if (attempts[i].pg == NULL)
			host_connect_add_sockets(attempts[i].connect, connect_set);
		else if (!attempts[i].done)
			AddWaitEventToSet(connect_set, WL_SOCKET_READABLE, PQsocket(attempts[i].pg), NULL,
							  attempts[i].connect->winner);
	}
	return WaitEventSetWait(connect_set, Max(wake_at - clock_now(), 0), events, capacity + 1,
							PG_WAIT_EXTENSION);
}

/* In seconds.  Primaries stand in for standbys that do not answer soon. */
static int
get_patience(const WorkerConnection *conn)
{
	return conn->standby && strata_read_from == READ_FROM_ANY
			   ? Min(strata_connect_timeout, STANDBY_PATIENCE)
			   : strata_connect_timeout;
}

static void
report_silence(Attempt *attempts, int count)
{
	int patience = get_patience(attempts[0].conn);
	char *timeout = psprintf("%d s%s", patience,
							 patience == strata_connect_timeout ? " (strata.connect_timeout)" : "");

	for (int i = 0; i < count; i++)
	{
		if (!attempts[i].done)
			report_failed_attempt(&attempts[i],
								  host_connect_describe_failure(attempts[i].connect, timeout));
	}
}

static bool
are_all_done(const Attempt *attempts, int count)
{
	for (int i = 0; i < count; i++)
	{
		if (!attempts[i].done)
			return false;
	}
	return true;
}

static void
drive_attempts(Attempt *attempts, int count)
{
	int64 deadline = clock_now() + (int64) get_patience(attempts[0].conn) * 1000;
	int capacity = 0;
	WaitEvent *events;

	for (int i = 0; i < count; i++)
	{
		start_attempt(&attempts[i]);
		capacity += attempts[i].connect->count;
	}
	events = palloc((capacity + 1) * sizeof(WaitEvent));
	while (!are_all_done(attempts, count))
	{
		int occurred;

		if (clock_now() >= deadline)
			report_silence(attempts, count);
		occurred = wait_for_attempts(attempts, count, events, capacity, deadline);
		for (int i = 0; i < occurred; i++)
		{
			if (events[i].events & WL_LATCH_SET)
				connection_handle_latch();
			else
				advance_attempt(events[i].user_data);
		}
	}
	pfree(events);
}

/* The attempt has succeeded: its wire becomes the connection's. */
static void
take_wire(Attempt *attempt)
{
	WorkerConnection *conn = attempt->conn;

	if (conn->conninfo != NULL)
		pfree(conn->conninfo);
	pfree(conn->worker_name);
	conn->conninfo = MemoryContextStrdup(TopMemoryContext, attempt->worker->conninfo);
	conn->worker_name = MemoryContextStrdup(TopMemoryContext, attempt->worker->name);
	conn->generation = attempt->generation;
	conn->hold_generation = attempt->hold_generation;
	conn->stranger = greeting == CONNECTION_GREETING_NONE;
	conn->unknown_change = attempt->unknown_change;
	conn->pg = attempt->pg;
	attempt->connect->winner->pg = NULL;
	host_connect_free(attempt->connect);
	attempt->connect = NULL;
}

void
connection_connect(WorkerConnection **conns, int count)
{
	Attempt *attempts = palloc0(count * sizeof(Attempt));

	if (greeting == CONNECTION_GREETING_MEMBER)
		cluster_identity_require();
	cluster_identity_read(&identity);
	launcher_require();
	for (int i = 0; i < count; i++)
	{
		attempts[i].conn = conns[i];
		attempts[i].worker = metadata_worker(conns[i]->worker_id);
	}

	PG_TRY();
	{
		drive_attempts(attempts, count);
		for (int i = 0; i < count; i++)
			attempts[i].unknown_change = check_newest_change(&attempts[i]);
		for (int i = 0; i < count; i++)
			take_wire(&attempts[i]);
	}
	PG_CATCH();
	{
		for (int i = 0; i < count; i++)
		{
			if (attempts[i].connect == NULL)
				continue;
			if (attempts[i].pg != NULL)
				session_map_remove(conns[i]);
			conns[i]->pg = NULL;
			host_connect_free(attempts[i].connect);
		}
		PG_RE_THROW();
	}
	PG_END_TRY();
	pfree(attempts);
}

WorkerConnection *
connection_try(int worker_id, bool refused)
{
	MemoryContext context = CurrentMemoryContext;
	WorkerConnection *volatile conn = NULL;

	PG_TRY();
	{
		conn = connection_open(worker_id);
	}
	PG_CATCH();
	{
		int sqlstate = geterrcode();
		int category = ERRCODE_TO_CATEGORY(sqlstate);

		if (category != ERRCODE_CONNECTION_EXCEPTION &&
			!(refused && (category == ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION ||
						  sqlstate == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE)))
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		FlushErrorState();
		conn = NULL;
	}
	PG_END_TRY();
	return conn;
}
