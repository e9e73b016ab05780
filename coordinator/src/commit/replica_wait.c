/*
 * replica_wait.c
 *		A worker's replicas have stored a prepared transaction before it is decided, and the coordinator's replicas the decision before
 *		any worker hears of it, also those that are not synchronous.
 *
 * Any user's transaction may lose its last commits when an asynchronous replica takes over.  One that moves old rows from
 * another worker, which drops them, would lose what was safe for years: if the target forgets them, or if the coordinator
 * forgets that it has decided, where one worker has committed and the other is then told to roll back.
 *
 * The decision is on this server's disk before its replicas can have it.  So they are asked before whether they keep up; one that stops
 * just then is waited for as long, and not longer.  What takes a base backup tells no position, and does not count; nor do
 * subscribers of logical replication, which take nobody's place.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/spin.h"
#include "storage/standby.h"

#include "commit/replica_wait.h"
#include "server/clock.h"

/* So long they have, and so often they are looked at. */
#define PATIENCE_MS 10000
#define LOOK_MS 5

char *
replica_wait_late_sql(const char *position)
{
	return psprintf("SELECT coalesce(r.application_name, '') "
					"FROM pg_catalog.pg_stat_replication AS r "
					"WHERE r.state OPERATOR(pg_catalog.=) 'streaming' "
					"AND r.flush_lsn OPERATOR(pg_catalog.<) '%s' "
					"AND NOT EXISTS (SELECT FROM pg_catalog.pg_replication_slots AS s "
					"WHERE s.active_pid OPERATOR(pg_catalog.=) r.pid "
					"AND s.slot_type OPERATOR(pg_catalog.=) 'logical') LIMIT 1",
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

/* ----------------------------------------------------------------
 * The coordinator's own replicas
 * ----------------------------------------------------------------
 */

static bool
is_logical(pid_t sender)
{
	const PGPROC *process = BackendPidGetProc(sender);

	return process != NULL && (process->statusFlags & PROC_IN_LOGICAL_DECODING) != 0;
}

/* The process that sends WAL to a replica that has not stored it up to there; 0 if all have. */
static pid_t
find_late_sender(XLogRecPtr end)
{
	for (int i = 0; i < max_wal_senders; i++)
	{
		WalSnd *sender = &WalSndCtl->walsnds[i];
		pid_t process;
		bool late;

		SpinLockAcquire(&sender->mutex);
		process = sender->pid;
		late = process != 0 && sender->state == WALSNDSTATE_STREAMING &&
			   !XLogRecPtrIsInvalid(sender->flush) && sender->flush < end;
		SpinLockRelease(&sender->mutex);
		if (late && !is_logical(process))
			return process;
	}
	return 0;
}

void
replica_wait_here(void)
{
	int64 deadline = clock_now() + PATIENCE_MS;
	XLogRecPtr end;
	pid_t late;

	if (find_late_sender(PG_UINT64_MAX) == 0)
		return;					/* there is no replica */
	end = LogStandbySnapshot(); /* what says that they live must be new */
	XLogFlush(end);
	while ((late = find_late_sender(end)) != 0)
	{
		if (clock_now() > deadline)
			ereport(
				ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a replica of the coordinator is late"),
				 errdetail("The replica of process %d in pg_stat_replication has not stored the "
						   "coordinator's WAL in %d seconds.",
						   (int) late, PATIENCE_MS / 1000)));
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, LOOK_MS,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

void
replica_wait_for_decision(XLogRecPtr end)
{
	int64 deadline = clock_now() + PATIENCE_MS;
	pid_t late;

	while ((late = find_late_sender(end)) != 0 && clock_now() < deadline)
		pg_usleep(LOOK_MS * INT64CONST(1000));
	if (late != 0)
		ereport(WARNING,
				(errmsg("a replica of the coordinator is late"),
				 errdetail("If the replica of process %d in pg_stat_replication takes over now, "
						   "it does not know of a transaction that the workers commit.",
						   (int) late)));
}
