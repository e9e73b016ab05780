/*
 * connection.c
 *		One libpq connection per worker and session: wait, read, report.
 *
 * Core's backend must never sit in a blocking libpq call: a cancel, a
 * statement_timeout or the postmaster's death would not be noticed.  Everything here
 * uses libpq's asynchronous calls and waits in WaitEventSetWait(), which also
 * watches our latch.  The event sets are kept: a stream waits once per 16 kB.
 *
 * Silence.  That a query takes long says nothing about its worker; that the heartbeat waits for
 * an answer does.  Whoever waits looks now and then what the heartbeat knows, and shuts
 * sockets of workers that are silent for longer than strata.worker_timeout: their readers
 * then find a broken wire, whether they may throw or not.
 *
 * libpq allocates with malloc(): a PGresult is freed before anything is thrown.
 * Each PGconn is accounted as an external file descriptor.
 */
#include "postgres.h"

#include <sys/socket.h>

#include "access/xact.h"
#include "catalog/namespace.h"
#include "common/string.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

#include "compat.h"
#include "cluster/worker_state.h"
#include "server/clock.h"
#include "server/settings.h"
#include "wire/connection_internal.h"
#include "wire/error_context.h"
#include "wire/error_names.h"
#include "wire/session_map.h"
#include "wire/session_settings.h"
#include "wire/wire_cleanup.h"

/* So often somebody who waits asks what the heartbeat knows. */
#define SILENCE_CHECK_MS 1000

/* So long a session waits before it tells others for whom: session_map.h. */
#define QUIET_WAIT_MS 100

/* So long a standby may take for a short answer. */
#define STANDBY_ANSWER_MS 1000

/* SQLSTATE of what strata_worker.pin_snapshot() says as soon as it has the snapshot. */
#define SNAPSHOT_IS_PINNED "ST001"

/* The event set last used to wait for several wires. */
typedef struct SharedWait
{
	WaitEventSet *set;
	WorkerConnection **conns;
	pgsocket *sockets;
	WaitEvent *events;
	int count; /* 0 when the set is not valid */
	int capacity;
} SharedWait;

static SharedWait shared_wait;

/* ----------------------------------------------------------------
 * Errors and notices
 * ----------------------------------------------------------------
 */

int
connection_make_sqlstate(const char *text)
{
	if (text == NULL || strlen(text) != 5)
		return ERRCODE_CONNECTION_FAILURE;
	return MAKE_SQLSTATE(text[0], text[1], text[2], text[3], text[4]);
}

/* What a PGresult says about an error, copied so that the result can be freed before we throw. */
typedef struct RemoteError
{
	char *message;
	char *detail;
	char *hint;
	char *context;
	int sqlstate;
	bool fatal; /* the worker's session ended with it */
	char *names[5];
} RemoteError;

/* Names that drivers read from errors. */
static const int name_fields[] = {PG_DIAG_SCHEMA_NAME, PG_DIAG_TABLE_NAME, PG_DIAG_COLUMN_NAME,
								  PG_DIAG_DATATYPE_NAME, PG_DIAG_CONSTRAINT_NAME};

/*
 * A copy of a text from a worker that is valid here.  Code of users runs there and can change client_encoding while its
 * statement lasts; what is no character is replaced.  row_codec.c refuses such rows.
 */
static char *
copy_text(const char *text)
{
	int encoding = GetDatabaseEncoding();
	char *result = pstrdup(text);
	char *rest = result;
	int length = strlen(result);

	while (length > 0)
	{
		int valid = pg_encoding_verifymbstr(encoding, rest, length);

		rest += valid;
		length -= valid;
		if (length > 0)
		{
			*rest++ = '?';
			length--;
		}
	}
	return result;
}

static char *
copy_error_field(const PGresult *result, int field)
{
	const char *value = PQresultErrorField(result, field);

	return value ? copy_text(value) : NULL;
}

bool
connection_is_fatal(const WorkerConnection *conn, const PGresult *result)
{
	const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);

	return PQstatus(conn->pg) != CONNECTION_OK ||
		   (severity != NULL && (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0));
}

static void
copy_error(RemoteError *error, const WorkerConnection *conn, const PGresult *result)
{
	error->fatal = conn->pg == NULL || connection_is_fatal(conn, result);
	error->message = copy_error_field(result, PG_DIAG_MESSAGE_PRIMARY);
	error->detail = copy_error_field(result, PG_DIAG_MESSAGE_DETAIL);
	error->hint = copy_error_field(result, PG_DIAG_MESSAGE_HINT);
	error->context = copy_error_field(result, PG_DIAG_CONTEXT);
	error->sqlstate = connection_make_sqlstate(PQresultErrorField(result, PG_DIAG_SQLSTATE));
	for (int i = 0; i < lengthof(name_fields); i++)
		error->names[i] = copy_error_field(result, name_fields[i]);
}

/* A violated constraint, in the names of the table rather than in its shard's. */
static void
localize_error(RemoteError *error)
{
	ErrorNames names = {.sqlstate = error->sqlstate,
						.message = error->message,
						.detail = error->detail,
						.schema = error->names[0],
						.table = error->names[1],
						.constraint = error->names[4]};

	error_names_localize(&names);
	error->message = names.message;
	error->detail = names.detail;
	error->names[1] = names.table;
	error->names[4] = names.constraint;
}

static void
set_error_names(const RemoteError *error)
{
	for (int i = 0; i < lengthof(name_fields); i++)
	{
		if (error->names[i] != NULL)
			err_generic_string(name_fields[i], error->names[i]);
	}
}

/* Copy at most size - 1 bytes of an SQL text, on a character boundary, with "..." for the rest. */
static void
copy_excerpt(char *target, const char *sql, int size)
{
	int length = strlen(sql);

	if (length < size)
		memcpy(target, sql, length + 1);
	else
	{
		length = pg_mbcliplen(sql, length, size - 4);
		memcpy(target, sql, length);
		strcpy(target + length, "...");
	}
}

static void
report_lost_connection(int elevel, WorkerConnection *conn, const char *reason, const char *sql)
{
	if (conn->silent)
		reason = psprintf("It has not answered for %g s (strata.worker_timeout).",
						  strata_worker_timeout / 1000.0);
	else if ((reason == NULL || reason[0] == '\0') && conn->pg != NULL)
		reason = pchomp(PQerrorMessage(conn->pg));
	ereport(elevel,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("connection to worker \"%s\" was lost", conn->worker_name),
			 error_context_set(conn->worker_name, reason && reason[0] ? reason : NULL, NULL, sql)));
}

void
connection_report(int elevel, WorkerConnection *conn, PGresult *result, const char *sql)
{
	char excerpt[CONNECTION_SQL_EXCERPT];
	char *reason = NULL;
	RemoteError error = {0};

	copy_excerpt(excerpt, sql != NULL ? sql : conn->sql, sizeof(excerpt));
	conn->statement_failed = true;
	if (result != NULL)
	{
		copy_error(&error, conn, result);
		reason = error.message ? error.message : pchomp(PQresultErrorMessage(result));
		PQclear(result);
	}
	if (error.message == NULL || error.fatal)
	{
		report_lost_connection(elevel, conn, reason, excerpt);
		return;
	}
	if (elevel == ERROR && IsTransactionState() &&
		ERRCODE_TO_CATEGORY(error.sqlstate) == ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION)
		localize_error(&error);
	ereport(elevel, (errcode(error.sqlstate), errmsg_internal("%s", error.message),
					 error_context_set(conn->worker_name, error.detail, error.context, excerpt),
					 error.hint ? errhint("%s", error.hint) : 0, set_error_names(&error)));
}

/* Does the text exist in the client's encoding?  Never throws for want of a character. */
static bool
client_can_read(const char *text)
{
	int here = GetDatabaseEncoding();
	int there = pg_get_client_encoding();
	int length;
	int size;
	Oid conversion;
	unsigned char *buffer;

	if (text == NULL || here == there || here == PG_SQL_ASCII || there == PG_SQL_ASCII ||
		pg_is_ascii(text))
		return true;
	conversion = IsTransactionState() ? FindDefaultConversionProc(here, there) : InvalidOid;
	if (!OidIsValid(conversion))
		return false;
	length = strlen(text);
	size = length * MAX_CONVERSION_GROWTH + 1;
	buffer = palloc(size);
	return pg_do_encoding_conversion_buf(conversion, here, there, (unsigned char *) text, length,
										 buffer, size, true) == length;
}

/*
 * libpq calls this while it reads, so it must not throw: libpq would be left in the middle of a message, and what a COMMIT
 * has done would not be known.  A notice that the client's encoding cannot show goes to the log alone.
 */
void
connection_receive_notice(void *arg, const PGresult *result)
{
	WorkerConnection *conn = arg;
	const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
	const char *function = PQresultErrorField(result, PG_DIAG_SOURCE_FUNCTION);
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	char *message;
	char *detail;
	char *hint;
	int elevel;

	/* commit_protocol.c must know; the function's name does not depend on lc_messages */
	if (function != NULL && strcmp(function, "SyncRepWaitForLSN") == 0)
		conn->replica_wait_cancelled = true;
	if (sqlstate != NULL && strcmp(sqlstate, SNAPSHOT_IS_PINNED) == 0)
	{
		conn->snapshot.pinned = true;
		return;
	}
	if (conn->quiet || severity == NULL ||
		PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) == NULL)
		return;

	if (strcmp(severity, "WARNING") == 0)
		elevel = WARNING;
	else if (strcmp(severity, "NOTICE") == 0)
		elevel = NOTICE;
	else if (strcmp(severity, "INFO") == 0)
		elevel = INFO;
	else
		return;

	message = copy_error_field(result, PG_DIAG_MESSAGE_PRIMARY);
	detail = copy_error_field(result, PG_DIAG_MESSAGE_DETAIL);
	hint = copy_error_field(result, PG_DIAG_MESSAGE_HINT);
	if (!client_can_read(message) || !client_can_read(detail) || !client_can_read(hint))
		elevel = LOG_SERVER_ONLY;
	ereport(elevel, (errcode(connection_make_sqlstate(sqlstate)), errmsg_internal("%s", message),
					 detail ? errdetail_internal("%s", detail) : 0, hint ? errhint("%s", hint) : 0,
					 errcontext("worker \"%s\"", conn->worker_name)));
}

/* ----------------------------------------------------------------
 * Waiting
 * ----------------------------------------------------------------
 */

bool
connection_consume(WorkerConnection *conn)
{
	return PQconsumeInput(conn->pg) != 0;
}

/* 0 nothing, else WL_SOCKET_WRITEABLE: is there output that the socket did not take? */
static uint32
flush_output(WorkerConnection *conn)
{
	int pending = PQflush(conn->pg);

	if (pending < 0)
		connection_report(ERROR, conn, NULL, NULL);
	return pending > 0 ? WL_SOCKET_WRITEABLE : 0;
}

WaitEventSet *
connection_make_wait_set(int sockets)
{
	WaitEventSet *set = compat_create_session_wait_event_set(sockets + 2);

	AddWaitEventToSet(set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	return set;
}

void
connection_handle_latch(void)
{
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	session_map_check_victim();
}

/*
 * Wait for the wires' events, or until it is time to look for silent workers.  Who waits for
 * long says so, lest a deadlock last for ever.
 */
static int
wait_for_events(WaitEventSet *set, WaitEvent *events, WorkerConnection **conns, int count)
{
	int occurred = WaitEventSetWait(set, QUIET_WAIT_MS, events, count + 1, PG_WAIT_EXTENSION);

	if (occurred == 0)
	{
		session_map_begin_wait(conns, count, QUIET_WAIT_MS);
		occurred = WaitEventSetWait(set, SILENCE_CHECK_MS, events, count + 1, PG_WAIT_EXTENSION);
	}
	return occurred;
}

/* An event of a wire: read what came. */
static void
receive(WorkerConnection *conn)
{
	session_map_end_wait();
	(void) connection_consume(conn);
}

bool
connection_is_silent(const WorkerConnection *conn)
{
	return strata_worker_timeout > 0 && !conn->standby &&
		   worker_state_silence(conn->worker_id) >= strata_worker_timeout;
}

/* Break off the wires of workers that do not answer; cheap enough for every wait. */
static void
break_silent_wires(WorkerConnection **conns, int count)
{
	static int64 checked_at = 0;
	int64 now;

	if (strata_worker_timeout == 0)
		return;
	now = clock_now();
	if (now - checked_at < SILENCE_CHECK_MS)
		return;
	checked_at = now;
	for (int i = 0; i < count; i++)
	{
		if (!connection_is_silent(conns[i]))
			continue;
		conns[i]->silent = true;
		(void) shutdown(PQsocket(conns[i]->pg), SHUT_RDWR);
	}
}

static void
wait_one(WorkerConnection *conn)
{
	WaitEvent events[2];
	uint32 wanted = WL_SOCKET_READABLE | flush_output(conn);
	int count;

	if (conn->wait_set == NULL)
	{
		conn->wait_set = connection_make_wait_set(1);
		AddWaitEventToSet(conn->wait_set, wanted, PQsocket(conn->pg), NULL, NULL);
	}
	ModifyWaitEvent(conn->wait_set, 2, wanted, NULL);

	count = wait_for_events(conn->wait_set, events, &conn, 1);
	for (int i = 0; i < count; i++)
	{
		if (events[i].events & WL_LATCH_SET)
			connection_handle_latch();
		else
			receive(conn);
	}
}

/* Make shared_wait watch exactly these wires, in this order. */
static void
prepare_shared_wait(WorkerConnection **conns, int count)
{
	bool same = shared_wait.count == count;

	for (int i = 0; i < count && same; i++)
		same = shared_wait.conns[i] == conns[i] && shared_wait.sockets[i] == PQsocket(conns[i]->pg);
	if (same)
		return;

	shared_wait.count = 0;
	if (shared_wait.set != NULL)
	{
		FreeWaitEventSet(shared_wait.set);
		shared_wait.set = NULL;
	}
	if (shared_wait.capacity < count)
	{
		MemoryContext previous = MemoryContextSwitchTo(TopMemoryContext);

		shared_wait.conns = palloc(count * sizeof(WorkerConnection *));
		shared_wait.sockets = palloc(count * sizeof(pgsocket));
		shared_wait.events = palloc((count + 1) * sizeof(WaitEvent));
		shared_wait.capacity = count;
		MemoryContextSwitchTo(previous);
	}
	shared_wait.set = connection_make_wait_set(count);
	for (int i = 0; i < count; i++)
	{
		shared_wait.conns[i] = conns[i];
		shared_wait.sockets[i] = PQsocket(conns[i]->pg);
		AddWaitEventToSet(shared_wait.set, WL_SOCKET_READABLE, shared_wait.sockets[i], NULL,
						  conns[i]);
	}
	shared_wait.count = count;
}

void
connection_wait_any(WorkerConnection **conns, int count)
{
	int occurred;

	/* a broken wire has no socket to wait for; its reader will find the error */
	for (int i = 0; i < count; i++)
	{
		if (PQstatus(conns[i]->pg) == CONNECTION_BAD || PQsocket(conns[i]->pg) == PGINVALID_SOCKET)
			return;
	}
	break_silent_wires(conns, count);
	if (count == 1)
	{
		wait_one(conns[0]);
		return;
	}

	prepare_shared_wait(conns, count);
	for (int i = 0; i < count; i++)
		ModifyWaitEvent(shared_wait.set, i + 2, WL_SOCKET_READABLE | flush_output(conns[i]), NULL);

	occurred = wait_for_events(shared_wait.set, shared_wait.events, conns, count);
	for (int i = 0; i < occurred; i++)
	{
		if (shared_wait.events[i].events & WL_LATCH_SET)
			connection_handle_latch();
		else
			receive(shared_wait.events[i].user_data);
	}
}

/* ----------------------------------------------------------------
 * Results
 * ----------------------------------------------------------------
 */

/* Is a result there (of a broken connection: one with the reason), or the end? */
static bool
has_result(WorkerConnection *conn)
{
	return !PQisBusy(conn->pg) || !connection_consume(conn) || !PQisBusy(conn->pg);
}

/* Take a result of the preamble. */
static void
skip_result(WorkerConnection *conn, PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);

	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
		connection_report(ERROR, conn, result, NULL);
	PQclear(result);
	conn->skip_results--;
}

bool
connection_poll_result(WorkerConnection *conn, PGresult **result)
{
	while (has_result(conn))
	{
		*result = PQgetResult(conn->pg);
		if (*result != NULL)
			connection_note_message(conn, PQresultMemorySize(*result));
		if (*result == NULL || conn->skip_results == 0)
			return true;
		skip_result(conn, *result);
	}
	return false;
}

bool
connection_poll_pin(WorkerConnection *conn)
{
	while (!conn->snapshot.pinned)
	{
		PGresult *result;

		/* parses what has arrived up to the next result, and so hears the message */
		if (!has_result(conn))
			return conn->snapshot.pinned;
		if (conn->snapshot.pinned || conn->skip_results == 0)
			return true;
		result = PQgetResult(conn->pg);
		if (result == NULL)
			return true;
		skip_result(conn, result);
	}
	return true;
}

PGresult *
connection_get_result(WorkerConnection *conn)
{
	PGresult *result;

	while (!connection_poll_result(conn, &result))
		connection_wait_any(&conn, 1);
	return result;
}

bool
connection_await_result(WorkerConnection *conn, int64 deadline, PGresult **result)
{
	bool told = false;

	while (!connection_poll_result(conn, result))
	{
		int64 left = deadline - clock_now();
		int wanted = WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH | WL_SOCKET_READABLE;

		if (left <= 0)
		{
			session_map_end_wait();
			return false;
		}
		if (!told)
			left = Min(left, QUIET_WAIT_MS);
		wanted |= flush_output(conn);
		wanted = WaitLatchOrSocket(MyLatch, wanted, PQsocket(conn->pg), left, PG_WAIT_EXTENSION);
		if (wanted & WL_LATCH_SET)
			connection_handle_latch();
		else if ((wanted & WL_TIMEOUT) && !told)
		{
			session_map_begin_wait(&conn, 1, QUIET_WAIT_MS);
			told = true;
		}
	}
	session_map_end_wait();
	return true;
}

PGresult *
connection_get_result_until(WorkerConnection *conn, int64 deadline)
{
	int64 start = clock_now();
	PGresult *result;

	if (deadline == 0)
		return connection_get_result(conn);
	if (!connection_await_result(conn, deadline, &result))
	{
		conn->statement_failed = true;
		ereport(ERROR, (errcode(ERRCODE_CONNECTION_FAILURE),
						errmsg("worker \"%s\" does not answer", conn->worker_name),
						error_context_set(conn->worker_name,
										  psprintf("It was given up after " INT64_FORMAT " ms.",
												   clock_now() - start),
										  NULL, conn->sql)));
	}
	return result;
}

PGresult *
connection_get_quick_result(WorkerConnection *conn)
{
	bool is_needed = !conn->standby || strata_read_from != READ_FROM_ANY;

	return connection_get_result_until(conn, is_needed ? 0 : clock_now() + STANDBY_ANSWER_MS);
}

void
connection_send(WorkerConnection *conn, const char *message, int skip_results, const char *sql)
{
	copy_excerpt(conn->sql, sql, sizeof(conn->sql));
	conn->skip_results = skip_results;
	conn->statement_failed = false;
	connection_note_message(conn, strlen(message));
	wire_end_renew();
	if (!PQsendQuery(conn->pg, message))
		connection_report(ERROR, conn, NULL, NULL);
}

void
connection_settle(WorkerConnection *conn)
{
	PGresult *result;

	if (!conn->end_pending)
		return;
	while ((result = connection_get_quick_result(conn)) != NULL)
		PQclear(result);
	conn->end_pending = false;
}

void
connection_leave_transaction(WorkerConnection *conn, bool committed)
{
	conn->transaction = (WireTransaction){0};
	if (committed)
		session_settings_committed(conn);
	else
		session_settings_rolled_back(conn);
}

void
connection_discard(WorkerConnection *conn)
{
	while (!wire_drain_arrived(conn))
		connection_wait_any(&conn, 1);
}

void
connection_vacate(WorkerConnection *conn)
{
	WireOccupant *occupant = conn->occupant;

	if (occupant != NULL)
	{
		occupant->yield(occupant);
		Assert(conn->occupant != occupant);
	}
}

void
connection_drop(WorkerConnection *conn)
{
	/* what runs there, or waits, may not hear of our end */
	if (conn->pg != NULL && PQstatus(conn->pg) == CONNECTION_OK &&
		PQtransactionStatus(conn->pg) != PQTRANS_IDLE)
		worker_state_leave_behind(conn->worker_id);
	conn->occupant = NULL;
	conn->skip_results = 0;
	conn->end_pending = false;
	conn->silent = false;
	conn->longest_message = 0;
	conn->transaction = (WireTransaction){0};
	conn->prepared = (WirePrepared){0}; /* the resolver's, if there is one */
	conn->snapshot.command[0] = '\0';
	session_settings_forget(conn);
	shared_wait.count = 0; /* the kernel forgets a closed socket, the set does not */
	if (conn->row != NULL)
	{
		PQfreemem(conn->row);
		conn->row = NULL;
	}
	if (conn->wait_set != NULL)
	{
		FreeWaitEventSet(conn->wait_set);
		conn->wait_set = NULL;
	}
	if (conn->pg != NULL)
	{
		session_map_remove(conn);
		PQfinish(conn->pg);
		conn->pg = NULL;
		ReleaseExternalFD();
	}
}

void
connection_note_message(WorkerConnection *conn, Size length)
{
	conn->longest_message = Max(conn->longest_message, length);
}
