/*
 * lost_worker.h
 *		Workers that will never come back: what becomes of their shards.
 */
#ifndef STRATA_LOST_WORKER_H
#define STRATA_LOST_WORKER_H

/*
 * Mark the worker's shards as lost and tell the user which they are.  The caller has found that it
 * cannot be reached, and removes it in the same transaction.  Waits for writers of these tables.
 */
extern void lost_worker_write_off(int worker_id);

#endif
