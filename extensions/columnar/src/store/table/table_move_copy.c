/*
 * table_move_copy.c
 *		What is new in a table that moves, into its new files: see table_move.c.
 *
 * An extent is copied once; where it is now is remembered by what its record says of it.  The pages of
 * the catalog come after the extents that their records name, and get the new places on the way.
 */
#include "store/table/table_move.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/transam.h"
#include "storage/procarray.h"
#include "utils/memutils.h"

#include "store/catalog/catalog_scan.h"
#include "store/table/compaction.h"
#include "fault_point.h"
#include "store/pages/page_run.h"
#include "store/catalog/row_group.h"

/* Bytes of an extent that are copied between two looks for waiters. */
#define SLICE_BYTES ((uint64) 128 * PAGE_PAYLOAD)

/* The same of pages that are copied one by one. */
#define PAGES_PER_LOOK 128

/* A row group's bytes: where they were, and what its record says of them now. */
typedef struct GroupKey
{
	uint64 group_id;
	uint32 first_block;
	uint32 footer_crc;
} GroupKey;

typedef struct MovedGroup
{
	GroupKey key;
	GroupRecord record; /* length, footer_*, first_block, nblocks, natts, flags count */
} MovedGroup;

void
table_move_begin_copy(TableMove *move)
{
	HASHCTL control = {.keysize = sizeof(GroupKey), .entrysize = sizeof(MovedGroup)};

	control.hcxt = CurrentMemoryContext;
	move->groups = hash_create("moved row groups", 64, &control,
							   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* ---- row groups --------------------------------------------------------------------------------- */

static GroupKey
group_key(const GroupRecord *record)
{
	GroupKey key;

	memset(&key, 0, sizeof(key));
	key.group_id = record->group_id;
	key.first_block = record->first_block;
	key.footer_crc = record->footer_crc;
	return key;
}

/* Room in the new file, behind what it has. */
static BlockNumber
take_blocks(TableMove *move, uint32 nblocks)
{
	if (!move->has_metapage)
	{
		page_run_extend(move->file, 1);
		move->has_metapage = true;
	}
	return page_run_extend(move->file, nblocks);
}

static void
copy_bytes(TableMove *move, const GroupRecord *record, BlockNumber first)
{
	PageSource *source = palloc(sizeof(PageSource));
	char *slice = palloc(Min(record->length, SLICE_BYTES));

	format_place_set(RelationGetRelationName(move->table), record->group_id, 0);
	page_source_init(source, move->table, record->first_block, record->length,
					 GetAccessStrategy(BAS_BULKREAD));
	for (uint64 done = 0; done < record->length; done += SLICE_BYTES)
	{
		uint64 length = Min(record->length - done, SLICE_BYTES);

		source->source.read(&source->source, done, length, slice);
		page_run_write(move->file, first + (BlockNumber) (done / PAGE_PAYLOAD), slice, length);
		table_move_note_written(move, length);
	}
}

/* Brings a group into the new file.  Rows that nobody will read again need not be encoded. */
static void
move_group(TableMove *move, const GroupTuple *tuple)
{
	const GroupRecord *old = &tuple->entry.record;
	GroupKey key = group_key(old);
	GroupRecord record = *old;
	MovedGroup *moved;
	bool found;

	if (move->options != NULL && !move->locked && record.nrows > 0 &&
		tuple->status != HEAPTUPLE_DEAD)
	{
		ByteBuffer bytes;

		byte_buffer_init(&bytes, record.length);
		table_move_give_way(move);
		row_collector_encode_again(move->catalog, move->options, &record, &bytes);
		record.nblocks = page_run_blocks(bytes.length);
		record.first_block = take_blocks(move, record.nblocks);
		page_run_write(move->file, record.first_block, bytes.data, bytes.length);
		table_move_note_written(move, bytes.length);
	}
	else
	{
		record.nblocks = page_run_blocks(record.length);
		record.first_block = take_blocks(move, record.nblocks);
		copy_bytes(move, old, record.first_block);
	}
	moved = hash_search(move->groups, &key, HASH_ENTER, &found);
	moved->record = record;
}

/* Has the inserter failed?  Nobody sees such a record, ever. */
static bool
is_aborted(TransactionId xmin)
{
	return TransactionIdIsNormal(xmin) && !TransactionIdIsInProgress(xmin) &&
		   !TransactionIdDidCommit(xmin);
}

/*
 * The groups that are to be moved yet.  What another transaction is inserting comes when it has ended;
 * under lock there is none.
 */
static List *
list_groups_left(TableMove *move, uint64 *bytes)
{
	TransactionId horizon = GetOldestNonRemovableTransactionId(move->toast);
	uint32 ntuples;
	GroupTuple *tuples = group_catalog_list_all(move->catalog, horizon, &ntuples);
	List *left = NIL;

	*bytes = 0;
	for (uint32 i = 0; i < ntuples; i++)
	{
		const GroupRecord *record = &tuples[i].entry.record;
		GroupKey key = group_key(record);

		if (record->state != GROUP_STORED || tuples[i].status == HEAPTUPLE_INSERT_IN_PROGRESS ||
			hash_search(move->groups, &key, HASH_FIND, NULL) != NULL ||
			is_aborted(tuples[i].entry.xmin))
			continue;
		left = lappend(left, &tuples[i]);
		*bytes += record->length;
	}
	return left;
}

/* ---- the catalog -------------------------------------------------------------------------------- */

/* Writes a changed record over that of the tuple. */
static void
replace_record(const CatalogTuple *columns, const GroupRecord *record)
{
	char *bytes = unconstify(char *, columns->bytes);
	uint32 crc = catalog_tuple_crc(columns->id, columns->sequence, (const char *) record,
								   sizeof(GroupRecord));

	memcpy(bytes, record, sizeof(GroupRecord));
	memcpy(bytes + sizeof(GroupRecord), &crc, sizeof(crc));
}

/* Says in a record where its bytes are now; false if they have not been moved. */
static bool
patch_record(TableMove *move, HeapTuple tuple, const CatalogTuple *columns)
{
	GroupRecord record;
	GroupKey key;
	MovedGroup *moved;

	memcpy(&record, columns->bytes, sizeof(record));
	if (record.state == GROUP_INLINE || record.first_block == InvalidBlockNumber)
		return true;
	key = group_key(&record);
	moved = record.state == GROUP_STORED ? hash_search(move->groups, &key, HASH_FIND, NULL) : NULL;
	if (moved != NULL)
	{
		record.length = moved->record.length;
		record.footer_offset = moved->record.footer_offset;
		record.footer_crc = moved->record.footer_crc;
		record.first_block = moved->record.first_block;
		record.nblocks = moved->record.nblocks;
		record.natts = moved->record.natts;
		record.flags = moved->record.flags;
		replace_record(columns, &record);
		return true;
	}
	if (record.state == GROUP_STORED && !is_aborted(HeapTupleHeaderGetXmin(tuple->t_data)))
	{
		if (move->locked)
			elog(ERROR, "row group %llu of \"%s\" was not moved",
				 (unsigned long long) record.group_id, RelationGetRelationName(move->table));
		return false;
	}
	/* being written, or never to be read: of no blocks in the new file */
	record.state = GROUP_OPEN;
	record.nrows = 0;
	record.first_block = InvalidBlockNumber;
	record.nblocks = 0;
	replace_record(columns, &record);
	return true;
}

/* FileCopyPatch for indexes, which changes nothing. */
static bool
note_page(void *argument, BlockNumber block, Page page)
{
	TableMove *move = argument;

	if (++move->pages % PAGES_PER_LOOK == 0)
		table_move_note_written(move, (uint64) PAGES_PER_LOOK * BLCKSZ);
	return true;
}

/* FileCopyPatch for the catalog: the records of a page. */
static bool
patch_page(void *argument, BlockNumber block, Page page)
{
	TableMove *move = argument;
	OffsetNumber last = PageIsNew(page) ? InvalidOffsetNumber : PageGetMaxOffsetNumber(page);
	bool complete = true;

	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
	{
		ItemId item = PageGetItemId(page, offset);
		HeapTupleData tuple;
		CatalogTuple columns;

		if (!ItemIdIsNormal(item))
			continue;
		tuple.t_data = (HeapTupleHeader) PageGetItem(page, item);
		tuple.t_len = ItemIdGetLength(item);
		tuple.t_tableOid = RelationGetRelid(move->toast);
		ItemPointerSet(&tuple.t_self, block, offset);
		catalog_tuple_decode(move->catalog, &tuple, &columns);
		if (catalog_tuple_is_record(&columns))
		{
			const char *problem = catalog_record_problem(&columns);

			if (problem != NULL)
				ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
								errmsg("the catalog of columnar table \"%s\" is damaged",
									   RelationGetRelationName(move->table)),
								errdetail("%s: %s.",
										  catalog_tuple_describe(move->catalog, &tuple, &columns),
										  problem)));
			complete &= patch_record(move, &tuple, &columns);
		}
	}
	note_page(move, block, page);
	return complete;
}

/* The pages of the catalog, its index, and the table's indexes, that are new. */
static void
copy_pages(TableMove *move)
{
	if (move->toast != NULL)
		file_copy_catch_up(&move->toast_copy, patch_page, move);
	for (int i = 0; i < list_length(move->index_oids); i++)
		file_copy_catch_up(&move->index_copies[i], note_page, move);
}

/* ---- a round ------------------------------------------------------------------------------------ */

uint64
table_move_copy_new(TableMove *move)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "columnar move",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	MemoryContext group = AllocSetContextCreate(context, "row group", ALLOCSET_DEFAULT_SIZES);
	uint64 before = move->written;

	move->catalog = group_catalog_open(move->table, AccessShareLock);
	if (move->catalog->toast != NULL)
	{
		uint64 bytes;
		List *left = list_groups_left(move, &bytes);
		ListCell *cell;

		foreach(cell, left)
		{
			MemoryContextSwitchTo(group);
			move_group(move, lfirst(cell));
			MemoryContextReset(group);
			FAULT_POINT("move_group");
		}
	}
	MemoryContextSwitchTo(context);
	copy_pages(move);
	group_catalog_close(move->catalog);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	return move->written - before;
}
