/*
 * own_deletes.h
 *		Rows that the current transaction deleted or updated, in memory.
 *
 * Only a shortcut for look-ups of the present (unique checks), which otherwise read
 * all vectors of the unit for each old version of a row: a transaction that replaces one
 * row again and again meets all of them every time.  What is not here may be
 * deleted all the same.
 */
#ifndef COLUMNAR_OWN_DELETES_H
#define COLUMNAR_OWN_DELETES_H

#include "compat.h"

#include "utils/rel.h"

/* Registers the transaction callbacks; called by _PG_init(). */
extern void own_deletes_initialize(void);

extern void own_deletes_add(Relation relation, uint64 row);
extern bool own_deletes_contains(Relation relation, uint64 row);
/* Forgets everything (a table was truncated in place). */
extern void own_deletes_forget(void);

#endif
