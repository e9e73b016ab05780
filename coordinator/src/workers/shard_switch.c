/*
 * shard_switch.c
 *		The moment in which a shard that moves is in its new place (shard_move.c).
 *
 * Everybody who comes waits behind a request for the switch's locks, so it waits for a moment only, and comes again after a
 * pause and another round; also if so much has changed that the last round would be long.
 */
#include "postgres.h"

#include "workers/shard_switch.h"

#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "fault_point.h"
#include "cluster/metadata_write.h"
#include "commit/replica_wait.h"
#include "server/clock.h"
#include "server/subtransaction.h"
#include "stream/kept_shard.h"
#include "stream/remote_command.h"
#include "stream/remote_ddl.h"
#include "table/shard_copy.h"
#include "wire/connection.h"
#include "workers/shard_fill.h"
#include "workers/shard_lock.h"
#include "workers/shard_partition.h"

/* With more rows the last round is not made while readers wait. */
#define LAST_ROUND_ROWS 20000

/* A wait for the switch's locks, and the pauses between them: twice as long each time, to the longest. */
#define LOCK_WAIT_MS 40
#define FIRST_PAUSE_MS 10
#define LONGEST_PAUSE_MS 1000

/* After so long in vain: whoever waits for us may be the one for whom we wait. */
#define PATIENCE_MS 10000

/* The target's replicas have so long to store what was copied. */
#define REPLICA_PATIENCE_MS 60000

/* A session with a lock_timeout has so much patience for the switch at least, because all must be copied again. */
#define SWITCH_PATIENCE_MS 60000

/* Changes LockTimeout. */
static void
lock_until(int64 deadline, const List *relations, LOCKMODE mode)
{
	ListCell *cell;

	foreach(cell, relations)
	{
		LockTimeout = (int) Max(deadline - clock_now(), 1);
		LockRelationOid(lfirst_oid(cell), mode);
	}
}

/*
 * What the switch needs; nobody waits for us longer than a moment.  The last look is under these locks, and if
 * somebody has changed much since the one before, it is not yet the last one.
 */
static void
lock_for_switch(void *argument)
{
	ShardMove *move = argument;
	int64 deadline = clock_now() + LOCK_WAIT_MS;
	int lock_timeout = LockTimeout;

	move->locked = clock_now();
	LockTimeout = LOCK_WAIT_MS;
	remote_ddl_lock_for_change();
	metadata_write_lock_placement();
	if (move->keeps)
		kept_shard_lock();
	lock_until(deadline, move->tables, AccessExclusiveLock);
	lock_until(deadline, move->referenced, ShareLock);
	LockTimeout = lock_timeout;
	shard_partition_lock_for_switch(move, (int) Max(deadline - clock_now(), 1));
	if (shard_fill_look(move) > LAST_ROUND_ROWS)
		ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
						errmsg("many rows have changed since the last round")));
}

/*
 * The switch's locks, if they are to be had soon.  Autovacuum, of a reference table or of another shard, gives way to whoever has
 * waited for deadlock_timeout; he may then be told of a deadlock, which ends with our wait.
 */
static bool
try_lock(ShardMove *move)
{
	int lock_timeout = LockTimeout;
	int deadlock_timeout = DeadlockTimeout;
	ErrorData *error;

	DeadlockTimeout = LOCK_WAIT_MS / 2;
	error = subtransaction_try(lock_for_switch, move);
	LockTimeout = lock_timeout;
	DeadlockTimeout = deadlock_timeout;
	if (error == NULL)
		return true;
	if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE &&
		error->sqlerrcode != ERRCODE_T_R_DEADLOCK_DETECTED)
		ReThrowError(error);
	FreeErrorData(error);
	return false;
}

/*
 * PostgreSQL's deadlock detector looks once, when somebody has waited for a second, and then we may not be waiting.  So
 * after a while with somebody behind us we end it.
 */
static void
check_patience(const ShardMove *move, int64 waited)
{
	bool blocks = waited > PATIENCE_MS && shard_lock_is_awaited(move);

	if (!blocks && (LockTimeout == 0 || waited < Max(LockTimeout, SWITCH_PATIENCE_MS)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("gave up moving shard %d of table \"%s\": it was in use all the time",
					move->bounds.remainder, get_rel_name(linitial_oid(move->tables))),
			 blocks ? errdetail("Another transaction waits for the move.") : 0,
			 errhint("Long transactions that use tables of its colocation group hold locks on "
					 "them: see pg_locks. Move it again later.")));
}

static void
sleep_for(ShardMove *move, int pause)
{
	int64 end = clock_now() + pause;
	int64 left;

	while ((left = end - clock_now()) > 0)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Min(left, FIRST_PAUSE_MS), PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		shard_lock_give_way(move);
	}
}

/*
 * Rows that have been safe for long are not trusted to one server because they have moved to it: its replicas have stored
 * what it prepares before that is decided (commit/replica_wait.c).  Readers wait then, so what was copied is stored before;
 * but for the last block, which nobody writes while it is not full.  So it is with the coordinator's replicas and the decision.
 */
static void
wait_for_replicas_of(ShardMove *move, int worker_id)
{
	int64 since = clock_now();
	const char *late = replica_wait_late_sql(remote_command_fetch(
		worker_id,
		"SELECT '0/0'::pg_catalog.pg_lsn OPERATOR(pg_catalog.+) "
		"(l OPERATOR(pg_catalog.-) pg_catalog.mod(l, b)) "
		"FROM (SELECT pg_catalog.pg_current_wal_insert_lsn() OPERATOR(pg_catalog.-) '0/0' AS l, "
		"pg_catalog.current_setting('wal_block_size')::pg_catalog.numeric AS b) AS s"));
	const char *name;

	connection_open(worker_id)->transaction.replicated = true;
	while ((name = remote_command_fetch(worker_id, late)) != NULL)
	{
		if (clock_now() - since > REPLICA_PATIENCE_MS)
			ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
							errmsg("gave up moving shard %d of table \"%s\": a replica of worker "
								   "\"%s\" is late",
								   move->bounds.remainder, get_rel_name(linitial_oid(move->tables)),
								   metadata_worker(worker_id)->name),
							errdetail("Replica \"%s\" has not stored the rows in %d seconds.", name,
									  REPLICA_PATIENCE_MS / 1000)));
		sleep_for(move, FIRST_PAUSE_MS);
	}
}

void
shard_switch_wait_for_replicas(ShardMove *move)
{
	ListCell *part;

	replica_wait_here();
	foreach(part, move->parts)
		wait_for_replicas_of(move, ((ShardPart *) lfirst(part))->worker_id);
}

void
shard_switch_lock(ShardMove *move)
{
	int64 since = clock_now();
	int pause = FIRST_PAUSE_MS;

	shard_lock_give_way(move);
	while (!try_lock(move))
	{
		check_patience(move, clock_now() - since);
		sleep_for(move, pause);
		pause = Min(pause * 2, LONGEST_PAUSE_MS);
		shard_fill_until_short(move);
	}
}

/* The parts of one leaf, the k-th of the n-th table, have all its rows. */
static void
count_rows(ShardMove *move, int n, int k)
{
	const ShardCopy *first = NULL;
	uint64 rows = 0;
	ListCell *part;

	foreach(part, move->parts)
	{
		ShardCopy *copy = list_nth(list_nth(((ShardPart *) lfirst(part))->copies, n), k);

		first = first == NULL ? copy : first;
		rows += shard_copy_count(copy);
	}
	if (rows != shard_copy_count_source(first))
		elog(ERROR, "the parts of shard %d have " UINT64_FORMAT " rows instead of " UINT64_FORMAT,
			 move->bounds.remainder, rows, shard_copy_count_source(first));
	move->rows += rows;
}

/* Under the switch's locks: nothing is missing, and the tables are those that were made. */
static void
check_copy(ShardMove *move)
{
	const ShardPart *part = linitial(move->parts);
	ListCell *table;
	ListCell *periods;
	ListCell *copies;

	forthree(table, move->tables, periods, move->periods, copies, part->copies)
	{
		Relation relation = table_open(lfirst_oid(table), NoLock);

		if (!equal(shard_partition_periods(move, relation), lfirst(periods)))
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("gave up moving shard %d of table \"%s\": its periods have changed",
							move->bounds.remainder, RelationGetRelationName(relation)),
					 errhint("Move it again.")));
		table_close(relation, NoLock);
		for (int k = 0; k < list_length(lfirst(copies)); k++)
			count_rows(move, foreach_current_index(table), k);
	}
}

/* From when this transaction commits, the shard is in its new place, or its halves are in theirs. */
static void
publish(const ShardMove *move)
{
	const Colocation *colocation = metadata_colocation(move->colocation_id);
	int number = move->bounds.remainder;
	List *places = NIL;
	ListCell *cell;

	if (!equal(metadata_write_group_tables(move->colocation_id), move->tables) ||
		!colocation_has_shard(colocation, number) ||
		colocation->shard_moduli[number] != move->bounds.modulus ||
		colocation->shard_workers[number] != move->source)
		shard_lock_report_changed_group(linitial_oid(move->tables));
	foreach(cell, move->parts)
	{
		const ShardPart *part = lfirst(cell);
		ShardPlace *place = palloc(sizeof(ShardPlace));

		(void) metadata_worker(part->worker_id); /* not removed while rows were copied */
		*place = (ShardPlace){part->bounds, part->worker_id};
		places = lappend(places, place);
	}
	metadata_write_replace_shard(move->colocation_id, number, places);
	foreach(cell, move->tables)
		CacheInvalidateRelcacheByRelid(lfirst_oid(cell)); /* plans */
	CommandCounterIncrement();
}

void
shard_switch(ShardMove *move)
{
	ListCell *cell;
	ListCell *part;

	remote_ddl_note_placement();
	shard_fill(move);
	shard_fill_plan(move, false);
	check_copy(move);
	foreach(part, move->parts)
	{
		foreach(cell, move->tables)
			shard_partition_attach(move, lfirst(part), lfirst_oid(cell));
	}
	FAULT_POINT("shard_move_counted");
	if (move->keeps)
		move->kept = kept_shard_add(
			move->colocation_id, move->bounds, move->source,
			metadata_worker(((ShardPart *) linitial(move->parts))->worker_id)->name);
	shard_partition_enforce_keys(move->source, false);
	foreach(cell, move->tables)
		shard_partition_leave(move, lfirst_oid(cell));
	shard_partition_enforce_keys(move->source, true);
	publish(move);
}
