/*
 * not_null.h
 *		Columns in which no row that a statement can see is NULL.
 */
#ifndef STRATA_NOT_NULL_H
#define STRATA_NOT_NULL_H

#include "access/attnum.h"

/* Is the table's column declared so, and, if children are read with it, in all of them?  For plans of the active snapshot. */
extern bool not_null_is_declared(Oid relation_oid, AttrNumber attribute, bool with_children);

/* Is a column of the table declared so, but the active snapshot older?  Core takes `IS NULL` for false all the same. */
extern bool not_null_is_new(Oid relation_oid);

#endif
