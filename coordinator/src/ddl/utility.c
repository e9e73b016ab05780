/*
 * utility.c
 *		Utility commands: from the hook to the handler, and the end of the statement.
 *
 * utility_class.c says which handler does which command.  Everything runs on the coordinator
 * alone while the extension does not exist, while another extension is being created (the
 * workers create it themselves), and inside commands that PostgreSQL splits into several.
 *
 * Dropping is not found by command: tables go by DROP TABLE, DROP SCHEMA, DROP OWNED and
 * more, and so the object access hook tells.  It also notes what a command created,
 * because parse trees do not tell the names that PostgreSQL chose.
 */
#include "postgres.h"

#include "ddl/utility.h"

#include "access/parallel.h"
#include "access/relation.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "nodes/nodes.h"
#include "parser/parse_node.h"
#include "tcop/cmdtag.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "ddl/ddl.h"
#include "ddl/utility_class.h"
#include "execute/executor_hooks.h"
#include "server/launcher.h"
#include "server/statement_depth.h"
#include "stream/reference_write.h"
#include "stream/remote_ddl.h"
#include "table/columnar_options.h"
#include "table/copy_from.h"
#include "table/dropped_names.h"
#include "table/index_validity.h"
#include "table/table_am.h"
#include "table/table_lifecycle.h"
#include "table/table_tree.h"
#include "transaction/constraint_mode.h"
#include "transaction/pending_rows.h"
#include "transaction/serializable.h"
#include "transaction/snapshot_pin.h"
#include "transaction/standby_read.h"
#include "wire/connection.h"

static ProcessUtility_hook_type previous_process_utility = NULL;
static object_access_hook_type previous_object_access = NULL;

/* What was created in this transaction by commands not finished yet: ObjectAddress *. */
static List *created_objects = NIL;

/* Tables whose key column the running command has dropped. */
static List *keys_dropped = NIL;

/* Columnar tables of which commands not finished yet have dropped columns, which options may name. */
static List *columns_dropped = NIL;

/* ---------------------------------------------------------------- for the handlers */

/*
 * A dropped type, collation or the like takes columns along.  Without its key a table cannot be
 * routed; but a table that is dropped by the same command may lose columns first, so
 * this is looked at when the command is done.
 */
static void
check_keys_exist(List *tables)
{
	ListCell *cell;

	if (tables == NIL)
		return;
	CommandCounterIncrement();
	foreach(cell, tables)
	{
		if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(lfirst_oid(cell))))
			ereport(ERROR,
					(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
					 errmsg("cannot drop the distribution key of table \"%s\"",
							get_rel_name(lfirst_oid(cell))),
					 errdetail("The command would drop the column with something that it needs."),
					 errhint("Run undistribute_table() first, or drop the table.")));
	}
}

static void
run_standard_command(UtilityCall *call)
{
	if (previous_process_utility)
		previous_process_utility(call->statement, call->source, call->read_only_tree, call->context,
								 call->parameters, call->environment, call->destination,
								 call->completion);
	else
		standard_ProcessUtility(call->statement, call->source, call->read_only_tree, call->context,
								call->parameters, call->environment, call->destination,
								call->completion);
}

void
ddl_run_locally(UtilityCall *call)
{
	List *outer = keys_dropped;
	List *volatile dropped = NIL;

	keys_dropped = NIL;
	PG_TRY();
	{
		run_standard_command(call);
	}
	PG_FINALLY();
	{
		dropped = keys_dropped;
		keys_dropped = outer;
	}
	PG_END_TRY();
	check_keys_exist(dropped);
}

void
ddl_run_without_scans(UtilityCall *call)
{
	table_am_suspended++;
	PG_TRY();
	{
		ddl_run_locally(call);
	}
	PG_FINALLY();
	{
		table_am_suspended--;
	}
	PG_END_TRY();
}

Node *
ddl_modifiable_statement(UtilityCall *call)
{
	if (call->read_only_tree)
	{
		call->statement = copyObject(call->statement);
		call->read_only_tree = false;
	}
	return call->statement->utilityStmt;
}

List *
ddl_created_objects(const UtilityCall *call)
{
	if (list_length(created_objects) > call->first_created)
		CommandCounterIncrement();
	return list_copy_tail(created_objects, call->first_created);
}

/* A table is being dropped: drop it on the workers, who may find more to tell about than we do. */
static void
forget_table(Oid relation)
{
	dropped_names_note(relation);
	remote_ddl_note_change();
	connection_open_all(metadata_all_workers());
	remote_ddl_silence(true);
	PG_TRY();
	{
		table_lifecycle_forget(relation, true);
	}
	PG_FINALLY();
	{
		remote_ddl_silence(false);
	}
	PG_END_TRY();
}

char *
ddl_role_name(const RoleSpec *role)
{
	if (role->roletype == ROLESPEC_PUBLIC)
		return "PUBLIC";
	return pstrdup(quote_identifier(GetUserNameFromId(get_rolespec_oid(role, false), false)));
}

/* ---------------------------------------------------------------- rows */

/* COPY: only COPY FROM into a shell is ours; COPY TO reads without the executor. */
void
ddl_copy(UtilityCall *call)
{
	CopyStmt *copy = castNode(CopyStmt, call->statement->utilityStmt);
	ParseState *pstate;
	Relation relation;
	bool shell;
	Oid relid;
	uint64 rows;

	if (!copy->is_from)
		snapshot_pin_transaction(ActiveSnapshotSet() ? GetActiveSnapshot() : NULL);
	if (copy->relation == NULL)
	{
		ddl_run_locally(call);
		return;
	}
	relid = RangeVarGetRelid(copy->relation, copy->is_from ? RowExclusiveLock : AccessShareLock,
							 true);
	if (OidIsValid(relid))
		serializable_check_relation(relid, copy->is_from);
	if (!copy->is_from)
	{
		ddl_run_locally(call);
		return;
	}
	relation = OidIsValid(relid) ? relation_open(relid, NoLock) : NULL;
	shell = relation != NULL && metadata_is_shell(relation);
	if (relation != NULL && !shell && metadata_table(relid) != NULL)
		copy_from_leave_freeze_out((CopyStmt *) ddl_modifiable_statement(call), relation);
	if (relation != NULL)
		relation_close(relation, NoLock);
	if (!shell)
	{
		ddl_run_locally(call);
		return;
	}

	pstate = make_parsestate(NULL);
	pstate->p_sourcetext = call->source;
	pstate->p_queryEnv = call->environment;
	rows = copy_from_run(pstate, (CopyStmt *) ddl_modifiable_statement(call));
	free_parsestate(pstate);
	if (call->completion != NULL)
		SetQueryCompletion(call->completion, CMDTAG_COPY, rows);
}

/* SET CONSTRAINTS: here it checks the names; the constraints of distributed tables are there. */
void
ddl_set_constraints(UtilityCall *call)
{
	ddl_run_locally(call);
	constraint_mode_set(castNode(ConstraintsSetStmt, call->statement->utilityStmt));
}

/* ---------------------------------------------------------------- new tables */

/* ERROR if this new relation of access method `distributed` cannot be a distributed table. */
static void
check_new_shell(Relation relation)
{
	const char *reason = NULL;

	if (relation->rd_rel->relkind != RELKIND_RELATION)
		reason = "Only tables can be distributed.";
	else if (relation->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		reason = "Temporary and unlogged tables cannot be distributed.";
	else if (relation->rd_rel->relispartition)
		reason = "Partitions cannot be distributed.";
	if (reason != NULL)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("cannot create \"%s\" with access method \"distributed\"",
							   RelationGetRelationName(relation)),
						errdetail("%s", reason), errhint("Create it USING heap.")));
}

/*
 * Distribute what the command created with our access method and did not distribute yet
 * (CREATE TABLE AS does, with its first row), and make children of reference tables such tables.
 */
static void
distribute_new_tables(const UtilityCall *call)
{
	ListCell *cell;

	foreach(cell, ddl_created_objects(call))
	{
		ObjectAddress *address = lfirst(cell);
		Relation relation;
		const char *storage;
		bool shell;

		if (address->classId != RelationRelationId ||
			!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(address->objectId)))
			continue;
		relation = relation_open(address->objectId, NoLock);
		shell = metadata_is_shell(relation);
		if (shell)
			check_new_shell(relation);
		relation_close(relation, NoLock);
		if (shell && metadata_table(address->objectId) == NULL)
			table_lifecycle_distribute(address->objectId, NULL, 0, "default",
									   METADATA_DEFAULT_STORAGE, NULL);
		else if (metadata_table(address->objectId) == NULL &&
				 (storage = table_tree_storage(address->objectId)) != NULL)
			table_lifecycle_replicate(address->objectId, storage);
		dropped_names_check(address->objectId);
	}
}

/* SET: a snapshot that another session exported knows nothing of the workers. */
void
ddl_set(UtilityCall *call)
{
	const VariableSetStmt *set = castNode(VariableSetStmt, call->statement->utilityStmt);

	ddl_run_locally(call);
	if (set->kind == VAR_SET_MULTI && strcmp(set->name, "TRANSACTION SNAPSHOT") == 0)
		snapshot_pin_note_import();
}

/* ---------------------------------------------------------------- hooks */

/* The access method that the command names for a table; NULL: none. */
static const char *
find_access_method_name(Node *statement)
{
	ListCell *cell;

	switch (nodeTag(statement))
	{
		case T_CreateStmt:
			return castNode(CreateStmt, statement)->accessMethod;
		case T_CreateTableAsStmt:
			return castNode(CreateTableAsStmt, statement)->into->accessMethod;
		case T_AlterTableStmt:
			foreach(cell, castNode(AlterTableStmt, statement)->cmds)
			{
				if (lfirst_node(AlterTableCmd, cell)->subtype == AT_SetAccessMethod)
					return lfirst_node(AlterTableCmd, cell)->name;
			}
			return NULL;
		default:
			return NULL;
	}
}

/* Workers have columnar tables, and so one is looked for here, too. */
static void
check_access_method(Node *statement)
{
	const char *name = find_access_method_name(statement);

	if (name != NULL && strcmp(name, "columnar") == 0 && !OidIsValid(get_am_oid(name, true)))
		ereport(
			ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("access method \"%s\" does not exist", name),
			 errdetail("The coordinator does not have extension \"strata_columnar\"."),
			 errhint("Leave USING columnar out and run create_distributed_table(), whose storage "
					 "on the workers is columnar by default.  For columnar tables of the "
					 "coordinator's own run CREATE EXTENSION strata_columnar.")));
}

/* The workers have dropped the columns, too: what is left of options that named them? */
static void
follow_dropped_columns(int first)
{
	List *tables = list_copy_tail(columns_dropped, first);
	ListCell *cell;

	columns_dropped = list_truncate(columns_dropped, first);
	foreach(cell, tables)
		columnar_options_follow(lfirst_oid(cell));
}

/* Run one command, and bring what it created in order. */
static void
handle_call(UtilityCall *call)
{
	const UtilityClass *class;
	int first_dropped;

	if (call->context == PROCESS_UTILITY_SUBCOMMAND)
	{
		if (IsA(call->statement->utilityStmt, GrantStmt)) /* an element of CREATE SCHEMA */
			ddl_grant(call);
		else
			ddl_run_locally(call);
		return;
	}
	check_access_method(call->statement->utilityStmt);
	class = utility_class_find(nodeTag(call->statement->utilityStmt));
	call->first_created = list_length(created_objects);
	first_dropped = list_length(columns_dropped);
	if (class->handler != NULL)
		class->handler(call);
	else
		ddl_run_locally(call);
	index_validity_restore();
	ddl_follow_dropped_constraints();
	follow_dropped_columns(first_dropped);

	if (list_length(created_objects) > call->first_created)
	{
		distribute_new_tables(call);
		ddl_check_created(call);
		created_objects = list_truncate(created_objects, call->first_created);
	}
}

static bool
runs_prepared(Node *statement)
{
	if (IsA(statement, CreateTableAsStmt))
	{
		Query *query = castNode(Query, ((CreateTableAsStmt *) statement)->query);

		return query->utilityStmt != NULL && IsA(query->utilityStmt, ExecuteStmt);
	}
	return IsA(statement, ExecuteStmt);
}

static void
process_utility(PlannedStmt *statement, const char *source, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo parameters,
				QueryEnvironment *environment, DestReceiver *destination,
				QueryCompletion *completion)
{
	UtilityCall call = {
		.statement = statement,
		.source = source,
		.read_only_tree = read_only_tree,
		.context = context,
		.parameters = parameters,
		.environment = environment,
		.destination = destination,
		.completion = completion,
	};

	bool runs_prepared_before = executor_runs_prepared;

	if (!IsA(statement->utilityStmt, TransactionStmt))
		launcher_before_command(statement->utilityStmt);

	/* COMMIT and ROLLBACK must work in a failed transaction, where nothing can be looked up. */
	if (IsA(statement->utilityStmt, TransactionStmt) || IsParallelWorker() ||
		table_lifecycle_local_depth > 0 || creating_extension || !metadata_available())
	{
		ddl_run_locally(&call);
		return;
	}

	reference_write_flush();
	statement_depth++;
	executor_runs_prepared = statement_depth == 1 && runs_prepared(statement->utilityStmt);
	PG_TRY();
	{
		handle_call(&call);
	}
	PG_FINALLY();
	{
		statement_depth--;
		executor_runs_prepared = runs_prepared_before;
	}
	PG_END_TRY();

	if (statement_depth == 0 && IsTransactionState())
	{
		reference_write_flush();
		pending_rows_flush();
		standby_read_end_statement();
	}
}

static void
note_created_object(Oid class_id, Oid object_id)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);
	ObjectAddress *address = palloc(sizeof(ObjectAddress));

	ObjectAddressSet(*address, class_id, object_id);
	created_objects = lappend(created_objects, address);
	MemoryContextSwitchTo(old);
}

/* Relations of ours, or their columns, go. */
static void
note_dropped_relation(Oid relid, AttrNumber attribute)
{
	const DistributedTable *table = metadata_table(relid);
	MemoryContext old;

	if (table == NULL)
		return;
	if (attribute == InvalidAttrNumber)
	{
		forget_table(relid);
		return;
	}
	old = MemoryContextSwitchTo(TopTransactionContext);
	if (table->kind == TABLE_DISTRIBUTED && attribute == table->key_attribute)
		keys_dropped = lappend_oid(keys_dropped, relid);
	if (table->is_columnar)
		columns_dropped = lappend_oid(columns_dropped, relid);
	MemoryContextSwitchTo(old);
}

static void
access_object(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg)
{
	if (previous_object_access)
		previous_object_access(access, class_id, object_id, sub_id, arg);

	if (access == OAT_POST_CREATE && sub_id == 0 && statement_depth > 0 &&
		table_lifecycle_local_depth == 0 && !creating_extension)
	{
		ObjectAccessPostCreate *create = arg;

		/* Tables that a rewrite makes for its own use are internal. */
		if (create == NULL || !create->is_internal || class_id != RelationRelationId)
			note_created_object(class_id, object_id);
	}
	else if (access == OAT_DROP && class_id == RelationRelationId)
		note_dropped_relation(object_id, sub_id);
	else if (access == OAT_DROP && class_id == ConstraintRelationId && statement_depth > 0)
		ddl_note_dropped_constraint(object_id);
}

/* The lists are in the transaction's memory. */
void
utility_transaction_event(XactEvent event)
{
	if (event == XACT_EVENT_ABORT || event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE)
	{
		created_objects = NIL;
		keys_dropped = NIL;
		columns_dropped = NIL;
		ddl_forget_dropped_constraints();
	}
}

void
utility_initialize(void)
{
	previous_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
	previous_object_access = object_access_hook;
	object_access_hook = access_object;
}
