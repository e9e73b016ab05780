/*
 * wire_reclaim.h
 *		Wires on which statements run that nobody waits for any more.
 */
#ifndef STRATA_WIRE_RECLAIM_H
#define STRATA_WIRE_RECLAIM_H

#include "wire/connection.h"

/* Does something run on the wire that nobody waits for any more? */
extern bool wire_is_orphaned(const WorkerConnection *conn);

/*
 * Free such wires.  Where nothing is lost by it (readers in READ COMMITTED, which then begin a new
 * transaction) they are cancelled, all at once; else drained.
 */
extern void wire_reclaim(WorkerConnection **conns, int count);

#endif
