/*
 * table_api.c
 *		SQL functions that distribute tables, and the trigger of the metadata.
 *
 * They translate SQL's arguments and refuse what is not there yet;
 * table_lifecycle.c does the work and checks the user's rights on the table.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/inval.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "cluster/metadata_write.h"
#include "ddl/ddl.h"
#include "server/argument.h"
#include "server/settings.h"
#include "table/period_convert.h"
#include "table/table_lifecycle.h"

PG_FUNCTION_INFO_V1(strata_create_distributed_table);
PG_FUNCTION_INFO_V1(strata_create_distributed_table_of_type);
PG_FUNCTION_INFO_V1(strata_create_reference_table);
PG_FUNCTION_INFO_V1(strata_undistribute_table);
PG_FUNCTION_INFO_V1(strata_invalidate_metadata);

/* Positions of create_distributed_table()'s arguments. */
enum
{
	ARGUMENT_RELATION,
	ARGUMENT_KEY,
	ARGUMENT_SHARD_COUNT,
	ARGUMENT_COLOCATE_WITH,
	ARGUMENT_STORAGE,
	ARGUMENT_METHOD,
	ARGUMENT_PARTITION_BY,
	ARGUMENT_PARTITION_INTERVAL,
	ARGUMENT_RETENTION,
	ARGUMENT_PARTITION_EPOCH
};

static Oid
get_relation_argument(FunctionCallInfo fcinfo, int argument)
{
	argument_refuse_null(fcinfo, argument, "relation");
	return PG_GETARG_OID(argument);
}

static int
check_shard_count(int count)
{
	if (count < 1 || count > STRATA_MAX_SHARD_COUNT)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%d is outside the valid range for shard_count (1 .. %d)", count,
							   STRATA_MAX_SHARD_COUNT)));
	return count;
}

/* 0 means that none is given. */
static int
get_shard_count(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(ARGUMENT_SHARD_COUNT))
		return 0;
	return check_shard_count(PG_GETARG_INT32(ARGUMENT_SHARD_COUNT));
}

/* The same of a literal without a type; ERROR for what is meant as something else there. */
static int
get_shard_count_as_text(FunctionCallInfo fcinfo)
{
	char *given;

	if (PG_ARGISNULL(ARGUMENT_SHARD_COUNT))
		return 0;
	given = text_to_cstring(PG_GETARG_TEXT_PP(ARGUMENT_SHARD_COUNT));
	if (strspn(given, "+-0123456789 ") == strlen(given))
		return check_shard_count(pg_strtoint32(given));
	ereport(
		ERROR,
		(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
		 errmsg("the third argument of create_distributed_table() is the number of shards, not "
				"\"%s\"",
				given),
		 pg_strcasecmp(given, "hash") == 0
			 ? errhint("Leave it out: tables are distributed by hash.  Others are given by name: "
					   "shard_count => 32, colocate_with => 'another_table'.")
			 : errhint("Tables are distributed by hash; create_reference_table() puts a copy on "
					   "each node.")));
}

/* Arguments of a feature to come. */
static void
check_features(FunctionCallInfo fcinfo)
{
	char *method = argument_get_text(fcinfo, ARGUMENT_METHOD, "method");

	if (strcmp(method, "range") == 0)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("method \"range\" is not supported yet"),
						errhint("Use method => 'hash'.")));
	if (strcmp(method, "hash") != 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("unknown method \"%s\"", method), errhint("Use method => 'hash'.")));
}

/* A text argument, NULL when it is not given. */
static char *
get_optional_text(FunctionCallInfo fcinfo, int argument)
{
	return PG_ARGISNULL(argument) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(argument));
}

static char *
get_storage(FunctionCallInfo fcinfo, int argument)
{
	char *storage = argument_get_text(fcinfo, argument, "storage");

	if (strcmp(storage, "heap") != 0 && strcmp(storage, "columnar") != 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("unknown storage \"%s\"", storage),
						errhint("Use storage => 'columnar' or storage => 'heap'.")));
	return storage;
}

static void
distribute(Oid relation, const char *key, int shard_count, const char *colocate_with,
		   const char *storage, PeriodRequest *periods)
{
	List *dependents;

	relation = period_convert_partitioned(relation, periods);
	dependents = ddl_note_dependents(RelationRelationId, relation);
	table_lifecycle_distribute(relation, key, shard_count, colocate_with, storage, periods);
	ddl_bring_dependents(relation, dependents);
}

Datum
strata_create_distributed_table(PG_FUNCTION_ARGS)
{
	Oid relation = get_relation_argument(fcinfo, ARGUMENT_RELATION);
	char *key = argument_get_text(fcinfo, ARGUMENT_KEY, "key");
	char *colocate_with = argument_get_text(fcinfo, ARGUMENT_COLOCATE_WITH, "colocate_with");

	char *storage = get_storage(fcinfo, ARGUMENT_STORAGE);
	PeriodRequest periods = {
		.column = get_optional_text(fcinfo, ARGUMENT_PARTITION_BY),
		.interval = get_optional_text(fcinfo, ARGUMENT_PARTITION_INTERVAL),
		.retention = get_optional_text(fcinfo, ARGUMENT_RETENTION),
		.unit = get_optional_text(fcinfo, ARGUMENT_PARTITION_EPOCH),
	};

	check_features(fcinfo);
	distribute(relation, key, get_shard_count(fcinfo), colocate_with, storage, &periods);
	PG_RETURN_VOID();
}

/* create_distributed_table(relation, key, distribution_type, colocate_with), as Citus has its arguments */
Datum
strata_create_distributed_table_of_type(PG_FUNCTION_ARGS)
{
	Oid relation = get_relation_argument(fcinfo, ARGUMENT_RELATION);
	char *key = argument_get_text(fcinfo, ARGUMENT_KEY, "key");
	char *colocate_with = argument_get_text(fcinfo, ARGUMENT_COLOCATE_WITH, "colocate_with");
	PeriodRequest periods = {0};

	distribute(relation, key, get_shard_count_as_text(fcinfo), colocate_with,
			   METADATA_DEFAULT_STORAGE, &periods);
	PG_RETURN_VOID();
}

Datum
strata_create_reference_table(PG_FUNCTION_ARGS)
{
	Oid relation = get_relation_argument(fcinfo, 0);
	char *storage = get_storage(fcinfo, 1);
	List *dependents = ddl_note_tree_dependents(relation);

	table_lifecycle_replicate(relation, storage);
	ddl_bring_dependents(relation, dependents);
	PG_RETURN_VOID();
}

Datum
strata_undistribute_table(PG_FUNCTION_ARGS)
{
	Oid relation = get_relation_argument(fcinfo, 0);
	List *dependents = ddl_note_tree_dependents(relation);

	table_lifecycle_localize(relation);
	ddl_move_dependents(dependents);
	PG_RETURN_VOID();
}

/* The relation that a row of strata.distributed_table describes, if it (still) exists. */
static void
invalidate_described_relation(HeapTuple row, TupleDesc desc)
{
	bool isnull;
	Oid relation;

	if (row == NULL)
		return;
	relation = DatumGetObjectId(heap_getattr(row, CATALOG_TABLE_RELATION, desc, &isnull));
	if (!isnull && SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relation)))
		CacheInvalidateRelcacheByRelid(relation);
}

/* May this be the trigger's table?  A row of another one does not name relations. */
static bool
is_metadata_table(Oid relid, bool for_rows)
{
	if (for_rows)
		return relid == metadata_catalog_oid("distributed_table");
	return relid == metadata_catalog_oid("worker") || relid == metadata_catalog_oid("colocation") ||
		   relid == metadata_catalog_oid("shard");
}

/*
 * Trigger of the metadata tables, for changes by hand: the extension's own writes
 * send the same invalidations (metadata_write.c).
 */
Datum
strata_invalidate_metadata(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
						errmsg("strata.invalidate_metadata() must be called as a trigger")));
	if (!TRIGGER_FIRED_AFTER(trigger->tg_event) ||
		!is_metadata_table(RelationGetRelid(trigger->tg_relation),
						   TRIGGER_FIRED_FOR_ROW(trigger->tg_event)))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("trigger \"%s\" of table \"%s\" cannot call strata.invalidate_metadata()",
						trigger->tg_trigger->tgname, RelationGetRelationName(trigger->tg_relation)),
				 errdetail("The function belongs to the triggers of Strata's own metadata.")));

	if (TRIGGER_FIRED_FOR_STATEMENT(trigger->tg_event))
		CacheInvalidateRelcache(trigger->tg_relation);
	else
	{
		TupleDesc desc = RelationGetDescr(trigger->tg_relation);

		invalidate_described_relation(trigger->tg_trigtuple, desc);
		if (TRIGGER_FIRED_BY_UPDATE(trigger->tg_event))
			invalidate_described_relation(trigger->tg_newtuple, desc);
	}
	return PointerGetDatum(NULL);
}
