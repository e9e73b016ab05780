/*
 * worker_check.c
 *		First contact with a server that is to become a worker.
 *
 * The session's connections (connection.c) greet a worker as a member of the
 * cluster, which this server is not yet: so a connection of its own checks it and
 * makes it one.  What is done here commits at once.  That is harmless: an attached
 * server that strata.worker does not know is not used, and can be added again.
 *
 * What must be equal on both sides is asked with one SQL text here and there, and
 * compared column by column.  Waiting is interruptible, and bounded: by strata.connect_timeout until
 * one of the hosts has logged us in, by strata.worker_timeout for an answer (locks are waited for in
 * addition, as an installation of the extension may meet another one).
 */
#include "postgres.h"

#include "commands/dbcommands.h"
#include "executor/spi.h"
#include "libpq-fe.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/wait_event.h"

#include "cluster/cluster_identity.h"
#include "cluster/local_extension.h"
#include "server/clock.h"
#include "server/settings.h"
#include "values/row_format.h"
#include "wire/connection_internal.h"
#include "wire/host_connect.h"
#include "workers/worker_check.h"

/* So long its commands may wait for locks; and for one answer, where worker_timeout is off. */
#define LOCK_TIMEOUT_MS 30000
#define COMMAND_LIMIT_MS 60000

typedef struct WorkerCheck
{
	const char *name; /* of the worker to be */
	HostConnect *connect;
	PGconn *pg; /* logged in; the attempt's */
} WorkerCheck;

static WaitEventSet *check_set = NULL;

/* ---------------------------------------------------------------- connection strings */

/* name: of the worker, NULL when it is not known. */
static PQconninfoOption *
parse_conninfo(const char *name, const char *conninfo)
{
	char *message = NULL;
	PQconninfoOption *options = PQconninfoParse(conninfo, &message);

	if (options == NULL)
	{
		char *detail = message != NULL ? pchomp(message) : pstrdup("out of memory");

		PQfreemem(message);
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						name != NULL ? errmsg("invalid connection string for worker \"%s\"", name)
									 : errmsg("invalid connection string"),
						errdetail_internal("%s", detail),
						errhint("Write it like 'host=10.0.0.5 port=5432'.")));
	}
	return options;
}

/* Value of an option, palloc'd; NULL when it is not given or empty. */
static char *
get_option(PQconninfoOption *options, const char *keyword)
{
	for (PQconninfoOption *option = options; option->keyword != NULL; option++)
	{
		if (strcmp(option->keyword, keyword) == 0)
			return option->val != NULL && option->val[0] != '\0' ? pstrdup(option->val) : NULL;
	}
	return NULL;
}

/* Append keyword='value' as libpq reads it. */
static void
append_option(StringInfo conninfo, const char *keyword, const char *value)
{
	appendStringInfo(conninfo, "%s%s='", conninfo->len > 0 ? " " : "", keyword);
	for (const char *c = value; *c != '\0'; c++)
	{
		if (*c == '\'' || *c == '\\')
			appendStringInfoChar(conninfo, '\\');
		appendStringInfoChar(conninfo, *c);
	}
	appendStringInfoChar(conninfo, '\'');
}

/* The parameter that holds a secret, or NULL: libpq knows which ones do. */
static const char *
find_secret(const PQconninfoOption *options)
{
	for (const PQconninfoOption *option = options; option->keyword != NULL; option++)
	{
		if (strcmp(option->dispchar, "*") == 0 && option->val != NULL && option->val[0] != '\0')
			return pstrdup(option->keyword);
	}
	return NULL;
}

char *
worker_check_normalize(const char *name, const char *conninfo)
{
	PQconninfoOption *options = parse_conninfo(name, conninfo);
	StringInfoData result;
	char *hosts = get_option(options, "host");
	char *hostaddrs = get_option(options, "hostaddr");
	bool has_user = get_option(options, "user") != NULL;
	const char *secret = find_secret(options);

	initStringInfo(&result);
	for (PQconninfoOption *option = options; option->keyword != NULL; option++)
	{
		if (option->val != NULL && option->val[0] != '\0')
			append_option(&result, option->keyword, option->val);
	}
	if (get_option(options, "dbname") == NULL)
		append_option(&result, "dbname", get_database_name(MyDatabaseId));
	if (((hosts != NULL && strchr(hosts, ',') != NULL) ||
		 (hostaddrs != NULL && strchr(hostaddrs, ',') != NULL)) &&
		get_option(options, "target_session_attrs") == NULL)
		append_option(&result, "target_session_attrs", "read-write");
	PQconninfoFree(options);

	if (has_user)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("the connection string of worker \"%s\" must not name a user", name),
						errdetail("Every session logs in as its own role.")));
	if (secret != NULL)
		ereport(
			ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("the connection string of worker \"%s\" must not contain a password", name),
			 errdetail("Parameter \"%s\" is a secret, and every session logs in as its own role.",
					   secret),
			 errhint("Use a password file (passfile=...) or certificates.")));
	return result.data;
}

/* The n-th part of a comma-separated list, the last one when there are fewer; "" if none. */
static char *
get_list_item(const char *list, int n)
{
	const char *end;

	if (list == NULL)
		return pstrdup("");
	while (n-- > 0 && strchr(list, ',') != NULL)
		list = strchr(list, ',') + 1;
	end = strchr(list, ',');
	return end != NULL ? pnstrdup(list, end - list) : pstrdup(list);
}

char *
worker_check_address(const char *conninfo)
{
	PQconninfoOption *options = parse_conninfo(NULL, conninfo);
	char *hosts = get_option(options, "host");
	char *ports = get_option(options, "port");
	char *database = get_option(options, "dbname");
	StringInfoData address;
	const char *rest;
	int i = 0;

	if (hosts == NULL)
		hosts = get_option(options, "hostaddr");
	PQconninfoFree(options);

	initStringInfo(&address);
	rest = hosts != NULL ? hosts : "";
	for (;;)
	{
		char *port = get_list_item(ports, i);

		appendStringInfo(&address, "%s%s:%s", i > 0 ? "," : "", get_list_item(hosts, i),
						 port[0] != '\0' ? port : DEF_PGPORT_STR);
		rest = strchr(rest, ',');
		if (rest == NULL)
			break;
		rest++;
		i++;
	}
	appendStringInfo(&address, "/%s", database != NULL ? database : "");
	return address.data;
}

/* ---------------------------------------------------------------- talking */

static void
report_unreachable(const WorkerCheck *server, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
			 errmsg("could not connect to worker \"%s\"", server->name),
			 errdetail_internal("%s", detail),
			 errhint("Check that the server runs, that its pg_hba.conf admits this role from "
					 "here, and that the connection string is right.")));
}

/* Wait for what the server says.  Frozen, it would let us hold the placement lock for ever. */
static void
wait_for_answer(const WorkerCheck *server, int64 deadline)
{
	int64 left = strata_worker_timeout > 0 ? deadline - clock_now() : COMMAND_LIMIT_MS;
	int ready;

	if (left <= 0)
		ereport(ERROR, (errcode(ERRCODE_CONNECTION_FAILURE),
						errmsg("worker \"%s\" does not answer", server->name),
						errdetail("It was given up after %d ms (strata.worker_timeout, and the "
								  "time that it may wait for locks).",
								  strata_worker_timeout + LOCK_TIMEOUT_MS)));
	ready = WaitLatchOrSocket(MyLatch,
							  WL_SOCKET_READABLE | WL_TIMEOUT | WL_LATCH_SET | WL_EXIT_ON_PM_DEATH,
							  PQsocket(server->pg), left, PG_WAIT_EXTENSION);
	if (ready & WL_LATCH_SET)
		connection_handle_latch();
}

/* Wait until one of the hosts can go on, the next one is due, or the time is over. */
static void
wait_for_hosts(WorkerCheck *server, int64 wake_at)
{
	WaitEvent events[8]; /* more come with the next call */
	int occurred;

	/* made anew each time: libpq changes its sockets between polls */
	if (check_set != NULL)
		FreeWaitEventSet(check_set);
	check_set = NULL;
	check_set = connection_make_wait_set(server->connect->count);
	host_connect_add_sockets(server->connect, check_set);
	occurred = WaitEventSetWait(check_set, Max(wake_at - clock_now(), 0), events, lengthof(events),
								PG_WAIT_EXTENSION);
	for (int i = 0; i < occurred; i++)
	{
		if (events[i].events & WL_LATCH_SET)
			connection_handle_latch();
		else
			host_connect_advance(events[i].user_data);
	}
}

/* Log in to the first host that will do, as sessions and the heartbeat do it (host_connect.c). */
static void
open_server(WorkerCheck *server, const char *conninfo)
{
	int64 deadline = clock_now() + (int64) strata_connect_timeout * 1000;
	HostConnectRequest request = {.conninfo = conninfo,
								  .user = GetUserNameFromId(GetUserId(), false),
								  .application_name = "strata add_worker",
								  .preferred_host = -1};

	server->connect = host_connect_create(&request);
	if (server->connect->count == 1)
		server->connect->request.role = "any"; /* check_server() says it better */
	while (server->connect->winner == NULL)
	{
		int64 due = host_connect_begin_due(server->connect);

		if (host_connect_has_failed(server->connect))
			report_unreachable(server, host_connect_describe_failure(server->connect, ""));
		if (clock_now() >= deadline)
			report_unreachable(
				server, host_connect_describe_failure(
							server->connect,
							psprintf("%d s (strata.connect_timeout)", strata_connect_timeout)));
		wait_for_hosts(server, due > 0 ? Min(due, deadline) : deadline);
	}
	server->pg = server->connect->winner->pg;
}

static void
close_server(WorkerCheck *server)
{
	server->pg = NULL;
	if (server->connect != NULL)
		host_connect_free(server->connect);
	server->connect = NULL;
}

/* Raise the server's error as ours. */
static void
report_result(const WorkerCheck *server, PGresult *result, const char *sql)
{
	char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);
	char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);
	int code = state != NULL && strlen(state) == 5
				   ? MAKE_SQLSTATE(state[0], state[1], state[2], state[3], state[4])
				   : ERRCODE_CONNECTION_FAILURE;

	message = message != NULL ? pstrdup(message) : pchomp(PQerrorMessage(server->pg));
	detail = detail != NULL ? pstrdup(detail) : NULL;
	hint = hint != NULL ? pstrdup(hint) : NULL;
	PQclear(result);
	ereport(ERROR, (errcode(code), errmsg_internal("%s", message),
					detail != NULL ? errdetail_internal("%s", detail) : 0,
					hint != NULL ? errhint("%s", hint) : 0,
					errcontext("SQL on worker \"%s\": %s", server->name, sql)));
}

/*
 * Run one command; returns the columns of its first row, palloc'd ("" for NULL), or NULL
 * when there is no row.
 */
static char **
run_query(const WorkerCheck *server, const char *sql)
{
	char **row = NULL;
	PGresult *result;
	int64 deadline = clock_now() + strata_worker_timeout + LOCK_TIMEOUT_MS;

	if (!PQsendQuery(server->pg, sql))
		report_unreachable(server, pchomp(PQerrorMessage(server->pg)));
	for (;;)
	{
		ExecStatusType status;

		while (PQisBusy(server->pg))
		{
			wait_for_answer(server, deadline);
			if (!PQconsumeInput(server->pg))
				report_unreachable(server, pchomp(PQerrorMessage(server->pg)));
		}
		result = PQgetResult(server->pg);
		if (result == NULL)
			return row;
		status = PQresultStatus(result);
		if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
			report_result(server, result, sql);
		if (row == NULL && PQntuples(result) > 0)
		{
			row = palloc(PQnfields(result) * sizeof(char *));
			for (int i = 0; i < PQnfields(result); i++)
				row[i] = pstrdup(PQgetvalue(result, 0, i));
		}
		PQclear(result);
	}
}

/* The same here: the first row of a query on this server. */
static char **
run_local_query(const char *sql)
{
	MemoryContext caller = CurrentMemoryContext;
	int level = row_format_enter_sql_mode();
	char **row = NULL;

	SPI_connect();
	if (SPI_execute(sql, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not execute \"%s\"", sql);
	if (SPI_processed > 0)
	{
		int count = SPI_tuptable->tupdesc->natts;

		row = MemoryContextAlloc(caller, count * sizeof(char *));
		for (int i = 0; i < count; i++)
		{
			char *value = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1);

			row[i] = MemoryContextStrdup(caller, value != NULL ? value : "");
		}
	}
	SPI_finish();
	row_format_leave_sql_mode(level);
	return row;
}

/* ---------------------------------------------------------------- checks */

const char *const worker_check_identity_sql =
	"SELECT system_identifier::text || '/' || pg_catalog.current_database() "
	"FROM pg_catalog.pg_control_system()";

/*
 * What must be equal on both servers: the columns of facts_sql.  A locale's version is
 * the library's, as it is now: rows sorted by several workers are merged here.
 */
static const char *const facts_sql =
	"SELECT (current_setting('server_version_num')::integer / 10000)::text, "
	"pg_encoding_to_char(d.encoding)::text, d.datlocprovider::text, d.datcollate::text, "
	"d.datctype::text, "
	"coalesce(to_jsonb(d) ->> 'daticulocale', to_jsonb(d) ->> 'datlocale', ''), "
	"coalesce(pg_database_collation_actual_version(d.oid), ''), "
	"coalesce((SELECT pg_collation_actual_version(c.oid) FROM pg_collation AS c"
	" WHERE c.collname = 'und-x-icu' AND c.collnamespace = 'pg_catalog'::regnamespace), '') "
	"FROM pg_database AS d WHERE d.datname = current_database()";

static const struct
{
	const char *what;
	const char *hint;
} facts[] = {
	{"PostgreSQL major version", "All servers of a cluster must run the same major version."},
	{"encoding", "Create the worker's database with the coordinator's encoding."},
	{"locale provider", "Create the worker's database with the coordinator's locale."},
	{"collation", "Create the worker's database with the coordinator's locale."},
	{"character type", "Create the worker's database with the coordinator's locale."},
	{"ICU locale", "Create the worker's database with the coordinator's locale."},
	{"collation version", "Install the same version of the operating system's locales."},
	{"ICU version", "Install the same version of ICU."},
};

static void
report_difference(const WorkerCheck *server, const char *what, const char *theirs, const char *ours,
				  const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("worker \"%s\" differs from the coordinator in its %s", server->name, what),
			 errdetail("The worker has \"%s\", the coordinator \"%s\".", theirs, ours),
			 errhint("%s", hint)));
}

/* Each session of the coordinator may have a transaction prepared there. */
static void
check_prepared_transactions(const WorkerCheck *server)
{
	int allowed = atoi(run_query(server, "SELECT current_setting('max_prepared_transactions')")[0]);

	if (allowed == 0)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("worker \"%s\" does not allow prepared transactions", server->name),
						errdetail("Transactions over several workers commit in two phases."),
						errhint("Set max_prepared_transactions there to at least the coordinator's "
								"max_connections, and restart it.")));
	if (allowed < MaxConnections)
		ereport(WARNING,
				(errmsg("worker \"%s\" allows fewer prepared transactions than the coordinator has "
						"connections",
						server->name),
				 errdetail("max_prepared_transactions is %d there, max_connections of the "
						   "coordinator %d: under load, commits over several workers can fail.",
						   allowed, MaxConnections),
				 errhint("Set max_prepared_transactions to at least %d, on its standbys first, and "
						 "restart them.",
						 MaxConnections)));
}

static void
check_server(const WorkerCheck *server, WorkerIdentityCheck check)
{
	char *identity = run_query(server, worker_check_identity_sql)[0];
	char **theirs = run_query(server, facts_sql);
	char **ours = run_local_query(facts_sql);

	for (int i = 0; i < lengthof(facts); i++)
	{
		if (strcmp(theirs[i], ours[i]) != 0)
			report_difference(server, facts[i].what, theirs[i], ours[i], facts[i].hint);
	}

	if (strcmp(identity, run_local_query(worker_check_identity_sql)[0]) == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("worker \"%s\" is the coordinator itself", server->name),
						errdetail("The connection string leads to this very database (or to its "
								  "standby).")));
	if (run_query(server, "SELECT 1 WHERE pg_is_in_recovery()") != NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("worker \"%s\" is a standby", server->name),
						errhint("Name the primary, or all hosts: they are tried until one accepts "
								"writes.")));
	check(identity);
	check_prepared_transactions(server);
}

/* ---------------------------------------------------------------- extensions */

static void
check_available(const WorkerCheck *server, const char *extension)
{
	char *sql = psprintf("SELECT 1 FROM pg_available_extensions WHERE name = %s",
						 quote_literal_cstr(extension));

	if (run_query(server, sql) == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("extension \"%s\" is not available on worker \"%s\"", extension,
							   server->name),
						errhint("Install the extension's files on that server.")));
}

/* Compare an extension's schema and version there with `name`'s here. */
static void
check_extension(const WorkerCheck *server, const char *there, const char *here, bool compare_schema)
{
	const char *query = "SELECT e.extversion::text, n.nspname::text FROM pg_extension AS e "
						"JOIN pg_namespace AS n ON n.oid = e.extnamespace WHERE e.extname = %s";
	char **theirs = run_query(server, psprintf(query, quote_literal_cstr(there)));
	char **ours = run_local_query(psprintf(query, quote_literal_cstr(here)));

	if (strcmp(theirs[0], ours[0]) != 0)
		report_difference(server, psprintf("version of extension \"%s\"", there), theirs[0],
						  ours[0],
						  "Install the same version on both servers and run ALTER EXTENSION ... "
						  "UPDATE where it is older.");
	if (compare_schema && strcmp(theirs[1], ours[1]) != 0)
		report_difference(server, psprintf("schema of extension \"%s\"", there), theirs[1], ours[1],
						  "Use ALTER EXTENSION ... SET SCHEMA on one of them.");
}

static void
install_extensions(const WorkerCheck *server)
{
	char *hll_schema = run_local_query("SELECT n.nspname::text FROM pg_extension AS e "
									   "JOIN pg_namespace AS n ON n.oid = e.extnamespace "
									   "WHERE e.extname = 'hll'")[0];
	char *version = local_extension_own_version();

	check_available(server, "hll");
	for (int i = 0; local_extension_parts[i] != NULL; i++)
		check_available(server, local_extension_parts[i]);
	run_query(server, psprintf("CREATE SCHEMA IF NOT EXISTS %s", quote_identifier(hll_schema)));
	run_query(server, psprintf("CREATE EXTENSION IF NOT EXISTS hll WITH SCHEMA %s",
							   quote_identifier(hll_schema)));
	check_extension(server, "hll", "hll", true);
	/* in our version: the server's files may have a newer one, too */
	for (int i = 0; local_extension_parts[i] != NULL; i++)
	{
		const char *name = local_extension_parts[i];

		run_query(server, psprintf("CREATE EXTENSION IF NOT EXISTS %s VERSION %s", name,
								   quote_literal_cstr(version)));
		check_extension(server, name, "strata", false);
	}
}

/*
 * A server that was written off as lost, or removed while it was down, and came back: it has rows
 * that the cluster has given up, and maybe prepared transactions.  (One whose addition failed has not
 * recorded a version of the schema.)
 */
static void
check_former_member(const WorkerCheck *server, const ClusterIdentity *identity)
{
	if (run_query(server, psprintf("SELECT 1 FROM strata_worker.cluster AS c WHERE c.id = '%s' "
								   "AND EXISTS (SELECT FROM strata_worker.schema_version)",
								   identity->id)) == NULL)
		return;
	ereport(
		ERROR,
		(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
		 errmsg("worker \"%s\" was removed from this cluster and has come back", server->name),
		 errdetail("It was not told of that, and still has what it had then."),
		 errhint("Run SELECT strata_worker.leave_cluster() there, and drop its tables; or use a "
				 "new database.")));
}

static void
prepare_server(WorkerCheck *server, const char *conninfo, WorkerIdentityCheck check)
{
	ClusterIdentity identity;

	cluster_identity_require();
	cluster_identity_read(&identity);
	open_server(server, conninfo);
	run_query(server, "SET search_path = pg_catalog");
	run_query(server, "SET client_min_messages = error");
	run_query(server, psprintf("SET lock_timeout = %d", LOCK_TIMEOUT_MS));
	check_server(server, check);
	install_extensions(server);
	check_former_member(server, &identity);
	run_query(server,
			  psprintf("SELECT strata_worker.attach_coordinator('%s', " INT64_FORMAT ", '%s')",
					   identity.id, identity.epoch, identity.holder));
	run_query(server, psprintf("SELECT strata_worker.end_older_sessions(" INT64_FORMAT ")",
							   identity.epoch));
}

void
worker_check_prepare(const char *name, const char *conninfo, WorkerIdentityCheck check)
{
	WorkerCheck server = {.name = name};

	PG_TRY();
	{
		prepare_server(&server, conninfo, check);
	}
	PG_CATCH();
	{
		close_server(&server);
		PG_RE_THROW();
	}
	PG_END_TRY();
	close_server(&server);
}
