/*
 * relation_rewrite.c
 *		CLUSTER and VACUUM FULL: a table's rows into a new file.
 *
 * The caller holds AccessExclusiveLock and rebuilds the indexes afterwards.  Older
 * snapshots must see in the new file what they saw in the old one:
 *
 *	 - row groups that every snapshot sees are merged, without their dead rows, and
 *	   inserted frozen;
 *	 - row groups that only some see (inserted or replaced not long ago) are copied as they
 *	   are, and their records get the old transaction ids; so do delete vectors
 *	   that not every snapshot sees.
 *
 * The new file has no missing values (of columns that were added with a default: core forgets them
 * after a rewrite), so where there are any, groups are not copied byte by byte.
 *
 * All this keeps row numbers.  CLUSTER gives new ones, in the order of its index.  Where every snapshot sees the same
 * rows, the new file has these alone, frozen.  Else it has first what VACUUM FULL would leave there, deleted by this
 * transaction, for older snapshots, and then the rows in order, inserted by it: as after columnar_recluster().
 *
 * Rows are sorted, as heapam does it, whenever the index is a B-tree: one by one by an index, each costs a block of
 * values of every column.
 */
#include "store/table/table_am.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/tuplesort.h"

#include "store/table/compaction.h"
#include "store/table/recluster.h"
#include "store/options/options.h"
#include "store/pages/page_run.h"
#include "store/rows/row_fetch.h"
#include "store/catalog/row_group.h"
#include "store/rows/row_state.h"
#include "store/rows/row_scan.h"
#include "store/pages/space.h"
#include "store/rows/write_buffer.h"

typedef struct Rewrite
{
	Relation old_table;
	Relation new_table;
	GroupCatalog *old_catalog;
	GroupCatalog *new_catalog;
	TransactionId oldest_xmin;
	GroupTuple *tuples;
	uint32 ntuples;
	DeletedRows *dead;
	double rows;
	double removed;
	double recently_dead;
} Rewrite;

/* Does every snapshot see the group, as it is? */
static bool
is_settled(const Rewrite *rewrite, const GroupTuple *tuple)
{
	TransactionId xmin = tuple->entry.xmin;

	return tuple->status == HEAPTUPLE_LIVE &&
		   (!TransactionIdIsNormal(xmin) || TransactionIdPrecedes(xmin, rewrite->oldest_xmin));
}

/*
 * Nobody is deleting a tuple while its table is locked for the rewrite: an xmax that has not committed is a
 * delete that was undone, or a lock.  It goes, since it may be older than the new file's relfrozenxid, too.
 */
static void
forget_undone_delete(HeapTupleHeader header)
{
	TransactionId xmax = HeapTupleHeaderGetRawXmax(header);

	if ((header->t_infomask & HEAP_XMAX_INVALID) == 0 &&
		!HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask) &&
		((header->t_infomask & HEAP_XMAX_IS_MULTI) != 0 || TransactionIdDidCommit(xmax) ||
		 TransactionIdIsCurrentTransactionId(xmax)))
		return;
	header->t_infomask &= ~HEAP_XMAX_BITS;
	header->t_infomask |= HEAP_XMAX_INVALID;
	HeapTupleHeaderSetXmax(header, InvalidTransactionId);
}

/*
 * Copy a tuple's transaction ids from the old catalog to a new tuple.  An inserter
 * that every snapshot sees becomes frozen, as it may be older than the new file's relfrozenxid.
 */
static void
copy_ids(Rewrite *rewrite, ItemPointer old_tid, ItemPointer new_tid)
{
	HeapTupleHeaderData header;
	HeapTupleData tuple;
	TransactionId xmin;
	Buffer buffer;

	tuple.t_self = *old_tid;
	if (!heap_fetch(rewrite->old_catalog->toast, SnapshotAny, &tuple, &buffer, false))
		elog(ERROR, "catalog tuple (%u,%u) of \"%s\" is gone", ItemPointerGetBlockNumber(old_tid),
			 ItemPointerGetOffsetNumber(old_tid), RelationGetRelationName(rewrite->old_table));
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	memcpy(&header, tuple.t_data, offsetof(HeapTupleHeaderData, t_bits));
	UnlockReleaseBuffer(buffer);
	forget_undone_delete(&header);
	xmin = HeapTupleHeaderGetXmin(&header);
	if (!TransactionIdIsNormal(xmin) || TransactionIdPrecedes(xmin, rewrite->oldest_xmin))
	{
		header.t_infomask &= ~HEAP_COMBOCID;
		header.t_infomask |= HEAP_XMIN_FROZEN;
	}
	group_catalog_copy_ids(rewrite->new_catalog, new_tid, &header);
}

/* The bytes of a group, as they are stored. */
static void
read_bytes(Rewrite *rewrite, const GroupRecord *record, ByteBuffer *bytes)
{
	byte_buffer_reserve(bytes, record->length);
	if (record->state == GROUP_INLINE)
	{
		char *parts = group_catalog_read_inline(rewrite->old_catalog, record);

		byte_buffer_append(bytes, parts, record->length);
		pfree(parts);
	}
	else
	{
		PageSource source;

		format_place_set(RelationGetRelationName(rewrite->old_table), record->group_id, 0);
		page_source_init(&source, rewrite->old_table, record->first_block, record->length, NULL);
		byte_source_read(&source.source, 0, record->length, bytes->data);
		bytes->length = record->length;
	}
}

static bool
has_missing_values(Relation relation)
{
	const TupleConstr *constraints = RelationGetDescr(relation)->constr;

	return constraints != NULL && constraints->missing != NULL;
}

/* Copy a group as it is, with its transaction ids. */
static void
copy_group(Rewrite *rewrite, const GroupTuple *tuple)
{
	GroupRecord record = tuple->entry.record;
	GroupCatalog *catalog = rewrite->new_catalog;
	ByteBuffer bytes;
	ItemPointerData tid;
	ItemPointerData old_tid;
	CommandId cid = tuple->entry.cmin;

	byte_buffer_init(&bytes, record.length);
	if (has_missing_values(rewrite->old_table))
		row_collector_encode_again(rewrite->old_catalog, options_of_table(rewrite->old_table),
								   &record, &bytes);
	else
		read_bytes(rewrite, &record, &bytes);

	space_lock(rewrite->new_table);
	space_take_rows(rewrite->new_table, 0, &record.group_id);
	space_unlock(rewrite->new_table);
	record.state = GROUP_OPEN;
	record.first_block = InvalidBlockNumber;
	record.nblocks = 0;
	group_catalog_insert(catalog, &record, cid, &tid);
	row_group_store(catalog, &record, &tid, cid, false, &bytes);
	old_tid = tuple->entry.tid;
	copy_ids(rewrite, &old_tid, &tid);
	byte_buffer_free(&bytes);
}

/* Merge settled groups, copy the others. */
static void
copy_groups(Rewrite *rewrite)
{
	RowCollector *collector = row_collector_begin(rewrite->old_table);

	for (uint32 i = 0; i < rewrite->ntuples; i++)
	{
		const GroupTuple *tuple = &rewrite->tuples[i];
		const GroupRecord *record = &tuple->entry.record;

		if (tuple->status == HEAPTUPLE_DEAD || record->nrows == 0 || record->state == GROUP_OPEN)
			continue;
		if (is_settled(rewrite, tuple))
		{
			if (row_collector_is_full(collector, record->nrows))
				row_collector_write(collector, rewrite->new_catalog, 0);
			rewrite->removed += (double) row_collector_add(collector, rewrite->old_catalog, record,
														   rewrite->dead);
			rewrite->rows += record->nrows;
			continue;
		}
		row_collector_write(collector, rewrite->new_catalog, 0);
		copy_group(rewrite, tuple);
		if (tuple->status == HEAPTUPLE_RECENTLY_DEAD)
			rewrite->recently_dead += record->nrows;
		else
			rewrite->rows += record->nrows;
	}
	row_collector_write(collector, rewrite->new_catalog, 0);
	row_collector_end(collector);
	rewrite->rows -= rewrite->removed;
}

/* ---- vectors ------------------------------------------------------------------------------------ */

typedef struct KeptVector
{
	ItemPointerData tid;
	int32 number;
	CommandId cid;
	RowVector vector;
} KeptVector;

typedef struct KeptVectors
{
	Rewrite *rewrite;
	KeptVector *vectors;
	uint32 count;
	uint32 capacity;
} KeptVectors;

/* Remember a vector that not every snapshot sees, or that belongs to an unsettled group. */
static bool
keep_vector(void *argument, HeapTuple tuple, Buffer buffer, int32 unit, const char *bytes,
			uint32 length)
{
	KeptVectors *kept = argument;
	KeptVector *next;

	if (HeapTupleSatisfiesVacuum(tuple, kept->rewrite->oldest_xmin, buffer) == HEAPTUPLE_DEAD)
		return true;
	if (kept->count == kept->capacity)
	{
		kept->capacity *= 2;
		kept->vectors = repalloc_huge(kept->vectors, sizeof(KeptVector) * kept->capacity);
	}
	next = &kept->vectors[kept->count];
	row_state_read_vector(&next->vector, kept->rewrite->old_table, (uint32) unit, bytes, length);
	next->tid = tuple->t_self;
	next->cid = HeapTupleHeaderGetRawCommandId(tuple->t_data);
	/* locks end with the transactions that hold them, none of which can be running now */
	if (next->vector.action != VECTOR_LOCK)
		kept->count++;
	return true;
}

/*
 * Vectors of rows that were dropped are not needed; the others are copied with
 * their ids.  Several may have rows of one unit: they are numbered anew.
 */
static void
copy_vectors(Rewrite *rewrite, bool all_settled)
{
	KeptVectors kept = {.rewrite = rewrite, .capacity = 64};
	int32 number = 0;

	kept.vectors = palloc(sizeof(KeptVector) * kept.capacity);
	group_catalog_all_vectors(rewrite->old_catalog, keep_vector, &kept);
	for (uint32 i = 0; i < kept.count; i++)
	{
		KeptVector *vector = &kept.vectors[i];
		ItemPointerData tid;
		bool is_dead = true;

		for (int bit = 0; bit < UNIT_ROWS && is_dead; bit++)
			if ((vector->vector.bits[bit / 64] >> (bit % 64)) & 1)
				is_dead = deleted_rows_contains(rewrite->dead,
												(uint64) vector->vector.unit * UNIT_ROWS + bit);
		if (is_dead && all_settled)
			continue;
		group_catalog_insert_vector(rewrite->new_catalog, vector->vector.unit, number++,
									&vector->vector, sizeof(RowVector), vector->cid, &tid);
		copy_ids(rewrite, &vector->tid, &tid);
	}
	pfree(kept.vectors);
}

/* Copy what any snapshot sees; numbers go on where they were. */
static void
copy_as_is(Rewrite *rewrite)
{
	bool all_settled = true;
	SpaceState space;
	uint64 group_id;

	space_read(rewrite->old_table, &space);
	space_lock(rewrite->new_table);
	space_take_rows(rewrite->new_table, space.next_row, &group_id);
	space_unlock(rewrite->new_table);
	rewrite->new_catalog->frozen = true;
	for (uint32 i = 0; i < rewrite->ntuples; i++)
		all_settled &= rewrite->tuples[i].status == HEAPTUPLE_DEAD ||
					   is_settled(rewrite, &rewrite->tuples[i]);
	copy_groups(rewrite);
	copy_vectors(rewrite, all_settled);
	rewrite->new_catalog->frozen = false;
}

/* ---- CLUSTER ------------------------------------------------------------------------------------ */

/* Make the records of the new file visible to every snapshot. */
static void
freeze_groups(Rewrite *rewrite)
{
	HeapTupleHeaderData header = {.t_choice.t_heap.t_xmin = FrozenTransactionId,
								  .t_infomask = HEAP_XMIN_FROZEN | HEAP_XMAX_INVALID};
	GroupTuple *tuples;
	uint32 ntuples;

	tuples = group_catalog_list_all(rewrite->new_catalog, rewrite->oldest_xmin, &ntuples);
	for (uint32 i = 0; i < ntuples; i++)
		group_catalog_copy_ids(rewrite->new_catalog, &tuples[i].entry.tid, &header);
	pfree(tuples);
}

/* Does every snapshot see the same rows? */
static bool
is_all_settled(const Rewrite *rewrite)
{
	DeletedRows *deleted = deleted_rows_load(rewrite->old_catalog, SnapshotAny);

	for (uint32 i = 0; i < rewrite->ntuples; i++)
	{
		const GroupTuple *tuple = &rewrite->tuples[i];

		if (tuple->status != HEAPTUPLE_DEAD && tuple->entry.record.nrows > 0 &&
			!is_settled(rewrite, tuple))
			return false;
	}
	return deleted_rows_count(deleted, 0, ROW_NUMBER_MAX) ==
		   deleted_rows_count(rewrite->dead, 0, ROW_NUMBER_MAX);
}

static void
put_for_cluster(Tuplesortstate *sort, TupleTableSlot *row)
{
	bool free_tuple;
	HeapTuple tuple = ExecFetchSlotHeapTuple(row, true, &free_tuple);

	tuplesort_putheaptuple(sort, tuple);
	if (free_tuple)
		heap_freetuple(tuple);
}

static void
write_row(Rewrite *rewrite, TupleTableSlot *slot)
{
	CHECK_FOR_INTERRUPTS();
	write_buffer_append(rewrite->new_table, slot, GetCurrentCommandId(true), true);
	rewrite->rows += 1;
}

static void
write_sorted(Rewrite *rewrite, Relation index)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(rewrite->old_table),
													&TTSOpsHeapTuple);
	Tuplesortstate *sort = tuplesort_begin_cluster(RelationGetDescr(rewrite->old_table), index,
												   maintenance_work_mem, NULL, TUPLESORT_NONE);
	HeapTuple tuple;

	recluster_read_rows(rewrite->old_table, sort, put_for_cluster);
	tuplesort_performsort(sort);
	while ((tuple = tuplesort_getheaptuple(sort, true)) != NULL)
	{
		ExecStoreHeapTuple(tuple, slot, false);
		write_row(rewrite, slot);
	}
	ExecDropSingleTupleTableSlot(slot);
	tuplesort_end(sort);
}

static void
write_by_index(Rewrite *rewrite, Relation index)
{
	TupleTableSlot *slot = table_slot_create(rewrite->old_table, NULL);
	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
	IndexScanDesc scan = compat_index_beginscan(rewrite->old_table, index, snapshot, 0, 0);

	index_rescan(scan, NULL, 0, NULL, 0);
	while (index_getnext_slot(scan, ForwardScanDirection, slot))
		write_row(rewrite, slot);
	index_endscan(scan);
	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(slot);
}

/* Write all live rows in the order of an index, with new row numbers. */
static void
copy_in_order(Rewrite *rewrite, Relation index)
{
	bool all_settled = is_all_settled(rewrite);

	if (!all_settled)
	{
		copy_as_is(rewrite);
		CommandCounterIncrement(); /* rows of this transaction's running command go, too */
		recluster_delete_groups(rewrite->new_table);
		CommandCounterIncrement();
		rewrite->rows = 0;
	}
	if (index->rd_rel->relam == BTREE_AM_OID)
		write_sorted(rewrite, index);
	else
		write_by_index(rewrite, index);
	write_buffer_flush(rewrite->new_table);
	if (all_settled)
		freeze_groups(rewrite);
}

void
columnar_copy_for_cluster(COMPAT_COPY_ARGUMENTS)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "columnar rewrite",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	Rewrite rewrite = {0};

	/* changes made meanwhile are taken from what is decoded of the WAL, which tells none of these tables */
	if (compat_copies_beside_writers())
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("columnar table \"%s\" cannot be rewritten concurrently",
							   RelationGetRelationName(old_table))));
	write_buffer_flush(old_table);
	rewrite.old_table = old_table;
	rewrite.new_table = new_table;
	rewrite.oldest_xmin = oldest_xmin;
	rewrite.old_catalog = group_catalog_open(old_table, AccessShareLock);
	rewrite.new_catalog = group_catalog_open(new_table, RowExclusiveLock);
	rewrite.tuples = compaction_list(rewrite.old_catalog, oldest_xmin, &rewrite.ntuples);
	rewrite.dead = deleted_rows_dead(rewrite.old_catalog, oldest_xmin);

	if (old_index != NULL)
		copy_in_order(&rewrite, old_index);
	else if (rewrite.ntuples > 0)
		copy_as_is(&rewrite);

	group_catalog_close(rewrite.new_catalog);
	group_catalog_close(rewrite.old_catalog);
	*num_tuples = rewrite.rows;
	*tups_vacuumed = rewrite.removed;
	*tups_recently_dead = rewrite.recently_dead;
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
}
