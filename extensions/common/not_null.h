/*
 * not_null.h
 *		Columns in which no row that a statement can see is NULL.
 */
#ifndef STRATA_NOT_NULL_H
#define STRATA_NOT_NULL_H

#include "access/attnum.h"
#include "access/htup.h"

/* Had who wrote this row of a catalog committed when the snapshot was taken?  Our own rows say nothing of an older snapshot. */
extern bool not_null_is_older_than_snapshot(HeapTuple tuple);

/* Is the table's column declared so, and, if children are read with it, in all of them?  For plans of the active snapshot. */
extern bool not_null_is_declared(Oid relation_oid, AttrNumber attribute, bool with_children);

/* Is a column of the table declared so, but the active snapshot older?  Core takes `IS NULL` for false all the same. */
extern bool not_null_is_new(Oid relation_oid);

#endif
