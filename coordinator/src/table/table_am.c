/*
 * table_am.c
 *		The table access method `distributed`.
 *
 * A shell is an ordinary table whose rows are on the workers.  To PostgreSQL this
 * access method makes it look like a table in which rows can be inserted and
 * over which one can scan; that alone makes COPY TO, pg_dump, CREATE TABLE AS,
 * cursors and ANALYZE work, and every SELECT that the planner cannot push down.
 *
 *		insert		-> remote_insert_row(): buffered, on its way to one worker
 *		scan		-> shell_reader: SELECT of all columns from all workers
 *		analyze		-> sample: a random sample from all workers
 *		update, delete -> row_change_update(): rows that a Gather has locked and held (held_rows.h)
 *		the rest	-> an error; the planner ships MERGE, ON CONFLICT, row locks, TABLESAMPLE, and UPDATE and
 *					   DELETE where no trigger sees their rows, as statements
 *
 * Invariants.  The main fork exists and stays empty, but one block is reported as its
 * size: ANALYZE samples that block to get at the rows.  The shell's indexes stay empty:
 * index builds see no rows, and executor_hooks.c keeps the executor from inserting
 * into them; an index scan, which only the planner's look for a column's extremes
 * makes, therefore finds nothing.  A tid is a number of a row that is held for a statement.
 *
 * Memory: a scan allocates in a context of its own, which ends with the scan.
 */
#include "postgres.h"

#include "table/table_am.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/multixact.h"
#include "access/parallel.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_trigger.h"
#include "catalog/storage.h"
#include "catalog/storage_xlog.h"
#include "commands/vacuum.h"
#include "fmgr.h"
#include "nodes/execnodes.h"
#include "optimizer/plancat.h"
#include "pgstat.h"
#include "postmaster/autovacuum.h"
#include "replication/logicalworker.h"
#include "storage/procarray.h"
#include "storage/smgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "cluster/metadata.h"
#include "cluster/shard_map.h"
#include "plan/planner.h"
#include "server/statement_depth.h"
#include "stream/remote_insert.h"
#include "stream/row_change.h"
#include "table/analyze_sample.h"
#include "table/index_validity.h"
#include "table/shard_statistics.h"
#include "table/shell_reader.h"
#include "table/table_lifecycle.h"
#include "transaction/held_rows.h"
#include "wire/remote_role.h"

/* Rows the planner assumes in a shell that was never analysed. */
#define UNANALYSED_ROWS 1000

typedef struct ShellScan
{
	TableScanDescData base; /* must be first */
	MemoryContext context;	/* of the reader and the sample */
	ShellReader *reader;	/* open while rows come */
	bool finished;			/* the reader returned its last row */
	AnalyzeSample *sample;	/* ANALYZE only */
	bool sampled;			/* the one block was handed out */
} ShellScan;

int table_am_suspended = 0;
void (*table_am_emptied)(Oid relation) = NULL;
Oid table_am_converting = InvalidOid;

PG_FUNCTION_INFO_V1(strata_distributed_handler);

/*
 * Refuse an operation that works on single stored rows.
 */
static void
refuse(Relation relation, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot %s distributed table \"%s\" on the coordinator", what,
					RelationGetRelationName(relation)),
			 errdetail(
				 "The rows are on the workers, and the statement cannot be sent there as a whole."),
			 errhint("Join and filter on the distribution key, or compute the rows in a separate "
					 "statement first.")));
}

/*
 * Logical replication works on single rows, without a plan: its apply worker would look
 * for a row to update or delete in the empty shell, and take it for missing.
 */
static void
refuse_subscription(Relation relation, const char *what)
{
	if (!IsLogicalWorker() || statement_depth > 0 || planner_is_active() ||
		table_am_suspended > 0 || metadata_table(RelationGetRelid(relation)) == NULL)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("a subscription cannot %s distributed table \"%s\"", what,
					RelationGetRelationName(relation)),
			 errdetail("Logical replication changes single rows where they are stored, which is "
					   "on the workers."),
			 errhint("Publish only inserts (publish = 'insert'), or make it a reference table.")));
}

static const TupleTableSlotOps *
distributed_slot_callbacks(Relation relation)
{
	return &TTSOpsVirtual;
}

/* ---------------------------------------------------------------- scans */

static TableScanDesc
distributed_scan_begin(Relation relation, Snapshot snapshot, int nkeys, struct ScanKeyData *key,
					   ParallelTableScanDesc parallel_scan, uint32 flags)
{
	ShellScan *scan = palloc0(sizeof(ShellScan));

	if (nkeys > 0)
		elog(ERROR, "scan keys are not supported for distributed tables");
	if (snapshot != NULL && snapshot->snapshot_type == SNAPSHOT_DIRTY)
		refuse_subscription(relation, "update or delete rows of");

	RelationIncrementReferenceCount(relation);
	scan->base.rs_rd = relation;
	scan->base.rs_snapshot = snapshot;
	scan->base.rs_flags = flags;
	scan->base.rs_parallel = parallel_scan;
	scan->context = AllocSetContextCreate(CurrentMemoryContext, "shell scan",
										  ALLOCSET_DEFAULT_SIZES);
	return &scan->base;
}

/* Stop reading; the next row asked for starts anew. */
static void
stop_scan(ShellScan *scan)
{
	if (scan->reader != NULL)
		shell_reader_end(scan->reader);
	if (scan->sample != NULL)
		analyze_sample_end(scan->sample);
	scan->reader = NULL;
	scan->sample = NULL;
	scan->finished = false;
	scan->sampled = false;
	MemoryContextReset(scan->context);
}

static void
distributed_scan_end(TableScanDesc base)
{
	ShellScan *scan = (ShellScan *) base;

	stop_scan(scan);
	MemoryContextDelete(scan->context);
	RelationDecrementReferenceCount(base->rs_rd);
	if (base->rs_flags & SO_TEMP_SNAPSHOT)
		UnregisterSnapshot(base->rs_snapshot);
	pfree(scan);
}

static void
distributed_scan_rescan(TableScanDesc base, struct ScanKeyData *key, bool set_params,
						bool allow_strat, bool allow_sync, bool allow_pagemode)
{
	stop_scan((ShellScan *) base);
}

static bool
distributed_scan_getnextslot(TableScanDesc base, ScanDirection direction, TupleTableSlot *slot)
{
	ShellScan *scan = (ShellScan *) base;

	ExecClearTuple(slot);
	if (scan->finished || table_am_suspended > 0)
		return false;
	if (base->rs_parallel != NULL)
		elog(ERROR, "distributed table \"%s\" cannot be scanned in parallel",
			 RelationGetRelationName(base->rs_rd));
	if (ScanDirectionIsBackward(direction))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("distributed table \"%s\" cannot be scanned backward",
							   RelationGetRelationName(base->rs_rd)),
						errhint("Use a cursor declared WITH HOLD, or one over a sorted query.")));

	if (scan->reader == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(scan->context);
		const DistributedTable *table = metadata_table(RelationGetRelid(base->rs_rd));

		if (table != NULL)
			shard_map_require_all(table->colocation);
		scan->reader = shell_reader_begin(base->rs_rd, "");
		MemoryContextSwitchTo(old);
	}
	if (shell_reader_next(scan->reader, slot))
	{
		pgstat_count_heap_getnext(base->rs_rd);
		return true;
	}
	scan->finished = true;
	return false;
}

static bool
distributed_scan_sample_next_block(TableScanDesc base, struct SampleScanState *state)
{
	refuse(base->rs_rd, "sample");
	return false;
}

static bool
distributed_scan_sample_next_tuple(TableScanDesc base, struct SampleScanState *state,
								   TupleTableSlot *slot)
{
	refuse(base->rs_rd, "sample");
	return false;
}

/* ---------------------------------------------------------------- index access */

/*
 * The planner opens an index to look up a column's extremes (get_actual_variable_range());
 * the index is empty, so that no row is ever asked for.
 */
static struct IndexFetchTableData *
distributed_index_fetch_begin(COMPAT_INDEX_FETCH_ARGUMENTS)
{
	IndexFetchTableData *fetch = palloc0(sizeof(IndexFetchTableData));

	refuse_subscription(relation, "update or delete rows of");
	fetch->rel = relation;
	return fetch;
}

static void
distributed_index_fetch_reset(struct IndexFetchTableData *fetch)
{
}

static void
distributed_index_fetch_end(struct IndexFetchTableData *fetch)
{
	pfree(fetch);
}

static bool
distributed_index_fetch_tuple(struct IndexFetchTableData *fetch, ItemPointer tid, Snapshot snapshot,
							  TupleTableSlot *slot, bool *call_again, bool *all_dead)
{
	*call_again = false;
	if (all_dead != NULL)
		*all_dead = false;
	return false;
}

/*
 * The index stays empty.  The number returned becomes the table's row count in
 * pg_class, which is right as it is.
 */
static double
distributed_index_build_range_scan(Relation table, Relation index, struct IndexInfo *info,
								   bool allow_sync, bool anyvisible, bool progress,
								   BlockNumber start_block, BlockNumber block_count,
								   IndexBuildCallback callback, void *callback_state,
								   TableScanDesc scan)
{
	if (scan != NULL)
		table_endscan(scan);
	if (!index->rd_index->indisvalid && !info->ii_Concurrent)
		index_validity_note_rebuilt(RelationGetRelid(index));
	return Max(0, table->rd_rel->reltuples);
}

static void
distributed_index_validate_scan(Relation table, Relation index, struct IndexInfo *info,
								Snapshot snapshot, struct ValidateIndexState *state)
{
}

static TransactionId
distributed_index_delete_tuples(Relation relation, TM_IndexDeleteOp *delete_state)
{
	elog(ERROR, "indexes of distributed table \"%s\" hold no rows",
		 RelationGetRelationName(relation));
	return InvalidTransactionId;
}

/* ---------------------------------------------------------------- single rows */

static bool
distributed_tuple_fetch_row_version(Relation relation, ItemPointer tid, Snapshot snapshot,
									TupleTableSlot *slot)
{
	if (!held_rows_fetch(relation, tid, slot))
		refuse(relation, "fetch single rows of");
	return true;
}

static bool
distributed_tuple_tid_valid(TableScanDesc scan, ItemPointer tid)
{
	refuse(scan->rs_rd, "fetch rows by ctid from");
	return false;
}

static void
distributed_tuple_get_latest_tid(TableScanDesc scan, ItemPointer tid)
{
	refuse(scan->rs_rd, "fetch rows by ctid from");
}

static bool
distributed_tuple_satisfies_snapshot(Relation relation, TupleTableSlot *slot, Snapshot snapshot)
{
	refuse(relation, "recheck rows of");
	return false;
}

/*
 * Where the row to be changed is.  NULL: this command has changed it already, as core is told by *failure; no other can have,
 * since it is locked on its worker.
 */
static const HeldPlace *
find_row_to_change(Relation relation, ItemPointer tid, const char *what, TM_FailureData *failure)
{
	CommandId changed_by;
	const HeldPlace *place = held_rows_place(relation, tid, &changed_by);

	if (place == NULL)
		refuse(relation, what);
	failure->ctid = *tid;
	failure->xmax = InvalidTransactionId;
	failure->cmax = changed_by;
	failure->traversed = false;
	if (changed_by == InvalidCommandId)
		return place;
	failure->xmax = GetCurrentTransactionId(); /* by which MERGE tells whose change it was */
	return NULL;
}

static TM_Result
distributed_tuple_delete(COMPAT_DELETE_ARGUMENTS)
{
	const HeldPlace *place = find_row_to_change(relation, tid, "delete single rows of", failure);

	if (place == NULL)
		return TM_SelfModified;
	row_change_delete(relation, place);
	held_rows_note_change(relation, tid, cid);
	pgstat_count_heap_delete(relation);
	return TM_Ok;
}

static TM_Result
distributed_tuple_update(COMPAT_UPDATE_ARGUMENTS)
{
	const HeldPlace *place = find_row_to_change(relation, tid, "update single rows of", failure);
	TupleTableSlot *old;

	*lock_mode = LockTupleNoKeyExclusive;
	*update_indexes = COMPAT_UPDATE_NO_INDEXES;
	if (place == NULL)
		return TM_SelfModified;
	old = MakeSingleTupleTableSlot(RelationGetDescr(relation), &TTSOpsVirtual);
	(void) held_rows_fetch(relation, tid, old);
	row_change_update(relation, place, old, slot);
	ExecDropSingleTupleTableSlot(old);
	held_rows_note_change(relation, tid, cid);
	slot->tts_tableOid = RelationGetRelid(relation);
	held_rows_add_new(relation, TRIGGER_TYPE_UPDATE, slot, &slot->tts_tid);
	compat_count_update(relation);
	return TM_Ok;
}

/* Triggers are shown the row as it was when the worker locked it. */
static TM_Result
distributed_tuple_lock(Relation relation, ItemPointer tid, Snapshot snapshot, TupleTableSlot *slot,
					   CommandId cid, LockTupleMode mode, LockWaitPolicy wait_policy, uint8 flags,
					   TM_FailureData *failure)
{
	if (find_row_to_change(relation, tid, "lock single rows of", failure) == NULL)
		return TM_SelfModified;
	(void) held_rows_fetch(relation, tid, slot);
	return TM_Ok;
}

/* ---------------------------------------------------------------- inserts */

/*
 * A relation of our access method gets rows before it was distributed when it is
 * made by CREATE TABLE AS: distribute it now, by its first hashable column.
 */
static void
distribute_new_table(Relation relation)
{
	if (relation->rd_rel->relkind != RELKIND_RELATION)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("materialized view \"%s\" cannot be distributed",
							   RelationGetRelationName(relation)),
						errhint("Use CREATE TABLE ... USING distributed AS SELECT.")));
	table_lifecycle_distribute(RelationGetRelid(relation), NULL, 0, "default",
							   METADATA_DEFAULT_STORAGE, NULL);
}

static void
distributed_tuple_insert(Relation relation, TupleTableSlot *slot, CommandId cid,
						 CompatInsertOptions options, struct BulkInsertStateData *bistate)
{
	if (table_am_suspended > 0 || IsParallelWorker())
		elog(ERROR, "unexpected row for distributed table \"%s\"",
			 RelationGetRelationName(relation));
	if (metadata_table(RelationGetRelid(relation)) == NULL)
		distribute_new_table(relation);
	/* a subscription's progress is part of the local commit record, so there must be one */
	if (IsLogicalWorker())
		(void) GetCurrentTransactionId();

	slot->tts_tableOid = RelationGetRelid(relation);
	remote_insert_row(relation, slot);
	held_rows_add_new(relation, TRIGGER_TYPE_INSERT, slot, &slot->tts_tid);
	pgstat_count_heap_insert(relation, 1);
}

static void
distributed_multi_insert(Relation relation, TupleTableSlot **slots, int count, CommandId cid,
						 CompatInsertOptions options, struct BulkInsertStateData *bistate)
{
	for (int i = 0; i < count; i++)
		distributed_tuple_insert(relation, slots[i], cid, options, bistate);
}

static void
distributed_tuple_insert_speculative(Relation relation, TupleTableSlot *slot, CommandId cid,
									 CompatInsertOptions options,
									 struct BulkInsertStateData *bistate, uint32 token)
{
	refuse(relation, "run INSERT ... ON CONFLICT on");
}

static void
distributed_tuple_complete_speculative(Relation relation, TupleTableSlot *slot, uint32 token,
									   bool succeeded)
{
	refuse(relation, "run INSERT ... ON CONFLICT on");
}

/* ---------------------------------------------------------------- storage */

/* Make the empty main fork that every shell has. */
static void
distributed_set_new_filelocator(Relation relation, const CompatFileLocator *locator,
								char persistence, TransactionId *freeze_xid, MultiXactId *min_multi)
{
	SMgrRelation storage;

	refuse_subscription(relation, "truncate");
	*freeze_xid = RecentXmin;
	*min_multi = GetOldestMultiXactId();
	storage = RelationCreateStorage(*locator, persistence, true);
	if (persistence == RELPERSISTENCE_UNLOGGED)
	{
		smgrcreate(storage, INIT_FORKNUM, false);
		log_smgrcreate(locator, INIT_FORKNUM);
		smgrimmedsync(storage, INIT_FORKNUM);
	}
	smgrclose(storage);
	if (table_am_emptied != NULL)
		table_am_emptied(RelationGetRelid(relation));
}

static void
distributed_nontransactional_truncate(Relation relation)
{
	refuse_subscription(relation, "truncate");
	RelationTruncate(relation, 0);
	if (table_am_emptied != NULL)
		table_am_emptied(RelationGetRelid(relation));
}

static void
distributed_copy_data(Relation relation, const CompatFileLocator *locator)
{
	SMgrRelation storage = RelationCreateStorage(*locator, relation->rd_rel->relpersistence, true);

	RelationDropStorage(relation);
	smgrclose(storage);
}

/* Rows of the shards as VACUUM, CLUSTER or ANALYZE has counted them, for the shell that is vacuumed after them. */
static double
count_vacuumed(Relation relation)
{
	const DistributedTable *table = metadata_table(RelationGetRelid(relation));
	RemoteRole caller;
	double rows;

	/* autovacuum, which freezes, asks nobody */
	if (table == NULL || bms_is_empty(metadata_table_workers(table)) ||
		compat_is_autovacuum_worker())
		return relation->rd_rel->reltuples; /* -1: not known */
	caller = remote_role_enter(remote_role_for_relation(relation));
	rows = shard_statistics_rows(relation, table);
	(void) remote_role_enter(caller);
	return rows;
}

/* VACUUM FULL and CLUSTER: nothing is stored. */
static void
distributed_copy_for_cluster(COMPAT_COPY_ARGUMENTS)
{
	*num_tuples = count_vacuumed(old_table);
	*tups_vacuumed = 0;
	*tups_recently_dead = 0;
}

static uint64
distributed_relation_size(Relation relation, ForkNumber fork)
{
	return fork == MAIN_FORKNUM || fork == InvalidForkNumber ? BLCKSZ : 0;
}

static bool
distributed_needs_toast_table(Relation relation)
{
	if (RelationGetRelid(relation) != table_am_converting)
		return false;
	return GetHeapamTableAmRoutine()->relation_needs_toast_table(relation);
}

static Oid
distributed_toast_am(Relation relation)
{
	return HEAP_TABLE_AM_OID;
}

/* ---------------------------------------------------------------- maintenance */

/*
 * VACUUM of the shell: no row of the coordinator's storage has a transaction id, so
 * relfrozenxid may advance as far as that of any table.  The workers' tables are
 * vacuumed by utility.c.
 */
static void
distributed_vacuum(Relation relation, CompatVacuumParams *params, BufferAccessStrategy strategy)
{
	bool frozen_updated;
	bool multi_updated;
	TimestampTz start = GetCurrentTimestamp();
	double rows = count_vacuumed(relation);

	compat_update_relstats(relation, relation->rd_rel->relpages, rows, 0,
						   relation->rd_rel->relhasindex,
						   GetOldestNonRemovableTransactionId(relation), GetOldestMultiXactId(),
						   &frozen_updated, &multi_updated, false);
	compat_report_vacuum(relation, Max(0, (PgStat_Counter) rows), 0, start);
}

static bool
distributed_analyze_next_block(TableScanDesc base, COMPAT_ANALYZE_BLOCK_ARGUMENTS)
{
	ShellScan *scan = (ShellScan *) base;
	MemoryContext old;

	if (scan->sampled || !compat_analyze_take_block())
		return false;
	scan->sampled = true;
	old = MemoryContextSwitchTo(scan->context);
	scan->sample = analyze_sample_begin(base->rs_rd);
	MemoryContextSwitchTo(old);
	return true;
}

static bool
distributed_analyze_next_tuple(COMPAT_ANALYZE_TUPLE_ARGUMENTS)
{
	ShellScan *scan = (ShellScan *) base;

	if (analyze_sample_next(scan->sample, slot))
	{
		*live_rows += 1;
		return true;
	}
	*live_rows += analyze_sample_unseen_rows(scan->sample);
	return false;
}

/*
 * Size for the planner: rows as ANALYZE left them, and the pages that so many rows would
 * fill.  Nothing is asked of the workers.
 */
static void
distributed_estimate_size(Relation relation, int32 *attr_widths, BlockNumber *pages, double *tuples,
						  double *allvisfrac)
{
	double rows = relation->rd_rel->reltuples;
	int32 width = get_rel_data_width(relation, attr_widths) + MAXALIGN(SizeofHeapTupleHeader);

	if (rows <= 0)
		rows = UNANALYSED_ROWS;
	*tuples = rows;
	*pages = (BlockNumber) Min(rows * (MAXALIGN(width) + sizeof(ItemIdData)) / BLCKSZ + 1,
							   (double) MaxBlockNumber);
	*allvisfrac = 0;
}

static const TableAmRoutine distributed_methods = {
	.type = T_TableAmRoutine,
	.slot_callbacks = distributed_slot_callbacks,

	.scan_begin = distributed_scan_begin,
	.scan_end = distributed_scan_end,
	.scan_rescan = distributed_scan_rescan,
	.scan_getnextslot = distributed_scan_getnextslot,
	.scan_sample_next_block = distributed_scan_sample_next_block,
	.scan_sample_next_tuple = distributed_scan_sample_next_tuple,

	/* Never scanned in parallel; a parallel index build sets these up and finds nothing. */
	.parallelscan_estimate = table_block_parallelscan_estimate,
	.parallelscan_initialize = table_block_parallelscan_initialize,
	.parallelscan_reinitialize = table_block_parallelscan_reinitialize,

	.index_fetch_begin = distributed_index_fetch_begin,
	.index_fetch_reset = distributed_index_fetch_reset,
	.index_fetch_end = distributed_index_fetch_end,
	.index_fetch_tuple = distributed_index_fetch_tuple,
	.index_build_range_scan = distributed_index_build_range_scan,
	.index_validate_scan = distributed_index_validate_scan,
	.index_delete_tuples = distributed_index_delete_tuples,

	.tuple_fetch_row_version = distributed_tuple_fetch_row_version,
	.tuple_tid_valid = distributed_tuple_tid_valid,
	.tuple_get_latest_tid = distributed_tuple_get_latest_tid,
	.tuple_satisfies_snapshot = distributed_tuple_satisfies_snapshot,
	.tuple_insert = distributed_tuple_insert,
	.tuple_insert_speculative = distributed_tuple_insert_speculative,
	.tuple_complete_speculative = distributed_tuple_complete_speculative,
	.multi_insert = distributed_multi_insert,
	.tuple_delete = distributed_tuple_delete,
	.tuple_update = distributed_tuple_update,
	.tuple_lock = distributed_tuple_lock,

	.compat_am_set_new_filelocator = distributed_set_new_filelocator,
	.relation_nontransactional_truncate = distributed_nontransactional_truncate,
	.relation_copy_data = distributed_copy_data,
	.relation_copy_for_cluster = distributed_copy_for_cluster,
	.relation_size = distributed_relation_size,
	.relation_needs_toast_table = distributed_needs_toast_table,
	.relation_toast_am = distributed_toast_am,

	.relation_vacuum = distributed_vacuum,
	.scan_analyze_next_block = distributed_analyze_next_block,
	.scan_analyze_next_tuple = distributed_analyze_next_tuple,
	.relation_estimate_size = distributed_estimate_size,
};

Datum
strata_distributed_handler(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(&distributed_methods);
}
