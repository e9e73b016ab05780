/*
 * table_lifecycle.h
 *		A table becomes distributed, changes back, or goes.
 */
#ifndef STRATA_TABLE_LIFECYCLE_H
#define STRATA_TABLE_LIFECYCLE_H

#include "postgres.h"

#include "table/period.h"

/*
 * Distribute a table (heap with rows, or an empty shell) by `key`; a NULL key means: the
 * first column of the primary key, else the first column whose type hashes.  Rows move to
 * the workers in the same transaction.  shard_count 0 means: that of the table named by colocate_with, else
 * the setting.  colocate_with: "default", "none" or a table's name.  storage: "columnar" or "heap".
 * periods: NULL for none.
 */
extern void table_lifecycle_distribute(Oid relation, const char *key, int shard_count,
									   const char *colocate_with, const char *storage,
									   const PeriodRequest *periods);

/*
 * Make an ordinary table, with its partitions or children, a reference table: it stays, and every worker gets a copy of it,
 * whose storage is "columnar" or "heap".
 */
extern void table_lifecycle_replicate(Oid relation, const char *storage);

/* Make a distributed table local, whose rows come back, or a reference table with all that is below it. */
extern void table_lifecycle_localize(Oid relation);

/*
 * Drop the workers' copies and our metadata of a relation that is about to be dropped or was
 * made local.  Where it is a heap now (ALTER TABLE ... SET ACCESS METHOD), its foreign keys
 * are enforced here again.
 */
extern void table_lifecycle_forget(Oid relation, bool drop_on_workers);

/*
 * Turn the triggers of foreign keys from and to the table off where the referencing table is distributed, for
 * the workers enforce these; or turn those of the table's own foreign keys on, once it is distributed no more.
 */
extern void table_lifecycle_enforce_foreign_keys(Oid relation, bool enforce);

/*
 * While this is above zero, utility commands are run as if the extension did not
 * exist: for commands by which we change the coordinator's own catalog only.
 * Whoever raises it lowers it again in PG_FINALLY().
 */
extern int table_lifecycle_local_depth;

#endif
