/*
 * maintenance.c
 *		VACUUM, REINDEX and CLUSTER on the workers.
 *
 * These commands refuse to run inside a transaction block, and so they are sent outside the
 * distributed transaction, on connections that are idle because the client's own
 * transaction has only just begun.  They write no rows: one that fails on one worker
 * need not be undone on the others.
 */
#include "postgres.h"

#include "ddl/ddl.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "compat.h"
#include "wire/connection.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "cluster/metadata_write.h"
#include "relation_owner.h"
#include "cluster/relation_name.h"
#include "wire/wire_cleanup.h"

/* Stop what still runs on these connections, and close them: their state is unknown. */
static void
abandon(WorkerConnection **connections, int count)
{
	int running = 0;

	for (int i = 0; i < count; i++)
		if (connections[i] != NULL)
			connections[running++] = connections[i];
	wire_cancel(connections, running, wire_end_deadline());
	for (int i = 0; i < running; i++)
		connection_drop(connections[i]);
}

/*
 * Read all results of one connection; the first failed one is returned, else NULL.  *value becomes
 * the first column of the first row, if there is one.
 */
static PGresult *
read_results(WorkerConnection *connection, char **value)
{
	PGresult *failure = NULL;
	PGresult *result;

	while ((result = connection_get_result(connection)) != NULL)
	{
		ExecStatusType status = PQresultStatus(result);

		if (status == PGRES_TUPLES_OK && *value == NULL && PQntuples(result) > 0 &&
			!PQgetisnull(result, 0, 0))
			*value = pstrdup(PQgetvalue(result, 0, 0));
		if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK || failure != NULL)
			PQclear(result);
		else
			failure = result;
	}
	return failure;
}

static WorkerConnection *
start_command(int worker, Oid role, const char *sql)
{
	WorkerConnection *connection = connection_open_as(worker, role);

	if (connection->xact_depth > 0)
		ereport(ERROR, (errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
						errmsg("command cannot run on worker \"%s\" inside a transaction block",
							   connection->worker_name)));
	connection_vacate(connection);
	if (!PQsendQuery(connection->pg, sql))
		connection_report(ERROR, connection, NULL, sql);
	(void) PQflush(connection->pg);
	return connection;
}

char **
maintenance_run_each(const int *worker_ids, Oid role, char **sqls, int count)
{
	WorkerConnection **connections = palloc0(sizeof(WorkerConnection *) * Max(count, 1));
	char **values = palloc0(sizeof(char *) * Max(count, 1));
	Bitmapset *workers = NULL;
	WorkerConnection *failed = NULL;
	const char *volatile failed_sql = NULL;
	PGresult *volatile failure = NULL;

	for (int i = 0; i < count; i++)
		workers = bms_add_member(workers, worker_ids[i]);
	connection_open_all_as(workers, role);
	PG_TRY();
	{
		for (int i = 0; i < count; i++)
			connections[i] = start_command(worker_ids[i], role, sqls[i]);
		for (int i = 0; i < count; i++)
		{
			PGresult *result = read_results(connections[i], &values[i]);

			if (result != NULL && failure == NULL)
			{
				failed = connections[i];
				failed_sql = sqls[i];
				failure = result;
			}
			else
				PQclear(result);
			connections[i] = NULL;
		}
	}
	PG_CATCH();
	{
		PQclear(failure);
		abandon(connections, count);
		PG_RE_THROW();
	}
	PG_END_TRY();

	if (failure != NULL)
		connection_report(ERROR, failed, failure, failed_sql);
	pfree(connections);
	return values;
}

/*
 * Run one command on all workers, outside of any transaction, as a role: a table's owner, who has all
 * rights there.  Whoever else may maintain the table, he has them here.
 */
static void
run_outside_transaction(Oid role, char *sql)
{
	const Bitmapset *workers = metadata_all_workers();
	int count = bms_num_members(workers);
	int *worker_ids = palloc(sizeof(int) * Max(count, 1));
	char **sqls = palloc(sizeof(char *) * Max(count, 1));
	int worker = -1;

	for (int i = 0; (worker = bms_next_member(workers, worker)) >= 0; i++)
	{
		worker_ids[i] = worker;
		sqls[i] = sql;
	}
	(void) maintenance_run_each(worker_ids, role, sqls, count);
}

/* The options of a command in parentheses, without the one called `left_out`; "" when none is left. */
static char *
format_options(List *options, const char *left_out)
{
	StringInfoData text;
	ListCell *cell;

	initStringInfo(&text);
	foreach(cell, options)
	{
		DefElem *option = lfirst_node(DefElem, cell);

		if (left_out != NULL && strcmp(option->defname, left_out) == 0)
			continue;
		appendStringInfo(&text, "%s%s", text.len == 0 ? " (" : ", ",
						 quote_identifier(option->defname));
		if (option->arg != NULL && IsA(option->arg, Integer))
			appendStringInfo(&text, " %d", intVal(option->arg));
		else if (option->arg != NULL)
			appendStringInfo(&text, " %s", quote_literal_cstr(defGetString(option)));
	}
	if (text.len > 0)
		appendStringInfoChar(&text, ')');
	return text.data;
}

/*
 * VACUUM: the workers' tables first, so that the coordinator's ANALYZE, if asked for,
 * sees them as they are then.  That one also analyses the workers' tables.
 */
void
maintenance_vacuum(UtilityCall *call)
{
	VacuumStmt *vacuum = castNode(VacuumStmt, call->statement->utilityStmt);
	char *options;
	ListCell *cell;

	if (vacuum->is_vacuumcmd && metadata_all_workers() != NULL)
	{
		PreventInTransactionBlock(call->context == PROCESS_UTILITY_TOPLEVEL, "VACUUM");
		options = format_options(vacuum->options, "analyze");
		if (vacuum->rels == NIL)
			run_outside_transaction(GetUserId(), psprintf("VACUUM%s", options));
		foreach(cell, vacuum->rels)
		{
			VacuumRelation *target = lfirst_node(VacuumRelation, cell);
			Oid relid = target->relation == NULL ? target->oid
												 : RangeVarGetRelid(target->relation, NoLock, true);
			const DistributedTable *table = OidIsValid(relid) ? metadata_table(relid) : NULL;

			/* core skips what the user does not own, with a warning */
			if (table != NULL && compat_may_maintain(relid, GetUserId()))
				run_outside_transaction(
					get_relation_owner(relid),
					psprintf("VACUUM%s %s", options, relation_name_qualified(relid)));
		}
	}
	ddl_run_locally(call);
}

/* Does REINDEX SCHEMA, DATABASE or SYSTEM reach this table of ours, and may the user reindex it? */
static bool
is_reindexed(const ReindexStmt *reindex, Oid relid)
{
	if (reindex->kind == REINDEX_OBJECT_SYSTEM ||
		get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE) /* its partitions are reached */
		return false;
	if (reindex->kind == REINDEX_OBJECT_SCHEMA &&
		get_rel_namespace(relid) != get_namespace_oid(reindex->name, false))
		return false;
	return compat_may_maintain(relid, GetUserId());
}

static bool
is_concurrent(const ReindexStmt *reindex)
{
	bool concurrently = false;
	ListCell *cell;

	foreach(cell, reindex->params)
	{
		DefElem *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, "concurrently") == 0)
			concurrently = defGetBoolean(option);
	}
	return concurrently;
}

/*
 * REINDEX of many tables: the coordinator's first, which checks names and privileges and
 * leaves a new transaction behind.
 */
static void
reindex_many(UtilityCall *call, const ReindexStmt *reindex)
{
	char *options = format_options(reindex->params, NULL);
	bool concurrently = is_concurrent(reindex);
	ListCell *cell;

	ddl_run_locally(call);
	if (metadata_all_workers() == NULL)
		return;
	foreach(cell, list_concat(metadata_write_tables(CATALOG_KIND_DISTRIBUTED),
							  metadata_write_tables(CATALOG_KIND_REFERENCE)))
	{
		if (!is_reindexed(reindex, lfirst_oid(cell)))
			continue;
		ddl_complete_indexes(lfirst_oid(cell), concurrently);
		run_outside_transaction(
			get_relation_owner(lfirst_oid(cell)),
			psprintf("REINDEX%s TABLE %s", options, relation_name_qualified(lfirst_oid(cell))));
	}
}

/* REINDEX: the shell's own indexes are empty, but valid only if the workers' are. */
void
maintenance_reindex(UtilityCall *call)
{
	ReindexStmt *reindex = castNode(ReindexStmt, call->statement->utilityStmt);
	bool is_index = reindex->kind == REINDEX_OBJECT_INDEX;
	const DistributedTable *table;
	Oid relid;

	if (!is_index && reindex->kind != REINDEX_OBJECT_TABLE)
	{
		reindex_many(call, reindex);
		return;
	}
	relid = RangeVarGetRelid(reindex->relation, NoLock, true);
	table = metadata_find_table(relid);

	/* not the owner, or not an index: core says so before any worker is asked */
	if (table == NULL || (is_index && relid == table->relation) ||
		!compat_may_maintain(table->relation, GetUserId()))
	{
		ddl_run_locally(call);
		return;
	}
	PreventInTransactionBlock(call->context == PROCESS_UTILITY_TOPLEVEL, "REINDEX");
	if (is_index)
		ddl_complete_index(table->relation, relid, is_concurrent(reindex));
	else
		ddl_complete_indexes(relid, is_concurrent(reindex));
	run_outside_transaction(get_relation_owner(table->relation),
							psprintf("REINDEX%s %s %s", format_options(reindex->params, NULL),
									 is_index ? "INDEX" : "TABLE", relation_name_qualified(relid)));
	ddl_run_locally(call);
}

void
maintenance_cluster(UtilityCall *call)
{
	ClusterStmt *cluster = castNode(ClusterStmt, call->statement->utilityStmt);
	Oid relid = cluster->relation == NULL ? InvalidOid
										  : RangeVarGetRelid(cluster->relation, NoLock, true);

	if (OidIsValid(relid) && metadata_table(relid) != NULL)
		ereport(
			ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot cluster table \"%s\", which is on several nodes", get_rel_name(relid)),
			 errhint(
				 "Insert the rows in the wanted order, or use VACUUM FULL to shrink the table.")));
	ddl_run_locally(call);
}
