/*
 * compat/table_access.h
 *		Differences between major versions: what a table access method is asked, and what it asks of indexes and VACUUM.
 */
#ifndef STRATA_COMPAT_TABLE_ACCESS_H
#define STRATA_COMPAT_TABLE_ACCESS_H

#include "access/tableam.h"
#include "storage/block.h"
#include "storage/lock.h"

/* TableAmRoutine.tuple_update tells which indexes need the new version: an enum since 16. */
#if PG_VERSION_NUM >= 160000
typedef TU_UpdateIndexes CompatUpdateIndexes;
#else
typedef bool CompatUpdateIndexes;
#endif

/* TableAmRoutine.tuple_update: all indexes need an entry for the new version, or none does. */
#if PG_VERSION_NUM >= 160000
#define COMPAT_UPDATE_ALL_INDEXES TU_All
#define COMPAT_UPDATE_NO_INDEXES TU_None
#define compat_count_update(relation) pgstat_count_heap_update(relation, false, false)
#else
#define COMPAT_UPDATE_ALL_INDEXES true
#define COMPAT_UPDATE_NO_INDEXES false
#define compat_count_update(relation) pgstat_count_heap_update(relation, false)
#endif

/*
 * ANALYZE names the sampled blocks to the access method one by one up to 16,
 * and through a read stream since 17.  compat_analyze_take_block() takes the
 * next block without reading it, compat_analyze_next_block_number() its number;
 * false when there is none.
 */
#if PG_VERSION_NUM >= 170000
#include "storage/read_stream.h"

#define COMPAT_ANALYZE_BLOCK_ARGUMENTS ReadStream *stream
#define compat_analyze_take_block() analyze_take_stream_block(stream, NULL)
#define compat_analyze_next_block_number(block) analyze_take_stream_block(stream, block)

static inline bool
analyze_take_stream_block(ReadStream *stream, BlockNumber *block)
{
	BufferAccessStrategy strategy;
	BlockNumber next = read_stream_next_block(stream, &strategy);

	if (block != NULL)
		*block = next;
	return next != InvalidBlockNumber;
}
#else
#define COMPAT_ANALYZE_BLOCK_ARGUMENTS BlockNumber blockno, BufferAccessStrategy bstrategy
#define compat_analyze_take_block() true
#define compat_analyze_next_block_number(block) (*(block) = blockno, true)
#endif

/* Slots tell whether their row is of this transaction, since 17. */
#if PG_VERSION_NUM >= 170000
#define compat_slot_set_is_current(ops, function) ((ops).is_current_xact_tuple = (function))
#else
#define compat_slot_set_is_current(ops, function) ((void) 0)
#endif

/* Bitmap scans: the executor walked over blocks and prefetched; since 18 the access method does both. */
#if PG_VERSION_NUM >= 180000
#define COMPAT_BITMAP_BY_TABLE_AM 1
#define compat_stop_bitmap_prefetch(scan) ((void) (scan))
#else
#define COMPAT_BITMAP_BY_TABLE_AM 0
#define compat_stop_bitmap_prefetch(scan) ((scan)->prefetch_maximum = 0)
#endif

/* Which table a parallel scan reads: its file since 18. */
#if PG_VERSION_NUM >= 180000
#define compat_parallel_scan_set_relation(scan, relation) \
	((scan)->phs_locator = (relation)->rd_locator)
#else
#define compat_parallel_scan_set_relation(scan, relation) \
	((scan)->phs_relid = RelationGetRelid(relation))
#endif

/* How old a snapshot is, for old_snapshot_threshold, which 17 removed and whose fields 18 did. */
#if PG_VERSION_NUM >= 180000
#define compat_snapshot_copy_age(to, from) ((void) 0)
#else
#define compat_snapshot_copy_age(to, from) \
	((to)->lsn = (from)->lsn, (to)->whenTaken = (from)->whenTaken)
#endif

/* Locks that are not waited for: log_lock_failures, since 18, logs those that NOWAIT did not get. */
#if PG_VERSION_NUM >= 180000
#define compat_conditional_lock_tuple(relation, tid, mode, nowait) \
	ConditionalLockTuple(relation, tid, mode, (nowait) && log_lock_failures)
#define compat_conditional_xact_wait(xid, nowait) \
	ConditionalXactLockTableWait(xid, (nowait) && log_lock_failures)
#else
#define compat_conditional_lock_tuple(relation, tid, mode, nowait) \
	ConditionalLockTuple(relation, tid, mode)
#define compat_conditional_xact_wait(xid, nowait) ConditionalXactLockTableWait(xid)
#endif

/* A scan of an index that nobody counts for EXPLAIN, as can be since 18, and without hints, which are of 19. */
#if PG_VERSION_NUM >= 190000
#define compat_index_beginscan(table, index, snapshot, keys, orders) \
	index_beginscan(table, index, snapshot, NULL, keys, orders, SO_NONE)
#elif PG_VERSION_NUM >= 180000
#define compat_index_beginscan(table, index, snapshot, keys, orders) \
	index_beginscan(table, index, snapshot, NULL, keys, orders)
#else
#define compat_index_beginscan index_beginscan
#endif

/* A scan of all rows; 19 takes hints. */
#if PG_VERSION_NUM >= 190000
#define compat_table_beginscan(relation, snapshot) \
	table_beginscan(relation, snapshot, 0, NULL, SO_NONE)
#else
#define compat_table_beginscan(relation, snapshot) table_beginscan(relation, snapshot, 0, NULL)
#endif

/* Index entries of a new row; one more argument since 16, flags in place of most since 19. */
#if PG_VERSION_NUM >= 190000
#define compat_insert_index_entries(target, slot, estate) \
	ExecInsertIndexTuples(target, estate, 0, slot, NIL, NULL)
#elif PG_VERSION_NUM >= 160000
#define compat_insert_index_entries(target, slot, estate) \
	ExecInsertIndexTuples(target, slot, estate, false, false, NULL, NIL, false)
#else
#define compat_insert_index_entries(target, slot, estate) \
	ExecInsertIndexTuples(target, slot, estate, false, false, NULL, NIL)
#endif

/*
 * What TableAmRoutine's callbacks are called with.  Since 19: options of changes are flags, which tell of a DELETE
 * that moves a row to another partition; ANALYZE leaves it to the access method which rows are dead; VACUUM's
 * parameters are constant; and a copy may be made beside writers, by REPACK (CONCURRENTLY), with a snapshot.
 */
#if PG_VERSION_NUM >= 190000
typedef uint32 CompatInsertOptions;
typedef const VacuumParams CompatVacuumParams;
#define COMPAT_INDEX_FETCH_ARGUMENTS Relation relation, uint32 flags
#define COMPAT_DELETE_ARGUMENTS                                                           \
	Relation relation, ItemPointer tid, CommandId cid, uint32 options, Snapshot snapshot, \
		Snapshot crosscheck, bool wait, TM_FailureData *failure
#define compat_delete_moves() ((options & TABLE_DELETE_CHANGING_PARTITION) != 0)
#define COMPAT_UPDATE_ARGUMENTS                                                              \
	Relation relation, ItemPointer tid, TupleTableSlot *slot, CommandId cid, uint32 options, \
		Snapshot snapshot, Snapshot crosscheck, bool wait, TM_FailureData *failure,          \
		LockTupleMode *lock_mode, TU_UpdateIndexes *update_indexes
#define COMPAT_COPY_ARGUMENTS                                                    \
	Relation old_table, Relation new_table, Relation old_index, bool use_sort,   \
		TransactionId oldest_xmin, Snapshot snapshot, TransactionId *xid_cutoff, \
		MultiXactId *multi_cutoff, double *num_tuples, double *tups_vacuumed,    \
		double *tups_recently_dead
#define compat_copies_beside_writers() (snapshot != NULL)
#define COMPAT_ANALYZE_TUPLE_ARGUMENTS \
	TableScanDesc base, double *live_rows, double *dead_rows, TupleTableSlot *slot
#else
typedef int CompatInsertOptions;
typedef struct VacuumParams CompatVacuumParams;
#define COMPAT_INDEX_FETCH_ARGUMENTS Relation relation
#define COMPAT_DELETE_ARGUMENTS                                                                \
	Relation relation, ItemPointer tid, CommandId cid, Snapshot snapshot, Snapshot crosscheck, \
		bool wait, TM_FailureData *failure, bool changing_part
#define compat_delete_moves() changing_part
#define COMPAT_UPDATE_ARGUMENTS                                                                 \
	Relation relation, ItemPointer tid, TupleTableSlot *slot, CommandId cid, Snapshot snapshot, \
		Snapshot crosscheck, bool wait, TM_FailureData *failure, LockTupleMode *lock_mode,      \
		CompatUpdateIndexes *update_indexes
#define COMPAT_COPY_ARGUMENTS                                                            \
	Relation old_table, Relation new_table, Relation old_index, bool use_sort,           \
		TransactionId oldest_xmin, TransactionId *xid_cutoff, MultiXactId *multi_cutoff, \
		double *num_tuples, double *tups_vacuumed, double *tups_recently_dead
#define compat_copies_beside_writers() false
#define COMPAT_ANALYZE_TUPLE_ARGUMENTS                                                   \
	TableScanDesc base, TransactionId oldest_xmin, double *live_rows, double *dead_rows, \
		TupleTableSlot *slot
#endif

/* Deleting a row whoever sees it, and one that goes to another partition; 19 has flags for what it is for. */
#if PG_VERSION_NUM >= 190000
#define compat_heap_delete(relation, tid, cid, wait, failure) \
	heap_delete(relation, tid, cid, 0, InvalidSnapshot, wait, failure)
#define compat_table_tuple_move(relation, tid, cid, snapshot, failure)                \
	table_tuple_delete(relation, tid, cid, TABLE_DELETE_CHANGING_PARTITION, snapshot, \
					   InvalidSnapshot, true, failure)
#else
#define compat_heap_delete(relation, tid, cid, wait, failure) \
	heap_delete(relation, tid, cid, InvalidSnapshot, wait, failure, false)
#define compat_table_tuple_move(relation, tid, cid, snapshot, failure) \
	table_tuple_delete(relation, tid, cid, snapshot, InvalidSnapshot, true, failure, true)
#endif

/* What an index AM is told for a bulk deletion: the table, too, since 16, and since 19 whether it is autovacuum's. */
#if PG_VERSION_NUM >= 190000
#define compat_index_vacuum_set_table(info, relation) \
	((info)->heaprel = (relation), (info)->is_autovacuum = compat_is_autovacuum_worker())
#elif PG_VERSION_NUM >= 160000
#define compat_index_vacuum_set_table(info, relation) ((info)->heaprel = (relation))
#else
#define compat_index_vacuum_set_table(info, relation) ((void) 0)
#endif

/* The leftmost leaf page of a btree, locked to read, or InvalidBuffer: needs access/nbtree.h. */
#if PG_VERSION_NUM >= 170000
#define compat_bt_leftmost_leaf(index) _bt_get_endpoint(index, 0, false)
#else
#define compat_bt_leftmost_leaf(index) _bt_get_endpoint(index, 0, false, NULL)
#endif

/* VACUUM's report to pg_class, which counts all-frozen pages since 18: none of ours has a visibility map. */
#if PG_VERSION_NUM >= 180000
#define compat_update_relstats(relation, pages, rows, visible, indexed, xid, multi, xid_set, \
							   multi_set, outer)                                             \
	vac_update_relstats(relation, pages, rows, visible, 0, indexed, xid, multi, xid_set,     \
						multi_set, outer)
#define compat_vacuum_delay_point(is_analyze) vacuum_delay_point(is_analyze)
#else
#define compat_update_relstats vac_update_relstats
#define compat_vacuum_delay_point(is_analyze) vacuum_delay_point()
#endif

/* VACUUM's report to the statistics: since 18 when it began; since 19 the table is handed over open. */
#if PG_VERSION_NUM >= 190000
#define compat_report_vacuum pgstat_report_vacuum
#elif PG_VERSION_NUM >= 180000
#define compat_report_vacuum(relation, live, dead, start)                                         \
	pgstat_report_vacuum(RelationGetRelid(relation), (relation)->rd_rel->relisshared, live, dead, \
						 start)
#else
#define compat_report_vacuum(relation, live, dead, start)             \
	((void) (start), pgstat_report_vacuum(RelationGetRelid(relation), \
										  (relation)->rd_rel->relisshared, live, dead))
#endif

/* May nobody see what this transaction has deleted?  19 asks whether the horizon may be computed anew for it. */
#if PG_VERSION_NUM >= 190000
#define compat_is_removable_xid(horizon, xid) GlobalVisTestIsRemovableXid(horizon, xid, true)
#else
#define compat_is_removable_xid GlobalVisTestIsRemovableXid
#endif

/* A slot for rows that nobody has checked for NOT NULL; 19 has flags for others. */
#if PG_VERSION_NUM >= 190000
#define compat_make_slot(desc, operations) MakeTupleTableSlot(desc, operations, 0)
#else
#define compat_make_slot MakeTupleTableSlot
#endif

/* All columns of a descriptor made by hand are set: 19 computes what it needs to read rows. */
#if PG_VERSION_NUM >= 190000
#define compat_finish_descriptor(desc) TupleDescFinalize(desc)
#else
#define compat_finish_descriptor(desc) ((void) (desc))
#endif

/* The next datum of a sort, forward; one more argument since 16. */
#if PG_VERSION_NUM >= 160000
#define compat_tuplesort_getdatum(sort, value, isnull) \
	tuplesort_getdatum(sort, true, false, value, isnull, NULL)
#else
#define compat_tuplesort_getdatum(sort, value, isnull) \
	tuplesort_getdatum(sort, true, value, isnull, NULL)
#endif

#endif
