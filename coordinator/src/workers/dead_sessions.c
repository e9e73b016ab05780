/*
 * dead_sessions.c
 *		End what sessions of this coordinator that are gone have left on a worker.
 *
 * A worker whose network was cut, or whose coordinator lost its host, hears no end of its sessions.  They
 * keep their locks until the worker's kernel finds out, which takes strata.worker_timeout; and
 * where something between the two has forgotten the connections but keeps them up, for ever.  So the
 * maintenance worker looks, at the start and whenever a worker is back, at the sessions that
 * have registered there.  Dead are those
 *
 *	of another incarnation	this server has been started since
 *	of ours					if no session here has that backend.
 *
 * The worker is asked first, and only then the map of sessions: a wire is entered there before the
 * worker registers it, so what is not found has been given up.  What such a session was about to
 * prepare or to commit is the resolver's in any case.
 */
#include "postgres.h"

#include "workers/dead_sessions.h"

#include "lib/stringinfo.h"

#include "commit/decision_log.h"
#include "server/incarnation.h"
#include "wire/session_map.h"

#define LIST_SQL "SELECT pid, started, incarnation FROM strata_worker.registered_sessions()"

/* The only result of a query. */
static PGresult *
fetch(WorkerConnection *conn, const char *sql, int64 deadline)
{
	PGresult *rows;
	PGresult *end;

	connection_send(conn, sql, 0, sql);
	rows = connection_get_result_until(conn, deadline);
	if (rows == NULL || PQresultStatus(rows) != PGRES_TUPLES_OK)
		connection_report(ERROR, conn, rows, NULL);
	end = connection_get_result_until(conn, deadline);
	PQclear(end);
	return rows;
}

static bool
is_dead(const WorkerConnection *conn, const PGresult *sessions, int row)
{
	uint64 incarnation = strtou64(PQgetvalue(sessions, row, 2), NULL, 10);

	return incarnation != incarnation_get() ||
		   !session_map_may_serve(conn->worker_id, atoi(PQgetvalue(sessions, row, 0)));
}

void
dead_sessions_end(WorkerConnection *conn, int64 deadline)
{
	PGresult *result = fetch(conn, LIST_SQL, deadline);
	StringInfoData pids;
	StringInfoData starts;
	char *sql;
	int ended;

	initStringInfo(&pids);
	initStringInfo(&starts);
	for (int row = 0; row < PQntuples(result); row++)
	{
		const char *comma = pids.len > 0 ? "," : "";

		if (!is_dead(conn, result, row))
			continue;
		appendStringInfo(&pids, "%s%s", comma, PQgetvalue(result, row, 0));
		appendStringInfo(&starts, "%s%s", comma, PQgetvalue(result, row, 1));
	}
	PQclear(result);
	if (pids.len == 0)
		return;

	sql = psprintf("SELECT strata_worker.end_sessions('{%s}', '{%s}')", pids.data, starts.data);
	result = fetch(conn, sql, deadline);
	ended = atoi(PQgetvalue(result, 0, 0));
	PQclear(result);
	if (ended > 0)
		ereport(LOG, (errmsg("worker \"%s\" ended %d sessions that were left there",
							 conn->worker_name, ended)));
}
