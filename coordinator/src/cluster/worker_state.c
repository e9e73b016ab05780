/*
 * worker_state.c
 *		The table of workers' states in shared memory, and its SQL function.
 *
 * A hash table of fixed size under one LWLock: readers are sessions that open or wait for
 * wires, the only writer (but for a mark) is the heartbeat, once per worker and second.  When the
 * heartbeat ends it removes what it wrote, so that nobody believes a state that is no longer kept.
 *
 * How far the WAL of a worker was, and when, is kept for the last WAL_POSITIONS seconds at least: who allows a standby to be
 * further behind is told the oldest position, which is stricter.
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "compat.h"
#include "cluster/metadata.h"
#include "cluster/worker_state.h"
#include "server/shared_memory.h"

#define TRANCHE_NAME "strata worker state"

typedef struct StateKey
{
	Oid database;
	int worker_id;
} StateKey;

/* Positions that are kept of each worker, and the time between two of them. */
#define WAL_POSITIONS 30
#define WAL_POSITION_MS 1000

typedef struct StateEntry
{
	StateKey key;
	WorkerState state;
	WalPosition wal[WAL_POSITIONS]; /* a ring */
	int newest;						/* of it; any one while it is empty */
	bool left_behind;				/* the sessions', who write nothing else */
} StateEntry;

static HTAB *states = NULL;
static LWLock *states_lock = NULL;

PG_FUNCTION_INFO_V1(strata_worker_status);

/* ----------------------------------------------------------------
 * Reading
 * ----------------------------------------------------------------
 */

static StateEntry *
find_entry(int worker_id, HASHACTION action)
{
	StateKey key = {.database = MyDatabaseId, .worker_id = worker_id};

	return hash_search(states, &key, action, NULL);
}

bool
worker_state_get(int worker_id, WorkerState *state)
{
	StateEntry *entry;

	LWLockAcquire(states_lock, LW_SHARED);
	entry = find_entry(worker_id, HASH_FIND);
	if (entry != NULL)
		*state = entry->state;
	LWLockRelease(states_lock);
	if (entry == NULL)
		*state = (WorkerState){.status = WORKER_UNKNOWN, .host = -1};
	return entry != NULL;
}

bool
worker_state_is_down(int worker_id)
{
	WorkerState state;

	return worker_state_get(worker_id, &state) && state.status == WORKER_DOWN;
}

int64
worker_state_silence(int worker_id)
{
	WorkerState state;

	if (!worker_state_get(worker_id, &state) || state.unanswered_since == 0)
		return 0;
	return state.published_at - state.unanswered_since;
}

WalPosition
worker_state_wal_position(int worker_id, int64 since)
{
	StateEntry *entry;
	WalPosition found = {0};

	LWLockAcquire(states_lock, LW_SHARED);
	entry = find_entry(worker_id, HASH_FIND);
	for (int i = 0; entry != NULL && i < WAL_POSITIONS; i++)
	{
		const WalPosition *wal = &entry->wal[(entry->newest + WAL_POSITIONS - i) % WAL_POSITIONS];

		if (wal->asked_at == 0 || wal->asked_at < since)
			break;
		found = *wal;
	}
	LWLockRelease(states_lock);
	return found;
}

uint32
worker_state_all_returns(void)
{
	HASH_SEQ_STATUS status;
	StateEntry *entry;
	uint32 sum = 0;

	LWLockAcquire(states_lock, LW_SHARED);
	hash_seq_init(&status, states);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (entry->key.database == MyDatabaseId)
			sum += entry->state.returns;
	}
	LWLockRelease(states_lock);
	return sum;
}

const char *
worker_state_status_name(WorkerStatus status)
{
	switch (status)
	{
		case WORKER_UP:
			return "up";
		case WORKER_READ_ONLY:
			return "read-only";
		case WORKER_DOWN:
			return "down";
		case WORKER_UNKNOWN:
			break;
	}
	return "unknown";
}

/* worker_status(): (worker_id, status, since, reason) of each worker */
Datum
strata_worker_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	const Bitmapset *workers = metadata_all_workers();
	int worker_id = -1;

	InitMaterializedSRF(fcinfo, 0);
	while ((worker_id = bms_next_member(workers, worker_id)) >= 0)
	{
		WorkerState state;
		Datum values[4];
		bool nulls[4] = {false};

		(void) worker_state_get(worker_id, &state);
		values[0] = Int32GetDatum(worker_id);
		values[1] = CStringGetTextDatum(worker_state_status_name(state.status));
		values[2] = TimestampTzGetDatum(state.since);
		nulls[2] = state.status == WORKER_UNKNOWN;
		values[3] = CStringGetTextDatum(state.reason);
		nulls[3] = state.reason[0] == '\0';
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* ----------------------------------------------------------------
 * Writing
 * ----------------------------------------------------------------
 */

/* The newest position is replaced by the next one until it is old enough to stay. */
static void
keep_position(StateEntry *entry)
{
	const WalPosition *wal = &entry->state.wal;
	int before = (entry->newest + WAL_POSITIONS - 1) % WAL_POSITIONS;

	if (wal->asked_at <= entry->wal[entry->newest].asked_at)
		return;
	if (entry->wal[entry->newest].asked_at - entry->wal[before].asked_at >= WAL_POSITION_MS)
		entry->newest = (entry->newest + 1) % WAL_POSITIONS;
	entry->wal[entry->newest] = *wal;
}

void
worker_state_publish(int worker_id, const WorkerState *state)
{
	StateEntry *entry;

	LWLockAcquire(states_lock, LW_EXCLUSIVE);
	entry = find_entry(worker_id, HASH_FIND);
	if (entry == NULL && hash_get_num_entries(states) < WORKER_STATE_MAX)
	{
		entry = find_entry(worker_id, HASH_ENTER_NULL);
		if (entry != NULL)
		{
			entry->left_behind = false;
			entry->newest = 0;
			memset(entry->wal, 0, sizeof(entry->wal));
		}
	}
	if (entry != NULL)
	{
		if (entry->state.generation !=
			state->generation) /* another server's, with a WAL of its own */
			memset(entry->wal, 0, sizeof(entry->wal));
		entry->state = *state;
		keep_position(entry);
	}
	LWLockRelease(states_lock);
}

/* Exchange the mark; returns what it was. */
static bool
mark_left_behind(int worker_id, bool mark)
{
	StateEntry *entry;
	bool before = false;

	LWLockAcquire(states_lock, LW_EXCLUSIVE);
	entry = find_entry(worker_id, HASH_FIND);
	if (entry != NULL)
	{
		before = entry->left_behind;
		entry->left_behind = mark;
	}
	LWLockRelease(states_lock);
	return before;
}

void
worker_state_leave_behind(int worker_id)
{
	(void) mark_left_behind(worker_id, true);
}

bool
worker_state_take_left_behind(int worker_id)
{
	return mark_left_behind(worker_id, false);
}

void
worker_state_forget(int worker_id)
{
	LWLockAcquire(states_lock, LW_EXCLUSIVE);
	(void) find_entry(worker_id, HASH_REMOVE);
	LWLockRelease(states_lock);
}

void
worker_state_forget_all(void)
{
	HASH_SEQ_STATUS status;
	StateEntry *entry;

	LWLockAcquire(states_lock, LW_EXCLUSIVE);
	hash_seq_init(&status, states);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (entry->key.database == MyDatabaseId)
			(void) hash_search(states, &entry->key, HASH_REMOVE, NULL);
	}
	LWLockRelease(states_lock);
}

/* ----------------------------------------------------------------
 * Shared memory
 * ----------------------------------------------------------------
 */

static void
request_shared_memory(void)
{
	RequestAddinShmemSpace(hash_estimate_size(WORKER_STATE_MAX, sizeof(StateEntry)));
	RequestNamedLWLockTranche(TRANCHE_NAME, 1);
}

static void
create_shared_memory(void)
{
	HASHCTL control = {.keysize = sizeof(StateKey), .entrysize = sizeof(StateEntry)};

	states = compat_shmem_init_hash(TRANCHE_NAME, WORKER_STATE_MAX, &control,
									HASH_ELEM | HASH_BLOBS);
	states_lock = &GetNamedLWLockTranche(TRANCHE_NAME)->lock;
}

void
worker_state_initialize(void)
{
	shared_memory_register(request_shared_memory, create_shared_memory);
}
