/*
 * worker_seed.h
 *		What a new worker gets before it is used.
 */
#ifndef STRATA_WORKER_SEED_H
#define STRATA_WORKER_SEED_H

#include "postgres.h"

/*
 * Give a worker that is in the (visible) metadata everything that the others have: schema objects,
 * reference tables with their rows, empty parents of distributed tables.  Runs in
 * the local transaction and needs the placement lock.
 */
extern void worker_seed(int worker_id);

/* SQL that drops our tables from a worker, "" when there are none. */
extern char *worker_seed_undo_command(void);

#endif
