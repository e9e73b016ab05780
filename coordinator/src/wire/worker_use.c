/*
 * worker_use.c
 *		Who uses a worker, and who holds it: a planned switchover without an error.
 *
 * A session that opens a wire for its transaction has joined the worker until the transaction ends.
 * Each worker has a counter of those who have joined.  A hold has two phases:
 *
 *		DRAINING	transactions that have not sent anything to any worker wait; the others
 *					go on, because somebody who is to leave the held worker may be waiting for
 *					locks of theirs, on another worker or here.  For the same reason one that
 *					has only locks here goes on as soon as anybody waits for it.
 *		CLOSED		nobody has joined any more, or the time to drain is over: all wait who have
 *					not joined.  Whom they block does not matter now: the switchover needs no lock.
 *
 * So nobody waits here for somebody who waits for him; what a client does between its statements
 * nobody knows, hence the time limit.  The wait comes before the gate and before the worker's locks
 * in the lock order, and a wait that is long ends with the hold.
 *
 * Who joins counts first and then looks at the hold; who holds sets the hold first and then looks at
 * the counter: one of the two sees the other.
 *
 * The hold ends when it is released, at its timeout (noticed by whoever waits), and with its
 * session.  Then the worker's generation rises, and wires made before are replaced before they are
 * used: they lead to what was the primary.  There is one hold at a time, of all databases: two
 * could wait for each other's transactions.
 *
 * Background processes do not wait.  Their errors during a switchover concern no user.  Nor do those who read a standby:
 * it becomes the primary without ending its sessions.
 */
#include "postgres.h"

#include "wire/worker_use.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/atomics.h"
#include "postmaster/bgworker.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/array.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "cluster/worker_state.h"
#include "server/shared_memory.h"

/* How often who waits looks at the hold, and whether anybody waits for it. */
#define LOOK_MS 50

typedef enum HoldPhase
{
	HOLD_NONE,
	HOLD_DRAINING,
	HOLD_CLOSED
} HoldPhase;

struct WorkerUse
{
	Oid database; /* InvalidOid: free; never freed again */
	int worker_id;
	pg_atomic_uint32 joined;
	pg_atomic_uint32 generation;
};

typedef struct Hold
{
	pg_atomic_uint32 phase; /* changed under the mutex, read without it */
	slock_t mutex;			/* of what follows */
	WorkerUse *worker;
	int holder; /* pid */
	TimestampTz end;
	ConditionVariable changed;
	WorkerUse uses[WORKER_STATE_MAX];
} Hold;

static Hold *hold = NULL;

/* Has the transaction sent a statement to any worker? */
static bool transaction_sent = false;

/* ----------------------------------------------------------------
 * The hold
 * ----------------------------------------------------------------
 */

/* The mutex is held.  Wires made before are not trusted any more. */
static void
clear_hold(void)
{
	pg_atomic_fetch_add_u32(&hold->worker->generation, 1);
	hold->worker = NULL;
	hold->holder = 0;
	pg_atomic_write_u32(&hold->phase, HOLD_NONE);
}

bool
worker_use_end_hold(void)
{
	bool ended = false;

	SpinLockAcquire(&hold->mutex);
	if (hold->worker != NULL && hold->holder == MyProcPid)
	{
		clear_hold();
		ended = true;
	}
	SpinLockRelease(&hold->mutex);
	if (ended)
		ConditionVariableBroadcast(&hold->changed);
	return ended;
}

static void
end_hold_at_exit(int code, Datum argument)
{
	(void) worker_use_end_hold();
}

/* The phase that concerns this worker; a hold whose time is over ends here. */
static HoldPhase
look_at_hold(const WorkerUse *use)
{
	HoldPhase phase = HOLD_NONE;
	TimestampTz now;
	bool ended = false;

	if (pg_atomic_read_u32(&hold->phase) == HOLD_NONE)
		return HOLD_NONE;
	now = GetCurrentTimestamp();
	SpinLockAcquire(&hold->mutex);
	if (hold->worker != NULL && hold->end <= now)
	{
		clear_hold();
		ended = true;
	}
	if (hold->worker == use && hold->holder != MyProcPid)
		phase = pg_atomic_read_u32(&hold->phase);
	SpinLockRelease(&hold->mutex);
	if (ended)
		ConditionVariableBroadcast(&hold->changed);
	return phase;
}

/* ----------------------------------------------------------------
 * Joining
 * ----------------------------------------------------------------
 */

WorkerUse *
worker_use_find(int worker_id)
{
	WorkerUse *found = NULL;

	SpinLockAcquire(&hold->mutex);
	for (int i = 0; i < WORKER_STATE_MAX && found == NULL; i++)
	{
		WorkerUse *use = &hold->uses[i];

		if (use->database == InvalidOid)
		{
			use->database = MyDatabaseId;
			use->worker_id = worker_id;
		}
		if (use->database == MyDatabaseId && use->worker_id == worker_id)
			found = use;
	}
	SpinLockRelease(&hold->mutex);
	return found;
}

static WorkerUse *
find_use(WorkerConnection *conn)
{
	if (conn->use == NULL)
		conn->use = worker_use_find(conn->worker_id);
	return conn->use;
}

/* Does the session of this process wait for a lock that we have? */
static bool
is_blocked_by_us(int pid)
{
	ArrayType *blockers = DatumGetArrayTypeP(
		DirectFunctionCall1(pg_blocking_pids, Int32GetDatum(pid)));
	int count = ArrayGetNItems(ARR_NDIM(blockers), ARR_DIMS(blockers));
	int32 *pids = (int32 *) ARR_DATA_PTR(blockers);
	bool found = false;

	for (int i = 0; i < count; i++)
		found |= pids[i] == MyProcPid;
	pfree(blockers);
	return found;
}

/* Unlocked reads: a waiter that is missed is seen at the next look. */
static bool
blocks_anybody(void)
{
	for (uint32 i = 0; i < ProcGlobal->allProcCount; i++)
	{
		PGPROC *proc = &ProcGlobal->allProcs[i];

		if (proc->pid != 0 && proc->databaseId == MyDatabaseId && proc->waitLock != NULL &&
			is_blocked_by_us(proc->pid))
			return true;
	}
	return false;
}

static bool
must_wait(const WorkerUse *use)
{
	switch (look_at_hold(use))
	{
		case HOLD_NONE:
			return false;
		case HOLD_DRAINING:
			return !transaction_sent && !blocks_anybody();
		case HOLD_CLOSED:
			break;
	}
	return true;
}

static void
withdraw(WorkerConnection *conn)
{
	conn->joined = false;
	pg_atomic_fetch_sub_u32(&conn->use->joined, 1);
}

/*
 * Count ourselves in; false, and not counted, if we have to wait.  Tells nobody: who broadcasts
 * does not wait any more himself.
 */
static bool
try_join(WorkerConnection *conn)
{
	pg_atomic_fetch_add_u32(&conn->use->joined, 1);
	conn->joined = true;
	if (pg_atomic_read_u32(&hold->phase) == HOLD_NONE)
		return true;

	/* must_wait() may throw: we are then counted until the transaction's end */
	if (!must_wait(conn->use))
		return true;
	withdraw(conn);
	return false;
}

void
worker_use_join(WorkerConnection *conn)
{
	if (conn->joined || conn->standby || MyBgworkerEntry != NULL || find_use(conn) == NULL)
		return;
	if (try_join(conn))
		return;
	ConditionVariablePrepareToSleep(&hold->changed);
	while (!try_join(conn))
		(void) ConditionVariableTimedSleep(&hold->changed, LOOK_MS, PG_WAIT_EXTENSION);
	ConditionVariableCancelSleep();
}

void
worker_use_leave(void)
{
	bool left = false;
	ListCell *cell;

	transaction_sent = false;
	foreach(cell, connection_list())
	{
		WorkerConnection *conn = lfirst(cell);

		if (conn->joined)
		{
			withdraw(conn);
			left = true;
		}
	}
	if (left && pg_atomic_read_u32(&hold->phase) != HOLD_NONE)
		ConditionVariableBroadcast(&hold->changed);
}

uint32
worker_use_generation(WorkerConnection *conn)
{
	WorkerUse *use = find_use(conn);

	return use != NULL ? pg_atomic_read_u32(&use->generation) : 0;
}

void
worker_use_note_statement(void)
{
	transaction_sent = true;
}

/* ----------------------------------------------------------------
 * Holding
 * ----------------------------------------------------------------
 */

int
worker_use_begin_hold(WorkerUse *use, TimestampTz end)
{
	static bool registered = false;
	int holder = 0;

	(void) look_at_hold(use); /* an old one may be over */
	if (!registered)
		before_shmem_exit(end_hold_at_exit, (Datum) 0);
	registered = true;
	SpinLockAcquire(&hold->mutex);
	if (hold->worker != NULL && (hold->holder != MyProcPid || hold->worker != use))
		holder = hold->holder;
	else
	{
		hold->worker = use;
		hold->holder = MyProcPid;
		hold->end = end;
		pg_atomic_write_u32(&hold->phase, HOLD_DRAINING);
	}
	SpinLockRelease(&hold->mutex);
	return holder;
}

/* Change the phase of our hold; false if it has ended, at its timeout. */
static bool
set_phase(const WorkerUse *use, HoldPhase phase)
{
	TimestampTz now = GetCurrentTimestamp();
	bool ours;

	SpinLockAcquire(&hold->mutex);
	ours = hold->worker == use && hold->holder == MyProcPid && hold->end > now;
	if (ours)
		pg_atomic_write_u32(&hold->phase, phase);
	SpinLockRelease(&hold->mutex);
	return ours;
}

/* What close_hold() came to. */
typedef enum Closing
{
	CLOSING_DONE,	/* from now on all wait */
	CLOSING_JOINED, /* somebody has joined: the phase is as before */
	CLOSING_OVER	/* the hold has ended, at its timeout */
} Closing;

static Closing
close_hold(WorkerUse *use, bool force)
{
	if (!set_phase(use, HOLD_CLOSED))
		return CLOSING_OVER;
	pg_memory_barrier();
	if (pg_atomic_read_u32(&use->joined) == 0 || force)
		return CLOSING_DONE;
	(void) set_phase(use, HOLD_DRAINING);
	return CLOSING_JOINED;
}

int
worker_use_drain(WorkerUse *use, TimestampTz end)
{
	Closing closing = CLOSING_JOINED;

	ConditionVariablePrepareToSleep(&hold->changed);
	for (;;)
	{
		long left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), end);

		if (pg_atomic_read_u32(&use->joined) == 0 || left <= 0)
			closing = close_hold(use, left <= 0);
		if (closing != CLOSING_JOINED)
			break;
		(void) ConditionVariableTimedSleep(&hold->changed, Min(left, LOOK_MS), PG_WAIT_EXTENSION);
	}
	ConditionVariableCancelSleep();
	return closing == CLOSING_OVER ? -1 : (int) pg_atomic_read_u32(&use->joined);
}

bool
worker_use_is_wanted(int worker_id)
{
	const WorkerUse *use = worker_use_find(worker_id);

	return use != NULL && look_at_hold(use) != HOLD_NONE;
}

bool
worker_use_is_held(const WorkerUse *use)
{
	TimestampTz now = GetCurrentTimestamp();
	bool ours;

	SpinLockAcquire(&hold->mutex);
	ours = hold->worker == use && hold->holder == MyProcPid && hold->end > now;
	SpinLockRelease(&hold->mutex);
	return ours;
}

void
worker_use_renew(WorkerUse *use)
{
	pg_atomic_fetch_add_u32(&use->generation, 1);
}

/* ----------------------------------------------------------------
 * Shared memory
 * ----------------------------------------------------------------
 */

static void
request_shared_memory(void)
{
	RequestAddinShmemSpace(MAXALIGN(sizeof(Hold)));
}

static void
create_shared_memory(void)
{
	bool found;

	hold = ShmemInitStruct("strata worker use", sizeof(Hold), &found);
	if (found)
		return;
	memset(hold, 0, sizeof(Hold));
	pg_atomic_init_u32(&hold->phase, HOLD_NONE);
	SpinLockInit(&hold->mutex);
	ConditionVariableInit(&hold->changed);
	for (int i = 0; i < WORKER_STATE_MAX; i++)
	{
		pg_atomic_init_u32(&hold->uses[i].joined, 0);
		pg_atomic_init_u32(&hold->uses[i].generation, 0);
	}
}

void
worker_use_initialize(void)
{
	shared_memory_register(request_shared_memory, create_shared_memory);
}
