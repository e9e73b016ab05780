/*
 * index_build.c
 *		CREATE INDEX on a columnar table, and the second pass of CONCURRENTLY.
 *
 * The rows indexed are those alive now and, as in a heap, those that are dead but
 * visible to older snapshots: whoever has one may use the index, too, and will at
 * once if it is rebuilt.  A concurrent build indexes those that its snapshot sees.
 */
#include "store/table/table_am.h"

#include "access/brin_internal.h"
#include "access/genam.h"
#include "access/heapam.h"
#include "catalog/index.h"
#include "catalog/pg_am.h"
#include "commands/progress.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "optimizer/optimizer.h"
#include "pgstat.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/tuplesort.h"

#include "store/rows/row_scan.h"
#include "store/pages/space.h"

/* Evaluates an index's columns, expressions and predicate for rows of a batch. */
typedef struct IndexRow
{
	IndexInfo *info;
	EState *estate;
	ExprContext *context;
	ExprState *predicate;
	TupleTableSlot *slot;
	Bitmapset *columns; /* that the index needs */
	Datum values[INDEX_MAX_KEYS];
	bool nulls[INDEX_MAX_KEYS];
} IndexRow;

static void
begin_index_row(IndexRow *row, Relation table, IndexInfo *info)
{
	Bitmapset *columns = NULL;
	Bitmapset *shifted = NULL;
	int column = -1;

	row->info = info;
	row->estate = CreateExecutorState();
	row->context = GetPerTupleExprContext(row->estate);
	row->slot = table_slot_create(table, NULL);
	row->context->ecxt_scantuple = row->slot;
	row->predicate = ExecPrepareQual(info->ii_Predicate, row->estate);

	/* like pull_varattnos(), which cannot see the plain columns */
	for (int i = 0; i < info->ii_NumIndexAttrs; i++)
		if (info->ii_IndexAttrNumbers[i] > 0)
			columns = bms_add_member(columns, info->ii_IndexAttrNumbers[i]);
	pull_varattnos((Node *) info->ii_Expressions, 1, &shifted);
	pull_varattnos((Node *) info->ii_Predicate, 1, &shifted);
	while ((column = bms_next_member(shifted, column)) >= 0)
	{
		AttrNumber attribute = column + FirstLowInvalidHeapAttributeNumber;

		if (attribute > 0)
			columns = bms_add_member(columns, attribute);
		else if (attribute == 0) /* whole row */
			columns = bms_add_range(columns, 1, RelationGetDescr(table)->natts);
	}
	/* an empty set would mean all columns */
	if (columns == NULL)
		columns = bms_make_singleton(0);
	row->columns = columns;
}

/* Form the index entry of a row; false if the predicate leaves it out. */
static bool
form_index_row(IndexRow *row, RowBatch *batch, uint32 position)
{
	MemoryContext caller;

	ResetExprContext(row->context);
	caller = MemoryContextSwitchTo(row->context->ecxt_per_tuple_memory);
	row_batch_store(batch, position, row->columns, row->slot);
	MemoryContextSwitchTo(caller);
	if (row->predicate != NULL && !ExecQual(row->predicate, row->context))
		return false;
	FormIndexDatum(row->info, row->slot, row->estate, row->values, row->nulls);
	return true;
}

static void
end_index_row(IndexRow *row)
{
	ExecDropSingleTupleTableSlot(row->slot);
	FreeExecutorState(row->estate);
	row->info->ii_ExpressionsState = NIL;
	row->info->ii_PredicateState = NULL;
}

/*
 * Is it BRIN, by whatever name?  It cannot be right here, for two reasons:
 *
 *	- It reads as many blocks as the file has (bringetbitmap()), and tids name others, mostly more: rows would be left out.
 *	  A relation's size in blocks of tids would mend that, and tell ANALYZE and VACUUM what is not so.
 *	- It enters a row once, when that is inserted, and leaves out what is not summarized yet, because a later summary finds the
 *	  row in the table (summarize_range()).  Here the row may wait in its session's memory until then (write_buffer.c),
 *	  where no scan of another one finds it: the summary would leave it out for good.  Storing each row before its index
 *	  entries gives up the buffer; entering it again when it is stored evaluates expressions at the end of a transaction; and a
 *	  summary that waits for all writers lets VACUUM wait for them.
 *
 * What it would bring are zone maps, which are here anyway, for single rows that a bitmap names, in the place of batches.
 */
static bool
summarizes_blocks(Relation index)
{
	return index->rd_indam->amgetbitmap == bringetbitmap;
}

double
columnar_index_build_range_scan(Relation table, Relation index, struct IndexInfo *index_info,
								bool allow_sync, bool anyvisible, bool progress,
								BlockNumber start_block, BlockNumber nblocks,
								IndexBuildCallback callback, void *callback_state,
								TableScanDesc scan)
{
	Snapshot snapshot = SnapshotAny;
	bool owns_snapshot = false;
	RowScanShared *shared = NULL;
	IndexRow row;
	RowScan *rows;
	RowBatch *batch;
	double count = 0;

	if (start_block != 0 || nblocks != InvalidBlockNumber || summarizes_blocks(index))
		ereport(
			ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("columnar tables do not support indexes over ranges of blocks"),
			 errdetail("Index \"%s\" summarizes physical blocks.", RelationGetRelationName(index)),
			 errhint("Leave it out: columnar tables keep minima and maxima themselves, and Bloom "
					 "filters if option \"bloom\" says so.  Or let the table be a heap.")));

	if (scan != NULL)
	{
		/* a parallel build: the participants share the row groups */
		snapshot = scan->rs_snapshot;
		shared = columnar_scan_shared(scan);
	}
	else if (index_info->ii_Concurrent)
	{
		snapshot = RegisterSnapshot(GetTransactionSnapshot());
		owns_snapshot = true;
	}

	begin_index_row(&row, table, index_info);
	rows = snapshot->snapshot_type == SNAPSHOT_ANY
			   ? row_scan_begin_build(table, row.columns, shared)
			   : row_scan_begin(table, NULL, snapshot, row.columns, NULL, shared);
	while ((batch = row_scan_next(rows, ForwardScanDirection)) != NULL)
	{
		for (uint32 i = 0; i < batch->nselected; i++)
		{
			uint32 position = batch->selection[i];
			bool alive = row_batch_is_alive(batch, position);
			ItemPointerData tid;

			count += alive;
			if (!form_index_row(&row, batch, position))
				continue;
			row_number_to_tid(row_batch_row_number(batch, position), &tid);
			callback(index, &tid, row.values, row.nulls, alive, callback_state);
		}
		if (progress)
			pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, (int64) count);
	}
	row_scan_end(rows);
	end_index_row(&row);
	if (scan != NULL)
		table_endscan(scan);

	if (owns_snapshot)
		UnregisterSnapshot(snapshot);
	return count;
}

static int
compare_row_numbers(const void *left, const void *right)
{
	uint64 a = *(const uint64 *) left;
	uint64 b = *(const uint64 *) right;

	return a < b ? -1 : a > b;
}

/* The row numbers that the index has, ascending; palloc'ed. */
static uint64 *
read_index_tids(struct ValidateIndexState *state, uint64 *count)
{
	uint64 capacity = 1024;
	uint64 *rows = MemoryContextAllocHuge(CurrentMemoryContext, capacity * sizeof(uint64));
	Datum value;
	bool isnull;

	*count = 0;
	while (compat_tuplesort_getdatum(state->tuplesort, &value, &isnull))
	{
		ItemPointerData tid;

		if (*count == capacity)
		{
			capacity *= 2;
			rows = repalloc_huge(rows, capacity * sizeof(uint64));
		}
		itemptr_decode(&tid, DatumGetInt64(value));
		rows[(*count)++] = row_number_from_tid(&tid);
	}
	return rows;
}

void
columnar_index_validate_scan(Relation table, Relation index, struct IndexInfo *index_info,
							 Snapshot snapshot, struct ValidateIndexState *state)
{
	IndexRow row;
	RowScan *rows;
	RowBatch *batch;
	uint64 nindexed;
	uint64 *indexed = read_index_tids(state, &nindexed);

	begin_index_row(&row, table, index_info);
	rows = row_scan_begin(table, NULL, snapshot, row.columns, NULL, NULL);
	while ((batch = row_scan_next(rows, ForwardScanDirection)) != NULL)
	{
		for (uint32 i = 0; i < batch->nselected; i++)
		{
			uint32 position = batch->selection[i];
			uint64 number = row_batch_row_number(batch, position);
			ItemPointerData tid;

			state->htups += 1;
			if (nindexed > 0 &&
				bsearch(&number, indexed, nindexed, sizeof(uint64), compare_row_numbers) != NULL)
				continue;
			if (!form_index_row(&row, batch, position))
				continue;
			row_number_to_tid(number, &tid);
			index_insert(index, row.values, row.nulls, &tid, table,
						 index_info->ii_Unique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO, false,
						 index_info);
			state->tups_inserted += 1;
		}
	}
	row_scan_end(rows);
	end_index_row(&row);
	pfree(indexed);
}
