/*
 * gate.h
 *		Who may commit on several workers, and who may take snapshots there, at one moment.
 *
 * A session is in at most one of these at a time.  gate.c says who waits for whom.
 */
#ifndef STRATA_GATE_H
#define STRATA_GATE_H

#include "postgres.h"

#include "nodes/bitmapset.h"
#include "utils/snapshot.h"

/*
 * A two-phase commit.  Announced at PRE_COMMIT, when all workers are prepared (may ERROR); begun
 * after the local commit, before the first COMMIT PREPARED is sent: waits, bounded, for
 * statements that are taking snapshots.  A worker is acknowledged as often as it was named to
 * gate_commit_announce().  None but the first throws; gate_end() leaves, also after an abort.
 */
extern void gate_commit_announce(const int *worker_ids, int count);
extern void gate_commit_begin(void);
extern void gate_commit_acknowledge(int worker_id);

/* Before the COMMIT of a transaction that wrote on this worker only; interruptible. */
extern void gate_commit_single(int worker_id);

/*
 * A statement takes snapshots on several workers, or on some and here, until gate_end().
 * Interruptible and bounded.  ERROR by gate_snapshot_check() when a commit could not wait any longer.
 */
extern void gate_snapshot_begin(const Bitmapset *workers);
extern void gate_snapshot_check(void);

/*
 * Inside: does this snapshot of the coordinator see a transaction that is not yet committed on
 * these workers?  Then gate_end(), gate_snapshot_begin() and a new snapshot are due.
 */
extern bool gate_snapshot_is_ahead(Snapshot snapshot, const Bitmapset *workers);

/* Before a statement that reads on one worker only; interruptible and bounded. */
extern void gate_read_single(int worker_id);

/* No distributed transaction commits until gate_end().  Interruptible and bounded. */
extern void gate_restore_point_begin(const Bitmapset *workers);

/* Leave, whatever we are in.  Never throws. */
extern void gate_end(void);

extern void gate_initialize(void); /* from _PG_init: shared memory */

#endif
