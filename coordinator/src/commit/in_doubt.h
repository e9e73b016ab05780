/*
 * in_doubt.h
 *		Prepared transactions that nobody has ended yet, in shared memory.
 *
 * commit_protocol.c adds what it could not end, resolver.c what it finds, and removes what has
 * ended.  It is only a note: the truth is on the workers and in the decision rows.
 */
#ifndef STRATA_IN_DOUBT_H
#define STRATA_IN_DOUBT_H

#include "postgres.h"

#include "access/xact.h"

#include "datatype/timestamp.h"

#include "commit/prepared_gid.h"

typedef enum InDoubtDecision
{
	IN_DOUBT_COMMIT,
	IN_DOUBT_ROLLBACK,
	IN_DOUBT_UNKNOWN
} InDoubtDecision;

typedef enum InDoubtReason
{
	IN_DOUBT_WORKER_SILENT, /* no answer, or no connection */
	IN_DOUBT_REPLICA,		/* the coordinator's replica has not confirmed the decision */
	IN_DOUBT_LEFT_OVER,		/* found on the worker, to be ended next */
	IN_DOUBT_BUSY,			/* the worker's own session still works on it */
	IN_DOUBT_REFUSED,		/* the worker answered with an error */
	IN_DOUBT_FOREIGN_WORKER /* it was prepared on another worker: left alone */
} InDoubtReason;

typedef struct InDoubtEntry
{
	Oid database;
	int worker_id; /* where it is: not what the name says, if that is another worker's */
	PreparedGid gid;
	InDoubtDecision decision;
	InDoubtReason reason;
	TimestampTz since;
	TimestampTz last_attempt; /* 0 = none yet */
} InDoubtEntry;

/* Shared memory; from _PG_init. */
extern void in_doubt_initialize(void);

/*
 * May the worker hold a prepared transaction that is decided as committed but not yet visible
 * there?  Also true until somebody has looked after a start of the server.  Cheap; throws nothing.
 */
extern bool in_doubt_blocks(int worker_id);

/* The resolver is to look now. */
extern void in_doubt_call_resolver(void);

/* Wait until it does not any more; ERROR with the worker's name after strata.worker_timeout. */
extern void in_doubt_wait(int worker_id);

/* Note a transaction, or why a noted one still waits; true when it is new.  Throws nothing. */
extern bool
in_doubt_add(int worker_id, const PreparedGid *gid, InDoubtDecision decision, InDoubtReason reason);

/* It has ended.  Throws nothing. */
extern void in_doubt_remove(int worker_id, const PreparedGid *gid);

/* The entries of one worker (0 = all) of this database, in a palloced array. */
extern int in_doubt_entries(int worker_id, InDoubtEntry **entries);

/* The worker does not answer: its entries wait for it since their last attempt now. */
extern void in_doubt_attempted(int worker_id, InDoubtReason reason);

/*
 * Somebody has looked at the worker: it has nothing but what is noted.  generation is what
 * in_doubt_generation() said before he looked.
 */
extern void in_doubt_checked(int worker_id, uint32 generation);

/* Is it known that the worker has nothing but what is noted? */
extern bool in_doubt_is_checked(int worker_id);

/* The worker is removed: forget all about it.  (If it stays after all, it counts as unseen.) */
extern void in_doubt_forget(int worker_id);

/* Grows with each new entry, and whenever the resolver is to look. */
extern uint32 in_doubt_generation(void);

/* The resolver is to look at workers that nobody has seen, after this transaction has committed. */
extern void in_doubt_look_at_commit(void);

/* Called at the ends of transactions, in the order of transaction_end.c. */
extern void in_doubt_transaction_event(XactEvent event);

#endif
