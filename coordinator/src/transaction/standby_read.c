/*
 * standby_read.c
 *		Reads that go to standbys of the workers (strata.read_from), or come from a standby of the coordinator.
 *
 * Who.  READ ONLY transactions, so that nothing is ever written because of what a standby has shown.  The transaction, not one of its
 * savepoints, must be that, when it first looks for rows; then it is decided for all of it: primaries and standbys are two states.
 * Not in SERIALIZABLE, which standbys do not have.
 *
 * What a standby shows is old, but never another table than the coordinator has.  Each statement tells it the schema version that is
 * committed here (stream/remote_ddl.c), and a standby that has not replayed that refuses, or not so far that its sessions know
 * (worker/src/accept_replay.c).  That is enough for moves of rows (execute/moved_rows.c), and all DDL that locks out readers, too:
 * they hold AccessExclusiveLock on the shell, of which the statement has a
 * lock when it reads the version, so none of its tables changes until it ends.  Replay of other DDL waits for the statement
 * there, or cancels it (40001); a statement that waits for replay is given up after STANDBY_LOCK_MS (connection_open.c).  The
 * standby's own look at who coordinates it is as old as the standby: a coordinator that has been
 * replaced, and does not know it, can read there until it has replayed that.
 *
 * How old.  The heartbeat notes where each worker's WAL ends (worker_state_wal_position()), and on which timeline.  A standby must follow
 * that server and have replayed what it had strata.max_staleness ago, and the worker must have no commit in doubt.  Commits that did not wait
 * for the disk (synchronous_commit) may be wal_writer_delay older.  Standbys are not apart from commits by the gate, nor as old as
 * each other: of a transaction that wrote on two workers one may show the rows and the other not.  Within a statement, or a
 * REPEATABLE READ transaction, each shows one state.
 *
 * A standby of the coordinator sends its statements to where the shards were when it replayed last.  Its locks keep away nobody but
 * its own replay, and no gate is between it and commits.  So whoever it reads must have the schema version that is replayed here
 * before the statement takes its snapshots, and no newer one after it (worker/src/newest_change.c).  A cursor's
 * rows are all fetched for it at once.
 *
 * With 'any', primaries stand in for all workers where one standby cannot be asked, for the rest of the transaction, and for
 * others until ten times as long has passed as was lost by asking.
 */
#include "postgres.h"

#include "access/xlog.h"

#include "transaction/standby_read.h"

#include "cluster/cluster_identity.h"
#include "cluster/metadata.h"
#include "cluster/worker_state.h"
#include "commit/in_doubt.h"
#include "server/clock.h"
#include "server/settings.h"
#include "transaction/remote_transaction.h"

/* So many times what was lost by asking standbys in vain, and so long at least, others do not ask. */
#define PAUSE_FACTOR 10
#define LEAST_PAUSE_MS 1000

/* How often a statement begins again on standbys that have cancelled it. */
#define CONFLICTS_AT_MOST 3

/* Where the transaction reads. */
typedef enum Source
{
	SOURCE_UNDECIDED,
	SOURCE_PRIMARIES,
	SOURCE_STANDBYS
} Source;

static Source source = SOURCE_UNDECIDED;
static int conflicts = 0; /* of the transaction */
static int64 paused_until = 0;

static bool
has_written(void)
{
	ListCell *cell;

	foreach(cell, connection_list())
	{
		if (((const WorkerConnection *) lfirst(cell))->transaction.written)
			return true;
	}
	return TransactionIdIsValid(GetTopTransactionIdIfAny());
}

static bool
wants_standbys(void)
{
	if (strata_read_from == READ_FROM_PRIMARY || !remote_transaction_is_read_only() ||
		IsolationIsSerializable() || has_written())
		return false;
	return strata_read_from == READ_FROM_STANDBY || clock_now() >= paused_until;
}

bool
standby_read_is_active(void)
{
	if (source == SOURCE_UNDECIDED)
		source = wants_standbys() ? SOURCE_STANDBYS : SOURCE_PRIMARIES;
	return source == SOURCE_STANDBYS;
}

bool
standby_read_is_checked(void)
{
	return standby_read_is_active() || RecoveryInProgress();
}

/* ----------------------------------------------------------------
 * Asking before
 * ----------------------------------------------------------------
 */

/* How much the standby must have replayed, and of which timeline, as SQL.  ERROR if that is not known. */
static char *
required_position(const WorkerConnection *conn)
{
	WalPosition wal;

	if (strata_max_staleness < 0 || !conn->standby)
		return "'0/0', 0";
	wal = worker_state_wal_position(conn->worker_id, clock_now() - strata_max_staleness);
	if (wal.asked_at == 0)
		ereport(
			ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("how far standbys of worker \"%s\" are behind is not known", conn->worker_name),
			 errdetail("Its primary has not told the heartbeat within %d ms "
					   "(strata.max_staleness) where its WAL ends.",
					   strata_max_staleness),
			 errhint("Let strata.max_staleness be longer, or -1 to read standbys however old "
					 "they are, or let strata.read_from be 'any'.")));
	if (in_doubt_blocks(conn->worker_id))
	{
		in_doubt_call_resolver();
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("standbys of worker \"%s\" may lack a commit", conn->worker_name),
				 errdetail("The worker may not have heard yet that a transaction is committed."),
				 errhint("strata.in_doubt shows it. Let strata.read_from be 'any', or "
						 "strata.max_staleness be -1 to read standbys without it.")));
	}
	return psprintf("'%X/%X', %u", LSN_FORMAT_ARGS(wal.position), wal.timeline);
}

/* What is kept there, or a whole transaction's snapshot, does not become older. */
static bool
must_check(const WorkerConnection *conn, int64 version)
{
	return conn->transaction.depth == 0 || conn->transaction.checked_version != version ||
		   (conn->snapshot.kept == 0 && !IsolationUsesXactSnapshot());
}

static void
expect_success(WorkerConnection *conn)
{
	PGresult *result;

	while ((result = connection_get_quick_result(conn)) != NULL)
	{
		if (PQresultStatus(result) != PGRES_TUPLES_OK)
			connection_report(ERROR, conn, result, NULL);
		PQclear(result);
	}
}

/* Have all servers say that they can be read.  The statement's tables are locked, and so the version does not change. */
static void
check_wires(List *wires)
{
	const char *cluster = connection_cluster_id();
	List *asked = NIL;
	ClusterIdentity identity;
	ListCell *cell;

	cluster_identity_read(&identity);
	foreach(cell, wires)
	{
		WorkerConnection *conn = lfirst(cell);
		char *sql;

		if (!must_check(conn, identity.schema_version))
			continue;
		sql = psprintf("SELECT strata_worker.check_before_read('%s', " INT64_FORMAT ", %s)",
					   cluster, identity.schema_version, required_position(conn));
		remote_transaction_ready(conn);
		if (conn->standby && !standby_read_is_active())
			return; /* REPEATABLE READ has asked all of them by now */
		remote_transaction_send_ready(conn, REMOTE_READ, sql);
		asked = lappend(asked, conn);
	}
	foreach(cell, asked)
		expect_success(lfirst(cell));
	foreach(cell, asked)
		((WorkerConnection *) lfirst(cell))->transaction.checked_version = identity.schema_version;
}

/* ----------------------------------------------------------------
 * Primaries that stand in
 * ----------------------------------------------------------------
 */

/* Has nobody read on a standby what he goes on to use? */
static bool
can_leave_standbys(void)
{
	ListCell *cell;

	if (strata_read_from != READ_FROM_ANY)
		return false;
	foreach(cell, connection_list())
	{
		const WorkerConnection *conn = lfirst(cell);

		if (conn->standby && conn->transaction.depth > 0 &&
			(conn->snapshot.kept > 0 || conn->occupant != NULL ||
			 (IsolationUsesXactSnapshot() && conn->transaction.checked_version != 0)))
			return false;
	}
	return true;
}

/* An error that is the standby's, or of who leads to it; cancels and timeouts of the user are not. */
static bool
is_unavailable(int sqlstate)
{
	int category = ERRCODE_TO_CATEGORY(sqlstate);

	return category == ERRCODE_CONNECTION_EXCEPTION ||
		   category == ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION ||
		   sqlstate == ERRCODE_ADMIN_SHUTDOWN || sqlstate == ERRCODE_CRASH_SHUTDOWN ||
		   sqlstate == ERRCODE_CANNOT_CONNECT_NOW ||
		   sqlstate == ERRCODE_T_R_SERIALIZATION_FAILURE ||
		   sqlstate == ERRCODE_LOCK_NOT_AVAILABLE ||
		   sqlstate == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
}

static void
give_up(int64 since)
{
	int64 now = clock_now();

	source = SOURCE_PRIMARIES;
	paused_until = now + Max(LEAST_PAUSE_MS, PAUSE_FACTOR * (now - since));
}

void
standby_read_prepare(const Bitmapset *workers)
{
	MemoryContext context = CurrentMemoryContext;
	int64 since = clock_now();

	if (!standby_read_is_active())
	{
		if (RecoveryInProgress())
			check_wires(connection_open_all(workers));
		return;
	}
	PG_TRY();
	{
		check_wires(connection_open_standbys(workers));
	}
	PG_CATCH();
	{
		/* no subtransaction: what was begun is nothing but wires, which are rolled back */
		if (!is_unavailable(geterrcode()) || !can_leave_standbys())
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		FlushErrorState();
		remote_transaction_restart();
		give_up(since);
		standby_read_prepare(workers);
	}
	PG_END_TRY();
}

void
standby_read_prepare_primaries(List *wires)
{
	if (RecoveryInProgress())
		check_wires(wires);
}

List *
standby_read_ready(const Bitmapset *workers)
{
	if (!standby_read_is_active())
		return remote_transaction_ready_all(workers);
	return remote_transaction_ready_wires(connection_open_standbys(workers));
}

bool
standby_read_accept_failure(int sqlstate)
{
	if (!standby_read_is_active() || !is_unavailable(sqlstate))
		return false;
	if (strata_read_from == READ_FROM_ANY)
	{
		give_up(clock_now());
		return true;
	}
	return (sqlstate == ERRCODE_T_R_SERIALIZATION_FAILURE ||
			sqlstate == ERRCODE_LOCK_NOT_AVAILABLE) &&
		   ++conflicts <= CONFLICTS_AT_MOST;
}

/* ----------------------------------------------------------------
 * Asking after
 * ----------------------------------------------------------------
 */

void
standby_read_end_statement(void)
{
	ClusterIdentity identity;
	List *asked = NIL;
	ListCell *cell;

	if (!remote_transaction_has_begun())
		return;
	foreach(cell, connection_list())
	{
		WorkerConnection *conn = lfirst(cell);

		if (!conn->transaction.unproven)
			continue; /* what was read before a promotion still is */
		if (asked == NIL)
			cluster_identity_read(&identity);
		remote_transaction_send(conn, REMOTE_READ,
								psprintf("SELECT strata_worker.check_after_read(" INT64_FORMAT ")",
										 identity.schema_version));
		asked = lappend(asked, conn);
	}
	foreach(cell, asked)
	{
		expect_success(lfirst(cell));
		((WorkerConnection *) lfirst(cell))->transaction.unproven = false;
	}
}

void
standby_read_transaction_event(XactEvent event)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	source = SOURCE_UNDECIDED;
	conflicts = 0;
}
