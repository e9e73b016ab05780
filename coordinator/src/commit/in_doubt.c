/*
 * in_doubt.c
 *		Prepared transactions that nobody has ended yet, in shared memory.
 *
 * A statement must not read a worker on which a committed transaction is not visible yet while it is
 * elsewhere.  So each worker has a count of such entries, read without a lock, and a mark whether
 * anybody has looked at it since shared memory was made: before that it may have left-overs
 * of former incarnations.
 *
 * The table has a fixed size.  What does not fit is noted as "more" at its worker, which blocks until
 * the resolver has listed what is there, and had nothing more to add.
 *
 * The lock (a LWLock) is held for memory accesses only.  Worker slots are never given to another
 * worker while the server runs: ids of workers never repeat.
 */
#include "postgres.h"

#include "commit/in_doubt.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "cluster/metadata.h"
#include "commit/decision_log.h"
#include "server/clock.h"
#include "server/incarnation.h"
#include "server/launcher.h"
#include "server/settings.h"
#include "server/shared_memory.h"

PG_FUNCTION_INFO_V1(strata_list_in_doubt);

#define ENTRY_COUNT 1024
#define WORKER_COUNT 1024
#define LIST_COLUMNS 6

/* A statement waits so long for a worker in doubt if strata.worker_timeout is 0. */
#define DEFAULT_WAIT_MS 30000

/* What is known of a worker. */
#define WORKER_UNSEEN 0 /* nobody has looked since the server started */
#define WORKER_SEEN 1	/* it has what is noted */
#define WORKER_MORE 2	/* it has more than could be noted */

typedef struct DoubtfulWorker
{
	Oid database;
	int worker_id;
	pg_atomic_uint32 state;	   /* WORKER_... */
	pg_atomic_uint32 blocking; /* entries decided as committed */
} DoubtfulWorker;

typedef struct InDoubtShared
{
	pg_atomic_uint32 generation;
	ConditionVariable changed;	   /* a worker may have stopped blocking */
	pg_atomic_uint32 worker_count; /* slots in use: filled before they are counted */
	DoubtfulWorker workers[WORKER_COUNT];
	int entry_count;
	InDoubtEntry entries[ENTRY_COUNT];
} InDoubtShared;

static InDoubtShared *shared = NULL;
static LWLock *lock = NULL;
static bool looking_at_commit = false;

/* ----------------------------------------------------------------
 * Shared memory
 * ----------------------------------------------------------------
 */

static void
request_shared_memory(void)
{
	RequestAddinShmemSpace(MAXALIGN(sizeof(InDoubtShared)));
	RequestNamedLWLockTranche("strata_in_doubt", 1);
}

static void
create_shared_memory(void)
{
	bool found;

	shared = ShmemInitStruct("strata in doubt", sizeof(InDoubtShared), &found);
	if (!found)
	{
		memset(shared, 0, sizeof(InDoubtShared));
		pg_atomic_init_u32(&shared->generation, 0);
		pg_atomic_init_u32(&shared->worker_count, 0);
		ConditionVariableInit(&shared->changed);
	}
	lock = &GetNamedLWLockTranche("strata_in_doubt")->lock;
}

/* ----------------------------------------------------------------
 * Workers
 * ----------------------------------------------------------------
 */

/* The worker's slot, NULL when it has none yet.  Needs no lock. */
static DoubtfulWorker *
find_worker(int worker_id)
{
	int count = pg_atomic_read_u32(&shared->worker_count);

	pg_read_barrier();
	for (int i = 0; i < count; i++)
	{
		DoubtfulWorker *worker = &shared->workers[i];

		if (worker->worker_id == worker_id && worker->database == MyDatabaseId)
			return worker;
	}
	return NULL;
}

/* The worker's slot, made if needed; NULL when there is no room: such a worker is never checked. */
static DoubtfulWorker *
make_worker(int worker_id)
{
	DoubtfulWorker *worker = find_worker(worker_id);
	int count = pg_atomic_read_u32(&shared->worker_count);

	Assert(LWLockHeldByMeInMode(lock, LW_EXCLUSIVE));
	if (worker != NULL || count == WORKER_COUNT)
		return worker;
	worker = &shared->workers[count];
	worker->database = MyDatabaseId;
	worker->worker_id = worker_id;
	pg_atomic_init_u32(&worker->state, WORKER_UNSEEN);
	pg_atomic_init_u32(&worker->blocking, 0);
	pg_write_barrier();
	pg_atomic_write_u32(&shared->worker_count, count + 1);
	return worker;
}

bool
in_doubt_is_checked(int worker_id)
{
	DoubtfulWorker *worker = find_worker(worker_id);

	return worker != NULL && pg_atomic_read_u32(&worker->state) == WORKER_SEEN;
}

bool
in_doubt_blocks(int worker_id)
{
	DoubtfulWorker *worker = find_worker(worker_id);

	if (worker == NULL || pg_atomic_read_u32(&worker->state) != WORKER_SEEN)
		return !RecoveryInProgress(); /* a standby promises less */
	return pg_atomic_read_u32(&worker->blocking) > 0;
}

void
in_doubt_checked(int worker_id, uint32 generation)
{
	DoubtfulWorker *worker;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	worker = make_worker(worker_id);
	if (worker != NULL && (pg_atomic_read_u32(&worker->state) != WORKER_MORE ||
						   pg_atomic_read_u32(&shared->generation) == generation))
		pg_atomic_write_u32(&worker->state, WORKER_SEEN);
	LWLockRelease(lock);
	ConditionVariableBroadcast(&shared->changed);
}

/* ----------------------------------------------------------------
 * Entries
 * ----------------------------------------------------------------
 */

static InDoubtEntry *
find_entry(int worker_id, const PreparedGid *gid)
{
	for (int i = 0; i < shared->entry_count; i++)
	{
		InDoubtEntry *entry = &shared->entries[i];

		if (entry->gid.counter == gid->counter && entry->worker_id == worker_id &&
			entry->gid.incarnation == gid->incarnation && entry->gid.worker_id == gid->worker_id &&
			entry->database == MyDatabaseId)
			return entry;
	}
	return NULL;
}

static void
count_blocking(int worker_id, int change)
{
	DoubtfulWorker *worker = make_worker(worker_id);

	if (worker != NULL)
		pg_atomic_fetch_add_u32(&worker->blocking, change);
}

static void
set_decision(InDoubtEntry *entry, InDoubtDecision decision)
{
	int change = (decision == IN_DOUBT_COMMIT) - (entry->decision == IN_DOUBT_COMMIT);

	entry->decision = decision;
	if (change != 0)
		count_blocking(entry->worker_id, change);
}

static InDoubtEntry *
append_entry(int worker_id, const PreparedGid *gid)
{
	InDoubtEntry *entry = &shared->entries[shared->entry_count++];

	entry->database = MyDatabaseId;
	entry->worker_id = worker_id;
	entry->gid = *gid;
	entry->decision = IN_DOUBT_UNKNOWN;
	entry->since = GetCurrentTimestamp();
	entry->last_attempt = 0;
	return entry;
}

bool
in_doubt_add(int worker_id, const PreparedGid *gid, InDoubtDecision decision, InDoubtReason reason)
{
	InDoubtEntry *entry;
	bool is_new;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	entry = find_entry(worker_id, gid);
	is_new = entry == NULL;
	if (is_new && shared->entry_count < ENTRY_COUNT)
		entry = append_entry(worker_id, gid);
	else if (!is_new)
		entry->last_attempt = GetCurrentTimestamp();
	if (entry != NULL)
	{
		set_decision(entry, decision);
		entry->reason = reason;
	}
	else
	{
		DoubtfulWorker *worker = make_worker(worker_id);

		if (worker != NULL)
			pg_atomic_write_u32(&worker->state, WORKER_MORE);
	}
	if (is_new)
		pg_atomic_fetch_add_u32(&shared->generation, 1);
	LWLockRelease(lock);
	return is_new;
}

/* Entries are in no order: the last one fills the gap. */
static void
delete_entry(InDoubtEntry *entry)
{
	if (entry->decision == IN_DOUBT_COMMIT)
		count_blocking(entry->worker_id, -1);
	*entry = shared->entries[--shared->entry_count];
}

void
in_doubt_remove(int worker_id, const PreparedGid *gid)
{
	InDoubtEntry *entry;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	entry = find_entry(worker_id, gid);
	if (entry != NULL)
		delete_entry(entry);
	LWLockRelease(lock);
	ConditionVariableBroadcast(&shared->changed);
}

void
in_doubt_forget(int worker_id)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int i = shared->entry_count - 1; i >= 0; i--)
	{
		InDoubtEntry *entry = &shared->entries[i];

		if (entry->database == MyDatabaseId && entry->worker_id == worker_id)
			delete_entry(entry);
	}
	if (find_worker(worker_id) != NULL)
		pg_atomic_write_u32(&find_worker(worker_id)->state, WORKER_UNSEEN);
	LWLockRelease(lock);
}

void
in_doubt_attempted(int worker_id, InDoubtReason reason)
{
	TimestampTz now = GetCurrentTimestamp();

	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->entry_count; i++)
	{
		InDoubtEntry *entry = &shared->entries[i];

		if (entry->database != MyDatabaseId || entry->worker_id != worker_id)
			continue;
		entry->reason = reason;
		entry->last_attempt = now;
	}
	LWLockRelease(lock);
}

int
in_doubt_entries(int worker_id, InDoubtEntry **entries)
{
	int count = 0;

	*entries = palloc(sizeof(InDoubtEntry) * ENTRY_COUNT);
	LWLockAcquire(lock, LW_SHARED);
	for (int i = 0; i < shared->entry_count; i++)
	{
		const InDoubtEntry *entry = &shared->entries[i];

		if (entry->database == MyDatabaseId && (worker_id == 0 || entry->worker_id == worker_id))
			(*entries)[count++] = *entry;
	}
	LWLockRelease(lock);
	return count;
}

uint32
in_doubt_generation(void)
{
	return pg_atomic_read_u32(&shared->generation);
}

void
in_doubt_call_resolver(void)
{
	pg_atomic_fetch_add_u32(&shared->generation, 1);
	launcher_poke();
}

void
in_doubt_look_at_commit(void)
{
	looking_at_commit = true;
}

void
in_doubt_transaction_event(XactEvent event)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT)
		return;
	if (looking_at_commit && event == XACT_EVENT_COMMIT)
		in_doubt_call_resolver();
	looking_at_commit = false;
}

void
in_doubt_initialize(void)
{
	shared_memory_register(request_shared_memory, create_shared_memory);
}

/* ----------------------------------------------------------------
 * Waiting
 * ----------------------------------------------------------------
 */

/* Has nobody looked at this worker since the server started? */
static bool
is_unseen(int worker_id)
{
	DoubtfulWorker *worker = find_worker(worker_id);

	return worker == NULL || pg_atomic_read_u32(&worker->state) == WORKER_UNSEEN;
}

/*
 * The first look at a worker since the server started, if the resolver has not been there.  What
 * this incarnation has left there is noted already; there is nothing to wait for unless an earlier
 * one has left something.
 */
static void
look_for_left_overs(int worker_id, int64 deadline)
{
	uint32 generation = in_doubt_generation();
	WorkerConnection *conn = connection_open_as(worker_id, GetUserId());
	ListCell *cell;

	if (conn->transaction.depth > 0 || !is_unseen(worker_id))
		return;
	foreach(cell, prepared_gid_list(conn, deadline))
	{
		if (((PreparedGid *) lfirst(cell))->incarnation != incarnation_get())
			return; /* the resolver's */
	}
	in_doubt_checked(worker_id, generation);
}

static void
report_timeout(int worker_id)
{
	ConditionVariableCancelSleep();
	ereport(ERROR,
			(errcode(ERRCODE_CANNOT_CONNECT_NOW),
			 errmsg("worker \"%s\" has transactions in doubt", metadata_worker(worker_id)->name),
			 errdetail("Committed changes may not be visible there yet."),
			 errhint("SELECT * FROM strata.in_doubt shows what they wait for.")));
}

void
in_doubt_wait(int worker_id)
{
	int64 deadline = clock_now() +
					 (strata_worker_timeout > 0 ? strata_worker_timeout : DEFAULT_WAIT_MS);

	in_doubt_call_resolver();
	if (is_unseen(worker_id))
		look_for_left_overs(worker_id, deadline);

	ConditionVariablePrepareToSleep(&shared->changed);
	while (in_doubt_blocks(worker_id))
	{
		int64 left = deadline - clock_now();

		if (left <= 0)
			report_timeout(worker_id);
		(void) ConditionVariableTimedSleep(&shared->changed, Min(left, 1000), PG_WAIT_EXTENSION);
	}
	ConditionVariableCancelSleep();
}

/* ----------------------------------------------------------------
 * What administrators see
 * ----------------------------------------------------------------
 */

static const char *
describe_decision(InDoubtDecision decision)
{
	switch (decision)
	{
		case IN_DOUBT_COMMIT:
			return "commit";
		case IN_DOUBT_ROLLBACK:
			return "rollback";
		case IN_DOUBT_UNKNOWN:
			break;
	}
	return "unknown";
}

static const char *
describe_reason(InDoubtReason reason)
{
	switch (reason)
	{
		case IN_DOUBT_WORKER_SILENT:
			return "the worker does not answer";
		case IN_DOUBT_REPLICA:
			return "the coordinator's replica has not confirmed the decision";
		case IN_DOUBT_LEFT_OVER:
			return "found on the worker, to be ended next";
		case IN_DOUBT_BUSY:
			return "a session of the worker still works on it";
		case IN_DOUBT_REFUSED:
			return "the worker refuses to end it, see the coordinator's log";
		case IN_DOUBT_FOREIGN_WORKER:
			return "it was prepared on another worker, and is left alone";
	}
	return "unknown";
}

static void
put_entry(ReturnSetInfo *set, const char *cluster, const InDoubtEntry *entry)
{
	Datum values[LIST_COLUMNS];
	bool nulls[LIST_COLUMNS] = {false};
	char gid[CONNECTION_GID_SIZE];

	prepared_gid_format(gid, cluster, &entry->gid);
	values[0] = Int32GetDatum(entry->worker_id);
	values[1] = CStringGetTextDatum(gid);
	values[2] = TimestampTzGetDatum(entry->since);
	values[3] = CStringGetTextDatum(describe_decision(entry->decision));
	values[4] = CStringGetTextDatum(describe_reason(entry->reason));
	values[5] = TimestampTzGetDatum(entry->last_attempt);
	nulls[5] = entry->last_attempt == 0;
	tuplestore_putvalues(set->setResult, set->setDesc, values, nulls);
}

/* A worker that nobody has seen since the server started may hold anything. */
static void
put_unchecked_worker(ReturnSetInfo *set, int worker_id)
{
	Datum values[LIST_COLUMNS] = {0};
	bool nulls[LIST_COLUMNS] = {false, true, false, false, false, true};

	values[0] = Int32GetDatum(worker_id);
	values[2] = TimestampTzGetDatum(PgStartTime);
	values[3] = CStringGetTextDatum("unknown");
	values[4] = CStringGetTextDatum(is_unseen(worker_id) ? "nobody has seen the worker yet"
														 : "there are more than can be listed");
	tuplestore_putvalues(set->setResult, set->setDesc, values, nulls);
}

Datum
strata_list_in_doubt(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = (ReturnSetInfo *) fcinfo->resultinfo;
	const char *cluster = connection_cluster_id();
	const Bitmapset *workers = metadata_all_workers();
	InDoubtEntry *entries;
	int worker_id = -1;
	int count;

	InitMaterializedSRF(fcinfo, 0);
	count = in_doubt_entries(0, &entries);
	for (int i = 0; i < count; i++)
		put_entry(set, cluster, &entries[i]);
	while (!RecoveryInProgress() && (worker_id = bms_next_member(workers, worker_id)) >= 0)
	{
		if (!in_doubt_is_checked(worker_id))
			put_unchecked_worker(set, worker_id);
	}
	return (Datum) 0;
}
