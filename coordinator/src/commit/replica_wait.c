/*
 * replica_wait.c
 *		A worker's replicas have stored a prepared transaction before it is decided, also those that are not synchronous.
 *
 * Any user's transaction may lose its last commits when an asynchronous replica takes over.  One that moves old rows from
 * another worker, which drops them, would lose what was safe for years.  What takes a base backup tells no position, and does
 * not count.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"

#include "commit/replica_wait.h"
#include "server/clock.h"

/* So long they have, and so often they are looked at. */
#define PATIENCE_MS 10000
#define LOOK_MS 5

char *
replica_wait_late_sql(const char *position)
{
	return psprintf("SELECT coalesce(application_name, '') FROM pg_catalog.pg_stat_replication "
					"WHERE state OPERATOR(pg_catalog.=) 'streaming' "
					"AND flush_lsn OPERATOR(pg_catalog.<) '%s' LIMIT 1",
					position);
}

/* The only value of the only row, or NULL. */
static char *
fetch_value(WorkerConnection *conn, const char *sql)
{
	PGresult *result;
	char *value = NULL;

	connection_send(conn, sql, 0, sql);
	while ((result = connection_get_result(conn)) != NULL)
	{
		if (PQresultStatus(result) != PGRES_TUPLES_OK)
			connection_report(ERROR, conn, result, sql);
		if (PQntuples(result) > 0)
			value = pstrdup(PQgetvalue(result, 0, 0));
		PQclear(result);
	}
	return value;
}

void
replica_wait(WorkerConnection *conn)
{
	int64 deadline = clock_now() + PATIENCE_MS;
	char *late = replica_wait_late_sql(
		fetch_value(conn, "SELECT pg_catalog.pg_current_wal_flush_lsn()"));
	char *name;

	while ((name = fetch_value(conn, late)) != NULL)
	{
		if (clock_now() > deadline)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("a replica of worker \"%s\" is late", conn->worker_name),
					 errdetail("Replica \"%s\" has not stored the transaction in %d seconds.", name,
							   PATIENCE_MS / 1000)));
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, LOOK_MS,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}
