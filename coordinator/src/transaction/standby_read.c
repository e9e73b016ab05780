/*
 * standby_read.c
 *		Reads go to standbys of the workers: strata.read_from.
 *
 * Who.  A transaction that is READ ONLY, and a SELECT outside of transaction blocks that calls no functions of users.  Not in
 * SERIALIZABLE, which standbys do not have.  A transaction that has used a primary goes on there: it may have written.
 *
 * What a standby shows is old, but never another table than the coordinator has.  Each statement tells it the schema version that is
 * committed here (stream/remote_ddl.c), and a standby that has not replayed that refuses.  That is enough for moves of
 * shards, and all DDL that locks out readers, too: they hold AccessExclusiveLock on the shell, of which the statement has a
 * lock when it reads the version, so none of its tables changes until it ends.  Replay of other DDL waits for the statement
 * there, or cancels it (40001).  The standby's own look at who coordinates it is as old as the standby: a coordinator that has been
 * replaced, and does not know it, can read there until it has replayed that.
 *
 * How old.  The heartbeat notes where each worker's WAL ends (worker_state_wal_position()).  A standby must have replayed what
 * its primary had strata.max_staleness ago.  Standbys are not apart from commits by the gate, nor as old as each other: of a
 * transaction that wrote on two workers one may show the rows and the other not.  Within a statement, or a REPEATABLE READ
 * transaction, each shows one state.
 *
 * With 'any', primaries stand in for all workers where one standby cannot be asked, for the rest of the transaction, and for
 * others until ten times as long has passed as was lost by asking.
 */
#include "postgres.h"

#include "transaction/standby_read.h"

#include "access/xlogdefs.h"
#include "miscadmin.h"

#include "cluster/cluster_identity.h"
#include "cluster/metadata.h"
#include "cluster/worker_state.h"
#include "server/clock.h"
#include "server/settings.h"
#include "transaction/remote_transaction.h"

/* A standby that was asked so lately is not asked again for the next statement of the transaction. */
#define CHECK_AGAIN_MS 100

/* So many times what was lost by asking standbys in vain, and so long at least, others do not ask. */
#define PAUSE_FACTOR 10
#define LEAST_PAUSE_MS 1000

/* How often a statement begins again on standbys that have cancelled it. */
#define CONFLICTS_AT_MOST 3

static bool command_runs_query = false; /* which has not started yet */
static bool statement_reads_alone = false;
static bool given_up = false; /* primaries stand in until the transaction ends */
static int conflicts = 0;	  /* of the transaction */
static int64 paused_until = 0;

void
standby_read_begin_command(bool runs_query)
{
	command_runs_query = runs_query;
	statement_reads_alone = false;
}

void
standby_read_begin_query(bool outermost, bool alone)
{
	if (!outermost && !command_runs_query)
		return;
	command_runs_query = false;
	statement_reads_alone = alone;
}

static bool
uses_any(bool standby)
{
	ListCell *cell;

	foreach(cell, connection_list())
	{
		const WorkerConnection *conn = lfirst(cell);

		if (conn->standby == standby && conn->transaction.depth > 0)
			return true;
	}
	return false;
}

bool
standby_read_is_active(void)
{
	if (strata_read_from == READ_FROM_PRIMARY || given_up ||
		!(XactReadOnly || statement_reads_alone) || IsolationIsSerializable() || uses_any(false))
		return false;
	return strata_read_from == READ_FROM_STANDBY || clock_now() >= paused_until || uses_any(true);
}

/* ----------------------------------------------------------------
 * Asking standbys
 * ----------------------------------------------------------------
 */

/* How much the standby must have replayed, as SQL.  ERROR if that is not known. */
static char *
required_position(const WorkerConnection *conn)
{
	XLogRecPtr position;

	if (strata_max_staleness < 0)
		return "NULL";
	position = worker_state_wal_position(conn->worker_id, clock_now() - strata_max_staleness);
	if (position == InvalidXLogRecPtr)
		ereport(
			ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("how far standbys of worker \"%s\" are behind is not known", conn->worker_name),
			 errdetail("Its primary has not told the heartbeat within %d ms "
					   "(strata.max_staleness) where its WAL ends.",
					   strata_max_staleness),
			 errhint("Let strata.max_staleness be longer, or -1 to read standbys however old "
					 "they are, or let strata.read_from be 'any'.")));
	return psprintf("'%X/%X'", LSN_FORMAT_ARGS(position));
}

static bool
must_check(const WorkerConnection *conn, int64 version)
{
	return conn->transaction.depth == 0 || conn->transaction.checked_version != version ||
		   clock_now() - conn->transaction.checked_at > CHECK_AGAIN_MS;
}

static void
expect_success(WorkerConnection *conn)
{
	PGresult *result;

	while ((result = connection_get_result(conn)) != NULL)
	{
		if (PQresultStatus(result) != PGRES_TUPLES_OK)
			connection_report(ERROR, conn, result, "SELECT strata_worker.check_standby(...)");
		PQclear(result);
	}
}

/* Have all standbys say that they can be read.  The statement's tables are locked, and so the version does not change. */
static void
check_standbys(const Bitmapset *workers)
{
	const char *cluster = connection_cluster_id();
	List *asked = NIL;
	ClusterIdentity identity;
	ListCell *cell;

	cluster_identity_read(&identity);
	foreach(cell, connection_open_standbys(workers))
	{
		WorkerConnection *conn = lfirst(cell);
		char *sql;

		if (!must_check(conn, identity.schema_version))
			continue;
		sql = psprintf("SELECT strata_worker.check_standby('%s', " INT64_FORMAT ", %s)", cluster,
					   identity.schema_version, required_position(conn));
		remote_transaction_ready(conn);
		remote_transaction_send_ready(conn, REMOTE_READ, sql);
		asked = lappend(asked, conn);
	}
	foreach(cell, asked)
		expect_success(lfirst(cell));
	foreach(cell, asked)
	{
		WorkerConnection *conn = lfirst(cell);

		conn->transaction.checked_version = identity.schema_version;
		conn->transaction.checked_at = clock_now();
	}
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
			 (IsolationUsesXactSnapshot() && conn->transaction.checked_at != 0)))
			return false;
	}
	return true;
}

static bool
is_unavailable(int sqlstate)
{
	int category = ERRCODE_TO_CATEGORY(sqlstate);

	return category == ERRCODE_CONNECTION_EXCEPTION ||
		   category == ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION ||
		   category == ERRCODE_OPERATOR_INTERVENTION ||
		   sqlstate == ERRCODE_T_R_SERIALIZATION_FAILURE ||
		   sqlstate == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
}

static void
give_up(int64 since)
{
	int64 now = clock_now();

	given_up = true;
	paused_until = now + Max(LEAST_PAUSE_MS, PAUSE_FACTOR * (now - since));
}

void
standby_read_prepare(const Bitmapset *workers)
{
	MemoryContext context = CurrentMemoryContext;
	int64 since = clock_now();

	if (!standby_read_is_active())
		return;
	PG_TRY();
	{
		check_standbys(workers);
	}
	PG_CATCH();
	{
		/* no subtransaction: what was begun is nothing but wires, which are rolled back */
		if (!is_unavailable(geterrcode()) || QueryCancelPending || ProcDiePending ||
			!can_leave_standbys())
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		FlushErrorState();
		remote_transaction_restart();
		give_up(since);
	}
	PG_END_TRY();
}

List *
standby_read_ready(const Bitmapset *workers)
{
	standby_read_prepare(workers);
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
	return sqlstate == ERRCODE_T_R_SERIALIZATION_FAILURE && ++conflicts <= CONFLICTS_AT_MOST;
}

void
standby_read_transaction_event(XactEvent event)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	command_runs_query = false;
	statement_reads_alone = false;
	given_up = false;
	conflicts = 0;
}
