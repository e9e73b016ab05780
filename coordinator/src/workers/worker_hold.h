/*
 * worker_hold.h
 *		Transactions wait before they first use a worker whose server is about to change.
 */
#ifndef STRATA_WORKER_HOLD_H
#define STRATA_WORKER_HOLD_H

#include "postgres.h"

#include "wire/connection.h"

/*
 * The transaction is about to use the wire's worker: waits while somebody holds it.  Interruptible;
 * never to be called inside the gate for a worker that the transaction has not joined yet.
 */
extern void worker_hold_join(WorkerConnection *conn);

/* The transaction has ended: it uses no worker any more.  Throws nothing. */
extern void worker_hold_leave(void);

/* Rises when a hold of the worker ends: wires made before may lead to another server. */
extern uint32 worker_hold_generation(WorkerConnection *conn);

extern void worker_hold_initialize(void); /* from _PG_init: shared memory */

#endif
