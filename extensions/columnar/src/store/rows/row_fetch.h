/*
 * row_fetch.h
 *		Single rows by number: index scans, bitmap scans, tids, triggers, locks.
 *
 * Keeps the few row groups used last open with their last decoded block, so that
 * neighbouring rows cost little.  After some fetches under one MVCC
 * snapshot it stops asking the catalog for each row and loads what that snapshot sees.
 */
#ifndef COLUMNAR_ROW_FETCH_H
#define COLUMNAR_ROW_FETCH_H

#include "store/catalog/row_group.h"
#include "store/rows/row_version.h"

#include "executor/tuptable.h"

/* Row groups kept open. */
#define FETCH_GROUPS 8

typedef struct RowFetch RowFetch;

/* Memory: a child of the current context. */
extern RowFetch *row_fetch_begin(Relation relation);
extern void row_fetch_end(RowFetch *fetch);

/*
 * For single rows that belong to no scan (UPDATE, triggers and locks come with a tid): the
 * fetch that is kept until the transaction ends, of the table used last.  Between the
 * two calls nothing may run that comes here again; datums live until suspension.
 */
extern RowFetch *row_fetch_resume(Relation relation);
extern void row_fetch_suspend(RowFetch *fetch);
/* Forgets it (a table was truncated in place: its group ids start again). */
extern void row_fetch_forget(void);

/*
 * If the snapshot (of any type) sees the row, fills the slot (NULL: only asks)
 * with the attributes in `columns` (all if NULL) and returns true.  Rows in this session's write
 * buffers are found, too.  The datums live in the fetch until its next call.
 */
extern bool row_fetch_row(RowFetch *fetch, uint64 row, Snapshot snapshot, const Bitmapset *columns,
						  TupleTableSlot *slot);

/* Is the row, which a snapshot did not see, dead for every snapshot? */
extern bool row_fetch_is_dead(RowFetch *fetch, uint64 row);

#endif
