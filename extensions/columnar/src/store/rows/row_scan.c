/*
 * row_scan.c
 *		Row groups, blocks, batches: see row_scan.h.
 *
 * Memory: everything lives in the scan's own context; a group's reader is closed
 * before the next is opened, the column blocks are kept and refilled.
 */
#include "store/rows/row_scan.h"

#include "access/heapam.h"
#include "access/relation.h"
#include "access/tupdesc_details.h"
#include "access/parallel.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "store/codec/float_codec.h"
#include "store/catalog/read_note.h"
#include "store/rows/write_buffer.h"

#define GROUP_BLOCKS_MAX (ROW_GROUP_ROWS_MAX / BLOCK_ROWS)

/*
 * A group is read ahead if at least one in so many of its blocks is kept: its columns then are
 * read from end to end.  Else what few blocks need is read when they come.
 */
#define READ_AHEAD_SHARE 4

struct RowScan
{
	Relation relation;
	Snapshot snapshot;
	bool owns_snapshot;
	GroupCatalog *catalog;
	Bitmapset *columns;
	const AttrNumber *attributes; /* see row_scan_set_attributes(); or NULL */
	int natts;
	RowPruner *pruner;
	RowScanShared *shared;
	MemoryContext context;
	BufferAccessStrategy strategy;

	GroupEntry *groups;
	uint32 ngroups;
	uint32 nshared; /* of these, from the first: taken in turns with the scan's other processes */
	DeletedRows *deleted;
	DeletedRows *ended; /* NULL, or which of the rows returned are not alive */

	bool has_deleted; /* rows of the group whose numbers are in its range */
	bool started;
	bool took_shared;		  /* all of the shared groups were taken */
	int64 group;			  /* last one taken; -1 before the first, ngroups behind the last */
	RowGroupReader *reader;	  /* of that group, if it is open */
	RowGroupReader *resident; /* of the only group, kept for the next pass when it is not */
	int64 decoded;			  /* the block of the only group whose columns the batch has, or -1 */
	uint32 nblocks;
	uint64 kept[GROUP_BLOCKS_MAX / 64]; /* bit set: the pruner keeps the block */
	int64 block;						/* last one returned */

	RowBatch batch;
	uint64 row_numbers[BLOCK_ROWS];
	RowScanCounters counters;
};

static int
compare_entries(const void *left, const void *right)
{
	uint64 a = ((const GroupEntry *) left)->record.first_row;
	uint64 b = ((const GroupEntry *) right)->record.first_row;

	return a < b ? -1 : a > b;
}

static bool
is_alive_now(const GroupTuple *tuple)
{
	return tuple->status == HEAPTUPLE_LIVE ||
		   (tuple->status == HEAPTUPLE_INSERT_IN_PROGRESS &&
			TransactionIdIsCurrentTransactionId(tuple->entry.xmin));
}

/* Is one of the scan's groups, which are sorted, at the tuple's row numbers? */
static bool
overlaps_group(const RowScan *scan, const GroupTuple *tuple)
{
	const GroupRecord *record = &tuple->entry.record;
	uint32 low = 0;
	uint32 high = scan->nshared;

	/* the last group that begins before the tuple's end: ranges of groups alive are apart */
	while (low < high)
	{
		uint32 middle = low + (high - low) / 2;

		if (scan->groups[middle].record.first_row < record->first_row + record->row_span)
			low = middle + 1;
		else
			high = middle;
	}
	return low > 0 &&
		   scan->groups[low - 1].record.first_row + scan->groups[low - 1].record.row_span >
			   record->first_row;
}

static void
add_group(RowScan *scan, const GroupTuple *tuple)
{
	GroupEntry *entry = &scan->groups[scan->ngroups++];

	*entry = tuple->entry;
	entry->visible_rows = entry->record.nrows;
}

/*
 * For SnapshotAny, as index builds use it under a lock that keeps writers away: the
 * groups that are alive now, i.e. committed or our own, and not deleted.
 *
 * `old`: behind these the groups that only older snapshots see, and whose rows no
 * living group has (those that a compaction has replaced live on in its groups).
 * Processes may differ in what they take for old, so these are not shared.
 */
static void
list_latest(RowScan *scan, TransactionId oldest_xmin, bool old)
{
	uint32 ntuples;
	GroupTuple *tuples = group_catalog_list_all(scan->catalog, oldest_xmin, &ntuples);
	uint32 kept = 0;

	for (uint32 i = 0; i < ntuples; i++)
	{
		if (tuples[i].entry.record.nrows > 0 && tuples[i].entry.record.state != GROUP_OPEN)
			tuples[kept++] = tuples[i];
	}
	scan->ngroups = 0;
	scan->groups = palloc(sizeof(GroupEntry) * Max(kept, 1));
	for (uint32 i = 0; i < kept; i++)
	{
		if (is_alive_now(&tuples[i]))
			add_group(scan, &tuples[i]);
	}
	scan->nshared = scan->ngroups;
	qsort(scan->groups, scan->nshared, sizeof(GroupEntry), compare_entries);
	for (uint32 i = 0; old && i < kept; i++)
	{
		if ((tuples[i].status == HEAPTUPLE_RECENTLY_DEAD ||
			 tuples[i].status == HEAPTUPLE_DELETE_IN_PROGRESS) &&
			!overlaps_group(scan, &tuples[i]))
			add_group(scan, &tuples[i]);
	}
	pfree(tuples);
}

/* What an index is built of: see row_scan_begin_build(). */
static void
list_for_build(RowScan *scan)
{
	TransactionId oldest_xmin = GetOldestNonRemovableTransactionId(scan->relation);

	list_latest(scan, oldest_xmin, !IsParallelWorker());
	if (scan->ngroups > scan->nshared)
	{
		/* while we read old groups, nobody may vacuum the parts of inline ones away */
		LockRelationOid(RelationGetRelid(scan->catalog->toast), ShareUpdateExclusiveLock);
		oldest_xmin = GetOldestNonRemovableTransactionId(scan->relation);
		pfree(scan->groups);
		list_latest(scan, oldest_xmin, true);
	}
	scan->ended = deleted_rows_load(scan->catalog, SnapshotAny);
	scan->deleted = deleted_rows_dead(scan->catalog, oldest_xmin);
}

/* A scan without groups. */
static RowScan *
make_scan(Relation relation, TupleDesc descriptor, const Bitmapset *columns, RowScanShared *shared)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "columnar scan",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	RowScan *scan = palloc0(sizeof(RowScan));

	if (!IsParallelWorker())
		write_buffer_flush(relation);

	scan->relation = relation;
	scan->context = context;
	scan->columns = bms_copy(columns);
	scan->shared = shared;
	/* as a scan of a heap does, so that what fits the buffers comes to stay there */
	if (!RelationUsesLocalBuffers(relation) && RelationGetNumberOfBlocks(relation) > NBuffers / 4)
		scan->strategy = GetAccessStrategy(BAS_BULKREAD);
	scan->catalog = group_catalog_open(relation, AccessShareLock);
	if (descriptor != NULL)
		scan->catalog->descriptor = CreateTupleDescCopyConstr(descriptor);
	scan->natts = group_catalog_descriptor(scan->catalog)->natts;
	scan->batch.scan = scan;
	scan->batch.columns = palloc0(sizeof(ColumnBlock) * Max(scan->natts, 1));
	scan->batch.decoded = palloc0(sizeof(bool) * Max(scan->natts, 1));
	scan->group = -1;
	scan->decoded = -1;

	MemoryContextSwitchTo(caller);
	return scan;
}

RowScan *
row_scan_begin(Relation relation, TupleDesc descriptor, Snapshot snapshot, const Bitmapset *columns,
			   RowPruner *pruner, RowScanShared *shared)
{
	RowScan *scan = make_scan(relation, descriptor, columns, shared);
	MemoryContext caller = MemoryContextSwitchTo(scan->context);

	scan->pruner = pruner;
	if (snapshot->snapshot_type == SNAPSHOT_ANY)
		list_latest(scan, FirstNormalTransactionId, false);
	else
	{
		if (!IsMVCCSnapshot(snapshot))
		{
			snapshot = RegisterSnapshot(GetLatestSnapshot());
			scan->owns_snapshot = true;
		}
		scan->groups = group_catalog_list(scan->catalog, snapshot, &scan->ngroups);
		scan->nshared = scan->ngroups;
	}
	scan->snapshot = snapshot;
	scan->deleted = deleted_rows_load(scan->catalog, snapshot);
	scan->counters.groups = scan->ngroups;
	MemoryContextSwitchTo(caller);
	return scan;
}

RowScan *
row_scan_begin_build(Relation relation, const Bitmapset *columns, RowScanShared *shared)
{
	RowScan *scan = make_scan(relation, NULL, columns, shared);
	MemoryContext caller = MemoryContextSwitchTo(scan->context);

	list_for_build(scan);
	scan->snapshot = SnapshotAny;
	scan->counters.groups = scan->ngroups;
	MemoryContextSwitchTo(caller);
	return scan;
}

void
row_scan_set_attributes(RowScan *scan, const AttrNumber *attributes, int nattributes)
{
	MemoryContext caller = MemoryContextSwitchTo(scan->context);

	Assert(!scan->started);
	scan->attributes = attributes;
	scan->natts = nattributes;
	scan->batch.columns = palloc0(sizeof(ColumnBlock) * Max(nattributes, 1));
	scan->batch.decoded = palloc0(sizeof(bool) * Max(nattributes, 1));
	MemoryContextSwitchTo(caller);
}

void
row_scan_set_shared(RowScan *scan, RowScanShared *shared)
{
	scan->shared = shared;
}

static void
close_reader(RowScan *scan, RowGroupReader *reader)
{
	scan->counters.bytes_read += row_group_reader_bytes_read(reader);
	scan->counters.pages_read += row_group_reader_pages_read(reader);
	read_note(RelationGetRelid(scan->relation), row_group_reader_record(reader)->group_id,
			  row_group_reader_chunk_bytes_read(reader));
	row_group_reader_close(reader);
}

/*
 * Close the group being read and add up what it cost.  The only group of a small table
 * stays, as nested loops read such tables again and again.
 */
static void
close_group(RowScan *scan)
{
	if (scan->reader == NULL)
		return;
	if (scan->ngroups == 1 && scan->shared == NULL)
		scan->resident = scan->reader;
	else
	{
		close_reader(scan, scan->reader);
		scan->decoded = -1;
	}
	scan->reader = NULL;
	scan->batch.reader = NULL;
}

void
row_scan_rescan(RowScan *scan)
{
	close_group(scan);
	scan->group = -1;
	scan->started = false;
	scan->took_shared = false;
}

void
row_scan_end(RowScan *scan)
{
	close_group(scan);
	if (scan->resident != NULL)
		close_reader(scan, scan->resident);
	group_catalog_close(scan->catalog);
	if (scan->owns_snapshot)
		UnregisterSnapshot(scan->snapshot);
	MemoryContextDelete(scan->context);
}

TransactionId
row_scan_xmin(const RowScan *scan)
{
	return scan->groups[scan->group].xmin;
}

const RowScanCounters *
row_scan_counters(RowScan *scan)
{
	static RowScanCounters counters;
	const RowGroupReader *reader = scan->reader ? scan->reader : scan->resident;

	counters = scan->counters;
	if (reader != NULL)
	{
		counters.bytes_read += row_group_reader_bytes_read(reader);
		counters.pages_read += row_group_reader_pages_read(reader);
	}
	return &counters;
}

/*
 * The index of the next group to look at, or -1.  A scan that has come to an end
 * stays there, and turns round there: a cursor goes past the last row and comes back.
 */
static int64
take_group(RowScan *scan, ScanDirection direction)
{
	int64 ngroups = scan->ngroups;

	if (scan->shared != NULL && !scan->took_shared)
	{
		int64 group = (int64) pg_atomic_fetch_add_u64(&scan->shared->next_group, 1);

		scan->took_shared = group >= scan->nshared;
		scan->group = Min(group, scan->nshared);
		if (ScanDirectionIsBackward(direction))
			scan->group = scan->nshared - 1 - scan->group;
	}
	else if (ScanDirectionIsBackward(direction))
		scan->group = Max((scan->started ? scan->group : ngroups) - 1, -1);
	else
		scan->group = Min(scan->group + 1, ngroups);
	scan->started = true;
	return scan->group < ngroups ? scan->group : -1;
}

/* Are all rows of the group deleted?  Known without reading it, if it has no gaps. */
static bool
is_deleted(RowScan *scan, const GroupEntry *entry)
{
	return !(entry->record.flags & GROUP_HAS_ROW_NUMBERS) &&
		   deleted_rows_count(scan->deleted, entry->record.first_row, entry->visible_rows) ==
			   entry->visible_rows;
}

/* Which blocks of the open group may hold rows to return?  How many. */
static uint32
list_kept_blocks(RowScan *scan)
{
	bool asks = scan->pruner != NULL && scan->pruner->keep_block != NULL;
	uint32 nkept = 0;

	memset(scan->kept, 0, sizeof(scan->kept));
	for (uint32 block = 0; block < scan->nblocks; block++)
	{
		if (asks && !scan->pruner->keep_block(scan->pruner, scan->reader, block))
			continue;
		scan->kept[block / 64] |= UINT64CONST(1) << (block % 64);
		nkept++;
	}
	scan->counters.blocks += scan->nblocks;
	scan->counters.blocks_pruned += scan->nblocks - nkept;
	return nkept;
}

/* Does the snapshot see all rows of the group?  (A deleted number need not be one of a row.) */
static bool
is_complete(RowScan *scan, const GroupEntry *entry)
{
	return entry->visible_rows == entry->record.nrows && !scan->has_deleted;
}

/* Open the next group that may hold rows to return; false at the end. */
static bool
open_group(RowScan *scan, ScanDirection direction)
{
	while (take_group(scan, direction) >= 0)
	{
		GroupEntry *entry = &scan->groups[scan->group];
		MemoryContext caller = MemoryContextSwitchTo(scan->context);
		uint32 nkept;

		CHECK_FOR_INTERRUPTS();
		scan->has_deleted = deleted_rows_any(scan->deleted, entry->record.first_row,
											 entry->record.row_span);
		if (scan->has_deleted && is_deleted(scan, entry))
		{
			MemoryContextSwitchTo(caller);
			continue;
		}
		if (scan->resident == NULL)
		{
			scan->resident = row_group_reader_open(scan->catalog, &entry->record, scan->strategy);
			if (scan->attributes != NULL)
				row_group_reader_set_attributes(scan->resident, scan->attributes, scan->natts);
		}
		MemoryContextSwitchTo(caller);
		scan->reader = scan->resident;
		scan->resident = NULL;
		if (scan->pruner && scan->pruner->keep_group &&
			!scan->pruner->keep_group(scan->pruner, scan->reader))
		{
			scan->counters.groups_pruned++;
			close_group(scan);
			continue;
		}
		if (scan->pruner != NULL && scan->pruner->take_group != NULL && is_complete(scan, entry) &&
			scan->pruner->take_group(scan->pruner, scan->reader))
		{
			close_group(scan);
			continue;
		}
		scan->nblocks = row_group_reader_nblocks(scan->reader);
		nkept = list_kept_blocks(scan);
		if (nkept == 0)
		{
			close_group(scan);
			continue;
		}
		scan->block = ScanDirectionIsBackward(direction) ? (int64) scan->nblocks : -1;
		for (int i = 0; i < scan->natts; i++)
			if (scan->batch.columns[i].context != NULL)
				scan->batch.columns[i].type = row_group_reader_type(scan->reader, i + 1);
		if (nkept * READ_AHEAD_SHARE >= scan->nblocks)
			row_group_reader_prefetch(scan->reader, scan->columns);
		return true;
	}
	return false;
}

FORMAT_VECTORISED static void
list_all_rows(uint16 *selection)
{
	for (uint32 i = 0; i < BLOCK_ROWS; i++)
		selection[i] = (uint16) i;
}

/* Sets bits for those of a block's first rows that are deleted; how many. */
static uint32
find_deleted(RowScan *scan, RowBatch *batch, uint32 nrows, uint64 *gone)
{
	uint64 lowest;
	uint64 highest;

	if (!batch->has_numbers)
		return deleted_rows_bits(scan->deleted, batch->first_row, nrows, gone);
	row_group_reader_number_bounds(batch->reader, batch->block, &lowest, &highest);
	if (!deleted_rows_any(scan->deleted, lowest, highest - lowest + 1))
		return 0;
	return deleted_rows_mark(scan->deleted, row_batch_stored_numbers(batch), nrows, gone);
}

/* Take the positions of the batch's rows that the snapshot sees and nobody deleted. */
static void
select_rows(RowScan *scan, RowBatch *batch)
{
	GroupEntry *entry = &scan->groups[scan->group];
	uint32 first = batch->block * BLOCK_ROWS;
	uint32 visible = 0;
	uint64 gone[BLOCK_WORDS] = {0};
	uint32 ngone = 0;

	if (entry->visible_rows > first)
		visible = Min(batch->nrows, entry->visible_rows - first);
	if (scan->has_deleted)
		ngone = find_deleted(scan, batch, visible, gone);

	batch->nselected = 0;
	if (ngone == 0)
	{
		list_all_rows(batch->selection);
		batch->nselected = visible;
	}
	else
	{
		for (uint32 i = 0; i < visible; i++)
			if (!((gone[i / 64] >> (i % 64)) & 1))
				batch->selection[batch->nselected++] = (uint16) i;
	}
}

const uint64 *
row_batch_stored_numbers(RowBatch *batch)
{
	RowScan *scan = batch->scan;

	if (batch->row_numbers == NULL)
	{
		row_group_reader_row_numbers(batch->reader, batch->block, scan->row_numbers);
		batch->row_numbers = scan->row_numbers;
	}
	return batch->row_numbers;
}

RowBatch *
row_scan_next(RowScan *scan, ScanDirection direction)
{
	RowBatch *batch = &scan->batch;

	for (;;)
	{
		const GroupRecord *record;

		if (scan->reader == NULL && !open_group(scan, direction))
			return NULL;
		scan->block += ScanDirectionIsBackward(direction) ? -1 : 1;
		if (scan->block < 0 || scan->block >= scan->nblocks)
		{
			close_group(scan);
			continue;
		}
		if (!((scan->kept[scan->block / 64] >> (scan->block % 64)) & 1))
			continue;
		if (scan->pruner != NULL && scan->pruner->keep_still != NULL &&
			!scan->pruner->keep_still(scan->pruner, scan->reader, (uint32) scan->block))
		{
			scan->counters.blocks_pruned++;
			continue;
		}
		CHECK_FOR_INTERRUPTS();

		record = row_group_reader_record(scan->reader);
		batch->reader = scan->reader;
		batch->group = (uint32) scan->group;
		batch->block = (uint32) scan->block;
		batch->nrows = Min(BLOCK_ROWS, record->nrows - batch->block * BLOCK_ROWS);
		batch->first_row = record->first_row + (uint64) batch->block * BLOCK_ROWS;
		batch->has_numbers = (record->flags & GROUP_HAS_ROW_NUMBERS) != 0;
		batch->row_numbers = NULL;
		select_rows(scan, batch);
		if (batch->nselected == 0)
			continue;
		if (scan->ngroups > 1 || scan->decoded != scan->block)
			memset(batch->decoded, 0, sizeof(bool) * scan->natts);
		scan->decoded = scan->block;
		return batch;
	}
}

/* A block for an attribute that was added after the group was written: one value for all rows. */
static void
fill_missing(RowBatch *batch, AttrNumber attribute, ColumnBlock *block)
{
	TupleDesc descriptor = group_catalog_descriptor(batch->scan->catalog);
	AttrNumber own = batch->scan->attributes ? batch->scan->attributes[attribute - 1] : attribute;
	bool isnull = true;
	Datum value = getmissingattr(descriptor, own, &isnull);
	const ColumnType *type = block->type;

	block->nrows = batch->nrows;
	block->constant = true;
	block->has_exceptions = false;
	block->has_nulls = isnull;
	block->scale = -1;
	if (isnull)
	{
		memset(block->nulls, 0xff, sizeof(block->nulls));
		value = (Datum) 0;
	}
	if (type->form == FORM_INT)
	{
		int64 number = isnull ? 0 : column_type_to_int(type, value);

		block->form = BLOCK_INT;
		column_block_use(block, BLOCK_INT);
		for (uint32 i = 0; i < batch->nrows; i++)
			block->ints[i] = number;
	}
	else if (type->form == FORM_FLOAT)
	{
		double number = 0;

		if (!isnull)
			number = type->length == 4
						 ? float_widen_single((uint32) column_type_to_int(type, value))
						 : DatumGetFloat8(value);

		block->form = BLOCK_FLOAT;
		column_block_use(block, BLOCK_FLOAT);
		for (uint32 i = 0; i < batch->nrows; i++)
			block->floats[i] = number;
	}
	else
	{
		const char *start = "";
		uint32 length = 0;

		if (!isnull)
		{
			MemoryContext caller = MemoryContextSwitchTo(batch->scan->context);

			if (type->length > 0)
			{
				start = DatumGetPointer(value);
				length = type->length;
			}
			else if (type->length == -2)
			{
				start = DatumGetCString(value);
				length = strlen(start);
			}
			else
			{
				struct varlena *flat = PG_DETOAST_DATUM_PACKED(value);

				start = VARDATA_ANY(flat);
				length = VARSIZE_ANY_EXHDR(flat);
			}
			MemoryContextSwitchTo(caller);
		}
		block->form = BLOCK_BYTES;
		column_block_use(block, BLOCK_BYTES);
		for (uint32 i = 0; i < batch->nrows; i++)
		{
			block->starts[i] = start;
			block->lengths[i] = length;
		}
	}
}

bool
row_batch_is_alive(RowBatch *batch, uint32 row)
{
	const RowScan *scan = batch->scan;

	return scan->ended == NULL ||
		   (batch->group < scan->nshared &&
			!deleted_rows_contains(scan->ended, row_batch_row_number(batch, row)));
}

ColumnBlock *
row_batch_column(RowBatch *batch, AttrNumber attribute)
{
	ColumnBlock *block = &batch->columns[attribute - 1];
	ChunkReader *chunk;

	if (batch->decoded[attribute - 1])
		return block;

	if (block->context == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(batch->scan->context);

		column_block_init(block, row_group_reader_type(batch->reader, attribute));
		MemoryContextSwitchTo(caller);
	}
	chunk = row_group_reader_chunk(batch->reader, attribute);
	if (chunk == NULL)
		fill_missing(batch, attribute, block);
	else
		chunk_reader_decode(chunk, batch->block, block);
	batch->decoded[attribute - 1] = true;
	return block;
}

/* One value of the batch, in the current memory context. */
static Datum
read_datum(RowBatch *batch, AttrNumber attribute, uint32 row, bool *isnull)
{
	return column_block_datum(row_batch_column(batch, attribute), row, isnull);
}

void
row_batch_store(RowBatch *batch, uint32 row, const Bitmapset *columns, TupleTableSlot *slot)
{
	TupleDesc descriptor = slot->tts_tupleDescriptor;

	ExecClearTuple(slot);
	for (int i = 0; i < descriptor->natts; i++)
	{
		if (TupleDescAttr(descriptor, i)->attisdropped ||
			(columns != NULL && !bms_is_member(i + 1, columns)))
		{
			slot->tts_values[i] = (Datum) 0;
			slot->tts_isnull[i] = true;
		}
		else
			slot->tts_values[i] = read_datum(batch, i + 1, row, &slot->tts_isnull[i]);
	}
	ExecStoreVirtualTuple(slot);
	row_number_to_tid(row_batch_row_number(batch, row), &slot->tts_tid);
	slot->tts_tableOid = RelationGetRelid(batch->scan->relation);
}

uint64
row_scan_count_deleted(GroupCatalog *catalog, const GroupEntry *entry, const DeletedRows *deleted)
{
	const GroupRecord *record = &entry->record;
	RowGroupReader *reader;
	uint64 *rows;
	uint64 count = 0;

	if (!(record->flags & GROUP_HAS_ROW_NUMBERS))
		return deleted_rows_count(deleted, record->first_row, entry->visible_rows);
	if (!deleted_rows_any(deleted, record->first_row, record->row_span))
		return 0;
	/* numbers with gaps: a deleted number need not be a row of the group */
	reader = row_group_reader_open(catalog, record, NULL);
	rows = palloc(sizeof(uint64) * BLOCK_ROWS);
	for (uint32 first = 0; first < entry->visible_rows; first += BLOCK_ROWS)
	{
		uint64 gone[BLOCK_WORDS] = {0};
		uint64 lowest;
		uint64 highest;

		CHECK_FOR_INTERRUPTS();
		row_group_reader_number_bounds(reader, first / BLOCK_ROWS, &lowest, &highest);
		if (!deleted_rows_any(deleted, lowest, highest - lowest + 1))
			continue;
		row_group_reader_row_numbers(reader, first / BLOCK_ROWS, rows);
		count += deleted_rows_mark(deleted, rows, Min(entry->visible_rows - first, BLOCK_ROWS),
								   gone);
	}
	pfree(rows);
	row_group_reader_close(reader);
	return count;
}

uint64
row_scan_count(Relation relation, Snapshot snapshot)
{
	GroupCatalog *catalog;
	GroupEntry *groups;
	DeletedRows *deleted;
	uint32 ngroups;
	uint64 count = 0;

	write_buffer_flush(relation);
	catalog = group_catalog_open(relation, AccessShareLock);
	groups = group_catalog_list(catalog, snapshot, &ngroups);
	deleted = deleted_rows_load(catalog, snapshot);
	for (uint32 i = 0; i < ngroups; i++)
	{
		CHECK_FOR_INTERRUPTS();
		count += groups[i].visible_rows;
		if (!deleted_rows_is_empty(deleted))
			count -= row_scan_count_deleted(catalog, &groups[i], deleted);
	}
	group_catalog_close(catalog);
	return count;
}
