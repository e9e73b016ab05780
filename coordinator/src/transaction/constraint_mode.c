/*
 * constraint_mode.c
 *		SET CONSTRAINTS reaches the workers, also those that join the transaction later.
 *
 * The constraints of distributed tables are checked on the workers, so their mode must be set there.
 * Workers that take part in the transaction get the command at once, as SET CONSTRAINTS ...
 * IMMEDIATE checks what is pending.  For those that join later it is kept, with the
 * nesting level at which it was given: the level's savepoint is set before it there, too, and
 * what PostgreSQL forgets when a subtransaction aborts is forgotten here, too.
 *
 * Names are looked up here, in the user's search_path, and travel with their schema.  Constraints of
 * tables that only the coordinator has stay here.
 */
#include "postgres.h"

#include "transaction/constraint_mode.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_constraint.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "cluster/metadata.h"
#include "transaction/pending_rows.h"
#include "transaction/remote_transaction.h"

/* A command of the running transaction, in the transaction's memory. */
typedef struct ModeCommand
{
	int level; /* nesting level it belongs to */
	char *sql;
} ModeCommand;

static List *commands = NIL;

/*
 * Is there a constraint of this name in the schema?  *distributed tells whether a distributed or
 * reference table has one.
 */
static bool
find_constraint(Oid schema, const char *name, bool *distributed)
{
	Relation catalog = table_open(ConstraintRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple tuple;
	bool found = false;

	ScanKeyInit(&keys[0], Anum_pg_constraint_conname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum(name));
	ScanKeyInit(&keys[1], Anum_pg_constraint_connamespace, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(schema));
	scan = systable_beginscan(catalog, ConstraintNameNspIndexId, true, NULL, 2, keys);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_constraint constraint = (Form_pg_constraint) GETSTRUCT(tuple);

		found = true;
		if (constraint->condeferrable && OidIsValid(constraint->conrelid) &&
			constraint->contype != CONSTRAINT_TRIGGER && /* fires here only */
			metadata_table(constraint->conrelid) != NULL)
			*distributed = true;
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return found;
}

/* Append a constraint's qualified name if the workers have it; like core, the first schema counts. */
static bool
append_constraint(StringInfo sql, const RangeVar *name, bool first)
{
	List *schemas = name->schemaname
						? list_make1_oid(LookupExplicitNamespace(name->schemaname, false))
						: fetch_search_path(true);
	ListCell *cell;

	foreach(cell, schemas)
	{
		bool distributed = false;

		if (!find_constraint(lfirst_oid(cell), name->relname, &distributed))
			continue;
		if (distributed)
			appendStringInfo(
				sql, "%s%s", first ? "" : ", ",
				quote_qualified_identifier(get_namespace_name(lfirst_oid(cell)), name->relname));
		return distributed;
	}
	return false;
}

/* The command for the workers; NULL when they have none of the constraints. */
static char *
make_command(const ConstraintsSetStmt *statement)
{
	StringInfoData sql;
	bool any = statement->constraints == NIL;
	ListCell *cell;

	initStringInfo(&sql);
	appendStringInfoString(&sql, "SET CONSTRAINTS ");
	if (any)
		appendStringInfoString(&sql, "ALL");
	foreach(cell, statement->constraints)
		any |= append_constraint(&sql, lfirst(cell), !any);
	appendStringInfoString(&sql, statement->deferred ? " DEFERRED" : " IMMEDIATE");
	return any ? sql.data : NULL;
}

void
constraint_mode_set(const ConstraintsSetStmt *statement)
{
	char *sql = make_command(statement);
	MemoryContext previous;
	ModeCommand *command;

	if (sql == NULL)
		return;
	pending_rows_flush();
	remote_transaction_run_on_participants(sql);

	previous = MemoryContextSwitchTo(TopTransactionContext);
	command = palloc(sizeof(ModeCommand));
	command->level = GetCurrentTransactionNestLevel();
	command->sql = pstrdup(sql);
	commands = lappend(commands, command);
	MemoryContextSwitchTo(previous);
}

int
constraint_mode_append(StringInfo message, int level)
{
	int count = 0;
	ListCell *cell;

	foreach(cell, commands)
	{
		const ModeCommand *command = lfirst(cell);

		if (command->level != level)
			continue;
		appendStringInfo(message, "%s; ", command->sql);
		count++;
	}
	return count;
}

void
constraint_mode_transaction_event(XactEvent event)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		commands = NIL; /* its memory goes with the transaction */
}

void
constraint_mode_subtransaction_event(SubXactEvent event)
{
	int level = GetCurrentTransactionNestLevel();
	ListCell *cell;

	if (event != SUBXACT_EVENT_ABORT_SUB && event != SUBXACT_EVENT_COMMIT_SUB)
		return;
	foreach(cell, commands)
	{
		ModeCommand *command = lfirst(cell);

		if (command->level < level)
			continue;
		if (event == SUBXACT_EVENT_COMMIT_SUB)
			command->level = level - 1;
		else
			commands = foreach_delete_current(commands, cell);
	}
}
