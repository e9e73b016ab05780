/*
 * table_lifecycle.h
 *		A table becomes distributed, changes back, or goes.
 */
#ifndef STRATA_TABLE_LIFECYCLE_H
#define STRATA_TABLE_LIFECYCLE_H

#include "postgres.h"

/*
 * Distribute a table (heap with rows, or an empty shell) by `key`; a NULL key means: the first column of the
 * primary key, else the first column whose type hashes.  Rows move to the workers in the
 * same transaction.  colocate_with: "default", "none" or a table's name.  storage: "heap".
 */
extern void table_lifecycle_distribute(Oid relation, const char *key, int shard_count,
									   const char *colocate_with, const char *storage);

/* Drop the workers' copies and our metadata of a relation that is about to be dropped or was made local. */
extern void table_lifecycle_forget(Oid relation, bool drop_on_workers);

#endif
