/*
 * remote_transaction.h
 *		Transactions over several nodes: how a worker joins the local one.
 *
 * A worker joins the local transaction at the first statement sent to it: the
 * statement is preceded, in the same message, by the session settings that
 * changed (search_path, TimeZone, DateStyle, ...), BEGIN with the isolation
 * level and read-only flag, and a SAVEPOINT for each open subtransaction.
 * Transaction callbacks registered here end it.
 */
#ifndef STRATA_REMOTE_TRANSACTION_H
#define STRATA_REMOTE_TRANSACTION_H

#include "access/xact.h"

#include "wire/connection.h"

typedef enum RemoteAccess
{
	REMOTE_READ,
	REMOTE_WRITE, /* writes or locks: decides one- or two-phase commit */
	REMOTE_APPEND /* the same, but adds rows only and looks at none */
} RemoteAccess;

/*
 * Send one SQL command (no parameters) in the local transaction; does not wait.
 * Vacates the wire first.  For REMOTE_READ all pending inserts are flushed
 * beforehand, so that a transaction sees its own writes.
 * The caller fetches results with connection_get_result() until NULL, or sets
 * conn->occupant while it leaves a statement running.
 */
extern void remote_transaction_send(WorkerConnection *conn, RemoteAccess access, const char *sql);

/* Run a command on each worker that takes part in the transaction, all at once. */
extern void remote_transaction_run_on_participants(const char *sql);

/* Does this connection take part in the transaction? */
static inline bool
remote_transaction_participates(const WorkerConnection *conn)
{
	return conn->pg != NULL && conn->transaction.depth > 0;
}

/*
 * One text for several workers: flush pending inserts, open the wires, once each, and bring them to where
 * remote_transaction_send_ready() waits for nothing.  The wires (list of WorkerConnection) in the order of
 * the workers' ids.
 */
extern List *remote_transaction_ready_all(const Bitmapset *workers);

/* The same for wires that are open, and when nothing is pending. */
extern List *remote_transaction_ready_wires(List *wires);

/* The same in the order of the array, which may name a worker more than once. */
extern List *remote_transaction_ready_each(const int *worker_ids, int count);

/* The same for a single one that is open. */
extern void remote_transaction_ready(WorkerConnection *conn);

/* remote_transaction_send() on a wire that is ready, and that nobody has used since. */
extern void
remote_transaction_send_ready(WorkerConnection *conn, RemoteAccess access, const char *sql);

/*
 * Could all workers begin anew, because the transaction has only read there, in READ COMMITTED, and
 * all of them answer?  remote_transaction_restart() ends what they have begun; never throws.
 */
extern bool remote_transaction_can_restart(void);
extern void remote_transaction_restart(void);

/* Is the transaction READ ONLY, and not only a savepoint of it, after whose end it may write? */
extern bool remote_transaction_is_read_only(void);

/* Has the current transaction sent anything to a worker? */
extern bool remote_transaction_has_begun(void);

extern void remote_transaction_initialize(void); /* from _PG_init: shared memory, callbacks */

/* Called at the ends of transactions, in the order of transaction_end.c. */
extern void remote_transaction_transaction_event(XactEvent event);
extern void remote_transaction_subtransaction_event(SubXactEvent event);

#endif
