/*
 * ddl_relation.c
 *		Tables, indexes, triggers and rules come, get other names, and go.
 *
 * Commands are sent as the user typed them, except where the text would not mean the same
 * on the workers: an index is built from the catalog after the command ran here, because
 * PostgreSQL chooses its name, and SET SCHEMA has to take the partitions along.  ONLY is
 * blanked out: the workers' tables are partitioned, and have nothing without their
 * partitions.
 *
 * A command is classified before it takes its lock; should the table become distributed
 * (or stop being so) in between, the command fails and can be repeated.
 */
#include "postgres.h"

#include "ddl.h"

#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_trigger.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"

#include "table_ddl.h"

/* ---------------------------------------------------------------- for all commands on tables */

const DistributedTable *
ddl_find_table(Oid relid)
{
	if (!OidIsValid(relid))
		return NULL;
	if (get_rel_relkind(relid) == RELKIND_INDEX)
		relid = IndexGetRelation(relid, true);
	return OidIsValid(relid) ? metadata_table(relid) : NULL;
}

const DistributedTable *
ddl_find_table_by_name(const RangeVar *name)
{
	return name == NULL ? NULL : ddl_find_table(RangeVarGetRelid(name, NoLock, true));
}

void
ddl_ensure_unchanged(Oid relid, TableKind before)
{
	const DistributedTable *table = metadata_table(relid);

	if ((table == NULL ? TABLE_LOCAL : table->kind) != before)
		ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
						errmsg("table \"%s\" was distributed or undistributed concurrently",
							   get_rel_name(relid)),
						errhint("Run the command again.")));
}

char *
ddl_text_without_only(const UtilityCall *call, const RangeVar *name)
{
	char *text = ddl_statement_text(call);
	int end = name->location - Max(call->statement->stmt_location, 0);

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

/* ---------------------------------------------------------------- commands */

/* CREATE TABLE: tables that inherit rows from elsewhere are refused. */
void
ddl_create_table(UtilityCall *call)
{
	CreateStmt *create = castNode(CreateStmt, call->statement->utilityStmt);
	ListCell *cell;

	foreach(cell, create->inhRelations)
	{
		if (ddl_find_table_by_name(lfirst_node(RangeVar, cell)) != NULL)
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
	IndexStmt *create = castNode(IndexStmt, call->statement->utilityStmt);
	Oid relid = RangeVarGetRelid(create->relation, NoLock, true);
	const DistributedTable *table = OidIsValid(relid) ? metadata_table(relid) : NULL;
	TableKind kind = table == NULL ? TABLE_LOCAL : table->kind;
	ListCell *cell;

	if (table != NULL && create->concurrent)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot create index on table \"%s\" concurrently", get_rel_name(relid)),
				 errdetail(
					 "The table is on several nodes, and indexes are created in one transaction."),
				 errhint("Leave CONCURRENTLY out.")));
	ddl_run_locally(call);
	if (OidIsValid(relid))
		ddl_ensure_unchanged(relid, kind);
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
	DropStmt *drop = castNode(DropStmt, call->statement->utilityStmt);
	List *commands = NIL;
	ListCell *cell;

	foreach(cell, drop->objects)
	{
		RangeVar *name = makeRangeVarFromNameList(lfirst_node(List, cell));
		Oid index = RangeVarGetRelid(name, NoLock, true);
		const DistributedTable *table = ddl_find_table(index);

		if (table == NULL || index == table->relation)
			continue;
		if (drop->concurrent)
			ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
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
	const DistributedTable *table = ddl_find_table_by_name(create->relation);
	bool fires;

	if (table != NULL && table->kind == TABLE_DISTRIBUTED)
	{
		fires = create->row
					? create->timing == TRIGGER_TYPE_BEFORE && create->events == TRIGGER_TYPE_INSERT
					: (create->events & (TRIGGER_TYPE_UPDATE | TRIGGER_TYPE_DELETE)) == 0;
		if (!fires)
			ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							errmsg("trigger \"%s\" cannot be fired on distributed table \"%s\"",
								   create->trigname, create->relation->relname),
							errdetail("UPDATE and DELETE run on the workers, and inserted rows are "
									  "not kept on the coordinator."),
							errhint("BEFORE INSERT row triggers and statement triggers for INSERT "
									"and TRUNCATE are supported.")));
	}
	ddl_run_locally(call);
}

/* CREATE RULE: the workers do not know of rules, and statements are sent there unrewritten. */
void
ddl_create_rule(UtilityCall *call)
{
	RuleStmt *create = castNode(RuleStmt, call->statement->utilityStmt);
	const DistributedTable *table = ddl_find_table_by_name(create->relation);

	if (table != NULL && table->kind == TABLE_DISTRIBUTED)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("rules on distributed table \"%s\" are not supported",
							   create->relation->relname),
						errhint("Use a trigger, or a view with rules.")));
	ddl_run_locally(call);
}

void
ddl_alter_partitions(const char *table, const char *action, const char *argument)
{
	char *body = psprintf("DECLARE relation pg_catalog.regclass;"
						  " BEGIN"
						  " FOR relation IN SELECT coalesce(p.relid, r) FROM"
						  " pg_catalog.to_regclass(%s) r LEFT JOIN"
						  " pg_catalog.pg_partition_tree(r) p ON true LOOP"
						  " EXECUTE pg_catalog.format('ALTER TABLE %%s %s', relation, %s);"
						  " END LOOP;"
						  " END",
						  quote_literal_cstr(table), action, quote_literal_cstr(argument));

	ddl_send_everywhere(psprintf("DO %s", quote_literal_cstr(body)));
}

/* A table that gets the old name later has partitions called by it, too. */
static void
rename_partitions(const DistributedTable *table, const char *old_name)
{
	const char *new_name = get_rel_name(table->relation);
	const char *schema = get_namespace_name(get_rel_namespace(table->relation));
	StringInfoData pairs;
	char *body;

	if (table->colocation == NULL || strcmp(old_name, new_name) == 0)
		return;
	initStringInfo(&pairs);
	for (int shard = 0; shard < table->colocation->shard_count; shard++)
		appendStringInfo(&pairs, "%s(%s, %s)", shard > 0 ? ", " : "",
						 quote_literal_cstr(quote_qualified_identifier(
							 schema, table_ddl_partition_name(old_name, shard))),
						 quote_literal_cstr(table_ddl_partition_name(new_name, shard)));
	body = psprintf(
		"DECLARE pair record;"
		" BEGIN"
		" FOR pair IN SELECT pg_catalog.to_regclass(old) AS relation, new"
		" FROM (VALUES %s) AS v (old, new) LOOP"
		" IF pair.relation IS NOT NULL THEN"
		" EXECUTE pg_catalog.format('ALTER TABLE %%s RENAME TO %%I', pair.relation, pair.new);"
		" END IF;"
		" END LOOP;"
		" END",
		pairs.data);
	ddl_send_everywhere(psprintf("DO %s", quote_literal_cstr(body)));
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
			table = ddl_find_table_by_name(rename->relation);
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
		char *text = ddl_text_without_only(call, rename->relation);
		char *old_name = get_rel_name(table->relation);
		TableKind kind = table->kind;

		ddl_run_locally(call);
		ddl_ensure_unchanged(table->relation, kind);
		ddl_send_everywhere(text);
		rename_partitions(table, old_name);
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
	char *old_name;
	TableKind kind;

	if (alter->relation == NULL)
	{
		ddl_alter_object(call);
		return;
	}
	table = ddl_find_table_by_name(alter->relation);
	if (table == NULL)
	{
		ddl_run_locally(call);
		return;
	}

	old_name = ddl_relation_name(table->relation);
	kind = table->kind;
	ddl_run_locally(call);
	ddl_ensure_unchanged(table->relation, kind);
	ddl_alter_partitions(old_name, "SET SCHEMA %I", alter->newschema);
}
