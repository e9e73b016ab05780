/*
 * shard_move.c
 *		A shard moves from one worker to another, with its rows and with its whole colocation group.
 *
 * One distributed transaction: the partitions are made on the target, filled from the source, and dropped there; the
 * metadata says where they are.  It commits on all nodes or on none, as any transaction does, and so whatever fails,
 * or is killed, leaves the shard whole in its old place or whole in its new one, with nothing to clean up.  A worker that is
 * restored to a time before the move lacks its DDL and is refused (stream/remote_ddl.c).
 *
 * Nobody may read or write the shard meanwhile, nor have written what is not committed yet:
 *
 *	- AccessExclusiveLock on the group's shells, which each statement locks before it looks where rows are.  Snapshots
 *	  that are older than the move are found by execute/moved_rows.c.
 *	- ShareLock on reference tables that the group's foreign keys point to: changes of these check and cascade on the
 *	  workers, without a lock on our shells, and one worker could be asked before the move and the other after it.
 *	- AccessExclusiveLock on the source's partitions: prepared transactions and sessions that a dead coordinator has left hold
 *	  locks there until they have really ended.
 *
 * Locks, in the order of README.md: DDL, the tables by OID, the reference tables; the placement lock comes last, so that
 * other tables may be distributed while rows are copied.  What it protects is looked at again then.
 *
 * Rows pass through the coordinator: read under a snapshot of the source that is taken behind these locks, written as the
 * table's owner.  Foreign keys are not checked again, since what they point to moves in the same transaction or is
 * everywhere; their triggers are off on both sides (session_replication_role).
 */
#include "postgres.h"

#include "workers/shard_move.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_constraint.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "fault_point.h"
#include "cluster/metadata.h"
#include "cluster/metadata_write.h"
#include "cluster/relation_name.h"
#include "cluster/shard_map.h"
#include "commit/in_doubt.h"
#include "server/argument.h"
#include "server/clock.h"
#include "stream/copy_stream.h"
#include "stream/remote_command.h"
#include "stream/remote_ddl.h"
#include "table/owner_guard.h"
#include "table/shell_reader.h"
#include "table/table_rules.h"
#include "table/worker_table_sql.h"
#include "transaction/pending_rows.h"
#include "workers/worker_api.h"

PG_FUNCTION_INFO_V1(strata_move_shard);

typedef struct ShardMove
{
	int colocation_id;
	int modulus;
	int remainder;
	int source; /* workers */
	int target;
	List *tables; /* the group's, ordered by OID */
	uint64 rows;
} ShardMove;

/* ---------------------------------------------------------------- locks */

/* Reference tables that the table's foreign keys point to. */
static void
lock_referenced(Oid relation)
{
	ListCell *cell;

	foreach(cell, table_rules_check_list_foreign_keys(relation))
	{
		HeapTuple tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(lfirst_oid(cell)));
		Form_pg_constraint constraint = (Form_pg_constraint) GETSTRUCT(tuple);
		Oid referenced = constraint->conrelid == relation ? constraint->confrelid : InvalidOid;
		const DistributedTable *table;

		ReleaseSysCache(tuple);
		table = OidIsValid(referenced) ? metadata_table(referenced) : NULL;
		if (table != NULL && table->kind == TABLE_REFERENCE)
			LockRelationOid(referenced, ShareLock);
	}
}

static void
lock_tables(const List *tables)
{
	ListCell *cell;

	foreach(cell, tables)
		LockRelationOid(lfirst_oid(cell), AccessExclusiveLock);
	foreach(cell, tables)
		lock_referenced(lfirst_oid(cell));
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

		if (conn->kept_snapshots > 0 || conn->occupant != NULL)
			ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE),
							errmsg("cannot move a shard of \"%s\" because this session has queries "
								   "that read from workers",
								   get_rel_name(relation)),
							errhint("Close its cursors first.")));
	}
}

/* Lock what the move needs, and find out what that is. */
static void
begin_move(ShardMove *move, Oid relation, int remainder, int target)
{
	const Colocation *colocation = metadata_require_distributed(relation)->colocation;

	check_shard(colocation, relation, remainder);
	move->tables = metadata_write_group_tables(colocation->id);
	lock_tables(move->tables);

	/* what it was before the locks may have changed */
	colocation = metadata_require_distributed(relation)->colocation;
	check_shard(colocation, relation, remainder);
	move->colocation_id = colocation->id;
	move->modulus = colocation->shard_count;
	move->remainder = remainder;
	move->source = colocation->shard_workers[remainder];
	move->target = target;
}

/* ---------------------------------------------------------------- the workers' partitions */

static char *
get_shard_name(const ShardMove *move, Relation relation)
{
	return worker_table_sql_shard_name(relation, move->remainder);
}

static void
run_on(int worker_id, const char *sql)
{
	(void) remote_command_run(bms_make_singleton(worker_id), REMOTE_WRITE, sql);
}

/* Begins of the periods of which the source has leaves (String). */
static List *
list_periods(const ShardMove *move, Relation relation)
{
	List *periods = NIL;
	char *text;
	char *period;

	if (!metadata_has_periods(metadata_table(RelationGetRelid(relation))))
		return NIL;
	text = remote_command_fetch(
		move->source,
		psprintf("SELECT pg_catalog.string_agg(lower, E'\\n' ORDER BY pg_catalog.length(lower), "
				 "lower) FROM strata_worker.period_leaves(%s::pg_catalog.regclass) "
				 "WHERE NOT is_default",
				 quote_literal_cstr(get_shard_name(move, relation))));
	while (text != NULL && (period = strsep(&text, "\n")) != NULL)
		periods = lappend(periods, makeString(period));
	return periods;
}

/* For as long at most as the caller waits for locks here. */
static void
lock_source(const ShardMove *move)
{
	ListCell *cell;

	run_on(move->source, psprintf("SET LOCAL lock_timeout = %d", LockTimeout));

	foreach(cell, move->tables)
	{
		Relation relation = table_open(lfirst_oid(cell), NoLock);

		run_on(move->source,
			   psprintf("LOCK TABLE %s IN ACCESS EXCLUSIVE MODE", get_shard_name(move, relation)));
		table_close(relation, NoLock);
	}
	run_on(move->source, "SET LOCAL lock_timeout = 0");
}

static void
create_partition(const ShardMove *move, Relation relation)
{
	List *remainders = list_make1_int(move->remainder);

	run_on(move->target, psprintf("%s%s",
								  worker_table_sql_partitions(relation, move->modulus, remainders,
															  list_periods(move, relation)),
								  worker_table_sql_owner(relation, remainders)));
}

static void
enforce_keys(int worker_id, bool enforce)
{
	run_on(worker_id,
		   psprintf("SET LOCAL session_replication_role = %s", enforce ? "origin" : "replica"));
}

static void
copy_rows(ShardMove *move, Relation relation)
{
	char *name = get_shard_name(move, relation);
	TupleTableSlot *slot = table_slot_create(relation, NULL);
	ShellReader *reader;
	CopyStream *stream = copy_stream_begin(move->target, relation, name);

	reader = shell_reader_begin_shard(relation, move->source, name);
	while (shell_reader_next(reader, slot))
	{
		copy_stream_row(stream, slot);
		move->rows++;
	}
	shell_reader_end(reader);
	copy_stream_end(stream);
	ExecDropSingleTupleTableSlot(slot);
}

/* Make a table's partition on the target, with its rows. */
static void
fill_target(ShardMove *move, Oid relation_oid)
{
	const Bitmapset *target = bms_make_singleton(move->target);
	Relation relation = table_open(relation_oid, NoLock);
	bool guarded = owner_guard_begin(target, relation);

	create_partition(move, relation);
	enforce_keys(move->target, false);
	copy_rows(move, relation);
	enforce_keys(move->target, true);
	run_on(move->target, psprintf("ANALYZE %s", get_shard_name(move, relation)));
	if (guarded)
		owner_guard_end(target);
	table_close(relation, NoLock);
}

/*
 * A partition to which foreign keys point can only be detached, and only without rows that these use, be
 * they rows of the partition itself.
 */
static void
drop_source(const ShardMove *move, Oid relation_oid)
{
	const Bitmapset *source = bms_make_singleton(move->source);
	Relation relation = table_open(relation_oid, NoLock);
	char *name = get_shard_name(move, relation);
	bool guarded = owner_guard_begin(source, relation);

	run_on(move->source,
		   psprintf("DELETE FROM %s; ALTER TABLE %s DETACH PARTITION %s; DROP TABLE %s", name,
					relation_name_qualified(relation_oid), name, name));
	if (metadata_has_periods(metadata_table(relation_oid)))
		run_on(move->source, "SELECT strata_worker.forget_periods()");
	if (guarded)
		owner_guard_end(source);
	table_close(relation, NoLock);
}

/* ---------------------------------------------------------------- the switch */

/* From when this transaction commits, the shard is on the target. */
static void
publish(const ShardMove *move)
{
	ListCell *cell;

	metadata_write_lock_placement();
	(void) metadata_worker(move->target); /* not removed while rows were copied */
	if (!equal(metadata_write_group_tables(move->colocation_id), move->tables))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE),
						errmsg("another table has joined the colocation group meanwhile"),
						errhint("Move the shard again.")));
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
			 errdetail("%llu rows in %lld ms.", (unsigned long long) move->rows,
					   (long long) (clock_now() - begin))));
}

uint64
shard_move(Oid relation, int remainder, int target)
{
	ShardMove move = {0};
	int64 begin = clock_now();
	ListCell *cell;

	if (IsolationUsesXactSnapshot())
		ereport(ERROR, (errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
						errmsg("a shard cannot be moved in a transaction of this isolation level"),
						errdetail("Its snapshot may be older than rows of the shard."),
						errhint("Use READ COMMITTED.")));
	remote_ddl_lock_for_change();
	begin_move(&move, relation, remainder, target);
	if (move.source == target)
		return 0;
	pending_rows_flush();
	check_nothing_reads(relation);
	in_doubt_wait(move.source);
	in_doubt_wait(target);
	remote_ddl_note_change();
	lock_source(&move);
	foreach(cell, move.tables)
		fill_target(&move, lfirst_oid(cell));
	FAULT_POINT("shard_move_copied");
	enforce_keys(move.source, false);
	foreach(cell, move.tables)
		drop_source(&move, lfirst_oid(cell));
	enforce_keys(move.source, true);
	publish(&move);
	FAULT_POINT("shard_move_published");
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
		(int64) shard_move(PG_GETARG_OID(0), PG_GETARG_INT32(1), worker_api_find(worker)));
}
