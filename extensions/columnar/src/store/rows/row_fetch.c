/*
 * row_fetch.c
 *		Single rows by number: see row_fetch.h.
 *
 * A group found once stays right: records are immutable and a row has one place in
 * a group.  Whether the snapshot sees the row is asked every time, because a row
 * may be deleted, and a group replaced, between two fetches.
 */
#include "store/rows/row_fetch.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/tupdesc_details.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "store/rows/columnar_slot.h"
#include "store/rows/own_deletes.h"
#include "store/catalog/read_note.h"
#include "store/rows/write_buffer.h"

/* Fetches after which everything the snapshot sees is loaded. */
#define FETCH_MANY 24

/* Datums of one row: the memory is reset when it passed this. */
#define FETCH_VALUES_KEPT (64 * 1024)

/* Memory that the fetch kept between calls may have. */
#define KEPT_MEMORY_MAX (64 * 1024 * 1024)

typedef struct FetchGroup
{
	RowGroupReader *reader; /* NULL: unused */
	uint64 group_id;
	uint64 last_used;
	uint64 noted;  /* bytes read by then */
	int64 *blocks; /* by attribute - 1: the block decoded, or -1 */
	ColumnBlock *columns;
	MemoryContext context;
} FetchGroup;

struct RowFetch
{
	Relation relation;
	GroupCatalog *catalog;
	MemoryContext context;
	MemoryContext values;
	FetchGroup groups[FETCH_GROUPS];
	uint64 clock;

	/* what one MVCC snapshot sees, loaded after FETCH_MANY fetches under it */
	MemoryContext seen_context;
	TransactionId seen_xmin;
	TransactionId seen_xmax;
	CommandId seen_curcid;
	uint32 seen_fetches;
	bool seen_loaded;
	GroupEntry *entries;
	uint32 nentries;
	DeletedRows *deleted;

	/* of the fetch that is kept */
	CompatFileLocator file;
	bool running;	/* between resume and suspend; afterwards: an ERROR ended it there */
	bool has_grown; /* a group was opened since it was resumed */
	MemoryContextCallback ended;
};

/* In TopTransactionContext, without open relations between two uses. */
static RowFetch *kept = NULL;

/* A fetch with its memory contexts, and nothing open. */
static RowFetch *
make_fetch(Relation relation)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "columnar fetch",
												  ALLOCSET_DEFAULT_SIZES);
	RowFetch *fetch = MemoryContextAllocZero(context, sizeof(RowFetch));

	fetch->relation = relation;
	fetch->context = context;
	fetch->values = AllocSetContextCreate(context, "row", ALLOCSET_DEFAULT_SIZES);
	fetch->seen_context = AllocSetContextCreate(context, "seen", ALLOCSET_DEFAULT_SIZES);
	return fetch;
}

RowFetch *
row_fetch_begin(Relation relation)
{
	RowFetch *fetch = make_fetch(relation);
	MemoryContext caller = MemoryContextSwitchTo(fetch->context);

	fetch->catalog = group_catalog_open(relation, AccessShareLock);
	MemoryContextSwitchTo(caller);
	return fetch;
}

/* Tell what was read since the last time. */
static void
note_reads(RowFetch *fetch, FetchGroup *group)
{
	uint64 bytes = row_group_reader_chunk_bytes_read(group->reader);

	read_note(RelationGetRelid(fetch->relation), group->group_id, bytes - group->noted);
	group->noted = bytes;
}

static void
close_group(RowFetch *fetch, FetchGroup *group)
{
	if (group->reader == NULL)
		return;
	note_reads(fetch, group);
	row_group_reader_close(group->reader);
	MemoryContextDelete(group->context);
	memset(group, 0, sizeof(*group));
}

void
row_fetch_end(RowFetch *fetch)
{
	for (int i = 0; i < FETCH_GROUPS; i++)
		close_group(fetch, &fetch->groups[i]);
	group_catalog_close(fetch->catalog);
	MemoryContextDelete(fetch->context);
}

/* ---- the fetch that is kept --------------------------------------------------------------------- */

void
row_fetch_forget(void)
{
	if (kept != NULL)
		MemoryContextDelete(kept->context);
}

static void
note_end_of_kept(void *argument)
{
	kept = NULL;
}

/* A fetch without groups, to be kept until the transaction ends. */
static void
make_kept(Relation relation)
{
	MemoryContext caller = MemoryContextSwitchTo(TopTransactionContext);

	kept = make_fetch(relation);
	kept->file = compat_file_locator(relation);
	kept->ended.func = note_end_of_kept;
	MemoryContextRegisterResetCallback(kept->context, &kept->ended);
	MemoryContextSwitchTo(caller);
}

/* Groups whose types the relation no longer has are closed. */
static void
rebind_groups(RowFetch *fetch)
{
	for (int i = 0; i < FETCH_GROUPS; i++)
	{
		FetchGroup *group = &fetch->groups[i];

		if (group->reader != NULL && !row_group_reader_rebind(group->reader, fetch->catalog))
			close_group(fetch, group);
	}
}

RowFetch *
row_fetch_resume(Relation relation)
{
	CompatFileLocator file = compat_file_locator(relation);

	if (kept != NULL && (kept->running || memcmp(&file, &kept->file, sizeof(file)) != 0))
		row_fetch_forget();
	if (kept == NULL)
		make_kept(relation);
	kept->running = true;
	kept->has_grown = false;
	kept->relation = relation;
	kept->catalog = group_catalog_open(relation, AccessShareLock);
	/* another snapshot may have the same limits and yet see other rows */
	kept->seen_fetches = 0;
	rebind_groups(kept);
	return kept;
}

void
row_fetch_suspend(RowFetch *fetch)
{
	Assert(fetch == kept);
	for (int i = 0; i < FETCH_GROUPS; i++)
	{
		if (fetch->groups[i].reader != NULL)
			note_reads(fetch, &fetch->groups[i]);
	}
	group_catalog_close(fetch->catalog);
	fetch->catalog = NULL;
	fetch->relation = NULL;
	fetch->running = false;
	if (fetch->has_grown && MemoryContextMemAllocated(fetch->context, true) > KEPT_MEMORY_MAX)
		row_fetch_forget();
}

/* ---- groups ------------------------------------------------------------------------------------- */

/* The group, open; the one unused for longest makes room. */
static FetchGroup *
use_group(RowFetch *fetch, const GroupRecord *record)
{
	FetchGroup *oldest = &fetch->groups[0];
	MemoryContext caller;
	int natts = RelationGetDescr(fetch->relation)->natts;

	for (int i = 0; i < FETCH_GROUPS; i++)
	{
		FetchGroup *group = &fetch->groups[i];

		if (group->reader != NULL && group->group_id == record->group_id)
		{
			group->last_used = ++fetch->clock;
			return group;
		}
		if (group->last_used < oldest->last_used)
			oldest = group;
	}

	close_group(fetch, oldest);
	fetch->has_grown = true;
	oldest->context = AllocSetContextCreate(fetch->context, "group", ALLOCSET_SMALL_SIZES);
	caller = MemoryContextSwitchTo(oldest->context);
	oldest->reader = row_group_reader_open(fetch->catalog, record, NULL);
	oldest->group_id = record->group_id;
	oldest->last_used = ++fetch->clock;
	oldest->blocks = palloc(sizeof(int64) * Max(natts, 1));
	for (int i = 0; i < natts; i++)
		oldest->blocks[i] = -1;
	oldest->columns = palloc0(sizeof(ColumnBlock) * Max(natts, 1));
	MemoryContextSwitchTo(caller);
	return oldest;
}

/* One value of the group, in the current memory context. */
static Datum
fetch_value(RowFetch *fetch, FetchGroup *group, AttrNumber attribute, uint32 position, bool *isnull)
{
	ColumnBlock *block = &group->columns[attribute - 1];
	uint32 number = position / BLOCK_ROWS;
	ChunkReader *chunk = row_group_reader_chunk(group->reader, attribute);

	if (chunk == NULL)
		return getmissingattr(RelationGetDescr(fetch->relation), attribute, isnull);
	if (group->blocks[attribute - 1] != number)
	{
		if (block->context == NULL)
		{
			MemoryContext caller = MemoryContextSwitchTo(group->context);

			column_block_init(block, row_group_reader_type(group->reader, attribute));
			MemoryContextSwitchTo(caller);
		}
		group->blocks[attribute - 1] = -1;
		chunk_reader_decode(chunk, number, block);
		group->blocks[attribute - 1] = number;
	}
	return column_block_datum(block, position % BLOCK_ROWS, isnull);
}

/* Load groups and deleted rows of an MVCC snapshot once it is asked often. */
static bool
load_seen(RowFetch *fetch, Snapshot snapshot)
{
	MemoryContext caller;

	if (fetch->seen_fetches > 0 && fetch->seen_xmin == snapshot->xmin &&
		fetch->seen_xmax == snapshot->xmax && fetch->seen_curcid == snapshot->curcid)
	{
		if (fetch->seen_loaded)
			return true;
		if (++fetch->seen_fetches < FETCH_MANY)
			return false;
		caller = MemoryContextSwitchTo(fetch->seen_context);
		fetch->entries = group_catalog_list(fetch->catalog, snapshot, &fetch->nentries);
		fetch->deleted = deleted_rows_load(fetch->catalog, snapshot);
		fetch->seen_loaded = true;
		MemoryContextSwitchTo(caller);
		return true;
	}
	MemoryContextReset(fetch->seen_context);
	fetch->seen_loaded = false;
	fetch->seen_fetches = 1;
	fetch->seen_xmin = snapshot->xmin;
	fetch->seen_xmax = snapshot->xmax;
	fetch->seen_curcid = snapshot->curcid;
	return false;
}

/* The loaded group whose range contains the row, or NULL. */
static GroupEntry *
find_seen(RowFetch *fetch, uint64 row)
{
	uint32 low = 0;
	uint32 high = fetch->nentries;

	while (low < high)
	{
		uint32 middle = low + (high - low) / 2;

		if (fetch->entries[middle].record.first_row <= row)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0)
		return NULL;
	if (row - fetch->entries[low - 1].record.first_row >= fetch->entries[low - 1].record.row_span)
		return NULL;
	return &fetch->entries[low - 1];
}

/* Does the snapshot see the row of a stored group?  Sets *entry. */
static bool
is_visible(RowFetch *fetch, uint64 row, Snapshot snapshot, GroupEntry *entry)
{
	if (IsMVCCSnapshot(snapshot) && load_seen(fetch, snapshot))
	{
		GroupEntry *found = find_seen(fetch, row);

		/* not in the list: perhaps stored by this transaction since it was loaded */
		if (found != NULL)
		{
			*entry = *found;
			return !deleted_rows_contains(fetch->deleted, row);
		}
	}
	return row_version_visible(fetch->catalog, row, snapshot, entry);
}

/*
 * Does the caller want the values of a row that another session is inserting?
 * Exclusion constraints compare values, when their index is lossy.  Unique btrees
 * compare keys in the index, and only ask whether the row is there, with a page of the
 * index locked: nobody may wait for a transaction then, which may need the page.  Who
 * holds such a lock has interrupts held off.
 */
static bool
compares_values(Relation relation)
{
	List *indexes;
	bool found = false;
	ListCell *cell;

	if (InterruptHoldoffCount > 0)
		return false;
	indexes = RelationGetIndexList(relation);
	foreach(cell, indexes)
	{
		Relation index = index_open(lfirst_oid(cell), AccessShareLock);

		found |= index->rd_index->indisexclusion;
		index_close(index, AccessShareLock);
	}
	list_free(indexes);
	return found;
}

/* Wait until the session that inserted the row has stored it, or given it up. */
static void
wait_for_inserter(Relation relation, uint64 row, Snapshot snapshot)
{
	ItemPointerData tid;

	row_number_to_tid(row, &tid);
	if (snapshot->speculativeToken != 0)
		SpeculativeInsertionWait(snapshot->xmin, snapshot->speculativeToken);
	else if (TransactionIdIsValid(snapshot->xmin))
		XactLockTableWait(snapshot->xmin, relation, &tid, XLTW_RecheckExclusionConstr);
}

bool
row_fetch_row(RowFetch *fetch, uint64 row, Snapshot snapshot, const Bitmapset *columns,
			  TupleTableSlot *slot)
{
	TupleDesc descriptor = RelationGetDescr(fetch->relation);
	GroupEntry entry;
	FetchGroup *group;
	CommandId cid;
	uint32 position;
	MemoryContext caller;

	if (MemoryContextMemAllocated(fetch->values, false) > FETCH_VALUES_KEPT || slot != NULL)
		MemoryContextReset(fetch->values);

	if (!write_buffer_is_empty(RelationGetRelid(fetch->relation)) &&
		write_buffer_fetch(fetch->relation, row, NULL, &cid))
	{
		if (IsMVCCSnapshot(snapshot) && cid >= snapshot->curcid)
			return false;
		if (snapshot->snapshot_type == SNAPSHOT_DIRTY)
		{
			snapshot->xmin = snapshot->xmax = InvalidTransactionId;
			snapshot->speculativeToken = 0;
		}
		if (IsMVCCSnapshot(snapshot) || snapshot->snapshot_type != SNAPSHOT_ANY)
		{
			/* deleted again by this transaction: the vectors know */
			if (!row_version_visible(fetch->catalog, row, snapshot, &entry))
				return false;
		}
		if (slot != NULL)
		{
			caller = MemoryContextSwitchTo(fetch->values);
			write_buffer_fetch(fetch->relation, row, slot, &cid);
			MemoryContextSwitchTo(caller);
			row_number_to_tid(row, &slot->tts_tid);
			slot->tts_tableOid = RelationGetRelid(fetch->relation);
			columnar_slot_set_xmin(slot, GetCurrentTransactionIdIfAny());
		}
		return true;
	}

	if (snapshot->snapshot_type == SNAPSHOT_DIRTY && own_deletes_contains(fetch->relation, row))
	{
		snapshot->xmin = snapshot->xmax = InvalidTransactionId;
		snapshot->speculativeToken = 0;
		return false;
	}
	if (!is_visible(fetch, row, snapshot, &entry))
		return false;
	if (entry.record.state == GROUP_OPEN)
	{
		/* another session's row: it has no values yet, but a writer of its key must wait */
		if (snapshot->snapshot_type != SNAPSHOT_DIRTY)
			return false;
		if (slot != NULL && compares_values(fetch->relation))
		{
			wait_for_inserter(fetch->relation, row, snapshot);
			return row_fetch_row(fetch, row, snapshot, columns, slot);
		}
		if (slot != NULL)
		{
			ExecStoreAllNullTuple(slot);
			row_number_to_tid(row, &slot->tts_tid);
			slot->tts_tableOid = RelationGetRelid(fetch->relation);
			columnar_slot_set_xmin(slot, entry.xmin);
		}
		return true;
	}
	group = use_group(fetch, &entry.record);
	if (!row_group_reader_position(group->reader, row, &position))
		return false;
	if (IsMVCCSnapshot(snapshot) && position >= entry.visible_rows)
		return false;
	if (slot == NULL)
		return true;

	ExecClearTuple(slot);
	caller = MemoryContextSwitchTo(fetch->values);
	for (int i = 0; i < descriptor->natts; i++)
	{
		if (TupleDescAttr(descriptor, i)->attisdropped ||
			(columns != NULL && !bms_is_member(i + 1, columns)))
		{
			slot->tts_values[i] = (Datum) 0;
			slot->tts_isnull[i] = true;
		}
		else
			slot->tts_values[i] = fetch_value(fetch, group, i + 1, position, &slot->tts_isnull[i]);
	}
	MemoryContextSwitchTo(caller);
	ExecStoreVirtualTuple(slot);
	row_number_to_tid(row, &slot->tts_tid);
	slot->tts_tableOid = RelationGetRelid(fetch->relation);
	columnar_slot_set_xmin(slot, entry.xmin);
	return true;
}

bool
row_fetch_is_dead(RowFetch *fetch, uint64 row)
{
	return !own_deletes_contains(fetch->relation, row) && row_version_is_dead(fetch->catalog, row);
}
