/*
 * pinned_snapshot.h
 *		Snapshots that are taken before the statements that use them.
 */
#ifndef STRATA_WORKER_PINNED_SNAPSHOT_H
#define STRATA_WORKER_PINNED_SNAPSHOT_H

#include "utils/snapshot.h"

/* The snapshot that this transaction keeps under a token; ERROR if there is none. */
extern Snapshot pinned_snapshot_find(uint64 token);

#endif
