/*
 * remote_insert.h
 *		Rows on their way to the workers: routing and write streams.
 *
 * Rows are routed by their key (reference tables: to every worker) and buffered
 * per worker.  Few rows leave as one INSERT ... VALUES, many as a COPY stream.
 * Buffers are flushed by pending_rows_flush(): before any remote read, at the end of
 * a client's statement, at subtransaction borders and at PRE_COMMIT; those of a function's statement
 * at its end, if they could be refused.
 */
#ifndef STRATA_REMOTE_INSERT_H
#define STRATA_REMOTE_INSERT_H

#include "executor/tuptable.h"
#include "cluster/metadata.h"
#include "transaction/pending_rows.h"

/* Buffer one row of `relation` (all attributes, generated ones ignored). */
extern void remote_insert_row(Relation relation, TupleTableSlot *slot);

/* A statement inside another has ended: wait until its rows are accepted where workers could refuse them. */
extern void remote_insert_end_nested_statement(void);

/* What pending_rows_flush() and pending_rows_reset() call. */
extern void remote_insert_flush(void);
extern void remote_insert_reset(void);

#endif
