/*
 * background_merge.c
 *		The background worker that compacts a table: see background_merge.h.
 *
 * A request is remembered until its transaction has committed, because the worker
 * must see what it wrote.  There is no queue: a request that finds no free
 * background worker, or another process busy with the table, is forgotten; the next
 * commit or VACUUM asks again.
 *
 * The worker compacts a few row groups per transaction, so that it neither holds
 * back the horizon nor keeps DDL waiting for long.  Between two transactions it rests: merging
 * a row costs about as much as inserting it, and whoever inserts rows one by one
 * needs the processor more.  It stays until it finds nothing to do, because starting a
 * worker costs as much as merging some hundred rows; a table has one at a time,
 * which a heavyweight lock that nothing else takes tells all sessions.
 */
#include "background_merge.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/block.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "compaction.h"
#include "settings.h"
#include "table_am.h"

/* Row groups read per transaction of the worker. */
#define MERGE_GROUPS 64

/* It rests so many times as long as it worked, but not for longer than so many milliseconds... */
#define REST_SHARE 4
#define REST_MAX 5000
/* ... and not for less when nothing is left to do but what comes meanwhile. */
#define REST_AT_END 1000

/*
 * Page of the table whose heavyweight lock the worker has: far from page 0, the space
 * lock (space.h), and from those of the units, which follow it (row_version.h).
 */
#define WORKER_LOCK_PAGE MaxBlockNumber

/* Tables to compact when the current transaction has committed; in TopTransactionContext. */
static List *requests = NIL;

extern PGDLLEXPORT void columnar_merge_main(Datum argument);

/* Takes the lock of the table's worker; false if there is a worker that has it. */
static bool
take_worker_lock(Oid relation, bool session)
{
	LOCKTAG tag;

	SET_LOCKTAG_PAGE(tag, MyDatabaseId, relation, WORKER_LOCK_PAGE);
	return LockAcquire(&tag, ExclusiveLock, session, true) != LOCKACQUIRE_NOT_AVAIL;
}

/* Is there a worker of the table, at work or resting? */
static bool
has_worker(Oid relation)
{
	LOCKTAG tag;

	if (!take_worker_lock(relation, false))
		return true;
	SET_LOCKTAG_PAGE(tag, MyDatabaseId, relation, WORKER_LOCK_PAGE);
	LockRelease(&tag, ExclusiveLock, false);
	return false;
}

void
background_merge_request(Oid relation)
{
	MemoryContext caller;

	if (!columnar_enable_merge || RecoveryInProgress() || has_worker(relation))
		return;
	caller = MemoryContextSwitchTo(TopTransactionContext);
	requests = list_append_unique_oid(requests, relation);
	MemoryContextSwitchTo(caller);
}

/* Start a worker; runs after the commit, so it must not fail. */
static void
start_worker(Oid relation)
{
	BackgroundWorker worker = {0};

	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	snprintf(worker.bgw_library_name, sizeof(worker.bgw_library_name), "strata_columnar");
	snprintf(worker.bgw_function_name, sizeof(worker.bgw_function_name), "columnar_merge_main");
	snprintf(worker.bgw_name, BGW_MAXLEN, "columnar merge of table %u", relation);
	snprintf(worker.bgw_type, BGW_MAXLEN, "columnar merge");
	worker.bgw_main_arg = ObjectIdGetDatum(MyDatabaseId);
	memcpy(worker.bgw_extra, &relation, sizeof(relation));
	RegisterDynamicBackgroundWorker(&worker, NULL);
}

static void
transaction_ended(XactEvent event, void *argument)
{
	ListCell *cell;

	switch (event)
	{
		case XACT_EVENT_COMMIT:
			foreach(cell, requests)
				start_worker(lfirst_oid(cell));
			requests = NIL;
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			requests = NIL;
			break;
		default:
			break;
	}
}

void
background_merge_initialize(void)
{
	RegisterXactCallback(transaction_ended, NULL);
}

/* One transaction of compaction. */
static CompactionResult
merge_once(Oid relation_id)
{
	CompactionResult result = {0};
	Relation relation;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (ConditionalLockRelationOid(relation_id, ShareUpdateExclusiveLock))
	{
		relation = try_relation_open(relation_id, NoLock);
		if (relation != NULL)
		{
			/* temporary tables belong to their sessions */
			if (columnar_is_table(relation) &&
				relation->rd_rel->relpersistence != RELPERSISTENCE_TEMP)
				compaction_run(relation, COMPACT_THRIFTY, MERGE_GROUPS, &result);
			relation_close(relation, NoLock);
		}
	}
	PopActiveSnapshot();
	CommitTransactionCommand();
	return result;
}

/* before_shmem_exit() callback: a lock of the session would outlive the process. */
static void
release_worker_lock(int code, Datum relation)
{
	LOCKTAG tag;

	SET_LOCKTAG_PAGE(tag, MyDatabaseId, DatumGetObjectId(relation), WORKER_LOCK_PAGE);
	LockRelease(&tag, ExclusiveLock, true);
}

/* Becomes the table's only worker, until the process ends. */
static bool
become_worker(Oid relation)
{
	bool alone;

	StartTransactionCommand();
	alone = take_worker_lock(relation, true);
	if (alone)
		before_shmem_exit(release_worker_lock, ObjectIdGetDatum(relation));
	CommitTransactionCommand();
	return alone;
}

/* A new configuration may switch merging off. */
static void
follow_settings(void)
{
	if (!ConfigReloadPending)
		return;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
}

/* Leaves the machine to others after some microseconds of work. */
static void
rest(int64 worked, bool at_end)
{
	long duration = (long) Min(worked * REST_SHARE / 1000, REST_MAX);

	if (at_end)
		duration = Max(duration, REST_AT_END);
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, duration,
					 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	follow_settings();
}

void
columnar_merge_main(Datum argument)
{
	Oid relation;
	CompactionResult result;

	memcpy(&relation, MyBgworkerEntry->bgw_extra, sizeof(relation));
	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(argument), InvalidOid, 0);
	pgstat_report_activity(STATE_RUNNING, "merging columnar row groups");
	if (!become_worker(relation))
		return;
	do
	{
		TimestampTz begin = GetCurrentTimestamp();

		result = merge_once(relation);
		if (result.groups_read > 0)
			rest(GetCurrentTimestamp() - begin, !result.more);
	} while (result.groups_read > 0 && columnar_enable_merge);
	pgstat_report_activity(STATE_IDLE, NULL);
}
