/*
 * decision_log.h
 *		Which distributed transactions committed: names that never repeat, and decision rows.
 *
 * Used by commit_protocol.c and resolver.c.
 */
#ifndef STRATA_DECISION_LOG_H
#define STRATA_DECISION_LOG_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "nodes/pg_list.h"

/* What identifies a decision row. */
typedef struct Decision
{
	uint64 incarnation;
	uint64 counter;
} Decision;

/* Shared memory; the library must be loaded when the server starts. */
extern void decision_log_initialize(void);

/*
 * Takes a counter that nobody else gets in this incarnation, never 0.  Until decision_log_leave() it belongs to a
 * transaction that runs.
 */
extern uint64 decision_log_take_counter(void);

/* The transaction has ended on the workers, or was noted as in doubt.  Throws nothing. */
extern void decision_log_leave(void);

/*
 * Does its session still work on it?  If not, a decision row that is ever written is visible to
 * snapshots taken from now on.
 */
extern bool decision_log_is_running(uint64 incarnation, uint64 counter);

/* Writes the decision row of this counter in the running transaction, and deletes acknowledged ones. */
extern void decision_log_write(uint64 counter);

/* Every worker has committed durably: the row can go.  Throws nothing. */
extern void decision_log_acknowledge(uint64 counter);

/* The transaction that may have called decision_log_write() is over.  Throws nothing. */
extern void decision_log_end(bool committed);

/* Does the row exist, seen with a new snapshot? */
extern bool decision_log_exists(Decision decision);

/* All rows there are, as a list of Decision. */
extern List *decision_log_list(void);

/* Delete these rows in the running transaction. */
extern void decision_log_delete(List *decisions);

/* Has the coordinator's replica, if it has a synchronous one, confirmed what is up to there? */
extern bool decision_log_is_replicated(XLogRecPtr upto);

#endif
