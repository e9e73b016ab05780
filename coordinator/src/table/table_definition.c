/*
 * table_definition.c
 *		What pg_dump carries of a distributed table: a security label with its definition.
 *
 * A dump has a shell's columns, constraints, policies and rows, but neither our metadata, which are those of
 * one cluster, nor anything of the workers.  What another cluster needs to make the same table of it is
 * therefore in a label of provider "strata", a JSON object: kind, key, shards, colocation group, storage,
 * columnar options, periods, tier policy.  pg_dump writes it right after CREATE TABLE, before rows, indexes
 * and foreign keys; there SECURITY LABEL runs strata.define_table(), which calls the functions that anybody
 * calls, as the user who restores.
 *
 * The label is a copy and has one writer, table_definition_store(), which derives it from the metadata in the
 * transaction that changes these; names of columns are why renaming one is such a change.  Only the columnar
 * options, whose truth is on the workers, are kept from the label before.  Names of tables are not in it:
 * a group that is not a default one has a name for itself, which goes with the dump.
 *
 * What it is made from is read with catalog snapshots, so that an old snapshot cannot make an old label.  Lock:
 * ShareUpdateExclusiveLock on the table, which orders writers of one label.
 */
#include "postgres.h"

#include "table/table_definition.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/table.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type_d.h"
#include "commands/seclabel.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "cluster/metadata.h"
#include "cluster/metadata_write.h"

PG_FUNCTION_INFO_V1(strata_table_definition);
PG_FUNCTION_INFO_V1(strata_store_definition);

/* ---------------------------------------------------------------- from the metadata */

/* Add one member, unless the value is NULL or empty. */
static void
add_text(StringInfo json, const char *name, const char *value)
{
	if (value == NULL || value[0] == '\0')
		return;
	appendStringInfoString(json, json->len > 1 ? ", " : "");
	escape_json(json, name);
	appendStringInfoString(json, ": ");
	escape_json(json, value);
}

/* The columns of the table's row in strata.tier_policy but the first, as an object; NULL if it has none. */
static char *
describe_tier_policy(Oid relation)
{
	Relation catalog = table_open(metadata_catalog_oid("tier_policy"), AccessShareLock);
	TupleDesc desc = RelationGetDescr(catalog);
	StringInfoData json;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple tuple;
	int settings = NewGUCNestLevel();

	(void) set_config_option("intervalstyle", "postgres", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	initStringInfo(&json);
	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relation));
	scan = systable_beginscan(catalog, InvalidOid, false, NULL, 1, &key);
	if ((tuple = systable_getnext(scan)) != NULL)
	{
		appendStringInfoChar(&json, '{');
		for (int i = 1; i < desc->natts; i++)
			add_text(&json, NameStr(TupleDescAttr(desc, i)->attname),
					 SPI_getvalue(tuple, desc, i + 1));
		appendStringInfoChar(&json, '}');
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	AtEOXact_GUC(false, settings);
	return json.len > 0 ? json.data : NULL;
}

/* The label that the table should have; NULL if it is not ours. */
static char *
describe_table(Oid relation, const char *columnar_options)
{
	const DistributedTable *table = metadata_table(relation);
	StringInfoData json;
	char *policy;

	if (table == NULL)
		return NULL;
	initStringInfo(&json);
	appendStringInfoChar(&json, '{');
	add_text(&json, "kind", table->kind == TABLE_REFERENCE ? "reference" : "distributed");
	if (table->kind == TABLE_DISTRIBUTED)
	{
		add_text(&json, "key", get_attname(relation, table->key_attribute, false));
		add_text(&json, "shard_count", psprintf("%d", table->colocation->first_count));
		add_text(&json, "group", table->colocation->name);
		add_text(&json, "storage", table->is_columnar ? "columnar" : "heap");
	}
	else if (table->is_columnar) /* not the default */
		add_text(&json, "storage", "columnar");
	add_text(&json, "columnar_options", columnar_options);
	if (metadata_has_periods(table))
	{
		add_text(&json, "partition_by", get_attname(relation, table->periods.attribute, false));
		add_text(&json, "partition_interval", table->periods.interval);
		if (strcmp(table->periods.unit, "none") != 0)
			add_text(&json, "partition_epoch", table->periods.unit);
		add_text(&json, "retention", table->periods.retention);
	}
	policy = describe_tier_policy(relation);
	if (policy != NULL)
		appendStringInfo(&json, ", \"tier_policy\": %s", policy);
	appendStringInfoChar(&json, '}');
	return json.data;
}

/* ---------------------------------------------------------------- the label */

/* A text member of a label, NULL if there is none. */
static char *
get_text(const char *label, const char *name)
{
	Jsonb *json = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(label)));
	JsonbValue value;

	if (!JB_ROOT_IS_OBJECT(json) ||
		getKeyJsonValueFromContainer(&json->root, name, strlen(name), &value) == NULL ||
		value.type != jbvString)
		return NULL;
	return pnstrdup(value.val.string.val, value.val.string.len);
}

char *
table_definition_get(Oid relation)
{
	ObjectAddress address;
	char *label;

	ObjectAddressSet(address, RelationRelationId, relation);
	label = GetSecurityLabel(&address, TABLE_DEFINITION_PROVIDER);
	return describe_table(relation, label != NULL ? get_text(label, "columnar_options") : NULL);
}

void
table_definition_store(Oid relation, const char *columnar_options)
{
	ObjectAddress address;

	LockRelationOid(relation, ShareUpdateExclusiveLock);
	ObjectAddressSet(address, RelationRelationId, relation);
	SetSecurityLabel(&address, TABLE_DEFINITION_PROVIDER,
					 columnar_options != NULL ? describe_table(relation, columnar_options)
											  : table_definition_get(relation));
	CommandCounterIncrement();
}

/* table_definition(relation): the label that the metadata ask for */
Datum
strata_table_definition(PG_FUNCTION_ARGS)
{
	char *definition = table_definition_get(PG_GETARG_OID(0));

	if (definition == NULL)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(DirectFunctionCall1(jsonb_in, CStringGetDatum(definition)));
}

/* store_definition(relation), for functions of SQL that change what the label says */
Datum
strata_store_definition(PG_FUNCTION_ARGS)
{
	table_definition_store(PG_GETARG_OID(0), NULL);
	PG_RETURN_VOID();
}

/* ---------------------------------------------------------------- SECURITY LABEL */

/*
 * Labels that did not come through ddl_security_label(): of other objects, of databases without the extension.
 * pg_upgrade's are kept as they are: the metadata come as files afterwards.
 */
static void
check_label(const ObjectAddress *object, const char *label)
{
	if (IsBinaryUpgrade)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("provider \"%s\" has no label for this object", TABLE_DEFINITION_PROVIDER),
			 errdetail("Its labels are definitions of distributed tables, in databases with "
					   "extension \"strata\"."),
			 errhint("Name another provider: SECURITY LABEL FOR provider ON ...")));
}

void
table_definition_apply(Oid relation, const char *label, int former_group)
{
	Oid types[] = {REGCLASSOID, JSONBOID, INT4OID};
	Datum values[] = {ObjectIdGetDatum(relation),
					  DirectFunctionCall1(jsonb_in, CStringGetDatum(label)),
					  Int32GetDatum(former_group)};

	SPI_connect();
	if (SPI_execute_with_args("SELECT strata.define_table($1, $2, $3)", 3, types, values, NULL,
							  false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not call strata.define_table()");
	SPI_finish();
}

void
table_definition_initialize(void)
{
	register_label_provider(TABLE_DEFINITION_PROVIDER, check_label);
}
