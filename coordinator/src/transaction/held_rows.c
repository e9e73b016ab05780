/*
 * held_rows.c
 *		Rows of workers that core's executor changes one by one, or shows to triggers: what their tids stand for.
 *
 * A number is that of the statement's rows (HeldRows) and an index in them, written as a tid: 15 bits and 32.  Offset numbers
 * are from 1 to 2^15, far from those that mean something special to core.
 *
 * How long a row is held depends on who may ask for it.  AFTER ROW triggers do so at the end of their statement, deferred ones
 * at that of the transaction, and what core joins here at any time; then all rows are held, up to work_mem in memory and beyond
 * it in a file.  Else core asks only for the row that it is changing.
 *
 * A row may be changed once.  The same one may be held several times, under several numbers, if the statement has joined it on
 * the workers (may_repeat); core that joins it here asks with one number.
 *
 * Memory: a context of each HeldRows below TopTransactionContext.  An aborted subtransaction takes those that it began.
 */
#include "postgres.h"

#include "transaction/held_rows.h"

#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/buffile.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "cluster/fired_trigger.h"
#include "server/statement_depth.h"
#include "values/row_copy.h"

#define INDEX_BITS_IN_BLOCK 17
#define INDEX_BITS_IN_OFFSET 15
#define MAX_HELD_ROWS (1 << (32 - INDEX_BITS_IN_BLOCK)) /* of one transaction */

/* A row that a statement may bring again. */
typedef struct ChangedRow
{
	HeldPlace place; /* the hash key: without padding, which is zero */
	CommandId changed_by;
} ChangedRow;

typedef struct HeldRow
{
	HeldPlace place;
	CommandId changed_by;
	ChangedRow *change; /* knows it instead where the row may come again; else NULL */
	MinimalTuple tuple; /* NULL: it is in the file */
	int file_number;	/* where */
	off_t file_position;
} HeldRow;

struct HeldRows
{
	MemoryContext context;
	int id;
	Oid relation;
	int depth;
	SubTransactionId subtransaction;
	bool all;	   /* rows are held until the end; else the last one */
	bool deferred; /* ... of the transaction */
	uint32 count;
	uint32 capacity;
	HeldRow *rows; /* all of them, or the last one */
	HTAB *changed; /* ChangedRow; NULL: no row comes again */
	Size memory;
	BufFile *file;
	int end_number; /* where the next row goes */
	off_t end_position;
};

/* By id; NULL where an id is free. */
static HeldRows **statements = NULL;
static int statement_count = 0;
static int statement_capacity = 0;

/* ---------------------------------------------------------------- numbers */

static void
encode_number(ItemPointer tid, int id, uint32 index)
{
	ItemPointerSet(tid, ((BlockNumber) id << INDEX_BITS_IN_BLOCK) | (index >> INDEX_BITS_IN_OFFSET),
				   (index & ((1 << INDEX_BITS_IN_OFFSET) - 1)) + 1);
}

static HeldRow *
find_row(Relation relation, const ItemPointerData *tid, HeldRows **found)
{
	BlockNumber block = ItemPointerGetBlockNumberNoCheck(tid);
	int id = block >> INDEX_BITS_IN_BLOCK;
	uint32 index = ((block & ((1 << INDEX_BITS_IN_BLOCK) - 1)) << INDEX_BITS_IN_OFFSET) +
				   ItemPointerGetOffsetNumberNoCheck(tid) - 1;
	HeldRows *rows;

	if (!ItemPointerIsValid(tid) || id >= statement_count || statements[id] == NULL)
		return NULL;
	rows = statements[id];
	if (rows->relation != RelationGetRelid(relation) || index >= rows->count)
		return NULL;
	*found = rows;
	if (rows->all)
		return &rows->rows[index];
	return index == rows->count - 1 ? &rows->rows[0] : NULL;
}

/* ---------------------------------------------------------------- statements */

/* Do triggers see rows after the statement, or even deferred to the transaction's end? */
static bool
has_after_triggers(Relation relation, uint16 events, bool *deferred)
{
	const TriggerDesc *desc = relation->trigdesc;
	bool found = false;

	for (int i = 0; desc != NULL && i < desc->numtriggers; i++)
	{
		const Trigger *trigger = &desc->triggers[i];

		if (!fired_trigger_is_here(trigger, true) || !TRIGGER_FOR_ROW(trigger->tgtype) ||
			!TRIGGER_FOR_AFTER(trigger->tgtype) || (trigger->tgtype & events) == 0)
			continue;
		found = true;
		*deferred |= trigger->tgdeferrable;
	}
	return found;
}

static int
take_id(void)
{
	int id = 0;

	while (id < statement_count && statements[id] != NULL)
		id++;
	if (id == MAX_HELD_ROWS)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("too many statements of one transaction change rows here"),
						errdetail("The rows of %d of them are held for triggers that are still to "
								  "be fired.",
								  MAX_HELD_ROWS)));
	if (id == statement_capacity)
	{
		statement_capacity = Max(8, 2 * statement_capacity);
		if (statements == NULL)
			statements = MemoryContextAlloc(TopMemoryContext,
											statement_capacity * sizeof(HeldRows *));
		else
			statements = repalloc(statements, statement_capacity * sizeof(HeldRows *));
	}
	statement_count = Max(statement_count, id + 1);
	statements[id] = NULL;
	return id;
}

static void
create_changed(HeldRows *rows)
{
	HASHCTL control = {
		.keysize = sizeof(HeldPlace), .entrysize = sizeof(ChangedRow), .hcxt = rows->context};

	rows->changed = hash_create("held rows", 256, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

static HeldRows *
create_rows(Relation relation, bool all, bool deferred)
{
	int id = take_id();
	MemoryContext context = AllocSetContextCreate(TopTransactionContext, "held rows",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	HeldRows *rows = palloc0(sizeof(HeldRows));

	rows->context = context;
	rows->id = id;
	rows->relation = RelationGetRelid(relation);
	rows->depth = statement_depth;
	rows->subtransaction = GetCurrentSubTransactionId();
	rows->all = all;
	rows->deferred = deferred;
	rows->capacity = all ? 64 : 1;
	rows->rows = palloc0(rows->capacity * sizeof(HeldRow));
	MemoryContextSwitchTo(old);
	statements[id] = rows;
	return rows;
}

/*
 * The rows that this statement, or for deferred triggers the transaction, holds of a table already.  Nobody asks any more for
 * those from before an ALTER TABLE, which core refuses while triggers are to be fired.
 */
static HeldRows *
find_rows(Relation relation, bool deferred)
{
	for (int i = statement_count - 1; i >= 0; i--)
	{
		HeldRows *rows = statements[i];

		if (rows != NULL && rows->relation == RelationGetRelid(relation) && rows->all &&
			rows->changed == NULL && rows->deferred == deferred &&
			rows->subtransaction == GetCurrentSubTransactionId() &&
			(deferred || rows->depth == statement_depth))
			return rows;
	}
	return NULL;
}

HeldRows *
held_rows_begin(Relation relation, bool may_repeat, bool keep)
{
	bool deferred = false;
	bool all = has_after_triggers(relation, TRIGGER_TYPE_UPDATE | TRIGGER_TYPE_DELETE, &deferred) ||
			   keep;
	HeldRows *rows = all && !may_repeat ? find_rows(relation, deferred) : NULL;

	if (rows == NULL)
		rows = create_rows(relation, all, deferred);
	if (may_repeat)
		create_changed(rows);
	return rows;
}

static void
forget(int id)
{
	HeldRows *rows = statements[id];

	if (rows->file != NULL)
		BufFileClose(rows->file);
	statements[id] = NULL;
	MemoryContextDelete(rows->context);
	while (statement_count > 0 && statements[statement_count - 1] == NULL)
		statement_count--;
}

/* ---------------------------------------------------------------- rows */

static void
seek(HeldRows *rows, const HeldRow *row)
{
	if (BufFileSeek(rows->file, row->file_number, row->file_position, SEEK_SET) != 0)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not seek in a temporary file")));
}

static void
write_to_file(HeldRows *rows, HeldRow *row, MinimalTuple tuple)
{
	if (rows->file == NULL)
	{
		ResourceOwner owner = CurrentResourceOwner;
		MemoryContext old = MemoryContextSwitchTo(rows->context);

		/* it lives as long as we do, which no statement's end is to change */
		CurrentResourceOwner = TopTransactionResourceOwner;
		rows->file = BufFileCreateTemp(false);
		CurrentResourceOwner = owner;
		MemoryContextSwitchTo(old);
	}
	row->file_number = rows->end_number;
	row->file_position = rows->end_position;
	seek(rows, row);
	BufFileWrite(rows->file, tuple, tuple->t_len);
	BufFileTell(rows->file, &rows->end_number, &rows->end_position);
}

static void
read_bytes(HeldRows *rows, void *bytes, size_t length)
{
	if (BufFileRead(rows->file, bytes, length) != length)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not read a temporary file")));
}

static MinimalTuple
read_from_file(HeldRows *rows, const HeldRow *row)
{
	uint32 length;
	MinimalTuple tuple;

	seek(rows, row);
	read_bytes(rows, &length, sizeof(length));
	tuple = palloc(length);
	tuple->t_len = length;
	read_bytes(rows, (char *) tuple + sizeof(length), length - sizeof(length));
	return tuple;
}

/* Room for one more row. */
static HeldRow *
extend(HeldRows *rows)
{
	HeldRow *row;

	if (!rows->all)
	{
		row = &rows->rows[0];
		if (row->tuple != NULL)
			pfree(row->tuple);
	}
	else
	{
		if (rows->count == rows->capacity)
		{
			rows->capacity *= 2;
			rows->rows = repalloc_huge(rows->rows, rows->capacity * sizeof(HeldRow));
		}
		row = &rows->rows[rows->count];
	}
	if (rows->count == PG_UINT32_MAX)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("too many rows of distributed table \"%s\" are changed one by one",
							   get_rel_name(rows->relation)),
						errhint("Change the rows in several statements.")));
	memset(row, 0, sizeof(HeldRow));
	row->changed_by = InvalidCommandId;
	return row;
}

void
held_rows_add(HeldRows *rows, const HeldPlace *place, TupleTableSlot *slot, ItemPointer tid)
{
	HeldRow *row = extend(rows);
	MemoryContext old = MemoryContextSwitchTo(rows->context);
	MinimalTuple tuple = row_copy(slot);

	if (place != NULL)
	{
		row->place = *place;
		if (rows->changed != NULL)
		{
			HeldPlace key;
			bool found;

			memset(&key, 0, sizeof(key)); /* padding is compared, too */
			key.worker_id = place->worker_id;
			key.leaf = place->leaf;
			key.tid = place->tid;
			row->change = hash_search(rows->changed, &key, HASH_ENTER, &found);
			if (!found)
				row->change->changed_by = InvalidCommandId;
		}
	}
	if (rows->all && rows->memory > work_mem * (Size) 1024)
	{
		write_to_file(rows, row, tuple);
		pfree(tuple);
	}
	else
	{
		row->tuple = tuple;
		rows->memory += tuple->t_len;
	}
	MemoryContextSwitchTo(old);
	encode_number(tid, rows->id, rows->count++);
}

void
held_rows_add_new(Relation relation, int16 event, TupleTableSlot *slot, ItemPointer tid)
{
	bool deferred = false;
	HeldRows *rows;

	ItemPointerSetInvalid(tid);
	if (!has_after_triggers(relation, event, &deferred))
		return;
	rows = find_rows(relation, deferred);
	if (rows == NULL)
		rows = create_rows(relation, true, deferred);
	held_rows_add(rows, NULL, slot, tid);
}

bool
held_rows_fetch(Relation relation, const ItemPointerData *tid, TupleTableSlot *slot)
{
	HeldRows *rows;
	HeldRow *row = find_row(relation, tid, &rows);

	if (row == NULL)
		return false;
	if (row->tuple != NULL)
		ExecForceStoreMinimalTuple(row->tuple, slot, false);
	else
		ExecForceStoreMinimalTuple(read_from_file(rows, row), slot, true);
	slot->tts_tableOid = RelationGetRelid(relation);
	slot->tts_tid = *tid;
	return true;
}

const HeldPlace *
held_rows_place(Relation relation, const ItemPointerData *tid, CommandId *changed_by)
{
	HeldRows *rows;
	HeldRow *row = find_row(relation, tid, &rows);

	if (row == NULL || !OidIsValid(row->place.leaf))
		return NULL;
	*changed_by = row->change != NULL ? row->change->changed_by : row->changed_by;
	return &row->place;
}

void
held_rows_note_change(Relation relation, const ItemPointerData *tid, CommandId cid)
{
	HeldRows *rows;
	HeldRow *row = find_row(relation, tid, &rows);

	if (row->change != NULL)
		row->change->changed_by = cid;
	else
		row->changed_by = cid;
}

/* ---------------------------------------------------------------- ends */

bool
held_rows_exist(int depth)
{
	for (int i = 0; i < statement_count; i++)
	{
		if (statements[i] != NULL && statements[i]->depth >= depth)
			return true;
	}
	return false;
}

void
held_rows_end_statement(int depth)
{
	for (int i = statement_count - 1; i >= 0; i--)
	{
		if (statements[i] != NULL && !statements[i]->deferred &&
			(statements[i]->depth >= depth || depth <= 1))
			forget(i);
	}
}

/* Files and memory go with the transaction. */
void
held_rows_transaction_event(XactEvent event)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		statement_count = 0;
}

void
held_rows_subtransaction_event(SubXactEvent event, SubTransactionId mine, SubTransactionId parent)
{
	for (int i = statement_count - 1; i >= 0; i--)
	{
		if (statements[i] == NULL || statements[i]->subtransaction != mine)
			continue;
		if (event == SUBXACT_EVENT_ABORT_SUB)
			forget(i);
		else if (event == SUBXACT_EVENT_COMMIT_SUB)
			statements[i]->subtransaction = parent;
	}
}
