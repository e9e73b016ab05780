/*
 * table_lifecycle.c
 *		A table becomes distributed, changes back, or goes.
 *
 * Distributing is one transaction over all nodes, in this order:
 *
 *	1. AccessExclusiveLock on the table, checks (table_rules.c);
 *	2. placement lock, then the colocation group and the table's metadata;
 *	3. tables and partitions on the workers;
 *	4. the rows, if there are any: from here on the metadata routes them;
 *	5. indexes and constraints on the workers, which is cheaper after the rows;
 *	6. the heap is replaced by an empty shell of access method "distributed", as
 *	   ALTER TABLE ... SET ACCESS METHOD would do it.
 *
 * The heap is read with a snapshot taken under the lock: the transaction's own
 * could be older than rows committed since.  Whatever fails, the transaction ends
 * on all nodes and nothing has happened.
 *
 * Every worker gets the table, also one without shards: DDL may then be sent to all,
 * and shards can move there later.
 *
 * Foreign keys of distributed tables are enforced by the workers; the triggers that
 * would do it on the coordinator, where there are no rows, are disabled.
 */
#include "compat.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/multixact.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_trigger.h"
#include COMPAT_CLUSTER_HEADER
#include "commands/tablecmds.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parse_func.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/uuid.h"

#include "relation_owner.h"
#include "cluster/constraint.h"
#include "cluster/metadata.h"
#include "cluster/metadata_write.h"
#include "cluster/relation_name.h"
#include "cluster/shard_map.h"
#include "server/settings.h"
#include "stream/remote_command.h"
#include "stream/remote_ddl.h"
#include "stream/remote_insert.h"
#include "table/owner_guard.h"
#include "table/table_am.h"
#include "table/table_definition.h"
#include "compat.h"
#include "table/table_lifecycle.h"
#include "table/foreign_key_rules.h"
#include "table/table_rules.h"
#include "table/table_tree.h"
#include "table/worker_table_sql.h"
#include "transaction/pending_rows.h"

int table_lifecycle_local_depth = 0;

#define REPLICATION_TRIGGER "strata_replicate"

/* Its name is smaller than others': it fires first (ddl_truncate.c). */
#define TRUNCATION_TRIGGER "\001strata_truncate"

/* In colocate_with: the name of a group follows.  No table has such a name, unless it is quoted. */
#define GROUP_PREFIX "group:"

/* ---------------------------------------------------------------- colocation groups */

static bool
is_group_name(const char *colocate_with)
{
	return strncmp(colocate_with, GROUP_PREFIX, strlen(GROUP_PREFIX)) == 0;
}

/* A name that no group of any cluster has: dumps of several may meet in one. */
static char *
make_group_name(void)
{
	Datum uuid = OidFunctionCall0(F_GEN_RANDOM_UUID);

	return DatumGetCString(DirectFunctionCall1(uuid_out, uuid));
}

/* The table that colocate_with names, which must be distributed. */
static const DistributedTable *
find_model_table(const char *name)
{
	Oid relation = DatumGetObjectId(DirectFunctionCall1(regclassin, CStringGetDatum(name)));
	const DistributedTable *table;

	LockRelationOid(relation, AccessShareLock);
	table = metadata_table(relation);
	if (table == NULL || table->kind != TABLE_DISTRIBUTED)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("table \"%s\" is not a distributed table", name),
				 errhint("colocate_with takes 'default', 'none' or the name of a distributed "
						 "table.")));
	return table;
}

static void
check_same_key(Relation relation, AttrNumber key_attribute, Oid key_type, Oid key_collation,
			   const char *model_name, const DistributedTable *model)
{
	const Colocation *group = model->colocation;
	Oid own_type = get_atttype(RelationGetRelid(relation), key_attribute);
	Oid model_type = get_atttype(model->relation, model->key_attribute);

	if (group->key_type != key_type)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("table \"%s\" cannot be colocated with \"%s\"",
						RelationGetRelationName(relation), model_name),
				 errdetail("Its key \"%s\" is of type %s, the other's key \"%s\" of type %s.",
						   get_attname(RelationGetRelid(relation), key_attribute, false),
						   format_type_be(own_type),
						   get_attname(model->relation, model->key_attribute, false),
						   format_type_be(model_type)),
				 errhint("Colocated tables have keys of the same type.")));
	if (group->key_collation != key_collation)
		ereport(ERROR, (errcode(ERRCODE_COLLATION_MISMATCH),
						errmsg("table \"%s\" cannot be colocated with \"%s\"",
							   RelationGetRelationName(relation), model_name),
						errdetail("Its key has collation \"%s\", the other's \"%s\".",
								  get_collation_name(key_collation),
								  get_collation_name(group->key_collation))));
}

/* A new group: shards go round-robin over the workers in the order of their ids. */
static int
make_colocation(int shard_count, Oid key_type, Oid key_collation, const char *name)
{
	const Bitmapset *workers = metadata_all_workers();
	int *shard_workers = palloc(shard_count * sizeof(int));
	int worker = -1;

	for (int i = 0; i < shard_count; i++)
	{
		worker = bms_next_member(workers, worker);
		if (worker < 0)
			worker = bms_next_member(workers, -1);
		shard_workers[i] = worker;
	}
	return metadata_write_add_colocation(shard_count, key_type, key_collation, name, shard_workers);
}

/* A table can join a group only if all of its rows have a place. */
static int
check_complete(int colocation_id)
{
	const Colocation *group = metadata_colocation(colocation_id);
	List *tables;

	if (group->lost_count == 0)
		return colocation_id;
	tables = metadata_write_group_tables(colocation_id);
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("%d of %d shards of the colocation group are lost", group->lost_count,
					group->shard_count),
			 errdetail("The new table would share them with %s.", shard_map_describe_tables(group)),
			 errhint("Run SELECT strata.recreate_lost_shards(%s) first, or distribute the table "
					 "with colocate_with => 'none'.",
					 quote_literal_cstr(DatumGetCString(DirectFunctionCall1(
						 regclassout, ObjectIdGetDatum(linitial_oid(tables))))))));
}

/* The group of that name, which a dump names: made by the first of its tables, joined by the others. */
static int
choose_named_colocation(Oid key_type, Oid key_collation, int shard_count, const char *name)
{
	int colocation_id = metadata_write_named_colocation(name);
	const Colocation *group;

	if (colocation_id == 0)
		return make_colocation(shard_count, key_type, key_collation, name);
	group = metadata_colocation(colocation_id);
	if (group->first_count != shard_count || group->key_type != key_type ||
		group->key_collation != key_collation)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("colocation group \"%s\" has other keys or shards", name),
						errdetail("It was made with %d shards, and has keys of type %s.",
								  group->first_count, format_type_be(group->key_type))));
	return check_complete(colocation_id);
}

/* The group the table shall belong to; needs the placement lock. */
static int
choose_colocation(Relation relation, AttrNumber key_attribute, Oid key_type, Oid key_collation,
				  int shard_count, const char *colocate_with)
{
	bool is_default = strcmp(colocate_with, "default") == 0;
	bool is_new = strcmp(colocate_with, "none") == 0;
	int colocation_id = 0;

	if (!is_default && !is_new && !is_group_name(colocate_with))
	{
		const DistributedTable *model = find_model_table(colocate_with);

		check_same_key(relation, key_attribute, key_type, key_collation, colocate_with, model);
		if (shard_count != 0 && shard_count != model->colocation->first_count)
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("shard_count %d does not fit colocate_with", shard_count),
							errdetail("Table \"%s\" was made with %d shards.", colocate_with,
									  model->colocation->first_count),
							errhint("Leave shard_count out.")));
		return check_complete(model->colocation->id);
	}

	if (shard_count == 0)
		shard_count = strata_shard_count;
	if (!is_default)
		return choose_named_colocation(key_type, key_collation, shard_count,
									   is_new ? make_group_name()
											  : colocate_with + strlen(GROUP_PREFIX));
	colocation_id = metadata_write_default_colocation(shard_count, key_type, key_collation);
	if (colocation_id != 0)
		return check_complete(colocation_id);
	return make_colocation(shard_count, key_type, key_collation, NULL);
}

/* ---------------------------------------------------------------- the workers' tables */

/* Foreign keys of reference tables come last, when their whole tree is there. */
static char *
build_indexes(Relation relation, TableKind kind)
{
	return psprintf("%s%s", worker_table_sql_indexes(relation),
					kind == TABLE_DISTRIBUTED ? worker_table_sql_foreign_keys(relation) : "");
}

/*
 * Send every worker its own commands for a table: its partitions differ.  Indexes come when the table has its
 * owner: they compute what he has written with the owner's rights.
 */
static void
create_on_workers(Relation relation, const DistributedTable *table, List *periods,
				  bool with_indexes)
{
	const Bitmapset *workers = metadata_all_workers();
	int count = bms_num_members(workers);
	int *worker_ids = palloc(count * sizeof(int));
	char **sqls = palloc(count * sizeof(char *));
	const char *indexes = with_indexes ? build_indexes(relation, table->kind) : "";
	int worker = -1;

	for (int i = 0; (worker = bms_next_member(workers, worker)) >= 0; i++)
	{
		const Colocation *colocation = table->colocation;
		List *shards = colocation == NULL
						   ? NIL
						   : colocation_list_shards(colocation, colocation->shard_workers, worker);

		worker_ids[i] = worker;
		sqls[i] = psprintf("%s%s%s",
						   worker_table_sql_create(relation, table->key_attribute, shards, periods),
						   worker_table_sql_owner(relation, shards), indexes);
	}
	remote_command_run_each(worker_ids, sqls, count, REMOTE_WRITE);
}

static void
create_indexes_on_workers(Relation relation)
{
	char *sql = build_indexes(relation, metadata_table(RelationGetRelid(relation))->kind);

	if (sql[0] != '\0')
		remote_command_run(metadata_all_workers(), REMOTE_WRITE, sql);
}

/* Send all rows of the heap to the workers; returns their number. */
static double
move_rows(Relation relation)
{
	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
	TableScanDesc scan = compat_table_beginscan(relation, snapshot);
	TupleTableSlot *slot = table_slot_create(relation, NULL);
	MemoryContext row_context = AllocSetContextCreate(CurrentMemoryContext, "strata moved row",
													  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(row_context);
	double count = 0;

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		remote_insert_row(relation, slot);
		MemoryContextReset(row_context);
		count++;
	}
	MemoryContextSwitchTo(caller);
	pending_rows_flush();

	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	MemoryContextDelete(row_context);
	return count;
}

static bool
has_rows_here(Relation relation)
{
	return relation->rd_rel->relkind == RELKIND_RELATION && !metadata_is_shell(relation) &&
		   RelationGetNumberOfBlocks(relation) > 0;
}

/*
 * Create the table on all workers and fill it.  The metadata must be visible; it is
 * forgotten again by the transaction's abort if anything fails.  `periods` are begins of those that
 * the rows belong to.  Returns the number of rows moved.
 */
static double
populate_workers(Relation relation, List *periods)
{
	const DistributedTable *table = metadata_table(RelationGetRelid(relation));
	bool has_rows = has_rows_here(relation);
	bool guarded = owner_guard_begin(metadata_all_workers(), relation);
	double rows = 0;

	create_on_workers(relation, table, periods, !has_rows);
	if (has_rows)
	{
		rows = move_rows(relation);
		create_indexes_on_workers(relation);
	}
	if (guarded)
		owner_guard_end(metadata_all_workers());
	return rows;
}

/* ---------------------------------------------------------------- heap to shell */

/* Keep the planner's estimate: the shell has no pages to derive it from. */
static void
set_row_estimate(Oid relation, double rows)
{
	Relation catalog = table_open(RelationRelationId, RowExclusiveLock);
	HeapTuple tuple = SearchSysCacheCopy1(RELOID, ObjectIdGetDatum(relation));

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", relation);
	((Form_pg_class) GETSTRUCT(tuple))->reltuples = (float4) rows;
	((Form_pg_class) GETSTRUCT(tuple))->relpages = 1;
	CatalogTupleUpdate(catalog, &tuple->t_self, tuple);
	heap_freetuple(tuple);
	table_close(catalog, RowExclusiveLock);
}

/* Replace the heap, which nobody has open, by an empty relation of our access method. */
static void
replace_heap_by_shell(Oid relation, Oid tablespace, char persistence, double rows)
{
	table_am_suspended++;
	table_lifecycle_local_depth++;
	PG_TRY();
	{
		Oid shell = make_new_heap(relation, tablespace, metadata_distributed_am(), persistence,
								  AccessExclusiveLock);

		CommandCounterIncrement();
		compat_finish_heap_swap(relation, shell, RecentXmin, ReadNextMultiXactId(), persistence);
	}
	PG_FINALLY();
	{
		table_lifecycle_local_depth--;
		table_am_suspended--;
	}
	PG_END_TRY();

	CommandCounterIncrement();
	set_row_estimate(relation, rows);
	CommandCounterIncrement();
}

/* ---------------------------------------------------------------- foreign keys */

static Oid
find_access_method(Oid relation)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Oid am = InvalidOid;

	if (HeapTupleIsValid(tuple))
	{
		am = ((Form_pg_class) GETSTRUCT(tuple))->relam;
		ReleaseSysCache(tuple);
	}
	return am;
}

/* Is the foreign key one of the table's own (enforce), or one of any distributed table? */
static bool
is_to_be_switched(Oid constraint_oid, Oid relation, bool enforce)
{
	Oid referencing = constraint_key_tables(constraint_oid).referencing;
	const DistributedTable *table;

	if (enforce)
		return referencing == relation;
	table = metadata_table(referencing);
	return table != NULL && table->kind == TABLE_DISTRIBUTED;
}

void
table_lifecycle_enforce_foreign_keys(Oid relation, bool enforce)
{
	List *constraints = foreign_key_rules_list(relation);
	Relation catalog;
	ListCell *cell;

	if (constraints == NIL)
		return;

	catalog = table_open(TriggerRelationId, RowExclusiveLock);
	foreach(cell, constraints)
	{
		ScanKeyData key;
		SysScanDesc scan;
		HeapTuple tuple;

		if (!is_to_be_switched(lfirst_oid(cell), relation, enforce))
			continue;

		ScanKeyInit(&key, Anum_pg_trigger_tgconstraint, BTEqualStrategyNumber, F_OIDEQ,
					ObjectIdGetDatum(lfirst_oid(cell)));
		scan = systable_beginscan(catalog, TriggerConstraintIndexId, true, NULL, 1, &key);
		while ((tuple = systable_getnext(scan)) != NULL)
		{
			HeapTuple copy = heap_copytuple(tuple);
			Form_pg_trigger trigger = (Form_pg_trigger) GETSTRUCT(copy);

			trigger->tgenabled = enforce ? TRIGGER_FIRES_ON_ORIGIN : TRIGGER_DISABLED;
			CatalogTupleUpdate(catalog, &copy->t_self, copy);
			CacheInvalidateRelcacheByRelid(trigger->tgrelid);
			heap_freetuple(copy);
		}
		systable_endscan(scan);
	}
	table_close(catalog, RowExclusiveLock);
	CommandCounterIncrement();
}

/* ---------------------------------------------------------------- distribute */

/* Lock the table and check that the user may change it. */
static Relation
open_own_table(Oid relation_oid)
{
	lock_own_relation(relation_oid, AccessExclusiveLock);
	return relation_open(relation_oid, NoLock);
}

void
table_lifecycle_distribute(Oid relation_oid, const char *key, int shard_count,
						   const char *colocate_with, const char *storage,
						   const PeriodRequest *periods)
{
	Relation relation = open_own_table(relation_oid);
	PeriodRule *rule;
	List *used_periods = NIL;
	Oid tablespace = relation->rd_rel->reltablespace;
	char persistence = relation->rd_rel->relpersistence;
	bool is_heap = !metadata_is_shell(relation);
	AttrNumber key_attribute;
	Oid key_type;
	Oid key_collation;
	int colocation_id;
	double rows;
	ListCell *cell;

	/* The rows of a heap go: nobody may be reading it.  A new shell may be in use by its INSERT. */
	if (is_heap)
		CheckTableNotInUse(relation, "distribute");
	table_rules_check_table(relation, false, NIL);
	key_attribute = table_rules_check_key(relation, key, &key_type, &key_collation);
	if (key == NULL)
		ereport(
			NOTICE,
			(errmsg("table \"%s\" is distributed by column \"%s\"",
					RelationGetRelationName(relation),
					get_attname(relation_oid, key_attribute, false)),
			 errhint("To choose another key, create the table without USING distributed and run "
					 "create_distributed_table().")));
	rule = period_rule_create(relation, periods);
	foreach(cell, RelationGetIndexList(relation))
		table_rules_check_unique_index(lfirst_oid(cell), key_attribute,
									   rule != NULL ? rule->attribute : InvalidAttrNumber);

	if (rule != NULL && is_heap && RelationGetNumberOfBlocks(relation) > 0)
		used_periods = period_list_used(relation, rule);

	remote_ddl_note_change();
	metadata_write_lock_placement();
	colocation_id = choose_colocation(relation, key_attribute, key_type, key_collation, shard_count,
									  colocate_with);
	metadata_write_add_table(relation_oid, CATALOG_KIND_DISTRIBUTED, key_attribute, colocation_id,
							 storage);
	CommandCounterIncrement();
	if (rule != NULL)
	{
		const Colocation *group = metadata_colocation(colocation_id);
		int workers = Max(bms_num_members(group->workers), 1);

		metadata_write_set_periods(relation_oid, rule);
		CommandCounterIncrement();
		period_warn_of_many(relation, rule, list_length(used_periods),
							(group->shard_count + workers - 1) / workers);
	}
	foreign_key_rules_check_all(relation);

	rows = populate_workers(relation, used_periods);
	relation_close(relation, NoLock);

	table_lifecycle_enforce_foreign_keys(relation_oid, false);
	if (is_heap)
		replace_heap_by_shell(relation_oid, tablespace, persistence, rows);
	CacheInvalidateRelcacheByRelid(relation_oid);
	CommandCounterIncrement();
	table_definition_store(relation_oid, NULL);
}

/* ---------------------------------------------------------------- reference tables */

static Oid
find_trigger_function(const char *name)
{
	return LookupFuncName(list_make2(makeString("strata"), makeString(pstrdup(name))), 0, NULL,
						  false);
}

static void
create_own_trigger(Oid relation, char *name, const char *function, bool for_rows, int16 events)
{
	CreateTrigStmt *statement = makeNode(CreateTrigStmt);

	statement->trigname = name;
	statement->funcname = list_make2(makeString("strata"), makeString(pstrdup(function)));
	statement->row = for_rows;
	statement->timing = TRIGGER_TYPE_AFTER;
	statement->events = events;

	/* Also with session_replication_role = replica: the copies must not differ. */
	CreateTriggerFiringOn(statement, NULL, relation, InvalidOid, InvalidOid, InvalidOid,
						  find_trigger_function(function), InvalidOid, NULL, true, false,
						  TRIGGER_FIRES_ALWAYS);
}

/* A partitioned table has no rows: each leaf tells of its own. */
static void
create_replication_triggers(Oid relation)
{
	if (get_rel_relkind(relation) != RELKIND_PARTITIONED_TABLE)
		create_own_trigger(relation, REPLICATION_TRIGGER, "replicate_reference_row", true,
						   TRIGGER_TYPE_INSERT | TRIGGER_TYPE_UPDATE | TRIGGER_TYPE_DELETE);
	create_own_trigger(relation, TRUNCATION_TRIGGER, "truncate_reference_table", false,
					   TRIGGER_TYPE_TRUNCATE);
}

/* With the dependencies that CreateTrigger() recorded, else no later DROP would get past them. */
static void
drop_replication_triggers(Relation relation)
{
	TriggerDesc *triggers = relation->trigdesc;
	Oid functions[] = {find_trigger_function("replicate_reference_row"),
					   find_trigger_function("truncate_reference_table")};
	List *found = NIL;
	ListCell *cell;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if ((trigger->tgfoid == functions[0] || trigger->tgfoid == functions[1]) &&
			trigger->tgisinternal)
			found = lappend_oid(found, trigger->tgoid);
	}
	foreach(cell, found)
	{
		ObjectAddress address;

		ObjectAddressSet(address, TriggerRelationId, lfirst_oid(cell));
		performDeletion(&address, DROP_RESTRICT, PERFORM_DELETION_INTERNAL);
	}
	CommandCounterIncrement();
}

/* The foreign keys of a table whose parents, if it has any, have theirs already. */
static void
create_foreign_keys_on_workers(Oid relation_oid)
{
	Relation relation = relation_open(relation_oid, NoLock);
	bool guarded;
	char *sql = psprintf("%s%s", worker_table_sql_foreign_keys(relation),
						 table_tree_foreign_key_names(relation_oid));

	if (sql[0] != '\0')
	{
		guarded = owner_guard_begin(metadata_all_workers(), relation);
		remote_command_run(metadata_all_workers(), REMOTE_WRITE, sql);
		if (guarded)
			owner_guard_end(metadata_all_workers());
	}
	relation_close(relation, NoLock);
}

/* The copies of new reference tables, parents first, which are in the metadata already. */
static void
create_copies(List *members)
{
	ListCell *cell;

	foreach(cell, members)
	{
		Relation relation = relation_open(lfirst_oid(cell), NoLock);

		foreign_key_rules_check_all(relation);
		(void) populate_workers(relation, NIL);
		relation_close(relation, NoLock);
	}
	foreach(cell, members)
		table_tree_link(metadata_all_workers(), lfirst_oid(cell), true);
	foreach(cell, members)
		create_foreign_keys_on_workers(lfirst_oid(cell));
	table_tree_trust_constraints(metadata_all_workers(), members);
}

void
table_lifecycle_replicate(Oid relation_oid, const char *storage)
{
	Relation relation = open_own_table(relation_oid);
	List *members = table_tree_members(relation_oid, AccessExclusiveLock);
	ListCell *cell;

	relation_close(relation, NoLock);
	foreach(cell, members)
	{
		relation = open_own_table(lfirst_oid(cell));
		CheckTableNotInUse(relation, "replicate");
		table_rules_check_table(relation, true, members);
		relation_close(relation, NoLock);
	}

	remote_ddl_note_change();
	metadata_write_lock_placement();
	foreach(cell, members)
		metadata_write_add_table(lfirst_oid(cell), CATALOG_KIND_REFERENCE, InvalidAttrNumber, 0,
								 storage);
	CommandCounterIncrement();

	create_copies(members);
	foreach(cell, members)
	{
		create_replication_triggers(lfirst_oid(cell));
		CacheInvalidateRelcacheByRelid(lfirst_oid(cell));
		CommandCounterIncrement();
		table_tree_leave_foreign_keys_to_workers(lfirst_oid(cell));
		table_definition_store(lfirst_oid(cell), NULL);
	}
}

/* ---------------------------------------------------------------- back to local, or gone */

/*
 * ALTER TABLE ... SET ACCESS METHOD heap reads all rows through our access method; the
 * utility hook then calls table_lifecycle_forget().
 */
static void
rewrite_as_heap(Relation relation)
{
	char *sql = psprintf("ALTER TABLE %s SET ACCESS METHOD heap",
						 relation_name_qualified(RelationGetRelid(relation)));

	relation_close(relation, NoLock);
	SPI_connect();
	if (SPI_execute(sql, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "could not execute \"%s\"", sql);
	SPI_finish();
}

/* All of a tree, children first. */
static void
localize_copies(List *members)
{
	for (int i = list_length(members) - 1; i >= 0; i--)
	{
		Oid member = list_nth_oid(members, i);
		Relation relation = open_own_table(member);

		CheckTableNotInUse(relation, "undistribute");
		drop_replication_triggers(relation);
		relation_close(relation, NoLock);
		table_lifecycle_forget(member, true);
	}
}

void
table_lifecycle_localize(Oid relation_oid)
{
	Relation relation = open_own_table(relation_oid);
	const DistributedTable *table = metadata_table(relation_oid);
	List *members;
	ListCell *cell;

	CheckTableNotInUse(relation, "undistribute");
	if (table == NULL)
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("table \"%s\" is neither a distributed nor a reference table",
							   RelationGetRelationName(relation))));
	if (table->kind == TABLE_DISTRIBUTED)
	{
		table_rules_check_undistribute(relation, list_make1_oid(relation_oid));
		rewrite_as_heap(relation);
		return;
	}
	relation_close(relation, NoLock);
	members = table_tree_members(relation_oid, AccessExclusiveLock);
	foreach(cell, members)
	{
		relation = relation_open(lfirst_oid(cell), NoLock);
		table_rules_check_undistribute(relation, members);
		relation_close(relation, NoLock);
	}
	localize_copies(members);
}

void
table_lifecycle_forget(Oid relation_oid, bool drop_on_workers)
{
	const DistributedTable *table = metadata_table(relation_oid);
	char *name;

	if (table == NULL)
		return;
	name = relation_name_qualified(relation_oid);

	remote_ddl_note_change();
	metadata_write_lock_placement();
	if (drop_on_workers && !bms_is_empty(metadata_all_workers()))
		remote_command_run(
			metadata_all_workers(), REMOTE_WRITE,
			psprintf("DROP TABLE IF EXISTS %s CASCADE%s", name,
					 metadata_has_periods(table) ? "; SELECT strata_worker.forget_periods()" : ""));
	if (table->kind == TABLE_DISTRIBUTED && find_access_method(relation_oid) == HEAP_TABLE_AM_OID)
		table_lifecycle_enforce_foreign_keys(relation_oid, true);
	metadata_write_remove_table(relation_oid);
	CommandCounterIncrement();
	table_definition_store(relation_oid, NULL);
}
