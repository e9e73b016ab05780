/*
 * snapshot_renew.c
 *		The coordinator's own snapshot, taken anew.
 *
 * Core takes a statement's snapshot before ExecutorStart, when nothing is known of workers, so it is older than
 * the gate (gate.c).  Its contents are replaced in place, so that everybody who has a pointer to it
 * sees the new ones: nobody has read anything yet.  Only its xmin remains: it is smaller, which is
 * correct, and core sorts registered snapshots by it.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "compat.h"
#include "transaction/snapshot_renew.h"

static TransactionId *
copy_xids(const TransactionId *xids, int count, MemoryContext context)
{
	TransactionId *copy;

	if (count <= 0)
		return NULL;
	copy = MemoryContextAlloc(context, count * sizeof(TransactionId));
	memcpy(copy, xids, count * sizeof(TransactionId));
	return copy;
}

void
snapshot_renew(Snapshot snapshot, Snapshot fresh, MemoryContext context)
{
	bool has_subxids = !fresh->suboverflowed || fresh->takenDuringRecovery;

	Assert(snapshot->copied);
	snapshot->xip = copy_xids(fresh->xip, fresh->xcnt, context);
	snapshot->xcnt = fresh->xcnt;
	snapshot->subxip = has_subxids ? copy_xids(fresh->subxip, fresh->subxcnt, context) : NULL;
	snapshot->subxcnt = fresh->subxcnt;
	snapshot->suboverflowed = fresh->suboverflowed;
	snapshot->takenDuringRecovery = fresh->takenDuringRecovery;
	snapshot->xmax = fresh->xmax;
	compat_snapshot_copy_age(snapshot, fresh);
}
