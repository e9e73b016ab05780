/*
 * worker_check.h
 *		First contact with a server that is to become a worker.
 */
#ifndef STRATA_WORKER_CHECK_H
#define STRATA_WORKER_CHECK_H

#include "postgres.h"

/*
 * Connection string of worker `name` as it is stored: what was given, with the database's name (ours, when
 * it was left out), and for several hosts the search for the primary.  ERROR when it is
 * malformed or names a user or a password.
 */
extern char *worker_check_normalize(const char *name, const char *conninfo);

/* "host:port[,host:port...]/database" of a connection string. */
extern char *worker_check_address(const char *conninfo);

/* Identity of a server's database, the same over every address: SQL for one text. */
extern const char *const worker_check_identity_sql;

/* ERROR when the server with this identity is a worker already. */
typedef void (*WorkerIdentityCheck)(const char *identity);

/*
 * Check that the server can be a worker of this cluster, create the extension
 * strata_worker there and attach it to the cluster.  Happens at once, outside of the
 * current transaction; doing it twice does no harm.
 */
extern void worker_check_prepare(const char *name, const char *conninfo, WorkerIdentityCheck check);

#endif
