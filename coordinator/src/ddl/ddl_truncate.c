/*
 * ddl_truncate.c
 *		TRUNCATE.
 *
 * The coordinator's part checks privileges and foreign keys, fires the triggers, restarts sequences, and truncates what
 * CASCADE reaches here.  The workers get one command with those of the tables that they have, after all
 * BEFORE triggers, which still see the rows, and before any AFTER trigger, which may insert new ones.
 * That is when PostgreSQL truncates, so a table tells:
 *
 *	- a shell by its access method, which makes a new file or empties the old one;
 *	- a reference table, which is a heap here, by a trigger of its own.  AFTER triggers wait for all tables, and fire table
 *	  by table in the order of their names.  If no shell is among the tables, a reference table is put
 *	  first, and its trigger's name is smaller than any that a user writes.
 *
 * Only tables of ours refer to tables of ours, but for local ones to reference tables: so what CASCADE
 * reaches on the workers is what it reaches here, and one of the named tables is ours.
 */
#include "postgres.h"

#include "ddl/ddl.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "cluster/relation_name.h"
#include "stream/reference_write.h"
#include "stream/remote_ddl.h"
#include "table/table_am.h"

typedef struct RunningTruncate
{
	List *tables; /* OIDs of those named that the workers have */
	List *only;	  /* those of them without their children */
	bool cascade;
	bool sent;
} RunningTruncate;

/* The command that runs; of nested ones (of triggers) the innermost. */
static RunningTruncate *running = NULL;

PG_FUNCTION_INFO_V1(strata_truncate_reference_table);

static void
send_truncate(List *tables, List *only, bool cascade)
{
	StringInfoData sql;
	ListCell *cell;

	initStringInfo(&sql);
	foreach(cell, tables)
		appendStringInfo(&sql, "%s%s%s", sql.len == 0 ? "TRUNCATE " : ", ",
						 list_member_oid(only, lfirst_oid(cell)) ? "ONLY " : "",
						 relation_name_qualified(lfirst_oid(cell)));
	if (cascade)
		appendStringInfoString(&sql, " CASCADE");
	reference_write_flush();
	remote_ddl_send(sql.data);
}

static void
send_running(void)
{
	if (running->sent || running->tables == NIL)
		return;
	running->sent = true;
	send_truncate(running->tables, running->only, running->cascade);
}

static void
note_emptied(Oid relation)
{
	if (running != NULL && list_member_oid(running->tables, relation))
		send_running();
}

/*
 * strata.truncate_reference_table(): the local table is empty.  Without a TRUNCATE command that was seen here, a
 * subscription applies one.
 */
Datum
strata_truncate_reference_table(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	const DistributedTable *table;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_AFTER(trigger->tg_event) ||
		!TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event))
		ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
						errmsg("function \"truncate_reference_table\" must be fired AFTER TRUNCATE "
							   "by a trigger")));
	table = reference_write_trigger_table(trigger);
	if (metadata_all_workers() == NULL)
		return PointerGetDatum(NULL);

	if (running != NULL)
		note_emptied(table->relation);
	else if (get_rel_relkind(table->relation) != RELKIND_PARTITIONED_TABLE)
	{
		/* children have triggers of their own */
		List *only = list_make1_oid(table->relation);

		send_truncate(only, only, false);
	}
	return PointerGetDatum(NULL);
}

/* Note which tables of the command the workers have; true if a shell is among them. */
static bool
collect_tables(const TruncateStmt *command, RunningTruncate *truncate, int *first_reference)
{
	bool has_shell = false;
	ListCell *cell;

	*first_reference = -1;
	foreach(cell, command->relations)
	{
		Oid relid = RangeVarGetRelid(lfirst_node(RangeVar, cell), NoLock, true);
		const DistributedTable *table = OidIsValid(relid) ? metadata_table(relid) : NULL;

		if (table == NULL)
			continue;
		truncate->tables = list_append_unique_oid(truncate->tables, relid);
		if (table->kind == TABLE_REFERENCE && !lfirst_node(RangeVar, cell)->inh)
			truncate->only = lappend_oid(truncate->only, relid);
		if (table->kind == TABLE_DISTRIBUTED)
			has_shell = true;
		else if (*first_reference < 0)
			*first_reference = foreach_current_index(cell);
	}
	return has_shell;
}

/* Put the table with this index first. */
static void
reorder_tables(UtilityCall *call, int index)
{
	TruncateStmt *command = (TruncateStmt *) ddl_modifiable_statement(call);
	RangeVar *table = list_nth(command->relations, index);

	command->relations = lcons(table, list_delete_nth_cell(command->relations, index));
}

void
ddl_truncate(UtilityCall *call)
{
	TruncateStmt *command = castNode(TruncateStmt, call->statement->utilityStmt);
	RunningTruncate truncate = {.cascade = command->behavior == DROP_CASCADE};
	RunningTruncate *outer = running;
	int first_reference;
	bool has_shell = collect_tables(command, &truncate, &first_reference);

	if (!has_shell && first_reference > 0)
		reorder_tables(call, first_reference);
	running = &truncate;
	table_am_emptied = note_emptied;
	PG_TRY();
	{
		ddl_run_locally(call);
		send_running();
	}
	PG_FINALLY();
	{
		running = outer;
		table_am_emptied = outer != NULL ? note_emptied : NULL;
	}
	PG_END_TRY();
}
