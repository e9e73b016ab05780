/*
 * introspect.h
 *		Opening a columnar table for a SQL function.
 */
#ifndef COLUMNAR_INTROSPECT_H
#define COLUMNAR_INTROSPECT_H

#include "postgres.h"

#include "storage/lockdefs.h"
#include "utils/relcache.h"

/* ERROR wrong_object_type unless the relation is a columnar table. */
extern Relation columnar_open_table(Oid relation, LOCKMODE lockmode);

/* The same to look at it: SELECT is checked, and its write buffers are stored.
 */
extern Relation columnar_open_to_read(Oid relation);

/* The same for its owner only. */
extern Relation columnar_open_own_table(Oid relation, LOCKMODE lockmode);

#endif
