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
 * back the horizon nor keeps DDL waiting for long.
 */
#include "background_merge.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "compaction.h"
#include "settings.h"
#include "table_am.h"

/* Row groups read per transaction of the worker. */
#define MERGE_GROUPS 64

/* Tables to compact when the current transaction has committed; in TopTransactionContext. */
static List *requests = NIL;

extern PGDLLEXPORT void columnar_merge_main(Datum argument);

void
background_merge_request(Oid relation)
{
	MemoryContext caller;

	if (!columnar_enable_merge || RecoveryInProgress())
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

/* One transaction of compaction; true if there is more to do. */
static bool
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
	return result.more && result.groups_read > 0;
}

void
columnar_merge_main(Datum argument)
{
	Oid relation;

	memcpy(&relation, MyBgworkerEntry->bgw_extra, sizeof(relation));
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(argument), InvalidOid, 0);
	pgstat_report_activity(STATE_RUNNING, "merging columnar row groups");
	while (merge_once(relation))
		CHECK_FOR_INTERRUPTS();
	pgstat_report_activity(STATE_IDLE, NULL);
}
