/*
 * wire_cleanup.h
 *		Ending statements where nothing may be thrown and nothing may last.
 *
 * For the callbacks of commit and abort: no ERROR, no allocation, no interrupts,
 * and a deadline for everything.  What a wire answered stands in its cleanup's `outcome`
 * and `tag` afterwards; WIRE_LOST wires are to be dropped by the caller.
 */
#ifndef STRATA_WIRE_CLEANUP_H
#define STRATA_WIRE_CLEANUP_H

#include "wire/connection.h"

/*
 * So long a session that was cancelled, rolls back or stops a stream waits for its workers;
 * wires that are not idle by then are closed.  A cancel ends within a second whatever they do.
 */
#define WIRE_END_TIMEOUT_MS 900

/*
 * The deadline of a clean-up that begins now.  All those that follow each other without another
 * statement in between (a subtransaction's, then its transaction's) have one WIRE_END_TIMEOUT_MS together.
 */
extern int64 wire_end_deadline(void);

/* A statement is sent: the session is not ending, and what comes next has all of the time again. */
extern void wire_end_renew(void);

/* Make room for so many connections, so that the functions below need no memory. */
extern void wire_cleanup_reserve(int count);

/* What is known of the wire's last clean-up is forgotten: a new one begins. */
extern void wire_cleanup_begin(WorkerConnection *conn);

/* Throw away what the running statement has already answered; true when the wire is idle then. */
extern bool wire_drain_arrived(WorkerConnection *conn);

/* Ask the workers to cancel what runs on these wires.  Those that do not react become WIRE_LOST. */
extern void wire_cancel(WorkerConnection **conns, int count, int64 deadline);

/*
 * Another worker has failed: stop what runs on these wires, and throw it away.  What a subtransaction writes may end by itself, if that
 * is soon.  Changes the order of `conns`.
 */
extern void wire_stop(WorkerConnection **conns, int count, int64 deadline);

/* Throw away the rest of what runs on these wires. */
extern void wire_drain(WorkerConnection **conns, int count, int64 deadline);

/*
 * Run one command on each of these idle wires, all at once; sqls[i] belongs to conns[i].
 * ended (or NULL) hears of each wire that has answered, as soon as it has.
 */
typedef void (*WireEnded)(const WorkerConnection *conn);
extern void
wire_run(WorkerConnection **conns, const char **sqls, int count, int64 deadline, WireEnded ended);

/*
 * At the end of a transaction: close the wires whose buffers have grown, for libpq gives no
 * memory back until then.
 */
extern void wire_drop_swollen(void);

#endif
