/*
 * metadata_write.c
 *		Writes to the tables of schema strata.
 *
 * Rows are written as core writes its catalogs (CatalogTupleInsert), without
 * privilege checks and triggers; whoever calls has checked what the user may do.
 *
 * Invariants kept here: each hash belongs to one of a group's shards; their moduli are the number of shards that
 * the group was made with, times powers of two; a group exists as long as a table uses it.  Both need the placement
 * lock, which every function but the read-only ones expects to be held.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/pg_collation_d.h"
#include "commands/sequence.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/xid8.h"

#include "cluster/metadata.h"
#include "cluster/metadata_write.h"

void
metadata_write_lock_placement(void)
{
	LockRelationOid(metadata_catalog_oid("colocation"), ShareRowExclusiveLock);
}

/* Next value of a sequence of schema strata, whoever asks. */
static int
take_next_id(const char *sequence)
{
	return (int) nextval_internal(metadata_catalog_oid(sequence), false);
}

/* Insert one row into a metadata table that is open with RowExclusiveLock. */
static void
insert_row(Relation catalog, Datum *values, bool *nulls)
{
	HeapTuple tuple = heap_form_tuple(RelationGetDescr(catalog), values, nulls);

	CatalogTupleInsert(catalog, tuple);
	heap_freetuple(tuple);
}

/* Delete all rows that the keys find. */
static void
delete_found(Relation catalog, ScanKey keys, int key_count)
{
	SysScanDesc scan = systable_beginscan(catalog, InvalidOid, false, NULL, key_count, keys);
	HeapTuple tuple;

	while ((tuple = systable_getnext(scan)) != NULL)
		CatalogTupleDelete(catalog, &tuple->t_self);
	systable_endscan(scan);
}

/* Delete all rows whose int4 or oid column equals value. */
static void
delete_rows(Relation catalog, AttrNumber attribute, RegProcedure equal, Datum value)
{
	ScanKeyData key;

	ScanKeyInit(&key, attribute, BTEqualStrategyNumber, equal, value);
	delete_found(catalog, &key, 1);
}

/* ---------------------------------------------------------------- workers */

int
metadata_write_add_worker(const char *name, const char *conninfo)
{
	Relation catalog = table_open(metadata_catalog_oid("worker"), RowExclusiveLock);
	Datum values[CATALOG_WORKER_COLUMNS];
	bool nulls[CATALOG_WORKER_COLUMNS] = {false};
	int worker_id = take_next_id("worker_id_seq");

	values[CATALOG_WORKER_ID - 1] = Int32GetDatum(worker_id);
	values[CATALOG_WORKER_NAME - 1] = CStringGetTextDatum(name);
	values[CATALOG_WORKER_CONNINFO - 1] = CStringGetTextDatum(conninfo);
	values[CATALOG_WORKER_STATE - 1] = CStringGetTextDatum("active");
	insert_row(catalog, values, nulls);
	CacheInvalidateRelcache(catalog);
	table_close(catalog, NoLock);
	return worker_id;
}

void
metadata_write_remove_worker(int worker_id)
{
	Relation catalog = table_open(metadata_catalog_oid("worker"), RowExclusiveLock);

	delete_rows(catalog, CATALOG_WORKER_ID, F_INT4EQ, Int32GetDatum(worker_id));
	CacheInvalidateRelcache(catalog);
	table_close(catalog, NoLock);
}

/* ---------------------------------------------------------------- colocation groups */

/* Insert one shard into the table, which is open; `moved`: it has rows that this transaction has moved. */
static void
insert_shard(Relation catalog, int colocation_id, const ShardPlace *place, bool moved)
{
	Datum values[CATALOG_SHARD_COLUMNS] = {0};
	bool nulls[CATALOG_SHARD_COLUMNS] = {false};

	values[CATALOG_SHARD_COLOCATION - 1] = Int32GetDatum(colocation_id);
	values[CATALOG_SHARD_MODULUS - 1] = Int32GetDatum(place->bounds.modulus);
	values[CATALOG_SHARD_REMAINDER - 1] = Int32GetDatum(place->bounds.remainder);
	values[CATALOG_SHARD_WORKER - 1] = Int32GetDatum(place->worker_id);
	nulls[CATALOG_SHARD_LOST_WITH - 1] = true;
	nulls[CATALOG_SHARD_MOVED_BY - 1] = !moved;
	if (moved)
		values[CATALOG_SHARD_MOVED_BY - 1] = FullTransactionIdGetDatum(
			GetCurrentFullTransactionId());
	insert_row(catalog, values, nulls);
}

int
metadata_write_add_colocation(int shard_count, Oid key_type, Oid key_collation, const char *name,
							  const int *shard_workers)
{
	Relation groups = table_open(metadata_catalog_oid("colocation"), RowExclusiveLock);
	Relation shards = table_open(metadata_catalog_oid("shard"), RowExclusiveLock);
	Datum values[CATALOG_COLOCATION_COLUMNS] = {0};
	bool nulls[CATALOG_COLOCATION_COLUMNS] = {false};
	int colocation_id = take_next_id("colocation_id_seq");

	values[CATALOG_COLOCATION_ID - 1] = Int32GetDatum(colocation_id);
	values[CATALOG_COLOCATION_METHOD - 1] = CStringGetTextDatum("hash");
	values[CATALOG_COLOCATION_SHARD_COUNT - 1] = Int32GetDatum(shard_count);
	values[CATALOG_COLOCATION_KEY_TYPE - 1] = ObjectIdGetDatum(key_type);
	values[CATALOG_COLOCATION_KEY_COLLATION - 1] = ObjectIdGetDatum(key_collation);
	values[CATALOG_COLOCATION_IS_DEFAULT - 1] = BoolGetDatum(name == NULL);
	nulls[CATALOG_COLOCATION_NAME - 1] = name == NULL;
	if (name != NULL)
		values[CATALOG_COLOCATION_NAME - 1] = CStringGetTextDatum(name);
	insert_row(groups, values, nulls);

	for (int remainder = 0; remainder < shard_count; remainder++)
	{
		const ShardPlace place = {{shard_count, remainder}, shard_workers[remainder]};

		insert_shard(shards, colocation_id, &place, false);
	}

	CacheInvalidateRelcache(groups);
	CacheInvalidateRelcache(shards);
	table_close(shards, NoLock);
	table_close(groups, NoLock);
	return colocation_id;
}

/* Set the place of the shards that the keys find; lost_with NULL: they are on worker_id. */
static void
update_shards(ScanKey keys, int key_count, int worker_id, const char *lost_with)
{
	Relation catalog = table_open(metadata_catalog_oid("shard"), RowExclusiveLock);
	SysScanDesc scan = systable_beginscan(catalog, InvalidOid, false, NULL, key_count, keys);
	Datum values[CATALOG_SHARD_COLUMNS] = {0};
	bool nulls[CATALOG_SHARD_COLUMNS] = {false};
	bool replace[CATALOG_SHARD_COLUMNS] = {false};
	HeapTuple tuple;

	replace[CATALOG_SHARD_WORKER - 1] = true;
	values[CATALOG_SHARD_WORKER - 1] = Int32GetDatum(worker_id);
	nulls[CATALOG_SHARD_WORKER - 1] = lost_with != NULL;
	replace[CATALOG_SHARD_LOST_WITH - 1] = true;
	if (lost_with != NULL)
		values[CATALOG_SHARD_LOST_WITH - 1] = CStringGetTextDatum(lost_with);
	nulls[CATALOG_SHARD_LOST_WITH - 1] = lost_with == NULL;
	replace[CATALOG_SHARD_MOVED_BY - 1] = lost_with == NULL;
	values[CATALOG_SHARD_MOVED_BY - 1] = FullTransactionIdGetDatum(GetCurrentFullTransactionId());
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		HeapTuple changed = heap_modify_tuple(tuple, RelationGetDescr(catalog), values, nulls,
											  replace);

		CatalogTupleUpdate(catalog, &changed->t_self, changed);
		heap_freetuple(changed);
	}
	systable_endscan(scan);
	CacheInvalidateRelcache(catalog);
	table_close(catalog, NoLock);
}

void
metadata_write_lose_shards(int worker_id, const char *name)
{
	ScanKeyData key;

	ScanKeyInit(&key, CATALOG_SHARD_WORKER, BTEqualStrategyNumber, F_INT4EQ,
				Int32GetDatum(worker_id));
	update_shards(&key, 1, 0, name);
}

/* Two keys that find one shard. */
static void
set_shard_keys(ScanKey keys, int colocation_id, int remainder)
{
	ScanKeyInit(&keys[0], CATALOG_SHARD_COLOCATION, BTEqualStrategyNumber, F_INT4EQ,
				Int32GetDatum(colocation_id));
	ScanKeyInit(&keys[1], CATALOG_SHARD_REMAINDER, BTEqualStrategyNumber, F_INT4EQ,
				Int32GetDatum(remainder));
}

void
metadata_write_place_shard(int colocation_id, int remainder, int worker_id)
{
	ScanKeyData keys[2];

	set_shard_keys(keys, colocation_id, remainder);
	update_shards(keys, 2, worker_id, NULL);
}

void
metadata_write_replace_shard(int colocation_id, int remainder, const List *places)
{
	Relation catalog = table_open(metadata_catalog_oid("shard"), RowExclusiveLock);
	ScanKeyData keys[2];
	ListCell *cell;

	set_shard_keys(keys, colocation_id, remainder);
	delete_found(catalog, keys, 2);
	CommandCounterIncrement(); /* one of the new ones has its number */
	foreach(cell, places)
		insert_shard(catalog, colocation_id, lfirst(cell), true);
	CacheInvalidateRelcache(catalog);
	table_close(catalog, NoLock);
}

/* The id of a group that the keys find, 0 if there is none. */
static int
find_colocation(ScanKey keys, int key_count)
{
	Relation catalog = table_open(metadata_catalog_oid("colocation"), AccessShareLock);
	SysScanDesc scan = systable_beginscan(catalog, InvalidOid, false, NULL, key_count, keys);
	HeapTuple tuple = systable_getnext(scan);
	int colocation_id = 0;

	if (HeapTupleIsValid(tuple))
	{
		bool isnull;

		colocation_id = DatumGetInt32(
			heap_getattr(tuple, CATALOG_COLOCATION_ID, RelationGetDescr(catalog), &isnull));
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return colocation_id;
}

int
metadata_write_named_colocation(const char *name)
{
	ScanKeyData key;

	ScanKeyEntryInitialize(&key, 0, CATALOG_COLOCATION_NAME, BTEqualStrategyNumber, InvalidOid,
						   DEFAULT_COLLATION_OID, F_TEXTEQ, CStringGetTextDatum(name));
	return find_colocation(&key, 1);
}

int
metadata_write_default_colocation(int shard_count, Oid key_type, Oid key_collation)
{
	ScanKeyData keys[4];

	ScanKeyInit(&keys[0], CATALOG_COLOCATION_SHARD_COUNT, BTEqualStrategyNumber, F_INT4EQ,
				Int32GetDatum(shard_count));
	ScanKeyInit(&keys[1], CATALOG_COLOCATION_KEY_TYPE, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(key_type));
	ScanKeyInit(&keys[2], CATALOG_COLOCATION_KEY_COLLATION, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(key_collation));
	ScanKeyInit(&keys[3], CATALOG_COLOCATION_IS_DEFAULT, BTEqualStrategyNumber, F_BOOLEQ,
				BoolGetDatum(true));
	return find_colocation(keys, 4);
}

/* Does a table other than `except` belong to the group? */
static bool
is_colocation_used(Relation tables, int colocation_id, Oid except)
{
	ScanKeyData keys[2];
	SysScanDesc scan;
	bool used;

	ScanKeyInit(&keys[0], CATALOG_TABLE_COLOCATION, BTEqualStrategyNumber, F_INT4EQ,
				Int32GetDatum(colocation_id));
	ScanKeyInit(&keys[1], CATALOG_TABLE_RELATION, BTEqualStrategyNumber, F_OIDNE,
				ObjectIdGetDatum(except));
	scan = systable_beginscan(tables, InvalidOid, false, NULL, 2, keys);
	used = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	return used;
}

static void
remove_colocation(int colocation_id)
{
	Relation groups = table_open(metadata_catalog_oid("colocation"), RowExclusiveLock);
	Relation shards = table_open(metadata_catalog_oid("shard"), RowExclusiveLock);

	delete_rows(shards, CATALOG_SHARD_COLOCATION, F_INT4EQ, Int32GetDatum(colocation_id));
	delete_rows(groups, CATALOG_COLOCATION_ID, F_INT4EQ, Int32GetDatum(colocation_id));
	CacheInvalidateRelcache(groups);
	CacheInvalidateRelcache(shards);
	table_close(shards, NoLock);
	table_close(groups, NoLock);
}

/* ---------------------------------------------------------------- tables */

/* Make every session look at the relation's metadata again, if the relation still exists. */
static void
invalidate_table(Oid relation)
{
	if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relation)))
		CacheInvalidateRelcacheByRelid(relation);
}

void
metadata_write_add_table(Oid relation, char kind, AttrNumber key_attribute, int colocation_id,
						 const char *storage)
{
	Relation catalog = table_open(metadata_catalog_oid("distributed_table"), RowExclusiveLock);
	Datum values[CATALOG_TABLE_COLUMNS] = {0};
	bool nulls[CATALOG_TABLE_COLUMNS] = {false};

	values[CATALOG_TABLE_RELATION - 1] = ObjectIdGetDatum(relation);
	values[CATALOG_TABLE_KIND - 1] = CharGetDatum(kind);
	values[CATALOG_TABLE_KEY_ATTRIBUTE - 1] = Int16GetDatum(key_attribute);
	nulls[CATALOG_TABLE_KEY_ATTRIBUTE - 1] = key_attribute == InvalidAttrNumber;
	values[CATALOG_TABLE_COLOCATION - 1] = Int32GetDatum(colocation_id);
	nulls[CATALOG_TABLE_COLOCATION - 1] = colocation_id == 0;
	values[CATALOG_TABLE_STORAGE - 1] = CStringGetTextDatum(storage);
	nulls[CATALOG_TABLE_PARTITION_ATTRIBUTE - 1] = true;
	nulls[CATALOG_TABLE_PARTITION_INTERVAL - 1] = true;
	nulls[CATALOG_TABLE_RETENTION - 1] = true;
	nulls[CATALOG_TABLE_PARTITION_UNIT - 1] = true;
	nulls[CATALOG_TABLE_CUTOFF - 1] = true;
	nulls[CATALOG_TABLE_MOVED_BY - 1] = true;
	insert_row(catalog, values, nulls);
	invalidate_table(relation);
	table_close(catalog, NoLock);
}

void
metadata_write_set_periods(Oid relation, const PeriodRule *rule)
{
	const struct
	{
		AttrNumber column;
		const char *text;
	} texts[] = {
		{CATALOG_TABLE_PARTITION_INTERVAL, rule->interval},
		{CATALOG_TABLE_PARTITION_UNIT, rule->unit},
		{CATALOG_TABLE_RETENTION, rule->retention},
		{CATALOG_TABLE_CUTOFF, rule->cutoff},
	};
	Relation catalog = table_open(metadata_catalog_oid("distributed_table"), RowExclusiveLock);
	Datum values[CATALOG_TABLE_COLUMNS] = {0};
	bool nulls[CATALOG_TABLE_COLUMNS] = {false};
	bool replace[CATALOG_TABLE_COLUMNS] = {false};
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple tuple;

	replace[CATALOG_TABLE_PARTITION_ATTRIBUTE - 1] = true;
	values[CATALOG_TABLE_PARTITION_ATTRIBUTE - 1] = Int16GetDatum(rule->attribute);
	for (int i = 0; i < lengthof(texts); i++)
	{
		replace[texts[i].column - 1] = true;
		nulls[texts[i].column - 1] = texts[i].text[0] == '\0';
		values[texts[i].column - 1] = CStringGetTextDatum(texts[i].text);
	}
	replace[CATALOG_TABLE_MOVED_BY - 1] = true;
	nulls[CATALOG_TABLE_MOVED_BY - 1] = !FullTransactionIdIsValid(rule->moved_by);
	values[CATALOG_TABLE_MOVED_BY - 1] = FullTransactionIdGetDatum(rule->moved_by);
	ScanKeyInit(&key, CATALOG_TABLE_RELATION, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relation));
	scan = systable_beginscan(catalog, InvalidOid, false, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		HeapTuple changed = heap_modify_tuple(tuple, RelationGetDescr(catalog), values, nulls,
											  replace);

		CatalogTupleUpdate(catalog, &changed->t_self, changed);
		heap_freetuple(changed);
	}
	systable_endscan(scan);
	invalidate_table(relation);
	table_close(catalog, NoLock);
}

void
metadata_write_remove_table(Oid relation)
{
	Relation catalog = table_open(metadata_catalog_oid("distributed_table"), RowExclusiveLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple tuple;
	int colocation_id = 0;

	ScanKeyInit(&key, CATALOG_TABLE_RELATION, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relation));
	scan = systable_beginscan(catalog, InvalidOid, false, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool isnull;
		Datum value = heap_getattr(tuple, CATALOG_TABLE_COLOCATION, RelationGetDescr(catalog),
								   &isnull);

		if (!isnull)
			colocation_id = DatumGetInt32(value);
		CatalogTupleDelete(catalog, &tuple->t_self);
	}
	systable_endscan(scan);

	if (colocation_id != 0 && !is_colocation_used(catalog, colocation_id, relation))
		remove_colocation(colocation_id);
	invalidate_table(relation);
	table_close(catalog, NoLock);
}

/* OIDs of the tables that the key finds, ordered. */
static List *
list_tables(ScanKey key)
{
	Relation catalog = table_open(metadata_catalog_oid("distributed_table"), AccessShareLock);
	SysScanDesc scan = systable_beginscan(catalog, InvalidOid, false, NULL, 1, key);
	HeapTuple tuple;
	List *tables = NIL;

	while ((tuple = systable_getnext(scan)) != NULL)
	{
		bool isnull;

		tables = lappend_oid(tables,
							 DatumGetObjectId(heap_getattr(tuple, CATALOG_TABLE_RELATION,
														   RelationGetDescr(catalog), &isnull)));
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	list_sort(tables, list_oid_cmp);
	return tables;
}

List *
metadata_write_tables(char kind)
{
	ScanKeyData key;

	ScanKeyInit(&key, CATALOG_TABLE_KIND, BTEqualStrategyNumber, F_CHAREQ, CharGetDatum(kind));
	return list_tables(&key);
}

List *
metadata_write_group_tables(int colocation_id)
{
	ScanKeyData key;

	ScanKeyInit(&key, CATALOG_TABLE_COLOCATION, BTEqualStrategyNumber, F_INT4EQ,
				Int32GetDatum(colocation_id));
	return list_tables(&key);
}
