/*
 * ddl_default.c
 *		The workers' defaults follow the foreign keys that set them.
 *
 * Defaults act here, but for those that ON DELETE or ON UPDATE SET DEFAULT of a distributed table's foreign key
 * sets on the workers (worker_table_sql_defaults()).  No other may stay there: MERGE ships INSERTs that
 * name some columns only, and means NULL for the others.
 *
 * ALTER TABLE compares before and after.  A foreign key also goes with the table or the constraint that it leads to, by
 * whatever command: the object access hook tells, and at the command's end the workers follow.
 */
#include "postgres.h"

#include "ddl/ddl.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_constraint.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "cluster/relation_name.h"
#include "stream/remote_ddl.h"
#include "table/worker_table_sql.h"

/* A table that is losing a foreign key, and the defaults that its workers had before. */
typedef struct LostKey
{
	Oid relation;
	List *defaults;
} LostKey;

/* LostKey *, in the transaction's memory. */
static List *lost_keys = NIL;

static List *
list_defaults(Oid relid, bool check)
{
	Relation relation = table_open(relid, NoLock);
	List *defaults = worker_table_sql_defaults(relation, check);

	table_close(relation, NoLock);
	return defaults;
}

List *
ddl_list_defaults(Oid relid)
{
	return list_defaults(relid, false);
}

/* ALTER TABLE of all workers with these parts (char *), if there are any. */
static void
send_parts(Oid relid, List *parts)
{
	StringInfoData sql;
	ListCell *cell;

	if (parts == NIL)
		return;
	initStringInfo(&sql);
	foreach(cell, parts)
		appendStringInfo(&sql, "%s %s", sql.len > 0 ? "," : "", (char *) lfirst(cell));
	remote_ddl_send(psprintf("ALTER TABLE %s%s", relation_name_qualified(relid), sql.data));
}

static List *
list_drops(List *defaults)
{
	List *parts = NIL;
	ListCell *cell;

	foreach(cell, defaults)
		parts = lappend(parts, psprintf("ALTER COLUMN %s DROP DEFAULT",
										quote_identifier(strVal(linitial(lfirst(cell))))));
	return parts;
}

void
ddl_drop_defaults(Oid relid, List *before)
{
	if (equal(before, ddl_list_defaults(relid)))
		return;
	(void) list_defaults(relid, true);
	send_parts(relid, list_drops(before));
}

void
ddl_set_defaults(Oid relid, List *before)
{
	List *wanted = ddl_list_defaults(relid);
	List *parts = NIL;
	ListCell *cell;

	if (equal(before, wanted))
		return;
	foreach(cell, wanted)
		parts = lappend(parts, strVal(lsecond(lfirst(cell))));
	send_parts(relid, parts);
}

/* ---------------------------------------------------------------- foreign keys that go */

void
ddl_note_dropped_constraint(Oid constraint)
{
	HeapTuple tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(constraint));
	Form_pg_constraint form;
	const DistributedTable *table;
	MemoryContext old;
	LostKey *lost;

	if (!HeapTupleIsValid(tuple))
		return;
	form = (Form_pg_constraint) GETSTRUCT(tuple);
	table = form->contype == CONSTRAINT_FOREIGN ? metadata_table(form->conrelid) : NULL;
	if (table != NULL && table->kind == TABLE_DISTRIBUTED)
	{
		old = MemoryContextSwitchTo(TopTransactionContext);
		lost = palloc(sizeof(LostKey));
		lost->relation = form->conrelid;
		lost->defaults = ddl_list_defaults(form->conrelid);
		if (lost->defaults != NIL)
			lost_keys = lappend(lost_keys, lost);
		MemoryContextSwitchTo(old);
	}
	ReleaseSysCache(tuple);
}

/* Those of columns that are still there. */
static List *
list_remaining(const LostKey *lost)
{
	List *remaining = NIL;
	ListCell *cell;

	foreach(cell, lost->defaults)
	{
		if (get_attnum(lost->relation, strVal(linitial(lfirst(cell)))) != InvalidAttrNumber)
			remaining = lappend(remaining, lfirst(cell));
	}
	return remaining;
}

void
ddl_follow_dropped_constraints(void)
{
	List *tables = lost_keys;
	ListCell *cell;

	lost_keys = NIL;
	foreach(cell, tables)
	{
		const LostKey *lost = lfirst(cell);
		const DistributedTable *table = metadata_table(lost->relation);
		List *remaining;

		if (table == NULL || table->kind != TABLE_DISTRIBUTED ||
			!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(lost->relation)))
			continue;
		remaining = list_remaining(lost);
		ddl_drop_defaults(lost->relation, remaining);
		ddl_set_defaults(lost->relation, remaining);
	}
}

void
ddl_forget_dropped_constraints(void)
{
	lost_keys = NIL;
}
