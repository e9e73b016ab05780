/*
 * coordinator_mark.c
 *		Marks that tell a coordinator's data directory from a copy of it.
 *
 * A backup that is restored somewhere believes to be the coordinator that it was made of: all that
 * the database could say to the contrary was copied with it.  So the mark is a file where base
 * backups copy nothing, pg_stat_tmp: pg_basebackup, pgBackRest and pg_rewind leave its files out, and
 * the server itself never removes any.  It holds its own inode number, by which also "cp" or
 * "rsync" of a data directory is noticed.  (A snapshot of a whole file system is not.)
 *
 * A mark is made for one database, by CREATE EXTENSION strata, by strata.take_over(), and by the
 * take-over after a promotion.  That needs another mark, for the whole server, which a
 * standby makes when it has a wire to its primary: so it is fed by the coordinator, and may be
 * promoted in its place.  The coordinator could be a copy itself, but then its row of
 * strata.cluster says so, on the standby, too: see take_over.c.  The server's mark is good for the
 * take-over only: databases that are copied on a promoted server (CREATE DATABASE ... TEMPLATE) must
 * not find it.
 *
 * A server that recovers from an archive only, as a restored one does, never gets a mark.
 *
 * Once seen, a database's mark is not looked for again by the same process.
 */
#include "postgres.h"

#include "cluster/coordinator_mark.h"

#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "replication/walreceiver.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"

#define MARK_PATH PG_STAT_TMP_DIR "/strata_coordinator.%u"
#define MARK_FORMAT "%llu\n"

/* How often a standby looks whether it receives WAL yet: at first, and at most. */
#define FIRST_LOOK_MS 50
#define LAST_LOOK_MS 1000

static bool
is_mark_valid(Oid database)
{
	char path[MAXPGPATH];
	unsigned long long inode = 0;
	struct stat status;
	bool valid = false;
	FILE *file;

	snprintf(path, sizeof(path), MARK_PATH, database);
	file = AllocateFile(path, "r");
	if (file == NULL)
	{
		if (errno != ENOENT)
			ereport(ERROR,
					(errcode_for_file_access(), errmsg("could not open file \"%s\": %m", path)));
		return false;
	}
	if (fscanf(file, "%llu", &inode) == 1 && fstat(fileno(file), &status) == 0)
		valid = inode == (unsigned long long) status.st_ino;
	FreeFile(file);
	return valid;
}

static void
write_mark(Oid database)
{
	char path[MAXPGPATH];
	char temporary[MAXPGPATH + 16];
	struct stat status;
	FILE *file;

	snprintf(path, sizeof(path), MARK_PATH, database);
	snprintf(temporary, sizeof(temporary), "%s.%d", path, MyProcPid);
	file = AllocateFile(temporary, "w");
	if (file == NULL || fstat(fileno(file), &status) != 0 ||
		fprintf(file, MARK_FORMAT, (unsigned long long) status.st_ino) < 0 || fflush(file) != 0 ||
		pg_fsync(fileno(file)) != 0)
		ereport(ERROR,
				(errcode_for_file_access(), errmsg("could not write file \"%s\": %m", temporary)));
	FreeFile(file);
	(void) durable_rename(temporary, path, ERROR);
}

bool
coordinator_mark_exists(void)
{
	static bool marked = false;

	if (!marked)
		marked = is_mark_valid(MyDatabaseId);
	return marked;
}

/*
 * Does the primary feed this server, or has it done so since the start?  A replica may confirm a commit
 * and be promoted before "strata standby" looks again, so what was received counts, too; an idle
 * primary sends nothing for long, so a wire to it counts.  walRcvState alone does not: it says
 * "streaming" while it still tries to connect.
 */
static bool
has_primary(void)
{
	bool received;
	bool connected;

	SpinLockAcquire(&WalRcv->mutex);
	/* set by the primary's messages only, and kept by a promotion */
	received = !XLogRecPtrIsInvalid(WalRcv->latestWalEnd);
	connected = WalRcv->ready_to_display &&
				(WalRcv->walRcvState == WALRCV_STREAMING || WalRcv->walRcvState == WALRCV_WAITING);
	SpinLockRelease(&WalRcv->mutex);
	return received || connected;
}

bool
coordinator_mark_was_standby(void)
{
	if (!is_mark_valid(InvalidOid))
	{
		if (!has_primary())
			return false;
		write_mark(InvalidOid); /* a restart forgets that it had one */
	}
	return true;
}

void
coordinator_mark_make(void)
{
	if (!coordinator_mark_exists())
		write_mark(MyDatabaseId);
}

/* ----------------------------------------------------------------
 * On a standby
 * ----------------------------------------------------------------
 */

void
coordinator_mark_standby_main(Datum argument)
{
	long wait = FIRST_LOOK_MS;

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	while (!ShutdownRequestPending && RecoveryInProgress() && !coordinator_mark_was_standby())
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, wait,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		wait = Min(2 * wait, LAST_LOOK_MS);
	}
	proc_exit(0);
}

void
coordinator_mark_initialize(void)
{
	BackgroundWorker worker = {
		.bgw_name = "strata standby",
		.bgw_type = "strata standby",
		.bgw_flags = BGWORKER_SHMEM_ACCESS,
		.bgw_start_time = BgWorkerStart_ConsistentState,
		.bgw_restart_time = 5,
		.bgw_library_name = "strata",
		.bgw_function_name = "coordinator_mark_standby_main",
	};

	RegisterBackgroundWorker(&worker);
}
