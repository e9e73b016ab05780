/*
 * ddl_table.c
 *		ALTER TABLE on distributed and reference tables.
 *
 * Each part of a command falls under one rule: it is done on all nodes, on the coordinator
 * alone, or refused.  Defaults, identity columns, triggers, rules and policies are the
 * coordinator's alone: rows leave it complete; but for defaults that foreign keys set there
 * (ddl_default.c).  ddl_alter_part.c says what the workers get.  What ALTER TYPE makes of the type's tables follows the same
 * rules (ddl_typed_table.c); the workers' tables have no type.
 */
#include "postgres.h"

#include "ddl/ddl.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "commands/tablecmds.h"
#include "optimizer/optimizer.h"
#include "parser/parse_expr.h"
#include "parser/parse_node.h"
#include "parser/parse_relation.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"

#include "compat.h"
#include "cluster/fired_trigger.h"
#include "cluster/constraint.h"
#include "ddl/ddl_alter_part.h"
#include "stream/remote_ddl.h"
#include "table/index_validity.h"
#include "table/table_am.h"
#include "table/table_definition.h"
#include "table/table_lifecycle.h"
#include "table/foreign_key_rules.h"
#include "table/table_rules.h"
#include "table/table_tree.h"
#include "table/worker_table_sql.h"

/* What to do with one part of an ALTER TABLE. */
typedef enum AlterRule
{
	ALTER_EVERYWHERE, /* here, then verbatim on the workers */
	ALTER_LOCAL,	  /* concerns the coordinator only */
	ALTER_REFUSE
} AlterRule;

/*
 * The parts of ALTER TABLE.  Those not listed are refused.
 */
static const struct
{
	AlterTableType part;
	AlterRule rule;
	const char *reason;
} alter_rules[] = {
	{AT_AddColumn, ALTER_EVERYWHERE, NULL},
	{AT_DropColumn, ALTER_EVERYWHERE, NULL},
	{AT_AlterColumnType, ALTER_EVERYWHERE, NULL},
	{AT_SetNotNull, ALTER_EVERYWHERE, NULL},
	{AT_DropNotNull, ALTER_EVERYWHERE, NULL},
	{AT_DropExpression, ALTER_EVERYWHERE, NULL},
	{AT_SetStatistics, ALTER_EVERYWHERE, NULL},
	{AT_SetStorage, ALTER_EVERYWHERE, NULL},
	{AT_SetCompression, ALTER_EVERYWHERE, NULL},
	{AT_AddConstraint, ALTER_EVERYWHERE, NULL},
	{AT_AlterConstraint, ALTER_EVERYWHERE, NULL},
	{AT_ValidateConstraint, ALTER_EVERYWHERE, NULL},
	{AT_DropConstraint, ALTER_EVERYWHERE, NULL},
	{AT_ChangeOwner, ALTER_EVERYWHERE, NULL},
	{AT_SetOptions, ALTER_EVERYWHERE, NULL},
	{AT_ResetOptions, ALTER_EVERYWHERE, NULL},
	{AT_SetRelOptions, ALTER_EVERYWHERE, NULL},
	{AT_ResetRelOptions, ALTER_EVERYWHERE, NULL},

	{AT_ColumnDefault, ALTER_LOCAL, NULL},
	{AT_AddIdentity, ALTER_LOCAL, NULL},
	{AT_SetIdentity, ALTER_LOCAL, NULL},
	{AT_DropIdentity, ALTER_LOCAL, NULL},
	{AT_EnableTrig, ALTER_LOCAL, NULL},
	{AT_EnableAlwaysTrig, ALTER_LOCAL, NULL},
	{AT_EnableReplicaTrig, ALTER_LOCAL, NULL},
	{AT_EnableTrigAll, ALTER_LOCAL, NULL},
	{AT_EnableTrigUser, ALTER_LOCAL, NULL},
	{AT_DisableTrig, ALTER_LOCAL, NULL},
	{AT_DisableTrigUser, ALTER_LOCAL, NULL},
	{AT_EnableRule, ALTER_LOCAL, NULL},
	{AT_EnableAlwaysRule, ALTER_LOCAL, NULL},
	{AT_EnableReplicaRule, ALTER_LOCAL, NULL},
	{AT_DisableRule, ALTER_LOCAL, NULL},
	{AT_ReplicaIdentity, ALTER_LOCAL, NULL},
	{AT_ClusterOn, ALTER_LOCAL, NULL}, /* CLUSTER names the index to the workers */
	{AT_DropCluster, ALTER_LOCAL, NULL},
	{AT_EnableRowSecurity, ALTER_LOCAL, NULL},
	{AT_DisableRowSecurity, ALTER_LOCAL, NULL},
	{AT_ForceRowSecurity, ALTER_LOCAL, NULL},
	{AT_DropOids, ALTER_LOCAL, NULL},
	{AT_NoForceRowSecurity, ALTER_LOCAL, NULL},
	{AT_AddOf, ALTER_LOCAL, NULL},
	{AT_DropOf, ALTER_LOCAL, NULL},

	{AT_SetLogged, ALTER_REFUSE, "The workers' tables are always logged."},
	{AT_SetUnLogged, ALTER_REFUSE, "The workers' tables are always logged."},
	{AT_SetTableSpace, ALTER_REFUSE, "The rows are stored on the workers."},
	{AT_SetAccessMethod, ALTER_REFUSE,
	 "Only SET ACCESS METHOD heap, alone and on a distributed table, is supported."},
	{AT_AddInherit, ALTER_EVERYWHERE, NULL},
	{AT_DropInherit, ALTER_EVERYWHERE, NULL},
};

/* ---------------------------------------------------------------- checks */

/* A part of ALTER TABLE as the user knows it: forms that are refused, some of them only for some columns. */
static const char *
describe_part(const AlterTableCmd *part)
{
	static const struct
	{
		AlterTableType part;
		const char *text;
	} forms[] = {
		{AT_DropColumn, "DROP COLUMN"},
		{AT_AlterColumnType, "ALTER COLUMN ... TYPE"},
		{AT_DropNotNull, "ALTER COLUMN ... DROP NOT NULL"},
		{AT_AddConstraint, "ADD CONSTRAINT"},
		{AT_SetLogged, "SET LOGGED"},
		{AT_SetUnLogged, "SET UNLOGGED"},
		{AT_SetTableSpace, "SET TABLESPACE"},
		{AT_SetAccessMethod, "SET ACCESS METHOD"},
		{AT_AddInherit, "INHERIT"},
		{AT_DropInherit, "NO INHERIT"},
		{AT_AttachPartition, "ATTACH PARTITION"},
		{AT_DetachPartition, "DETACH PARTITION"},
		{AT_DetachPartitionFinalize, "DETACH PARTITION ... FINALIZE"},
		{AT_GenericOptions, "OPTIONS"},
		{AT_AlterColumnGenericOptions, "ALTER COLUMN ... OPTIONS"},
	};

	for (int i = 0; i < lengthof(forms); i++)
	{
		if (forms[i].part == part->subtype)
			return psprintf("ALTER TABLE ... %s", forms[i].text);
	}
	return "this form of ALTER TABLE";
}

/* `command` is what the user would call it */
static void
refuse_alter(Oid relid, const char *command, const char *detail, const char *hint)
{
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("cannot run %s on table \"%s\" because it is on several nodes", command,
						   get_rel_name(relid)),
					errdetail("%s", detail), hint == NULL ? 0 : errhint("%s", hint)));
}

static bool
is_key_column(const DistributedTable *table, const char *name)
{
	return table->kind == TABLE_DISTRIBUTED &&
		   get_attnum(table->relation, name) == table->key_attribute;
}

/* ERROR if one part of ALTER TABLE cannot be done on the workers. */
static void
check_alter_part(const DistributedTable *table, const AlterTableCmd *part)
{
	Oid relid = table->relation;

	if ((part->subtype == AT_DropColumn || part->subtype == AT_AlterColumnType) &&
		is_key_column(table, part->name))
		refuse_alter(relid, describe_part(part),
					 psprintf("Column \"%s\" is the distribution key.", part->name),
					 part->subtype == AT_DropColumn
						 ? "Give the table another key with alter_distributed_table() first."
						 : "Run undistribute_table() first.");
	if ((part->subtype == AT_DropColumn || part->subtype == AT_AlterColumnType ||
		 part->subtype == AT_DropNotNull) &&
		metadata_has_periods(table) && get_attnum(relid, part->name) == table->periods.attribute)
		refuse_alter(relid, describe_part(part),
					 psprintf("The table is divided into periods of column \"%s\".", part->name),
					 "Run undistribute_table() first.");
	if (part->subtype == AT_AddConstraint)
	{
		const Constraint *constraint = castNode(Constraint, part->def);

		if (constraint->contype == CONSTR_FOREIGN && constraint->skip_validation &&
			table->kind == TABLE_DISTRIBUTED && !COMPAT_TREES_HAVE_INVALID_KEYS)
			refuse_alter(relid, describe_part(part),
						 "PostgreSQL has no NOT VALID foreign keys on partitioned tables, which "
						 "the workers' are.",
						 "Leave NOT VALID out: the workers check their shards at the same time.");
	}
}

/* ERROR if a part is refused; is there one that concerns the workers? */
static bool
concerns_workers(const DistributedTable *table, const AlterTableStmt *alter)
{
	bool everywhere = false;
	ListCell *cell;

	foreach(cell, alter->cmds)
	{
		const AlterTableCmd *part = lfirst_node(AlterTableCmd, cell);
		AlterRule rule = ALTER_REFUSE;
		const char *reason = "The workers cannot follow it.";

		if (compat_is_set_expression(part->subtype))
			rule = ALTER_EVERYWHERE;
		for (int i = 0; i < lengthof(alter_rules); i++)
		{
			if (alter_rules[i].part == part->subtype)
			{
				rule = alter_rules[i].rule;
				reason = alter_rules[i].reason;
			}
		}
		if (rule == ALTER_REFUSE)
			refuse_alter(table->relation, describe_part(part), reason, NULL);
		check_alter_part(table, part);
		everywhere |= rule == ALTER_EVERYWHERE;
	}
	return everywhere;
}

/*
 * DISABLE TRIGGER ALL, as pg_dump --disable-triggers writes it: the triggers of the user.  Those of the system keep the workers'
 * copies in step, and foreign keys are the workers' own.
 */
static void
leave_system_triggers(const DistributedTable *table, AlterTableStmt *alter)
{
	ListCell *cell;

	foreach(cell, alter->cmds)
	{
		AlterTableCmd *part = lfirst_node(AlterTableCmd, cell);

		if (part->subtype != AT_DisableTrigAll)
			continue;
		part->subtype = AT_DisableTrigUser;
		if (foreign_key_rules_list(table->relation) != NIL)
			ereport(WARNING, (errmsg("foreign keys of table \"%s\" are still checked",
									 get_rel_name(table->relation)),
							  errdetail("The table is on several nodes: DISABLE TRIGGER ALL means "
										"TRIGGER USER there.")));
	}
}

/* ---------------------------------------------------------------- ALTER TABLE */

static void
count_as_valid(Constraint *constraint)
{
	if (constraint->contype == CONSTR_FOREIGN && !constraint->skip_validation &&
		compat_is_enforced(constraint))
	{
		constraint->skip_validation = true;
		constraint->initially_valid = true;
	}
}

/* The workers validate a distributed table's foreign keys; here they count as valid at once. */
static void
skip_foreign_key_validation(AlterTableStmt *alter)
{
	ListCell *cell;
	ListCell *constraint;

	foreach(cell, alter->cmds)
	{
		AlterTableCmd *part = lfirst_node(AlterTableCmd, cell);

		if (part->subtype == AT_AddConstraint)
			count_as_valid(castNode(Constraint, part->def));
		else if (part->subtype == AT_AddColumn)
		{
			foreach(constraint, castNode(ColumnDef, part->def)->constraints)
				count_as_valid(lfirst_node(Constraint, constraint));
		}
	}
}

/*
 * ALTER TABLE ... SET ACCESS METHOD heap on a shell: PostgreSQL copies the rows from the
 * old access method, ours, into a heap.
 */
static void
convert_to_heap(UtilityCall *call, const DistributedTable *table)
{
	Oid relid = table->relation;

	table_am_converting = relid;
	PG_TRY();
	{
		ddl_run_locally(call);
	}
	PG_FINALLY();
	{
		table_am_converting = InvalidOid;
	}
	PG_END_TRY();
	table_lifecycle_forget(relid, true);
}

/* The only part of an ALTER TABLE when that is SET ACCESS METHOD, else NULL. */
static const AlterTableCmd *
find_access_method_change(const AlterTableStmt *alter)
{
	const AlterTableCmd *part = linitial_node(AlterTableCmd, alter->cmds);

	return list_length(alter->cmds) == 1 && part->subtype == AT_SetAccessMethod ? part : NULL;
}

/*
 * ALTER TABLE ... SET ACCESS METHOD distributed: as create_distributed_table() with its
 * defaults.  False if the command is something else.
 */
static bool
convert_to_distributed(const AlterTableStmt *alter)
{
	const AlterTableCmd *change = find_access_method_change(alter);
	Oid relid;

	if (change == NULL || alter->objtype != OBJECT_TABLE || change->name == NULL ||
		strcmp(change->name, "distributed") != 0)
		return false;
	relid = RangeVarGetRelidExtended(alter->relation, AccessExclusiveLock,
									 alter->missing_ok ? RVR_MISSING_OK : 0,
									 RangeVarCallbackOwnsRelation, NULL);
	if (OidIsValid(relid))
		table_lifecycle_distribute(relid, NULL, 0, "default", METADATA_DEFAULT_STORAGE, NULL);
	return true;
}

/*
 * Does the command give another type to the distribution key, where that is all that the key is, or to a column to which
 * local tables refer?
 */
static bool
changes_fixed_type(const DistributedTable *table, const AlterTableStmt *alter)
{
	ListCell *cell;

	if (table->kind != TABLE_DISTRIBUTED ||
		(metadata_has_periods(table) && table->periods.attribute == table->key_attribute))
		return false;
	foreach(cell, alter->cmds)
	{
		const AlterTableCmd *part = lfirst_node(AlterTableCmd, cell);

		if (part->subtype == AT_AlterColumnType &&
			(is_key_column(table, part->name) ||
			 fired_trigger_keeps_column(table->relation, get_attnum(table->relation, part->name))))
			return true;
	}
	return false;
}

/* ERROR if distributed tables refer to this one: they follow neither its rows nor its new type. */
static void
check_referencing_tables(Oid relid)
{
	ListCell *cell;

	foreach(cell, foreign_key_rules_list(relid))
	{
		HeapTuple tuple = constraint_get(lfirst_oid(cell));
		Form_pg_constraint form = (Form_pg_constraint) GETSTRUCT(tuple);

		if (form->conrelid != relid && metadata_table(form->conrelid) != NULL)
			refuse_alter(relid, "ALTER TABLE ... ALTER COLUMN ... TYPE",
						 psprintf("Foreign key \"%s\" of table \"%s\", which is on the workers, "
								  "refers to the column.",
								  NameStr(form->conname), get_rel_name(form->conrelid)),
						 "Drop the constraint first.");
		ReleaseSysCache(tuple);
	}
}

/* A table that is local while the type of such a column changes. */
typedef struct LocalizedTable
{
	Oid relation;
	int group;
	char *definition;
} LocalizedTable;

/*
 * ALTER TABLE ... ALTER key TYPE: values of another type hash otherwise, and partitioned tables, which the workers' are, keep the
 * types of their keys.  A local table's foreign key is checked anew before the workers have the new type.  So the table becomes
 * local, is altered as such, and is distributed anew.
 */
static LocalizedTable *
localize(const DistributedTable *table)
{
	LocalizedTable *local = palloc(sizeof(LocalizedTable));

	local->relation = table->relation;
	local->group = table->colocation->id;
	local->definition = table_definition_get(table->relation);
	check_referencing_tables(local->relation);
	table_lifecycle_localize(local->relation);
	return local;
}

static void
distribute_anew(const LocalizedTable *local)
{
	table_definition_apply(local->relation, local->definition, local->group);
}

/* The number of rows as ANALYZE left it; a rewrite of the shell forgets it. */
static float4
row_estimate(Oid relid)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	float4 rows;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", relid);
	rows = ((Form_pg_class) GETSTRUCT(tuple))->reltuples;
	ReleaseSysCache(tuple);
	return rows;
}

static void
restore_row_estimate(Oid relid, float4 rows)
{
	Relation catalog;
	HeapTuple tuple;

	CommandCounterIncrement();
	if (row_estimate(relid) == rows)
		return;
	catalog = table_open(RelationRelationId, RowExclusiveLock);
	tuple = SearchSysCacheCopy1(RELOID, ObjectIdGetDatum(relid));
	((Form_pg_class) GETSTRUCT(tuple))->reltuples = rows;
	CatalogTupleUpdate(catalog, &tuple->t_self, tuple);
	heap_freetuple(tuple);
	table_close(catalog, RowExclusiveLock);
	CommandCounterIncrement();
}

/* Names of a table's invalid indexes (char *). */
static List *
invalid_indexes(Oid relid)
{
	Relation relation = table_open(relid, NoLock);
	List *names = NIL;
	ListCell *cell;

	foreach(cell, RelationGetIndexList(relation))
	{
		if (!get_index_isvalid(lfirst_oid(cell)))
			names = lappend(names, get_rel_name(lfirst_oid(cell)));
	}
	table_close(relation, NoLock);
	return names;
}

/* A column's new type has made its indexes anew: valid here, whatever the workers have. */
static void
keep_invalid(Oid relid, List *names)
{
	ListCell *cell;

	foreach(cell, names)
	{
		Oid index = get_relname_relid(lfirst(cell), get_rel_namespace(relid));

		if (OidIsValid(index))
			index_validity_set(index, false);
	}
}

/* What columns, constraints and indexes compute is the same on the workers. */
void
ddl_check_columns(Oid relid, TableKind kind)
{
	Relation relation = table_open(relid, NoLock);

	table_rules_check_columns(relation, kind == TABLE_REFERENCE);
	table_close(relation, NoLock);
}

/* What the change of one table of ours needs when PostgreSQL has run the command. */
typedef struct TableChange
{
	Oid relation;
	TableKind kind;
	bool everywhere; /* concerns the workers */
	AlterParts *parts;
	List *defaults;
	float4 rows;   /* of a distributed table */
	List *invalid; /* its indexes */
} TableChange;

/* Before the command; ERROR if a part of it is refused.  The table is locked. */
static TableChange *
begin_change(const UtilityCall *call, const DistributedTable *table, AlterTableStmt *alter)
{
	TableChange *change = palloc0(sizeof(TableChange));

	change->relation = table->relation;
	change->kind = table->kind;
	leave_system_triggers(table, alter);
	change->everywhere = concerns_workers(table, alter);
	change->parts = alter_parts_prepare(call, table, alter->cmds);
	change->defaults = ddl_list_defaults(table->relation);
	if (table->kind == TABLE_DISTRIBUTED)
	{
		change->rows = row_estimate(table->relation);
		change->invalid = invalid_indexes(table->relation);
		skip_foreign_key_validation(alter);
	}
	return change;
}

/* After the command: the workers follow. */
static void
end_change(const UtilityCall *call, const TableChange *change)
{
	Oid relid = change->relation;

	if (change->kind == TABLE_DISTRIBUTED)
	{
		restore_row_estimate(relid, change->rows);
		keep_invalid(relid, change->invalid);
	}
	ddl_ensure_unchanged(relid, change->kind);
	if (change->kind == TABLE_DISTRIBUTED)
		table_lifecycle_enforce_foreign_keys(relid, false); /* also after ENABLE TRIGGER ALL */

	/* Here, before the workers would say it less clearly. */
	if (change->everywhere)
	{
		ddl_check_created(call);
		ddl_check_columns(relid, change->kind);
	}
	ddl_drop_defaults(relid, change->defaults);
	if (change->everywhere)
		alter_parts_send(call, change->parts);
	if (change->everywhere && change->kind == TABLE_REFERENCE)
		table_tree_trust_constraints(metadata_all_workers(), table_tree_members(relid, NoLock));
	ddl_set_defaults(relid, change->defaults);
}

static void
alter_our_table(UtilityCall *call, const DistributedTable *table)
{
	AlterTableStmt *alter = (AlterTableStmt *) ddl_modifiable_statement(call);
	const AlterTableCmd *access_method = find_access_method_change(alter);
	TableKind kind = table->kind;
	TableChange *change;
	Oid relid;

	remote_ddl_lock_for_change();
	relid = AlterTableLookupRelation(alter, AlterTableGetLockLevel(alter->cmds));
	ddl_ensure_unchanged(relid, kind);
	table = metadata_table(relid);
	if (access_method != NULL && kind == TABLE_DISTRIBUTED && access_method->name != NULL &&
		strcmp(access_method->name, "heap") == 0)
	{
		convert_to_heap(call, table);
		return;
	}

	if (changes_fixed_type(table, alter))
	{
		LocalizedTable *local = localize(table);

		ddl_run_locally(call);
		distribute_anew(local);
		return;
	}

	change = begin_change(call, table, alter);
	if (kind == TABLE_DISTRIBUTED)
		ddl_run_without_scans(call);
	else
		ddl_run_locally(call);
	end_change(call, change);
}

/* ---------------------------------------------------------------- ALTER TYPE */

/* Else PostgreSQL refuses to change the type of any table. */
static bool
cascades(const AlterTableStmt *alter)
{
	ListCell *cell;

	foreach(cell, alter->cmds)
	{
		if (lfirst_node(AlterTableCmd, cell)->behavior != DROP_CASCADE)
			return false;
	}
	return true;
}

/*
 * ALTER TYPE ... ADD, DROP, ALTER ATTRIBUTE: with CASCADE, PostgreSQL changes the tables of the type by the same parts.
 */
static void
alter_row_type(UtilityCall *call)
{
	AlterTableStmt *alter = (AlterTableStmt *) ddl_modifiable_statement(call);
	List *tables = cascades(alter) ? ddl_lock_typed_tables(alter->relation) : NIL;
	List *changes = NIL;
	List *localized = NIL;
	ListCell *cell;

	foreach(cell, tables)
	{
		const DistributedTable *table = metadata_table(lfirst_oid(cell));

		if (changes_fixed_type(table, alter))
			localized = lappend(localized, localize(table));
		else
			changes = lappend(changes, begin_change(call, table, alter));
	}
	ddl_alter_object(call);
	foreach(cell, changes)
		end_change(call, lfirst(cell));
	foreach(cell, localized)
		distribute_anew(lfirst(cell));
	ddl_ensure_typed_tables(alter->relation, tables);
}

/* ALTER INDEX, other than RENAME, of a distributed table's index: the options of all its parts on the workers. */
static void
alter_distributed_index(UtilityCall *call, Oid index, Oid relation)
{
	const AlterTableStmt *alter = castNode(AlterTableStmt, call->statement->utilityStmt);
	ListCell *cell;

	foreach(cell, alter->cmds)
	{
		if (lfirst_node(AlterTableCmd, cell)->subtype == AT_SetTableSpace)
			refuse_alter(
				relation, "ALTER INDEX ... SET TABLESPACE",
				"The index is stored on the workers, each of which has tablespaces of its own.",
				NULL);
	}
	remote_ddl_lock_for_change();
	ddl_run_locally(call);
	/* against moves: the partition that one makes copies the index, and this would not find it */
	LockRelationOid(relation, ShareUpdateExclusiveLock);
	ddl_ensure_unchanged(relation, TABLE_DISTRIBUTED);
	/* what is unfinished gets its options when it is completed */
	if (get_index_isvalid(index))
		remote_ddl_send(worker_table_sql_index_options(index));
}

/* ALTER INDEX, other than RENAME, of a reference table's index. */
static void
alter_reference_index(UtilityCall *call)
{
	const AlterTableStmt *alter = castNode(AlterTableStmt, call->statement->utilityStmt);
	const AlterTableCmd *part = linitial_node(AlterTableCmd, alter->cmds);

	if (part->subtype == AT_AttachPartition)
		table_tree_check_part(
			RangeVarGetRelid(castNode(PartitionCmd, part->def)->name, NoLock, false));
	remote_ddl_lock_for_change();
	ddl_run_locally(call);
	remote_ddl_send(ddl_statement_text(call));
}

void
ddl_alter_table(UtilityCall *call)
{
	AlterTableStmt *alter = castNode(AlterTableStmt, call->statement->utilityStmt);
	const DistributedTable *table;
	Oid relid;

	if (alter->objtype == OBJECT_TYPE)
	{
		alter_row_type(call);
		return;
	}
	relid = RangeVarGetRelid(alter->relation, NoLock, true);
	table = metadata_find_table(relid);
	if (ddl_alter_tree(call, relid))
		return;
	if (table == NULL)
	{
		if (convert_to_distributed(alter))
			return;
		ddl_run_locally(call);
		if (OidIsValid(relid) && SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relid)))
			ddl_ensure_unchanged(relid, TABLE_LOCAL);
	}
	else if (relid == table->relation)
		alter_our_table(call, table);
	else if (table->kind == TABLE_DISTRIBUTED)
		alter_distributed_index(call, relid, table->relation);
	else
		alter_reference_index(call);
}
