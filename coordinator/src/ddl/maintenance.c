/*
 * maintenance.c
 *		VACUUM, ANALYZE, REINDEX and CLUSTER on the workers.
 *
 * VACUUM and REINDEX refuse to run inside a transaction block, and so they are sent outside the
 * distributed transaction, on connections that are idle because the client's own
 * transaction has only just begun.  They write no rows: one that fails on one worker
 * need not be undone on the others.  ANALYZE, and CLUSTER of one table, are part of the transaction, as in PostgreSQL.
 */
#include "postgres.h"

#include "ddl/ddl.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "commands/defrem.h"
#include "compat.h"
#include "wire/connection.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "cluster/metadata_write.h"
#include "relation_owner.h"
#include "cluster/relation_name.h"
#include "stream/remote_command.h"
#include "table/reference_statistics.h"
#include "table/shard_statistics.h"
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

	if (connection->transaction.depth > 0)
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

void
maintenance_run(Oid role, char *sql)
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

/*
 * The same of a command that takes strong locks there.  A move of one of the table's shards has locks on the source until it ends,
 * and readers would wait behind whoever waits for these: it gives way to who waits for this one (workers/shard_move.c).
 */
static void
run_before_moves(Oid relation, char *sql)
{
	Oid owner = get_relation_owner(relation);

	LockRelationOid(relation, ShareUpdateExclusiveLock);
	maintenance_run(owner, sql);
	UnlockRelationOid(relation, ShareUpdateExclusiveLock);
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

/* A Boolean option; the last one counts. */
static bool
is_set(List *options, const char *name)
{
	bool value = false;
	ListCell *cell;

	foreach(cell, options)
	{
		DefElem *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, name) == 0)
			value = defGetBoolean(option);
	}
	return value;
}

/* A distributed or reference table of ANALYZE. */
typedef struct Target
{
	Oid relation;
	bool only; /* without its partitions */
	List *columns;
} Target;

static void
add_target(List **targets, Oid relation, bool only, List *columns)
{
	Target *target = palloc(sizeof(Target));

	target->relation = relation;
	target->only = only;
	target->columns = columns;
	*targets = lappend(*targets, target);
}

static Oid
find_target(const VacuumRelation *target)
{
	return target->relation == NULL ? target->oid
									: RangeVarGetRelid(target->relation, NoLock, true);
}

/* Tables of ours that ANALYZE means: those that it names, with their partitions, or all. */
static List *
list_analyzed(const VacuumStmt *statement)
{
	List *targets = NIL;
	ListCell *cell;
	ListCell *part;

	if (statement->rels == NIL)
	{
		foreach(cell, list_concat(metadata_write_tables(CATALOG_KIND_DISTRIBUTED),
								  metadata_write_tables(CATALOG_KIND_REFERENCE)))
			add_target(&targets, lfirst_oid(cell), false, NIL);
	}
	foreach(cell, statement->rels)
	{
		VacuumRelation *named = lfirst_node(VacuumRelation, cell);
		Oid relid = find_target(named);
		const DistributedTable *table = OidIsValid(relid) ? metadata_table(relid) : NULL;
		bool only = named->relation != NULL && !named->relation->inh;

		if (table == NULL)
			continue;
		if (only || get_rel_relkind(relid) != RELKIND_PARTITIONED_TABLE)
			add_target(&targets, relid, only, named->va_cols);
		else
			foreach(part, find_all_inheritors(relid, NoLock, NULL))
				add_target(&targets, lfirst_oid(part), false, named->va_cols);
	}
	return targets;
}

/* ANALYZE of its parent, as the same owner, reaches this partition on the workers. */
static bool
is_analyzed_with_parent(const List *targets, Oid relation)
{
	Oid parent = get_rel_relispartition(relation) ? get_partition_parent(relation, true)
												  : InvalidOid;
	ListCell *cell;

	foreach(cell, targets)
	{
		const Target *target = lfirst(cell);

		if (target->relation == parent && !target->only)
			return get_relation_owner(parent) == get_relation_owner(relation) &&
				   compat_may_vacuum(parent, GetUserId());
	}
	return false;
}

static char *
format_columns(const List *columns)
{
	StringInfoData text;
	ListCell *cell;

	initStringInfo(&text);
	foreach(cell, columns)
		appendStringInfo(&text, "%s%s", text.len == 0 ? " (" : ", ",
						 quote_identifier(strVal(lfirst(cell))));
	if (text.len > 0)
		appendStringInfoChar(&text, ')');
	return text.data;
}

static bool
may_analyze(Oid relation)
{
	return SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relation)) &&
		   compat_may_vacuum(relation, GetUserId());
}

/* What was dropped, is locked or not the user's to analyse has had its WARNING by the coordinator's own ANALYZE. */
static void
analyze_target(const List *targets, const Target *target, bool skip_locked)
{
	const DistributedTable *table;

	if (!may_analyze(target->relation)) /* others need not wait for a stranger's lock */
		return;
	if (!skip_locked)
		LockRelationOid(target->relation, ShareUpdateExclusiveLock);
	else if (!ConditionalLockRelationOid(target->relation, ShareUpdateExclusiveLock))
		return;
	if (!may_analyze(target->relation))
		return;
	table = metadata_table(target->relation);
	if (table == NULL || is_analyzed_with_parent(targets, target->relation))
		return;
	if (table->kind == TABLE_DISTRIBUTED)
	{
		shard_statistics_send(target->relation);
		return;
	}
	reference_statistics_analyze(
		target->relation, metadata_table_workers(table),
		psprintf("%s%s", skip_locked ? " (SKIP_LOCKED)" : "", target->only ? " ONLY" : ""),
		format_columns(target->columns));
}

/*
 * The workers' part of ANALYZE, when the coordinator's is done: they analyse copies, and get the statistics of shards.  As in PostgreSQL several tables are a transaction each, unless the user has begun one:
 * their locks are held no longer than needed.  A SERIALIZABLE transaction uses one node only: table/reference_statistics.c
 * does it later.
 */
static void
analyze_targets(const UtilityCall *call, const List *targets, bool skip_locked)
{
	bool own_transactions = list_length(targets) > 1 &&
							!IsInTransactionBlock(call->context == PROCESS_UTILITY_TOPLEVEL);
	ListCell *cell;

	foreach(cell, targets)
	{
		if (own_transactions)
		{
			if (ActiveSnapshotSet())
				PopActiveSnapshot();
			CommitTransactionCommand();
			StartTransactionCommand();
		}
		if (!IsolationIsSerializable())
			analyze_target(targets, lfirst(cell), skip_locked);
	}
}

/* The workers' part of VACUUM. */
static void
vacuum_workers(UtilityCall *call, const VacuumStmt *vacuum)
{
	char *options = format_options(vacuum->options, "analyze");
	bool rewrites = is_set(vacuum->options, "full") && !is_set(vacuum->options, "skip_locked");
	ListCell *cell;

	PreventInTransactionBlock(call->context == PROCESS_UTILITY_TOPLEVEL, "VACUUM");
	if (vacuum->rels == NIL)
		maintenance_run(GetUserId(), psprintf("VACUUM%s", options));
	foreach(cell, vacuum->rels)
	{
		Oid relid = find_target(lfirst_node(VacuumRelation, cell));
		const DistributedTable *table = OidIsValid(relid) ? metadata_table(relid) : NULL;

		/* core skips what the user may not vacuum, with a warning */
		if (table != NULL && compat_may_vacuum(relid, GetUserId()))
		{
			char *sql = psprintf("VACUUM%s %s", options, relation_name_qualified(relid));

			if (rewrites)
				run_before_moves(relid, sql);
			else
				maintenance_run(get_relation_owner(relid), sql);
		}
	}
}

/*
 * VACUUM: the workers' tables first, so that the coordinator's ANALYZE, if asked for, sees them as they are then.  The
 * workers' statistics follow.
 */
void
maintenance_vacuum(UtilityCall *call)
{
	VacuumStmt *vacuum = castNode(VacuumStmt, call->statement->utilityStmt);
	bool analyzes = !vacuum->is_vacuumcmd || is_set(vacuum->options, "analyze");
	bool skip_locked = is_set(vacuum->options, "skip_locked");
	List *targets = NIL;

	if (metadata_all_workers() != NULL)
	{
		if (vacuum->is_vacuumcmd)
			vacuum_workers(call, vacuum);
		if (analyzes)
			targets = list_analyzed(vacuum);
	}
	ddl_run_locally(call);
	analyze_targets(call, targets, skip_locked);
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

/*
 * REINDEX of many tables: the coordinator's first, which checks names and privileges and
 * leaves a new transaction behind.
 */
static void
reindex_many(UtilityCall *call, const ReindexStmt *reindex)
{
	char *options = format_options(reindex->params, NULL);
	bool concurrently = is_set(reindex->params, "concurrently");
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
		run_before_moves(lfirst_oid(cell), psprintf("REINDEX%s TABLE %s", options,
													relation_name_qualified(lfirst_oid(cell))));
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
	Oid relation;
	char *sql;

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
	relation = table->relation;
	sql = psprintf("REINDEX%s %s %s", format_options(reindex->params, NULL),
				   is_index ? "INDEX" : "TABLE", relation_name_qualified(relid));
	if (is_index)
		ddl_complete_index(relation, relid, is_set(reindex->params, "concurrently"));
	else
		ddl_complete_indexes(relid, is_set(reindex->params, "concurrently"));
	if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relid))) /* not dropped meanwhile */
		run_before_moves(relation, sql);
	ddl_run_locally(call);
}

/* ---------------------------------------------------------------- CLUSTER */

/* The index by which the table was clustered last, as PostgreSQL has marked it; InvalidOid if none. */
static Oid
find_clustered_index(Oid relid)
{
	Relation relation = relation_open(relid, NoLock);
	Oid found = InvalidOid;
	ListCell *cell;

	foreach(cell, RelationGetIndexList(relation))
	{
		if (get_index_isclustered(lfirst_oid(cell)))
			found = lfirst_oid(cell);
	}
	relation_close(relation, NoLock);
	return found;
}

/*
 * The workers' part of CLUSTER, in this transaction, whose AccessExclusiveLock on the table nobody reads beside: the mark is set
 * here alone.
 */
static void
cluster_on_workers(Oid relid, bool verbose)
{
	const DistributedTable *table = metadata_table(relid);

	if (bms_is_empty(metadata_table_workers(table)))
		return;
	remote_command_run(
		metadata_table_workers(table), REMOTE_WRITE,
		psprintf("SELECT strata_worker.cluster_table(%s, %s, '%s')",
				 quote_literal_cstr(relation_name_qualified(relid)),
				 quote_literal_cstr(relation_name_qualified(find_clustered_index(relid))),
				 verbose ? "true" : "false"));
}

/* One of several tables, in a transaction of its own.  As in PostgreSQL, what has changed since is left out. */
static void
cluster_next(Oid relid, bool verbose)
{
	CommitTransactionCommand();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	LockRelationOid(relid, AccessExclusiveLock);
	if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relid)) && metadata_table(relid) != NULL &&
		compat_may_maintain(relid, GetUserId()) && OidIsValid(find_clustered_index(relid)))
		cluster_on_workers(relid, verbose);
	PopActiveSnapshot();
}

/* CLUSTER of all tables that the user has clustered before: here, and then table by table on the workers. */
static void
cluster_many(UtilityCall *call, bool verbose)
{
	List *clustered = NIL;
	ListCell *cell;

	foreach(cell, list_concat(metadata_write_tables(CATALOG_KIND_DISTRIBUTED),
							  metadata_write_tables(CATALOG_KIND_REFERENCE)))
	{
		LockRelationOid(lfirst_oid(cell), AccessShareLock);
		if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(lfirst_oid(cell))) &&
			compat_may_maintain(lfirst_oid(cell), GetUserId()) &&
			OidIsValid(find_clustered_index(lfirst_oid(cell))))
			clustered = lappend_oid(clustered, lfirst_oid(cell));
	}
	ddl_run_locally(call);
	foreach(cell, clustered)
		cluster_next(lfirst_oid(cell), verbose);
}

/*
 * CLUSTER of a partitioned reference table: PostgreSQL takes its partitions one by one, each in a transaction of its own, here and
 * on the workers.
 */
static void
cluster_tree(UtilityCall *call, const CompatClusterStmt *cluster, Oid relid)
{
	MemoryContext caller = MemoryContextSwitchTo(PortalContext);
	char *sql = psprintf("CLUSTER%s %s%s%s", format_options(cluster->params, NULL),
						 relation_name_qualified(relid),
						 cluster->indexname == NULL ? "" : " USING ",
						 cluster->indexname == NULL ? "" : quote_identifier(cluster->indexname));

	MemoryContextSwitchTo(caller);
	ddl_run_locally(call);
	run_before_moves(relid, sql);
}

/*
 * CLUSTER.  Of one table it is part of the transaction, as in PostgreSQL: here the shell's index is marked, and what
 * PostgreSQL has to say against it is said; on the workers the leaves are rewritten.
 */
void
maintenance_cluster(UtilityCall *call)
{
	const CompatClusterStmt *cluster = castNode(CompatClusterStmt, call->statement->utilityStmt);
	const RangeVar *name = compat_cluster_relation(cluster);
	Oid relid = name == NULL ? InvalidOid : RangeVarGetRelid(name, NoLock, true);
	const DistributedTable *table = OidIsValid(relid) ? metadata_table(relid) : NULL;
	TableKind kind;

	if (compat_is_repack(cluster) &&
		(name == NULL ? metadata_all_workers() != NULL : table != NULL))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("REPACK of tables that are on workers is not supported"),
				 errhint("Use VACUUM FULL or CLUSTER, or name a table of the coordinator's own.")));
	if (name == NULL && metadata_all_workers() != NULL)
		cluster_many(call, is_set(cluster->params, "verbose"));
	else if (table == NULL || !compat_may_maintain(relid, GetUserId()))
		ddl_run_locally(call); /* which says so, if it is not the user's */
	else if (get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE)
		cluster_tree(call, cluster, relid);
	else
	{
		kind = table->kind;
		ddl_run_locally(call);
		ddl_ensure_unchanged(relid, kind);
		cluster_on_workers(relid, is_set(cluster->params, "verbose"));
	}
}
