/*
 * accept_replay.c
 *		On a standby: the session's caches know of all that its snapshots show.
 *
 * A server's own transactions tell other sessions of changed catalogs while they still hold their locks, and the coordinator
 * sends no statement before they have ended.  Replay of a commit (xact_redo_commit()) makes it visible first, and tells sessions after
 * that.  In between, a snapshot may show a new schema version, and the cached table lack the partition that came with it:
 * rows would be missing, unless the transaction had AccessExclusiveLock on just that table.  The moment is short, but a server with more
 * to do than cores stops in it.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "fmgr.h"
#include "utils/inval.h"

PG_FUNCTION_INFO_V1(strata_worker_accept_replay);

/* So often, and so long, the end of a record is waited for; most take some microseconds, but one that waits for sessions may wait for us. */
#define LOOKS 20
#define PAUSE_US 50

/*
 * strata_worker.accept_replay(): what snapshots show that were taken before this call, the next statement's caches have.
 * A record that is just being replayed may be a commit that they show; if it does not end, all caches are made anew.
 */
Datum
strata_worker_accept_replay(PG_FUNCTION_ARGS)
{
	XLogRecPtr end;

	if (!RecoveryInProgress())
		PG_RETURN_VOID();
	end = GetCurrentReplayRecPtr(NULL);
	for (int i = 0; GetXLogReplayRecPtr(NULL) < end; i++)
	{
		if (i == LOOKS)
		{
			InvalidateSystemCaches();
			break;
		}
		pg_usleep(PAUSE_US);
	}
	AcceptInvalidationMessages();
	PG_RETURN_VOID();
}
