/*
 * table_scan.c
 *		The access method's own scans: sequential, tid ranges, bitmaps, samples, ANALYZE.
 *
 * These are what everything uses that does not come from the planner's custom
 * scan: ALTER TABLE, COPY TO, foreign key checks, queries with system columns.
 * They read all columns; row_scan.c does the work.
 *
 * A logical block is 291 row numbers (TID_ROWS_PER_BLOCK), the blocks that tids
 * name; tid ranges, bitmaps and samples are in terms of these, while ANALYZE is told
 * physical blocks and takes the share of the rows that such a block stands for.
 */
#include "store/table/table_am.h"

#include "access/parallel.h"
#include "access/relscan.h"
#include "access/tsmapi.h"
#include "access/xact.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/tidbitmap.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "store/rows/columnar_slot.h"
#include "store/rows/row_fetch.h"
#include "store/rows/row_range.h"
#include "store/rows/row_scan.h"
#include "store/pages/space.h"
#include "store/rows/write_buffer.h"

/* The datums of returned rows: the memory is reset when it passed this. */
#define SCAN_VALUES_KEPT (256 * 1024)

/* ANALYZE: rows to look at per physical block, and over the whole table, at least. */
#define ANALYZE_ROWS_PER_BLOCK 100
#define ANALYZE_ROWS_TOTAL 300000

typedef struct ColumnarScan
{
	TableScanDescData base;
	MemoryContext context; /* as long as the scan */
	MemoryContext values;  /* datums of the row returned */
	Snapshot snapshot;	   /* to read with; registered by us if owns_snapshot */
	bool owns_snapshot;

	/* sequential and tid ranges; begun at the first row */
	RowScan *scan;
	RowBatch *batch;
	int32 position; /* in the batch's selection */
	RowScanShared *shared;
	RowRangePruner range; /* of row numbers: of tid ranges, else of all */
	bool ended;

	/* bitmaps and samples */
	RowFetch *fetch;
	uint64 block_first; /* row number of the logical block's first row */
	int noffsets;
	int next_offset;
	OffsetNumber offsets[TID_ROWS_PER_BLOCK];
	BlockNumber nblocks; /* logical blocks of the table */
	BlockNumber next_block;

	/* ANALYZE */
	uint64 total_rows;
	uint64 rows_before; /* rows in the batches before the current one */
	uint64 slice_end;	/* rows of the table up to the end of this block's slice */
	double keep;		/* share of the rows to return */
	uint32 physical_blocks;
	uint64 taken_blocks;
	pg_prng_state random;
} ColumnarScan;

/* What the processes of a parallel scan share; begins as every ParallelTableScanDesc. */
typedef struct ColumnarParallelScan
{
	ParallelTableScanDescData base;
	RowScanShared shared;
} ColumnarParallelScan;

/* ---- begin and end ------------------------------------------------------------------------------ */

TableScanDesc
columnar_scan_begin(Relation relation, Snapshot snapshot, int nkeys, struct ScanKeyData *key,
					ParallelTableScanDesc parallel, uint32 flags)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "columnar table scan",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	ColumnarScan *scan = palloc0(sizeof(ColumnarScan));

	if (nkeys > 0)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("columnar tables cannot be scanned with scan keys"),
						errdetail("The table is \"%s\".", RelationGetRelationName(relation))));

	RelationIncrementReferenceCount(relation);
	scan->base.rs_rd = relation;
	scan->base.rs_snapshot = snapshot;
	scan->base.rs_flags = flags;
	scan->base.rs_parallel = parallel;
	scan->context = context;
	scan->values = AllocSetContextCreate(context, "row", ALLOCSET_DEFAULT_SIZES);
	scan->range.last = PG_UINT64_MAX;
	if (parallel != NULL)
		scan->shared = &((ColumnarParallelScan *) parallel)->shared;

	/* store what this transaction wrote now: a parallel plan must not write later */
	if (!IsParallelWorker())
		write_buffer_flush(relation);

	/* ANALYZE gives no snapshot */
	if (snapshot == NULL)
	{
		snapshot = RegisterSnapshot(GetTransactionSnapshot());
		scan->owns_snapshot = true;
	}
	scan->snapshot = snapshot;
	MemoryContextSwitchTo(caller);
	if (flags & SO_TYPE_SEQSCAN)
		pgstat_count_heap_scan(relation);
	return &scan->base;
}

/* Forget the position, but not the range. */
static void
reset_scan(ColumnarScan *scan)
{
	if (scan->scan != NULL)
		row_scan_end(scan->scan);
	scan->scan = NULL;
	scan->batch = NULL;
	scan->ended = false;
	scan->next_block = 0;
	scan->noffsets = 0;
	scan->next_offset = 0;
	MemoryContextReset(scan->values);
}

void
columnar_scan_end(TableScanDesc base)
{
	ColumnarScan *scan = (ColumnarScan *) base;

	reset_scan(scan);
	if (scan->fetch != NULL)
		row_fetch_end(scan->fetch);
	if (scan->owns_snapshot)
		UnregisterSnapshot(scan->snapshot);
	if (base->rs_flags & SO_TEMP_SNAPSHOT)
		UnregisterSnapshot(base->rs_snapshot);
	RelationDecrementReferenceCount(base->rs_rd);
	MemoryContextDelete(scan->context);
}

void
columnar_scan_rescan(TableScanDesc base, struct ScanKeyData *key, bool set_params, bool allow_strat,
					 bool allow_sync, bool allow_pagemode)
{
	reset_scan((ColumnarScan *) base);
}

Size
columnar_parallelscan_estimate(Relation relation)
{
	return sizeof(ColumnarParallelScan);
}

Size
columnar_parallelscan_initialize(Relation relation, ParallelTableScanDesc parallel)
{
	ColumnarParallelScan *scan = (ColumnarParallelScan *) parallel;

	/* index builds begin parallel mode before they come here, but no worker runs yet */
	write_buffer_flush(relation);
	compat_parallel_scan_set_relation(&scan->base, relation);
	scan->base.phs_syncscan = false;
	pg_atomic_init_u64(&scan->shared.next_group, 0);
	return sizeof(ColumnarParallelScan);
}

void
columnar_parallelscan_reinitialize(Relation relation, ParallelTableScanDesc parallel)
{
	pg_atomic_write_u64(&((ColumnarParallelScan *) parallel)->shared.next_group, 0);
}

struct RowScanShared *
columnar_scan_shared(TableScanDesc scan)
{
	return ((ColumnarScan *) scan)->shared;
}

/* ---- sequential --------------------------------------------------------------------------------- */

/*
 * The row scan, begun at the first row, when the slot tells the columns: while ALTER
 * TABLE rewrites the table these are the old ones, and the relation's are not.
 */
static RowScan *
use_row_scan(ColumnarScan *scan, TupleTableSlot *slot)
{
	if (scan->scan == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(scan->context);

		TupleDesc descriptor = slot ? slot->tts_tupleDescriptor : NULL;

		if (descriptor != NULL && (descriptor == RelationGetDescr(scan->base.rs_rd) ||
								   equalTupleDescs(descriptor, RelationGetDescr(scan->base.rs_rd))))
			descriptor = NULL;
		scan->scan = row_scan_begin(scan->base.rs_rd, descriptor, scan->snapshot, NULL,
									&scan->range.base, scan->shared);
		MemoryContextSwitchTo(caller);
	}
	return scan->scan;
}

/* Step to the next row in either direction; false at the end. */
static bool
step(ColumnarScan *scan, ScanDirection direction, TupleTableSlot *slot)
{
	bool backward = ScanDirectionIsBackward(direction);

	for (;;)
	{
		if (scan->batch != NULL)
		{
			scan->position += backward ? -1 : 1;
			if (scan->position >= 0 && scan->position < (int32) scan->batch->nselected)
				return true;
		}
		scan->batch = row_scan_next(use_row_scan(scan, slot), direction);
		if (scan->batch == NULL)
			return false;
		scan->position = backward ? (int32) scan->batch->nselected : -1;
	}
}

static void
store_row(ColumnarScan *scan, TupleTableSlot *slot)
{
	uint32 row = scan->batch->selection[scan->position];
	MemoryContext caller;

	if (MemoryContextMemAllocated(scan->values, false) > SCAN_VALUES_KEPT)
		MemoryContextReset(scan->values);
	caller = MemoryContextSwitchTo(scan->values);
	row_batch_store(scan->batch, row, NULL, slot);
	MemoryContextSwitchTo(caller);
	if (slot->tts_ops == &columnar_slot_ops)
		columnar_slot_set_xmin(slot, row_scan_xmin(scan->scan));
}

bool
columnar_scan_getnextslot(TableScanDesc base, ScanDirection direction, TupleTableSlot *slot)
{
	ColumnarScan *scan = (ColumnarScan *) base;

	if (!step(scan, direction, slot))
	{
		ExecClearTuple(slot);
		return false;
	}
	pgstat_count_heap_getnext(base->rs_rd);
	store_row(scan, slot);
	return true;
}

void
columnar_scan_set_tidrange(TableScanDesc base, ItemPointer min, ItemPointer max)
{
	ColumnarScan *scan = (ColumnarScan *) base;

	/* offsets beyond a block's rows are legal in a range: no row has them */
	scan->range.first = (uint64) ItemPointerGetBlockNumberNoCheck(min) * TID_ROWS_PER_BLOCK +
						Min(Max(ItemPointerGetOffsetNumberNoCheck(min), 1) - 1, TID_ROWS_PER_BLOCK);
	scan->range.last = (uint64) ItemPointerGetBlockNumberNoCheck(max) * TID_ROWS_PER_BLOCK;
	if (ItemPointerGetOffsetNumberNoCheck(max) == 0)
	{
		if (scan->range.last == 0)
			scan->range.first = 1; /* nothing: no row is before the first */
		else
			scan->range.last -= 1;
	}
	else
		scan->range.last += Min(ItemPointerGetOffsetNumberNoCheck(max), TID_ROWS_PER_BLOCK) - 1;
	scan->range.base.keep_group = row_range_keeps_group;
	scan->range.base.keep_block = row_range_keeps_block;
	reset_scan(scan);
}

bool
columnar_scan_getnextslot_tidrange(TableScanDesc base, ScanDirection direction,
								   TupleTableSlot *slot)
{
	ColumnarScan *scan = (ColumnarScan *) base;

	while (step(scan, direction, slot))
	{
		uint64 row = row_batch_row_number(scan->batch, scan->batch->selection[scan->position]);

		if (row < scan->range.first || row > scan->range.last)
			continue;
		pgstat_count_heap_getnext(base->rs_rd);
		store_row(scan, slot);
		return true;
	}
	ExecClearTuple(slot);
	return false;
}

/* ---- logical blocks: bitmaps and samples -------------------------------------------------------- */

static RowFetch *
use_row_fetch(ColumnarScan *scan)
{
	if (scan->fetch == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(scan->context);
		SpaceState space;

		scan->fetch = row_fetch_begin(scan->base.rs_rd);
		space_read(scan->base.rs_rd, &space);
		scan->nblocks = (BlockNumber) ((space.next_row + TID_ROWS_PER_BLOCK - 1) /
									   TID_ROWS_PER_BLOCK);
		MemoryContextSwitchTo(caller);
	}
	return scan->fetch;
}

/* The rows of a block that a bitmap names; noffsets < 0: all, of a lossy page that the executor rechecks. */
static void
begin_bitmap_block(ColumnarScan *scan, BlockNumber block, const OffsetNumber *offsets, int noffsets)
{
	use_row_fetch(scan);
	scan->block_first = (uint64) block * TID_ROWS_PER_BLOCK;
	scan->next_offset = 0;
	if (block >= scan->nblocks)
		noffsets = 0;
	if (noffsets >= 0)
	{
		scan->noffsets = Min(noffsets, TID_ROWS_PER_BLOCK);
		memcpy(scan->offsets, offsets, sizeof(OffsetNumber) * scan->noffsets);
		return;
	}
	scan->noffsets = TID_ROWS_PER_BLOCK;
	for (int i = 0; i < scan->noffsets; i++)
		scan->offsets[i] = (OffsetNumber) (i + 1);
}

/* The next visible row of the block; false after the last. */
static bool
fetch_of_bitmap_block(ColumnarScan *scan, TupleTableSlot *slot)
{
	while (scan->next_offset < scan->noffsets)
	{
		uint64 row = scan->block_first + scan->offsets[scan->next_offset++] - 1;

		if (row_fetch_row(scan->fetch, row, scan->snapshot, NULL, slot))
		{
			pgstat_count_heap_fetch(scan->base.rs_rd);
			return true;
		}
	}
	ExecClearTuple(slot);
	return false;
}

#if COMPAT_BITMAP_BY_TABLE_AM
bool
columnar_scan_bitmap_next_tuple(TableScanDesc base, TupleTableSlot *slot, bool *recheck,
								uint64 *lossy_pages, uint64 *exact_pages)
{
	ColumnarScan *scan = (ColumnarScan *) base;
	TBMIterateResult page;

	while (!fetch_of_bitmap_block(scan, slot))
	{
		OffsetNumber offsets[TBM_MAX_TUPLES_PER_PAGE];
		int noffsets = -1;

		CHECK_FOR_INTERRUPTS();
		if (!tbm_iterate(&base->st.rs_tbmiterator, &page))
			return false;
		if (!page.lossy)
			noffsets = tbm_extract_page_tuple(&page, offsets, lengthof(offsets));
		*(page.lossy ? lossy_pages : exact_pages) += 1;
		*recheck = page.recheck;
		begin_bitmap_block(scan, page.blockno, offsets, noffsets);
	}
	return true;
}
#else
bool
columnar_scan_bitmap_next_block(TableScanDesc base, struct TBMIterateResult *tbmres)
{
	ColumnarScan *scan = (ColumnarScan *) base;

	begin_bitmap_block(scan, tbmres->blockno, tbmres->offsets, tbmres->ntuples);
	return scan->noffsets > 0;
}

bool
columnar_scan_bitmap_next_tuple(TableScanDesc base, struct TBMIterateResult *tbmres,
								TupleTableSlot *slot)
{
	return fetch_of_bitmap_block((ColumnarScan *) base, slot);
}
#endif

bool
columnar_scan_sample_next_block(TableScanDesc base, struct SampleScanState *scanstate)
{
	ColumnarScan *scan = (ColumnarScan *) base;
	TsmRoutine *method = scanstate->tsmroutine;
	BlockNumber block;

	use_row_fetch(scan);
	if (method->NextSampleBlock)
		block = method->NextSampleBlock(scanstate, scan->nblocks);
	else
		block = scan->next_block < scan->nblocks ? scan->next_block++ : InvalidBlockNumber;
	if (!BlockNumberIsValid(block) || block >= scan->nblocks)
		return false;
	CHECK_FOR_INTERRUPTS();
	scan->next_block = block + 1;
	scan->block_first = (uint64) block * TID_ROWS_PER_BLOCK;
	return true;
}

bool
columnar_scan_sample_next_tuple(TableScanDesc base, struct SampleScanState *scanstate,
								TupleTableSlot *slot)
{
	ColumnarScan *scan = (ColumnarScan *) base;
	TsmRoutine *method = scanstate->tsmroutine;

	for (;;)
	{
		OffsetNumber offset = method->NextSampleTuple(
			scanstate, (BlockNumber) (scan->block_first / TID_ROWS_PER_BLOCK), TID_ROWS_PER_BLOCK);

		if (!OffsetNumberIsValid(offset))
			break;
		if (row_fetch_row(scan->fetch, scan->block_first + offset - 1, scan->snapshot, NULL, slot))
		{
			pgstat_count_heap_getnext(base->rs_rd);
			return true;
		}
	}
	ExecClearTuple(slot);
	return false;
}

/* ---- ANALYZE ------------------------------------------------------------------------------------ */

/*
 * Core samples the physical blocks 0 .. n - 1 in ascending order.  Block b stands
 * for the rows [R b / n, R (b + 1) / n) of the R that the snapshot sees.  Of these a
 * uniform share is returned (a physical block may stand for 100 000 rows), and all
 * are counted, so that core's estimate of the table's rows is right.
 */
bool
columnar_scan_analyze_next_block(TableScanDesc base, COMPAT_ANALYZE_BLOCK_ARGUMENTS)
{
	ColumnarScan *scan = (ColumnarScan *) base;
	BlockNumber block;

	if (!compat_analyze_next_block_number(&block))
		return false;
	if (scan->taken_blocks == 0)
	{
		scan->total_rows = row_scan_count(base->rs_rd, scan->snapshot);
		scan->physical_blocks = Max(RelationGetNumberOfBlocks(base->rs_rd), 1);
		scan->keep = Max((double) ANALYZE_ROWS_PER_BLOCK * scan->physical_blocks,
						 (double) ANALYZE_ROWS_TOTAL) /
					 Max((double) scan->total_rows, 1.0);
		pg_prng_seed(&scan->random, scan->total_rows);
	}
	scan->taken_blocks++;
	block = Min(block, scan->physical_blocks - 1);
	scan->slice_end = (uint64) ((double) scan->total_rows * (block + 1) / scan->physical_blocks);
	if (block + 1 == scan->physical_blocks)
		scan->slice_end = scan->total_rows;

	/* skip to the slice's first row, by batches */
	{
		uint64 first = (uint64) ((double) scan->total_rows * block / scan->physical_blocks);

		while (scan->batch == NULL || scan->rows_before + scan->batch->nselected <= first)
		{
			if (scan->batch != NULL)
				scan->rows_before += scan->batch->nselected;
			scan->batch = row_scan_next(use_row_scan(scan, NULL), ForwardScanDirection);
			if (scan->batch == NULL)
				break;
			scan->position = -1;
		}
		if (scan->batch != NULL && scan->rows_before + scan->position + 1 < first)
			scan->position = (int32) (first - scan->rows_before) - 1;
	}
	return true;
}

bool
columnar_scan_analyze_next_tuple(COMPAT_ANALYZE_TUPLE_ARGUMENTS)
{
	ColumnarScan *scan = (ColumnarScan *) base;

	while (scan->batch != NULL && scan->rows_before + scan->position + 1 < scan->slice_end)
	{
		scan->position++;
		if (scan->position >= (int32) scan->batch->nselected)
		{
			scan->rows_before += scan->batch->nselected;
			scan->batch = row_scan_next(scan->scan, ForwardScanDirection);
			scan->position = -1;
			continue;
		}
		*live_rows += 1;
		if (scan->keep >= 1.0 || pg_prng_double(&scan->random) < scan->keep)
		{
			store_row(scan, slot);
			return true;
		}
	}
	ExecClearTuple(slot);
	return false;
}
