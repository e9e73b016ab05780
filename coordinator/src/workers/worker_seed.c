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
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "cluster/metadata.h"
#include "cluster/metadata_write.h"
#include "cluster/relation_name.h"
#include "stream/remote_command.h"
#include "stream/try_command.h"
#include "table/columnar_options.h"
#include "table/table_tree.h"
#include "table/worker_table_sql.h"
#include "values/row_format.h"
#include "workers/worker_seed.h"

/* Rows are collected up to this many bytes before they are sent. */
#define COPY_CHUNK_BYTES (64 * 1024)

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

/* Hand a chunk to libpq and wait until the kernel has taken it. */
static void
send_chunk(WorkerConnection *conn, StringInfo buffer, const char *sql)
{
	int pending;

	if (PQputCopyData(conn->pg, buffer->data, buffer->len) != 1)
		connection_report(ERROR, conn, NULL, sql);
	while ((pending = PQflush(conn->pg)) > 0)
		connection_wait_any(&conn, 1);
	if (pending < 0)
		connection_report(ERROR, conn, NULL, sql);
	resetStringInfo(buffer);
}

/* Send all rows of the table over a COPY that the worker waits for. */
static void
stream_rows(WorkerConnection *conn, Relation relation, RowEncoder *encoder, const char *sql)
{
	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
	TableScanDesc scan = table_beginscan(relation, snapshot, 0, NULL);
	TupleTableSlot *slot = table_slot_create(relation, NULL);
	MemoryContext row_context = AllocSetContextCreate(CurrentMemoryContext, "strata seed row",
													  ALLOCSET_DEFAULT_SIZES);
	StringInfoData buffer;

	initStringInfo(&buffer);
	row_encoder_begin(encoder, &buffer);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		MemoryContext caller = MemoryContextSwitchTo(row_context);

		CHECK_FOR_INTERRUPTS();
		slot_getallattrs(slot);
		row_encoder_append(encoder, &buffer, slot->tts_values, slot->tts_isnull);
		MemoryContextSwitchTo(caller);
		MemoryContextReset(row_context);
		if (buffer.len >= COPY_CHUNK_BYTES)
			send_chunk(conn, &buffer, sql);
	}
	row_encoder_end(encoder, &buffer);
	if (buffer.len > 0)
		send_chunk(conn, &buffer, sql);

	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	MemoryContextDelete(row_context);
	pfree(buffer.data);
}

/* Wait for the end of the statement, and raise what the worker says against it. */
static void
finish_copy(WorkerConnection *conn, const char *sql)
{
	PGresult *result;

	while ((result = connection_get_result(conn)) != NULL)
	{
		if (PQresultStatus(result) != PGRES_COMMAND_OK)
			connection_report(ERROR, conn, result, sql);
		PQclear(result);
	}
}

/* The worker copies as the table's owner: functions in CHECK, domains and indexes are his. */
static char *
get_copy_command(Relation relation, const RowEncoder *encoder)
{
	TupleDesc desc = RelationGetDescr(relation);
	StringInfoData sql;
	const char *separator = "";

	initStringInfo(&sql);
	appendStringInfo(&sql, "CALL strata_worker.copy_rows(%s::pg_catalog.regclass, ARRAY[",
					 quote_literal_cstr(relation_name_qualified(RelationGetRelid(relation))));
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);

		if (column->attisdropped || column->attgenerated != '\0')
			continue;
		appendStringInfo(&sql, "%s%s", separator, quote_literal_cstr(NameStr(column->attname)));
		separator = ", ";
	}
	appendStringInfo(&sql, "]::pg_catalog.text[], '%s')",
					 row_encoder_is_binary(encoder) ? "binary" : "text");
	return sql.data;
}

static void
copy_rows(int worker_id, Relation relation)
{
	WorkerConnection *conn = connection_open(worker_id);
	RowEncoder *encoder = row_encoder_create(RelationGetDescr(relation), CurrentMemoryContext);
	char *sql;
	PGresult *result;

	if (relation->rd_rel->relkind == RELKIND_PARTITIONED_TABLE ||
		row_encoder_column_count(encoder) == 0 || RelationGetNumberOfBlocks(relation) == 0)
		return;

	sql = get_copy_command(relation, encoder);
	remote_transaction_send(conn, REMOTE_WRITE, sql);
	result = connection_get_result(conn);
	if (result == NULL || PQresultStatus(result) != PGRES_COPY_IN)
		connection_report(ERROR, conn, result, sql);
	PQclear(result);
	stream_rows(conn, relation, encoder, sql);
	if (PQputCopyEnd(conn->pg, NULL) != 1)
		connection_report(ERROR, conn, NULL, sql);
	finish_copy(conn, sql);
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
					   worker_table_sql_create(relation, table->key_attribute,
											   is_reference ? 0 : table->colocation->shard_count,
											   NIL, NIL));
	/* rows and indexes are computed as him */
	remote_command_run(
		worker, REMOTE_WRITE,
		psprintf("ALTER TABLE %s OWNER TO %s", relation_name_qualified(RelationGetRelid(relation)),
				 quote_identifier(GetUserNameFromId(relation->rd_rel->relowner, false))));
	if (is_reference)
		copy_rows(worker_id, relation);
	else
		columnar_options_copy(relation, worker_id);
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
						 quote_qualified_identifier(get_namespace_name(get_rel_namespace(relation)),
													get_rel_name(relation)));
	}
	return sql.data;
}
