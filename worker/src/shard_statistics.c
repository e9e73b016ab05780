/*
 * shard_statistics.c
 *		Statistics of a distributed table's shards, by one sample of the whole table.
 *
 * ANALYZE of a partitioned table takes a sample of the whole, and then one as large of each partition: with
 * 16 shards it takes 17 times what it does for a table that is not divided.  But which shard a row is in says
 * a hash, so each shard, and all of those here, are a random sample of the table.  What the coordinator
 * has found of the whole holds here, too, and is better than what small samples of their own would tell.  So
 *
 *		1. measure_table() writes down pages and rows of each shard, from a small sample of the largest.
 *		2. The coordinator takes a sample of all workers' rows, and makes its statistics.
 *		3. set_statistics() writes these down here, for the table and for each shard, but for
 *		   the key: a shard has its own values.  Common ones stay where the hash has them, and are as much more
 *		   common there as the shard is smaller than the table;
 *		   the correlation with the physical order, which a sample of several nodes does not have.  Shards are
 *		   filled alike: that of the largest one, from the small sample, is that of all.
 *
 * Shards that are divided into periods differ by time, and the statistics of an index on expressions belong to each
 * shard's index: there the coordinator sends ANALYZE (table/shard_statistics.c there).  Autovacuum analyses shard by shard, and is not
 * told of what was copied: it comes when a shard has changed enough, and its own sample is welcome then.
 *
 * Code of users (operators and input functions of their types) runs as the table's owner, restricted, as in ANALYZE.  Each
 * shard that gets statistics is locked as ANALYZE locks it, until the transaction ends.
 */
#include "postgres.h"

#include <math.h>

#include "access/genam.h"
#include "access/multixact.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/indexing.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_statistic.h"
#include "catalog/pg_type.h"
#include "commands/vacuum.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parse_node.h"
#include "partitioning/partbounds.h"
#include "partitioning/partdesc.h"
#include "storage/bufmgr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/attoptcache.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/partcache.h"
#include "utils/rel.h"
#include "utils/regproc.h"
#include "utils/syscache.h"

#include "compat.h"
#include "relation_owner.h"

PG_FUNCTION_INFO_V1(strata_worker_measure_table);
PG_FUNCTION_INFO_V1(strata_worker_set_column_statistics);
PG_FUNCTION_INFO_V1(strata_worker_spread_statistics);

/* default_statistics_target for a sample that tells the correlation only. */
#define CORRELATION_TARGET 10

/* The Shard that is all shards here. */
#define ALL_SHARDS (-1)

/* A table whose statistics are copied to its shards. */
typedef struct Whole
{
	Relation relation;
	PartitionKey key;
	PartitionDesc shards;
	double rows; /* on all nodes */
	Oid ordered; /* the shard whose correlations are known */

	/* who has called, and the level of his settings */
	Oid caller;
	int caller_context;
	int settings;
} Whole;

/* One shard of it, or all that are here. */
typedef struct Shard
{
	Oid relation;
	int number; /* in the whole's PartitionDesc, or ALL_SHARDS */
	BlockNumber pages;
	double rows;
} Shard;

/* ANALYZE of this relation alone: of a partitioned one the sample of the whole, without its partitions. */
static void
analyze_relation(Oid relation)
{
	VacuumStmt *statement = makeNode(VacuumStmt);

	statement->rels = list_make1(makeVacuumRelation(NULL, relation, NIL));
	ExecVacuum(make_parsestate(NULL), statement, false);
}

static void
analyze_small_sample(Oid relation)
{
	int settings = NewGUCNestLevel();

	if (default_statistics_target > CORRELATION_TARGET)
		(void) set_config_option("default_statistics_target", CppAsString2(CORRELATION_TARGET),
								 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	analyze_relation(relation);
	AtEOXact_GUC(false, settings);
}

/* ---------------------------------------------------------------- columns */

static void
clear_slot(Datum *values, bool *nulls, int slot)
{
	values[Anum_pg_statistic_stakind1 - 1 + slot] = Int16GetDatum(0);
	values[Anum_pg_statistic_staop1 - 1 + slot] = ObjectIdGetDatum(InvalidOid);
	values[Anum_pg_statistic_stacoll1 - 1 + slot] = ObjectIdGetDatum(InvalidOid);
	nulls[Anum_pg_statistic_stanumbers1 - 1 + slot] = true;
	nulls[Anum_pg_statistic_stavalues1 - 1 + slot] = true;
}

static void
set_numbers(Datum *values, bool *nulls, int slot, const float4 *numbers, int count)
{
	Datum *datums = palloc(sizeof(Datum) * Max(count, 1));

	for (int i = 0; i < count; i++)
		datums[i] = Float4GetDatum(numbers[i]);
	values[Anum_pg_statistic_stanumbers1 - 1 + slot] = PointerGetDatum(
		construct_array(datums, count, FLOAT4OID, sizeof(float4), true, TYPALIGN_INT));
	nulls[Anum_pg_statistic_stanumbers1 - 1 + slot] = false;
}

/* The shard that a value of the key is in; -1: none here. */
static int
find_shard(const Whole *whole, Datum value, bool isnull)
{
	PartitionBoundInfo bounds = whole->shards->boundinfo;
	uint64 hash = compute_partition_hash_value(1, whole->key->partsupfunc,
											   whole->key->partcollation, &value, &isnull);

	return bounds->indexes[hash % bounds->nindexes];
}

static bool
is_in(const Whole *whole, const Shard *shard, Datum value, bool isnull)
{
	int number = find_shard(whole, value, isnull);

	return shard->number == ALL_SHARDS ? number >= 0 : number == shard->number;
}

/* The most common values of the key that are in this shard. */
static void
set_common_keys(const Whole *whole, const Shard *shard, HeapTuple tuple, int slot, Datum *values,
				bool *nulls)
{
	AttStatsSlot common;
	int count = 0;
	int16 length;
	bool by_value;
	char alignment;

	if (!get_attstatsslot(&common, tuple, STATISTIC_KIND_MCV, InvalidOid,
						  ATTSTATSSLOT_VALUES | ATTSTATSSLOT_NUMBERS))
		return;
	for (int i = 0; i < Min(common.nvalues, common.nnumbers); i++)
	{
		if (!is_in(whole, shard, common.values[i], false))
			continue;
		common.values[count] = common.values[i];
		common.numbers[count] = Min(common.numbers[i] * whole->rows / shard->rows, 1.0);
		count++;
	}
	if (count == 0)
		clear_slot(values, nulls, slot);
	else
	{
		get_typlenbyvalalign(common.valuetype, &length, &by_value, &alignment);
		values[Anum_pg_statistic_stavalues1 - 1 + slot] = PointerGetDatum(
			construct_array(common.values, count, common.valuetype, length, by_value, alignment));
		set_numbers(values, nulls, slot, common.numbers, count);
	}
	free_attstatsslot(&common);
}

/* NULL is in one shard, and of the values each has its part. */
static void
set_key(const Whole *whole, const Shard *shard, Datum *values)
{
	float4 nulls = DatumGetFloat4(values[Anum_pg_statistic_stanullfrac - 1]);
	float4 distinct = DatumGetFloat4(values[Anum_pg_statistic_stadistinct - 1]);

	if (!is_in(whole, shard, (Datum) 0, true))
		nulls = 0;
	values[Anum_pg_statistic_stanullfrac - 1] = Float4GetDatum(
		Min(nulls * whole->rows / shard->rows, 1.0));
	if (distinct > 0)
		values[Anum_pg_statistic_stadistinct - 1] = Float4GetDatum(
			Max(rint(distinct * shard->rows / whole->rows), 1.0));
}

/* The correlation, of the shard whose is known; none if that has none. */
static void
set_correlation(const Whole *whole, const char *column, int slot, Datum *values, bool *nulls)
{
	AttrNumber attribute = get_attnum(whole->ordered, column);
	HeapTuple tuple = SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(whole->ordered),
									  Int16GetDatum(attribute), BoolGetDatum(false));
	AttStatsSlot known;

	if (HeapTupleIsValid(tuple) && get_attstatsslot(&known, tuple, STATISTIC_KIND_CORRELATION,
													InvalidOid, ATTSTATSSLOT_NUMBERS))
	{
		set_numbers(values, nulls, slot, known.numbers, known.nnumbers);
		free_attstatsslot(&known);
	}
	else
		clear_slot(values, nulls, slot);
	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
}

/* One column's statistics for one shard, as pg_statistic has them: a changed copy of the whole's `tuple`. */
static HeapTuple
make_statistics(const Whole *whole, const Shard *shard, Relation catalog, HeapTuple tuple,
				const char *column)
{
	AttrNumber of_whole = ((Form_pg_statistic) GETSTRUCT(tuple))->staattnum;
	AttrNumber attribute = get_attnum(shard->relation, column);
	AttributeOpts *options = shard->number == ALL_SHARDS
								 ? NULL
								 : get_attribute_options(shard->relation, attribute);
	bool is_key = whole->key->partattrs[0] == of_whole;
	Datum values[Natts_pg_statistic];
	bool nulls[Natts_pg_statistic];

	heap_deform_tuple(tuple, RelationGetDescr(catalog), values, nulls);
	values[Anum_pg_statistic_starelid - 1] = ObjectIdGetDatum(shard->relation);
	values[Anum_pg_statistic_staattnum - 1] = Int16GetDatum(attribute);
	values[Anum_pg_statistic_stainherit - 1] = BoolGetDatum(shard->number == ALL_SHARDS);
	for (int slot = 0; slot < STATISTIC_NUM_SLOTS; slot++)
	{
		int16 kind = DatumGetInt16(values[Anum_pg_statistic_stakind1 - 1 + slot]);

		if (kind == STATISTIC_KIND_CORRELATION)
			set_correlation(whole, column, slot, values, nulls);
		else if (kind == STATISTIC_KIND_MCV && is_key)
			set_common_keys(whole, shard, tuple, slot, values, nulls);
	}
	if (is_key)
		set_key(whole, shard, values);
	if (options != NULL && options->n_distinct != 0)
		values[Anum_pg_statistic_stadistinct - 1] = Float4GetDatum(options->n_distinct);
	return heap_form_tuple(RelationGetDescr(catalog), values, nulls);
}

/* A row of pg_statistic, in place of the one that is there. */
static void
write_statistics(Relation catalog, CatalogIndexState indexes, HeapTuple tuple)
{
	Form_pg_statistic row = (Form_pg_statistic) GETSTRUCT(tuple);
	HeapTuple old = SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(row->starelid),
									Int16GetDatum(row->staattnum), BoolGetDatum(row->stainherit));

	if (HeapTupleIsValid(old))
	{
		CatalogTupleUpdateWithInfo(catalog, &old->t_self, tuple, indexes);
		ReleaseSysCache(old);
	}
	else
		CatalogTupleInsertWithInfo(catalog, tuple, indexes);
	heap_freetuple(tuple);
}

static void
copy_columns(const Whole *whole, const Shard *shard, Relation catalog, CatalogIndexState indexes)
{
	TupleDesc columns = RelationGetDescr(whole->relation);

	for (int i = 0; i < columns->natts; i++)
	{
		const char *column = NameStr(TupleDescAttr(columns, i)->attname);
		HeapTuple tuple;

		if (TupleDescAttr(columns, i)->attisdropped)
			continue;
		tuple = SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(RelationGetRelid(whole->relation)),
								Int16GetDatum(i + 1), BoolGetDatum(true));
		if (!HeapTupleIsValid(tuple))
			continue;
		write_statistics(catalog, indexes, make_statistics(whole, shard, catalog, tuple, column));
		ReleaseSysCache(tuple);
	}
}

/* ---------------------------------------------------------------- shards */

static void
set_size(Shard *shard, double rows)
{
	Relation relation = table_open(shard->relation, NoLock);
	bool frozen;
	bool multi;

	shard->rows = rows;
	compat_update_relstats(relation, shard->pages, rows,
						   Min((BlockNumber) relation->rd_rel->relallvisible, shard->pages),
						   relation->rd_rel->relhasindex, InvalidTransactionId, InvalidMultiXactId,
						   &frozen, &multi, true);
	table_close(relation, NoLock);
}

/* Rows that the last ANALYZE has counted. */
static double
count_rows(Oid relation)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	double rows = ((Form_pg_class) GETSTRUCT(tuple))->reltuples;

	ReleaseSysCache(tuple);
	return rows;
}

/* The shards with rows, locked; *largest: the one with most pages. */
static Shard *
list_shards(const Whole *whole, int *count, int *largest)
{
	Shard *shards = palloc(sizeof(Shard) * Max(whole->shards->nparts, 1));

	*count = 0;
	*largest = 0;
	for (int i = 0; i < whole->shards->nparts; i++)
	{
		Relation relation = table_open(whole->shards->oids[i], ShareUpdateExclusiveLock);
		Shard *shard = &shards[*count];

		shard->relation = RelationGetRelid(relation);
		shard->number = i;
		shard->pages = RelationGetNumberOfBlocks(relation);
		table_close(relation, NoLock);
		if (shard->pages == 0)
			continue;
		if (shard->pages > shards[*largest].pages)
			*largest = *count;
		(*count)++;
	}
	return shards;
}

/* Rows of a shard: a columnar one knows them, of a heap the largest one's pages tell. */
static double
estimate_rows(const Shard *shard, double per_page)
{
	Relation relation = table_open(shard->relation, NoLock);
	double rows = per_page * shard->pages;
	BlockNumber pages;
	double visible;

	if (relation->rd_rel->relam != HEAP_TABLE_AM_OID)
		table_relation_estimate_size(relation, NULL, &pages, &rows, &visible);
	table_close(relation, NoLock);
	return Max(rint(rows), 1);
}

/* Pages and rows of all shards, and the correlations of the largest; how many rows that are. */
static double
measure_shards(Whole *whole)
{
	double per_page;
	double rows = 0;
	int largest;
	int count;
	Shard *shards = list_shards(whole, &count, &largest);

	if (count == 0)
		return 0;
	analyze_small_sample(shards[largest].relation);
	per_page = count_rows(shards[largest].relation) / shards[largest].pages;
	for (int i = 0; i < count; i++)
	{
		if (i == largest)
			shards[i].rows = per_page * shards[i].pages;
		else
			set_size(&shards[i], estimate_rows(&shards[i], per_page));
		rows += shards[i].rows;
	}
	return rows;
}

/*
 * After the whole's statistics were set, and its shards measured.  What is set last is that of all shards here, in place of the
 * whole's.
 */
static void
copy_statistics(Whole *whole)
{
	int largest;
	int count;
	Shard *shards = list_shards(whole, &count, &largest);
	Shard all = {.relation = RelationGetRelid(whole->relation), .number = ALL_SHARDS};
	Relation catalog;
	CatalogIndexState indexes;

	for (int i = 0; i < count; i++)
	{
		shards[i].rows = Max(count_rows(shards[i].relation), 1);
		all.rows += shards[i].rows;
	}
	whole->rows = Max(whole->rows, all.rows);
	if (count == 0)
		return;
	whole->ordered = shards[largest].relation;
	catalog = table_open(StatisticRelationId, RowExclusiveLock);
	indexes = CatalogOpenIndexes(catalog);
	for (int i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		copy_columns(whole, &shards[i], catalog, indexes);
	}
	copy_columns(whole, &all, catalog, indexes);
	CatalogCloseIndexes(indexes);
	table_close(catalog, RowExclusiveLock);
	CommandCounterIncrement();
}

/* ---------------------------------------------------------------- what the coordinator calls */

/* The table of a call, opened and locked; its owner acts, restricted, until close_as_owner(). */
static void
open_as_owner(Oid relation_oid, Whole *whole)
{
	Relation relation;

	lock_own_relation(relation_oid, ShareUpdateExclusiveLock);
	relation = table_open(relation_oid, NoLock);
	whole->relation = relation;
	whole->key = RelationGetPartitionKey(relation);
	whole->shards = whole->key == NULL ? NULL : RelationGetPartitionDesc(relation, true);
	if (whole->key == NULL || whole->key->strategy != PARTITION_STRATEGY_HASH ||
		whole->key->partnatts != 1)
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("table \"%s\" is not divided by the hash of one column",
							   RelationGetRelationName(relation))));
	whole->settings = NewGUCNestLevel();
	GetUserIdAndSecContext(&whole->caller, &whole->caller_context);
	SetUserIdAndSecContext(relation->rd_rel->relowner,
						   whole->caller_context | SECURITY_RESTRICTED_OPERATION);
}

static void
close_as_owner(Whole *whole)
{
	SetUserIdAndSecContext(whole->caller, whole->caller_context);
	AtEOXact_GUC(false, whole->settings);
	table_close(whole->relation, NoLock);
}

/* measure_table(relation regclass): rows of the table here */
Datum
strata_worker_measure_table(PG_FUNCTION_ARGS)
{
	Whole whole = {0};
	double rows;

	open_as_owner(PG_GETARG_OID(0), &whole);
	rows = measure_shards(&whole);
	close_as_owner(&whole);
	PG_RETURN_FLOAT8(rows);
}

/* An array's element as a string; NULL for NULL. */
static char *
get_text(ArrayType *array, int index)
{
	bool isnull;
	Datum value = array_get_element(PointerGetDatum(array), 1, &index, -1, -1, false, TYPALIGN_INT,
									&isnull);

	return isnull ? NULL : TextDatumGetCString(value);
}

/* An object by its name. */
static Oid
find_object(PGFunction input, const char *name)
{
	return name == NULL ? InvalidOid
						: DatumGetObjectId(DirectFunctionCall1(input, CStringGetDatum(name)));
}

/* Values of a domain are there already: they are not asked whether they obey its constraints, which may be NOT VALID. */
static void
set_array(Datum *values, bool *nulls, int column, const char *text, Oid type)
{
	nulls[column] = text == NULL;
	if (text == NULL)
		return;
	values[column] = OidInputFunctionCall(F_ARRAY_IN, unconstify(char *, text), getBaseType(type),
										  -1);
	ARR_ELEMTYPE(DatumGetArrayTypeP(values[column])) = type;
}

/* The argument as an array of as many elements as pg_statistic has slots. */
static ArrayType *
get_slots(FunctionCallInfo fcinfo, int argument)
{
	ArrayType *array = PG_GETARG_ARRAYTYPE_P(argument);

	if (ARR_NDIM(array) != 1 || ARR_DIMS(array)[0] != STATISTIC_NUM_SLOTS ||
		ARR_LBOUND(array)[0] != 1)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("statistics of a column have %d slots", STATISTIC_NUM_SLOTS)));
	return array;
}

/*
 * set_column_statistics(relation regclass, name name, nulls real, width integer, distincts real, kinds smallint[],
 * operators text[], collations text[], numbers text[], types text[], most text[]): a column of the table as a whole
 */
Datum
strata_worker_set_column_statistics(PG_FUNCTION_ARGS)
{
	Whole whole = {0};
	Datum values[Natts_pg_statistic] = {0};
	bool nulls[Natts_pg_statistic] = {0};
	ArrayType *kinds = get_slots(fcinfo, 5);
	AttrNumber column = get_attnum(PG_GETARG_OID(0), NameStr(*PG_GETARG_NAME(1)));
	Relation catalog;
	CatalogIndexState indexes;

	open_as_owner(PG_GETARG_OID(0), &whole);
	values[Anum_pg_statistic_starelid - 1] = PG_GETARG_DATUM(0);
	if (column <= 0 || array_contains_nulls(kinds))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("column \"%s\" of table \"%s\" has no such statistics",
						NameStr(*PG_GETARG_NAME(1)), RelationGetRelationName(whole.relation))));
	values[Anum_pg_statistic_staattnum - 1] = Int16GetDatum(column);
	values[Anum_pg_statistic_stainherit - 1] = BoolGetDatum(true);
	values[Anum_pg_statistic_stanullfrac - 1] = PG_GETARG_DATUM(2);
	values[Anum_pg_statistic_stawidth - 1] = PG_GETARG_DATUM(3);
	values[Anum_pg_statistic_stadistinct - 1] = PG_GETARG_DATUM(4);
	for (int i = 0; i < STATISTIC_NUM_SLOTS; i++)
	{
		values[Anum_pg_statistic_stakind1 - 1 + i] = Int16GetDatum(
			((int16 *) ARR_DATA_PTR(kinds))[i]);
		values[Anum_pg_statistic_staop1 - 1 + i] = ObjectIdGetDatum(
			find_object(regoperatorin, get_text(get_slots(fcinfo, 6), i + 1)));
		values[Anum_pg_statistic_stacoll1 - 1 + i] = ObjectIdGetDatum(
			find_object(regcollationin, get_text(get_slots(fcinfo, 7), i + 1)));
		set_array(values, nulls, Anum_pg_statistic_stanumbers1 - 1 + i,
				  get_text(get_slots(fcinfo, 8), i + 1), FLOAT4OID);
		set_array(values, nulls, Anum_pg_statistic_stavalues1 - 1 + i,
				  get_text(get_slots(fcinfo, 10), i + 1),
				  find_object(regtypein, get_text(get_slots(fcinfo, 9), i + 1)));
	}
	catalog = table_open(StatisticRelationId, RowExclusiveLock);
	indexes = CatalogOpenIndexes(catalog);
	write_statistics(catalog, indexes, heap_form_tuple(RelationGetDescr(catalog), values, nulls));
	CatalogCloseIndexes(indexes);
	table_close(catalog, RowExclusiveLock);
	CommandCounterIncrement();
	close_as_owner(&whole);
	PG_RETURN_VOID();
}

/* spread_statistics(relation regclass, rows double precision): rows that the table has on all nodes */
Datum
strata_worker_spread_statistics(PG_FUNCTION_ARGS)
{
	Whole whole = {0};

	open_as_owner(PG_GETARG_OID(0), &whole);
	whole.rows = PG_GETARG_FLOAT8(1);
	copy_statistics(&whole);
	close_as_owner(&whole);
	PG_RETURN_VOID();
}
