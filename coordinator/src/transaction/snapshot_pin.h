/*
 * snapshot_pin.h
 *		Workers take their snapshots together, between two commits.
 */
#ifndef STRATA_SNAPSHOT_PIN_H
#define STRATA_SNAPSHOT_PIN_H

#include "nodes/bitmapset.h"
#include "nodes/pg_list.h"
#include "utils/snapshot.h"

#include "transaction/remote_transaction.h"

/* In REPEATABLE READ: take the transaction's snapshots now if that has not been done. */
extern void snapshot_pin_transaction(Snapshot snapshot);

/*
 * Before a worker takes a snapshot that nobody else's belongs to: wait until all that was committed
 * before can be seen there.
 */
extern void snapshot_pin_wait(int worker_id);

/* The wires to all workers that can be reached, ready to read. */
extern List *snapshot_pin_reachable_wires(void);

/* The workers of wires (list of WorkerConnection). */
extern Bitmapset *snapshot_pin_workers(List *wires);

/*
 * Enter the gate, unless standbys are read; with a snapshot that is new and sees no transaction of which a worker does not know
 * yet, when one is wanted.  It is valid until the next one is taken.
 */
extern Snapshot snapshot_pin_enter_gate(const Bitmapset *workers, bool with_snapshot);

/*
 * From now on snapshots are asked for on these wires; we are in the gate.  snapshot_pin_sent() must follow when all is
 * sent, and nothing that takes long may be done in between.
 */
extern void snapshot_pin_open_window(List *wires);
extern void snapshot_pin_sent(void);

/* SQL that takes a snapshot, kept under a token if that is not 0; tokens below the oldest are not used any more. */
extern char *snapshot_pin_command(uint64 token, uint64 oldest);

/* Have snapshots taken on wires that are ready, by a message of its own; we are in the gate, or need not be. */
extern void snapshot_pin_take(List *wires, const char *command, bool in_gate);

/* SET TRANSACTION SNAPSHOT: it is the coordinator's alone, so no worker may be used under it. */
extern void snapshot_pin_note_import(void);
extern bool snapshot_pin_is_imported(void);

/* A wire joins the transaction: ERROR if it would see another state than the others. */
extern void snapshot_pin_check_join(const WorkerConnection *conn);

/* At the abort of a transaction or subtransaction, and at every end of a transaction.  Never throw. */
extern void snapshot_pin_abort(void);
extern void snapshot_pin_end_transaction(void);

#endif
