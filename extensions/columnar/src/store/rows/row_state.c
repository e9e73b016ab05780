/*
 * row_state.c
 *		Reads and judges the state of one row.
 *
 * Two look-ups: the group record tells whether and by whom the row was inserted,
 * the vectors of its unit who deleted, updated or locked it.  All vectors of a
 * unit are neighbours in the catalog's index and are read in one go, so that a
 * writer also learns from this pass which vector of its own it can continue and
 * which number a new one gets; nothing about vectors is remembered between calls,
 * so nothing has to be forgotten when a subtransaction or a file goes away.
 *
 * Order of the tests about a transaction (own, running, committed) is the one
 * that heapam_visibility.c explains: a transaction leaves the list of running
 * ones after it has entered its commit.
 */
#include "postgres.h"

#include "store/rows/row_state.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xact.h"
#include "port/pg_bitutils.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "store/rows/write_buffer.h"

static RowWriter
judge_transaction(TransactionId xid)
{
	if (TransactionIdIsCurrentTransactionId(xid))
		return ROW_WRITER_OWN;
	if (TransactionIdIsInProgress(xid))
		return ROW_WRITER_RUNNING;
	if (TransactionIdDidCommit(xid))
		return ROW_WRITER_COMMITTED;
	return ROW_WRITER_ABORTED;
}

RowWriter
row_state_writer(HeapTuple tuple)
{
	if (HeapTupleHeaderXminCommitted(tuple->t_data))
		return ROW_WRITER_COMMITTED;
	if (HeapTupleHeaderXminInvalid(tuple->t_data))
		return ROW_WRITER_ABORTED;
	return judge_transaction(HeapTupleHeaderGetRawXmin(tuple->t_data));
}

RowWriter
row_state_holder(TransactionId holder)
{
	if (!TransactionIdIsNormal(holder) || !TransactionIdPrecedes(holder, ReadNextTransactionId()))
		return ROW_WRITER_ABORTED;
	if (TransactionIdIsCurrentTransactionId(holder))
		return ROW_WRITER_OWN;
	return TransactionIdIsInProgress(holder) ? ROW_WRITER_RUNNING : ROW_WRITER_COMMITTED;
}

/* ---- vectors ----------------------------------------------------------------------------------- */

bool
row_vector_parse(RowVector *vector, uint32 unit, const char *bytes, uint32 length)
{
	if (length != sizeof(RowVector))
		return false;
	memcpy(vector, bytes, sizeof(RowVector));
	return vector->version == FORMAT_VERSION && vector->unit == unit &&
		   vector->action >= VECTOR_DELETE && vector->action <= VECTOR_LOCK &&
		   vector->mode <= LockTupleExclusive;
}

void
row_state_read_vector(RowVector *vector, Relation relation, uint32 unit, const char *bytes,
					  uint32 length)
{
	if (!row_vector_parse(vector, unit, bytes, length))
		ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
						errmsg("row versions of relation \"%s\" are damaged",
							   RelationGetRelationName(relation)),
						errdetail("A row vector of unit %u has %u bytes or invalid fields.", unit,
								  length)));
}

uint64
row_vector_successor(const RowVector *vector, uint64 row)
{
	uint32 bit = row % UNIT_ROWS;
	uint64 before = 0;

	for (uint32 i = 0; i < bit / 64; i++)
		before += pg_popcount64(vector->bits[i]);
	before += pg_popcount64(vector->bits[bit / 64] & ((UINT64CONST(1) << (bit % 64)) - 1));
	return vector->successor + before;
}

typedef struct VectorReader
{
	RowState *state;
	Relation relation;
	const VectorKey *key;
} VectorReader;

/* Where RowState.locks lies: used again by each read, as rows are changed in long-lived contexts. */
static RowLock *lock_space = NULL;
static int lock_space_size = 0;

static void
add_lock(RowState *state, TransactionId holder, LockTupleMode mode)
{
	if (state->nlocks == lock_space_size)
	{
		int size = Max(8, lock_space_size * 2);

		if (lock_space == NULL)
			lock_space = MemoryContextAlloc(TopMemoryContext, sizeof(RowLock) * size);
		else
			lock_space = repalloc(lock_space, sizeof(RowLock) * size);
		lock_space_size = size;
	}
	state->locks = lock_space;
	state->locks[state->nlocks++] = (RowLock){.holder = holder, .mode = mode};
}

static bool
matches_key(const VectorKey *key, HeapTuple tuple, const RowVector *vector)
{
	if (HeapTupleHeaderXminFrozen(tuple->t_data) ||
		HeapTupleHeaderGetRawXmin(tuple->t_data) != key->xid || vector->action != key->action ||
		vector->mode != key->mode)
		return false;
	if (vector->action == VECTOR_LOCK)
		return vector->holder == key->holder;
	return HeapTupleHeaderGetCmin(tuple->t_data) == key->cid;
}

static void
note_lock(VectorReader *reader, RowWriter writer, HeapTuple tuple, const RowVector *vector)
{
	RowState *state = reader->state;
	bool inherited = vector->holder != HeapTupleHeaderGetRawXmin(tuple->t_data);
	RowWriter holder = inherited ? row_state_holder(vector->holder) : writer;

	if (holder == ROW_WRITER_OWN)
	{
		if (!state->own_lock || vector->mode > state->own_mode)
			state->own_mode = vector->mode;
		state->own_lock = true;
	}
	else if (holder == ROW_WRITER_RUNNING)
		add_lock(state, vector->holder, (LockTupleMode) vector->mode);
}

/* A row ends once; a second vector that says so is a copy of the first, and not who did it. */
static void
note_change(RowState *state, RowWriter writer, HeapTuple tuple, const RowVector *vector)
{
	if (state->changed && state->changer == ROW_WRITER_COMMITTED)
		return;
	state->changed = true;
	state->changer = writer;
	state->action = (VectorAction) vector->action;
	state->mode = (LockTupleMode) vector->mode;
	state->xmax = HeapTupleHeaderGetXmin(tuple->t_data);
	state->cmax = writer == ROW_WRITER_OWN ? HeapTupleHeaderGetCmin(tuple->t_data)
										   : InvalidCommandId;
	state->successor = vector->action == VECTOR_UPDATE ? row_vector_successor(vector, state->row)
													   : state->row;
}

static bool
note_vector(void *argument, HeapTuple tuple, Buffer buffer, int32 number, const char *bytes,
			uint32 length)
{
	VectorReader *reader = argument;
	RowState *state = reader->state;
	RowVector vector;
	RowWriter writer;

	row_state_read_vector(&vector, reader->relation, state->row / UNIT_ROWS, bytes, length);

	if (number == state->free_number)
		state->free_number++;
	if (reader->key != NULL && matches_key(reader->key, tuple, &vector) &&
		(!state->found || vector.successor > state->vector.successor))
	{
		state->found = true;
		state->tid = tuple->t_self;
		state->vector = vector;
	}

	if (!row_vector_contains(&vector, state->row))
		return true;
	writer = row_state_writer(tuple);
	if (writer == ROW_WRITER_ABORTED)
		return true;
	if (vector.action == VECTOR_KILL)
		state->killed = true;
	else if (vector.action == VECTOR_LOCK)
		note_lock(reader, writer, tuple, &vector);
	else
		note_change(state, writer, tuple, &vector);
	return true;
}

void
row_state_read_vectors(RowState *state, GroupCatalog *catalog, uint64 row, const VectorKey *key)
{
	VectorReader reader = {.state = state, .relation = catalog->relation, .key = key};

	state->row = row;
	state->killed = false;
	state->changed = false;
	state->own_lock = false;
	state->locks = NULL;
	state->nlocks = 0;
	state->found = false;
	state->free_number = 0;
	group_catalog_each_vector(catalog, row / UNIT_ROWS, note_vector, &reader);
}

/* ---- presence ---------------------------------------------------------------------------------- */

/* The command that inserted a row of an own, stored group. */
static CommandId
find_command(const GroupEntry *entry, uint64 row)
{
	uint64 position = row - entry->record.first_row;

	for (int i = 0; i < entry->record.nruns; i++)
	{
		const CommandRun *run = &entry->record.runs[i];
		uint64 rows = (uint64) run->rows * run->repeats;

		if (position < rows)
			return run->first + run->step * (position / run->rows);
		position -= rows;
	}
	return entry->cmin;
}

bool
row_state_find_group(GroupCatalog *catalog, uint64 row, Snapshot snapshot, GroupEntry *entry)
{
	Snapshot latest;
	bool found;

	if (group_catalog_find(catalog, row, snapshot, entry))
		return true;
	if (catalog->toast == NULL || IsInParallelMode())
		return false;
	latest = RegisterSnapshot(GetLatestSnapshot());
	found = group_catalog_find(catalog, row, latest, entry);
	UnregisterSnapshot(latest);
	return found;
}

void
row_state_read_presence(RowState *state, GroupCatalog *catalog, uint64 row, CommandId cid,
						Snapshot snapshot)
{
	GroupEntry entry;
	bool own;

	state->row = row;
	state->presence = ROW_UNSEEN;
	state->xmin = InvalidTransactionId;
	state->cmin = InvalidCommandId;

	if (!row_state_find_group(catalog, row, SnapshotSelf, &entry))
	{
		if (snapshot != InvalidSnapshot && IsMVCCSnapshot(snapshot) &&
			group_catalog_find(catalog, row, snapshot, &entry))
			state->presence = ROW_GONE;
		return;
	}

	own = TransactionIdIsCurrentTransactionId(entry.xmin);
	if (entry.record.state == GROUP_OPEN)
	{
		if (!own || !write_buffer_fetch(catalog->relation, row, NULL, &state->cmin))
			return;
	}
	else if (!(entry.record.flags & GROUP_HAS_ROW_NUMBERS) &&
			 row - entry.record.first_row >= entry.record.nrows)
		return;
	else if (own)
		state->cmin = find_command(&entry, row);

	state->xmin = entry.xmin;
	state->presence = own && state->cmin >= cid ? ROW_TOO_NEW : ROW_PRESENT;
}

/* ---- judgement --------------------------------------------------------------------------------- */

LOCKMODE
row_lock_mode(LockTupleMode mode)
{
	switch (mode)
	{
		case LockTupleKeyShare:
			return AccessShareLock;
		case LockTupleShare:
			return RowShareLock;
		case LockTupleNoKeyExclusive:
			return ExclusiveLock;
		case LockTupleExclusive:
			return AccessExclusiveLock;
	}
	elog(ERROR, "unrecognized row lock mode %d", (int) mode);
}

bool
row_lock_conflicts(LockTupleMode one, LockTupleMode other)
{
	return DoLockModesConflict(row_lock_mode(one), row_lock_mode(other));
}

TM_Result
row_state_judge(const RowState *state, CommandId cid)
{
	if (state->killed || state->presence == ROW_UNSEEN || state->presence == ROW_TOO_NEW)
		return TM_Invisible;
	if (state->changed)
	{
		if (state->changer == ROW_WRITER_OWN)
			return state->cmax >= cid ? TM_SelfModified : TM_Invisible;
		if (state->changer == ROW_WRITER_RUNNING)
			return TM_BeingModified;
		return state->action == VECTOR_DELETE ? TM_Deleted : TM_Updated;
	}
	if (state->presence == ROW_GONE)
		return TM_Deleted;
	return state->own_lock || state->nlocks > 0 ? TM_BeingModified : TM_Ok;
}

TransactionId
row_state_conflict(const RowState *state, LockTupleMode mode)
{
	if (state->changed && state->changer == ROW_WRITER_RUNNING &&
		row_lock_conflicts(mode, state->mode))
		return state->xmax;
	for (int i = 0; i < state->nlocks; i++)
	{
		if (row_lock_conflicts(mode, state->locks[i].mode))
			return state->locks[i].holder;
	}
	return InvalidTransactionId;
}

void
row_state_explain(const RowState *state, TM_Result result, TM_FailureData *failure)
{
	row_number_to_tid(state->row, &failure->ctid);
	failure->xmax = InvalidTransactionId;
	failure->cmax = InvalidCommandId;
	if (!state->changed)
		return;
	if (state->action == VECTOR_MOVE)
		ItemPointerSetMovedPartitions(&failure->ctid);
	else if (state->action == VECTOR_UPDATE)
		row_number_to_tid(state->successor, &failure->ctid);
	failure->xmax = state->xmax;
	if (result == TM_SelfModified)
		failure->cmax = state->cmax;
}
