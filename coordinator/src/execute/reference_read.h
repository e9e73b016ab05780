/*
 * reference_read.h
 *		A Gather of reference tables alone: which worker reads its copies, or do we read ours?
 */
#ifndef STRATA_REFERENCE_READ_H
#define STRATA_REFERENCE_READ_H

#include "execute/gather.h"

/*
 * Sets state->copy_worker, or state->reads_here where the node's child is to be run: no worker answers, or the transaction
 * may see what its workers do not.  Opens the wire.
 */
extern void reference_read_choose(GatherScanState *state);

/* Does the child run?  Asked before the first row, too: a function of the statement may have written since it began. */
extern bool reference_read_is_here(GatherScanState *state);

/* The worker that is asked, or would be; NULL: none. */
extern Bitmapset *reference_read_worker(const GatherScanState *state);

/* The child's next row, into the scan's slot; false at the end. */
extern bool reference_read_next(GatherScanState *state, TupleTableSlot *slot);

/* The node is scanned again, and its child with it. */
extern void reference_read_rescan(GatherScanState *state);

#endif
