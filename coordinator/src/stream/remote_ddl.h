/*
 * remote_ddl.h
 *		DDL on the workers: which of it they have seen, and the lock between DDL and new workers.
 */
#ifndef STRATA_REMOTE_DDL_H
#define STRATA_REMOTE_DDL_H

#include "postgres.h"

/*
 * Statements that will send DDL to the workers take this before they look at the list of
 * workers, and better before they lock a table; it is held until the transaction ends.
 */
extern void remote_ddl_lock_for_change(void);

/* A new worker copies the schema from here: no DDL that concerns workers from now on. */
extern void remote_ddl_lock_for_seed(void);

/*
 * This transaction changes the schema of the workers: its commit raises the version everywhere.  Or it only changes which of them has
 * which shards, and then they go on keeping those that have left them (kept_shard.h).
 */
extern void remote_ddl_note_change(void);
extern void remote_ddl_note_placement(void);

/* Record on a new worker, which has just got the whole schema, the version that this is. */
extern void remote_ddl_seed_version(int worker_id);

/*
 * Run on all workers, in the local transaction; nothing happens without workers.  Every worker
 * has every table, also one that holds none of its shards.
 */
extern void remote_ddl_send(const char *sql);

/* Pass on what the workers have to say beside errors, or do not: the command said it here already. */
extern void remote_ddl_silence(bool quiet);

/* Before the workers are asked to prepare or commit: the new version, on all nodes. */
extern void remote_ddl_advance_version(void);

/* At the end of a transaction. */
extern void remote_ddl_reset(void);

#endif
