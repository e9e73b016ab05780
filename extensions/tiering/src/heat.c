/*
 * heat.c
 *		Heat: the bytes that queries read of each row group, decaying by half in each half-life.
 *
 * strata_columnar tells us what was read when a scan leaves a row group (extensions/common/read_hook.h).
 * A session collects that until its outermost statement ends, because only then it is known how many
 * leaves the statement has read: each counts with its bytes divided by the square root of that number.
 * So whoever reads everything once heats nothing much, and no list of such users is needed.  A parallel worker
 * weighs by the leaves that it has read itself.  What a failed statement has read does not count.
 *
 * Then the heat is added to entries in shared memory.  An entry holds the heat as of its last read; it is
 * brought up to date whenever somebody looks, so that nobody ever goes over all entries to let them
 * cool.  When the table is full the coldest entries make room.
 *
 * Shared memory does not outlive the server, and a replica has reads of its own.  strata_tiering.keep_heat(),
 * which somebody calls every now and then, writes what has changed into an ordinary table, so that it is in the
 * WAL, and adds what that table has to an empty memory after a start or a promotion: heat can be added up.
 *
 * Locks: heat_shared->lock is taken shared to find and change entries, exclusively to make and remove them;
 * entry->mutex protects the fields of an entry while the lock is only shared.  Nothing else is
 * acquired under either.
 */
#include "heat.h"

#include <math.h>

#include "access/xact.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "read_hook.h"

/* Part of the entries that is removed when there is no room. */
#define EVICTED_PART 0.05

/* Row groups that a session collects before it hands them on in the middle of a statement. */
#define PENDING_MAX 65536

/* Relation 0 stands for the database: its heat has been loaded since the server started. */
typedef struct HeatKey
{
	Oid database;
	Oid relation;
	uint64 group_id;
} HeatKey;

typedef struct HeatEntry
{
	HeatKey key; /* first */
	slock_t mutex;
	double heat;	/* as of `at` */
	TimestampTz at; /* the last read */
	uint64 bytes;	/* ever read */
} HeatEntry;

typedef struct HeatShared
{
	LWLock *lock;
} HeatShared;

typedef struct PendingKey
{
	Oid relation;
	uint64 group_id;
} PendingKey;

typedef struct PendingEntry
{
	PendingKey key;
	uint64 bytes;
} PendingEntry;

static bool track_heat = true;
static int half_life = 5 * 3600;
static int max_entries = 65536;

static HeatShared *heat_shared = NULL;
static HTAB *heat_entries = NULL;
static HTAB *pending = NULL;
static int nesting_level = 0;

static shmem_request_hook_type previous_shmem_request = NULL;
static shmem_startup_hook_type previous_shmem_startup = NULL;
static ExecutorRun_hook_type previous_run = NULL;
static ExecutorFinish_hook_type previous_finish = NULL;
static ExecutorEnd_hook_type previous_end = NULL;

PG_FUNCTION_INFO_V1(strata_tiering_row_group_heat);
PG_FUNCTION_INFO_V1(strata_tiering_add_heat);
PG_FUNCTION_INFO_V1(strata_tiering_forget_heat);
PG_FUNCTION_INFO_V1(strata_tiering_begin_loading);

/* ---------------------------------------------------------------- shared memory */

static void
request_memory(void)
{
	if (previous_shmem_request)
		previous_shmem_request();
	RequestAddinShmemSpace(MAXALIGN(sizeof(HeatShared)) +
						   hash_estimate_size(max_entries, sizeof(HeatEntry)));
	RequestNamedLWLockTranche("strata_tiering", 1);
}

static void
create_memory(void)
{
	HASHCTL control = {.keysize = sizeof(HeatKey), .entrysize = sizeof(HeatEntry)};
	bool found;

	if (previous_shmem_startup)
		previous_shmem_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	heat_shared = ShmemInitStruct("strata heat", sizeof(HeatShared), &found);
	if (!found)
		heat_shared->lock = &GetNamedLWLockTranche("strata_tiering")->lock;
	heat_entries = compat_shmem_init_hash("strata heat entries", max_entries, &control,
										  HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
	LWLockRelease(AddinShmemInitLock);
}

static double
decayed(double heat, TimestampTz from, TimestampTz to)
{
	if (to <= from)
		return heat;
	return heat * exp2(-(double) (to - from) / USECS_PER_SEC / half_life);
}

typedef struct Candidate
{
	HeatKey key;
	double heat;
} Candidate;

static int
compare_candidates(const void *first, const void *second)
{
	double a = ((const Candidate *) first)->heat;
	double b = ((const Candidate *) second)->heat;

	return a < b ? -1 : a > b;
}

/* Remove the coldest entries.  The lock is held exclusively. */
static void
evict(TimestampTz now)
{
	Candidate *candidates = palloc(sizeof(Candidate) * hash_get_num_entries(heat_entries));
	HASH_SEQ_STATUS status;
	HeatEntry *entry;
	int count = 0;
	int evicted;

	hash_seq_init(&status, heat_entries);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (OidIsValid(entry->key.relation))
			candidates[count++] = (Candidate){entry->key, decayed(entry->heat, entry->at, now)};
	}
	qsort(candidates, count, sizeof(Candidate), compare_candidates);
	evicted = Min(count, Max(10, (int) (count * EVICTED_PART)));
	for (int i = 0; i < evicted; i++)
		(void) hash_search(heat_entries, &candidates[i].key, HASH_REMOVE, NULL);
	pfree(candidates);
}

/* A new entry, or the one that somebody else has made meanwhile; NULL if there is no room for any. */
static HeatEntry *
make_entry(const HeatKey *key, TimestampTz now, bool *found)
{
	HeatEntry *entry;

	if (hash_get_num_entries(heat_entries) >= max_entries &&
		hash_search(heat_entries, key, HASH_FIND, NULL) == NULL)
		evict(now);
	entry = hash_search(heat_entries, key, HASH_ENTER_NULL, found);
	if (entry != NULL && !*found)
	{
		SpinLockInit(&entry->mutex);
		entry->heat = 0;
		entry->at = now;
		entry->bytes = 0;
	}
	return entry;
}

static void
add_to_entry(HeatEntry *entry, double heat, TimestampTz at, uint64 bytes)
{
	SpinLockAcquire(&entry->mutex);
	if (at >= entry->at)
	{
		entry->heat = decayed(entry->heat, entry->at, at) + heat;
		entry->at = at;
	}
	else
		entry->heat += decayed(heat, at, entry->at);
	entry->bytes += bytes;
	SpinLockRelease(&entry->mutex);
}

static void
add_heat(Oid relation, uint64 group_id, double heat, TimestampTz at, uint64 bytes)
{
	HeatKey key;
	HeatEntry *entry;

	MemSet(&key, 0, sizeof(key));
	key.database = MyDatabaseId;
	key.relation = relation;
	key.group_id = group_id;
	LWLockAcquire(heat_shared->lock, LW_SHARED);
	entry = hash_search(heat_entries, &key, HASH_FIND, NULL);
	if (entry == NULL)
	{
		bool found;

		LWLockRelease(heat_shared->lock);
		LWLockAcquire(heat_shared->lock, LW_EXCLUSIVE);
		entry = make_entry(&key, at, &found);
	}
	if (entry != NULL)
		add_to_entry(entry, heat, at, bytes);
	LWLockRelease(heat_shared->lock);
}

/* ---------------------------------------------------------------- a session's statement */

static int
compare_oids(const void *first, const void *second)
{
	Oid a = *(const Oid *) first;
	Oid b = *(const Oid *) second;

	return a < b ? -1 : a > b;
}

static int
count_leaves(void)
{
	Oid *relations = palloc(sizeof(Oid) * hash_get_num_entries(pending));
	HASH_SEQ_STATUS status;
	PendingEntry *entry;
	int count = 0;
	int leaves = 0;

	hash_seq_init(&status, pending);
	while ((entry = hash_seq_search(&status)) != NULL)
		relations[count++] = entry->key.relation;
	qsort(relations, count, sizeof(Oid), compare_oids);
	for (int i = 0; i < count; i++)
		leaves += i == 0 || relations[i] != relations[i - 1];
	pfree(relations);
	return leaves;
}

static void
forget_pending(void)
{
	if (pending != NULL)
		hash_destroy(pending);
	pending = NULL;
}

/* The statement is over: hand on what it has read. */
static void
hand_on(void)
{
	TimestampTz now = GetCurrentTimestamp();
	HASH_SEQ_STATUS status;
	PendingEntry *entry;
	double weight;

	if (pending == NULL)
		return;
	weight = 1 / sqrt(count_leaves());
	hash_seq_init(&status, pending);
	while ((entry = hash_seq_search(&status)) != NULL)
		add_heat(entry->key.relation, entry->key.group_id, entry->bytes * weight, now,
				 entry->bytes);
	forget_pending();
}

static void
note_read(Oid relation, uint64 group_id, uint64 bytes)
{
	PendingKey key;
	PendingEntry *entry;
	bool found;

	if (!track_heat || heat_shared == NULL)
		return;
	if (pending == NULL)
	{
		HASHCTL control = {.keysize = sizeof(PendingKey),
						   .entrysize = sizeof(PendingEntry),
						   .hcxt = TopMemoryContext};

		pending = hash_create("strata heat of a statement", 64, &control,
							  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	MemSet(&key, 0, sizeof(key));
	key.relation = relation;
	key.group_id = group_id;
	entry = hash_search(pending, &key, HASH_ENTER, &found);
	entry->bytes = found ? entry->bytes + bytes : bytes;
	if (!found && hash_get_num_entries(pending) > PENDING_MAX)
		hand_on();
}

static void
run(COMPAT_RUN_ARGUMENTS(query))
{
	nesting_level++;
	PG_TRY();
	{
		if (previous_run)
			previous_run(COMPAT_PASS_RUN(query));
		else
			standard_ExecutorRun(COMPAT_PASS_RUN(query));
	}
	PG_FINALLY();
	{
		nesting_level--;
	}
	PG_END_TRY();
}

static void
finish(QueryDesc *query)
{
	nesting_level++;
	PG_TRY();
	{
		if (previous_finish)
			previous_finish(query);
		else
			standard_ExecutorFinish(query);
	}
	PG_FINALLY();
	{
		nesting_level--;
	}
	PG_END_TRY();
}

static void
end(QueryDesc *query)
{
	if (previous_end)
		previous_end(query);
	else
		standard_ExecutorEnd(query);
	if (nesting_level == 0)
		hand_on();
}

static void
end_transaction(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			hand_on();
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_ABORT:
			forget_pending();
			nesting_level = 0;
			break;
		default:
			break;
	}
}

/* ---------------------------------------------------------------- SQL */

static void
require_memory(void)
{
	if (heat_shared == NULL)
		ereport(
			ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("strata_tiering must be loaded when the server starts"),
			 errhint("Add strata_tiering to shared_preload_libraries and restart the server.")));
}

/* row_group_heat(OUT leaf oid, row_group bigint, heat float8, last_read timestamptz, heat_then float8, bytes_read bigint) */
Datum
strata_tiering_row_group_heat(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	TimestampTz now = GetCurrentTimestamp();
	HASH_SEQ_STATUS status;
	HeatEntry *entries;
	HeatEntry *entry;
	int count = 0;

	require_memory();
	InitMaterializedSRF(fcinfo, 0);
	LWLockAcquire(heat_shared->lock, LW_SHARED);
	entries = MemoryContextAllocExtended(
		CurrentMemoryContext, sizeof(HeatEntry) * (Size) Max(hash_get_num_entries(heat_entries), 1),
		MCXT_ALLOC_HUGE);
	hash_seq_init(&status, heat_entries);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (entry->key.database != MyDatabaseId || !OidIsValid(entry->key.relation))
			continue;
		SpinLockAcquire(&entry->mutex);
		entries[count++] = *entry;
		SpinLockRelease(&entry->mutex);
	}
	LWLockRelease(heat_shared->lock);

	for (int i = 0; i < count; i++)
	{
		Datum values[] = {
			ObjectIdGetDatum(entries[i].key.relation),
			Int64GetDatum((int64) entries[i].key.group_id),
			Float8GetDatum(decayed(entries[i].heat, entries[i].at, now)),
			TimestampTzGetDatum(entries[i].at),
			Float8GetDatum(entries[i].heat),
			Int64GetDatum((int64) entries[i].bytes),
		};
		bool nulls[lengthof(values)] = {false};

		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* add_heat(leaf oid, row_group bigint, heat float8, at timestamptz, bytes bigint) */
Datum
strata_tiering_add_heat(PG_FUNCTION_ARGS)
{
	double heat = PG_GETARG_FLOAT8(2);

	require_memory();
	if (!OidIsValid(PG_GETARG_OID(0)) || isnan(heat) || isinf(heat) || heat < 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid heat")));
	add_heat(PG_GETARG_OID(0), (uint64) PG_GETARG_INT64(1), heat, PG_GETARG_TIMESTAMPTZ(3),
			 (uint64) PG_GETARG_INT64(4));
	PG_RETURN_VOID();
}

/* forget_heat(leaf oid) */
Datum
strata_tiering_forget_heat(PG_FUNCTION_ARGS)
{
	HASH_SEQ_STATUS status;
	HeatEntry *entry;

	require_memory();
	LWLockAcquire(heat_shared->lock, LW_EXCLUSIVE);
	hash_seq_init(&status, heat_entries);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (entry->key.database == MyDatabaseId && entry->key.relation == PG_GETARG_OID(0) &&
			OidIsValid(entry->key.relation))
			(void) hash_search(heat_entries, &entry->key, HASH_REMOVE, NULL);
	}
	LWLockRelease(heat_shared->lock);
	PG_RETURN_VOID();
}

/* begin_loading(): true for the first who asks after the server's start, in each database */
Datum
strata_tiering_begin_loading(PG_FUNCTION_ARGS)
{
	HeatKey key;
	bool found = false;

	require_memory();
	MemSet(&key, 0, sizeof(key));
	key.database = MyDatabaseId;
	LWLockAcquire(heat_shared->lock, LW_EXCLUSIVE);
	(void) make_entry(&key, GetCurrentTimestamp(), &found);
	LWLockRelease(heat_shared->lock);
	PG_RETURN_BOOL(!found);
}

void
heat_initialize(void)
{
	DefineCustomBoolVariable("strata_tiering.track_heat", "Measures what queries read.", NULL,
							 &track_heat, true, PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("strata_tiering.half_life", "Time after which a read counts half.",
							NULL, &half_life, 5 * 3600, 1, INT_MAX, PGC_SIGHUP, GUC_UNIT_S, NULL,
							NULL, NULL);
	if (!process_shared_preload_libraries_in_progress)
		return;
	DefineCustomIntVariable("strata_tiering.heat_entries",
							"Row groups whose heat is known at the same time.",
							"When there are more, the coldest are forgotten.", &max_entries, 65536,
							100, INT_MAX / 2, PGC_POSTMASTER, 0, NULL, NULL, NULL);
	*find_rendezvous_variable(READ_HOOK_VARIABLE) = (void *) note_read;
	previous_shmem_request = shmem_request_hook;
	shmem_request_hook = request_memory;
	previous_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = create_memory;
	previous_run = ExecutorRun_hook;
	ExecutorRun_hook = run;
	previous_finish = ExecutorFinish_hook;
	ExecutorFinish_hook = finish;
	previous_end = ExecutorEnd_hook;
	ExecutorEnd_hook = end;
	RegisterXactCallback(end_transaction, NULL);
}
