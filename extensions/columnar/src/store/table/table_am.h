/*
 * table_am.h
 *		The access method `columnar`: callbacks by concern.
 *
 *		table_am.c			 the routine, INSERT, UPDATE, DELETE, locks, single rows
 *		table_scan.c		 scans: sequential, tid ranges, bitmaps, samples, ANALYZE
 *		index_build.c		 CREATE INDEX
 *		relation_storage.c	 files: creation, truncation, moves, sizes
 *		relation_rewrite.c	 CLUSTER and VACUUM FULL
 *		relation_vacuum.c	 VACUUM
 */
#ifndef COLUMNAR_TABLE_AM_H
#define COLUMNAR_TABLE_AM_H

#include "compat.h"

#include "access/tableam.h"

extern const TableAmRoutine *columnar_routine(void);

/* Is the relation a columnar table? */
static inline bool
columnar_is_table(Relation relation)
{
	return relation->rd_tableam == columnar_routine();
}

/* table_scan.c */
extern TableScanDesc
columnar_scan_begin(Relation relation, Snapshot snapshot, int nkeys, struct ScanKeyData *key,
					ParallelTableScanDesc parallel, uint32 flags);
extern void columnar_scan_end(TableScanDesc scan);
extern void columnar_scan_rescan(TableScanDesc scan, struct ScanKeyData *key, bool set_params,
								 bool allow_strat, bool allow_sync, bool allow_pagemode);
extern bool
columnar_scan_getnextslot(TableScanDesc scan, ScanDirection direction, TupleTableSlot *slot);
extern void columnar_scan_set_tidrange(TableScanDesc scan, ItemPointer min, ItemPointer max);
extern bool columnar_scan_getnextslot_tidrange(TableScanDesc scan, ScanDirection direction,
											   TupleTableSlot *slot);
extern Size columnar_parallelscan_estimate(Relation relation);
extern Size columnar_parallelscan_initialize(Relation relation, ParallelTableScanDesc parallel);
extern void columnar_parallelscan_reinitialize(Relation relation, ParallelTableScanDesc parallel);
#if COMPAT_BITMAP_BY_TABLE_AM
extern bool columnar_scan_bitmap_next_tuple(TableScanDesc scan, TupleTableSlot *slot, bool *recheck,
											uint64 *lossy_pages, uint64 *exact_pages);
#else
extern bool columnar_scan_bitmap_next_block(TableScanDesc scan, struct TBMIterateResult *tbmres);
extern bool columnar_scan_bitmap_next_tuple(TableScanDesc scan, struct TBMIterateResult *tbmres,
											TupleTableSlot *slot);
#endif
extern bool columnar_scan_sample_next_block(TableScanDesc scan, struct SampleScanState *scanstate);
extern bool columnar_scan_sample_next_tuple(TableScanDesc scan, struct SampleScanState *scanstate,
											TupleTableSlot *slot);
extern bool columnar_scan_analyze_next_block(TableScanDesc scan, COMPAT_ANALYZE_BLOCK_ARGUMENTS);
extern bool columnar_scan_analyze_next_tuple(COMPAT_ANALYZE_TUPLE_ARGUMENTS);

struct RowScanShared;
/* What the processes of a parallel scan share; NULL if it is none. */
extern struct RowScanShared *columnar_scan_shared(TableScanDesc scan);

/* index_build.c */
extern double
columnar_index_build_range_scan(Relation table, Relation index, struct IndexInfo *index_info,
								bool allow_sync, bool anyvisible, bool progress,
								BlockNumber start_block, BlockNumber nblocks,
								IndexBuildCallback callback, void *callback_state,
								TableScanDesc scan);
extern void
columnar_index_validate_scan(Relation table, Relation index, struct IndexInfo *index_info,
							 Snapshot snapshot, struct ValidateIndexState *state);

/* relation_storage.c */
extern void
columnar_set_new_filelocator(Relation relation, const CompatFileLocator *locator, char persistence,
							 TransactionId *freeze_xid, MultiXactId *min_multi);
extern void columnar_nontransactional_truncate(Relation relation);
extern void columnar_copy_data(Relation relation, const CompatFileLocator *locator);
extern void columnar_estimate_size(Relation relation, int32 *attr_widths, BlockNumber *pages,
								   double *tuples, double *allvisfrac);

/* relation_rewrite.c */
extern void columnar_copy_for_cluster(COMPAT_COPY_ARGUMENTS);

/* relation_vacuum.c */
extern void
columnar_vacuum(Relation relation, CompatVacuumParams *params, BufferAccessStrategy strategy);

#endif
