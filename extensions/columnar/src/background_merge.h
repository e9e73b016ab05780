/*
 * background_merge.h
 *		Compaction without anybody asking: a background worker per request.
 */
#ifndef COLUMNAR_BACKGROUND_MERGE_H
#define COLUMNAR_BACKGROUND_MERGE_H

#include "postgres.h"

/* One row group in so many, if it is inline, makes its commit ask for a merge. */
#define MERGE_INLINE_GROUPS 256

/* Registers the transaction callback; called by _PG_init(). */
extern void background_merge_initialize(void);

/*
 * Asks for a compaction of the table when this transaction has committed (a
 * no-op if it aborts, or when strata_columnar.enable_merge is off).
 */
extern void background_merge_request(Oid relation);

#endif
