/*
 * reference_row.h
 *		A changed row of a reference table as SQL for the workers' copies.
 *
 * Each appends one command with a semicolon that changes exactly one row of a copy, and runs as the
 * table's owner would, whatever the session's settings (values/row_format.h).
 */
#ifndef STRATA_REFERENCE_ROW_H
#define STRATA_REFERENCE_ROW_H

#include "postgres.h"

#include "executor/tuptable.h"
#include "lib/stringinfo.h"
#include "utils/relcache.h"

/* What turns old_row into new_row.  False, and nothing is appended, if they are the same. */
extern bool reference_row_append_update(StringInfo sql, Relation relation, TupleTableSlot *old_row,
										TupleTableSlot *new_row);

extern void reference_row_append_delete(StringInfo sql, Relation relation, TupleTableSlot *row);

/* The row of a leaf becomes one of another leaf of the same tree: an UPDATE of the tree's root. */
extern void reference_row_append_move(StringInfo sql, Oid root, Relation leaf,
									  TupleTableSlot *old_row, TupleTableSlot *new_row);

#endif
