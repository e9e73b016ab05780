/*
 * write_buffer.c
 *		Collecting rows until they are a row group: see write_buffer.h.
 *
 *		  append			 append ...			store
 *		(none) -> record OPEN, range reserved -> record STORED or INLINE, buffer gone
 *						|
 *						+-> range grows in place, or the buffer is stored and another begins
 *
 * Invariants:
 *	 - Position i of a buffer is row number first_row + i, from the moment of
 *	   append.  Rows taken back keep their position and are left out when the
 *	   group is stored.
 *	 - The row appended last is in its buffer until the next append, read or end of
 *	   the (sub)transaction: a full buffer is stored by the append that finds it
 *	   full, not by the one that fills it.
 *	 - Command ids of a buffer's rows do not descend.  A row of an older command
 *	   (the outer one of a nested insertion) begins another buffer.
 *	 - A buffer is forgotten only after its record says that its rows are stored.
 *	   If storing fails, the subtransaction that tried aborts; a buffer of an outer
 *	   one is as before and can be stored again.
 *
 * Locks: {take or extend the range, write the record} is done under the space
 * lock, so whoever lists the catalog under it sees every range.  The transaction
 * id is assigned before.
 *
 * Memory: a context per buffer under TopTransactionContext, because rows come from
 * executor contexts that end long before the transaction.  What is needed for
 * storing only lies in a child of CurTransactionContext.
 */
#include "store/rows/write_buffer_internal.h"

#include "access/parallel.h"
#include "access/relation.h"
#include "access/tupdesc_details.h"
#include "access/xact.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"

#include "store/options/options.h"
#include "store/catalog/row_group.h"
#include "store/catalog/row_group_cache.h"
#include "store/options/settings.h"
#include "store/pages/space.h"

/* Row numbers reserved by the first row, and the same when many rows are likely. */
#define FIRST_RESERVATION 64
#define FIRST_BULK_RESERVATION 1024

/* A reservation grows to so many times the rows that are there. */
#define RESERVATION_GROWTH 4

/* A table written in this transaction. */
struct WriteTarget
{
	Oid relid; /* key */
	WriteBuffer *buffers;
	uint32 reservation; /* of the next buffer, by the size of the one before */
};

/* Of the running transaction. */
static HTAB *targets = NULL;
static dlist_head all_buffers = DLIST_STATIC_INIT(all_buffers);
static WriteBuffer *last_used = NULL;
static WriteBuffer *storing = NULL; /* being encoded right now */
static uint64 buffered_memory = 0;
static bool is_committing = false; /* all buffers were stored for the commit */

/* ---- finding buffers --------------------------------------------------------------------------- */

static WriteTarget *
find_target(Oid relid)
{
	if (dlist_is_empty(&all_buffers))
		return NULL;
	return hash_search(targets, &relid, HASH_FIND, NULL);
}

static WriteBuffer *
find_buffer(Oid relid, SubTransactionId subid)
{
	WriteTarget *target;

	if (last_used != NULL && last_used->relid == relid && last_used->subid == subid)
		return last_used;
	target = find_target(relid);
	if (target == NULL)
		return NULL;
	for (WriteBuffer *buffer = target->buffers; buffer != NULL; buffer = buffer->next)
	{
		if (buffer->subid == subid)
			return last_used = buffer;
	}
	return NULL;
}

/* The buffer that has the row, which was not taken back. */
static WriteBuffer *
find_buffer_of_row(Oid relid, uint64 row)
{
	WriteTarget *target = find_target(relid);

	if (target == NULL)
		return NULL;
	for (WriteBuffer *buffer = target->buffers; buffer != NULL; buffer = buffer->next)
	{
		uint64 first = buffer->record.first_row;

		if (row >= first && row - first < buffer->nrows &&
			!bms_is_member((int) (row - first), buffer->removed))
			return buffer;
	}
	return NULL;
}

bool
write_buffer_is_empty(Oid relation)
{
	WriteTarget *target = find_target(relation);

	return target == NULL || target->buffers == NULL;
}

/* ---- forgetting -------------------------------------------------------------------------------- */

/* Nobody finds the buffer any more. */
static void
detach_buffer(WriteBuffer *buffer)
{
	WriteBuffer **link = &buffer->target->buffers;

	while (*link != buffer)
		link = &(*link)->next;
	*link = buffer->next;
	dlist_delete(&buffer->all);
	if (last_used == buffer)
		last_used = NULL;
}

static void
forget_buffer(WriteBuffer *buffer)
{
	detach_buffer(buffer);
	buffered_memory -= buffer->memory;
	MemoryContextDelete(buffer->context);
}

/* Forgets the buffers of a subtransaction. */
static void
forget_subtransaction(SubTransactionId subid)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &all_buffers)
	{
		WriteBuffer *buffer = dlist_container(WriteBuffer, all, iter.cur);

		if (buffer->subid == subid)
			forget_buffer(buffer);
	}
}

static void
forget_transaction(void)
{
	while (!dlist_is_empty(&all_buffers))
		forget_buffer(dlist_head_element(WriteBuffer, all, &all_buffers));
	targets = NULL; /* goes with TopTransactionContext */
	last_used = NULL;
	storing = NULL;
	buffered_memory = 0;
	is_committing = false;
}

/* ---- storing ----------------------------------------------------------------------------------- */

/*
 * Stores the buffer's rows, after which it must be forgotten or emptied.  `is_final`: the
 * transaction commits, so that no older snapshot of it will read the rows.
 */
static void
store_rows(WriteBuffer *buffer, Relation relation, bool is_final)
{
	CompatFileLocator file = compat_file_locator(relation);
	GroupRecord record = buffer->record;
	uint64 reserved_end = record.first_row + record.row_span;
	MemoryContext context;
	MemoryContext caller;
	GroupCatalog *catalog;

	Assert(!IsParallelWorker());
	if (storing != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot store rows of table \"%s\" while a row group is being written",
						RelationGetRelationName(relation)),
				 errdetail("A function of a column's type reads or writes a columnar table.")));
	if (memcmp(&file, &buffer->file, sizeof(file)) != 0)
		elog(ERROR, "file of table \"%s\" changed before its buffered rows were stored",
			 RelationGetRelationName(relation));

	storing = buffer;
	context = AllocSetContextCreate(CurTransactionContext, "columnar store",
									ALLOCSET_DEFAULT_SIZES);
	caller = MemoryContextSwitchTo(context);
	catalog = group_catalog_open(relation, RowExclusiveLock);

	/* even an empty range keeps its first number, which the record's key is made of */
	record.row_span = Max(buffer->nrows, 1);
	if (buffer->nremoved == buffer->nrows)
		group_catalog_delete_own(catalog, &buffer->tid, buffer->first_command);
	else
	{
		ByteBuffer bytes;

		byte_buffer_init(&bytes, 0);
		write_buffer_encode(buffer, &record, is_final, &bytes);
		/* storing writes the shorter range first: if it fails then, the buffer has no more numbers */
		buffer->record.row_span = record.row_span;
		row_group_store(catalog, &record, &buffer->tid, buffer->first_command,
						buffer->subid == GetCurrentSubTransactionId(), &bytes);
	}
	buffer->target->reservation = Min(buffer->nrows, ROW_GROUP_ROWS_MAX) * RESERVATION_GROWTH;
	storing = NULL;

	if (record.first_row + record.row_span < reserved_end)
	{
		space_lock_shared(relation);
		space_return_rows(relation, record.first_row + record.row_span, reserved_end);
		space_unlock_shared(relation);
	}
	group_catalog_close(catalog);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
}

static void
store_buffer(WriteBuffer *buffer, Relation relation, bool is_final)
{
	store_rows(buffer, relation, is_final);
	forget_buffer(buffer);
}

/*
 * The same by OID; false if the table was dropped.  Its rows are kept: the
 * subtransaction that dropped it may still be rolled back.
 */
static bool
store_buffer_by_oid(WriteBuffer *buffer, bool is_final)
{
	Relation relation = try_relation_open(buffer->relid, RowExclusiveLock);

	if (relation == NULL)
		return false;
	store_buffer(buffer, relation, is_final);
	relation_close(relation, NoLock);
	return true;
}

static void
store_transaction(void)
{
	while (!dlist_is_empty(&all_buffers))
	{
		WriteBuffer *buffer = dlist_head_element(WriteBuffer, all, &all_buffers);

		if (!store_buffer_by_oid(buffer, true))
			forget_buffer(buffer);
	}
}

static void
store_subtransaction(SubTransactionId subid)
{
	dlist_mutable_iter iter;

	/* storing one buffer neither makes nor removes others */
	dlist_foreach_modify(iter, &all_buffers)
	{
		WriteBuffer *buffer = dlist_container(WriteBuffer, all, iter.cur);

		/* rows and the drop of their table end the same way from here on */
		if (buffer->subid == subid && !store_buffer_by_oid(buffer, false))
			forget_buffer(buffer);
	}
}

static int
compare_by_memory(const ListCell *left, const ListCell *right)
{
	const WriteBuffer *a = lfirst(left);
	const WriteBuffer *b = lfirst(right);

	return a->memory > b->memory ? -1 : a->memory < b->memory;
}

/* Stores the largest buffers until the session's memory suffices. */
static void
store_largest(void)
{
	List *buffers = NIL;
	dlist_iter iter;
	ListCell *cell;

	dlist_foreach(iter, &all_buffers)
		buffers = lappend(buffers, dlist_container(WriteBuffer, all, iter.cur));
	list_sort(buffers, compare_by_memory);
	foreach(cell, buffers)
	{
		WriteBuffer *buffer = lfirst(cell);

		if (buffered_memory <= (uint64) columnar_write_memory * 1024)
			break;
		if (!store_buffer_by_oid(buffer, false))
		{
			/* not counted, or every row from now on would come here */
			buffered_memory -= buffer->memory;
			buffer->memory = 0;
		}
	}
	list_free(buffers);
}

void
write_buffer_flush(Relation relation)
{
	WriteTarget *target = find_target(RelationGetRelid(relation));
	WriteBuffer *next;

	/* storing one buffer neither makes nor removes others */
	for (WriteBuffer *buffer = target ? target->buffers : NULL; buffer != NULL; buffer = next)
	{
		next = buffer->next;
		/* the record of a buffer without rows is deleted, which parallel mode forbids */
		if (buffer->nremoved < buffer->nrows || !IsInParallelMode())
			store_buffer(buffer, relation, false);
	}
}

void
write_buffer_discard(Relation relation)
{
	WriteTarget *target;

	while ((target = find_target(RelationGetRelid(relation))) != NULL && target->buffers != NULL)
		forget_buffer(target->buffers);
}

/* ---- beginning and growing --------------------------------------------------------------------- */

static WriteTarget *
use_target(Oid relid)
{
	WriteTarget *target;
	bool found;

	if (targets == NULL)
	{
		HASHCTL control = {.keysize = sizeof(Oid), .entrysize = sizeof(WriteTarget)};

		control.hcxt = TopTransactionContext;
		targets = hash_create("columnar write buffers", 64, &control,
							  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	target = hash_search(targets, &relid, HASH_ENTER, &found);
	if (!found)
	{
		target->buffers = NULL;
		target->reservation = 0;
	}
	return target;
}

/* A buffer without rows and without a record. */
static WriteBuffer *
make_buffer(Relation relation)
{
	MemoryContext context = AllocSetContextCreate(TopTransactionContext, "columnar write buffer",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	WriteBuffer *buffer = palloc0(sizeof(WriteBuffer));

	buffer->relid = RelationGetRelid(relation);
	buffer->subid = GetCurrentSubTransactionId();
	buffer->file = compat_file_locator(relation);
	buffer->context = context;
	buffer->checked = true;
	buffer->types = row_group_cache_types(relation, RelationGetDescr(relation));
	buffer->natts = RelationGetDescr(relation)->natts;
	buffer->columns = palloc0(sizeof(ColumnValues) * Max(buffer->natts, 1));
	for (int i = 0; i < buffer->natts; i++)
	{
		const ColumnType *type = row_group_cache_type(buffer->types, i + 1);

		if (type != NULL)
			column_values_init(&buffer->columns[i], type);
	}
	MemoryContextSwitchTo(caller);
	return buffer;
}

/*
 * Begins a buffer, in the place of an emptied one if that is not NULL: reserves row numbers by a
 * record of the current subtransaction.
 */
static WriteBuffer *
begin_buffer(Relation relation, CommandId cid, bool bulk, WriteBuffer *emptied)
{
	WriteTarget *target = use_target(RelationGetRelid(relation));
	WriteBuffer *buffer = emptied ? emptied : make_buffer(relation);
	MemoryContext caller;
	GroupRecord *record = &buffer->record;
	uint32 reservation = Max(target->reservation,
							 bulk ? FIRST_BULK_RESERVATION : FIRST_RESERVATION);
	GroupCatalog *catalog = group_catalog_open(relation, RowExclusiveLock);

	caller = MemoryContextSwitchTo(buffer->context);
	buffer->options = options_of_table(relation);
	MemoryContextSwitchTo(caller);
	buffer->first_command = buffer->command = cid;

	record->version = FORMAT_VERSION;
	record->state = GROUP_OPEN;
	record->first_block = InvalidBlockNumber;
	record->natts = buffer->natts;
	record->row_span = Min(reservation, buffer->options->row_group_rows);

	(void) GetCurrentTransactionId();
	space_lock_shared(relation);
	record->first_row = space_take_rows(relation, record->row_span, &record->group_id);
	group_catalog_insert(catalog, record, cid, &buffer->tid);
	space_unlock_shared(relation);
	group_catalog_close(catalog);

	buffer->target = target;
	buffer->next = target->buffers;
	target->buffers = buffer;
	dlist_push_tail(&all_buffers, &buffer->all);
	return last_used = buffer;
}

/* Empties a buffer that was stored, in the place of forgetting it. */
static void
empty_buffer(WriteBuffer *buffer)
{
	detach_buffer(buffer);
	buffered_memory -= buffer->memory;
	buffer->memory = 0;
	for (int i = 0; i < buffer->natts; i++)
		if (buffer->columns[i].type != NULL)
			column_values_reset(&buffer->columns[i]);
	memset(&buffer->record, 0, sizeof(buffer->record));
	buffer->nrows = buffer->nremoved = 0;
	buffer->removed = NULL;
	buffer->bytes = 0;
	buffer->nruns = 0;
	buffer->command_first = buffer->command_rows = 0;
}

/* Reserves more row numbers behind those of the buffer; false if somebody else has them. */
static bool
extend_reservation(WriteBuffer *buffer, Relation relation)
{
	GroupCatalog *catalog = group_catalog_open(relation, RowExclusiveLock);
	GroupRecord record = buffer->record;
	uint64 end = record.first_row + record.row_span;
	bool extended;

	record.row_span = Min((uint64) buffer->nrows * RESERVATION_GROWTH,
						  (uint64) buffer->options->row_group_rows);
	space_lock_shared(relation);
	extended = space_extend_rows(relation, end, record.first_row + record.row_span - end);
	if (extended)
	{
		group_catalog_overwrite(catalog, &buffer->tid, &record);
		buffer->record = record;
	}
	space_unlock_shared(relation);
	group_catalog_close(catalog);
	return extended;
}

/* Can a row of this command be appended to the buffer, or must it be stored first? */
static bool
has_room(WriteBuffer *buffer, Relation relation, CommandId cid)
{
	if (!buffer->checked)
	{
		if (!row_group_cache_is_current(buffer->types, relation))
			return false;
		buffer->checked = true;
	}
	if (buffer->nrows >= buffer->options->row_group_rows || buffer->bytes >= ROW_GROUP_BYTES_MAX)
		return false;
	if (cid != buffer->command && !write_buffer_begin_command(buffer, cid))
		return false;
	return buffer->nrows < buffer->record.row_span || extend_reservation(buffer, relation);
}

/* A buffer with room for a row of this command. */
static inline WriteBuffer *
use_buffer(Relation relation, CommandId cid, bool bulk)
{
	WriteBuffer *buffer;
	WriteBuffer *emptied = NULL;

	if (unlikely(IsParallelWorker()))
		ereport(ERROR, (errcode(ERRCODE_INVALID_TRANSACTION_STATE),
						errmsg("cannot insert tuples in a parallel worker")));
	if (unlikely(buffered_memory > (uint64) columnar_write_memory * 1024))
		store_largest();

	buffer = find_buffer(RelationGetRelid(relation), GetCurrentSubTransactionId());
	if (buffer != NULL && unlikely(!has_room(buffer, relation, cid)))
	{
		store_rows(buffer, relation, false);
		/* memory for rows to come, of a load that has no other table */
		if (buffer->checked && buffered_memory == buffer->memory)
			empty_buffer(emptied = buffer);
		else
			forget_buffer(buffer);
		buffer = NULL;
	}
	if (buffer == NULL)
		buffer = begin_buffer(relation, cid, bulk, emptied);
	return buffer;
}

/* Counts rows that were added to the columns. */
static inline void
add_rows(WriteBuffer *buffer, Relation relation, uint32 nrows)
{
	uint64 memory = MemoryContextMemAllocated(buffer->context, false);
	uint64 bytes = 0;

	for (int i = 0; i < buffer->natts; i++)
		bytes += buffer->columns[i].bytes.length;
	buffer->nrows += nrows;
	buffer->command_rows += nrows;
	buffer->bytes = bytes + (uint64) buffer->nrows * buffer->natts * sizeof(int64);
	buffered_memory += memory - buffer->memory;
	buffer->memory = memory;

	if (unlikely(is_committing))
		store_buffer(buffer, relation, true);
}

uint64
write_buffer_append(Relation relation, TupleTableSlot *slot, CommandId cid, bool bulk)
{
	WriteBuffer *buffer = use_buffer(relation, cid, bulk);
	uint64 row = buffer->record.first_row + buffer->nrows;

	slot_getallattrs(slot);
	if (unlikely(slot->tts_nvalid < buffer->natts))
		elog(ERROR, "row has %d columns in place of %d", slot->tts_nvalid, buffer->natts);
	for (int i = 0; i < buffer->natts; i++)
	{
		ColumnValues *column = &buffer->columns[i];

		if (column->type == NULL)
			continue;
		column_values_append(column, slot->tts_values[i], slot->tts_isnull[i]);
	}
	add_rows(buffer, relation, 1);
	return row;
}

void
write_buffer_lend(Relation relation, CommandId cid, WriteRoom *room)
{
	WriteBuffer *buffer = use_buffer(relation, cid, true);

	room->buffer = buffer;
	room->columns = buffer->columns;
	room->natts = buffer->natts;
	room->nrows = Min(buffer->record.row_span, buffer->options->row_group_rows) - buffer->nrows;
}

void
write_buffer_take_back(Relation relation, const WriteRoom *room, uint32 nrows)
{
	add_rows(room->buffer, relation, nrows);
}

/* ---- taking back, speculation ------------------------------------------------------------------ */

static void
remove_row(WriteBuffer *buffer, uint32 position)
{
	MemoryContext caller = MemoryContextSwitchTo(buffer->context);

	buffer->removed = bms_add_member(buffer->removed, (int) position);
	buffer->nremoved++;
	buffer->command_rows--;
	MemoryContextSwitchTo(caller);
}

/* Writes the token into the record of the row's group, which was stored in between. */
static void
set_token_of_stored(GroupCatalog *catalog, uint64 row, uint32 token)
{
	GroupEntry entry;

	if (!group_catalog_find(catalog, row, SnapshotSelf, &entry))
		elog(ERROR, "row %llu of table \"%s\" is in no row group", (unsigned long long) row,
			 RelationGetRelationName(catalog->relation));
	entry.record.speculative_row = token != 0 ? row : 0;
	entry.record.speculative_token = token;
	group_catalog_overwrite(catalog, &entry.tid, &entry.record);
}

static void
set_token(Relation relation, WriteBuffer *buffer, uint64 row, uint32 token)
{
	GroupCatalog *catalog = group_catalog_open(relation, RowExclusiveLock);

	if (buffer == NULL)
		set_token_of_stored(catalog, row, token);
	else
	{
		buffer->record.speculative_row = token != 0 ? row : 0;
		buffer->record.speculative_token = token;
		group_catalog_overwrite(catalog, &buffer->tid, &buffer->record);
	}
	group_catalog_close(catalog);
}

void
write_buffer_set_speculative(Relation relation, uint64 row, uint32 token)
{
	set_token(relation, find_buffer_of_row(RelationGetRelid(relation), row), row, token);
}

void
write_buffer_end_speculative(Relation relation, uint64 row, bool killed)
{
	WriteBuffer *buffer = find_buffer_of_row(RelationGetRelid(relation), row);

	/*
	 * The caller has killed the row by a vector already, so leaving it out of the
	 * group only saves its place; a row of a finished command stays.
	 */
	if (killed && buffer != NULL && row - buffer->record.first_row >= buffer->command_first)
		remove_row(buffer, (uint32) (row - buffer->record.first_row));
	set_token(relation, buffer, row, 0);
}

/* ---- reading back ------------------------------------------------------------------------------ */

bool
write_buffer_fetch(Relation relation, uint64 row, TupleTableSlot *slot, CommandId *cid)
{
	WriteBuffer *buffer = find_buffer_of_row(RelationGetRelid(relation), row);
	TupleDesc descriptor = RelationGetDescr(relation);
	uint32 position;

	if (buffer == NULL)
		return false;
	position = (uint32) (row - buffer->record.first_row);
	*cid = write_buffer_find_command(buffer, position);
	if (slot == NULL)
		return true;

	ExecClearTuple(slot);
	for (int i = 0; i < slot->tts_tupleDescriptor->natts; i++)
	{
		if (i >= buffer->natts)
			slot->tts_values[i] = getmissingattr(descriptor, i + 1, &slot->tts_isnull[i]);
		else if (buffer->columns[i].type == NULL)
		{
			slot->tts_values[i] = (Datum) 0;
			slot->tts_isnull[i] = true;
		}
		else
			slot->tts_values[i] = column_values_datum(&buffer->columns[i], position,
													  &slot->tts_isnull[i]);
	}
	ExecStoreVirtualTuple(slot);
	return true;
}

/* ---- transactions ------------------------------------------------------------------------------ */

static void
end_transaction(XactEvent event, void *argument)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			store_transaction();
			is_committing = true;
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			Assert(dlist_is_empty(&all_buffers));
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			forget_transaction();
			break;
	}
}

static void
end_subtransaction(SubXactEvent event, SubTransactionId subid, SubTransactionId parent,
				   void *argument)
{
	switch (event)
	{
		case SUBXACT_EVENT_PRE_COMMIT_SUB:
			store_subtransaction(subid);
			break;
		case SUBXACT_EVENT_ABORT_SUB:
			storing = NULL;
			forget_subtransaction(subid);
			break;
		case SUBXACT_EVENT_START_SUB:
		case SUBXACT_EVENT_COMMIT_SUB:
			break;
	}
}

static void
mark_unchecked(Datum argument, Oid relid)
{
	dlist_iter iter;

	dlist_foreach(iter, &all_buffers)
	{
		WriteBuffer *buffer = dlist_container(WriteBuffer, all, iter.cur);

		if (relid == InvalidOid || buffer->relid == relid)
			buffer->checked = false;
	}
}

void
write_buffer_initialize(void)
{
	RegisterXactCallback(end_transaction, NULL);
	RegisterSubXactCallback(end_subtransaction, NULL);
	CacheRegisterRelcacheCallback(mark_unchecked, (Datum) 0);
}
