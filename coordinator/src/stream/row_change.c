/*
 * row_change.c
 *		Changes of single rows on their way to the workers that have them.
 *
 * Changes are gathered and leave as one UPDATE and one DELETE per partition on a worker, which find the rows by their tids:
 *
 *		UPDATE ONLY leaf t SET b = n.c1 FROM (VALUES ('(0,1)'::tid, ...), ...) n(row, c1) WHERE t.ctid = n.row
 *
 * so that the worker's PostgreSQL does with indexes, constraints, foreign keys and generated columns what it always does.  They
 * set the columns that differ in any of their rows.  The rows are locked by our transaction: a tid that finds none has been
 * changed meanwhile by a trigger's own statement, which is the error that core gives.
 *
 * A row whose key or period has changed may belong to another partition, here or on another worker: it is taken
 * away there (worker/src/take_row.c), and inserted like a new one.
 *
 * Checks at the end of a statement (foreign keys of the table to itself, deferrable unique constraints) want all of its
 * changes: those of such tables leave together, the others whenever BATCH_BYTES have been gathered.
 *
 * Everything lives in one memory context below TopTransactionContext, which a flush deletes.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "compat.h"
#include "cluster/key_change.h"
#include "cluster/metadata.h"
#include "server/statement_depth.h"
#include "stream/remote_command.h"
#include "stream/remote_insert.h"
#include "stream/row_change.h"
#include "values/row_copy.h"
#include "values/row_format.h"
#include "wire/remote_role.h"

#define BATCH_BYTES (1024 * 1024)

typedef enum ChangeKind
{
	CHANGE_UPDATE,
	CHANGE_DELETE,
	CHANGE_TAKE
} ChangeKind;

typedef struct Change
{
	ItemPointerData tid;
	MinimalTuple tuple; /* CHANGE_UPDATE */
} Change;

/* The changes of one kind in one partition of one worker. */
typedef struct Batch
{
	int worker_id;
	Oid leaf;
	const char *leaf_name; /* when it is sent */
	ChangeKind kind;
	Change *changes;
	int count;
	int capacity;
	Bitmapset *columns; /* those that differ */
} Batch;

/* Changes of a table by one caller. */
typedef struct Target
{
	Oid relation;
	bool together; /* they are to leave in one statement */
	int depth;	   /* of the innermost statement that has changed rows */
	RemoteRole caller;
	RemoteRole sender; /* the caller, to whom the table's schema is open on the workers */
	TupleDesc desc;
	TupleTableSlot *slot;
	List *batches;
	Batch *last;
	Size bytes;
} Target;

static MemoryContext change_context = NULL; /* NULL: there are none */
static List *targets = NIL;

/* ---------------------------------------------------------------- targets */

/* Has the table constraints that are checked at the end of a statement, and look at other rows of it? */
static bool
has_checks_at_end(Relation relation)
{
	bool found = false;
	ListCell *lc;

	foreach(lc, RelationGetFKeyList(relation))
		found |= lfirst_node(ForeignKeyCacheInfo, lc)->confrelid == RelationGetRelid(relation);
	foreach(lc, RelationGetIndexList(relation))
	{
		HeapTuple tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(lfirst_oid(lc)));

		if (!HeapTupleIsValid(tuple))
			elog(ERROR, "cache lookup failed for index %u", lfirst_oid(lc));
		found |= !((Form_pg_index) GETSTRUCT(tuple))->indimmediate;
		ReleaseSysCache(tuple);
	}
	return found;
}

static Target *
find_target(Relation relation)
{
	RemoteRole caller = remote_role_current();
	Target *target;
	ListCell *lc;
	MemoryContext old;

	foreach(lc, targets)
	{
		target = lfirst(lc);
		if (target->relation == RelationGetRelid(relation) &&
			remote_role_equal(target->caller, caller))
			return target;
	}
	if (change_context == NULL)
		change_context = AllocSetContextCreate(TopTransactionContext, "row changes",
											   ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(change_context);
	target = palloc0(sizeof(Target));
	target->relation = RelationGetRelid(relation);
	target->together = has_checks_at_end(relation);
	target->caller = caller;
	target->sender = remote_role_for_relation(relation);
	target->desc = CreateTupleDescCopyConstr(RelationGetDescr(relation));
	target->slot = compat_make_slot(target->desc, &TTSOpsMinimalTuple);
	targets = lappend(targets, target);
	MemoryContextSwitchTo(old);
	return target;
}

static Batch *
find_batch(Target *target, const HeldPlace *place, ChangeKind kind)
{
	Batch *batch = target->last;
	ListCell *lc;

	if (batch != NULL && batch->leaf == place->leaf && batch->worker_id == place->worker_id &&
		batch->kind == kind)
		return batch;
	foreach(lc, target->batches)
	{
		batch = lfirst(lc);
		if (batch->leaf == place->leaf && batch->worker_id == place->worker_id &&
			batch->kind == kind)
			return target->last = batch;
	}
	batch = palloc0(sizeof(Batch));
	batch->worker_id = place->worker_id;
	batch->leaf = place->leaf;
	batch->kind = kind;
	batch->capacity = 16;
	batch->changes = palloc(batch->capacity * sizeof(Change));
	target->batches = lappend(target->batches, batch);
	return target->last = batch;
}

static bool
differs(TupleTableSlot *old, TupleTableSlot *new, AttrNumber column)
{
	Form_pg_attribute attribute = TupleDescAttr(old->tts_tupleDescriptor, column - 1);
	int i = column - 1;

	if (old->tts_isnull[i] || new->tts_isnull[i])
		return old->tts_isnull[i] != new->tts_isnull[i];
	return !datumIsEqual(old->tts_values[i], new->tts_values[i], attribute->attbyval,
						 attribute->attlen);
}

/* Note a change, and the columns in which `new` differs. */
static void
add_change(Relation relation, const HeldPlace *place, ChangeKind kind, TupleTableSlot *old,
		   TupleTableSlot *new)
{
	Target *target = find_target(relation);
	MemoryContext context = MemoryContextSwitchTo(change_context);
	Batch *batch = find_batch(target, place, kind);
	Change *change;

	if (batch->count == batch->capacity)
	{
		batch->capacity *= 2;
		batch->changes = repalloc_huge(batch->changes, batch->capacity * sizeof(Change));
	}
	change = &batch->changes[batch->count++];
	change->tid = place->tid;
	change->tuple = NULL;
	target->bytes += sizeof(Change);
	target->depth = Max(target->depth, statement_depth);
	if (kind == CHANGE_UPDATE)
	{
		change->tuple = row_copy(new);
		target->bytes += change->tuple->t_len;
		for (int i = 0; i < target->desc->natts; i++)
		{
			Form_pg_attribute column = TupleDescAttr(target->desc, i);

			if (!column->attisdropped && column->attgenerated == '\0' &&
				!bms_is_member(i, batch->columns) && differs(old, new, i + 1))
				batch->columns = bms_add_member(batch->columns, i);
		}
	}
	MemoryContextSwitchTo(context);
	if (target->bytes > BATCH_BYTES && !target->together)
		row_change_flush();
}

/* ---------------------------------------------------------------- changes */

/* Do they hash or sort differently?  Other values may be equal, as under a collation that ignores case. */
static bool
is_unequal(TupleTableSlot *old, TupleTableSlot *new, AttrNumber column)
{
	Form_pg_attribute attribute = TupleDescAttr(old->tts_tupleDescriptor, column - 1);
	int i = column - 1;
	TypeCacheEntry *type;

	if (!differs(old, new, column))
		return false;
	if (old->tts_isnull[i] || new->tts_isnull[i])
		return true;
	type = lookup_type_cache(attribute->atttypid, TYPECACHE_EQ_OPR_FINFO);
	return !DatumGetBool(FunctionCall2Coll(&type->eq_opr_finfo, attribute->attcollation,
										   old->tts_values[i], new->tts_values[i]));
}

/* The column by which the row may belong to another partition now; InvalidAttrNumber: it stays. */
static AttrNumber
find_moving_column(const DistributedTable *table, TupleTableSlot *old, TupleTableSlot *new)
{
	if (is_unequal(old, new, table->key_attribute))
		return table->key_attribute;
	if (metadata_has_periods(table) && is_unequal(old, new, table->periods.attribute))
		return table->periods.attribute;
	return InvalidAttrNumber;
}

void
row_change_update(Relation relation, const HeldPlace *place, TupleTableSlot *old,
				  TupleTableSlot *new)
{
	Oid relid = RelationGetRelid(relation);
	AttrNumber moving;

	slot_getallattrs(old);
	slot_getallattrs(new);
	moving = find_moving_column(metadata_table(relid), old, new);
	if (moving == InvalidAttrNumber)
	{
		add_change(relation, place, CHANGE_UPDATE, old, new);
		return;
	}
	key_change_check_references(relid, moving);
	add_change(relation, place, CHANGE_TAKE, NULL, NULL);
	remote_insert_row(relation, new);
}

void
row_change_delete(Relation relation, const HeldPlace *place)
{
	add_change(relation, place, CHANGE_DELETE, NULL, NULL);
}

/* ---------------------------------------------------------------- sending */

/* The batches of one worker get the names of their partitions, as it has them. */
static void
find_leaf_names(const Target *target, int worker_id)
{
	StringInfoData sql;
	List *batches = NIL;
	Datum *names;
	int count;
	char *array;
	ListCell *lc;

	initStringInfo(&sql);
	appendStringInfoString(&sql,
						   "SELECT pg_catalog.array_agg(pg_catalog.format('%I.%I', n.nspname, "
						   "c.relname) ORDER BY l.number) FROM pg_catalog.unnest('{");
	foreach(lc, target->batches)
	{
		Batch *batch = lfirst(lc);

		if (batch->worker_id != worker_id)
			continue;
		appendStringInfo(&sql, "%s%u", batches == NIL ? "" : ",", batch->leaf);
		batches = lappend(batches, batch);
	}
	appendStringInfoString(&sql, "}'::pg_catalog.oid[]) WITH ORDINALITY l(leaf, number) "
								 "JOIN pg_catalog.pg_class c ON c.oid = l.leaf "
								 "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace");
	array = remote_command_fetch(worker_id, sql.data);
	deconstruct_array(DatumGetArrayTypeP(OidInputFunctionCall(
						  F_ARRAY_IN, array != NULL ? array : "{}", TEXTOID, -1)),
					  TEXTOID, -1, false, TYPALIGN_INT, &names, NULL, &count);
	if (count != list_length(batches))
		elog(ERROR, "worker %d has %d of %d partitions of table \"%s\"", worker_id, count,
			 list_length(batches), get_rel_name(target->relation));
	foreach(lc, batches)
		((Batch *) lfirst(lc))->leaf_name = TextDatumGetCString(names[foreach_current_index(lc)]);
}

/* (VALUES (row, value, ...), ...): c1 ... are the batch's columns. */
static void
append_values(StringInfo sql, Target *target, const Batch *batch)
{
	appendStringInfoString(sql, "(VALUES ");
	for (int i = 0; i < batch->count; i++)
	{
		const Change *change = &batch->changes[i];
		int column = -1;

		CHECK_FOR_INTERRUPTS();
		appendStringInfo(sql, "%s('(%u,%u)'::pg_catalog.tid", i > 0 ? ", " : "",
						 ItemPointerGetBlockNumberNoCheck(&change->tid),
						 ItemPointerGetOffsetNumberNoCheck(&change->tid));
		if (change->tuple != NULL)
		{
			ExecStoreMinimalTuple(change->tuple, target->slot, false);
			slot_getallattrs(target->slot);
		}
		while ((column = bms_next_member(batch->columns, column)) >= 0)
		{
			appendStringInfoString(sql, ", ");
			row_format_append_literal(sql, TupleDescAttr(target->desc, column)->atttypid,
									  target->slot->tts_values[column],
									  target->slot->tts_isnull[column]);
		}
		appendStringInfoChar(sql, ')');
		if (sql->len > ROW_LITERALS_BYTES_MAX)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("too many rows of distributed table \"%s\" are changed one by one",
							get_rel_name(target->relation)),
					 errdetail("Rows of a table with a foreign key to itself, or with deferrable "
							   "unique constraints, travel in one statement of at most %d MB.",
							   (int) (ROW_LITERALS_BYTES_MAX / (1024 * 1024))),
					 errhint("Change the rows in several statements.")));
	}
	ExecClearTuple(target->slot);
	appendStringInfoString(sql, ") n(row");
	for (int i = 1; i <= bms_num_members(batch->columns); i++)
		appendStringInfo(sql, ", c%d", i);
	appendStringInfoChar(sql, ')');
}

/* SET a = t.a, for an UPDATE that changes nothing. */
static void
append_any_column(StringInfo sql, TupleDesc desc)
{
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);

		if (column->attisdropped || column->attgenerated != '\0')
			continue;
		appendStringInfo(sql, "%s = t.%s", quote_identifier(NameStr(column->attname)),
						 quote_identifier(NameStr(column->attname)));
		return;
	}
}

static void
append_update(StringInfo sql, Target *target, const Batch *batch)
{
	int column = -1;
	int position = 0;

	appendStringInfo(sql, "UPDATE ONLY %s t SET ", batch->leaf_name);
	while ((column = bms_next_member(batch->columns, column)) >= 0)
	{
		appendStringInfo(sql, "%s%s = n.c%d", position > 0 ? ", " : "",
						 quote_identifier(NameStr(TupleDescAttr(target->desc, column)->attname)),
						 position + 1);
		position++;
	}
	if (position == 0) /* nothing differs, but a row that is updated is a new one */
		append_any_column(sql, target->desc);
	appendStringInfoString(sql, " FROM ");
	append_values(sql, target, batch);
	appendStringInfoString(sql, " WHERE t.ctid = n.row; ");
}

static void
append_batch(StringInfo sql, Target *target, const Batch *batch)
{
	switch (batch->kind)
	{
		case CHANGE_TAKE:
			appendStringInfoString(sql, "SELECT FROM ");
			append_values(sql, target, batch);
			appendStringInfo(sql, " WHERE strata_worker.take_row(%u, n.row); ", batch->leaf);
			break;
		case CHANGE_DELETE:
			appendStringInfo(sql, "DELETE FROM ONLY %s t USING ", batch->leaf_name);
			append_values(sql, target, batch);
			appendStringInfoString(sql, " WHERE t.ctid = n.row; ");
			break;
		case CHANGE_UPDATE:
			append_update(sql, target, batch);
			break;
	}
}

/* Worker ids of the target's batches. */
static Bitmapset *
list_workers(const Target *target)
{
	Bitmapset *workers = NULL;
	ListCell *lc;

	foreach(lc, target->batches)
		workers = bms_add_member(workers, ((Batch *) lfirst(lc))->worker_id);
	return workers;
}

/* Rows go away before others take their keys. */
static char *
make_sql(Target *target, int worker_id, uint64 *rows)
{
	static const ChangeKind order[] = {CHANGE_TAKE, CHANGE_DELETE, CHANGE_UPDATE};
	StringInfoData sql;

	find_leaf_names(target, worker_id);
	initStringInfo(&sql);
	for (int i = 0; i < lengthof(order); i++)
	{
		ListCell *lc;

		foreach(lc, target->batches)
		{
			Batch *batch = lfirst(lc);

			if (batch->worker_id != worker_id || batch->kind != order[i])
				continue;
			append_batch(&sql, target, batch);
			*rows += batch->count;
		}
	}
	return sql.data;
}

/* What core says of one row. */
static void
report_changed_rows(const Target *target)
{
	ereport(ERROR, (errcode(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
					errmsg("tuple to be %s was already modified by an operation triggered by the "
						   "current command",
						   target->last->kind == CHANGE_DELETE ? "deleted" : "updated"),
					errdetail("The row of table \"%s\" was changed by a BEFORE trigger's own "
							  "statement.",
							  get_rel_name(target->relation)),
					errhint("Consider using an AFTER trigger instead of a BEFORE trigger to "
							"propagate changes to other rows.")));
}

static void
send_target(Target *target)
{
	Bitmapset *workers = list_workers(target);
	int *worker_ids = palloc(sizeof(int) * bms_num_members(workers));
	char **sqls = palloc(sizeof(char *) * bms_num_members(workers));
	int count = 0;
	int worker_id = -1;
	uint64 expected = 0;
	uint64 found;
	/* a flush may run as somebody else */
	RemoteRole before = remote_role_enter(target->sender);

	while ((worker_id = bms_next_member(workers, worker_id)) >= 0)
	{
		worker_ids[count] = worker_id;
		sqls[count++] = make_sql(target, worker_id, &expected);
	}
	found = remote_command_run_each(worker_ids, sqls, count, REMOTE_WRITE);
	(void) remote_role_enter(before);
	if (found != expected)
		report_changed_rows(target);
}

void
row_change_flush(void)
{
	static bool flushing = false;
	MemoryContext old;
	ListCell *lc;

	/* what we send asks for pending rows to be flushed before */
	if (change_context == NULL || flushing)
		return;
	flushing = true;
	old = MemoryContextSwitchTo(change_context);
	PG_TRY();
	{
		foreach(lc, targets)
			send_target(lfirst(lc));
	}
	PG_FINALLY();
	{
		flushing = false;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old);
	row_change_reset();
}

void
row_change_end_statement(void)
{
	ListCell *lc;

	foreach(lc, targets)
	{
		if (((Target *) lfirst(lc))->depth > statement_depth)
		{
			row_change_flush();
			return;
		}
	}
}

void
row_change_reset(void)
{
	if (change_context != NULL)
		MemoryContextDelete(change_context);
	change_context = NULL;
	targets = NIL;
}
