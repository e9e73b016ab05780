/*
 * worker_use.h
 *		Transactions wait before they first use a worker whose server is about to change.
 */
#ifndef STRATA_WORKER_USE_H
#define STRATA_WORKER_USE_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "wire/connection.h"

/* A worker's counters, in shared memory. */
typedef struct WorkerUse WorkerUse;

/*
 * The transaction is about to use the wire's worker: waits while somebody holds it.  Interruptible;
 * never to be called inside the gate for a worker that the transaction has not joined yet.
 */
extern void worker_use_join(WorkerConnection *conn);

/* The transaction has sent a statement to some worker: others may wait for it from now on. */
extern void worker_use_note_statement(void);

/* The transaction has ended: it uses no worker any more.  Throws nothing. */
extern void worker_use_leave(void);

/* Rises when a hold of the worker ends: wires made before may lead to another server. */
extern uint32 worker_use_generation(WorkerConnection *conn);

/* For workers/worker_hold.c.  The worker's counters, given to it at first use; NULL when there is no room. */
extern WorkerUse *worker_use_find(int worker_id);

/* Hold the worker; returns 0, or the process that holds one. */
extern int worker_use_begin_hold(WorkerUse *use, TimestampTz end);

/*
 * Wait until nobody uses the worker, or the time is over; from then on all wait.  Returns how many use it, -1 if the
 * hold has ended, at its timeout.
 */
extern int worker_use_drain(WorkerUse *use, TimestampTz end);

extern bool worker_use_is_held(const WorkerUse *use); /* by this session */

/* Does another session hold the worker, or wait until nobody uses it? */
extern bool worker_use_is_wanted(int worker_id);

/* Wires made before are not trusted any more. */
extern void worker_use_renew(WorkerUse *use);

/* End the hold of this session, if there is one; true if there was. */
extern bool worker_use_end_hold(void);

extern void worker_use_initialize(void); /* from _PG_init: shared memory */

#endif
