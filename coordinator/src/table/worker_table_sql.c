/*
 * worker_table_sql.c
 *		SQL that creates a table's copy on a worker.
 *
 * The copy has what a worker needs to store, check and find rows: columns,
 * NOT NULL, generated columns, constraints, indexes, storage options and
 * privileges.  It has no defaults, identities, triggers, rules and policies:
 * those act on the coordinator, once per row, before the row travels.  But for defaults that a
 * foreign key's action sets, for the workers do that; they must be immutable.
 *
 * Texts come from the catalogs, through the functions that pg_dump and psql use,
 * in "SQL mode" (row_format.h): whatever is not built in gets its schema's name,
 * and literals are written as every session reads them.  Nothing here locks;
 * callers hold a lock on the table.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/reloptions.h"
#include "access/toast_compression.h"
#include "catalog/pg_attrdef.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_index.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "commands/tablespace.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"

#include "compat.h"
#include "mb/pg_wchar.h"
#include "cluster/constraint.h"
#include "cluster/metadata.h"
#include "cluster/relation_name.h"
#include "table/period.h"
#include "table/foreign_key_rules.h"
#include "table/table_tree.h"
#include "table/worker_table_sql.h"
#include "values/row_format.h"

/* How a partition comes to its table. */
typedef enum PartitionWay
{
	PARTITION_NEW,	  /* with it */
	PARTITION_IN_USE, /* later: its readers and writers do not wait until the transaction has ended */
	PARTITION_APART	  /* not yet */
} PartitionWay;

static void append_columns(StringInfo sql, Relation relation);
static void append_checks(StringInfo sql, Relation relation);
static void append_column_settings(StringInfo sql, Relation relation, const char *table);
static void append_partition(StringInfo sql, Relation relation, const ShardBounds *bounds,
							 List *periods, PartitionWay way);
static void append_partition_owners(StringInfo sql, Relation relation, List *shards);

char *
worker_table_sql_shard_name(Relation relation, int remainder)
{
	return quote_qualified_identifier(
		get_namespace_name(RelationGetNamespace(relation)),
		relation_name_of_shard(RelationGetRelationName(relation), remainder,
							   metadata_has_periods(metadata_table(RelationGetRelid(relation)))));
}

/* The relation's storage parameters, as a list of DefElem. */
static List *
list_storage_parameters(Relation relation)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(RelationGetRelid(relation)));
	Datum options;
	bool isnull;
	List *parameters;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", RelationGetRelid(relation));
	options = SysCacheGetAttr(RELOID, tuple, Anum_pg_class_reloptions, &isnull);
	parameters = isnull ? NIL : untransformRelOptions(options);
	ReleaseSysCache(tuple);
	return parameters;
}

/* Options (DefElem) as "name=value, ...", NULL when there are none. */
static char *
quote_options(List *options)
{
	StringInfoData sql;
	ListCell *cell;

	initStringInfo(&sql);
	foreach(cell, options)
	{
		DefElem *option = lfirst(cell);

		if (strncmp(option->defname, "pg_", 3) == 0)
			continue; /* a server's own mark */
		appendStringInfo(&sql, "%s%s = %s", sql.len > 0 ? ", " : "",
						 quote_identifier(option->defname),
						 quote_literal_cstr(defGetString(option)));
	}
	return sql.len > 0 ? sql.data : NULL;
}

/* ---------------------------------------------------------------- tables */

/* The privileges on a schema as GRANTs inside a DO block that may name missing roles. */
static void
append_schema_grants(StringInfo block, Oid schema_oid, const char *schema)
{
	HeapTuple tuple = SearchSysCache1(NAMESPACEOID, ObjectIdGetDatum(schema_oid));
	Datum value;
	bool isnull;
	Acl *acl;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for schema %u", schema_oid);
	value = SysCacheGetAttr(NAMESPACEOID, tuple, Anum_pg_namespace_nspacl, &isnull);
	acl = isnull ? NULL : DatumGetAclPCopy(value);
	ReleaseSysCache(tuple);

	for (int i = 0; acl != NULL && i < ACL_NUM(acl); i++)
	{
		AclItem *item = &ACL_DAT(acl)[i];
		const char *privileges = (ACLITEM_GET_PRIVS(*item) & ACL_CREATE) == 0  ? "USAGE"
								 : (ACLITEM_GET_PRIVS(*item) & ACL_USAGE) == 0 ? "CREATE"
																			   : "USAGE, CREATE";
		const char *role;

		if ((ACLITEM_GET_PRIVS(*item) & (ACL_CREATE | ACL_USAGE)) == 0)
			continue;
		if (item->ai_grantee == ACL_ID_PUBLIC)
		{
			appendStringInfo(block, "GRANT %s ON SCHEMA %s TO PUBLIC; ", privileges,
							 quote_identifier(schema));
			continue;
		}
		role = GetUserNameFromId(item->ai_grantee, false);
		appendStringInfo(block,
						 "IF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = %s) "
						 "THEN GRANT %s ON SCHEMA %s TO %s; END IF; ",
						 quote_literal_cstr(role), privileges, quote_identifier(schema),
						 quote_identifier(role));
	}
}

/*
 * CREATE SCHEMA IF NOT EXISTS would ask for the right to create schemas even when
 * there is nothing to create.
 */
static char *
print_schema(Oid schema_oid)
{
	char *schema = get_namespace_name(schema_oid);
	StringInfoData block;

	if (schema == NULL)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_SCHEMA),
						errmsg("schema with OID %u does not exist", schema_oid)));
	initStringInfo(&block);
	appendStringInfo(&block,
					 "BEGIN IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = %s) "
					 "THEN CREATE SCHEMA %s; ",
					 quote_literal_cstr(schema), quote_identifier(schema));
	append_schema_grants(&block, schema_oid, schema);
	appendStringInfoString(&block, "END IF; END");
	return psprintf("DO %s;\n", quote_literal_cstr(block.data));
}

static const char *
get_access_method(const DistributedTable *table)
{
	return table != NULL && table->is_columnar ? "columnar" : "heap";
}

char *
worker_table_sql_create(Relation relation, AttrNumber key_attribute, List *shards, List *periods)
{
	StringInfoData sql;
	ListCell *cell;
	int level = row_format_enter_sql_mode();
	bool partitioned = AttributeNumberIsValid(key_attribute);

	initStringInfo(&sql);
	appendStringInfoString(&sql, print_schema(RelationGetNamespace(relation)));

	appendStringInfo(&sql, "CREATE TABLE %s (",
					 relation_name_qualified(RelationGetRelid(relation)));
	append_columns(&sql, relation);
	append_checks(&sql, relation);
	appendStringInfoChar(&sql, ')');
	if (partitioned)
		appendStringInfo(
			&sql, " PARTITION BY HASH (%s)",
			quote_identifier(get_attname(RelationGetRelid(relation), key_attribute, false)));
	else if (relation->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
		appendStringInfoString(&sql, table_tree_partition_key(relation));
	else
	{
		char *options = quote_options(list_storage_parameters(relation));

		/* A worker's default_table_access_method must not decide. */
		appendStringInfo(&sql, " USING %s",
						 get_access_method(metadata_table(RelationGetRelid(relation))));
		if (options != NULL)
			appendStringInfo(&sql, " WITH (%s)", options);
	}
	appendStringInfoString(&sql, ";\n");

	/* Partitions inherit these settings, if they come later. */
	append_column_settings(&sql, relation, relation_name_qualified(RelationGetRelid(relation)));
	foreach(cell, shards)
		append_partition(&sql, relation, lfirst(cell), periods, PARTITION_NEW);

	row_format_leave_sql_mode(level);
	return sql.data;
}

char *
worker_table_sql_partitions(Relation relation, List *shards, List *periods)
{
	StringInfoData sql;
	ListCell *cell;
	int level = row_format_enter_sql_mode();

	initStringInfo(&sql);
	foreach(cell, shards)
		append_partition(&sql, relation, lfirst(cell), periods, PARTITION_IN_USE);
	append_partition_owners(&sql, relation, shards);
	row_format_leave_sql_mode(level);
	return sql.data;
}

char *
worker_table_sql_apart(Relation relation, ShardBounds *shard)
{
	StringInfoData sql;
	int level = row_format_enter_sql_mode();

	initStringInfo(&sql);
	append_partition(&sql, relation, shard, NIL, PARTITION_APART);
	append_partition_owners(&sql, relation, list_make1(shard));
	row_format_leave_sql_mode(level);
	return sql.data;
}

/* Call a function of workers that attaches a partition, or prepares that. */
static char *
print_attaching(const char *function, Relation relation, const ShardBounds *shard)
{
	return psprintf("SELECT strata_worker.%s(%s, %s, %d, %d);\n", function,
					quote_literal_cstr(worker_table_sql_shard_name(relation, shard->remainder)),
					quote_literal_cstr(relation_name_qualified(RelationGetRelid(relation))),
					shard->modulus, shard->remainder);
}

char *
worker_table_sql_attach(Relation relation, const ShardBounds *shard)
{
	return print_attaching("attach_filled", relation, shard);
}

static void
append_partition(StringInfo sql, Relation relation, const ShardBounds *shard, List *periods,
				 PartitionWay way)
{
	char *options = quote_options(list_storage_parameters(relation));
	const DistributedTable *table = metadata_table(RelationGetRelid(relation));
	const char *parent = relation_name_qualified(RelationGetRelid(relation));
	char *name = worker_table_sql_shard_name(relation, shard->remainder);
	char *bounds = psprintf("FOR VALUES WITH (MODULUS %d, REMAINDER %d)", shard->modulus,
							shard->remainder);
	const char *access_method = get_access_method(table);

	if (way == PARTITION_NEW)
		appendStringInfo(sql, "CREATE TABLE %s PARTITION OF %s %s", name, parent, bounds);
	else
		appendStringInfo(sql,
						 "CREATE TABLE %s (LIKE %s INCLUDING CONSTRAINTS INCLUDING DEFAULTS "
						 "INCLUDING GENERATED INCLUDING STORAGE INCLUDING COMPRESSION%s)",
						 name, parent, way == PARTITION_APART ? " INCLUDING INDEXES" : "");
	if (metadata_has_periods(table))
		appendStringInfo(sql, " PARTITION BY RANGE (%s)",
						 quote_identifier(get_attname(RelationGetRelid(relation),
													  table->periods.attribute, false)));
	else
		appendStringInfo(sql, " USING %s", access_method);
	if (options != NULL && !metadata_has_periods(table))
		appendStringInfo(sql, " WITH (%s)", options);
	appendStringInfoString(sql, ";\n");
	if (way == PARTITION_APART)
		appendStringInfoString(sql, print_attaching("prepare_attach", relation, shard));
	if (way == PARTITION_IN_USE)
		appendStringInfo(sql,
						 "ALTER TABLE %s ATTACH PARTITION %s %s;\n"
						 "SELECT strata_worker.follow_indexes(%s);\n",
						 parent, name, bounds, quote_literal_cstr(name));
	if (metadata_has_periods(table))
		appendStringInfoString(sql,
							   period_ddl_create(name, relation, &table->periods, access_method,
												 list_storage_parameters(relation), periods));
	else
		append_column_settings(sql, relation, name); /* partitions do not inherit them all */
}

/* ---------------------------------------------------------------- columns */

char *
worker_table_sql_generation_expression(Relation relation, AttrNumber attribute)
{
	Node *expression = build_column_default(relation, attribute);
	List *context = deparse_context_for(RelationGetRelationName(relation),
										RelationGetRelid(relation));

	return deparse_expression(expression, context, false, false);
}

/* Partitioned tables, which the workers' are, hand all their constraints down. */
static bool
is_inherited_there(Oid relation)
{
	const DistributedTable *table = metadata_table(relation);

	return table == NULL || table->kind == TABLE_DISTRIBUTED;
}

/* NOT NULL, by the name that it has here. */
static void
append_not_null(StringInfo sql, Relation relation, AttrNumber attribute)
{
	HeapTuple constraint = compat_find_not_null(RelationGetRelid(relation), attribute);

	if (constraint != NULL)
		appendStringInfo(
			sql, " CONSTRAINT %s",
			quote_identifier(NameStr(((Form_pg_constraint) GETSTRUCT(constraint))->conname)));
	appendStringInfoString(sql, " NOT NULL");
	if (constraint != NULL && ((Form_pg_constraint) GETSTRUCT(constraint))->connoinherit &&
		!is_inherited_there(RelationGetRelid(relation)))
		appendStringInfoString(sql, " NO INHERIT");
}

char *
worker_table_sql_column(Relation relation, AttrNumber attribute)
{
	Form_pg_attribute column = TupleDescAttr(RelationGetDescr(relation), attribute - 1);
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfo(&sql, "%s %s", quote_identifier(NameStr(column->attname)),
					 format_type_with_typemod(column->atttypid, column->atttypmod));
	if (CompressionMethodIsValid(column->attcompression))
		appendStringInfo(&sql, " COMPRESSION %s", GetCompressionMethodName(column->attcompression));
	if (OidIsValid(column->attcollation) &&
		column->attcollation != get_typcollation(column->atttypid))
		appendStringInfo(&sql, " COLLATE %s", generate_collation_name(column->attcollation));
	if (column->attgenerated != '\0')
		appendStringInfo(&sql, " GENERATED ALWAYS AS (%s) %s",
						 worker_table_sql_generation_expression(relation, attribute),
						 column->attgenerated == ATTRIBUTE_GENERATED_STORED ? "STORED" : "VIRTUAL");
	if (column->attnotnull)
		append_not_null(&sql, relation, attribute);
	return sql.data;
}

static void
append_columns(StringInfo sql, Relation relation)
{
	TupleDesc desc = RelationGetDescr(relation);
	const char *separator = "";

	for (int i = 0; i < desc->natts; i++)
	{
		if (TupleDescAttr(desc, i)->attisdropped)
			continue;
		appendStringInfo(sql, "%s%s", separator, worker_table_sql_column(relation, i + 1));
		separator = ", ";
	}
}

/* The column's options, as quote_options() writes them. */
static char *
get_column_options(Relation relation, AttrNumber attribute)
{
	Datum options = get_attoptions(RelationGetRelid(relation), attribute);

	return options == (Datum) 0 ? NULL : quote_options(untransformRelOptions(options));
}

/* STORAGE, STATISTICS and options of columns for a table on workers, where they are not the default. */
static void
append_column_settings(StringInfo sql, Relation relation, const char *table)
{
	TupleDesc desc = RelationGetDescr(relation);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);
		const char *storage;
		const char *options;
		int target;

		if (column->attisdropped)
			continue;

		if (column->attstorage != get_typstorage(column->atttypid))
		{
			storage = column->attstorage == TYPSTORAGE_PLAIN	  ? "PLAIN"
					  : column->attstorage == TYPSTORAGE_EXTERNAL ? "EXTERNAL"
					  : column->attstorage == TYPSTORAGE_EXTENDED ? "EXTENDED"
																  : "MAIN";
			appendStringInfo(sql, "ALTER TABLE %s ALTER COLUMN %s SET STORAGE %s;\n", table,
							 quote_identifier(NameStr(column->attname)), storage);
		}

		target = compat_statistics_target(RelationGetRelid(relation), column->attnum);
		if (target >= 0)
			appendStringInfo(sql, "ALTER TABLE %s ALTER COLUMN %s SET STATISTICS %d;\n", table,
							 quote_identifier(NameStr(column->attname)), target);

		options = get_column_options(relation, column->attnum);
		if (options != NULL)
			appendStringInfo(sql, "ALTER TABLE %s ALTER COLUMN %s SET (%s);\n", table,
							 quote_identifier(NameStr(column->attname)), options);
	}
}

/* ---------------------------------------------------------------- constraints and indexes */

char *
worker_table_sql_inherited_check(Form_pg_constraint constraint, char *definition)
{
	const char *no_inherit = " NO INHERIT";
	const char *end = !compat_constraint_is_enforced(constraint) ? " NOT ENFORCED"
					  : constraint->convalidated				 ? ""
																 : " NOT VALID";
	int length = strlen(definition) - strlen(no_inherit) - strlen(end);

	if (constraint->contype != CONSTRAINT_FOREIGN && constraint->connoinherit && length > 0 &&
		is_inherited_there(constraint->conrelid) &&
		strncmp(definition + length, no_inherit, strlen(no_inherit)) == 0)
		strcpy(definition + length, end);
	return definition;
}

/* Definition of a constraint as in CREATE TABLE, without its name. */
static char *
get_constraint_definition(Form_pg_constraint constraint)
{
	return worker_table_sql_inherited_check(
		constraint, TextDatumGetCString(DirectFunctionCall1(pg_get_constraintdef,
															ObjectIdGetDatum(constraint->oid))));
}

static char *
get_named_definition(Form_pg_constraint constraint)
{
	return psprintf("CONSTRAINT %s %s", quote_identifier(NameStr(constraint->conname)),
					get_constraint_definition(constraint));
}

/*
 * The relation's constraints of this type as palloc'd texts "CONSTRAINT name definition".  Foreign keys that come with another one,
 * of a partitioned table to or from which that is, are left out.
 */
static List *
list_constraints(Relation relation, char type)
{
	List *constraints = NIL;
	ListCell *cell;

	foreach(cell, constraint_list(RelationGetRelid(relation)))
	{
		Form_pg_constraint constraint = (Form_pg_constraint) GETSTRUCT((HeapTuple) lfirst(cell));

		if (constraint->contype == type &&
			(type != CONSTRAINT_FOREIGN || !OidIsValid(constraint->conparentid)))
			constraints = lappend(constraints, get_named_definition(constraint));
	}
	return constraints;
}

List *
worker_table_sql_constraint_names(Relation relation)
{
	List *names = NIL;
	ListCell *cell;

	foreach(cell, constraint_list(RelationGetRelid(relation)))
	{
		Form_pg_constraint constraint = (Form_pg_constraint) GETSTRUCT((HeapTuple) lfirst(cell));

		names = lappend(names, makeString(pstrdup(NameStr(constraint->conname))));
	}
	return names;
}

static void
append_checks(StringInfo sql, Relation relation)
{
	bool first = RelationGetDescr(relation)->natts == 0;
	ListCell *cell;

	foreach(cell, list_constraints(relation, CONSTRAINT_CHECK))
	{
		appendStringInfo(sql, "%s%s", first ? "" : ", ", (char *) lfirst(cell));
		first = false;
	}
}

static void
append_constraint(StringInfo sql, Relation relation, const char *definition)
{
	appendStringInfo(sql, "ALTER TABLE %s ADD %s;\n",
					 relation_name_qualified(RelationGetRelid(relation)), definition);
}

/* When a constraint is checked, as its definition ends. */
static const char *
get_deferral(Oid constraint)
{
	HeapTuple tuple = constraint_get(constraint);
	Form_pg_constraint form = (Form_pg_constraint) GETSTRUCT(tuple);
	const char *deferral = !form->condeferrable ? ""
						   : !form->condeferred ? " DEFERRABLE"
												: " DEFERRABLE INITIALLY DEFERRED";

	ReleaseSysCache(tuple);
	return deferral;
}

/* ADD CONSTRAINT of the constraint whose index it is; it brings the index along, but not the tablespace that this has here. */
static char *
get_index_constraint_command(Oid constraint, Oid index)
{
	char *command = pg_get_constraintdef_command(constraint);
	Oid tablespace = get_rel_tablespace(index);
	const char *deferral = get_deferral(constraint);
	char *place;
	int length;

	if (!OidIsValid(tablespace))
		return command;
	place = psprintf(" USING INDEX TABLESPACE %s%s",
					 quote_identifier(get_tablespace_name(tablespace)), deferral);
	length = strlen(command) - strlen(place);
	if (length > 0 && strcmp(command + length, place) == 0)
		strcpy(command + length, deferral);
	return command;
}

static bool
has_column(Oid index, AttrNumber column)
{
	return SearchSysCacheExists2(ATTNUM, ObjectIdGetDatum(index), Int16GetDatum(column));
}

char *
worker_table_sql_index(Relation relation, Oid index)
{
	Oid constraint = get_index_constraint(index);
	StringInfoData sql;

	initStringInfo(&sql);
	if (!OidIsValid(constraint))
		appendStringInfo(
			&sql, "%s;\n",
			TextDatumGetCString(DirectFunctionCall1(pg_get_indexdef, ObjectIdGetDatum(index))));
	else
		appendStringInfo(&sql, "ALTER TABLE %s%s;\n",
						 relation->rd_rel->relkind == RELKIND_PARTITIONED_TABLE ? "ONLY " : "",
						 get_index_constraint_command(constraint, index) + strlen("ALTER TABLE "));
	for (AttrNumber column = 1; has_column(index, column); column++)
	{
		int target = compat_statistics_target(index, column);

		if (target >= 0)
			appendStringInfo(&sql, "ALTER INDEX %s ALTER COLUMN %d SET STATISTICS %d;\n",
							 relation_name_qualified(index), column, target);
	}
	return sql.data;
}

char *
worker_table_sql_index_options(Oid index)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(index));
	StringInfoData targets;
	Datum options;
	bool isnull;
	char *sql;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for index %u", index);
	initStringInfo(&targets);
	for (AttrNumber column = 1; has_column(index, column); column++)
		appendStringInfo(&targets, "%s%d", column > 1 ? "," : "",
						 compat_statistics_target(index, column));
	options = SysCacheGetAttr(RELOID, tuple, Anum_pg_class_reloptions, &isnull);
	sql = psprintf("SELECT strata_worker.set_index_options(%s, %s, '{%s}')",
				   quote_literal_cstr(relation_name_qualified(index)),
				   isnull ? "'{}'"
						  : quote_literal_cstr(OidOutputFunctionCall(F_ARRAY_OUT, options)),
				   targets.data);
	ReleaseSysCache(tuple);
	return sql;
}

char *
worker_table_sql_indexes(Relation relation)
{
	StringInfoData sql;
	int level = row_format_enter_sql_mode();
	ListCell *cell;

	initStringInfo(&sql);
	foreach(cell, RelationGetIndexList(relation)) /* in the order in which they were made */
	{
		Oid index = lfirst_oid(cell);

		/* what CONCURRENTLY left unfinished stays here; a part of a partitioned table's index may be missing */
		if (get_index_isvalid(index) || get_rel_relkind(index) == RELKIND_PARTITIONED_INDEX ||
			OidIsValid(get_index_constraint(index)))
			appendStringInfoString(&sql, worker_table_sql_index(relation, index));
	}
	foreach(cell, RelationGetStatExtList(relation))
		appendStringInfo(&sql, "%s;\n", pg_get_statisticsobjdef_string(lfirst_oid(cell)));
	row_format_leave_sql_mode(level);
	return sql.data;
}

static void
refuse_default(Relation relation, HeapTuple constraint, const char *column)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("foreign key \"%s\" cannot set column \"%s\" to its default",
					NameStr(((Form_pg_constraint) GETSTRUCT(constraint))->conname), column),
			 errdetail("The workers of table \"%s\" do that, and the default is not immutable.",
					   RelationGetRelationName(relation)),
			 errhint("Give the column a constant default, or have the foreign key SET NULL.")));
}

/* Add the defaults that the workers need for one foreign key; a domain's own is there already. */
static List *
add_defaults(List *defaults, Relation relation, HeapTuple constraint, bool check)
{
	TupleDesc desc = RelationGetDescr(relation);
	List *context = deparse_context_for(RelationGetRelationName(relation),
										RelationGetRelid(relation));
	ListCell *cell;

	foreach(cell, foreign_key_rules_list_set_columns(constraint, FKCONSTR_ACTION_SETDEFAULT))
	{
		Form_pg_attribute column = TupleDescAttr(desc, lfirst_int(cell) - 1);
		char *name = NameStr(column->attname);
		bool identity = column->attidentity != '\0';
		Node *expression;
		char *sql;

		if (!column->atthasdef && !identity)
			continue;
		/* an identity's sequence may not be there yet */
		expression = identity ? NULL : build_column_default(relation, column->attnum);
		if (check && (identity || contain_mutable_functions(expression)))
			refuse_default(relation, constraint, name);
		sql = psprintf("ALTER COLUMN %s SET DEFAULT %s", quote_identifier(name),
					   identity ? "NULL" : deparse_expression(expression, context, false, false));
		defaults = list_append_unique(defaults,
									  list_make2(makeString(pstrdup(name)), makeString(sql)));
	}
	return defaults;
}

List *
worker_table_sql_defaults(Relation relation, bool check)
{
	const DistributedTable *table = metadata_table(RelationGetRelid(relation));
	List *defaults = NIL;
	int level;
	ListCell *cell;

	if (table == NULL || table->kind != TABLE_DISTRIBUTED)
		return NIL;
	level = row_format_enter_sql_mode();
	foreach(cell, constraint_list(RelationGetRelid(relation)))
	{
		HeapTuple constraint = lfirst(cell);

		if (((Form_pg_constraint) GETSTRUCT(constraint))->contype == CONSTRAINT_FOREIGN)
			defaults = add_defaults(defaults, relation, constraint, check);
	}
	row_format_leave_sql_mode(level);
	return defaults;
}

char *
worker_table_sql_foreign_keys(Relation relation)
{
	StringInfoData sql;
	List *defaults = worker_table_sql_defaults(relation, true);
	int level = row_format_enter_sql_mode();
	ListCell *cell;

	initStringInfo(&sql);
	foreach(cell, defaults)
		appendStringInfo(&sql, "ALTER TABLE %s %s;\n",
						 relation_name_qualified(RelationGetRelid(relation)),
						 strVal(lsecond(lfirst(cell))));
	foreach(cell, list_constraints(relation, CONSTRAINT_FOREIGN))
		append_constraint(&sql, relation, lfirst(cell));
	row_format_leave_sql_mode(level);
	return sql.data;
}

/* ---------------------------------------------------------------- owner */

/* Append a command that only runs where the role exists. */
static void
append_if_role_exists(StringInfo sql, Oid role, const char *command)
{
	StringInfoData block;

	initStringInfo(&block);
	appendStringInfo(&block,
					 "BEGIN IF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = %s) "
					 "THEN %s; END IF; END",
					 quote_literal_cstr(GetUserNameFromId(role, false)), command);
	appendStringInfo(sql, "DO %s;\n", quote_literal_cstr(block.data));
}

/* The commands run as the current user, who owns what he creates. */
static void
append_partition_owners(StringInfo sql, Relation relation, List *shards)
{
	Oid owner = relation->rd_rel->relowner;
	ListCell *cell;

	if (owner == GetUserId())
		return;
	foreach(cell, shards)
	{
		const ShardBounds *bounds = lfirst(cell);
		char *shard = worker_table_sql_shard_name(relation, bounds->remainder);

		append_if_role_exists(sql, owner,
							  psprintf("ALTER TABLE %s OWNER TO %s", shard,
									   quote_identifier(GetUserNameFromId(owner, false))));
		if (metadata_has_periods(metadata_table(RelationGetRelid(relation))))
			appendStringInfo(sql, "SELECT strata_worker.own_leaves(%s);\n",
							 quote_literal_cstr(shard));
	}
}

char *
worker_table_sql_owner(Relation relation, List *shards)
{
	StringInfoData sql;
	Oid owner = relation->rd_rel->relowner;

	initStringInfo(&sql);
	if (owner != GetUserId())
		append_if_role_exists(&sql, owner,
							  psprintf("ALTER TABLE %s OWNER TO %s",
									   relation_name_qualified(RelationGetRelid(relation)),
									   quote_identifier(GetUserNameFromId(owner, false))));
	append_partition_owners(&sql, relation, shards);
	return sql.data;
}
