/*
 * ddl_version.h
 *		Which DDL a worker has seen, and the lock between DDL and new workers.
 */
#ifndef STRATA_DDL_VERSION_H
#define STRATA_DDL_VERSION_H

#include "postgres.h"

/*
 * Statements that will send DDL to the workers take this before they look at the list of
 * workers, and better before they lock a table; it is held until the transaction ends.
 */
extern void ddl_lock_for_change(void);

/* A new worker copies the schema from here: no DDL that concerns workers from now on. */
extern void ddl_lock_for_seed(void);

/* This transaction changes the schema of the workers: its commit raises the version everywhere. */
extern void ddl_version_note_change(void);

/* Record on a new worker, which has just got the whole schema, the version that this is. */
extern void ddl_version_seed(int worker_id);

/* The version that is committed, as other transactions see it. */
extern int64 ddl_version_current(void);

/* Before the workers are asked to prepare or commit: the new version, on all nodes. */
extern void ddl_version_advance(void);

/* At the end of a transaction. */
extern void ddl_version_reset(void);

#endif
