/*
 * replica_wait.h
 *		What replicas have stored: for transactions that must survive a failover whatever the user's settings are.
 */
#ifndef STRATA_REPLICA_WAIT_H
#define STRATA_REPLICA_WAIT_H

#include "wire/connection.h"

/* SQL for a worker: the name of a replica that has not stored the WAL up to this position; no row if all have. */
extern char *replica_wait_late_sql(const char *position);

/*
 * Wait until the worker's replicas have stored what it has just prepared; ERROR if one takes too long.  The wire is outside
 * of a transaction.
 */
extern void replica_wait(WorkerConnection *conn);

/* Wait until the coordinator's replicas have stored what is written now; ERROR if one takes too long. */
extern void replica_wait_here(void);

/* Wait until they have stored the decision, which cannot be taken back: WARNING if one takes too long.  Throws nothing. */
extern void replica_wait_for_decision(XLogRecPtr end);

#endif
