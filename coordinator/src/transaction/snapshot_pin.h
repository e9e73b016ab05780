/*
 * snapshot_pin.h
 *		One state of all nodes for all parts of a statement (TRANSACTIONS.md section 2).
 */
#ifndef STRATA_SNAPSHOT_PIN_H
#define STRATA_SNAPSHOT_PIN_H

#include "executor/execdesc.h"
#include "transaction/remote_transaction.h"

/* Queries inside of ExecutorRun(), the innermost first: a nested one may share a snapshot. */
typedef struct RunningQuery
{
	QueryDesc *query;
	struct RunningQuery *outer;
} RunningQuery;

extern RunningQuery *snapshot_pin_running;

/*
 * After ExecutorStart: takes the snapshots of a statement that reads in several places, and in
 * REPEATABLE READ those of the transaction.
 */
extern void snapshot_pin_start_query(QueryDesc *query, int eflags);

/*
 * Before a Gather reads, as whoever runs the query: some statements' snapshots are only taken now.
 */
extern void snapshot_pin_take_pending(const EState *estate);

/* In REPEATABLE READ: take the transaction's snapshots now if that has not been done. */
extern void snapshot_pin_transaction(Snapshot snapshot);

/*
 * Before a worker takes a snapshot that nobody else's belongs to: wait until all that was committed
 * before can be seen there.
 */
extern void snapshot_pin_wait(int worker_id);

/*
 * Before one SQL text is sent to these workers as the current user, on behalf of a running query:
 * opens the wires, waits for the gate, and sees to it that remote_transaction_send()
 * puts the text under the right snapshot.  snapshot_pin_sent() must follow when all is sent, and
 * nothing that takes long may be done in between.
 */
extern void snapshot_pin_prepare(EState *estate, const Bitmapset *workers, RemoteAccess access);
extern void snapshot_pin_sent(void);

/* The same for a command that reads a table without the executor: COPY TO, ANALYZE. */
extern void snapshot_pin_prepare_scan(const Bitmapset *workers);

/* SET TRANSACTION SNAPSHOT: it is the coordinator's alone, so no worker may be used under it. */
extern void snapshot_pin_note_import(void);

/* A wire joins the transaction: ERROR if it would see another state than the others. */
extern void snapshot_pin_check_join(const WorkerConnection *conn);

/*
 * Could the running query's remote statement be sent again under new snapshots, because nothing
 * else has been read under its old ones?  snapshot_pin_restart() forgets those; never throws.
 */
extern bool snapshot_pin_can_restart(EState *estate);
extern void snapshot_pin_restart(void);

/* At the abort of a transaction or subtransaction, and at every end of a transaction.  Never throw. */
extern void snapshot_pin_abort(void);
extern void snapshot_pin_end_transaction(void);

#endif
