/*
 * ddl_index.c
 *		CREATE INDEX and DROP INDEX.
 *
 * An index is built from the catalog after the command ran here, because PostgreSQL chooses its
 * name.  All happens in the user's transaction, but for CONCURRENTLY.
 *
 * CREATE INDEX CONCURRENTLY is refused on partitioned tables, which the workers' are.  Instead:
 *
 *	1. here, as PostgreSQL does it on the empty shell; the index stays invalid;
 *	2. on each worker, outside of any transaction: the index ON ONLY the table, one index CONCURRENTLY
 *	   on each partition, ALTER INDEX ... ATTACH PARTITION as the table's owner.  The worker says which command
 *	   comes next (strata_worker.next_index_command), from what it has;
 *	3. here the index becomes valid.
 *
 * Whatever stops this leaves an invalid index, as in PostgreSQL.  Because the second step looks at
 * what is there, the same command again, or REINDEX, completes it; DROP INDEX removes all parts.
 * No lock on the table is held meanwhile, but for those that CONCURRENTLY takes.
 *
 * DROP INDEX CONCURRENTLY, which PostgreSQL refuses there, too, goes the same way back:
 *
 *	1. here the index becomes invalid, and who may have planned with it has ended;
 *	2. each worker drops it when nobody has its leaves, trying for a moment only, again and again: who comes
 *	   meanwhile waits for no longer.  That of a reference table PostgreSQL drops there as well;
 *	3. here, as PostgreSQL does it.
 *
 * What stops this leaves an invalid index, too: some workers have it.  The same command again drops it, and
 * REINDEX builds what is missing.  ShareUpdateExclusiveLock on the index, taken before locks on the table, is what
 * keeps those who complete it and those who drop it apart; an index that was valid may be half dropped
 * when it comes.
 */
#include "postgres.h"

#include "ddl/ddl.h"

#include "access/attmap.h"
#include "access/genam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_depend.h"
#include "commands/defrem.h"
#include "commands/tablecmds.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parse_utilcmd.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "compat.h"
#include "cluster/relation_name.h"
#include "stream/remote_ddl.h"
#include "table/index_validity.h"
#include "table/table_rules.h"
#include "table/table_tree.h"
#include "table/worker_table_sql.h"
#include "values/row_format.h"

/* ---------------------------------------------------------------- an index left unfinished */

/* Would CREATE INDEX make an index like this one? */
static bool
is_same_index(const IndexStmt *wanted, Oid index)
{
	Relation relation = index_open(index, AccessShareLock);
	TupleDesc desc;
	Relation heap = table_open(relation->rd_index->indrelid, AccessShareLock);
	AttrMap *map;
	IndexStmt *existing;
	bool same;

	desc = RelationGetDescr(heap);
	map = make_attrmap(desc->natts);
	for (int i = 0; i < desc->natts; i++)
		map->attnums[i] = i + 1;
	existing = generateClonedIndexStmt(NULL, relation, map, NULL);
	same = wanted->unique == existing->unique &&
		   strcmp(wanted->accessMethod, existing->accessMethod) == 0 &&
		   list_length(wanted->indexParams) == list_length(existing->indexParams) &&
		   equal(wanted->indexIncludingParams, existing->indexIncludingParams) &&
		   equal(wanted->options, existing->options) &&
		   equal(wanted->whereClause, existing->whereClause);
	for (int i = 0; same && i < list_length(wanted->indexParams); i++)
	{
		IndexElem *element = copyObject(list_nth_node(IndexElem, wanted->indexParams, i));

		element->indexcolname = list_nth_node(IndexElem, existing->indexParams, i)->indexcolname;
		same = equal(element, list_nth(existing->indexParams, i));
	}
	table_close(heap, NoLock);
	index_close(relation, NoLock);
	return same;
}

/*
 * The invalid index that this command has begun, or another like it; InvalidOid when there is none.  With a
 * name in the command it must be the one of this name.
 */
static Oid
find_unfinished(const UtilityCall *call, Oid table)
{
	IndexStmt *create = castNode(IndexStmt, call->statement->utilityStmt);
	IndexStmt *wanted = transformIndexStmt(table, copyObject(create), call->source);
	Relation relation = table_open(table, AccessShareLock);
	Oid found = InvalidOid;
	ListCell *cell;

	foreach(cell, RelationGetIndexList(relation))
	{
		Oid index = lfirst_oid(cell);

		if (!get_index_isvalid(index) &&
			(create->idxname == NULL || strcmp(create->idxname, get_rel_name(index)) == 0) &&
			is_same_index(wanted, index))
		{
			found = index;
			break;
		}
	}
	table_close(relation, NoLock);
	return found;
}

/* ---------------------------------------------------------------- CREATE INDEX CONCURRENTLY */

/* A name like PostgreSQL's own: afterwards nobody tells which one it took. */
static char *
choose_name(const IndexStmt *create, Oid table)
{
	StringInfoData columns;
	ListCell *cell;

	initStringInfo(&columns);
	foreach(cell, list_concat_copy(create->indexParams, create->indexIncludingParams))
	{
		const IndexElem *element = lfirst_node(IndexElem, cell);

		appendStringInfo(&columns, "%s%s", columns.len > 0 ? "_" : "",
						 element->name != NULL ? element->name : "expr");
	}
	return ChooseRelationName(get_rel_name(table), columns.data, "idx", get_rel_namespace(table),
							  false);
}

/* The same check as ddl_check_created(), before anything is left behind. */
static void
check_unique(const IndexStmt *create, const DistributedTable *table)
{
	AttrNumber columns[INDEX_MAX_KEYS] = {0};
	ListCell *cell;

	if (!create->unique)
		return;
	foreach(cell, create->indexParams)
	{
		const IndexElem *element = lfirst_node(IndexElem, cell);

		if (element->name != NULL && foreach_current_index(cell) < INDEX_MAX_KEYS)
			columns[foreach_current_index(cell)] = get_attnum(table->relation, element->name);
	}
	table_rules_check_unique(table->relation, create->idxname, columns, INDEX_MAX_KEYS,
							 table->key_attribute, table->periods.attribute);
}

/* Before core makes the index, step by step: it would stay behind. */
static void
check_row_type(IndexStmt *create, const UtilityCall *call, const DistributedTable *table)
{
	Relation relation = table_open(table->relation, NoLock);
	const IndexStmt *analysed = transformIndexStmt(table->relation, copyObject(create),
												   call->source);

	table_rules_check_index(relation, table->kind == TABLE_REFERENCE, analysed);
	table_close(relation, NoLock);
}

/*
 * Create the index here and leave it invalid.  InvalidOid if there is one of the name already, and
 * the command says that this is fine.
 */
static Oid
create_invalid(UtilityCall *call, const DistributedTable *table)
{
	IndexStmt *create = (IndexStmt *) ddl_modifiable_statement(call);
	Oid namespace = get_rel_namespace(table->relation);
	Oid index;

	if (create->idxname == NULL)
		create->idxname = choose_name(create, table->relation);
	if (table->kind == TABLE_DISTRIBUTED)
		check_unique(create, table);
	if (create->if_not_exists && OidIsValid(get_relname_relid(create->idxname, namespace)))
	{
		ddl_run_locally(call);
		return InvalidOid;
	}
	check_row_type(create, call, table);
	ddl_run_locally(call);
	index = get_relname_relid(create->idxname, namespace);
	index_validity_set(index, false);
	return index;
}

/* The SQL by which a worker tells its next command for the index. */
static char *
build_question(Oid index, Oid table)
{
	int level = row_format_enter_sql_mode();
	char *definition = TextDatumGetCString(
		DirectFunctionCall1(pg_get_indexdef, ObjectIdGetDatum(index)));
	bool unique = strncmp(definition, "CREATE UNIQUE", strlen("CREATE UNIQUE")) == 0;
	char *start = psprintf("CREATE %sINDEX %s ON %s ", unique ? "UNIQUE " : "",
						   quote_identifier(relation_name(index)), relation_name_qualified(table));

	row_format_leave_sql_mode(level);
	if (strncmp(definition, start, strlen(start)) != 0)
		elog(ERROR, "unexpected index definition \"%s\"", definition);
	return psprintf("SELECT strata_worker.next_index_command(%s, %s, %s, %s)",
					quote_literal_cstr(relation_name_qualified(table)),
					quote_literal_cstr(relation_name(index)), unique ? "true" : "false",
					quote_literal_cstr(definition + strlen(start)));
}

/* Each worker does one command after the other until it has none left. */
static void
build_on_workers(char *question)
{
	const Bitmapset *workers = metadata_all_workers();
	int *asked = palloc(bms_num_members(workers) * sizeof(int));
	char **sqls = palloc(bms_num_members(workers) * sizeof(char *));
	int count = 0;
	int worker = -1;

	while ((worker = bms_next_member(workers, worker)) >= 0)
		asked[count++] = worker;
	while (count > 0)
	{
		char **commands;
		int busy = 0;

		for (int i = 0; i < count; i++)
			sqls[i] = question;
		commands = maintenance_run_each(asked, GetUserId(), sqls, count);
		for (int i = 0; i < count; i++)
		{
			if (commands[i] == NULL)
				continue;
			asked[busy] = asked[i];
			sqls[busy++] = commands[i];
		}
		count = busy;
		(void) maintenance_run_each(asked, GetUserId(), sqls, count);
	}
}

/*
 * The workers build what they lack of the index, and the new parts get its options.  False if it is gone, or its
 * table is no longer distributed: dropped or undistributed by who had the lock.
 */
static bool
complete_on_workers(Oid index, Oid table_id)
{
	const DistributedTable *table;
	TableKind kind;

	LockRelationOid(index, ShareUpdateExclusiveLock);
	table = metadata_table(table_id);
	if (table == NULL || !SearchSysCacheExists1(INDEXRELID, ObjectIdGetDatum(index)))
		return false;
	kind = table->kind; /* what is known may be forgotten while the workers build */
	build_on_workers(build_question(index, table_id));
	if (kind == TABLE_DISTRIBUTED)
		maintenance_run(GetUserId(), worker_table_sql_index_options(index));
	return true;
}

/* A new transaction, as CREATE INDEX CONCURRENTLY itself begins several. */
static void
begin_next_transaction(void)
{
	if (ActiveSnapshotSet())
		PopActiveSnapshot();
	CommitTransactionCommand();
	StartTransactionCommand();
}

static void
create_concurrently(UtilityCall *call, Oid table_id)
{
	const DistributedTable *table = metadata_table(table_id);
	Oid index = InvalidOid;

	if (table->kind == TABLE_DISTRIBUTED)
		index = find_unfinished(call, table_id);
	if (!OidIsValid(index))
		index = create_invalid(call, table);
	if (!OidIsValid(index))
		return;

	begin_next_transaction();
	PushActiveSnapshot(GetTransactionSnapshot());
	(void) complete_on_workers(index, table_id);
	begin_next_transaction();

	LockRelationOid(table_id, ShareUpdateExclusiveLock);
	index_validity_set(index, true);
	remote_ddl_note_change();
}

/* ---------------------------------------------------------------- REINDEX */

void
ddl_complete_index(Oid table, Oid index, bool concurrently)
{
	const DistributedTable *known;

	/* a constraint's index never was invalid; that of a partitioned reference table has nothing to build */
	if (OidIsValid(get_index_constraint(index)) ||
		get_rel_relkind(index) == RELKIND_PARTITIONED_INDEX)
		return;
	if (!complete_on_workers(index, table) || get_index_isvalid(index))
		return;
	known = metadata_table(table);
	if (known != NULL && known->kind == TABLE_DISTRIBUTED)
	{
		LockRelationOid(table, concurrently ? ShareUpdateExclusiveLock : ShareLock);
		known = metadata_table(table);
	}
	if (known == NULL) /* undistributed while the workers were building: core builds all of it */
		return;
	if (known->kind == TABLE_DISTRIBUTED)
		index_validity_set(index, true);
	remote_ddl_note_change();
}

void
ddl_complete_indexes(Oid table, bool concurrently)
{
	Relation relation = try_table_open(table, AccessShareLock);
	List *indexes;
	ListCell *cell;

	if (relation == NULL)
		return; /* core says so */
	indexes = RelationGetIndexList(relation);
	table_close(relation, AccessShareLock);
	foreach(cell, indexes)
	{
		if (!concurrently || get_index_isvalid(lfirst_oid(cell)))
			ddl_complete_index(table, lfirst_oid(cell), concurrently);
	}
}

/* ---------------------------------------------------------------- CREATE INDEX */

/* An index of a partitioned reference table: the partitions' parts have names, too. */
static void
create_on_tree(UtilityCall *call, Oid relid)
{
	List *members;
	TreeIndexes *before;

	LockRelationOid(relid, ShareLock); /* as core does it, in this order */
	members = table_tree_members(relid, ShareLock);
	before = table_tree_indexes(members);
	ddl_run_locally(call);
	ddl_ensure_unchanged(relid, TABLE_REFERENCE);
	ddl_check_columns(relid, TABLE_REFERENCE);
	table_tree_send_new_indexes(members, before, true);
}

void
ddl_create_index(UtilityCall *call)
{
	IndexStmt *create = castNode(IndexStmt, call->statement->utilityStmt);
	const DistributedTable *table = ddl_find_table_by_name(create->relation);
	Oid relid;
	TableKind kind;
	ListCell *cell;

	if (table == NULL || table->relation != RangeVarGetRelid(create->relation, NoLock, true))
	{
		ddl_run_locally(call);
		return;
	}
	if (create->concurrent)
	{
		PreventInTransactionBlock(call->context == PROCESS_UTILITY_TOPLEVEL,
								  "CREATE INDEX CONCURRENTLY");
		relid = RangeVarGetRelidExtended(create->relation, ShareUpdateExclusiveLock, 0,
										 RangeVarCallbackOwnsRelation, NULL);
		ddl_ensure_unchanged(relid, table->kind);
		create_concurrently(call, relid);
		return;
	}

	relid = table->relation;
	kind = table->kind;
	remote_ddl_lock_for_change();
	if (get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE &&
		compat_owns_table(relid, GetUserId()))
	{
		create_on_tree(call, relid);
		return;
	}
	ddl_run_locally(call);
	ddl_ensure_unchanged(relid, kind);
	ddl_check_created(call);
	ddl_check_columns(relid, kind);
	foreach(cell, ddl_created_objects(call))
	{
		const ObjectAddress *address = lfirst(cell);

		if (address->classId == RelationRelationId &&
			get_rel_relkind(address->objectId) == RELKIND_INDEX)
			remote_ddl_send(pg_get_indexdef_string(address->objectId));
	}
}

/* ---------------------------------------------------------------- DROP INDEX */

/* What a worker does for DROP INDEX of one index; partitions' parts are not attached while it is unfinished. */
static char *
build_drop(Oid index, const DistributedTable *table, bool cascade)
{
	char *parts = "";

	if (table->kind == TABLE_DISTRIBUTED && !get_index_isvalid(index))
		parts = psprintf("SELECT strata_worker.drop_index_parts(%s, %s); ",
						 quote_literal_cstr(relation_name_qualified(table->relation)),
						 quote_literal_cstr(relation_name(index)));
	return psprintf("%sDROP INDEX IF EXISTS %s%s", parts, relation_name_qualified(index),
					cascade ? " CASCADE" : "");
}

/* The same, tried again and again until nobody has the leaves; PostgreSQL knows how for a table that is whole. */
static char *
build_patient_drop(Oid index, const DistributedTable *table)
{
	if (table->kind == TABLE_REFERENCE)
		return psprintf("DROP INDEX CONCURRENTLY IF EXISTS %s", relation_name_qualified(index));
	return psprintf("SELECT strata_worker.execute_patiently(%s)",
					quote_literal_cstr(build_drop(index, table, false)));
}

/* Does anything need the index, so that PostgreSQL would not drop it? */
static bool
is_needed(Oid index)
{
	Relation depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	bool found;

	ScanKeyInit(&keys[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(RelationRelationId));
	ScanKeyInit(&keys[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(index));
	scan = systable_beginscan(depend, DependReferenceIndexId, true, NULL, 2, keys);
	found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	return found || OidIsValid(get_index_constraint(index));
}

/* Nobody plans with the index any more when this returns, in a new transaction. */
static void
end_use(Oid index, Oid relation)
{
	LOCKTAG tag;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relation);
	LockRelationOid(relation, ShareUpdateExclusiveLock);
	index_validity_set(index, false);
	begin_next_transaction();
	PushActiveSnapshot(GetTransactionSnapshot());
	WaitForLockers(tag, AccessExclusiveLock, true);
}

/* DROP INDEX CONCURRENTLY.  The workers come first: should one fail, the command can be repeated. */
static void
drop_concurrently(UtilityCall *call, Oid index, const DistributedTable *table)
{
	LockRelId lock = {.relId = index, .dbId = MyDatabaseId};
	MemoryContext caller =
		CurrentMemoryContext; /* which outlives transactions, as core expects of it */
	char *sql;

	PreventInTransactionBlock(call->context == PROCESS_UTILITY_TOPLEVEL, "DROP INDEX CONCURRENTLY");
	LockRelationIdForSession(&lock, ShareUpdateExclusiveLock);
	AcceptInvalidationMessages(); /* it may have waited for who has dropped it */
	if (SearchSysCacheExists1(INDEXRELID, ObjectIdGetDatum(index)))
	{
		sql = MemoryContextStrdup(caller, build_patient_drop(index, table));
		end_use(index, table->relation);
		maintenance_run(GetUserId(), sql);
		begin_next_transaction();
		PushActiveSnapshot(GetTransactionSnapshot());
		MemoryContextSwitchTo(caller);
	}
	ddl_run_locally(call);
	UnlockRelationIdForSession(&lock, ShareUpdateExclusiveLock);
	remote_ddl_note_change();
}

void
ddl_drop_indexes(UtilityCall *call)
{
	DropStmt *drop = castNode(DropStmt, call->statement->utilityStmt);
	List *commands = NIL;
	ListCell *cell;

	foreach(cell, drop->objects)
	{
		RangeVar *name = makeRangeVarFromNameList(lfirst_node(List, cell));
		Oid index = RangeVarGetRelid(name, NoLock, true);
		const DistributedTable *table = metadata_find_table(index);

		if (table == NULL || index == table->relation)
			continue;
		if (drop->concurrent)
		{
			/* else core says why not, before any worker is asked */
			if (list_length(drop->objects) == 1 && drop->behavior != DROP_CASCADE &&
				get_rel_relkind(index) == RELKIND_INDEX && compat_owns_table(index, GetUserId()) &&
				!is_needed(index))
			{
				drop_concurrently(call, index, table);
				return;
			}
			continue;
		}
		remote_ddl_lock_for_change();
		commands = lappend(commands, build_drop(index, table, drop->behavior == DROP_CASCADE));
	}
	ddl_run_locally(call);
	foreach(cell, commands)
		remote_ddl_send(lfirst(cell));
}
