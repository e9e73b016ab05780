/*
 * compat/table_access.h
 *		Differences between major versions: what a table access method is asked, and what it asks of indexes and VACUUM.
 */
#ifndef STRATA_COMPAT_TABLE_ACCESS_H
#define STRATA_COMPAT_TABLE_ACCESS_H

#include "access/tableam.h"
#include "storage/block.h"

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

/* A scan of an index that nobody counts for EXPLAIN; 18 has such counts. */
#if PG_VERSION_NUM >= 180000
#define compat_index_beginscan(table, index, snapshot, keys, orders) \
	index_beginscan(table, index, snapshot, NULL, keys, orders)
#else
#define compat_index_beginscan index_beginscan
#endif

/* Index entries of a new row; one more argument since 16. */
#if PG_VERSION_NUM >= 160000
#define compat_insert_index_entries(target, slot, estate) \
	ExecInsertIndexTuples(target, slot, estate, false, false, NULL, NIL, false)
#else
#define compat_insert_index_entries(target, slot, estate) \
	ExecInsertIndexTuples(target, slot, estate, false, false, NULL, NIL)
#endif

/* What an index AM is told for a bulk deletion: the table, too, since 16. */
#if PG_VERSION_NUM >= 160000
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
#define compat_report_vacuum(relation, shared, live, dead, start) \
	pgstat_report_vacuum(relation, shared, live, dead, start)
#else
#define compat_update_relstats vac_update_relstats
#define compat_vacuum_delay_point(is_analyze) vacuum_delay_point()
#define compat_report_vacuum(relation, shared, live, dead, start) \
	((void) (start), pgstat_report_vacuum(relation, shared, live, dead))
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
