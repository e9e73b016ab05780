/*
 * worker_state.h
 *		What the heartbeat knows of each worker, in shared memory.
 *
 * Written by the heartbeat of a database only (heartbeat.c), read by every session of it.  Times
 * in milliseconds are on the clock of clock_now().  No function here throws.
 */
#ifndef STRATA_WORKER_STATE_H
#define STRATA_WORKER_STATE_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "datatype/timestamp.h"

/* Workers of all databases together; those beyond it are not watched. */
#define WORKER_STATE_MAX 1024
#define WORKER_STATE_REASON_SIZE 512

typedef enum WorkerStatus
{
	WORKER_UNKNOWN, /* not asked yet, or nobody asks */
	WORKER_UP,
	WORKER_READ_ONLY, /* it answers, but takes no writes */
	WORKER_DOWN
} WorkerStatus;

/* Where a server's WAL ended when it was asked, or a moment later. */
typedef struct WalPosition
{
	int64 asked_at; /* 0: not known */
	XLogRecPtr position;
	uint32 timeline;
} WalPosition;

typedef struct WorkerState
{
	WorkerStatus status;
	TimestampTz since;
	int host;				/* which host of its conninfo answers, -1 unknown */
	uint32 generation;		/* rises when another server process stands behind the worker */
	int64 unanswered_since; /* when the oldest open question was asked, 0 none */
	int64 published_at;		/* when the heartbeat last said so */
	WalPosition wal;		/* of a primary */
	uint32 returns;			/* rises when it answers and sessions may have left something there */
	char reason[WORKER_STATE_REASON_SIZE]; /* why it is not up */
} WorkerState;

/* A copy of what is known; false (and WORKER_UNKNOWN) when nothing is. */
extern bool worker_state_get(int worker_id, WorkerState *state);

extern bool worker_state_is_down(int worker_id);
extern const char *worker_state_status_name(WorkerStatus status);

/*
 * For how many milliseconds the worker has owed the heartbeat an answer.  Measured by the
 * heartbeat's own last look, so one that stands still accuses nobody.
 */
extern int64 worker_state_silence(int worker_id);

/*
 * Where the worker's WAL ended at some time since then: a standby that follows it and has replayed so much shows all that was
 * committed before.
 */
extern WalPosition worker_state_wal_position(int worker_id, int64 since);

/* A number that changes when any worker of this database returns, or is watched from now on. */
extern uint32 worker_state_all_returns(void);

/* A session has given up a wire that is intact: something may go on on the worker. */
extern void worker_state_leave_behind(int worker_id);

/* For the heartbeat. */
extern bool worker_state_take_left_behind(int worker_id); /* since it was last asked */
extern void worker_state_publish(int worker_id, const WorkerState *state);
extern void worker_state_forget(int worker_id);
extern void worker_state_forget_all(void);

extern void worker_state_initialize(void); /* from _PG_init: shared memory */

#endif
