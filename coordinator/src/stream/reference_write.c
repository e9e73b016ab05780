/*
 * reference_write.c
 *		Changes of reference tables on their way to the workers' copies.
 *
 * A reference table is an ordinary table of the coordinator plus a copy on each
 * worker.  A statement runs on the coordinator's copy, whatever it is; an AFTER
 * ROW trigger sends what became of each row to the workers.  So volatile functions,
 * defaults and BEFORE triggers are evaluated once, and the coordinator's row locks
 * order concurrent writers before any worker is asked.
 *
 * Inserted rows take the way of all inserts (remote_insert.h).  Updated and deleted rows become
 * one UPDATE or DELETE each (reference_row.c); their text is collected and sent in batches.
 * Each changes one row of each copy: anything else means that a copy is not what it should be, and fails.
 * Both ways keep the order of the changes: whoever adds to one first empties the other.
 *
 * Foreign keys between reference tables, and unique and exclusion constraints that can be deferred, are checked here alone, with
 * the coordinator's rows, which are all of them; what their actions change comes as changes of rows.  The copies' triggers
 * are disabled (table_tree_trust_constraints()): checked row by row there, statements would fail that change rows together.
 *
 * A batch never outlives the ExecutorFinish() whose triggers filled it, and is sent
 * before any nested query that may look at workers (executor_hooks.c) or subtransaction: what
 * an aborted subtransaction leaves here is its own, and is thrown away.
 *
 * An UPDATE that moves a row to another partition deletes it in one leaf and inserts it into another.  Foreign keys to
 * the partitioned table must see an update, here as on the workers: so the deletion waits for the insertion, which
 * is the next event but for the checks of foreign keys, which the workers do not notice, unless users' triggers come
 * between.  Together they are one UPDATE of the whole tree.
 */
#include "postgres.h"

#include "stream/reference_write.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/partition.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "lib/stringinfo.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "cluster/metadata.h"
#include "server/statement_depth.h"
#include "stream/reference_row.h"
#include "stream/remote_command.h"
#include "stream/remote_insert.h"
#include "transaction/pending_rows.h"
#include "values/row_format.h"
#include "wire/remote_role.h"

/* A batch of this many bytes is sent. */
#define BATCH_BYTES (64 * 1024)

/* Statements separated by semicolons, in TopTransactionContext; data is NULL when there are none. */
static StringInfoData batch = {0};
static uint64 batch_changes = 0;	 /* number of those */
static RemoteRole batch_role;		 /* whose changes are in the batch */
static bool inserts_pending = false; /* rows given to remote_insert_row() may still be there */

/* A row, in TopTransactionContext, that has left a leaf and has not arrived in another; NULL: none. */
static HeapTuple moved_row = NULL;
static Oid moved_from;
static RemoteRole moved_role; /* whose change it is */

static void settle_moved_row(void);

PG_FUNCTION_INFO_V1(strata_replicate_reference_row);

static void
forget_batch(void)
{
	if (batch.data != NULL)
		pfree(batch.data);
	batch.data = NULL;
	batch_changes = 0;
	inserts_pending = false;
	moved_row = NULL;
}

/* Rows changed on all workers together. */
static void
check_changes(uint64 changed, uint64 expected)
{
	if (changed != expected)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("could not find all changed rows of reference tables on the workers"),
				 errdetail("The copies have changed %llu rows in place of %llu.",
						   (unsigned long long) changed, (unsigned long long) expected),
				 errhint("SELECT * FROM strata.check_health() shows which copies differ.")));
}

void
reference_write_flush(void)
{
	const Bitmapset *workers;
	uint64 expected;
	uint64 changed;
	char *sql;
	RemoteRole before;

	settle_moved_row();
	sql = batch.data;
	if (sql == NULL || batch.len == 0)
		return;

	workers = metadata_all_workers();
	expected = batch_changes * bms_num_members(workers);
	batch.data = NULL; /* first: sending may fail, or come back here */
	batch_changes = 0;
	before = remote_role_enter(batch_role);
	changed = remote_command_run(workers, REMOTE_WRITE, sql);
	(void) remote_role_enter(before);
	pfree(sql);
	check_changes(changed, expected);
}

/* A change of this role's may be added to the batch now. */
static void
begin_change(RemoteRole role)
{
	if (role.user != batch_role.user || role.security_context != batch_role.security_context)
		reference_write_flush();
	batch_role = role;
	if (inserts_pending)
	{
		pending_rows_flush();
		inserts_pending = false;
	}
	if (batch.data == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

		initStringInfo(&batch);
		MemoryContextSwitchTo(old);
	}
}

static void
end_change(void)
{
	batch_changes++;
	if (batch.len >= BATCH_BYTES)
		reference_write_flush();
}

static void
collect_delete(Relation relation, RemoteRole role, TupleTableSlot *row)
{
	begin_change(role);
	reference_row_append_delete(&batch, relation, row);
	end_change();
}

static void
collect_update(Relation relation, RemoteRole role, TupleTableSlot *old_row, TupleTableSlot *new_row)
{
	begin_change(role);
	if (reference_row_append_update(&batch, relation, old_row, new_row))
		end_change();
}

/* ---------------------------------------------------------------- rows that move between partitions */

/* Has an UPDATE deleted the row because it belongs into another partition now? */
static bool
is_departure(const TriggerData *trigger)
{
	return TRIGGER_FIRED_BY_DELETE(trigger->tg_event) &&
		   HeapTupleHeaderIndicatesMovedPartitions(trigger->tg_trigtuple->t_data);
}

static void
keep_moved_row(Relation relation, HeapTuple row)
{
	MemoryContext old;

	settle_moved_row();
	old = MemoryContextSwitchTo(TopTransactionContext);
	moved_row = heap_copytuple(row);
	moved_from = RelationGetRelid(relation);
	moved_role = remote_role_for_relation(relation);
	MemoryContextSwitchTo(old);
}

/* The row that moved as a slot of its leaf, which is locked, and is not kept any more. */
static TupleTableSlot *
take_moved_row(Relation leaf)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(leaf), &TTSOpsHeapTuple);

	ExecStoreHeapTuple(moved_row, slot, false);
	moved_row = NULL;
	return slot;
}

static Oid
find_root(Oid partition)
{
	List *ancestors = get_rel_relispartition(partition) ? get_partition_ancestors(partition) : NIL;

	return ancestors == NIL ? partition : llast_oid(ancestors);
}

/* Do foreign keys refer to the table's rows? */
static bool
is_referenced(Relation relation)
{
	const TriggerDesc *triggers = relation->trigdesc;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		if (RI_FKey_trigger_type(triggers->triggers[i].tgfoid) == RI_TRIGGER_PK)
			return true;
	}
	return false;
}

/* Something comes between the deletion and the insertion of a row that moves: the deletion goes on its own. */
static void
settle_moved_row(void)
{
	Relation leaf;
	TupleTableSlot *row;

	if (moved_row == NULL)
		return;
	leaf = table_open(moved_from, NoLock);
	if (is_referenced(leaf))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot move a row of reference table \"%s\" to another partition",
						RelationGetRelationName(leaf)),
				 errdetail("A trigger runs statements while the row is in neither partition, and "
						   "foreign keys refer to the table."),
				 errhint("Delete the row and insert it again.")));
	row = take_moved_row(leaf);
	collect_delete(leaf, moved_role, row);
	ExecDropSingleTupleTableSlot(row);
	table_close(leaf, NoLock);
}

/* A row was inserted: if it is the one that moved, that is an UPDATE of the tree.  False if not. */
static bool
collect_arrival(Relation relation, TupleTableSlot *new_row)
{
	Relation leaf;
	TupleTableSlot *old_row;

	if (moved_row == NULL || find_root(moved_from) != find_root(RelationGetRelid(relation)))
		return false;
	leaf = table_open(moved_from, NoLock);
	old_row = take_moved_row(leaf);
	begin_change(moved_role);
	reference_row_append_move(&batch, find_root(moved_from), leaf, old_row, new_row);
	end_change();
	ExecDropSingleTupleTableSlot(old_row);
	table_close(leaf, NoLock);
	return true;
}

/* ---------------------------------------------------------------- the trigger */

const DistributedTable *
reference_write_trigger_table(const TriggerData *trigger)
{
	const DistributedTable *table = metadata_table(RelationGetRelid(trigger->tg_relation));

	if (table == NULL || table->kind != TABLE_REFERENCE || !trigger->tg_trigger->tgisinternal)
		ereport(
			ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("trigger \"%s\" of table \"%s\" is not the one that keeps its copies in step",
					trigger->tg_trigger->tgname, RelationGetRelationName(trigger->tg_relation)),
			 errhint("create_reference_table() makes this trigger; do not create it yourself.")));
	return table;
}

static void
collect_event(const TriggerData *trigger)
{
	RemoteRole role = remote_role_for_relation(trigger->tg_relation);

	settle_moved_row();
	if (TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
	{
		reference_write_flush();
		remote_insert_row(trigger->tg_relation, trigger->tg_trigslot);
		inserts_pending = true;
	}
	else if (TRIGGER_FIRED_BY_UPDATE(trigger->tg_event))
		collect_update(trigger->tg_relation, role, trigger->tg_trigslot, trigger->tg_newslot);
	else
		collect_delete(trigger->tg_relation, role, trigger->tg_trigslot);
}

/*
 * strata.replicate_reference_row(): send the row that a statement changed to the workers.
 */
Datum
strata_replicate_reference_row(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_AFTER(trigger->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
		ereport(
			ERROR,
			(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
			 errmsg("function \"replicate_reference_row\" must be fired AFTER ROW by a trigger")));
	(void) reference_write_trigger_table(trigger);
	if (metadata_all_workers() == NULL)
		return PointerGetDatum(NULL);
	if (is_departure(trigger))
	{
		keep_moved_row(trigger->tg_relation, trigger->tg_trigtuple);
		return PointerGetDatum(NULL);
	}
	if (!TRIGGER_FIRED_BY_INSERT(trigger->tg_event) ||
		!collect_arrival(trigger->tg_relation, trigger->tg_trigslot))
		collect_event(trigger);

	/* a subscription's apply worker has no ExecutorFinish() that would send it */
	if (statement_depth == 0)
		reference_write_flush();
	return PointerGetDatum(NULL);
}

void
reference_write_transaction_event(XactEvent event)
{
	if (event == XACT_EVENT_ABORT || event == XACT_EVENT_COMMIT)
		forget_batch();
}

void
reference_write_subtransaction_event(SubXactEvent event)
{
	if (event == SUBXACT_EVENT_START_SUB)
		reference_write_flush();
	else if (event == SUBXACT_EVENT_ABORT_SUB)
		forget_batch();
}
