/*
 * connection_pool.c
 *		The session's connections: found, looked at, opened when needed.
 *
 * Structs are keyed by worker (primary or standby) and login, live as long as the session and are
 * reused after a reconnect, so that scans may keep pointers over errors.  A
 * connection is replaced only between transactions: when the worker's conninfo
 * changed, when the socket shows that the worker went away, or when the heartbeat has
 * met another server process behind it.
 *
 * A transaction has one wire to a worker, whoever is the session's user when it is used again; and one to a standby
 * where it has read that.
 */
#include "postgres.h"

#include <poll.h>

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

#include "cluster/metadata.h"
#include "cluster/worker_state.h"
#include "wire/connection_internal.h"
#include "wire/wire_cleanup.h"
#include "wire/worker_use.h"

static List *connections = NIL; /* of WorkerConnection, in TopMemoryContext */

List *
connection_list(void)
{
	return connections;
}

/* Say good-bye, lest the workers log a lost client. */
static void
close_at_exit(int code, Datum arg)
{
	ListCell *lc;

	foreach(lc, connections)
	{
		WorkerConnection *conn = lfirst(lc);

		if (conn->pg != NULL)
			PQfinish(conn->pg);
		conn->pg = NULL;
	}
}

/* The wire over which the running transaction uses the worker; NULL when it does not yet. */
static WorkerConnection *
find_participant(int worker_id, bool standby)
{
	ListCell *lc;

	foreach(lc, connections)
	{
		WorkerConnection *conn = lfirst(lc);

		if (conn->worker_id == worker_id && conn->standby == standby && conn->transaction.depth > 0)
			return conn;
	}
	return NULL;
}

/* The struct for a worker and a login, made if needed. */
static WorkerConnection *
find_connection(int worker_id, bool standby, Oid role)
{
	WorkerConnection *conn;
	MemoryContext previous;
	ListCell *lc;

	foreach(lc, connections)
	{
		conn = lfirst(lc);
		if (conn->worker_id == worker_id && conn->standby == standby && conn->role == role)
			return conn;
	}

	if (connections == NIL)
		on_proc_exit(close_at_exit, (Datum) 0);
	previous = MemoryContextSwitchTo(TopMemoryContext);
	conn = palloc0(sizeof(WorkerConnection));
	conn->worker_id = worker_id;
	conn->standby = standby;
	conn->role = role;
	conn->worker_name = pstrdup(metadata_worker(worker_id)->name);
	wire_cleanup_reserve(list_length(connections) + 1);
	connections = lappend(connections, conn);
	MemoryContextSwitchTo(previous);
	return conn;
}

bool
connection_is_closed(WorkerConnection *conn)
{
	for (int i = 0; i < 8; i++)
	{
		struct pollfd probe = {.fd = PQsocket(conn->pg), .events = POLLIN};

		if (PQstatus(conn->pg) != CONNECTION_OK || probe.fd < 0)
			return true;
		if (poll(&probe, 1, 0) <= 0)
			return false;
		if (!connection_consume(conn))
			return true;
		(void) PQisBusy(conn->pg); /* lets libpq parse what was read */
	}
	return false;
}

/*
 * Does the wire lead to where the worker is now?  A host that was powered off breaks no wire.
 * To connect anew to a silent worker takes no longer than connect_timeout.  Of a wire that was made before the
 * heartbeat's first answer (generation 0) nobody knows: the worker may have moved since.  A standby is read also while
 * its primary is silent, and left when another server has become the primary, because that may be it.
 */
static bool
is_current(WorkerConnection *conn)
{
	WorkerState state;

	if (!worker_state_get(conn->worker_id, &state))
		return true;
	if (state.status == WORKER_DOWN && state.unanswered_since != 0 && !conn->standby)
		return false;
	return state.generation == 0 || conn->generation == state.generation;
}

/*
 * Can the connection be used as it is?  If not it is closed; ERROR when that would tear
 * a running transaction apart.
 */
static bool
check_connection(WorkerConnection *conn)
{
	const Worker *worker;

	if (conn->pg == NULL)
		return false;
	if (conn->transaction.depth > 0)
	{
		if (PQstatus(conn->pg) != CONNECTION_OK)
			connection_report(ERROR, conn, NULL, NULL);
		return true;
	}

	worker = metadata_worker(conn->worker_id);
	if (strcmp(conn->conninfo, worker->conninfo) == 0 && is_current(conn) &&
		conn->hold_generation == worker_use_generation(conn) &&
		(conn->unknown_change == 0 || connection_accepts_unknown_changes()))
	{
		connection_settle(conn);
		if (!connection_is_closed(conn) && PQtransactionStatus(conn->pg) == PQTRANS_IDLE)
			return true;
	}

	connection_drop(conn);
	pfree(conn->conninfo);
	conn->conninfo = NULL;
	return false;
}

static WorkerConnection *
find_session_connection(int worker_id, bool standby)
{
	WorkerConnection *conn = find_participant(worker_id, standby);

	return conn != NULL ? conn : find_connection(worker_id, standby, GetSessionUserId());
}

static WorkerConnection *
open_connection(WorkerConnection *conn)
{
	worker_use_join(conn);
	if (!check_connection(conn))
		connection_connect(&conn, 1);
	return conn;
}

WorkerConnection *
connection_open(int worker_id)
{
	return open_connection(find_session_connection(worker_id, false));
}

WorkerConnection *
connection_open_as(int worker_id, Oid role)
{
	return open_connection(find_connection(worker_id, false, role));
}

/* InvalidOid: the session's */
static List *
open_all(const Bitmapset *workers, bool standbys, Oid role)
{
	WorkerConnection **conns = palloc((bms_num_members(workers) + 1) * sizeof(WorkerConnection *));
	List *opened = NIL;
	int count = 0;
	int worker_id = -1;

	while ((worker_id = bms_next_member(workers, worker_id)) >= 0)
	{
		WorkerConnection *conn = OidIsValid(role) ? find_connection(worker_id, standbys, role)
												  : find_session_connection(worker_id, standbys);

		opened = lappend(opened, conn);
		worker_use_join(conn);
		if (!check_connection(conn))
			conns[count++] = conn;
	}
	if (count > 0)
		connection_connect(conns, count);
	pfree(conns);
	return opened;
}

List *
connection_open_all(const Bitmapset *workers)
{
	return open_all(workers, false, InvalidOid);
}

List *
connection_open_standbys(const Bitmapset *workers)
{
	return open_all(workers, true, InvalidOid);
}

int64
connection_newest_change(void)
{
	int64 newest = 0;
	ListCell *lc;

	foreach(lc, connections)
	{
		WorkerConnection *conn = lfirst(lc);

		if (conn->pg != NULL)
			newest = Max(newest, conn->unknown_change);
	}
	return newest;
}

void
connection_open_all_as(const Bitmapset *workers, Oid role)
{
	(void) open_all(workers, false, role);
}
