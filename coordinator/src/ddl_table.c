/*
 * ddl_table.c
 *		DDL on distributed and reference tables.
 *
 * A worker's table has the same name, columns, constraints and indexes as the
 * coordinator's, and so most commands are sent as the user typed them.  Where the text
 * would not mean the same there, it is built from the catalog after the command ran here:
 * indexes and constraints, because PostgreSQL chooses their names, and SET SCHEMA,
 * because partitions have to follow.  ONLY is blanked out: the workers' tables are
 * partitioned, and have nothing without their partitions.
 *
 * Defaults, identity columns, triggers, rules, policies and storage parameters are the
 * coordinator's alone: rows leave it complete.
 *
 * A command is classified before it takes its lock; should the table become distributed
 * (or stop being so) in between, the command fails and can be repeated.
 */
#include "postgres.h"

#include "ddl.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "commands/tablecmds.h"
#include "optimizer/optimizer.h"
#include "parser/parse_expr.h"
#include "parser/parse_node.h"
#include "parser/parse_relation.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"

#include "compat.h"
#include "table_am.h"
#include "table_lifecycle.h"

/* What to do with one part of an ALTER TABLE. */
typedef enum AlterRule
{
	ALTER_EVERYWHERE,			/* here, then verbatim on the workers */
	ALTER_LOCAL,				/* concerns the coordinator only */
	ALTER_REFUSE
} AlterRule;

/*
 * The parts of ALTER TABLE.  Those not listed are refused.
 */
static const struct
{
	AlterTableType part;
	AlterRule	rule;
	const char *reason;
}			alter_rules[] = {
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

	{AT_ColumnDefault, ALTER_LOCAL, NULL},
	{AT_AddIdentity, ALTER_LOCAL, NULL},
	{AT_SetIdentity, ALTER_LOCAL, NULL},
	{AT_DropIdentity, ALTER_LOCAL, NULL},
	{AT_SetOptions, ALTER_LOCAL, NULL},
	{AT_ResetOptions, ALTER_LOCAL, NULL},
	{AT_SetRelOptions, ALTER_LOCAL, NULL},
	{AT_ResetRelOptions, ALTER_LOCAL, NULL},
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
	{AT_EnableRowSecurity, ALTER_LOCAL, NULL},
	{AT_DisableRowSecurity, ALTER_LOCAL, NULL},
	{AT_ForceRowSecurity, ALTER_LOCAL, NULL},
	{AT_NoForceRowSecurity, ALTER_LOCAL, NULL},

	{AT_DisableTrigAll, ALTER_REFUSE,
	"It would disable the triggers that keep the workers' copies and constraints in step."},
	{AT_AddIndexConstraint, ALTER_REFUSE,
	"PostgreSQL does not make constraints from indexes of partitioned tables, which the workers' are."},
	{AT_SetLogged, ALTER_REFUSE, "The workers' tables are always logged."},
	{AT_SetUnLogged, ALTER_REFUSE, "The workers' tables are always logged."},
	{AT_SetTableSpace, ALTER_REFUSE, "The rows are stored on the workers."},
	{AT_SetAccessMethod, ALTER_REFUSE,
	"Only SET ACCESS METHOD heap, alone and on a distributed table, is supported."},
	{AT_ClusterOn, ALTER_REFUSE, "The table is on several nodes."},
	{AT_DropCluster, ALTER_REFUSE, "The table is on several nodes."},
	{AT_AddInherit, ALTER_REFUSE, "Distributed and reference tables cannot inherit."},
	{AT_DropInherit, ALTER_REFUSE, "Distributed and reference tables cannot inherit."},
	{AT_AddOf, ALTER_REFUSE, "The workers' tables are not typed."},
	{AT_DropOf, ALTER_REFUSE, "The workers' tables are not typed."},
};

/* ---------------------------------------------------------------- helpers */

/* The table that a relation is, or whose index it is, when it is ours; else NULL. */
static const DistributedTable *
find_table(Oid relid)
{
	if (!OidIsValid(relid))
		return NULL;
	if (get_rel_relkind(relid) == RELKIND_INDEX)
		relid = IndexGetRelation(relid, true);
	return OidIsValid(relid) ? metadata_table(relid) : NULL;
}

static const DistributedTable *
find_table_by_name(const RangeVar *name)
{
	return name == NULL ? NULL : find_table(RangeVarGetRelid(name, NoLock, true));
}

/* ERROR if a table's kind changed while the command waited for its lock. */
static void
ensure_unchanged(Oid relid, TableKind before)
{
	const DistributedTable *table = metadata_table(relid);

	if ((table == NULL ? TABLE_LOCAL : table->kind) != before)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("table \"%s\" was distributed or undistributed concurrently",
						get_rel_name(relid)),
				 errhint("Run the command again.")));
}

static void
refuse_alter(Oid relid, const char *detail, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot change table \"%s\" in this way because it is on several nodes",
					get_rel_name(relid)),
			 errdetail("%s", detail),
			 hint == NULL ? 0 : errhint("%s", hint)));
}

/*
 * The statement's text without the word ONLY in front of the table's name.
 */
static char *
text_without_only(const UtilityCall *call, const RangeVar *name)
{
	char	   *text = ddl_statement_text(call);
	int			end = name->location - Max(call->statement->stmt_location, 0);

	if (name->inh || name->location < 0 || end > (int) strlen(text))
		return text;
	while (end > 0 && isspace((unsigned char) text[end - 1]))
		end--;
	if (end < 4 || pg_strncasecmp(text + end - 4, "only", 4) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("ONLY must stand directly before the name of table \"%s\"", name->relname),
				 errhint("Leave ONLY out: the table has no children here.")));
	memset(text + end - 4, ' ', 4);
	return text;
}

/* ---------------------------------------------------------------- ALTER TABLE: checks */

/*
 * Does an expression of a column definition give another value each time or on each
 * node?
 */
static bool
expression_is_mutable(const UtilityCall *call, Oid relid, Node *raw, ParseExprKind kind)
{
	ParseState *pstate = make_parsestate(NULL);
	Relation	relation = table_open(relid, AccessShareLock);
	bool		mutable;

	pstate->p_sourcetext = call->source;
	addNSItemToQuery(pstate, addRangeTableEntryForRelation(pstate, relation, AccessShareLock,
														   NULL, false, true),
					 false, true, true);
	mutable = contain_mutable_functions(transformExpr(pstate, copyObject(raw), kind));
	table_close(relation, NoLock);
	free_parsestate(pstate);
	return mutable;
}

static bool
is_serial(const TypeName *type)
{
	static const char *const names[] = {
		"smallserial", "serial2", "serial", "serial4", "bigserial", "serial8"
	};

	if (type == NULL || list_length(type->names) != 1 || type->pct_type)
		return false;
	for (int i = 0; i < lengthof(names); i++)
	{
		if (strcmp(strVal(linitial(type->names)), names[i]) == 0)
			return true;
	}
	return false;
}

/* ADD COLUMN: each worker fills the column of its rows itself, so the value must be a constant. */
static void
check_new_column(const UtilityCall *call, Oid relid, const ColumnDef *column)
{
	static const char *const hint =
		"Add the column without default, fill it by UPDATE, and then SET DEFAULT or ADD GENERATED AS IDENTITY.";
	bool		has_default = false;
	bool		has_foreign_key = false;
	ListCell   *cell;

	if (is_serial(column->typeName))
		refuse_alter(relid, "The workers have no sequences for a serial column.", hint);
	foreach(cell, column->constraints)
	{
		const Constraint *constraint = lfirst_node(Constraint, cell);

		if (constraint->contype == CONSTR_IDENTITY)
			refuse_alter(relid, "The workers have no sequences for an identity column.", hint);
		if (constraint->contype == CONSTR_DEFAULT)
		{
			has_default = true;
			if (expression_is_mutable(call, relid, constraint->raw_expr, EXPR_KIND_COLUMN_DEFAULT))
				refuse_alter(relid, "The default of a new column must not depend on when and where it is evaluated.",
							 hint);
		}
		has_foreign_key |= constraint->contype == CONSTR_FOREIGN;
	}
	if (has_default && has_foreign_key)
		refuse_alter(relid, "A new column cannot have both a default and a foreign key.",
					 "Add the foreign key in a second statement.");
}

static bool
is_key_column(const DistributedTable *table, const char *name)
{
	return table->kind == TABLE_DISTRIBUTED &&
		get_attnum(table->relation, name) == table->key_attribute;
}

/* ERROR if one part of ALTER TABLE cannot be done on the workers. */
static void
check_alter_part(const UtilityCall *call, const DistributedTable *table, const AlterTableCmd *part)
{
	Oid			relid = table->relation;

	if (part->subtype == AT_AddColumn)
		check_new_column(call, relid, castNode(ColumnDef, part->def));
	else if (part->subtype == AT_DropColumn && is_key_column(table, part->name))
		refuse_alter(relid, psprintf("Column \"%s\" is the distribution key.", part->name),
					 "Run undistribute_table() first.");
	else if (part->subtype == AT_AlterColumnType)
	{
		const ColumnDef *column = castNode(ColumnDef, part->def);

		if (is_key_column(table, part->name))
			refuse_alter(relid, psprintf("Column \"%s\" is the distribution key.", part->name),
						 "Run undistribute_table() first.");
		if (table->kind == TABLE_REFERENCE && column->raw_default != NULL &&
			expression_is_mutable(call, relid, column->raw_default, EXPR_KIND_ALTER_COL_TRANSFORM))
			refuse_alter(relid, "The copies would differ: the USING expression depends on when and where it is evaluated.",
						 NULL);
	}
	else if (part->subtype == AT_AddConstraint)
	{
		const Constraint *constraint = castNode(Constraint, part->def);

		if (constraint->contype == CONSTR_FOREIGN && constraint->skip_validation &&
			table->kind == TABLE_DISTRIBUTED)
			refuse_alter(relid, "PostgreSQL has no NOT VALID foreign keys on partitioned tables, which the workers' are.",
						 NULL);
	}
}

/*
 * The rule for a whole ALTER TABLE.  ERROR if a part is refused, or if the rules of its parts
 * differ: the text can only be sent as a whole.
 */
static AlterRule
classify_alter(const UtilityCall *call, const DistributedTable *table, const AlterTableStmt *alter)
{
	bool		everywhere = false;
	bool		local = false;
	ListCell   *cell;

	foreach(cell, alter->cmds)
	{
		const AlterTableCmd *part = lfirst_node(AlterTableCmd, cell);
		AlterRule	rule = ALTER_REFUSE;
		const char *reason = "This form of ALTER TABLE is not supported.";

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
			refuse_alter(table->relation, reason, NULL);
		check_alter_part(call, table, part);
		everywhere |= rule == ALTER_EVERYWHERE;
		local |= rule == ALTER_LOCAL;
	}
	if (everywhere && local)
		refuse_alter(table->relation, "Some parts concern all nodes, and others the coordinator only.",
					 "Use a separate ALTER TABLE for defaults, identity columns, triggers and storage parameters.");
	return everywhere ? ALTER_EVERYWHERE : ALTER_LOCAL;
}

/* A local table must not get a child or parent whose rows are elsewhere. */
static void
check_local_alter(const AlterTableStmt *alter)
{
	ListCell   *cell;

	foreach(cell, alter->cmds)
	{
		const AlterTableCmd *part = lfirst_node(AlterTableCmd, cell);
		const RangeVar *other = NULL;

		if (part->subtype == AT_AddInherit)
			other = castNode(RangeVar, part->def);
		else if (part->subtype == AT_AttachPartition)
			other = castNode(PartitionCmd, part->def)->name;
		if (find_table_by_name(other) != NULL)
			refuse_alter(RangeVarGetRelid(other, NoLock, false),
						 "Distributed and reference tables cannot take part in inheritance or partitioning.",
						 NULL);
	}
}

/* ---------------------------------------------------------------- ALTER TABLE */

/* Is this only ADD CONSTRAINT, without anything else? */
static bool
adds_only_constraints(const AlterTableStmt *alter)
{
	ListCell   *cell;

	foreach(cell, alter->cmds)
	{
		if (lfirst_node(AlterTableCmd, cell)->subtype != AT_AddConstraint)
			return false;
	}
	return true;
}

/* Add on the workers the constraints that the call added to the table here, by the same names. */
static void
send_constraints(const UtilityCall *call, const DistributedTable *table)
{
	ListCell   *cell;

	foreach(cell, ddl_created_objects(call))
	{
		const ObjectAddress *address = lfirst(cell);
		HeapTuple	tuple;
		bool		send;

		if (address->classId != ConstraintRelationId)
			continue;
		tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(address->objectId));
		if (!HeapTupleIsValid(tuple))
			continue;
		send = ((Form_pg_constraint) GETSTRUCT(tuple))->conrelid == table->relation;
		ReleaseSysCache(tuple);
		if (send)
			ddl_send_everywhere(pg_get_constraintdef_command(address->objectId));
	}
}

/*
 * The workers validate a distributed table's foreign keys; here they count as valid at once.
 */
static void
skip_foreign_key_validation(AlterTableStmt *alter)
{
	ListCell   *cell;

	foreach(cell, alter->cmds)
	{
		AlterTableCmd *part = lfirst_node(AlterTableCmd, cell);

		if (part->subtype == AT_AddConstraint &&
			castNode(Constraint, part->def)->contype == CONSTR_FOREIGN)
		{
			castNode(Constraint, part->def)->skip_validation = true;
			castNode(Constraint, part->def)->initially_valid = true;
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
	Oid			relid = table->relation;

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
	Oid			relid;

	if (change == NULL || alter->objtype != OBJECT_TABLE || change->name == NULL ||
		strcmp(change->name, "distributed") != 0)
		return false;
	relid = RangeVarGetRelidExtended(alter->relation, AccessExclusiveLock,
									 alter->missing_ok ? RVR_MISSING_OK : 0,
									 RangeVarCallbackOwnsRelation, NULL);
	if (OidIsValid(relid))
		table_lifecycle_distribute(relid, NULL, 0, "default", "heap");
	return true;
}

static void
alter_our_table(UtilityCall *call, const DistributedTable *table)
{
	AlterTableStmt *alter = (AlterTableStmt *) ddl_modifiable_statement(call);
	const AlterTableCmd *change = find_access_method_change(alter);
	Oid			relid = table->relation;
	TableKind	kind = table->kind;
	bool		constraints = adds_only_constraints(alter);
	AlterRule	rule;
	char	   *text;

	if (change != NULL && kind == TABLE_DISTRIBUTED && change->name != NULL &&
		strcmp(change->name, "heap") == 0)
	{
		convert_to_heap(call, table);
		return;
	}

	rule = classify_alter(call, table, alter);
	text = text_without_only(call, alter->relation);
	if (kind == TABLE_DISTRIBUTED)
	{
		skip_foreign_key_validation(alter);
		ddl_run_without_scans(call);
	}
	else
		ddl_run_locally(call);
	ensure_unchanged(relid, kind);
	if (rule == ALTER_LOCAL)
		return;

	/* Here, before the workers would say it less clearly. */
	ddl_check_created(call);
	if (kind == TABLE_DISTRIBUTED)
		table_lifecycle_enforce_foreign_keys(relid, false);
	if (constraints)
		send_constraints(call, table);
	else
		ddl_send_everywhere(text);
}

void
ddl_alter_table(UtilityCall *call)
{
	AlterTableStmt *alter = castNode(AlterTableStmt, call->statement->utilityStmt);
	const DistributedTable *table;
	Oid			relid;

	if (alter->objtype == OBJECT_TYPE)
	{
		ddl_alter_object(call);
		return;
	}
	relid = RangeVarGetRelid(alter->relation, NoLock, true);
	table = find_table(relid);
	if (table == NULL)
	{
		check_local_alter(alter);
		if (convert_to_distributed(alter))
			return;
		ddl_run_locally(call);
		if (OidIsValid(relid) && SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relid)))
			ensure_unchanged(relid, TABLE_LOCAL);
	}
	else if (relid != table->relation)
		refuse_alter(table->relation, "Options of indexes cannot be changed on partitioned tables, which the workers' are.",
					 "Drop the index and create it again.");
	else
		alter_our_table(call, table);
}

/* ---------------------------------------------------------------- other commands */

/* CREATE TABLE: tables that inherit rows from elsewhere are refused. */
void
ddl_create_table(UtilityCall *call)
{
	CreateStmt *create = castNode(CreateStmt, call->statement->utilityStmt);
	ListCell   *cell;

	foreach(cell, create->inhRelations)
	{
		if (find_table_by_name(lfirst_node(RangeVar, cell)) != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot inherit from table \"%s\" because it is on several nodes",
							lfirst_node(RangeVar, cell)->relname),
					 errhint("Use LIKE to copy its columns.")));
	}
	ddl_run_locally(call);
}

/* CREATE INDEX: sent with the name that PostgreSQL gave it here. */
void
ddl_create_index(UtilityCall *call)
{
	IndexStmt  *create = castNode(IndexStmt, call->statement->utilityStmt);
	Oid			relid = RangeVarGetRelid(create->relation, NoLock, true);
	const DistributedTable *table = OidIsValid(relid) ? metadata_table(relid) : NULL;
	TableKind	kind = table == NULL ? TABLE_LOCAL : table->kind;
	ListCell   *cell;

	if (table != NULL && create->concurrent)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot create index on table \"%s\" concurrently",
						get_rel_name(relid)),
				 errdetail("The table is on several nodes, and indexes are created in one transaction."),
				 errhint("Leave CONCURRENTLY out.")));
	ddl_run_locally(call);
	if (OidIsValid(relid))
		ensure_unchanged(relid, kind);
	if (table == NULL)
		return;

	ddl_check_created(call);
	foreach(cell, ddl_created_objects(call))
	{
		const ObjectAddress *address = lfirst(cell);

		if (address->classId == RelationRelationId &&
			get_rel_relkind(address->objectId) == RELKIND_INDEX)
			ddl_send_everywhere(pg_get_indexdef_string(address->objectId));
	}
}

/* DROP INDEX */
void
ddl_drop_indexes(UtilityCall *call)
{
	DropStmt   *drop = castNode(DropStmt, call->statement->utilityStmt);
	List	   *commands = NIL;
	ListCell   *cell;

	foreach(cell, drop->objects)
	{
		RangeVar   *name = makeRangeVarFromNameList(lfirst_node(List, cell));
		Oid			index = RangeVarGetRelid(name, NoLock, true);
		const DistributedTable *table = find_table(index);

		if (table == NULL || index == table->relation)
			continue;
		if (drop->concurrent)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot drop index \"%s\" concurrently", get_rel_name(index)),
					 errdetail("Its table is on several nodes."),
					 errhint("Leave CONCURRENTLY out.")));
		commands = lappend(commands, psprintf("DROP INDEX IF EXISTS %s%s", ddl_relation_name(index),
											  drop->behavior == DROP_CASCADE ? " CASCADE" : ""));
	}
	ddl_run_locally(call);
	foreach(cell, commands)
		ddl_send_everywhere(lfirst(cell));
}

/*
 * CREATE TRIGGER: triggers run on the coordinator.  Those that statements on a
 * distributed table cannot fire are refused now rather than ignored later.
 */
void
ddl_create_trigger(UtilityCall *call)
{
	CreateTrigStmt *create = castNode(CreateTrigStmt, call->statement->utilityStmt);
	const DistributedTable *table = find_table_by_name(create->relation);
	bool		fires;

	if (table != NULL && table->kind == TABLE_DISTRIBUTED)
	{
		fires = create->row ? create->timing == TRIGGER_TYPE_BEFORE &&
			create->events == TRIGGER_TYPE_INSERT :
			(create->events & (TRIGGER_TYPE_UPDATE | TRIGGER_TYPE_DELETE)) == 0;
		if (!fires)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("trigger \"%s\" cannot be fired on distributed table \"%s\"",
							create->trigname, create->relation->relname),
					 errdetail("UPDATE and DELETE run on the workers, and inserted rows are not kept on the coordinator."),
					 errhint("BEFORE INSERT row triggers and statement triggers for INSERT and TRUNCATE are supported.")));
	}
	ddl_run_locally(call);
}

/* RENAME of a table of ours, of its columns, constraints and indexes; and of other objects. */
void
ddl_rename(UtilityCall *call)
{
	RenameStmt *rename = castNode(RenameStmt, call->statement->utilityStmt);
	const DistributedTable *table = NULL;

	switch (rename->renameType)
	{
		case OBJECT_TABLE:
		case OBJECT_INDEX:
		case OBJECT_COLUMN:
		case OBJECT_TABCONSTRAINT:
			table = find_table_by_name(rename->relation);
			break;
		case OBJECT_POLICY:
		case OBJECT_ROLE:
		case OBJECT_RULE:
		case OBJECT_TRIGGER:
		case OBJECT_VIEW:
		case OBJECT_MATVIEW:
		case OBJECT_SEQUENCE:
		case OBJECT_FOREIGN_TABLE:
			break;
		default:
			ddl_alter_object(call);
			return;
	}

	if (table != NULL)
	{
		char	   *text = text_without_only(call, rename->relation);
		TableKind	kind = table->kind;

		ddl_run_locally(call);
		ensure_unchanged(table->relation, kind);
		ddl_send_everywhere(text);
	}
	else
	{
		ddl_run_locally(call);
		if (rename->renameType == OBJECT_ROLE)
			ddl_send_everywhere(ddl_statement_text(call));
	}
}

/*
 * SET SCHEMA: on the workers the partitions go with their table.
 */
void
ddl_set_schema(UtilityCall *call)
{
	AlterObjectSchemaStmt *alter = castNode(AlterObjectSchemaStmt, call->statement->utilityStmt);
	const DistributedTable *table;
	char	   *old_name;
	char	   *body;
	TableKind	kind;

	if (alter->relation == NULL)
	{
		ddl_alter_object(call);
		return;
	}
	table = find_table_by_name(alter->relation);
	if (table == NULL)
	{
		ddl_run_locally(call);
		return;
	}

	old_name = ddl_relation_name(table->relation);
	kind = table->kind;
	ddl_run_locally(call);
	ensure_unchanged(table->relation, kind);
	body = psprintf("DECLARE relation pg_catalog.regclass;"
					" BEGIN"
					" FOR relation IN SELECT coalesce(p.relid, r) FROM"
					" pg_catalog.to_regclass(%s) r LEFT JOIN"
					" pg_catalog.pg_partition_tree(r) p ON true LOOP"
					" EXECUTE pg_catalog.format('ALTER TABLE %%s SET SCHEMA %%I', relation, %s);"
					" END LOOP;"
					" END",
					quote_literal_cstr(old_name), quote_literal_cstr(alter->newschema));
	ddl_send_everywhere(psprintf("DO %s", quote_literal_cstr(body)));
}
