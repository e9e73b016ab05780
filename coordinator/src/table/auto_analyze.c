/*
 * auto_analyze.c
 *		ANALYZE of distributed and reference tables in the background.
 *
 * Of distributed tables autovacuum decides, by its settings and those of the table, from the changes that this server has counted.  Its own
 * ANALYZE of a shell reads nothing and changes nothing (analyze_sample.c): it must not keep one of autovacuum's few processes
 * waiting for workers, or hold up those that cancel it.  It leaves a request in shared memory instead, for service
 * "periods", which runs the ANALYZE that a user would run.  Core does that as the table's owner, restricted.  It gives way to whoever waits for
 * its locks for deadlock_timeout, as autovacuum does, and waits shorter than that itself, which autovacuum does not: a transaction of
 * GRANT and ALTER TABLE would be told of a deadlock.
 *
 * A request stays until it is done: while somebody holds a lock that conflicts, or a worker is away, it is tried
 * again after RETRY_MS.  After a crash, and when there are too many, the next changes make a new one.
 *
 * Reference tables are analysed by each server's own autovacuum.  As often as that looks at a database, we look for
 * copies that it has left behind (reference_statistics.c), unless it is switched off here.
 */
#include "postgres.h"

#include "table/auto_analyze.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "postmaster/autovacuum.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "cluster/metadata.h"
#include "cluster/relation_name.h"
#include "server/launcher.h"
#include "server/service_transaction.h"
#include "server/shared_memory.h"
#include "table/reference_statistics.h"

#define REQUESTS_MAX 1024
#define RETRY_MS 10000
#define IDLE_MS (3600 * 1000)

typedef struct Request
{
	Oid database; /* InvalidOid: free */
	Oid relation;
} Request;

typedef struct AutoAnalyzeShared
{
	slock_t mutex;
	Request requests[REQUESTS_MAX];
} AutoAnalyzeShared;

static AutoAnalyzeShared *shared = NULL;

/* This process could not do a request in its last run. */
static bool has_failed = false;

/* When copies of reference tables were looked at last. */
static TimestampTz looked_at = 0;

/* ---------------------------------------------------------------- requests */

static void
request_shared_memory(void)
{
	RequestAddinShmemSpace(MAXALIGN(sizeof(AutoAnalyzeShared)));
}

static void
create_shared_memory(void)
{
	bool found;

	shared = ShmemInitStruct("strata analyze requests", sizeof(AutoAnalyzeShared), &found);
	if (!found)
	{
		memset(shared, 0, sizeof(AutoAnalyzeShared));
		SpinLockInit(&shared->mutex);
	}
}

void
auto_analyze_request(Oid relation)
{
	Request *place = NULL;

	SpinLockAcquire(&shared->mutex);
	for (int i = 0; i < REQUESTS_MAX; i++)
	{
		Request *request = &shared->requests[i];

		if (request->database == MyDatabaseId && request->relation == relation)
		{
			place = request;
			break;
		}
		if (place == NULL && !OidIsValid(request->database))
			place = request;
	}
	if (place != NULL)
	{
		place->database = MyDatabaseId;
		place->relation = relation;
	}
	SpinLockRelease(&shared->mutex);
	launcher_poke();
}

/* It is removed before the ANALYZE begins: later changes make a new one. */
static void
remove_request(Oid relation)
{
	SpinLockAcquire(&shared->mutex);
	for (int i = 0; i < REQUESTS_MAX; i++)
	{
		if (shared->requests[i].database == MyDatabaseId &&
			shared->requests[i].relation == relation)
			shared->requests[i].database = InvalidOid;
	}
	SpinLockRelease(&shared->mutex);
}

/* Tables of this database, into an array of REQUESTS_MAX; returns their number. */
static int
list_requests(Oid *relations)
{
	int count = 0;

	SpinLockAcquire(&shared->mutex);
	for (int i = 0; i < REQUESTS_MAX; i++)
	{
		if (shared->requests[i].database == MyDatabaseId)
			relations[count++] = shared->requests[i].relation;
	}
	SpinLockRelease(&shared->mutex);
	return count;
}

/* ---------------------------------------------------------------- the task */

/* Whether somebody who waits for our locks cancels what we do (ProcSleep). */
static void
give_way(bool to_all)
{
	LWLockAcquire(ProcArrayLock, LW_EXCLUSIVE);
	if (to_all)
		MyProc->statusFlags |= PROC_IS_AUTOVACUUM;
	else
		MyProc->statusFlags &= ~PROC_IS_AUTOVACUUM;
	ProcGlobal->statusFlags[MyProc->pgxactoff] = MyProc->statusFlags;
	LWLockRelease(ProcArrayLock);
	if (!to_all)
		QueryCancelPending = false; /* it came when we were done */
}

/* A table, or with a worker the copy that it has.  False if it has to be tried again. */
static bool
analyze_table(Oid relation, int worker)
{
	char *sql;

	if (!ConditionalLockRelationOid(relation, ShareUpdateExclusiveLock))
		return false;
	remove_request(relation);
	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relation)) ||
		metadata_table(relation) == NULL)
		return true;
	if (worker != 0)
	{
		if (metadata_table(relation)->kind == TABLE_REFERENCE)
			reference_statistics_analyze(relation, bms_make_singleton(worker), " (SKIP_LOCKED)",
										 "");
		return true;
	}
	service_transaction_limit_waits(Max(DeadlockTimeout / 2, 1));
	sql = psprintf("ANALYZE %s", relation_name_qualified(relation));
	SPI_connect();
	if (SPI_execute(sql, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "could not run \"%s\"", sql);
	SPI_finish();
	return true;
}

/* Log why, and go on with a new transaction: the next table's workers may answer. */
static void
recover(Oid relation, int worker)
{
	HOLD_INTERRUPTS();
	errcontext("analysis of table with OID %u in the background", relation);
	EmitErrorReport();
	FlushErrorState();
	AbortCurrentTransaction();
	RESUME_INTERRUPTS();
	service_transaction_begin();
	if (worker == 0)
		auto_analyze_request(relation);
}

static bool
run_request(Oid relation, int worker)
{
	volatile bool success = false;

	CHECK_FOR_INTERRUPTS();
	service_transaction_next();
	give_way(true);
	PG_TRY();
	{
		success = analyze_table(relation, worker);
		service_transaction_next();
	}
	PG_CATCH();
	{
		recover(relation, worker);
		success = false;
	}
	PG_END_TRY();
	give_way(false);
	return success;
}

/* A copy that cannot be analysed now is found again by the next look. */
static void
analyze_copies(void)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "copies to analyze",
												  ALLOCSET_SMALL_SIZES);
	Bitmapset *workers;
	int worker = -1;

	MemoryContextSwitchTo(context);
	workers = bms_copy(metadata_all_workers());
	while ((worker = bms_next_member(workers, worker)) >= 0)
	{
		List *behind;
		ListCell *cell;

		MemoryContextSwitchTo(context);
		behind = reference_statistics_find_behind(worker);
		foreach(cell, behind)
			(void) run_request(lfirst_oid(cell), worker);
		service_transaction_next();
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
}

void
auto_analyze_run(void)
{
	Oid *relations = MemoryContextAlloc(TopMemoryContext, sizeof(Oid) * REQUESTS_MAX);
	int count = list_requests(relations);

	has_failed = false;
	for (int i = 0; i < count; i++)
		has_failed |= !run_request(relations[i], 0);
	pfree(relations);
	if (AutoVacuumingActive() &&
		TimestampDifferenceExceeds(looked_at, GetCurrentTimestamp(), autovacuum_naptime * 1000))
	{
		looked_at = GetCurrentTimestamp();
		analyze_copies();
	}
}

int
auto_analyze_interval(void)
{
	bool wanted = false;

	SpinLockAcquire(&shared->mutex);
	for (int i = 0; i < REQUESTS_MAX && !wanted; i++)
		wanted = shared->requests[i].database == MyDatabaseId;
	SpinLockRelease(&shared->mutex);
	if (wanted)
		return has_failed ? RETRY_MS : 0;
	return AutoVacuumingActive() ? Min(autovacuum_naptime * 1000, IDLE_MS) : IDLE_MS;
}

void
auto_analyze_initialize(void)
{
	shared_memory_register(request_shared_memory, create_shared_memory);
}
