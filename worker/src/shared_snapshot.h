/*
 * shared_snapshot.h
 *		Snapshots that sessions of one coordinator's session share.
 */
#ifndef SHARED_SNAPSHOT_H
#define SHARED_SNAPSHOT_H

#include "utils/snapshot.h"

/* Write the snapshot down for other sessions, until the transaction ends; its name, palloc'd. */
extern char *shared_snapshot_write(Snapshot snapshot);

/*
 * The snapshot that a running transaction of this database has written down.  MyProc->xmin covers it, as
 * long as the caller has a snapshot; it must be registered before that one goes.
 */
extern Snapshot shared_snapshot_read(const char *name);

extern void shared_snapshot_initialize(void);

#endif
