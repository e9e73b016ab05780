/*
 * ddl_relation.c
 *		Tables and what hangs on them come, get other names, and go.
 *
 * Commands are sent as the user typed them, except where the text would not mean the same
 * on the workers: a statistics object is built from the catalog after the command ran here, because
 * PostgreSQL chooses its name, and SET SCHEMA has to take the partitions along.  ONLY is
 * blanked out: the workers' tables are partitioned, and have nothing without their
 * partitions.
 *
 * A command is classified before it takes its lock; should the table become distributed
 * (or stop being so) in between, the command fails and can be repeated.
 */
#include "postgres.h"

#include "ddl/ddl.h"

#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_statistic_ext.h"
#include "catalog/pg_trigger.h"
#include "commands/tablespace.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"

#include "cluster/metadata_write.h"
#include "cluster/object_place.h"
#include "cluster/relation_name.h"
#include "stream/remote_ddl.h"
#include "table/columnar_options.h"
#include "table/dropped_names.h"
#include "table/foreign_key_rules.h"
#include "table/table_rules.h"
#include "table/worker_table_sql.h"
#include "values/row_format.h"

/* ---------------------------------------------------------------- for all commands on tables */

static void
check_index(Oid index)
{
	const DistributedTable *table = metadata_find_table(index);

	if (table != NULL && table->kind == TABLE_DISTRIBUTED)
		table_rules_check_unique_index(index, table->key_attribute, table->periods.attribute);
}

/* On the catalog: by which of PostgreSQL's many ways a constraint came into being does not matter. */
void
ddl_check_created(const UtilityCall *call)
{
	ListCell *cell;

	foreach(cell, ddl_created_objects(call))
	{
		const ObjectAddress *address = lfirst(cell);

		if (address->classId == RelationRelationId &&
			get_rel_relkind(address->objectId) == RELKIND_INDEX)
			check_index(address->objectId);
		else if (address->classId == ConstraintRelationId &&
				 SearchSysCacheExists1(CONSTROID, ObjectIdGetDatum(address->objectId)))
			foreign_key_rules_check(address->objectId);
	}
}

const DistributedTable *
ddl_find_table_by_name(const RangeVar *name)
{
	return name == NULL ? NULL : metadata_find_table(RangeVarGetRelid(name, NoLock, true));
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

/* The statement's text without the word ONLY in front of the table's name. */
static char *
print_without_only(const UtilityCall *call, const RangeVar *name)
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

/*
 * CREATE [FOREIGN] TABLE: a child or partition of a reference table becomes one, too (utility.c); other tables that
 * would have rows elsewhere than their parents are refused.
 */
void
ddl_create_table(UtilityCall *call)
{
	Node *statement = call->statement->utilityStmt;
	CreateStmt *create = (CreateStmt *) statement; /* or one with more behind */
	ListCell *cell;

	foreach(cell, create->inhRelations)
	{
		const DistributedTable *table = ddl_find_table_by_name(lfirst_node(RangeVar, cell));

		if (table == NULL)
			continue;
		if (table->kind == TABLE_DISTRIBUTED || IsA(statement, CreateForeignTableStmt))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot inherit from table \"%s\" because it is on several nodes",
							lfirst_node(RangeVar, cell)->relname),
					 errhint("Use LIKE to copy its columns.")));
		remote_ddl_lock_for_change();
	}
	ddl_run_locally(call);
}

/* CREATE TRIGGER: triggers run on the coordinator, to which rows come that have some. */
void
ddl_create_trigger(UtilityCall *call)
{
	CreateTrigStmt *create = castNode(CreateTrigStmt, call->statement->utilityStmt);
	const DistributedTable *table = ddl_find_table_by_name(create->relation);

	ddl_run_locally(call);
	if (table != NULL && table->kind == TABLE_DISTRIBUTED)
	{
		CommandCounterIncrement();
		foreign_key_rules_check_triggers(table->relation);
	}
}

/*
 * CREATE RULE: the coordinator rewrites statements before it plans them.  ON SELECT would make a view of the
 * table, in PostgreSQL 15, and leave what is on the workers.
 */
void
ddl_create_rule(UtilityCall *call)
{
	RuleStmt *create = castNode(RuleStmt, call->statement->utilityStmt);

	if (create->event == CMD_SELECT && ddl_find_table_by_name(create->relation) != NULL)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("table \"%s\" cannot become a view", create->relation->relname),
						errdetail("Its rows are on the workers."),
						errhint("Drop the table and create a view.")));
	ddl_run_locally(call);
}

void
ddl_alter_partitions(const char *table, bool leaves_only, const char *action)
{
	char *body = psprintf("DECLARE relation pg_catalog.regclass;"
						  " BEGIN"
						  " FOR relation IN SELECT coalesce(p.relid, r) FROM"
						  " pg_catalog.to_regclass(%s) r LEFT JOIN"
						  " pg_catalog.pg_partition_tree(r) p ON true"
						  " WHERE r IS NOT NULL AND coalesce(p.isleaf, true) >= %s LOOP"
						  " EXECUTE pg_catalog.format('ALTER TABLE %%s ', relation) || %s;"
						  " END LOOP;"
						  " END",
						  quote_literal_cstr(table), leaves_only ? "true" : "false",
						  quote_literal_cstr(action));

	remote_ddl_send(psprintf("DO %s", quote_literal_cstr(body)));
}

/*
 * Partitions are called by their table's name, so that another table may get the old one; and pg_partman
 * knows a shard with periods by its name.
 */
static void
rename_partitions(const DistributedTable *table, const char *old_schema, const char *old_name)
{
	const char *new_name = get_rel_name(table->relation);
	const char *schema = get_namespace_name(get_rel_namespace(table->relation));
	bool has_periods = metadata_has_periods(table);
	StringInfoData rows;
	char *body;

	if (table->colocation == NULL ||
		(strcmp(old_name, new_name) == 0 && (strcmp(old_schema, schema) == 0 || !has_periods)))
		return;
	initStringInfo(&rows);
	for (int shard = -1; (shard = colocation_next_shard(table->colocation, shard)) >= 0;)
	{
		char *old = relation_name_of_shard(old_name, shard, has_periods);

		appendStringInfo(&rows, "%s(%s, %s, %s)", rows.len > 0 ? ", " : "",
						 quote_literal_cstr(quote_qualified_identifier(schema, old)),
						 quote_literal_cstr(old),
						 quote_literal_cstr(relation_name_of_shard(new_name, shard, has_periods)));
	}
	body = psprintf(
		"DECLARE shard record;"
		" BEGIN"
		" FOR shard IN SELECT pg_catalog.to_regclass(place) AS relation, old, new"
		" FROM (VALUES %s) AS v (place, old, new) LOOP"
		" CONTINUE WHEN shard.relation IS NULL;"
		" IF shard.old <> shard.new THEN"
		" EXECUTE pg_catalog.format('ALTER TABLE %%s RENAME TO %%I', shard.relation, shard.new);"
		" END IF;%s"
		" END LOOP;"
		" END",
		rows.data,
		has_periods
			? psprintf(" PERFORM strata_worker.rename_periods(shard.relation, %s, shard.old);",
					   quote_literal_cstr(old_schema))
			: "");
	remote_ddl_send(psprintf("DO %s", quote_literal_cstr(body)));
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
		case OBJECT_ATTRIBUTE:
			ddl_rename_attribute(call);
			return;
		default:
			ddl_alter_object(call);
			return;
	}

	if (table != NULL)
	{
		char *text = table->kind == TABLE_REFERENCE ? ddl_statement_text(call)
													: print_without_only(call, rename->relation);
		char *old_name = get_rel_name(table->relation);
		TableKind kind = table->kind;

		remote_ddl_lock_for_change();
		ddl_run_locally(call);
		ddl_ensure_unchanged(table->relation, kind);
		remote_ddl_send(text);
		rename_partitions(table, get_namespace_name(get_rel_namespace(table->relation)), old_name);
		if (rename->renameType == OBJECT_COLUMN)
			columnar_options_follow(table->relation);
	}
	else
	{
		Oid relid = rename->renameType == OBJECT_TABLE
						? RangeVarGetRelid(rename->relation, NoLock, true)
						: InvalidOid;

		ddl_run_locally(call);
		if (OidIsValid(relid))
			dropped_names_check(relid);
		if (rename->renameType == OBJECT_ROLE)
			remote_ddl_send(ddl_statement_text(call));
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
	char *old_schema;
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

	old_name = relation_name_qualified(table->relation);
	old_schema = get_namespace_name(get_rel_namespace(table->relation));
	kind = table->kind;
	remote_ddl_lock_for_change();
	ddl_run_locally(call);
	ddl_ensure_unchanged(table->relation, kind);
	if (kind == TABLE_REFERENCE)
	{
		/* partitions stay where they are */
		remote_ddl_send(
			psprintf("ALTER TABLE %s SET SCHEMA %s", old_name, quote_identifier(alter->newschema)));
		return;
	}
	ddl_alter_partitions(old_name, false,
						 psprintf("SET SCHEMA %s", quote_identifier(alter->newschema)));
	rename_partitions(table, old_schema, get_rel_name(table->relation));
}

/* CREATE STATISTICS: sent with the name that PostgreSQL gave it here. */
void
ddl_create_statistics(UtilityCall *call)
{
	ListCell *cell;

	remote_ddl_lock_for_change();
	ddl_run_locally(call);
	foreach(cell, ddl_created_objects(call))
	{
		const ObjectAddress *address = lfirst(cell);
		int level;
		char *sql;

		if (address->classId != StatisticExtRelationId || !object_place_is_everywhere(address))
			continue;
		level = row_format_enter_sql_mode();
		sql = pg_get_statisticsobjdef_string(address->objectId);
		row_format_leave_sql_mode(level);
		remote_ddl_send(sql);
	}
}

/* ---------------------------------------------------------------- what only looks like ours */

static void
check_published(const RangeVar *name)
{
	const DistributedTable *table = ddl_find_table_by_name(name);

	if (table != NULL && table->kind == TABLE_DISTRIBUTED)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot publish distributed table \"%s\"", name->relname),
				 errdetail("Its rows are stored on the workers, and their changes are not in "
						   "the coordinator's WAL."),
				 errhint("Publish it on the workers.")));
}

/* CREATE and ALTER PUBLICATION: a subscriber would wait in vain for distributed rows. */
void
ddl_change_publication(UtilityCall *call)
{
	Node *statement = call->statement->utilityStmt;
	bool create = IsA(statement, CreatePublicationStmt);
	bool everything = create ? ((CreatePublicationStmt *) statement)->for_all_tables
							 : castNode(AlterPublicationStmt, statement)->for_all_tables;
	ListCell *cell;

	foreach(cell, create ? ((CreatePublicationStmt *) statement)->pubobjects
						 : ((AlterPublicationStmt *) statement)->pubobjects)
	{
		const PublicationObjSpec *object = lfirst_node(PublicationObjSpec, cell);

		if (object->pubobjtype == PUBLICATIONOBJ_TABLE)
			check_published(object->pubtable->relation);
		else
			everything = true;
	}
	if (everything && metadata_write_tables(CATALOG_KIND_DISTRIBUTED) != NIL)
		ereport(WARNING,
				(errmsg("the publication does not contain changes of distributed tables"),
				 errdetail("Their rows are stored on the workers, and their changes are not in "
						   "the coordinator's WAL.")));
	ddl_run_locally(call);
}

/* ALTER TABLE ALL IN TABLESPACE: a distributed table has nothing to move. */
void
ddl_move_tables(UtilityCall *call)
{
	AlterTableMoveAllStmt *move = castNode(AlterTableMoveAllStmt, call->statement->utilityStmt);
	Oid tablespace = get_tablespace_oid(move->orig_tablespacename, true);
	ListCell *cell;

	if (tablespace == MyDatabaseTableSpace)
		tablespace = InvalidOid;
	foreach(cell, metadata_write_tables(CATALOG_KIND_DISTRIBUTED))
	{
		if (move->objtype == OBJECT_TABLE && get_rel_tablespace(lfirst_oid(cell)) == tablespace)
			ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							errmsg("cannot move table \"%s\" to another tablespace",
								   get_rel_name(lfirst_oid(cell))),
							errdetail("It is distributed: the rows are stored on the workers."),
							errhint("Move the tables one by one.")));
	}
	ddl_run_locally(call);
}
