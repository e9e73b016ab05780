/*
 * merge_request.h
 *		Compaction without anybody asking: a background worker per request (background_merge.c).
 */
#ifndef COLUMNAR_MERGE_REQUEST_H
#define COLUMNAR_MERGE_REQUEST_H

#include "postgres.h"

/* One row group in so many, if it is inline, makes its commit ask for a merge. */
#define MERGE_INLINE_GROUPS 256

/* Registers the transaction callback; called by _PG_init(). */
extern void merge_request_initialize(void);

/*
 * Asks for a compaction of the table when this transaction has committed (a
 * no-op if it aborts, or when strata_columnar.enable_merge is off).
 */
extern void merge_request_note(Oid relation);

/*
 * The heavyweight lock of the table's worker, for a transaction or a session: a table has one worker
 * at a time.  False if there is a worker that has it.
 */
extern bool merge_request_take_lock(Oid relation, bool session);
extern void merge_request_release_lock(Oid relation, bool session);

#endif
