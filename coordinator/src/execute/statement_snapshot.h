/*
 * statement_snapshot.h
 *		One state of all nodes for all parts of a statement.
 */
#ifndef STRATA_STATEMENT_SNAPSHOT_H
#define STRATA_STATEMENT_SNAPSHOT_H

#include "executor/execdesc.h"
#include "nodes/bitmapset.h"

#include "transaction/remote_transaction.h"

/* Queries inside of ExecutorRun(), the innermost first: a nested one may share a snapshot. */
typedef struct RunningQuery
{
	QueryDesc *query;
	struct RunningQuery *outer;
} RunningQuery;

extern RunningQuery *statement_snapshot_running;

/*
 * After ExecutorStart: takes the snapshots of a statement that reads in several places, and in
 * REPEATABLE READ those of the transaction.
 */
extern void statement_snapshot_start(QueryDesc *query, int eflags);

/*
 * Before a Gather reads, as whoever runs the query: some statements' snapshots are only taken now.
 */
extern void statement_snapshot_take_pending(const EState *estate);

/*
 * Before one SQL text is sent to these workers as the current user, on behalf of a running query:
 * opens the wires and makes them ready, waits for the gate, and sees to it that
 * remote_transaction_send_ready() puts the text under the right snapshot.  Returns the wires;
 * snapshot_pin_sent() must follow when all is sent, and nothing that takes long may be done in between.
 */
extern List *statement_snapshot_prepare(EState *estate, const Bitmapset *workers);

/* The same for a command that reads a table without the executor: COPY TO, ANALYZE. */
extern List *statement_snapshot_prepare_scan(const Bitmapset *workers);

/*
 * A snapshot of one worker for several commands of that kind, until `context` is reset.  prepare_kept(): the same for a text that is to
 * run under it.  The token is what the worker knows it by.
 */
typedef struct Scope KeptSnapshot;

extern KeptSnapshot *statement_snapshot_keep(int worker_id, MemoryContext context);
extern List *statement_snapshot_prepare_kept(KeptSnapshot *kept);
extern uint64 statement_snapshot_token(const KeptSnapshot *kept);

/*
 * Could the running query's remote statement be sent again under new snapshots, because nothing
 * else has been read under its old ones?  statement_snapshot_restart() forgets those; never throws.
 */
extern bool statement_snapshot_can_restart(EState *estate);
extern void statement_snapshot_restart(void);

/* Does nothing else of the statement read under snapshots that fit to those of the remote one? */
extern bool statement_snapshot_is_alone(EState *estate);

#endif
