/*
 * row_version.c
 *		Deletes, updates and locks single rows, and tells who sees them.
 *
 * The rules are heapam's, row by row: who waits for whom, what is reported after
 * the wait, which locks survive.  Where heapam has the header of the tuple under
 * an exclusive buffer lock, we have the vectors of the row's unit under the unit
 * lock.  The pattern of every writer is
 *
 *		lock the unit, read the row's state, judge
 *		a conflict: unlock, queue for the row, wait for the transaction, start again
 *		else: set a bit, unlock
 *
 * so nothing that was read before a wait is used after it.
 *
 * Locks, in the order in which they are taken:
 *	 row	 heavyweight tuple lock; only by those who must wait, to keep them in
 *			 order of arrival (see heap_acquire_tuplock()); not taken by a holder of
 *			 a weaker lock on the row, for whom the queue would be a deadlock
 *	 unit	 heavyweight page lock unit + 1; never held during a wait for a
 *			 transaction.  A second one is taken after the first is released.
 * Both end with the (sub)transaction if an error passes.
 *
 * A LOCK vector is deleted by its inserter at once, so that VACUUM can remove it
 * when its holder has ended.  A KEY SHARE lock that an update copies to the new
 * version on behalf of another holder is deleted as well if the holder's id is
 * older than the updater's: the tuple then cannot be removed while the holder
 * runs, because that keeps the horizon at or below its id.  Else the copy stays
 * undeleted until compaction removes it: it could be removed while it counts.
 */
#include "postgres.h"

#include "store/rows/row_version.h"

#include "access/heapam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/predicate.h"
#include "utils/snapmgr.h"

#include "store/rows/own_deletes.h"
#include "store/rows/row_state.h"

/* ---- locks and waits --------------------------------------------------------------------------- */

static void
lock_unit(GroupCatalog *catalog, uint64 row)
{
	LockPage(catalog->relation, (BlockNumber) (row / UNIT_ROWS) + 1, ExclusiveLock);
}

static void
unlock_unit(GroupCatalog *catalog, uint64 row)
{
	UnlockPage(catalog->relation, (BlockNumber) (row / UNIT_ROWS) + 1, ExclusiveLock);
}

static void
raise_not_available(Relation relation)
{
	ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					errmsg("could not obtain lock on row in relation \"%s\"",
						   RelationGetRelationName(relation))));
}

/*
 * The row was there for the asking snapshot, nobody deleted or updated it, and now
 * its group is gone: columnar_recluster() gave it another number.  (A compaction only
 * drops rows that no snapshot sees.)  "Deleted" would lose the update.
 */
static void
raise_reclustered(Relation relation)
{
	ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					errmsg("could not serialize access due to concurrent recluster"),
					errdetail("Rows of table \"%s\" were moved after the query began.",
							  RelationGetRelationName(relation)),
					errhint("The transaction might succeed if retried.")));
}

/* Queues for the row; false: others are in the queue, and the policy is to skip. */
static bool
acquire_row_lock(Relation relation, uint64 row, LockTupleMode mode, LockWaitPolicy policy)
{
	ItemPointerData tid;

	row_number_to_tid(row, &tid);
	if (policy == LockWaitBlock)
	{
		LockTuple(relation, &tid, row_lock_mode(mode));
		return true;
	}
	if (compat_conditional_lock_tuple(relation, &tid, row_lock_mode(mode), policy == LockWaitError))
		return true;
	if (policy == LockWaitError)
		raise_not_available(relation);
	return false;
}

static void
release_row_lock(Relation relation, uint64 row, LockTupleMode mode)
{
	ItemPointerData tid;

	row_number_to_tid(row, &tid);
	UnlockTuple(relation, &tid, row_lock_mode(mode));
}

/* Waits for the end of a transaction; false: it still runs, and the policy is to skip. */
static bool
wait_for_transaction(Relation relation, uint64 row, TransactionId xid, LockWaitPolicy policy,
					 XLTW_Oper operation)
{
	ItemPointerData tid;

	if (policy == LockWaitBlock)
	{
		row_number_to_tid(row, &tid);
		XactLockTableWait(xid, relation, &tid, operation);
		return true;
	}
	if (compat_conditional_xact_wait(xid, policy == LockWaitError))
		return true;
	if (policy == LockWaitError)
		raise_not_available(relation);
	return false;
}

/* ---- setting bits ------------------------------------------------------------------------------ */

static void
set_bit(RowVector *vector, uint64 row)
{
	uint32 bit = row % UNIT_ROWS;

	vector->bits[bit / 64] |= UINT64CONST(1) << (bit % 64);
}

/* Does the mapping of an UPDATE vector stay right when the row is added to it? */
static bool
continues_vector(const RowVector *vector, uint64 row, uint64 successor)
{
	uint32 bit = row % UNIT_ROWS;

	if (row_vector_successor(vector, row) != successor)
		return false;
	if (vector->bits[bit / 64] >> (bit % 64) != 0)
		return false;
	for (uint32 i = bit / 64 + 1; i < lengthof(vector->bits); i++)
	{
		if (vector->bits[i] != 0)
			return false;
	}
	return true;
}

/* Inserts a vector with the row's bit.  The unit is locked. */
static void
insert_vector(GroupCatalog *catalog, uint64 row, const VectorKey *key, CommandId cid,
			  uint64 successor, int32 number)
{
	uint32 unit = row / UNIT_ROWS;
	RowVector vector;
	ItemPointerData tid;

	memset(&vector, 0, sizeof(vector));
	vector.successor = successor;
	vector.unit = unit;
	vector.holder = key->holder;
	vector.version = FORMAT_VERSION;
	vector.action = key->action;
	vector.mode = key->mode;
	set_bit(&vector, row);
	group_catalog_insert_vector(catalog, unit, number, &vector, sizeof(vector), cid, &tid);

	if (key->action == VECTOR_LOCK &&
		(key->holder == key->xid || TransactionIdPrecedes(key->holder, key->xid)))
		group_catalog_delete_own(catalog, &tid, cid);
}

/* Sets the row's bit in the vector that the state names, or in a new one.  The unit is locked. */
static void
set_row(GroupCatalog *catalog, RowState *state, const VectorKey *key, CommandId cid)
{
	if (!state->found)
		insert_vector(catalog, state->row, key, cid, 0, state->free_number);
	else if (!row_vector_contains(&state->vector, state->row))
	{
		set_bit(&state->vector, state->row);
		group_catalog_overwrite_vector(catalog, &state->tid, &state->vector, sizeof(state->vector));
	}
}

static VectorKey
make_lock_key(LockTupleMode mode)
{
	TransactionId xid = GetCurrentTransactionId();

	return (VectorKey){.xid = xid, .holder = xid, .action = VECTOR_LOCK, .mode = mode};
}

/* ---- DELETE and UPDATE ------------------------------------------------------------------------- */

/* An updating command leaves KEY SHARE locks alone, which then hold for the new version, too. */
static void
collect_holders(RowChange *change, const RowState *state)
{
	change->nholders = 0;
	change->holders = NULL;
	if (change->action != VECTOR_UPDATE || state->nlocks == 0)
		return;
	change->holders = palloc(sizeof(TransactionId) * state->nlocks);
	for (int i = 0; i < state->nlocks; i++)
		change->holders[change->nholders++] = state->locks[i].holder;
}

/*
 * Locks the unit with the row in a state that lets the change happen, or that
 * never will; waits in between.  Returns with the unit locked.
 */
static TM_Result
wait_to_change(RowChange *change, const VectorKey *key, Snapshot snapshot, bool wait,
			   RowState *state)
{
	GroupCatalog *catalog = change->catalog;
	XLTW_Oper operation = change->action == VECTOR_UPDATE ? XLTW_Update : XLTW_Delete;
	bool queued = false;
	TM_Result result;

	for (;;)
	{
		TransactionId conflict;

		lock_unit(catalog, change->row);
		row_state_read_vectors(state, catalog, change->row, key);
		row_state_read_presence(state, catalog, change->row, change->cid, snapshot);
		result = row_state_judge(state, change->cid);
		if (result != TM_BeingModified)
			break;
		conflict = row_state_conflict(state, change->mode);
		if (!TransactionIdIsValid(conflict))
		{
			result = TM_Ok;
			break;
		}
		if (!wait)
			break;

		unlock_unit(catalog, change->row);
		if (!queued && !state->own_lock)
			queued = acquire_row_lock(catalog->relation, change->row, change->mode, LockWaitBlock);
		(void) wait_for_transaction(catalog->relation, change->row, conflict, LockWaitBlock,
									operation);
		CHECK_FOR_INTERRUPTS();
	}

	/* the next in the queue finds the unit locked until the change is recorded */
	if (queued)
		release_row_lock(catalog->relation, change->row, change->mode);
	return result;
}

TM_Result
row_version_begin_change(RowChange *change, GroupCatalog *catalog, uint64 row, VectorAction action,
						 LockTupleMode mode, CommandId cid, Snapshot snapshot, Snapshot crosscheck,
						 bool wait, TM_FailureData *failure)
{
	const char *verb = action == VECTOR_UPDATE ? "update" : "delete";
	VectorKey key = {.cid = cid, .action = action, .mode = mode};
	RowState state;
	TM_Result result;

	if (IsInParallelMode())
		ereport(ERROR, (errcode(ERRCODE_INVALID_TRANSACTION_STATE),
						errmsg("cannot %s tuples during a parallel operation", verb)));
	key.xid = key.holder = GetCurrentTransactionId();

	memset(change, 0, sizeof(RowChange));
	change->catalog = catalog;
	change->row = row;
	change->action = action;
	change->mode = mode;
	change->cid = cid;

	result = wait_to_change(change, &key, snapshot, wait, &state);
	if (result == TM_Ok && crosscheck != InvalidSnapshot &&
		!row_version_visible(catalog, row, crosscheck, NULL))
		result = TM_Updated;

	if (result == TM_Ok)
	{
		/* with the unit locked until the change is there to be seen, as heap_delete() explains */
		CheckForSerializableConflictIn(catalog->toast, NULL, InvalidBlockNumber);
		CheckForSerializableConflictIn(catalog->relation, NULL, InvalidBlockNumber);
		collect_holders(change, &state);
		change->has_vector = state.found;
		change->vector_tid = state.tid;
		change->vector = state.vector;
		change->number = state.free_number;
		return TM_Ok;
	}

	unlock_unit(catalog, row);
	if (result == TM_Invisible)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("attempted to %s invisible tuple", verb)));
	if (result == TM_Deleted && !state.changed)
		raise_reclustered(catalog->relation);
	row_state_explain(&state, result, failure);
	return result;
}

/* Gives the new version a KEY SHARE lock that another transaction holds on the old one. */
static void
copy_lock(RowChange *change, uint64 successor, TransactionId holder)
{
	VectorKey key = make_lock_key(LockTupleKeyShare);
	RowState state;

	key.holder = holder;
	lock_unit(change->catalog, successor);
	row_state_read_vectors(&state, change->catalog, successor, &key);
	set_row(change->catalog, &state, &key, change->cid);
	unlock_unit(change->catalog, successor);
}

void
row_version_finish_change(RowChange *change, uint64 successor)
{
	GroupCatalog *catalog = change->catalog;

	if (change->has_vector && (change->action != VECTOR_UPDATE ||
							   continues_vector(&change->vector, change->row, successor)))
	{
		set_bit(&change->vector, change->row);
		group_catalog_overwrite_vector(catalog, &change->vector_tid, &change->vector,
									   sizeof(change->vector));
	}
	else
	{
		TransactionId xid = GetCurrentTransactionId();
		VectorKey key = {.xid = xid, .holder = xid, .action = change->action, .mode = change->mode};

		insert_vector(catalog, change->row, &key, change->cid, successor, change->number);
	}
	unlock_unit(catalog, change->row);

	/* nobody but lockers of KEY SHARE, who look here first, comes to the new version before we end */
	for (int i = 0; i < change->nholders; i++)
		copy_lock(change, successor, change->holders[i]);
	if (change->holders != NULL)
		pfree(change->holders);
	own_deletes_add(catalog->relation, change->row);
}

void
row_version_kill(GroupCatalog *catalog, uint64 row, CommandId cid)
{
	TransactionId xid = GetCurrentTransactionId();
	VectorKey key = {
		.xid = xid, .holder = xid, .cid = cid, .action = VECTOR_KILL, .mode = LockTupleExclusive};
	RowState state;

	lock_unit(catalog, row);
	row_state_read_vectors(&state, catalog, row, &key);
	set_row(catalog, &state, &key, cid);
	unlock_unit(catalog, row);
}

/* ---- locks ------------------------------------------------------------------------------------- */

/*
 * Locks the newer versions of a row, from the given one on, in a mode that does
 * not conflict with their having been updated (heap_lock_updated_tuple()).
 * TM_Updated or TM_Deleted: one of them was, in a conflicting mode.
 *
 * A version can be in another session's write buffer, without a record that we
 * could see: its number is enough.  Versions of an aborted update get a lock that
 * does no harm.
 */
static TM_Result
lock_successors(GroupCatalog *catalog, uint64 row, CommandId cid, LockTupleMode mode,
				LockWaitPolicy policy)
{
	VectorKey key = make_lock_key(mode);

	for (;;)
	{
		RowState state;
		TransactionId conflict;

		CHECK_FOR_INTERRUPTS();
		lock_unit(catalog, row);
		row_state_read_vectors(&state, catalog, row, &key);

		/* an own lock: from an earlier pass; then the next version is what matters */
		if (!state.own_lock && !(state.changed && state.changer == ROW_WRITER_OWN))
		{
			conflict = row_state_conflict(&state, mode);
			if (TransactionIdIsValid(conflict))
			{
				unlock_unit(catalog, row);
				if (!wait_for_transaction(catalog->relation, row, conflict, policy,
										  XLTW_LockUpdated))
					return TM_WouldBlock;
				continue;
			}
			if (state.changed && state.changer == ROW_WRITER_COMMITTED &&
				row_lock_conflicts(mode, state.mode))
			{
				unlock_unit(catalog, row);
				return state.action == VECTOR_DELETE ? TM_Deleted : TM_Updated;
			}
			set_row(catalog, &state, &key, cid);
		}
		unlock_unit(catalog, row);

		if (!state.changed || state.action != VECTOR_UPDATE)
			return TM_Ok;
		row = state.successor;
	}
}

/* Is the row updated in a way that leaves it lockable in this mode?  Then its newer versions, too. */
static bool
has_lockable_successor(const RowState *state, LockTupleMode mode)
{
	return state->changed && state->changer != ROW_WRITER_OWN && state->action == VECTOR_UPDATE &&
		   !row_lock_conflicts(mode, state->mode);
}

/* Locks this version of a row (heap_lock_tuple()). */
static TM_Result
lock_version(GroupCatalog *catalog, uint64 row, Snapshot snapshot, CommandId cid,
			 LockTupleMode mode, LockWaitPolicy policy, bool follow_updates,
			 TM_FailureData *failure)
{
	Relation relation = catalog->relation;
	VectorKey key = make_lock_key(mode);
	uint64 locked_successor = 0; /* successors are greater than some row, thus not 0 */
	bool may_queue = true;
	bool queued = false;
	bool first = true;
	RowState state;
	TM_Result result;

	for (;;)
	{
		TransactionId conflict = InvalidTransactionId;

		CHECK_FOR_INTERRUPTS();
		lock_unit(catalog, row);
		row_state_read_vectors(&state, catalog, row, &key);
		row_state_read_presence(&state, catalog, row, cid, snapshot);
		result = row_state_judge(&state, cid);

		if (result == TM_BeingModified || result == TM_Updated || result == TM_Deleted)
		{
			if (first && state.own_lock)
			{
				/* strong enough: succeed without the queue, where somebody may wait for us */
				if (state.own_mode >= mode)
				{
					unlock_unit(catalog, row);
					return TM_Ok;
				}
				may_queue = false;
			}
			first = false;

			if (follow_updates && has_lockable_successor(&state, mode) &&
				state.successor != locked_successor)
			{
				unlock_unit(catalog, row);
				result = lock_successors(catalog, state.successor, cid, mode, policy);
				if (result != TM_Ok)
					break;
				locked_successor = state.successor;
				continue;
			}

			conflict = row_state_conflict(&state, mode);
			if (result == TM_BeingModified || has_lockable_successor(&state, mode))
				result = TM_Ok;
		}

		if (!TransactionIdIsValid(conflict) || result != TM_Ok)
		{
			if (result == TM_Ok)
				set_row(catalog, &state, &key, cid);
			unlock_unit(catalog, row);
			break;
		}

		unlock_unit(catalog, row);
		if (may_queue && !queued)
		{
			queued = acquire_row_lock(relation, row, mode, policy);
			if (!queued)
			{
				result = TM_WouldBlock;
				break;
			}
		}
		if (!wait_for_transaction(relation, row, conflict, policy, XLTW_Lock))
		{
			result = TM_WouldBlock;
			break;
		}
	}

	if (queued)
		release_row_lock(relation, row, mode);
	if (result == TM_Deleted && !state.changed)
		raise_reclustered(relation);
	if (result != TM_Ok && result != TM_Invisible)
		row_state_explain(&state, result, failure);
	return result;
}

/*
 * Goes from an updated row to the version that is to be locked instead, waiting
 * for updates of it that are under way (the loop of heapam_tuple_lock()).
 */
static TM_Result
find_last_version(GroupCatalog *catalog, uint64 *row, CommandId cid, LockWaitPolicy policy,
				  TM_FailureData *failure)
{
	ItemPointerData next = failure->ctid;

	failure->traversed = true;
	for (;;)
	{
		RowState state;

		CHECK_FOR_INTERRUPTS();
		if (ItemPointerIndicatesMovedPartitions(&next))
			ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
							errmsg("tuple to be locked was already moved to another partition due "
								   "to concurrent update")));
		*row = row_number_from_tid(&next);
		row_state_read_vectors(&state, catalog, *row, NULL);
		row_state_read_presence(&state, catalog, *row, cid, InvalidSnapshot);

		if (state.killed)
			return TM_Deleted;
		if (state.changed && state.changer == ROW_WRITER_RUNNING)
		{
			if (!wait_for_transaction(catalog->relation, *row, state.xmax, policy,
									  XLTW_FetchUpdated))
				return TM_WouldBlock;
			continue;
		}
		if (state.changed)
		{
			TM_FailureData end;

			if (state.action == VECTOR_DELETE)
				return TM_Deleted;
			row_state_explain(&state, TM_Updated, &end);
			next = end.ctid;
			continue;
		}
		if (state.presence == ROW_UNSEEN || state.presence == ROW_GONE)
			raise_reclustered(catalog->relation);
		if (state.presence == ROW_TOO_NEW)
		{
			failure->xmax = state.xmin;
			failure->cmax = state.cmin;
			return TM_SelfModified;
		}
		return TM_Ok;
	}
}

TM_Result
row_version_lock(GroupCatalog *catalog, uint64 *row, Snapshot snapshot, CommandId cid,
				 LockTupleMode mode, LockWaitPolicy policy, uint8 flags, TM_FailureData *failure)
{
	bool follow_updates = (flags & TUPLE_LOCK_FLAG_LOCK_UPDATE_IN_PROGRESS) != 0;
	TM_Result result;

	failure->traversed = false;
	for (;;)
	{
		result = lock_version(catalog, *row, snapshot, cid, mode, policy, follow_updates, failure);
		if (result != TM_Updated || !(flags & TUPLE_LOCK_FLAG_FIND_LAST_VERSION))
			return result;
		result = find_last_version(catalog, row, cid, policy, failure);
		if (result != TM_Ok)
			return result;
	}
}

/* ---- who sees it ------------------------------------------------------------------------------- */

/* May the group have the row?  Groups with a list of row numbers: the list knows. */
static bool
may_contain(const GroupEntry *entry, uint64 row, uint32 nrows)
{
	return entry->record.state == GROUP_OPEN || (entry->record.flags & GROUP_HAS_ROW_NUMBERS) ||
		   row - entry->record.first_row < nrows;
}

typedef struct SeenReader
{
	GroupCatalog *catalog;
	uint64 row;
	Snapshot snapshot;
	bool gone;
} SeenReader;

/* VectorCallback: does the snapshot see the row's end? */
static bool
look_for_end(void *argument, HeapTuple tuple, Buffer buffer, int32 number, const char *bytes,
			 uint32 length)
{
	SeenReader *reader = argument;
	RowVector vector;
	bool seen;

	row_state_read_vector(&vector, reader->catalog->relation, reader->row / UNIT_ROWS, bytes,
						  length);
	if (vector.action == VECTOR_LOCK || !row_vector_contains(&vector, reader->row))
		return true;
	seen = HeapTupleSatisfiesVisibility(tuple, reader->snapshot, buffer);
	HeapCheckForSerializableConflictOut(seen, reader->catalog->toast, tuple, buffer,
										reader->snapshot);
	if (seen || vector.action == VECTOR_KILL)
		reader->gone = true;
	return !reader->gone;
}

static bool
is_seen(GroupCatalog *catalog, uint64 row, Snapshot snapshot, GroupEntry *entry)
{
	SeenReader reader = {.catalog = catalog, .row = row, .snapshot = snapshot};

	if (!group_catalog_find(catalog, row, snapshot, entry))
		return false;
	if (!may_contain(entry, row, entry->visible_rows))
		return false;
	group_catalog_each_vector(catalog, row / UNIT_ROWS, look_for_end, &reader);
	return !reader.gone;
}

static bool
is_alive(const RowState *state)
{
	return !state->killed && !(state->changed && (state->changer == ROW_WRITER_OWN ||
												  state->changer == ROW_WRITER_COMMITTED));
}

/* HeapTupleSatisfiesDirty(). */
static bool
is_alive_or_pending(GroupCatalog *catalog, uint64 row, Snapshot snapshot, GroupEntry *entry)
{
	RowState state;

	if (!row_state_find_group(catalog, row, snapshot, entry))
		return false;
	row_state_read_vectors(&state, catalog, row, NULL);
	if (!may_contain(entry, row, entry->record.nrows) || !is_alive(&state))
	{
		snapshot->xmin = InvalidTransactionId;
		snapshot->speculativeToken = 0;
		return false;
	}
	if (!TransactionIdIsValid(snapshot->xmin) && state.changed)
		snapshot->xmax = state.xmax;
	return true;
}

/* Any transaction could still see it, as far as the snapshot's horizon tells. */
static bool
is_not_dead(const RowState *state, Snapshot snapshot)
{
	if (state->killed)
		return false;
	if (!state->changed || state->changer != ROW_WRITER_COMMITTED)
		return true;
	return TransactionIdIsNormal(state->xmax) &&
		   !compat_is_removable_xid(snapshot->vistest, state->xmax);
}

/*
 * The group of a row that the running query saw, and that a concurrent recluster has
 * replaced since: "any" version of a row is that one, too.
 */
static bool
find_replaced_group(GroupCatalog *catalog, uint64 row, GroupEntry *entry)
{
	return ActiveSnapshotSet() && IsMVCCSnapshot(GetActiveSnapshot()) &&
		   group_catalog_find(catalog, row, GetActiveSnapshot(), entry);
}

bool
row_version_visible(GroupCatalog *catalog, uint64 row, Snapshot snapshot, GroupEntry *entry)
{
	GroupEntry unused;
	RowState state;

	if (entry == NULL)
		entry = &unused;
	switch (snapshot->snapshot_type)
	{
		case SNAPSHOT_MVCC:
		case SNAPSHOT_HISTORIC_MVCC:
			return is_seen(catalog, row, snapshot, entry);
		case SNAPSHOT_DIRTY:
			return is_alive_or_pending(catalog, row, snapshot, entry);
		case SNAPSHOT_SELF:
		case SNAPSHOT_ANY:
		case SNAPSHOT_NON_VACUUMABLE:
			break;
		case SNAPSHOT_TOAST:
			elog(ERROR, "columnar tables have no TOAST snapshots");
	}

	if (!row_state_find_group(catalog, row, snapshot, entry) &&
		!(snapshot->snapshot_type == SNAPSHOT_ANY && find_replaced_group(catalog, row, entry)))
		return false;
	if (!may_contain(entry, row, entry->record.nrows))
		return false;
	row_state_read_vectors(&state, catalog, row, NULL);
	if (snapshot->snapshot_type == SNAPSHOT_SELF)
		return is_alive(&state);
	if (snapshot->snapshot_type == SNAPSHOT_ANY)
		return !state.killed;
	return is_not_dead(&state, snapshot);
}

bool
row_version_is_dead(GroupCatalog *catalog, uint64 row)
{
	RowState state;

	row_state_read_vectors(&state, catalog, row, NULL);
	return state.changed && state.changer == ROW_WRITER_COMMITTED &&
		   (!TransactionIdIsNormal(state.xmax) ||
			GlobalVisCheckRemovableXid(catalog->relation, state.xmax));
}

uint64
row_version_latest(GroupCatalog *catalog, uint64 row, Snapshot snapshot)
{
	uint64 latest = row;

	for (;;)
	{
		RowState state;
		bool visible = row_version_visible(catalog, row, snapshot, NULL);

		CHECK_FOR_INTERRUPTS();
		if (visible)
			latest = row;
		row_state_read_vectors(&state, catalog, row, NULL);
		if (!visible && !state.changed)
		{
			row_state_read_presence(&state, catalog, row, GetCurrentCommandId(false),
									InvalidSnapshot);
			if (state.presence == ROW_UNSEEN)
				raise_reclustered(catalog->relation);
		}
		if (!state.changed || state.action != VECTOR_UPDATE)
			return latest;
		row = state.successor;
	}
}
