/*
 * moved_rows.h
 *		Snapshots that are older than a move of rows from one table of a worker to another.
 */
#ifndef STRATA_MOVED_ROWS_H
#define STRATA_MOVED_ROWS_H

#include "postgres.h"

#include "executor/execdesc.h"

/*
 * ERROR 40001 if the statement's snapshot is older than the last move of rows between a table's leaves, or of
 * a shard between workers, and the statement is one that could notice.
 */
extern void moved_rows_check(const QueryDesc *query, bool nested);

/* The same for a table that is read without the executor, under the transaction's snapshot. */
extern void moved_rows_check_table(Oid relation);

#endif
