/*
 * introspect.h
 *		Opening a columnar table for a SQL function.
 */
#ifndef COLUMNAR_INTROSPECT_H
#define COLUMNAR_INTROSPECT_H

#include "postgres.h"

#include "storage/lockdefs.h"
#include "utils/relcache.h"

/* To look at it: SELECT is checked, and its write buffers are stored.  ERROR wrong_object_type if it is no columnar table. */
extern Relation columnar_open_to_read(Oid relation);

/* The same for its owner only, who may do anything. */
extern Relation columnar_open_own_table(Oid relation, LOCKMODE lockmode);

#endif
