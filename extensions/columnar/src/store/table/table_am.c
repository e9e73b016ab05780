/*
 * table_am.c
 *		The table access method `columnar`: its routine, and what happens to single rows.
 *
 * A row's life: write_buffer.c gives it a number and collects it into a row group;
 * row_version.c marks it deleted, updated or locked; row_fetch.c and row_scan.c
 * read it.  This file only translates between these and the executor's calls.
 *
 * A row that is still in a write buffer of this session is stored before it is
 * changed or locked, so that row_version.c deals with stored rows only.
 */
#include "store/table/table_am.h"

#include "access/heapam.h"
#include "access/multixact.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "fmgr.h"
#include "pgstat.h"
#include "storage/predicate.h"
#include "storage/procarray.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "store/rows/columnar_slot.h"
#include "store/rows/row_fetch.h"
#include "store/pages/space.h"
#include "store/rows/write_buffer.h"

static const TupleTableSlotOps *
columnar_slot_callbacks(Relation relation)
{
	return &columnar_slot_ops;
}

/* ---- rows by index ------------------------------------------------------------------------------ */

typedef struct ColumnarIndexFetch
{
	IndexFetchTableData base;
	RowFetch *fetch; /* begun at the first row */
} ColumnarIndexFetch;

static IndexFetchTableData *
columnar_index_fetch_begin(COMPAT_INDEX_FETCH_ARGUMENTS)
{
	ColumnarIndexFetch *state = palloc0(sizeof(ColumnarIndexFetch));

	state->base.rel = relation;
	return &state->base;
}

static void
columnar_index_fetch_reset(IndexFetchTableData *base)
{
}

static void
columnar_index_fetch_end(IndexFetchTableData *base)
{
	ColumnarIndexFetch *state = (ColumnarIndexFetch *) base;

	if (state->fetch != NULL)
		row_fetch_end(state->fetch);
	pfree(state);
}

/*
 * Rows that every snapshot sees deleted are reported, so that their index entries
 * are marked and skipped from then on.  (Rows that are gone altogether are left to VACUUM.)
 * The planner, which looks for a column's extremes, takes their values from the index: it only
 * asks whether a row is there.
 */
static bool
columnar_index_fetch_tuple(IndexFetchTableData *base, ItemPointer tid, Snapshot snapshot,
						   TupleTableSlot *slot, bool *call_again, bool *all_dead)
{
	ColumnarIndexFetch *state = (ColumnarIndexFetch *) base;
	uint64 row;

	*call_again = false;
	if (all_dead)
		*all_dead = false;
	if (state->fetch == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(GetMemoryChunkContext(state));

		state->fetch = row_fetch_begin(base->rel);
		MemoryContextSwitchTo(caller);
	}
	row = row_number_from_tid(tid);
	if (snapshot->snapshot_type == SNAPSHOT_NON_VACUUMABLE)
		slot = NULL;
	if (row_fetch_row(state->fetch, row, snapshot, NULL, slot))
		return true;
	if (all_dead)
		*all_dead = row_fetch_is_dead(state->fetch, row);
	return false;
}

/*
 * Which index entries may go before VACUUM comes: those marked dead, and no others (a
 * bottom-up deletion that finds nothing is allowed).  Standby queries that could still
 * see their rows are those with snapshots older than our horizon, which all the
 * deletions precede.
 */
static TransactionId
columnar_index_delete_tuples(Relation relation, TM_IndexDeleteOp *delstate)
{
	TransactionId newest = GetOldestNonRemovableTransactionId(relation);

	if (delstate->bottomup)
	{
		delstate->ndeltids = 0;
		return InvalidTransactionId;
	}
	TransactionIdRetreat(newest);
	return newest;
}

/* ---- rows by tid -------------------------------------------------------------------------------- */

/* Fill the slot with a row if the snapshot sees it. */
static bool
fetch_into_slot(Relation relation, uint64 row, Snapshot snapshot, const Bitmapset *columns,
				TupleTableSlot *slot)
{
	RowFetch *fetch = row_fetch_resume(relation);
	bool found = row_fetch_row(fetch, row, snapshot, columns, slot);

	if (found && slot != NULL)
		ExecMaterializeSlot(slot);
	row_fetch_suspend(fetch);
	return found;
}

static bool
columnar_tuple_fetch_row_version(Relation relation, ItemPointer tid, Snapshot snapshot,
								 TupleTableSlot *slot)
{
	return fetch_into_slot(relation, row_number_from_tid(tid), snapshot, NULL, slot);
}

static bool
columnar_tuple_tid_valid(TableScanDesc scan, ItemPointer tid)
{
	SpaceState space;

	space_read(scan->rs_rd, &space);
	return ItemPointerIsValid(tid) && ItemPointerGetOffsetNumber(tid) <= TID_ROWS_PER_BLOCK &&
		   row_number_from_tid(tid) < space.next_row;
}

static void
columnar_tuple_get_latest_tid(TableScanDesc scan, ItemPointer tid)
{
	GroupCatalog *catalog = group_catalog_open(scan->rs_rd, AccessShareLock);

	row_number_to_tid(row_version_latest(catalog, row_number_from_tid(tid), scan->rs_snapshot),
					  tid);
	group_catalog_close(catalog);
}

static bool
columnar_tuple_satisfies_snapshot(Relation relation, TupleTableSlot *slot, Snapshot snapshot)
{
	return fetch_into_slot(relation, row_number_from_tid(&slot->tts_tid), snapshot, NULL, NULL);
}

/* ---- INSERT ------------------------------------------------------------------------------------- */

static void
insert_row(Relation relation, TupleTableSlot *slot, CommandId cid, bool bulk)
{
	uint64 row;

	/* the catalog is checked when a range of row numbers is reserved, the table with each row */
	CheckForSerializableConflictIn(relation, NULL, InvalidBlockNumber);
	row = write_buffer_append(relation, slot, cid, bulk);
	slot->tts_tableOid = RelationGetRelid(relation);
	row_number_to_tid(row, &slot->tts_tid);
	columnar_slot_set_xmin(slot, GetCurrentTransactionIdIfAny());
}

static void
columnar_tuple_insert(Relation relation, TupleTableSlot *slot, CommandId cid,
					  CompatInsertOptions options, struct BulkInsertStateData *bistate)
{
	insert_row(relation, slot, cid, bistate != NULL);
	pgstat_count_heap_insert(relation, 1 + columnar_slot_take_offer(slot, relation, cid));
}

static void
columnar_multi_insert(Relation relation, TupleTableSlot **slots, int nslots, CommandId cid,
					  CompatInsertOptions options, struct BulkInsertStateData *bistate)
{
	for (int i = 0; i < nslots; i++)
		insert_row(relation, slots[i], cid, bistate != NULL);
	pgstat_count_heap_insert(relation, nslots);
}

static void
columnar_tuple_insert_speculative(Relation relation, TupleTableSlot *slot, CommandId cid,
								  CompatInsertOptions options, struct BulkInsertStateData *bistate,
								  uint32 token)
{
	insert_row(relation, slot, cid, false);
	write_buffer_set_speculative(relation, row_number_from_tid(&slot->tts_tid), token);
	pgstat_count_heap_insert(relation, 1);
}

static void
columnar_tuple_complete_speculative(Relation relation, TupleTableSlot *slot, uint32 token,
									bool succeeded)
{
	uint64 row = row_number_from_tid(&slot->tts_tid);

	if (!succeeded)
	{
		GroupCatalog *catalog = group_catalog_open(relation, RowExclusiveLock);

		row_version_kill(catalog, row, GetCurrentCommandId(true));
		group_catalog_close(catalog);
	}
	write_buffer_end_speculative(relation, row, !succeeded);
}

static void
columnar_finish_bulk_insert(Relation relation, CompatInsertOptions options)
{
	write_buffer_flush(relation);
}

/* ---- UPDATE, DELETE, locks ---------------------------------------------------------------------- */

/* Is the row in one of this session's write buffers?  Then store them. */
static void
store_row(Relation relation, uint64 row)
{
	CommandId cid;

	if (!write_buffer_is_empty(RelationGetRelid(relation)) &&
		write_buffer_fetch(relation, row, NULL, &cid))
		write_buffer_flush(relation);
}

static TM_Result
columnar_tuple_delete(COMPAT_DELETE_ARGUMENTS)
{
	uint64 row = row_number_from_tid(tid);
	GroupCatalog *catalog;
	RowChange change;
	TM_Result result;

	store_row(relation, row);
	catalog = group_catalog_open(relation, RowExclusiveLock);
	result = row_version_begin_change(&change, catalog, row,
									  compat_delete_moves() ? VECTOR_MOVE : VECTOR_DELETE,
									  LockTupleExclusive, cid, snapshot, crosscheck, wait, failure);
	if (result == TM_Ok)
	{
		row_version_finish_change(&change, 0);
		pgstat_count_heap_delete(relation);
	}
	group_catalog_close(catalog);
	return result;
}

/*
 * Does the new row have the same values in all columns of unique keys that a
 * foreign key could reference?  Then KEY SHARE locks do not conflict.
 */
static bool
keeps_keys(Relation relation, uint64 row, TupleTableSlot *new)
{
	Bitmapset *keys = RelationGetIndexAttrBitmap(relation, INDEX_ATTR_BITMAP_KEY);
	TupleDesc descriptor = RelationGetDescr(relation);
	Bitmapset *columns = NULL;
	TupleTableSlot *old;
	bool kept = true;
	int key = -1;

	if (bms_is_empty(keys))
		return true;
	while ((key = bms_next_member(keys, key)) >= 0)
	{
		AttrNumber attribute = key + FirstLowInvalidHeapAttributeNumber;

		if (attribute > 0)
			columns = bms_add_member(columns, attribute);
	}

	old = MakeSingleTupleTableSlot(descriptor, &columnar_slot_ops);
	if (fetch_into_slot(relation, row, SnapshotAny, columns, old))
	{
		int attribute = -1;

		while (kept && (attribute = bms_next_member(columns, attribute)) >= 0)
		{
			Form_pg_attribute form = TupleDescAttr(descriptor, attribute - 1);
			bool old_null;
			bool new_null;
			Datum old_value = slot_getattr(old, attribute, &old_null);
			Datum new_value = slot_getattr(new, attribute, &new_null);

			if (old_null != new_null)
				kept = false;
			else if (!old_null)
				kept = datum_image_eq(old_value, new_value, form->attbyval, form->attlen);
		}
	}
	ExecDropSingleTupleTableSlot(old);
	bms_free(columns);
	bms_free(keys);
	return kept;
}

static TM_Result
columnar_tuple_update(COMPAT_UPDATE_ARGUMENTS)
{
	uint64 row = row_number_from_tid(tid);
	GroupCatalog *catalog;
	RowChange change;
	TM_Result result;

	store_row(relation, row);
	slot_getallattrs(slot);
	*lock_mode = keeps_keys(relation, row, slot) ? LockTupleNoKeyExclusive : LockTupleExclusive;
	*update_indexes = COMPAT_UPDATE_ALL_INDEXES;

	catalog = group_catalog_open(relation, RowExclusiveLock);
	result = row_version_begin_change(&change, catalog, row, VECTOR_UPDATE, *lock_mode, cid,
									  snapshot, crosscheck, wait, failure);
	if (result == TM_Ok)
	{
		insert_row(relation, slot, cid, false);
		row_version_finish_change(&change, row_number_from_tid(&slot->tts_tid));
		compat_count_update(relation);
	}
	group_catalog_close(catalog);
	return result;
}

static TM_Result
columnar_tuple_lock(Relation relation, ItemPointer tid, Snapshot snapshot, TupleTableSlot *slot,
					CommandId cid, LockTupleMode mode, LockWaitPolicy policy, uint8 flags,
					TM_FailureData *failure)
{
	uint64 row = row_number_from_tid(tid);
	GroupCatalog *catalog;
	TM_Result result;

	store_row(relation, row);
	catalog = group_catalog_open(relation, RowExclusiveLock);
	result = row_version_lock(catalog, &row, snapshot, cid, mode, policy, flags, failure);
	group_catalog_close(catalog);

	row_number_to_tid(row, tid);
	if (result == TM_Ok || result == TM_Invisible || result == TM_SelfModified)
	{
		if (!fetch_into_slot(relation, row, SnapshotAny, NULL, slot) && result == TM_Ok)
			result = TM_Deleted;
	}
	slot->tts_tableOid = RelationGetRelid(relation);
	row_number_to_tid(row, &slot->tts_tid);
	return result;
}

/* ---- the routine -------------------------------------------------------------------------------- */

/* Every columnar table has a TOAST relation: its catalog (see group_catalog.h). */
static bool
columnar_needs_toast_table(Relation relation)
{
	return true;
}

static Oid
columnar_toast_am(Relation relation)
{
	return HEAP_TABLE_AM_OID;
}

static const TableAmRoutine columnar_methods = {
	.type = T_TableAmRoutine,
	.slot_callbacks = columnar_slot_callbacks,

	.scan_begin = columnar_scan_begin,
	.scan_end = columnar_scan_end,
	.scan_rescan = columnar_scan_rescan,
	.scan_getnextslot = columnar_scan_getnextslot,
	.scan_set_tidrange = columnar_scan_set_tidrange,
	.scan_getnextslot_tidrange = columnar_scan_getnextslot_tidrange,
	.parallelscan_estimate = columnar_parallelscan_estimate,
	.parallelscan_initialize = columnar_parallelscan_initialize,
	.parallelscan_reinitialize = columnar_parallelscan_reinitialize,
#if !COMPAT_BITMAP_BY_TABLE_AM
	.scan_bitmap_next_block = columnar_scan_bitmap_next_block,
#endif
	.scan_bitmap_next_tuple = columnar_scan_bitmap_next_tuple,
	.scan_sample_next_block = columnar_scan_sample_next_block,
	.scan_sample_next_tuple = columnar_scan_sample_next_tuple,
	.scan_analyze_next_block = columnar_scan_analyze_next_block,
	.scan_analyze_next_tuple = columnar_scan_analyze_next_tuple,

	.index_fetch_begin = columnar_index_fetch_begin,
	.index_fetch_reset = columnar_index_fetch_reset,
	.index_fetch_end = columnar_index_fetch_end,
	.index_fetch_tuple = columnar_index_fetch_tuple,
	.index_delete_tuples = columnar_index_delete_tuples,
	.index_build_range_scan = columnar_index_build_range_scan,
	.index_validate_scan = columnar_index_validate_scan,

	.tuple_fetch_row_version = columnar_tuple_fetch_row_version,
	.tuple_tid_valid = columnar_tuple_tid_valid,
	.tuple_get_latest_tid = columnar_tuple_get_latest_tid,
	.tuple_satisfies_snapshot = columnar_tuple_satisfies_snapshot,

	.tuple_insert = columnar_tuple_insert,
	.tuple_insert_speculative = columnar_tuple_insert_speculative,
	.tuple_complete_speculative = columnar_tuple_complete_speculative,
	.multi_insert = columnar_multi_insert,
	.finish_bulk_insert = columnar_finish_bulk_insert,
	.tuple_delete = columnar_tuple_delete,
	.tuple_update = columnar_tuple_update,
	.tuple_lock = columnar_tuple_lock,

	.compat_am_set_new_filelocator = columnar_set_new_filelocator,
	.relation_nontransactional_truncate = columnar_nontransactional_truncate,
	.relation_copy_data = columnar_copy_data,
	.relation_copy_for_cluster = columnar_copy_for_cluster,
	.relation_vacuum = columnar_vacuum,
	.relation_size = table_block_relation_size,
	.relation_estimate_size = columnar_estimate_size,
	.relation_needs_toast_table = columnar_needs_toast_table,
	.relation_toast_am = columnar_toast_am,
};

const TableAmRoutine *
columnar_routine(void)
{
	return &columnar_methods;
}

PG_FUNCTION_INFO_V1(columnar_handler);

Datum
columnar_handler(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(&columnar_methods);
}
