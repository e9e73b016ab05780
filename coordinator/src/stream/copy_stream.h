/*
 * copy_stream.h
 *		Rows of one table into its copy, or a part of it, on one worker: COPY as the table's owner.
 */
#ifndef STRATA_COPY_STREAM_H
#define STRATA_COPY_STREAM_H

#include "postgres.h"

#include "executor/tuptable.h"
#include "utils/relcache.h"

typedef struct CopyStream CopyStream;

/*
 * Begin: `target` is the worker's table, quoted and qualified, with the columns of `relation` by name.  Generated ones
 * are computed there.  NULL when there are no columns to send.  Allocated in CurrentMemoryContext.
 */
extern CopyStream *copy_stream_begin(int worker_id, Relation relation, const char *target);

/* One row, of the relation's row type. */
extern void copy_stream_row(CopyStream *stream, TupleTableSlot *slot);

/* Wait until the worker has stored all rows. */
extern void copy_stream_end(CopyStream *stream);

#endif
