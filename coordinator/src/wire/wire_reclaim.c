/*
 * wire_reclaim.c
 *		Wires on which statements run that nobody waits for any more.
 */
#include "postgres.h"

#include "wire/wire_reclaim.h"

#include "access/xact.h"

#include "wire/wire_cleanup.h"

/* May what runs there be cancelled without losing anything but its own rows? */
static bool
can_restart(const WorkerConnection *conn)
{
	return !conn->transaction.written && conn->transaction.depth == 1 && conn->snapshot.kept == 0 &&
		   !IsolationUsesXactSnapshot();
}

/* The worker's transaction ends, and begins anew with the next statement; the wire is idle. */
static void
restart_transaction(WorkerConnection *conn)
{
	connection_send(conn, "ROLLBACK", 0, "ROLLBACK");
	conn->end_pending = true;
	connection_leave_transaction(conn, false);
}

bool
wire_is_orphaned(const WorkerConnection *conn)
{
	return conn->occupant == NULL && PQtransactionStatus(conn->pg) == PQTRANS_ACTIVE;
}

void
wire_reclaim(WorkerConnection **conns, int count)
{
	WorkerConnection **cancelled = palloc((count + 1) * sizeof(WorkerConnection *));
	int64 deadline = wire_end_deadline();
	int cancelled_count = 0;

	for (int i = 0; i < count; i++)
	{
		wire_cleanup_begin(conns[i]);
		if (can_restart(conns[i]))
			cancelled[cancelled_count++] = conns[i];
	}
	wire_cancel(cancelled, cancelled_count, deadline);
	wire_drain(cancelled, cancelled_count, deadline);
	for (int i = 0; i < cancelled_count; i++)
	{
		if (cancelled[i]->cleanup.outcome == WIRE_LOST)
			connection_drop(cancelled[i]);
		else if (PQtransactionStatus(cancelled[i]->pg) != PQTRANS_INTRANS)
			restart_transaction(cancelled[i]);
	}

	for (int i = 0; i < count; i++)
	{
		if (conns[i]->pg != NULL && !conns[i]->end_pending && wire_is_orphaned(conns[i]))
			connection_discard(conns[i]);
	}
	pfree(cancelled);
}
