/*
 * commit_protocol.h
 *		How a local transaction's end becomes the workers': see README.md.
 *
 * Called by remote_transaction.c's transaction callbacks only.
 */
#ifndef STRATA_COMMIT_PROTOCOL_H
#define STRATA_COMMIT_PROTOCOL_H

#include "postgres.h"

/* At PRE_COMMIT: one-phase COMMIT, or PREPARE everywhere and the decision row.  May ERROR. */
extern void commit_protocol_prepare(void);

/*
 * Before the user's own PREPARE TRANSACTION: ends what has only been read, or returns false if anything was written.
 * May ERROR.
 */
extern bool commit_protocol_end_readers(void);

/* After the local commit: COMMIT PREPARED.  Must not and does not throw. */
extern void commit_protocol_finish(void);

/* At abort: everything ends, bounded in time.  Does not throw. */
extern void commit_protocol_abort(void);

#endif
