/*
 * gate.c
 *		Distributed commits and distributed snapshots do not overlap.
 *
 * A transaction that wrote on several workers becomes visible on each at another moment, and a
 * statement takes its snapshot on each at another moment.  Nobody sees half a transaction if
 * these two spans of time never overlap where they have a worker in common.  Three kinds of
 * sessions meet here:
 *
 *		T	a two-phase commit.  It is ANNOUNCED from the last PREPARE to the local commit, and COMMITTING
 *			from before the first COMMIT PREPARED until each worker has acknowledged; the workers that
 *			have not are its set.
 *		R	a statement that takes snapshots on several nodes.  WAITING for commits on its workers, then
 *			SNAPSHOT until the last worker has said that it has the snapshot.
 *		P	a restore point: as R on all workers, and no T commits locally meanwhile.
 *
 * Order.  Tickets from one counter.  R waits for every T with a smaller ticket and a worker in
 * common, T for every such R.  An R in SNAPSHOT is never overtaken.  An R that has waited for
 * PRECEDENCE_MS because a worker is slow (a stalled replica) is: it gets a new ticket behind the T that
 * passes, so that those who do not touch the slow worker do not queue up behind R.
 *
 * Commits on one worker, S, and reads on one worker register nothing.  S waits for statements in
 * SNAPSHOT on its worker.  Why that is enough for "a client commits A on one worker, then B on
 * another; nobody sees B without A": if some R misses A, R was in SNAPSHOT when A was committed, so
 * B, which starts after A's acknowledgement, finds R there, or R already has all its snapshots,
 * which miss B, too.  A read on one worker waits for T's that were there before it, so that a client who
 * has seen a transaction on one worker sees it on the next.
 *
 * The coordinator's own rows.  Core makes them visible before XACT_EVENT_COMMIT, before T is
 * COMMITTING; T must not be COMMITTING earlier, because it may wait long for the coordinator's
 * replica.  Hence ANNOUNCED with T's xid: readers treat it as committing when the xid does not run any
 * more (see must_wait_for_local_commit()), and gate_snapshot_is_ahead() compares it with a local snapshot.
 *
 * Bounds.  R waits for WAIT_MS and fails.  T cannot fail: after EVICT_MS it marks the R's in
 * its way as evicted and goes on; these fail in gate_snapshot_check().  S does the same.  T, which
 * has committed here, does not even exit when the postmaster dies: core would abort what is committed.
 * It goes on at once then, and soon when its session is to end.
 *
 * Locking.  One LWLock, held for a walk over the entries that are in use; it is the last in the lock
 * order, except for ProcArrayLock.  Nobody connects, or waits for a heavyweight lock, between begin
 * and end.  When nobody is in, those who register nothing read one atomic counter.  An entry
 * is its process's own: it goes at its exit, and all go with a crash.
 *
 * A set of workers is a set of bits, by id modulo GATE_BITS: equal bits only make somebody wait in
 * vain.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "commit/gate.h"
#include "server/shared_memory.h"

#define GATE_BITS 256
#define GATE_WORDS (GATE_BITS / 64)

#define LAST_TICKET PG_UINT64_MAX

/* So long does a waiting R keep T's that came later from passing. */
#define PRECEDENCE_MS 100

/*
 * These two are no settings, unlike strata.worker_timeout: each session's patience would be
 * other sessions' delay.  So long does a commit wait for somebody who takes snapshots, which is a round trip.
 */
#define EVICT_MS 5000

/* So long does a commit wait that is cancelled, or whose session is to end. */
#define IMPATIENT_MS 300

/*
 * So long does a reader wait for commits.  A commit holds the gate for EVICT_MS at most, and then for
 * FINISH_TIMEOUT_MS (commit_protocol.c) until what is not acknowledged is in doubt: a reader who waits longer
 * than both together fails only if further slow commits came before it.
 */
#define WAIT_MS 30000

typedef struct WorkerBits
{
	uint64 words[GATE_WORDS];
} WorkerBits;

typedef enum GateState
{
	GATE_OUT,
	GATE_ANNOUNCED,	 /* T */
	GATE_COMMITTING, /* T */
	GATE_WAITING,	 /* R */
	GATE_SNAPSHOT,	 /* R */
	GATE_RESTORE	 /* P, waiting or not */
} GateState;

typedef struct GateEntry
{
	GateState state;
	int position; /* in Gate.used, while not out */
	uint64 ticket;
	uint64 announced; /* T: the ticket of its announcement */
	TransactionId xid;
	TimestampTz since; /* T: COMMITTING; R: waits with precedence */
	bool evicted;
	WorkerBits workers;
} GateEntry;

typedef struct Gate
{
	LWLock *lock;
	ConditionVariable changed;
	pg_atomic_uint32 used_count; /* changed under the lock, read without it */
	uint64 ticket;				 /* the one given out last */
	GateEntry *entries;			 /* one per process */
	int *used;					 /* those that are not out */
} Gate;

static Gate *gate = NULL;
static GateEntry *mine = NULL;

/* T: how many acknowledgements each bit is waiting for. */
static uint16 unacknowledged[GATE_BITS];

/* Looks at all entries: must we wait?  If not it also does what must be done at this very moment. */
typedef bool (*MustWait)(const void *arg);

/* ----------------------------------------------------------------
 * Sets of workers
 * ----------------------------------------------------------------
 */

static inline void
add_worker(WorkerBits *bits, int worker_id)
{
	int bit = worker_id % GATE_BITS;

	bits->words[bit / 64] |= UINT64CONST(1) << (bit % 64);
}

static WorkerBits
make_bits(const Bitmapset *workers)
{
	WorkerBits bits = {{0}};
	int worker_id = -1;

	while ((worker_id = bms_next_member(workers, worker_id)) >= 0)
		add_worker(&bits, worker_id);
	return bits;
}

static bool
overlap(const WorkerBits *a, const WorkerBits *b)
{
	uint64 common = 0;

	for (int i = 0; i < GATE_WORDS; i++)
		common |= a->words[i] & b->words[i];
	return common != 0;
}

/* ----------------------------------------------------------------
 * Entries; the lock is held exclusively
 * ----------------------------------------------------------------
 */

static inline GateEntry *
used_entry(int index)
{
	return &gate->entries[gate->used[index]];
}

static inline int
used_count(void)
{
	return pg_atomic_read_u32(&gate->used_count);
}

static void
enter(GateState state)
{
	if (mine->state == GATE_OUT)
	{
		mine->position = used_count();
		gate->used[mine->position] = mine - gate->entries;
		pg_atomic_write_u32(&gate->used_count, mine->position + 1);
	}
	mine->state = state;
	mine->ticket = ++gate->ticket;
	mine->since = GetCurrentTimestamp();
	mine->evicted = false;
}

static void
leave(void)
{
	int last = used_count() - 1;

	gate->used[mine->position] = gate->used[last];
	used_entry(mine->position)->position = mine->position;
	pg_atomic_write_u32(&gate->used_count, last);
	mine->state = GATE_OUT;
}

static void
leave_at_exit(int code, Datum arg)
{
	gate_end();
}

/* This process's entry, found at its first use. */
static void
find_entry(void)
{
	if (mine != NULL)
		return;
	mine = &gate->entries[MyProc - ProcGlobal->allProcs];
	before_shmem_exit(leave_at_exit, (Datum) 0);
}

void
gate_end(void)
{
	if (mine == NULL || mine->state == GATE_OUT)
		return;
	LWLockAcquire(gate->lock, LW_EXCLUSIVE);
	leave();
	LWLockRelease(gate->lock);
	ConditionVariableBroadcast(&gate->changed);
}

/* ----------------------------------------------------------------
 * Waiting
 * ----------------------------------------------------------------
 */

/* ConditionVariableTimedSleep() where nobody may throw or exit; the deadline may come nearer. */
static void
sleep_after_commit(long timeout_ms, TimestampTz *deadline)
{
	int events = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_POSTMASTER_DEATH, timeout_ms,
						   PG_WAIT_EXTENSION);
	TimestampTz now = GetCurrentTimestamp();

	if (events & WL_LATCH_SET)
		ResetLatch(MyLatch);
	ConditionVariablePrepareToSleep(&gate->changed); /* who wakes us takes us off the list */
	if (events & WL_POSTMASTER_DEATH)
		*deadline = now;
	else if (ProcDiePending || QueryCancelPending)
		*deadline = Min(*deadline, TimestampTzPlusMilliseconds(now, IMPATIENT_MS));
}

/*
 * Wait until must_wait(arg), called with the lock held, says no; false when that took too long.
 * Interruptible, but for a transaction that has committed here.
 */
static bool
wait_while(MustWait must_wait, const void *arg, int timeout_ms)
{
	bool committed = mine != NULL && mine->state == GATE_COMMITTING;
	TimestampTz deadline = 0;
	bool in_time = true;

	for (;;)
	{
		bool wait;
		long left;

		LWLockAcquire(gate->lock, LW_EXCLUSIVE);
		wait = must_wait(arg);
		LWLockRelease(gate->lock);
		if (!wait)
			break;

		if (deadline == 0)
		{
			deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), timeout_ms);
			ConditionVariablePrepareToSleep(&gate->changed);
			continue; /* lest we miss what changed before we were on the list */
		}
		left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), deadline);
		if (left <= 0)
		{
			in_time = false;
			break;
		}
		/* what has no signal, the passing of time, is looked at now and then */
		if (committed)
			sleep_after_commit(Min(left, PRECEDENCE_MS), &deadline);
		else
			(void) ConditionVariableTimedSleep(&gate->changed, Min(left, PRECEDENCE_MS),
											   PG_WAIT_EXTENSION);
	}
	if (deadline != 0)
		ConditionVariableCancelSleep();
	return in_time;
}

static void
report_timeout(void)
{
	gate_end();
	ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					errmsg("could not take a snapshot of the workers"),
					errdetail("Transactions were being committed there for %d s.", WAIT_MS / 1000),
					errhint("See whether a worker, or its replica, is slow to commit.")));
}

/*
 * Has an announced transaction been committed here, or aborted, already?  Its rows here can be
 * seen, those on its workers cannot.
 */
static bool
must_wait_for_local_commit(const GateEntry *entry, const WorkerBits *workers)
{
	return entry->state == GATE_ANNOUNCED && overlap(&entry->workers, workers) &&
		   !TransactionIdIsInProgress(entry->xid);
}

/* ----------------------------------------------------------------
 * Commits
 * ----------------------------------------------------------------
 */

/* Is a restore point under way?  If not, T is announced. */
static bool
is_announcement_blocked(const void *arg)
{
	for (int i = 0; i < used_count(); i++)
	{
		if (used_entry(i)->state == GATE_RESTORE)
			return true;
	}
	enter(GATE_ANNOUNCED);
	mine->announced = mine->ticket;
	return false;
}

void
gate_commit_announce(const int *worker_ids, int count)
{
	find_entry();
	Assert(mine->state == GATE_OUT);
	MemSet(unacknowledged, 0, sizeof(unacknowledged));
	MemSet(&mine->workers, 0, sizeof(mine->workers));
	for (int i = 0; i < count; i++)
	{
		unacknowledged[worker_ids[i] % GATE_BITS]++;
		add_worker(&mine->workers, worker_ids[i]);
	}
	mine->xid = GetTopTransactionIdIfAny();
	if (!wait_while(is_announcement_blocked, NULL, WAIT_MS))
		ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE), errmsg("could not commit"),
						errdetail("A restore point has been under way for %d s.", WAIT_MS / 1000)));
}

/* Is this R before us (T) in the queue? */
static bool
blocks_commit(const GateEntry *entry)
{
	if (entry->ticket > mine->ticket || !overlap(&entry->workers, &mine->workers))
		return false;
	switch (entry->state)
	{
		case GATE_SNAPSHOT:
			return !entry->evicted;
		case GATE_WAITING:
			return !TimestampDifferenceExceeds(entry->since, GetCurrentTimestamp(), PRECEDENCE_MS);
		default:
			return false;
	}
}

/* Those in the queue before us that have no precedence stand behind us from now on. */
static void
overtake(void)
{
	for (int i = 0; i < used_count(); i++)
	{
		GateEntry *entry = used_entry(i);

		if (entry->state == GATE_WAITING && entry->ticket < mine->ticket &&
			overlap(&entry->workers, &mine->workers))
			entry->ticket = ++gate->ticket;
	}
}

static bool
is_commit_blocked(const void *arg)
{
	for (int i = 0; i < used_count(); i++)
	{
		if (blocks_commit(used_entry(i)))
			return true;
	}
	overtake();
	return false;
}

/* Those who take snapshots on these workers have taken too long; the lock is held. */
static void
evict(const WorkerBits *workers)
{
	for (int i = 0; i < used_count(); i++)
	{
		GateEntry *entry = used_entry(i);

		if ((entry->state == GATE_SNAPSHOT || entry->state == GATE_RESTORE) &&
			overlap(&entry->workers, workers))
			entry->evicted = true;
	}
}

void
gate_commit_begin(void)
{
	if (mine == NULL || mine->state != GATE_ANNOUNCED)
		return;
	LWLockAcquire(gate->lock, LW_EXCLUSIVE);
	enter(GATE_COMMITTING);
	LWLockRelease(gate->lock);
	ConditionVariableBroadcast(&gate->changed);

	if (!wait_while(is_commit_blocked, NULL, EVICT_MS))
	{
		LWLockAcquire(gate->lock, LW_EXCLUSIVE);
		evict(&mine->workers);
		overtake();
		LWLockRelease(gate->lock);
	}
}

void
gate_commit_acknowledge(int worker_id)
{
	int bit = worker_id % GATE_BITS;

	if (mine == NULL || mine->state != GATE_COMMITTING || unacknowledged[bit] == 0 ||
		--unacknowledged[bit] > 0)
		return;
	LWLockAcquire(gate->lock, LW_EXCLUSIVE);
	mine->workers.words[bit / 64] &= ~(UINT64CONST(1) << (bit % 64));
	LWLockRelease(gate->lock);
	ConditionVariableBroadcast(&gate->changed);
}

/* A worker, and the last ticket that had been given out when we came. */
typedef struct SingleWait
{
	WorkerBits worker;
	uint64 limit;
} SingleWait;

static SingleWait
make_single_wait(int worker_id)
{
	SingleWait wait = {{{0}}};

	add_worker(&wait.worker, worker_id);
	LWLockAcquire(gate->lock, LW_SHARED);
	wait.limit = gate->ticket;
	LWLockRelease(gate->lock);
	return wait;
}

static bool
is_single_commit_blocked(const void *arg)
{
	const SingleWait *wait = arg;

	for (int i = 0; i < used_count(); i++)
	{
		const GateEntry *entry = used_entry(i);

		if ((entry->state == GATE_SNAPSHOT || entry->state == GATE_RESTORE) && !entry->evicted &&
			entry->ticket <= wait->limit && overlap(&entry->workers, &wait->worker))
			return true;
	}
	return false;
}

void
gate_commit_single(int worker_id)
{
	SingleWait wait;

	pg_memory_barrier();
	if (used_count() == 0)
		return;
	wait = make_single_wait(worker_id);
	if (!wait_while(is_single_commit_blocked, &wait, EVICT_MS))
	{
		LWLockAcquire(gate->lock, LW_EXCLUSIVE);
		evict(&wait.worker);
		LWLockRelease(gate->lock);
	}
}

/* ----------------------------------------------------------------
 * Snapshots
 * ----------------------------------------------------------------
 */

/* R: is there a T whose rows can be seen here already, but not on its workers? */
static bool
is_local_ahead(void)
{
	for (int i = 0; i < used_count(); i++)
	{
		if (must_wait_for_local_commit(used_entry(i), &mine->workers))
			return true;
	}
	return false;
}

/*
 * R: is there a commit that we must wait for?  If not, we are in.  Precedence that was lost
 * because of a slow worker comes back when none of the commits before us is slow.
 */
static bool
is_snapshot_blocked(const void *arg)
{
	TimestampTz now = GetCurrentTimestamp();
	bool blocked = false;
	bool slow = false;

	if (is_local_ahead())
	{
		mine->ticket = LAST_TICKET; /* its next ticket will be before ours */
		return true;
	}
	if (mine->ticket == LAST_TICKET)
	{
		mine->ticket = ++gate->ticket;
		mine->since = now;
	}
	for (int i = 0; i < used_count(); i++)
	{
		const GateEntry *entry = used_entry(i);

		if (entry->state != GATE_COMMITTING || entry->ticket > mine->ticket ||
			!overlap(&entry->workers, &mine->workers))
			continue;
		blocked = true;
		slow |= TimestampDifferenceExceeds(entry->since, now, PRECEDENCE_MS);
	}
	if (!blocked)
		mine->state = GATE_SNAPSHOT;
	else if (!slow && TimestampDifferenceExceeds(mine->since, now, PRECEDENCE_MS))
		mine->since = now;
	return blocked;
}

void
gate_snapshot_begin(const Bitmapset *workers)
{
	find_entry();
	Assert(mine->state == GATE_OUT);
	mine->workers = make_bits(workers);
	LWLockAcquire(gate->lock, LW_EXCLUSIVE);
	enter(GATE_WAITING);
	LWLockRelease(gate->lock);

	PG_TRY();
	{
		if (!wait_while(is_snapshot_blocked, NULL, WAIT_MS))
			report_timeout();
	}
	PG_CATCH();
	{
		gate_end();
		PG_RE_THROW();
	}
	PG_END_TRY();
}

void
gate_snapshot_check(void)
{
	bool evicted;

	LWLockAcquire(gate->lock, LW_SHARED);
	evicted = mine->evicted;
	LWLockRelease(gate->lock);
	if (!evicted)
		return;
	gate_end();
	ereport(
		ERROR,
		(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
		 errmsg("could not take one snapshot of all workers"),
		 errdetail("A worker did not answer within %d s, and transactions were committed since.",
				   EVICT_MS / 1000),
		 errhint("The statement might succeed if retried.")));
}

bool
gate_snapshot_is_ahead(Snapshot snapshot, const Bitmapset *workers)
{
	WorkerBits bits = make_bits(workers);
	bool ahead = false;

	LWLockAcquire(gate->lock, LW_SHARED);
	for (int i = 0; i < used_count() && !ahead; i++)
	{
		const GateEntry *entry = used_entry(i);

		ahead = entry != mine &&
				(entry->state == GATE_ANNOUNCED || entry->state == GATE_COMMITTING) &&
				overlap(&entry->workers, &bits) && !XidInMVCCSnapshot(entry->xid, snapshot);
	}
	LWLockRelease(gate->lock);
	return ahead;
}

static bool
is_single_read_blocked(const void *arg)
{
	const SingleWait *wait = arg;

	for (int i = 0; i < used_count(); i++)
	{
		const GateEntry *entry = used_entry(i);

		if ((entry->state == GATE_COMMITTING && entry->announced <= wait->limit &&
			 overlap(&entry->workers, &wait->worker)) ||
			must_wait_for_local_commit(entry, &wait->worker))
			return true;
	}
	return false;
}

void
gate_read_single(int worker_id)
{
	SingleWait wait;

	pg_memory_barrier();
	if (used_count() == 0)
		return;
	wait = make_single_wait(worker_id);
	if (!wait_while(is_single_read_blocked, &wait, WAIT_MS))
		report_timeout();
}

/* ----------------------------------------------------------------
 * Restore points
 * ----------------------------------------------------------------
 */

/* P waits for other P's, and for every T that may be committing locally at this moment. */
static bool
is_restore_point_blocked(const void *arg)
{
	for (int i = 0; i < used_count(); i++)
	{
		const GateEntry *entry = used_entry(i);

		if (entry->ticket < mine->ticket &&
			(entry->state == GATE_ANNOUNCED || entry->state == GATE_RESTORE))
			return true;
	}
	return false;
}

void
gate_restore_point_begin(const Bitmapset *workers)
{
	find_entry();
	Assert(mine->state == GATE_OUT);
	mine->workers = make_bits(workers);
	LWLockAcquire(gate->lock, LW_EXCLUSIVE);
	enter(GATE_RESTORE);
	LWLockRelease(gate->lock);

	PG_TRY();
	{
		if (!wait_while(is_restore_point_blocked, NULL, WAIT_MS))
			report_timeout();
	}
	PG_CATCH();
	{
		gate_end();
		PG_RE_THROW();
	}
	PG_END_TRY();
}

/* ----------------------------------------------------------------
 * Shared memory
 * ----------------------------------------------------------------
 */

static int
count_processes(void)
{
	return MaxBackends + NUM_AUXILIARY_PROCS;
}

static Size
gate_size(void)
{
	Size size = MAXALIGN(sizeof(Gate));

	size = add_size(size, MAXALIGN(mul_size(count_processes(), sizeof(GateEntry))));
	return add_size(size, MAXALIGN(mul_size(count_processes(), sizeof(int))));
}

static void
request_shared_memory(void)
{
	RequestAddinShmemSpace(gate_size());
	RequestNamedLWLockTranche("strata gate", 1);
}

static void
create_shared_memory(void)
{
	bool found;

	gate = ShmemInitStruct("strata gate", gate_size(), &found);
	if (!found)
	{
		char *next = (char *) gate + MAXALIGN(sizeof(Gate));

		MemSet(gate, 0, gate_size());
		gate->lock = &GetNamedLWLockTranche("strata gate")->lock;
		ConditionVariableInit(&gate->changed);
		pg_atomic_init_u32(&gate->used_count, 0);
		gate->entries = (GateEntry *) next;
		next += MAXALIGN(mul_size(count_processes(), sizeof(GateEntry)));
		gate->used = (int *) next;
	}
}

void
gate_initialize(void)
{
	shared_memory_register(request_shared_memory, create_shared_memory);
}
