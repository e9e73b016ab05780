/*
 * merge_request.c
 *		Asking for the background worker that compacts a table: see merge_request.h.
 *
 * A request is remembered until its transaction has committed, because the worker
 * must see what it wrote.  There is no queue: a request that finds no free
 * background worker, or another process busy with the table, is forgotten; the next
 * commit or VACUUM asks again.
 */
#include "store/catalog/merge_request.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/block.h"
#include "storage/lock.h"
#include "utils/memutils.h"

#include "store/options/settings.h"

/*
 * Page of the table whose heavyweight lock the worker has: far from page 0, the space
 * lock (space.h), and from those of the units, which follow it (row_version.h).
 */
#define WORKER_LOCK_PAGE MaxBlockNumber

/* Tables to compact when the current transaction has committed; in TopTransactionContext. */
static List *requests = NIL;

bool
merge_request_take_lock(Oid relation, bool session)
{
	LOCKTAG tag;

	SET_LOCKTAG_PAGE(tag, MyDatabaseId, relation, WORKER_LOCK_PAGE);
	return LockAcquire(&tag, ExclusiveLock, session, true) != LOCKACQUIRE_NOT_AVAIL;
}

void
merge_request_release_lock(Oid relation, bool session)
{
	LOCKTAG tag;

	SET_LOCKTAG_PAGE(tag, MyDatabaseId, relation, WORKER_LOCK_PAGE);
	LockRelease(&tag, ExclusiveLock, session);
}

/* Is there a worker of the table, at work or resting? */
static bool
has_worker(Oid relation)
{
	if (!merge_request_take_lock(relation, false))
		return true;
	merge_request_release_lock(relation, false);
	return false;
}

void
merge_request_note(Oid relation)
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
merge_request_initialize(void)
{
	RegisterXactCallback(transaction_ended, NULL);
}
