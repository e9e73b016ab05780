/*
 * background_merge.c
 *		The background worker that compacts a table: merge_request.h asks for it.
 *
 * The worker compacts a few row groups per transaction, so that it neither holds
 * back the horizon nor keeps DDL waiting for long.  Between two transactions it rests: merging
 * a row costs about as much as inserting it, and whoever inserts rows one by one
 * needs the processor more.  It stays until it finds nothing to do, because starting a
 * worker costs as much as merging some hundred rows; a table has one at a time,
 * which a heavyweight lock that nothing else takes tells all sessions.
 */
#include "postgres.h"

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

#include "store/table/compaction.h"
#include "store/catalog/merge_request.h"
#include "store/options/settings.h"
#include "store/table/table_am.h"

/* Row groups read per transaction of the worker. */
#define MERGE_GROUPS 64

/* It rests so many times as long as it worked, but not for longer than so many milliseconds... */
#define REST_SHARE 4
#define REST_MAX 5000
/* ... and not for less when nothing is left to do but what comes meanwhile. */
#define REST_AT_END 1000

extern PGDLLEXPORT void columnar_merge_main(Datum argument);

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
	merge_request_release_lock(DatumGetObjectId(relation), true);
}

/* Becomes the table's only worker, until the process ends. */
static bool
become_worker(Oid relation)
{
	bool alone;

	StartTransactionCommand();
	alone = merge_request_take_lock(relation, true);
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
