/*
 * snapshot_renew.h
 *		The coordinator's own snapshot, taken anew.
 */
#ifndef SNAPSHOT_RENEW_H
#define SNAPSHOT_RENEW_H

#include "utils/snapshot.h"

/*
 * Make a copied snapshot that nobody has read with yet as new as `fresh`, with arrays in a context that
 * lives as long as it.  xmin and command id remain.
 */
extern void snapshot_renew(Snapshot snapshot, Snapshot fresh, MemoryContext context);

#endif
