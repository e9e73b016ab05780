/*
 * heap_rows.c
 *		The rows of a heap by their numbers, and which of them are new: what a copy needs that is made while the table is written.
 *
 * A row of a heap stays in its place, and its number is that of the place, as strata_columnar.row_tid() counts them; but the
 * places of dead rows are used again.  A row is new if the snapshot under which somebody has looked before did not see the
 * transaction that wrote it: then whatever was in its place is gone.
 *
 * Whoever follows a table so keeps VACUUM away by its lock (ShareUpdateExclusiveLock).  Nothing else marks pages as visible to
 * all, so those that are have not changed since he began: they are not read.  Not so on the first look.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/visibilitymap.h"
#include "access/xact.h"
#include "catalog/pg_am_d.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

#include "pinned_snapshot.h"

PG_FUNCTION_INFO_V1(strata_worker_heap_rows);

/* Rows whose numbers follow each other, put into the result when one does not. */
typedef struct Range
{
	ReturnSetInfo *result;
	int64 first;
	int64 count;
	bool is_new;
} Range;

static void
put_range(const Range *range)
{
	Datum values[] = {Int64GetDatum(range->first), Int64GetDatum(range->count),
					  BoolGetDatum(range->is_new)};
	bool nulls[lengthof(values)] = {false};

	if (range->count > 0)
		tuplestore_putvalues(range->result->setResult, range->result->setDesc, values, nulls);
}

static void
add_rows(Range *range, int64 first, int64 count, bool is_new)
{
	if (range->first + range->count != first || range->is_new != is_new)
	{
		put_range(range);
		range->first = first;
		range->count = 0;
		range->is_new = is_new;
	}
	range->count += count;
}

/* Of a row that can be seen now: could it be seen before?  Our own transaction's, too, which has written it earlier. */
static bool
is_new_since(HeapTupleHeader row, Snapshot before)
{
	TransactionId writer = HeapTupleHeaderGetXmin(row);

	return before == NULL ||
		   (!HeapTupleHeaderXminFrozen(row) && !TransactionIdIsCurrentTransactionId(writer) &&
			XidInMVCCSnapshot(writer, before));
}

static void
add_page(Range *range, Relation relation, Buffer buffer, int64 since, Snapshot before)
{
	BlockNumber block = BufferGetBlockNumber(buffer);
	Page page = BufferGetPage(buffer);
	OffsetNumber last = PageGetMaxOffsetNumber(page);

	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
	{
		int64 number = (int64) block * MaxHeapTuplesPerPage + offset - 1;
		ItemId line = PageGetItemId(page, offset);
		HeapTupleData row = {.t_tableOid = RelationGetRelid(relation)};

		if (number < since || !ItemIdIsNormal(line))
			continue;
		row.t_data = (HeapTupleHeader) PageGetItem(page, line);
		row.t_len = ItemIdGetLength(line);
		ItemPointerSet(&row.t_self, block, offset);
		if (HeapTupleSatisfiesVisibility(&row, GetActiveSnapshot(), buffer))
			add_rows(range, number, 1, is_new_since(row.t_data, before));
	}
}

static Relation
open_heap(Oid oid)
{
	Relation relation = table_open(oid, AccessShareLock);

	if (relation->rd_rel->relam != HEAP_TABLE_AM_OID)
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("\"%s\" is not a heap", RelationGetRelationName(relation))));
	return relation;
}

/*
 * heap_rows(relation, since, before): numbers from `since` on of the rows that the statement sees, as ranges.  With `before`, the
 * token of a pinned snapshot: which of them that one did not see.  The others' ranges may then hold places without a row.
 */
Datum
strata_worker_heap_rows(PG_FUNCTION_ARGS)
{
	Relation relation = open_heap(PG_GETARG_OID(0));
	int64 since = Max(PG_GETARG_INT64(1), 0);
	uint64 token = (uint64) PG_GETARG_INT64(2);
	Snapshot before = token == 0 ? NULL : pinned_snapshot_find(token);
	BlockNumber count = RelationGetNumberOfBlocks(relation);
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
	Buffer map = InvalidBuffer;
	Range range = {.result = (ReturnSetInfo *) fcinfo->resultinfo};

	InitMaterializedSRF(fcinfo, 0);
	for (int64 block = since / MaxHeapTuplesPerPage; block < count; block++)
	{
		Buffer buffer;

		CHECK_FOR_INTERRUPTS();
		if (before != NULL && VM_ALL_VISIBLE(relation, (BlockNumber) block, &map))
		{
			add_rows(&range, block * MaxHeapTuplesPerPage, MaxHeapTuplesPerPage, false);
			continue;
		}
		buffer = ReadBufferExtended(relation, MAIN_FORKNUM, (BlockNumber) block, RBM_NORMAL,
									strategy);
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		add_page(&range, relation, buffer, since, before);
		UnlockReleaseBuffer(buffer);
	}
	put_range(&range);
	if (BufferIsValid(map))
		ReleaseBuffer(map);
	FreeAccessStrategy(strategy);
	table_close(relation, NoLock);
	return (Datum) 0;
}
