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
 * Inserted rows take the way of all inserts (remote_insert.h).  Updated and deleted
 * rows become one UPDATE or DELETE each, by primary key; their text is
 * collected and sent in batches.  Both ways keep the order of the changes: whoever
 * adds to one first empties the other.
 *
 * A batch never outlives the ExecutorFinish() whose triggers filled it, and is sent
 * before any nested query starts (executor_hooks.c) or subtransaction begins: what
 * an aborted subtransaction leaves here is its own, and is thrown away.
 */
#include "postgres.h"

#include "stream/reference_write.h"

#include "access/xact.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "cluster/metadata.h"
#include "server/statement_depth.h"
#include "stream/remote_command.h"
#include "stream/remote_insert.h"
#include "transaction/pending_rows.h"
#include "values/row_format.h"
#include "wire/remote_role.h"

/* A batch of this many bytes is sent. */
#define BATCH_BYTES (64 * 1024)

/* Statements separated by semicolons, in TopTransactionContext; data is NULL when there are none. */
static StringInfoData batch = {0};
static RemoteRole batch_role;		 /* whose changes are in the batch */
static bool inserts_pending = false; /* rows given to remote_insert_row() may still be there */

PG_FUNCTION_INFO_V1(strata_replicate_reference_row);

static void
forget_batch(void)
{
	if (batch.data != NULL)
		pfree(batch.data);
	batch.data = NULL;
	inserts_pending = false;
}

void
reference_write_flush(void)
{
	char *sql = batch.data;
	RemoteRole before;

	if (sql == NULL || batch.len == 0)
		return;

	batch.data = NULL; /* first: sending may fail, or come back here */
	before = remote_role_enter(batch_role);
	remote_command_run(metadata_all_workers(), REMOTE_WRITE, sql);
	(void) remote_role_enter(before);
	pfree(sql);
}

static void
append_column(StringInfo sql, TupleTableSlot *slot, AttrNumber attribute)
{
	Form_pg_attribute column = TupleDescAttr(slot->tts_tupleDescriptor, attribute - 1);
	bool null;
	Datum value = slot_getattr(slot, attribute, &null);

	appendStringInfo(sql, "%s = ", quote_identifier(NameStr(column->attname)));
	row_format_append_literal(sql, column->atttypid, value, null);
}

/* WHERE clause that finds `row` by the primary key; ERROR when there is none. */
static void
append_key(StringInfo sql, Relation relation, TupleTableSlot *row)
{
	Bitmapset *key = RelationGetIndexAttrBitmap(relation, INDEX_ATTR_BITMAP_PRIMARY_KEY);
	const char *separator = " WHERE ";
	int member = -1;

	if (bms_is_empty(key))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("cannot update or delete rows of reference table \"%s\" because it "
							   "has no primary key",
							   RelationGetRelationName(relation)),
						errdetail("The workers find a changed row by its primary key."),
						errhint("Add one with ALTER TABLE ... ADD PRIMARY KEY.")));
	while ((member = bms_next_member(key, member)) >= 0)
	{
		appendStringInfoString(sql, separator);
		append_column(sql, row, member + FirstLowInvalidHeapAttributeNumber);
		separator = " AND ";
	}
	bms_free(key);
}

static bool
columns_differ(TupleTableSlot *old_row, TupleTableSlot *new_row, AttrNumber attribute)
{
	Form_pg_attribute column = TupleDescAttr(old_row->tts_tupleDescriptor, attribute - 1);
	bool old_null;
	bool new_null;
	Datum old_value = slot_getattr(old_row, attribute, &old_null);
	Datum new_value = slot_getattr(new_row, attribute, &new_null);

	if (old_null || new_null)
		return old_null != new_null;
	return !datum_image_eq(old_value, new_value, column->attbyval, column->attlen);
}

/* Append the UPDATE that turns old_row into new_row; nothing when they are the same. */
static void
append_update(StringInfo sql, Relation relation, const char *table_name, TupleTableSlot *old_row,
			  TupleTableSlot *new_row)
{
	TupleDesc desc = RelationGetDescr(relation);
	int start = sql->len;
	bool changed = false;

	appendStringInfo(sql, "UPDATE %s SET ", table_name);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);

		if (column->attisdropped || column->attgenerated != '\0' ||
			!columns_differ(old_row, new_row, i + 1))
			continue;
		if (changed)
			appendStringInfoString(sql, ", ");
		append_column(sql, new_row, i + 1);
		changed = true;
	}
	if (changed)
	{
		append_key(sql, relation, old_row);
		appendStringInfoString(sql, ";\n");
	}
	else
	{
		sql->len = start;
		sql->data[start] = '\0';
	}
}

/* Collect an UPDATE (new_row given) or DELETE of one row. */
static void
collect_change(Relation relation, TupleTableSlot *old_row, TupleTableSlot *new_row)
{
	char *name = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(relation)),
											RelationGetRelationName(relation));
	RemoteRole role = remote_role_for_relation(relation);

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

	if (new_row != NULL)
		append_update(&batch, relation, name, old_row, new_row);
	else
	{
		appendStringInfo(&batch, "DELETE FROM %s", name);
		append_key(&batch, relation, old_row);
		appendStringInfoString(&batch, ";\n");
	}
	pfree(name);
	if (batch.len >= BATCH_BYTES)
		reference_write_flush();
}

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
	if (TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
	{
		reference_write_flush();
		remote_insert_row(trigger->tg_relation, trigger->tg_trigslot);
		inserts_pending = true;
	}
	else if (TRIGGER_FIRED_BY_UPDATE(trigger->tg_event))
		collect_change(trigger->tg_relation, trigger->tg_trigslot, trigger->tg_newslot);
	else
		collect_change(trigger->tg_relation, trigger->tg_trigslot, NULL);

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
