/*
 * shard_move.c
 *		A shard moves from one worker to another, with its rows and with its whole colocation group.
 *
 * One distributed transaction: the partitions are made on the target, filled from the source, and dropped there; the
 * metadata says where they are.  It commits on all nodes or on none, as any transaction does, and so whatever fails,
 * or is killed, leaves the shard whole in its old place or whole in its new one, with nothing to clean up.  A worker that is
 * restored to a time before the move lacks its DDL and is refused (stream/remote_ddl.c).
 *
 * The source keeps the partitions for a while (stream/kept_shard.c), if the target is archived: its WAL alone has the rows now.
 *
 * The group's tables are read and written while rows are copied:
 *
 *	1. The target gets new tables, which are attached while they are empty: that does not lock its own table against
 *	   readers and writers, and nobody else sees them before we commit.
 *	2. Rows are copied, then what has changed meanwhile, until a round is short (shard_fill.c, table/shard_copy.c).
 *	3. The target's replicas store what was copied.
 *	4. The switch (shard_switch.c): AccessExclusiveLock on the group's shells, which each statement locks before it looks where rows are, and
 *	   on the source's partitions, where prepared transactions and sessions that a dead coordinator has left hold locks
 *	   until they have really ended.  The last round, rows counted, the source's partitions dropped, the metadata changed.
 *	   Snapshots that are older than the switch are found by execute/moved_rows.c.
 *
 * Meanwhile ShareUpdateExclusiveLock keeps away what changes the tables as a whole: DDL, VACUUM FULL, REINDEX, ANALYZE.
 * Who wants one of these goes first, and so does a switchover of a worker: the move ends with an error (shard_lock.c).
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
 * A shard is split in the same way: its halves, each with twice its modulus, are made on other workers, for the source's table cannot
 * have a shard and its halves at once.  The rows of each are copied by themselves.
 *
 * Foreign keys are not checked again, since what they point to moves in the same transaction or is everywhere; their
 * triggers are off on both sides (session_replication_role).
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "fault_point.h"
#include "cluster/metadata.h"
#include "cluster/metadata_write.h"
#include "cluster/relation_name.h"
#include "cluster/shard_map.h"
#include "commit/in_doubt.h"
#include "server/argument.h"
#include "server/clock.h"
#include "server/settings.h"
#include "stream/remote_command.h"
#include "transaction/pending_rows.h"
#include "wire/connection.h"
#include "workers/move_progress.h"
#include "workers/shard_fill.h"
#include "workers/shard_lock.h"
#include "workers/shard_partition.h"
#include "workers/shard_space.h"
#include "workers/shard_switch.h"
#include "workers/worker_api.h"

PG_FUNCTION_INFO_V1(strata_move_shard);
PG_FUNCTION_INFO_V1(strata_split_shard);

static void
check_isolation(void)
{
	if (IsolationUsesXactSnapshot())
		ereport(ERROR, (errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
						errmsg("a shard cannot be moved in a transaction of this isolation level"),
						errdetail("Its snapshot may be older than rows of the shard."),
						errhint("Use READ COMMITTED.")));
}

static void
check_shard(const Colocation *colocation, Oid relation, int remainder)
{
	shard_map_require_shard(colocation, relation, remainder);
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

/* Lock what the move needs, and find out what that is. */
static void
begin_move(ShardMove *move, Oid relation, int remainder)
{
	const Colocation *colocation = metadata_require_distributed(relation)->colocation;
	List *with_keys;

	move->begun = clock_now();
	check_isolation();
	check_shard(colocation, relation, remainder);
	LockDatabaseObject(metadata_catalog_oid("shard_move"), colocation->id, 0, ExclusiveLock);
	move->tables = metadata_write_group_tables(colocation->id);
	with_keys = shard_lock_list_with_keys(move->tables);
	move->exclusive = shard_lock_must_exclude_writers(with_keys);
	move->late = move->exclusive ? NIL : with_keys;
	shard_lock_tables(move);

	/* what it was before the locks may have changed */
	colocation = metadata_require_distributed(relation)->colocation;
	check_shard(colocation, relation, remainder);
	if (!equal(metadata_write_group_tables(colocation->id), move->tables) ||
		!equal(shard_lock_list_with_keys(move->tables), with_keys))
		shard_lock_report_changed_group(relation);
	move->colocation_id = colocation->id;
	move->bounds = *colocation_shard_bounds(colocation, remainder);
	move->source = colocation->shard_workers[remainder];
}

static void
add_part(ShardMove *move, ShardBounds bounds, int worker_id)
{
	ShardPart *part = palloc0(sizeof(ShardPart));

	part->bounds = bounds;
	part->worker_id = worker_id;
	move->parts = lappend(move->parts, part);
}

/* Where the parts go, for people. */
static char *
describe_targets(const ShardMove *move)
{
	StringInfoData text;
	ListCell *cell;

	initStringInfo(&text);
	foreach(cell, move->parts)
		appendStringInfo(&text, "%s%s", foreach_current_index(cell) > 0 ? ", " : "",
						 metadata_worker(((ShardPart *) lfirst(cell))->worker_id)->name);
	return text.data;
}

static void
report_move(const ShardMove *move)
{
	char *tables = shard_map_describe_tables(metadata_colocation(move->colocation_id));
	char *source = metadata_worker(move->source)->name;
	int number = move->bounds.remainder;

	ereport(LOG,
			(shard_move_is_split(move)
				 ? errmsg("shard %d of %s was split, from worker \"%s\" to shards %d and %d on %s",
						  number, tables, source, number, number + move->bounds.modulus,
						  describe_targets(move))
				 : errmsg("shard %d of %s moved from worker \"%s\" to worker \"%s\"", number,
						  tables, source, describe_targets(move)),
			 errdetail("%llu rows in %lld ms; readers %s waited for %lld ms and the commit.",
					   (unsigned long long) move->rows, (long long) (clock_now() - move->begun),
					   move->exclusive ? "(writers: from the beginning)" : "and writers",
					   (long long) (clock_now() - move->locked))));
}

/* Make a table's partitions on the targets. */
static void
create_partitions(ShardMove *move, Oid relation_oid)
{
	Relation relation = table_open(relation_oid, NoLock);
	ListCell *part;

	move->periods = lappend(move->periods, shard_partition_periods(move, relation));
	table_close(relation, NoLock);
	foreach(part, move->parts)
		shard_partition_create(move, lfirst(part), relation_oid);
}

/* What heaps and foreign keys need is newer than the oldest SQL that we serve. */
static void
check_version(const ShardMove *move)
{
	bool needs_more = move->late != NIL;
	ListCell *cell;

	foreach(cell, move->tables)
		needs_more = needs_more || !metadata_table(lfirst_oid(cell))->is_columnar;
	if (needs_more && !shard_partition_worker_has(move->source, "heap_rows"))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the version of the extensions is too old to move heaps and tables with "
						"foreign keys"),
				 errhint("ALTER EXTENSION strata UPDATE updates them on all nodes.")));
}

/* The move itself, once it has its locks. */
static void
copy_and_switch(ShardMove *move, Oid relation)
{
	ListCell *cell;

	move_progress_begin(relation, move->bounds.remainder, metadata_worker(move->source)->name,
						describe_targets(move), shard_fill_estimate(move));
	pending_rows_flush();
	check_nothing_reads(linitial_oid(move->tables));
	(void) connection_open_all(metadata_all_workers()); /* all note DDL: better an error now */
	in_doubt_wait(move->source);
	foreach(cell, move->parts)
		in_doubt_wait(((ShardPart *) lfirst(cell))->worker_id);
	check_version(move);
	shard_space_check(move);
	if (move->exclusive)
		shard_partition_lock(move);
	foreach(cell, move->tables)
		create_partitions(move, lfirst_oid(cell));
	FAULT_POINT("shard_move_prepared");
	shard_fill_first(move);
	FAULT_POINT("shard_move_copied");
	move_progress_set_phase(MOVE_WAITS_FOR_REPLICAS);
	shard_switch_wait_for_replicas(move);
	move->keeps = shard_partition_must_keep(move);
	move_progress_set_phase(MOVE_WAITS_FOR_LOCKS);
	shard_switch_lock(move);
	FAULT_POINT("shard_move_locked");
	move_progress_set_phase(MOVE_SWITCHES);
	shard_switch(move);
	FAULT_POINT("shard_move_published");
}

/* In the current transaction, whose end decides.  Locks the group's tables against everybody until then. */
static void
run_move(ShardMove *move, Oid relation)
{
	PG_TRY();
	{
		copy_and_switch(move, relation);
	}
	PG_CATCH();
	{
		move_progress_end();
		PG_RE_THROW();
	}
	PG_END_TRY();
	move_progress_end();
}

/* move_shard(relation, shard, worker): how many rows; 0 if it is there already */
Datum
strata_move_shard(PG_FUNCTION_ARGS)
{
	ShardMove move = {0};
	Oid relation;
	int target;

	argument_refuse_null(fcinfo, 0, "relation");
	argument_refuse_null(fcinfo, 1, "shard");
	relation = PG_GETARG_OID(0);
	target = worker_api_find(argument_get_text(fcinfo, 2, "worker"));
	PreventCommandIfReadOnly("strata.move_shard()");
	begin_move(&move, relation, PG_GETARG_INT32(1));
	if (move.source == target)
		PG_RETURN_INT64(0);
	add_part(&move, move.bounds, target);
	run_move(&move, relation);
	report_move(&move);
	PG_RETURN_INT64((int64) move.rows);
}

/* ---------------------------------------------------------------- splitting */

/* The worker, other than the source, with fewest shards of the group and of these parts; 0 if there is no other. */
static int
choose_target(const ShardMove *move)
{
	const Colocation *colocation = metadata_colocation(move->colocation_id);
	int best = 0;
	int fewest = 0;
	int worker_id = -1;

	while ((worker_id = bms_next_member(metadata_all_workers(), worker_id)) >= 0)
	{
		int count = list_length(
			colocation_list_shards(colocation, colocation->shard_workers, worker_id));
		ListCell *cell;

		foreach(cell, move->parts)
			count += ((ShardPart *) lfirst(cell))->worker_id == worker_id;
		if (worker_id != move->source && (best == 0 || count < fewest))
		{
			best = worker_id;
			fewest = count;
		}
	}
	return best;
}

/* The workers that the array names: one for both halves, or two; NULL: we choose. */
static void
add_halves(ShardMove *move, ArrayType *names)
{
	int modulus = move->bounds.modulus * 2;
	Datum *elements = NULL;
	int count = 0;

	if (names != NULL && array_contains_nulls(names))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("names of workers must not be null")));
	if (names != NULL)
		deconstruct_array(names, TEXTOID, -1, false, TYPALIGN_INT, &elements, NULL, &count);
	if (names != NULL && count != 1 && count != 2)
		ereport(ERROR, (errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
						errmsg("a shard is split to one worker or two, not %d", count)));
	for (int half = 0; half < 2; half++)
	{
		int worker_id = count == 0
							? choose_target(move)
							: worker_api_find(TextDatumGetCString(elements[Min(half, count - 1)]));

		if (worker_id == 0 || worker_id == move->source)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("a shard is split to other workers than its own"),
					 errdetail("It is on worker \"%s\", whose table cannot have the shard and its "
							   "halves at once.",
							   metadata_worker(move->source)->name),
					 errhint(worker_id == 0
								 ? "Add a worker with strata.add_worker()."
								 : "Name other workers; strata.move_shard() moves a half back.")));
		add_part(move, (ShardBounds){modulus, move->bounds.remainder + half * move->bounds.modulus},
				 worker_id);
	}
}

/* split_shard(relation, shard, workers): how many rows */
Datum
strata_split_shard(PG_FUNCTION_ARGS)
{
	ShardMove move = {0};
	Oid relation;

	argument_refuse_null(fcinfo, 0, "relation");
	argument_refuse_null(fcinfo, 1, "shard");
	relation = PG_GETARG_OID(0);
	PreventCommandIfReadOnly("strata.split_shard()");
	begin_move(&move, relation, PG_GETARG_INT32(1));
	if (move.bounds.modulus > STRATA_MAX_SHARD_COUNT / 2)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("shard %d of table \"%s\" cannot be split any more",
							   move.bounds.remainder, get_rel_name(relation)),
						errdetail("It is one %d-th of the table, and there are at most %d parts.",
								  move.bounds.modulus, STRATA_MAX_SHARD_COUNT)));
	add_halves(&move, PG_ARGISNULL(2) ? NULL : PG_GETARG_ARRAYTYPE_P(2));
	run_move(&move, relation);
	report_move(&move);
	PG_RETURN_INT64((int64) move.rows);
}
