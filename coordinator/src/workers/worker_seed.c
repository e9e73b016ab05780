/*
 * worker_seed.c
 *		What a new worker gets before it is used.
 *
 * In order: roles (strata.sync_roles()); extensions, schemas, types and functions of users, and
 * our tables, each after what it depends on and with its owner and privileges
 * (strata.schema_commands() lists them from the catalogs, without what is built on local tables); the
 * rows of reference tables; indexes; links between parents and children; foreign keys.  Objects that only some statement might need
 * (extensions, functions, aggregates) are tried one by one, and a failure is a warning.  Whatever the
 * tables need must succeed.
 *
 * What all that computes, by functions of whoever owns an object, must not have the administrator's rights:
 * tables have their owners before they have rows and indexes, worker/src/copy_rows.c copies as the
 * owner, and worker/src/function_guard.c takes care of the rest.
 *
 * Locks: ShareRowExclusiveLock on reference tables until the transaction's end, so
 * that no write happens between the copy and the moment when writers see the new
 * worker; AccessShareLock on distributed tables keeps their definition.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "cluster/metadata.h"
#include "cluster/metadata_write.h"
#include "cluster/relation_name.h"
#include "stream/copy_stream.h"
#include "stream/remote_command.h"
#include "stream/try_command.h"
#include "table/columnar_options.h"
#include "table/table_tree.h"
#include "table/worker_table_sql.h"
#include "workers/worker_seed.h"

/* One row of strata.schema_commands(). */
typedef struct SchemaCommand
{
	char *object; /* for messages */
	char *sql;	  /* NULL: it is a table of ours */
	Oid relation; /* that table, or the one whose foreign keys the command needs */
	bool optional;
} SchemaCommand;

static List *
list_schema_commands(void)
{
	MemoryContext caller = CurrentMemoryContext;
	List *commands = NIL;

	SPI_connect();
	if (SPI_execute("SELECT object, command, relation, optional FROM strata.schema_commands() "
					"ORDER BY ordinal",
					true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not list schema objects");
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple row = SPI_tuptable->vals[i];
		TupleDesc desc = SPI_tuptable->tupdesc;
		char *sql = SPI_getvalue(row, desc, 2);
		MemoryContext spi = MemoryContextSwitchTo(caller);
		SchemaCommand *command = palloc0(sizeof(SchemaCommand));
		bool isnull;

		command->object = pstrdup(SPI_getvalue(row, desc, 1));
		command->sql = sql != NULL ? pstrdup(sql) : NULL;
		if (SPI_getvalue(row, desc, 3) != NULL)
			command->relation = DatumGetObjectId(SPI_getbinval(row, desc, 3, &isnull));
		command->optional = DatumGetBool(SPI_getbinval(row, desc, 4, &isnull));
		commands = lappend(commands, command);
		MemoryContextSwitchTo(spi);
	}
	SPI_finish();
	return commands;
}

static void
run_optional_command(int worker_id, const SchemaCommand *command)
{
	WorkerAnswer answer = try_command(worker_id, REMOTE_WRITE, command->sql);

	if (!answer.success)
		ereport(WARNING, (errcode(answer.error->sqlerrcode),
						  errmsg("%s was not created on worker \"%s\"", command->object,
								 metadata_worker(worker_id)->name),
						  errdetail_internal("%s", answer.error->message)));
}

/* ---------------------------------------------------------------- rows of reference tables */

static void
copy_rows(int worker_id, Relation relation)
{
	Snapshot snapshot;
	TableScanDesc scan;
	TupleTableSlot *slot;
	CopyStream *stream;

	if (relation->rd_rel->relkind == RELKIND_PARTITIONED_TABLE ||
		RelationGetNumberOfBlocks(relation) == 0)
		return;
	stream = copy_stream_begin(worker_id, relation,
							   relation_name_qualified(RelationGetRelid(relation)));
	if (stream == NULL)
		return;
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan = compat_table_beginscan(relation, snapshot);
	slot = table_slot_create(relation, NULL);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
		copy_stream_row(stream, slot);
	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	copy_stream_end(stream);
}

/* ---------------------------------------------------------------- seeding */

/* Create one of our tables, with rows and indexes but without foreign keys. */
static void
create_table(int worker_id, Oid relation_oid)
{
	bool is_reference = metadata_table(relation_oid)->kind == TABLE_REFERENCE;
	Relation relation = table_open(relation_oid,
								   is_reference ? ShareRowExclusiveLock : AccessShareLock);
	const DistributedTable *table = metadata_table(relation_oid);
	Bitmapset *worker = bms_make_singleton(worker_id);
	char *indexes;

	remote_command_run(worker, REMOTE_WRITE,
					   worker_table_sql_create(relation, table->key_attribute, NIL, NIL));
	/* rows and indexes are computed as him */
	remote_command_run(
		worker, REMOTE_WRITE,
		psprintf("ALTER TABLE %s OWNER TO %s", relation_name_qualified(RelationGetRelid(relation)),
				 quote_identifier(GetUserNameFromId(relation->rd_rel->relowner, false))));
	columnar_options_copy(relation, worker_id);
	if (is_reference)
		copy_rows(worker_id, relation);
	indexes = worker_table_sql_indexes(relation);
	if (indexes[0] != '\0')
		remote_command_run(worker, REMOTE_WRITE, indexes);
	table_close(relation, NoLock);
}

static void
create_foreign_keys(int worker_id, Oid relation_oid)
{
	Relation relation = table_open(relation_oid, AccessShareLock);
	char *sql = psprintf("%s%s", worker_table_sql_foreign_keys(relation),
						 table_tree_foreign_key_names(relation_oid));

	if (sql[0] != '\0')
		remote_command_run(bms_make_singleton(worker_id), REMOTE_WRITE, sql);
	table_close(relation, NoLock);
}

/* ERROR if a role cannot be made what it is here: whatever belongs to it would be another's. */
static void
create_roles(int worker_id)
{
	char *sql = psprintf("SELECT object, detail FROM strata.sync_roles(%d) WHERE NOT success",
						 worker_id);

	SPI_connect();
	if (SPI_execute(sql, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not synchronise roles");
	if (SPI_processed > 0)
	{
		char *object = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
		char *detail = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2);

		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("could not make the roles of worker \"%s\" those of the coordinator",
							   metadata_worker(worker_id)->name),
						errdetail_internal("%s: %s", object != NULL ? object : "roles",
										   detail != NULL ? detail : "unknown error"),
						errhint("Drop or alter the role on that server.")));
	}
	SPI_finish();
}

void
worker_seed(int worker_id)
{
	List *commands;
	ListCell *cell;

	create_roles(worker_id);
	(void) remote_command_fetch(worker_id, "SELECT strata_worker.guard_functions()");
	commands = list_schema_commands();
	foreach(cell, commands)
	{
		SchemaCommand *command = lfirst(cell);

		CHECK_FOR_INTERRUPTS();
		if (command->sql == NULL)
			create_table(worker_id, command->relation);
		else if (OidIsValid(command->relation))
			continue;
		else if (command->optional)
			run_optional_command(worker_id, command);
		else
			remote_command_run(bms_make_singleton(worker_id), REMOTE_WRITE, command->sql);
	}
	foreach(cell, commands)
	{
		SchemaCommand *command = lfirst(cell);

		if (command->sql == NULL)
			table_tree_link(bms_make_singleton(worker_id), command->relation, false);
	}
	foreach(cell, commands)
	{
		SchemaCommand *command = lfirst(cell);

		if (command->sql == NULL)
			create_foreign_keys(worker_id, command->relation);
		else if (OidIsValid(command->relation))
			run_optional_command(worker_id, command); /* ordered after all tables */
	}
	table_tree_trust_constraints(bms_make_singleton(worker_id),
								 metadata_write_tables(CATALOG_KIND_REFERENCE));
}

char *
worker_seed_undo_command(void)
{
	List *tables = list_concat(metadata_write_tables(CATALOG_KIND_DISTRIBUTED),
							   metadata_write_tables(CATALOG_KIND_REFERENCE));
	StringInfoData sql;
	ListCell *cell;

	initStringInfo(&sql);
	foreach(cell, tables)
	{
		Oid relation = lfirst_oid(cell);

		appendStringInfo(&sql, "DROP TABLE IF EXISTS %s CASCADE;\n",
						 relation_name_qualified(relation));
	}
	return sql.data;
}
