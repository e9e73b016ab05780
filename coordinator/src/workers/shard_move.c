/*
 * shard_move.c
 *		A shard moves from one worker to another, with its rows and with its whole colocation group.
 *
 * One distributed transaction: the partitions are made on the target, filled from the source, and dropped there; the
 * metadata says where they are.  It commits on all nodes or on none, as any transaction does, and so whatever fails,
 * or is killed, leaves the shard whole in its old place or whole in its new one, with nothing to clean up.  A worker that is
 * restored to a time before the move lacks its DDL and is refused (stream/remote_ddl.c).
 *
 * The group's tables are read and written while rows are copied:
 *
 *	1. The target gets new tables, which are attached while they are empty: that does not lock its own table against
 *	   readers and writers, and nobody else sees them before we commit.
 *	2. Rows are copied, then what has changed meanwhile, until a round is short (table/shard_copy.c).
 *	3. The target's replicas store what was copied.
 *	4. The switch: AccessExclusiveLock on the group's shells, which each statement locks before it looks where rows are, and
 *	   on the source's partitions, where prepared transactions and sessions that a dead coordinator has left hold locks
 *	   until they have really ended.  The last round, rows counted, the source's partitions dropped, the metadata changed.
 *	   Snapshots that are older than the switch are found by execute/moved_rows.c.
 *
 * Everybody who comes waits behind a request for that lock, so it waits for a moment only, and comes again after a
 * pause and another round; also if so much has changed that the last round would be long.
 *
 * Meanwhile ShareUpdateExclusiveLock keeps away what changes the tables as a whole: DDL, VACUUM FULL, REINDEX, ANALYZE.
 * Who wants one of these goes first, and so does a switchover of a worker: the move ends with an error (give_way()).
 *
 * Attaching to a table with foreign keys locks what these point to and come from, on the target and until we commit.  So a
 * partition of such a table arrives as a table apart, and is attached at the switch, with its rows.  The reference tables to which
 * they point have ShareLock at the switch: changes of these check and cascade on the workers, without a lock on our
 * shells, and one worker could be asked before the move and the other after it.
 *
 * Where such a table has periods, for pg_partman makes leaves of partitions only, it is attached while it is empty, and
 * writers, but not readers, wait from the beginning (ExclusiveLock).
 *
 * Locks, in the order of README.md: the tables by OID, the reference tables.  Those that come first there, of DDL and of
 * placement, are taken at the switch, so that workers may be added and other tables be distributed while rows are copied: what
 * they protect is looked at again then.  It cannot end in a deadlock, because the switch waits for a moment only.  A move waits for
 * another one of the same group by a lock of its own, to which that need not give way.
 *
 * Foreign keys are not checked again, since what they point to moves in the same transaction or is everywhere; their
 * triggers are off on both sides (session_replication_role).
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_constraint.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "fault_point.h"
#include "cluster/constraint.h"
#include "cluster/metadata.h"
#include "cluster/metadata_write.h"
#include "cluster/relation_name.h"
#include "cluster/shard_map.h"
#include "commit/in_doubt.h"
#include "commit/replica_wait.h"
#include "server/argument.h"
#include "server/clock.h"
#include "server/subtransaction.h"
#include "stream/remote_command.h"
#include "stream/remote_ddl.h"
#include "table/owner_guard.h"
#include "table/shard_copy.h"
#include "table/foreign_key_rules.h"
#include "transaction/pending_rows.h"
#include "wire/connection.h"
#include "wire/worker_use.h"
#include "workers/move_progress.h"
#include "workers/shard_partition.h"
#include "workers/worker_api.h"

PG_FUNCTION_INFO_V1(strata_move_shard);

/* Rounds are made until one takes less, or has fewer rows; so often one may take no less than the one before. */
#define SHORT_ROUND_MS 100
#define SHORT_ROUND_ROWS 1000
#define VAIN_ROUNDS 3

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

/* ---------------------------------------------------------------- locks */

/* Reference tables that the table's foreign keys point to. */
static List *
list_referenced(Oid relation)
{
	List *found = NIL;
	ListCell *cell;

	foreach(cell, foreign_key_rules_list(relation))
	{
		ForeignKeyTables tables = constraint_key_tables(lfirst_oid(cell));
		const DistributedTable *table = metadata_table(tables.referenced);

		if (tables.referencing == relation && table != NULL && table->kind == TABLE_REFERENCE)
			found = list_append_unique_oid(found, tables.referenced);
	}
	return found;
}

/* Tables that have foreign keys from or to them on the workers. */
static List *
list_with_keys(const List *tables)
{
	List *found = NIL;
	ListCell *cell;

	foreach(cell, tables)
	{
		if (foreign_key_rules_on_workers(lfirst_oid(cell)))
			found = lappend_oid(found, lfirst_oid(cell));
	}
	return found;
}

/* Must writers of the group wait while rows are copied, because such a table has periods? */
static bool
must_exclude_writers(const List *with_keys)
{
	ListCell *cell;

	foreach(cell, with_keys)
	{
		if (metadata_has_periods(metadata_table(lfirst_oid(cell))))
			return true;
	}
	return false;
}

/* What the move holds on a shell while it copies. */
static LOCKMODE
get_lock_mode(const ShardMove *move)
{
	return move->exclusive ? ExclusiveLock : ShareUpdateExclusiveLock;
}

static void
lock_tables(ShardMove *move)
{
	ListCell *cell;

	foreach(cell, move->tables)
	{
		LockRelationOid(lfirst_oid(cell), get_lock_mode(move));
		LockRelationOid(lfirst_oid(cell), ShareUpdateExclusiveLock); /* for give_way() */
	}
	foreach(cell, move->tables)
		move->referenced = list_concat_unique_oid(move->referenced,
												  list_referenced(lfirst_oid(cell)));
	list_sort(move->referenced, list_oid_cmp);
	foreach(cell, move->exclusive ? move->referenced : NIL)
		LockRelationOid(lfirst_oid(cell), ShareLock);
}

/* Does somebody wait for a lock on the table that conflicts with this one of ours? */
static bool
is_awaited(Oid relation_oid, LOCKMODE mode)
{
	Relation relation = table_open(relation_oid, NoLock);
	bool awaited = LockHasWaitersRelation(relation, mode);

	table_close(relation, NoLock);
	return awaited;
}

/* The switch has taken its locks, here or in an earlier move of this transaction. */
static bool
has_switched(Oid relation_oid)
{
	Relation relation = table_open(relation_oid, NoLock);
	bool locked = CheckRelationLockedByMe(relation, AccessExclusiveLock, false);

	table_close(relation, NoLock);
	return locked;
}

/*
 * Writers, and all who come after them, would wait behind DDL that waits for us; and it is not we who are in a hurry.
 * Called often.
 */
static void
give_way(void *argument)
{
	const ShardMove *move = argument;
	const char *waiting = NULL;
	ListCell *cell;

	CHECK_FOR_INTERRUPTS();
	if (has_switched(linitial_oid(move->tables)))
		return;
	foreach(cell, move->tables)
	{
		if (is_awaited(lfirst_oid(cell), ShareUpdateExclusiveLock))
			waiting = "another command waits for it";
	}
	if (worker_use_is_wanted(move->source) || worker_use_is_wanted(move->target))
		waiting = "its worker is held"; /* when nobody uses it any more */
	if (waiting != NULL)
		ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
						errmsg("gave up moving a shard of table \"%s\": %s",
							   get_rel_name(linitial_oid(move->tables)), waiting),
						errhint("Move it again later.")));
}

/* So many rows have been copied, or deleted. */
static void
note_rows(void *argument, int64 rows)
{
	move_progress_add_rows(rows);
	give_way(argument);
}

static void
check_shard(const Colocation *colocation, Oid relation, int remainder)
{
	if (remainder < 0 || remainder >= colocation->shard_count)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("table \"%s\" has no shard %d", get_rel_name(relation), remainder),
				 errdetail("Its shards have the numbers 0 to %d.", colocation->shard_count - 1)));
	if (colocation->lost_with[remainder] != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("shard %d of table \"%s\" is lost", remainder, get_rel_name(relation)),
				 errdetail("It was lost with worker \"%s\".", colocation->lost_with[remainder]),
				 errhint("SELECT strata.recreate_lost_shards(%s) makes it anew, empty.",
						 quote_literal_cstr(relation_name_qualified(relation)))));
}

/* A statement of ours that still reads, as a cursor does, would look for its rows in the old place. */
static void
check_nothing_reads(Oid relation)
{
	ListCell *cell;

	foreach(cell, connection_list())
	{
		const WorkerConnection *conn = lfirst(cell);

		if (conn->snapshot.kept > 0 || conn->occupant != NULL)
			ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE),
							errmsg("cannot move a shard of \"%s\" because this session has queries "
								   "that read from workers",
								   get_rel_name(relation)),
							errhint("Close its cursors first.")));
	}
}

static void
report_changed_group(Oid relation)
{
	ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					errmsg("the colocation group of \"%s\" has changed", get_rel_name(relation)),
					errhint("Move the shard again.")));
}

/* Lock what the move needs, and find out what that is. */
static void
begin_move(ShardMove *move, Oid relation, int remainder, int target)
{
	const Colocation *colocation = metadata_require_distributed(relation)->colocation;
	List *with_keys;

	check_shard(colocation, relation, remainder);
	LockDatabaseObject(metadata_catalog_oid("shard_move"), colocation->id, 0, ExclusiveLock);
	move->tables = metadata_write_group_tables(colocation->id);
	with_keys = list_with_keys(move->tables);
	move->exclusive = must_exclude_writers(with_keys);
	move->late = move->exclusive ? NIL : with_keys;
	lock_tables(move);

	/* what it was before the locks may have changed */
	colocation = metadata_require_distributed(relation)->colocation;
	check_shard(colocation, relation, remainder);
	if (!equal(metadata_write_group_tables(colocation->id), move->tables) ||
		!equal(list_with_keys(move->tables), with_keys))
		report_changed_group(relation);
	move->colocation_id = colocation->id;
	move->modulus = colocation->shard_count;
	move->remainder = remainder;
	move->source = colocation->shard_workers[remainder];
	move->target = target;
}

/* ---------------------------------------------------------------- rounds */

/* How many rows are to be copied, as far as the source knows. */
static int64
estimate_rows(const ShardMove *move)
{
	StringInfoData sql;
	const char *rows;
	ListCell *cell;

	initStringInfo(&sql);
	appendStringInfoString(&sql, "SELECT pg_catalog.sum(greatest(c.reltuples, 0))::pg_catalog.int8 "
								 "FROM pg_catalog.pg_class c, (");
	foreach(cell, move->tables)
	{
		Relation relation = table_open(lfirst_oid(cell), NoLock);

		appendStringInfo(&sql, "%sSELECT relid FROM pg_catalog.pg_partition_tree(%s) WHERE isleaf",
						 foreach_current_index(cell) > 0 ? " UNION ALL " : "",
						 quote_literal_cstr(shard_partition_name(move, relation)));
		table_close(relation, NoLock);
	}
	appendStringInfoString(&sql, ") p WHERE c.oid OPERATOR(pg_catalog.=) p.relid");
	rows = remote_command_fetch(move->source, sql.data);
	return rows == NULL ? 0 : strtoi64(rows, NULL, 10);
}

/* Look at all tables of the source: how many rows have changed? */
static uint64
look_at_source(const ShardMove *move)
{
	uint64 rows = 0;
	ListCell *copies;
	ListCell *cell;

	foreach(copies, move->copies)
	{
		foreach(cell, (List *) lfirst(copies))
			rows += shard_copy_look(lfirst(cell));
	}
	return rows;
}

static bool
is_any_behind(const List *copies)
{
	ListCell *cell;

	foreach(cell, copies)
	{
		if (shard_copy_is_behind(lfirst(cell)))
			return true;
	}
	return false;
}

/* Bring all tables of the target to what the last look has seen. */
static void
fill_target(ShardMove *move)
{
	const Bitmapset *target = bms_make_singleton(move->target);
	ListCell *table;
	ListCell *copies;

	forboth(table, move->tables, copies, move->copies)
	{
		Relation relation;
		bool guarded;
		ListCell *cell;

		if (!is_any_behind(lfirst(copies)))
			continue;
		relation = table_open(lfirst_oid(table), NoLock);
		guarded = owner_guard_begin(target, relation);
		shard_partition_enforce_keys(move->target, false);
		foreach(cell, (List *) lfirst(copies))
			shard_copy_catch_up(lfirst(cell), note_rows, move);
		shard_partition_enforce_keys(move->target, true);
		if (guarded)
			owner_guard_end(target);
		table_close(relation, NoLock);
	}
}

static void
analyze_target(const ShardMove *move)
{
	const Bitmapset *target = bms_make_singleton(move->target);
	ListCell *cell;

	foreach(cell, move->tables)
	{
		Relation relation = table_open(lfirst_oid(cell), NoLock);
		bool guarded = owner_guard_begin(target, relation);

		shard_partition_run(move->target,
							psprintf("ANALYZE %s", shard_partition_name(move, relation)));
		if (guarded)
			owner_guard_end(target);
		table_close(relation, NoLock);
		give_way(unconstify(ShardMove *, move));
	}
}

/* Rounds until one is short. */
static void
copy_until_short(ShardMove *move)
{
	int64 before = PG_INT64_MAX;
	int vain = 0;

	if (move->exclusive)
		return;
	for (;;)
	{
		int64 begin = clock_now();
		uint64 rows = look_at_source(move);
		int64 took;

		FAULT_POINT("shard_move_round");
		fill_target(move);
		took = clock_now() - begin;
		if (took < SHORT_ROUND_MS || rows < SHORT_ROUND_ROWS)
			return;
		if (took >= before && ++vain == VAIN_ROUNDS)
			ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
							errmsg("gave up moving shard %d of table \"%s\": its rows change "
								   "faster than they are copied",
								   move->remainder, get_rel_name(linitial_oid(move->tables))),
							errhint("Move it again when less is written.")));
		before = took;
	}
}

/* The first and longest round, and those that bring what has changed. */
static void
copy_rows(ShardMove *move)
{
	(void) look_at_source(move);
	fill_target(move);
	FAULT_POINT("shard_move_filled");
	analyze_target(move);
	move_progress_set_phase(MOVE_CATCHES_UP);
	shard_partition_run(move->source, shard_copy_planning(true));
	shard_partition_run(move->target, shard_copy_planning(true));
	copy_until_short(move);
}

/* ---------------------------------------------------------------- the switch */

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
	ListCell *cell;

	move->locked = clock_now();
	LockTimeout = LOCK_WAIT_MS;
	remote_ddl_lock_for_change();
	metadata_write_lock_placement();
	foreach(cell, move->tables)
	{
		LockTimeout = (int) Max(deadline - clock_now(), 1);
		LockRelationOid(lfirst_oid(cell), AccessExclusiveLock);
	}
	foreach(cell, move->referenced)
	{
		LockTimeout = (int) Max(deadline - clock_now(), 1);
		LockRelationOid(lfirst_oid(cell), ShareLock);
	}
	LockTimeout = lock_timeout;
	shard_partition_lock_for_switch(move, (int) Max(deadline - clock_now(), 1));
	if (look_at_source(move) > LAST_ROUND_ROWS)
		ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
						errmsg("many rows have changed since the last round")));
}

/* The switch's locks, if they are to be had soon. */
static bool
try_lock(ShardMove *move)
{
	int lock_timeout = LockTimeout;
	ErrorData *error = subtransaction_try(lock_for_switch, move);

	LockTimeout = lock_timeout;
	if (error == NULL)
		return true;
	if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
		ReThrowError(error);
	FreeErrorData(error);
	return false;
}

/* Does anybody wait for what we hold? */
static bool
is_anything_awaited(const ShardMove *move)
{
	ListCell *cell;

	foreach(cell, move->tables)
	{
		if (is_awaited(lfirst_oid(cell), get_lock_mode(move)))
			return true;
	}
	foreach(cell, move->exclusive ? move->referenced : NIL)
	{
		if (is_awaited(lfirst_oid(cell), ShareLock))
			return true;
	}
	return false;
}

/*
 * PostgreSQL's deadlock detector looks once, when somebody has waited for a second, and then we may not be waiting.  So
 * after a while with somebody behind us we end it.
 */
static void
check_patience(const ShardMove *move, int64 waited)
{
	bool blocks = waited > PATIENCE_MS && is_anything_awaited(move);

	if (!blocks && (LockTimeout == 0 || waited < Max(LockTimeout, SWITCH_PATIENCE_MS)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("gave up moving shard %d of table \"%s\": it was in use all the time",
					move->remainder, get_rel_name(linitial_oid(move->tables))),
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
		give_way(move);
	}
}

/*
 * Rows that have been safe for long are not trusted to one server because they have moved to it: its replicas have stored
 * what it prepares before that is decided (commit/replica_wait.c).  Readers wait then, so what was copied is stored before;
 * but for the last block, which nobody writes while it is not full.  So it is with the coordinator's replicas and the decision.
 */
static void
wait_for_replicas(ShardMove *move)
{
	int64 since = clock_now();
	const char *late = replica_wait_late_sql(remote_command_fetch(
		move->target,
		"SELECT '0/0'::pg_catalog.pg_lsn OPERATOR(pg_catalog.+) "
		"(l OPERATOR(pg_catalog.-) pg_catalog.mod(l, b)) "
		"FROM (SELECT pg_catalog.pg_current_wal_insert_lsn() OPERATOR(pg_catalog.-) '0/0' AS l, "
		"pg_catalog.current_setting('wal_block_size')::pg_catalog.numeric AS b) AS s"));
	const char *name;

	replica_wait_here();
	connection_open(move->target)->transaction.replicated = true;
	while ((name = remote_command_fetch(move->target, late)) != NULL)
	{
		if (clock_now() - since > REPLICA_PATIENCE_MS)
			ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
							errmsg("gave up moving shard %d of table \"%s\": a replica of worker "
								   "\"%s\" is late",
								   move->remainder, get_rel_name(linitial_oid(move->tables)),
								   metadata_worker(move->target)->name),
							errdetail("Replica \"%s\" has not stored the rows in %d seconds.", name,
									  REPLICA_PATIENCE_MS / 1000)));
		sleep_for(move, FIRST_PAUSE_MS);
	}
}

static void
lock_when_possible(ShardMove *move)
{
	int64 since = clock_now();
	int pause = FIRST_PAUSE_MS;

	give_way(move);
	while (!try_lock(move))
	{
		check_patience(move, clock_now() - since);
		sleep_for(move, pause);
		pause = Min(pause * 2, LONGEST_PAUSE_MS);
		copy_until_short(move);
	}
}

/* Under the switch's locks: nothing is missing, and the tables are those that were made. */
static void
check_copy(ShardMove *move)
{
	ListCell *table;
	ListCell *periods;
	ListCell *copies;

	forthree(table, move->tables, periods, move->periods, copies, move->copies)
	{
		Relation relation = table_open(lfirst_oid(table), NoLock);
		ListCell *cell;

		if (!equal(shard_partition_periods(move, relation), lfirst(periods)))
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("gave up moving shard %d of table \"%s\": its periods have changed",
							move->remainder, RelationGetRelationName(relation)),
					 errhint("Move it again.")));
		table_close(relation, NoLock);
		foreach(cell, (List *) lfirst(copies))
			move->rows += shard_copy_count(lfirst(cell));
	}
}

/* From when this transaction commits, the shard is on the target. */
static void
publish(const ShardMove *move)
{
	const Colocation *colocation = metadata_colocation(move->colocation_id);
	ListCell *cell;

	(void) metadata_worker(move->target); /* not removed while rows were copied */
	if (!equal(metadata_write_group_tables(move->colocation_id), move->tables) ||
		colocation->shard_workers[move->remainder] != move->source)
		report_changed_group(linitial_oid(move->tables));
	metadata_write_place_shard(move->colocation_id, move->remainder, move->target);
	foreach(cell, move->tables)
		CacheInvalidateRelcacheByRelid(lfirst_oid(cell)); /* plans */
	CommandCounterIncrement();
}

static void
report_move(const ShardMove *move, int64 begin)
{
	ereport(LOG,
			(errmsg("shard %d of %s moved from worker \"%s\" to worker \"%s\"", move->remainder,
					shard_map_describe_tables(metadata_colocation(move->colocation_id)),
					metadata_worker(move->source)->name, metadata_worker(move->target)->name),
			 errdetail("%llu rows in %lld ms; readers %s waited for %lld ms and the commit.",
					   (unsigned long long) move->rows, (long long) (clock_now() - begin),
					   move->exclusive ? "(writers: from the beginning)" : "and writers",
					   (long long) (clock_now() - move->locked))));
}

/* The locks are there: the last round, and the other place. */
static void
switch_place(ShardMove *move)
{
	ListCell *cell;

	remote_ddl_note_change();
	fill_target(move);
	shard_partition_run(move->source, shard_copy_planning(false));
	shard_partition_run(move->target, shard_copy_planning(false));
	check_copy(move);
	foreach(cell, move->tables)
		shard_partition_attach(move, lfirst_oid(cell));
	FAULT_POINT("shard_move_counted");
	shard_partition_enforce_keys(move->source, false);
	foreach(cell, move->tables)
		shard_partition_drop(move, lfirst_oid(cell));
	shard_partition_enforce_keys(move->source, true);
	publish(move);
}

/* The move itself, once it has its locks. */
static void
run_move(ShardMove *move)
{
	ListCell *cell;

	pending_rows_flush();
	check_nothing_reads(linitial_oid(move->tables));
	(void) connection_open_all(metadata_all_workers()); /* all note DDL: better an error now */
	in_doubt_wait(move->source);
	in_doubt_wait(move->target);
	if (move->exclusive)
		shard_partition_lock(move);
	foreach(cell, move->tables)
		shard_partition_create(move, lfirst_oid(cell));
	FAULT_POINT("shard_move_prepared");
	copy_rows(move);
	FAULT_POINT("shard_move_copied");
	move_progress_set_phase(MOVE_WAITS_FOR_REPLICAS);
	wait_for_replicas(move);
	move_progress_set_phase(MOVE_WAITS_FOR_LOCKS);
	lock_when_possible(move);
	FAULT_POINT("shard_move_locked");
	move_progress_set_phase(MOVE_SWITCHES);
	switch_place(move);
	FAULT_POINT("shard_move_published");
}

/*
 * In the current transaction, whose end decides: ERROR if it cannot be moved, 0 if it is there already.  Returns the number of
 * rows.  Locks the group's tables against everybody until the transaction ends.
 */
static uint64
move_shard(Oid relation, int remainder, int target)
{
	ShardMove move = {0};
	int64 begin = clock_now();

	if (IsolationUsesXactSnapshot())
		ereport(ERROR, (errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
						errmsg("a shard cannot be moved in a transaction of this isolation level"),
						errdetail("Its snapshot may be older than rows of the shard."),
						errhint("Use READ COMMITTED.")));
	begin_move(&move, relation, remainder, target);
	if (move.source == target)
		return 0;
	PG_TRY();
	{
		move_progress_begin(relation, remainder, metadata_worker(move.source)->name,
							metadata_worker(target)->name, estimate_rows(&move));
		run_move(&move);
	}
	PG_FINALLY();
	{
		move_progress_end();
	}
	PG_END_TRY();
	report_move(&move, begin);
	return move.rows;
}

/* move_shard(relation, shard, worker): how many rows */
Datum
strata_move_shard(PG_FUNCTION_ARGS)
{
	char *worker;

	argument_refuse_null(fcinfo, 0, "relation");
	argument_refuse_null(fcinfo, 1, "shard");
	worker = argument_get_text(fcinfo, 2, "worker");
	PreventCommandIfReadOnly("strata.move_shard()");
	PG_RETURN_INT64(
		(int64) move_shard(PG_GETARG_OID(0), PG_GETARG_INT32(1), worker_api_find(worker)));
}
