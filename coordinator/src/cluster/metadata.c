/*
 * metadata.c
 *		Per-backend cache of the tables of schema strata.
 *
 * Everything about placement (workers, colocation groups, shards) is small and
 * is read at once into one "generation", a memory context of its own.  Tables
 * are added to the generation one by one, as they are asked for; "not ours" is
 * remembered as well, because planner and executor ask for every relation.
 *
 * Invalidation only sets flags: the callbacks may run in the middle of anything
 * and must neither allocate nor free.  The next look-up replaces what is stale.
 * A generation that was replaced is kept until a later transaction loads
 * another one, so that pointers handed out live until the transaction's end.
 *
 * Look-ups take AccessShareLock on the metadata tables and release it at once,
 * as for system catalogs, and read with a fresh catalog snapshot, whatever the
 * isolation level: placement is not data.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/xid8.h"
#include "utils/typcache.h"

#include "cluster/metadata.h"
#include "cluster/metadata_write.h"

/* One consistent reading of the placement, and the tables seen since. */
typedef struct Generation
{
	MemoryContext context; /* holds this struct, too */
	Worker **workers;	   /* [worker_limit], by id; NULL where there is none */
	int worker_limit;
	Bitmapset *all_workers;
	List *colocations; /* of Colocation */
	HTAB *tables;	   /* TableEntry by relation */
	uint64 retired_in; /* value of transactions_ended when it was replaced */
	struct Generation *next_retired;
} Generation;

typedef struct TableEntry
{
	Oid relation; /* hash key */
	bool stale;
	DistributedTable *table; /* NULL: not ours */
} TableEntry;

typedef enum Availability
{
	AVAILABILITY_UNKNOWN,
	AVAILABILITY_NO,
	AVAILABILITY_YES
} Availability;

static Generation *current = NULL;
static Generation *retired = NULL;
static bool current_is_stale = false;
static uint64 invalidations = 0; /* counts callbacks, to notice those that come during a read */
static uint64 transactions_ended = 0;

/* The relations that are read, and their OIDs while the extension is available. */
enum
{
	RELATION_WORKER,
	RELATION_COLOCATION,
	RELATION_SHARD,
	RELATION_TABLE,
	RELATION_TABLE_INDEX,
	RELATION_COUNT
};

static const char *const relation_names[RELATION_COUNT] = {
	"worker", "colocation", "shard", "distributed_table", "distributed_table_pkey"};

static Availability availability = AVAILABILITY_UNKNOWN;
static Oid relation_oids[RELATION_COUNT];

static Oid distributed_am = InvalidOid;
static bool distributed_am_known = false;

static void invalidate_relation(Datum arg, Oid relation);
static void invalidate_access_method(Datum arg, int cacheid, uint32 hashvalue);

void
metadata_initialize(void)
{
	CacheRegisterRelcacheCallback(invalidate_relation, (Datum) 0);
	CacheRegisterSyscacheCallback(AMNAME, invalidate_access_method, (Datum) 0);
}

/* ---------------------------------------------------------------- invalidation */

static void
invalidate_relation(Datum arg, Oid relation)
{
	bool all = !OidIsValid(relation);
	bool ours = all;

	invalidations++;
	for (int i = 0; i < RELATION_COUNT && !ours; i++)
		ours = relation == relation_oids[i];

	/*
	 * Any relation may be one that CREATE EXTENSION makes; only our own announce DROP EXTENSION.
	 */
	if (availability == AVAILABILITY_NO || ours)
		availability = AVAILABILITY_UNKNOWN;

	if (current == NULL)
		return;

	if (ours)
		current_is_stale = true;
	else
	{
		TableEntry *entry = hash_search(current->tables, &relation, HASH_FIND, NULL);

		if (entry == NULL)
			return;
		if (entry->table == NULL)
			hash_search(current->tables, &relation, HASH_REMOVE, NULL);
		else
			entry->stale = true;
	}
}

static void
invalidate_access_method(Datum arg, int cacheid, uint32 hashvalue)
{
	distributed_am_known = false;
}

void
metadata_transaction_event(XactEvent event)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			transactions_ended++;
			break;
		default:
			break;
	}
}

/* ---------------------------------------------------------------- existence */

/* Look the metadata tables up; false when some are missing, as within DROP EXTENSION. */
static bool
find_relations(void)
{
	Oid schema = get_namespace_oid("strata", true);

	for (int i = 0; i < RELATION_COUNT; i++)
	{
		relation_oids[i] = OidIsValid(schema) ? get_relname_relid(relation_names[i], schema)
											  : InvalidOid;
		if (!OidIsValid(relation_oids[i]))
			return false;
	}
	return true;
}

bool
metadata_available(void)
{
	Oid extension;

	if (availability != AVAILABILITY_UNKNOWN)
		return availability == AVAILABILITY_YES;
	if (!IsTransactionState() || !OidIsValid(MyDatabaseId))
		return false;
	/* pg_upgrade makes the shells, and brings what we know of them afterwards, as files */
	if (IsBinaryUpgrade)
		return false;

	/*
	 * Set before looking: an invalidation that arrives meanwhile resets it again.
	 */
	availability = AVAILABILITY_NO;
	extension = get_extension_oid("strata", true);
	if (OidIsValid(extension))
	{
		if (creating_extension && CurrentExtensionObject == extension)
		{
			availability = AVAILABILITY_UNKNOWN;
			return false;
		}
		if (!find_relations())
		{
			availability = AVAILABILITY_UNKNOWN;
			return false;
		}
		availability = AVAILABILITY_YES;
	}
	return availability == AVAILABILITY_YES;
}

Oid
metadata_catalog_oid(const char *name)
{
	/* Both look-ups are answered by the system caches. */
	Oid schema = get_namespace_oid("strata", true);
	Oid relation = OidIsValid(schema) ? get_relname_relid(name, schema) : InvalidOid;

	if (!OidIsValid(relation))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
						errmsg("relation \"strata.%s\" does not exist", name),
						errhint("Run CREATE EXTENSION strata in this database.")));
	return relation;
}

Oid
metadata_distributed_am(void)
{
	if (!distributed_am_known)
	{
		distributed_am_known = true;
		distributed_am = get_am_oid("distributed", true);
	}
	return distributed_am;
}

bool
metadata_is_shell(Relation relation)
{
	Oid am = relation->rd_rel->relam;

	return OidIsValid(am) && am == metadata_distributed_am();
}

/* ---------------------------------------------------------------- reading the catalogs */

/* Start a scan over all rows of a metadata table, as of now. */
static SysScanDesc
begin_catalog_scan(int relation, Relation *catalog)
{
	*catalog = table_open(relation_oids[relation], AccessShareLock);
	return systable_beginscan(*catalog, InvalidOid, false, NULL, 0, NULL);
}

static void
end_catalog_scan(SysScanDesc scan, Relation catalog)
{
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
}

/* A column's value; *isnull may only be omitted for columns that are NOT NULL. */
static Datum
read_column(HeapTuple tuple, Relation catalog, AttrNumber attribute, bool *isnull)
{
	bool null;
	Datum value = heap_getattr(tuple, attribute, RelationGetDescr(catalog), &null);

	if (isnull != NULL)
		*isnull = null;
	else if (null)
		ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
						errmsg("unexpected null value in column %d of \"strata.%s\"", attribute,
							   RelationGetRelationName(catalog))));
	return value;
}

static void
load_workers(Generation *generation)
{
	Relation catalog;
	SysScanDesc scan = begin_catalog_scan(RELATION_WORKER, &catalog);
	HeapTuple tuple;

	generation->worker_limit = 16;
	generation->workers = palloc0(generation->worker_limit * sizeof(Worker *));

	while ((tuple = systable_getnext(scan)) != NULL)
	{
		Worker *worker = palloc(sizeof(Worker));

		worker->id = DatumGetInt32(read_column(tuple, catalog, CATALOG_WORKER_ID, NULL));
		worker->name = TextDatumGetCString(read_column(tuple, catalog, CATALOG_WORKER_NAME, NULL));
		worker->conninfo = TextDatumGetCString(
			read_column(tuple, catalog, CATALOG_WORKER_CONNINFO, NULL));

		while (worker->id >= generation->worker_limit)
		{
			int half = generation->worker_limit;

			generation->worker_limit *= 2;
			generation->workers = repalloc(generation->workers,
										   generation->worker_limit * sizeof(Worker *));
			memset(generation->workers + half, 0, half * sizeof(Worker *));
		}
		generation->workers[worker->id] = worker;
		generation->all_workers = bms_add_member(generation->all_workers, worker->id);
	}
	end_catalog_scan(scan, catalog);
}

/*
 * Find out how core's hash partitioning hashes a column of the group's key type:
 * default hash operator class, extended hash function.
 */
static void
load_hash_function(Colocation *colocation, MemoryContext context)
{
	TypeCacheEntry *type;

	colocation->key_opfamily = InvalidOid;
	colocation->hash.fn_oid = InvalidOid;

	/* The type may be gone (DROP ... CASCADE); only using the group is an error then. */
	if (!SearchSysCacheExists1(TYPEOID, ObjectIdGetDatum(colocation->key_type)))
		return;

	type = lookup_type_cache(colocation->key_type,
							 TYPECACHE_HASH_OPFAMILY | TYPECACHE_HASH_EXTENDED_PROC);
	if (!OidIsValid(type->hash_extended_proc))
		return;
	colocation->key_opfamily = type->hash_opf;
	fmgr_info_cxt(type->hash_extended_proc, &colocation->hash, context);
}

/* An array by remainder, for a greater modulus: what it says holds for all keys of a remainder. */
static void *
widen_array(const void *array, size_t size, int from, int to)
{
	char *wide = palloc0(to * size);

	for (int i = 0; from > 0 && i < to; i++)
		memcpy(wide + i * size, (const char *) array + i % from * size, size);
	return wide;
}

static void
widen(Colocation *colocation, int modulus)
{
	int from = colocation->modulus;

	colocation->shard_numbers = widen_array(colocation->shard_numbers, sizeof(int), from, modulus);
	colocation->shard_moduli = widen_array(colocation->shard_moduli, sizeof(int), from, modulus);
	colocation->shard_workers = widen_array(colocation->shard_workers, sizeof(int), from, modulus);
	colocation->lost_with = widen_array(colocation->lost_with, sizeof(char *), from, modulus);
	colocation->modulus = modulus;
}

static void
load_colocations(Generation *generation)
{
	Relation catalog;
	SysScanDesc scan = begin_catalog_scan(RELATION_COLOCATION, &catalog);
	HeapTuple tuple;

	while ((tuple = systable_getnext(scan)) != NULL)
	{
		Colocation *colocation = palloc0(sizeof(Colocation));

		colocation->id = DatumGetInt32(read_column(tuple, catalog, CATALOG_COLOCATION_ID, NULL));
		colocation->first_count = DatumGetInt32(
			read_column(tuple, catalog, CATALOG_COLOCATION_SHARD_COUNT, NULL));
		colocation->key_type = DatumGetObjectId(
			read_column(tuple, catalog, CATALOG_COLOCATION_KEY_TYPE, NULL));
		colocation->key_collation = DatumGetObjectId(
			read_column(tuple, catalog, CATALOG_COLOCATION_KEY_COLLATION, NULL));
		if (!DatumGetBool(read_column(tuple, catalog, CATALOG_COLOCATION_IS_DEFAULT, NULL)))
			colocation->name = TextDatumGetCString(
				read_column(tuple, catalog, CATALOG_COLOCATION_NAME, NULL));
		widen(colocation, colocation->first_count);
		load_hash_function(colocation, generation->context);
		generation->colocations = lappend(generation->colocations, colocation);
	}
	end_catalog_scan(scan, catalog);
}

static Colocation *
find_colocation(Generation *generation, int colocation_id)
{
	ListCell *cell;

	foreach(cell, generation->colocations)
	{
		Colocation *colocation = lfirst(cell);

		if (colocation->id == colocation_id)
			return colocation;
	}
	return NULL;
}

/* Moves of one group follow one another. */
static void
note_move(Colocation *colocation, HeapTuple shard, Relation catalog)
{
	bool isnull;
	Datum moved_by = read_column(shard, catalog, CATALOG_SHARD_MOVED_BY, &isnull);

	if (!isnull &&
		FullTransactionIdPrecedes(colocation->moved_by, DatumGetFullTransactionId(moved_by)))
		colocation->moved_by = DatumGetFullTransactionId(moved_by);
}

static void
load_shards(Generation *generation)
{
	Relation catalog;
	SysScanDesc scan = begin_catalog_scan(RELATION_SHARD, &catalog);
	HeapTuple tuple;

	while ((tuple = systable_getnext(scan)) != NULL)
	{
		int id = DatumGetInt32(read_column(tuple, catalog, CATALOG_SHARD_COLOCATION, NULL));
		int modulus = DatumGetInt32(read_column(tuple, catalog, CATALOG_SHARD_MODULUS, NULL));
		int remainder = DatumGetInt32(read_column(tuple, catalog, CATALOG_SHARD_REMAINDER, NULL));
		bool is_lost;
		Datum worker = read_column(tuple, catalog, CATALOG_SHARD_WORKER, &is_lost);
		Colocation *colocation = find_colocation(generation, id);
		char *lost_with = NULL;

		/* A foreign key and checks forbid this; but never write outside the arrays. */
		if (colocation == NULL || remainder < 0 || remainder >= modulus)
			continue;
		if (is_lost)
			lost_with = TextDatumGetCString(
				read_column(tuple, catalog, CATALOG_SHARD_LOST_WITH, NULL));
		if (modulus > colocation->modulus)
			widen(colocation, modulus);
		for (int i = remainder; i < colocation->modulus; i += modulus)
		{
			colocation->shard_numbers[i] = remainder;
			colocation->shard_moduli[i] = modulus;
			colocation->shard_workers[i] = is_lost ? 0 : DatumGetInt32(worker);
			colocation->lost_with[i] = lost_with;
		}
		colocation->shard_count++;
		if (is_lost)
		{
			colocation->lost_count++;
			continue;
		}
		note_move(colocation, tuple, catalog);
		colocation->workers = bms_add_member(colocation->workers, DatumGetInt32(worker));
	}
	end_catalog_scan(scan, catalog);
}

/* Free what no transaction can point to any more. */
static void
free_retired_generations(void)
{
	Generation **link = &retired;

	while (*link != NULL)
	{
		Generation *generation = *link;

		if (generation->retired_in < transactions_ended)
		{
			*link = generation->next_retired;
			MemoryContextDelete(generation->context);
		}
		else
			link = &generation->next_retired;
	}
}

/*
 * The generation to use now; reads a new one if the last is stale.  If something
 * changes while we read, the flag is set again and the next call reads anew: what
 * this call returns is as good as if it had happened a moment earlier.
 */
static Generation *
get_generation(void)
{
	MemoryContext context;
	MemoryContext caller;
	Generation *generation;
	HASHCTL control = {0};
	uint64 before;

	if (current != NULL && !current_is_stale)
		return current;

	/* The callers need the metadata: without it this says what to do. */
	if (!metadata_available())
		(void) metadata_catalog_oid("worker");

	if (current != NULL)
	{
		current->retired_in = transactions_ended;
		current->next_retired = retired;
		retired = current;
		current = NULL;
	}
	free_retired_generations();

	/* An error while reading frees the half-built generation with the caller's context. */
	context = AllocSetContextCreate(CurrentMemoryContext, "strata metadata", ALLOCSET_SMALL_SIZES);
	caller = MemoryContextSwitchTo(context);
	generation = palloc0(sizeof(Generation));
	generation->context = context;

	before = invalidations;
	load_workers(generation);
	load_colocations(generation);
	load_shards(generation);
	current_is_stale = before != invalidations;

	control.keysize = sizeof(Oid);
	control.entrysize = sizeof(TableEntry);
	control.hcxt = context;
	generation->tables = hash_create("strata tables", 64, &control,
									 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	MemoryContextSwitchTo(caller);

	MemoryContextSetParent(context, CacheMemoryContext);
	current = generation;
	return generation;
}

/* ---------------------------------------------------------------- placement */

int
colocation_next_shard(const Colocation *colocation, int number)
{
	while (++number < colocation->modulus)
	{
		if (colocation_has_shard(colocation, number))
			return number;
	}
	return -1;
}

ShardBounds *
colocation_shard_bounds(const Colocation *colocation, int number)
{
	ShardBounds *bounds = palloc(sizeof(ShardBounds));

	*bounds = (ShardBounds){colocation->shard_moduli[number], number};
	return bounds;
}

List *
colocation_list_shards(const Colocation *colocation, const int *places, int worker_id)
{
	List *shards = NIL;
	int number = -1;

	while ((number = colocation_next_shard(colocation, number)) >= 0)
	{
		if (places[number] == worker_id)
			shards = lappend(shards, colocation_shard_bounds(colocation, number));
	}
	return shards;
}

const Worker *
metadata_worker(int worker_id)
{
	Generation *generation = get_generation();

	if (worker_id < 0 || worker_id >= generation->worker_limit ||
		generation->workers[worker_id] == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("worker %d does not exist", worker_id),
				 errhint("SELECT * FROM strata.workers lists the workers.")));
	return generation->workers[worker_id];
}

const Colocation *
metadata_colocation(int colocation_id)
{
	Colocation *colocation = find_colocation(get_generation(), colocation_id);

	if (colocation == NULL)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
						errmsg("colocation group %d does not exist", colocation_id)));
	return colocation;
}

const Bitmapset *
metadata_all_workers(void)
{
	return metadata_available() ? get_generation()->all_workers : NULL;
}

const Bitmapset *
metadata_table_workers(const DistributedTable *table)
{
	if (table->kind == TABLE_REFERENCE)
		return metadata_all_workers();
	return table->colocation->workers;
}

/* ---------------------------------------------------------------- tables */

/* A text column; "" for NULL. */
static void
read_text(HeapTuple tuple, Relation catalog, AttrNumber attribute, char *target)
{
	bool null;
	Datum value = read_column(tuple, catalog, attribute, &null);

	if (!null)
		strlcpy(target, TextDatumGetCString(value), PERIOD_TEXT_BYTES);
}

static void
read_periods(HeapTuple tuple, Relation catalog, PeriodRule *rule)
{
	bool null;
	Datum attribute = read_column(tuple, catalog, CATALOG_TABLE_PARTITION_ATTRIBUTE, &null);

	Datum value;

	if (null)
		return;
	rule->attribute = DatumGetInt16(attribute);
	value = read_column(tuple, catalog, CATALOG_TABLE_MOVED_BY, &null);
	if (!null)
		rule->moved_by = DatumGetFullTransactionId(value);
	read_text(tuple, catalog, CATALOG_TABLE_PARTITION_INTERVAL, rule->interval);
	read_text(tuple, catalog, CATALOG_TABLE_PARTITION_UNIT, rule->unit);
	read_text(tuple, catalog, CATALOG_TABLE_RETENTION, rule->retention);
	read_text(tuple, catalog, CATALOG_TABLE_CUTOFF, rule->cutoff);
}

/*
 * Read a relation's row of strata.distributed_table into *table; false when there
 * is none.  Its colocation group is NULL when the generation is older than the table: the row is
 * read with a newer snapshot, and invalidations come one after the other.
 */
static bool
read_table(Generation *generation, Oid relation, DistributedTable *table)
{
	Relation catalog = table_open(relation_oids[RELATION_TABLE], AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple tuple;
	bool found = false;

	ScanKeyInit(&key, CATALOG_TABLE_RELATION, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relation));
	scan = systable_beginscan(catalog, relation_oids[RELATION_TABLE_INDEX], true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool null;
		Datum value;

		found = true;
		memset(table, 0, sizeof(DistributedTable));
		table->relation = relation;
		table->kind = DatumGetChar(read_column(tuple, catalog, CATALOG_TABLE_KIND, NULL)) ==
							  CATALOG_KIND_REFERENCE
						  ? TABLE_REFERENCE
						  : TABLE_DISTRIBUTED;
		value = read_column(tuple, catalog, CATALOG_TABLE_KEY_ATTRIBUTE, &null);
		table->key_attribute = null ? InvalidAttrNumber : DatumGetInt16(value);
		value = read_column(tuple, catalog, CATALOG_TABLE_STORAGE, NULL);
		table->is_columnar = strcmp(TextDatumGetCString(value), "columnar") == 0;
		read_periods(tuple, catalog, &table->periods);
		value = read_column(tuple, catalog, CATALOG_TABLE_COLOCATION, &null);
		if (!null)
			table->colocation = find_colocation(generation, DatumGetInt32(value));
	}
	end_catalog_scan(scan, catalog);
	return found;
}

/* Does the table's row name a group that the generation lacks? */
static bool
lacks_colocation(const DistributedTable *table)
{
	return table->kind == TABLE_DISTRIBUTED && table->colocation == NULL;
}

const DistributedTable *
metadata_table(Oid relation)
{
	Generation *generation;
	TableEntry *entry;
	DistributedTable table;
	DistributedTable *remembered = NULL;
	uint64 before;
	bool found;

	if (!metadata_available())
		return NULL;
	generation = get_generation();
	entry = hash_search(generation->tables, &relation, HASH_FIND, NULL);
	if (entry != NULL && !entry->stale)
		return entry->table;

	/*
	 * Reading may run callbacks that change the hash table (or a nested look-up
	 * may replace the generation's flag): look the entry up again afterwards.
	 */
	before = invalidations;
	found = read_table(generation, relation, &table);
	if (found && lacks_colocation(&table))
	{
		/* a generation read after the row has its group, or the row is gone now */
		current_is_stale = true;
		generation = get_generation();
		before = invalidations;
		found = read_table(generation, relation, &table);
		if (found && lacks_colocation(&table))
			ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
							errmsg("colocation group of table %u is missing in strata.colocation",
								   relation)));
	}
	entry = hash_search(generation->tables, &relation, HASH_FIND, NULL);
	if (entry != NULL)
		remembered = entry->table;

	/*
	 * Most invalidations leave our part unchanged: keep the struct that others
	 * may point to, which also keeps the generation from growing.
	 */
	if (!found)
		remembered = NULL;
	else if (remembered == NULL || memcmp(remembered, &table, sizeof(table)) != 0)
	{
		remembered = MemoryContextAlloc(generation->context, sizeof(table));
		*remembered = table;
	}

	entry = hash_search(generation->tables, &relation, HASH_ENTER, NULL);
	entry->table = remembered;
	entry->stale = before != invalidations;
	return remembered;
}

const DistributedTable *
metadata_find_table(Oid relid)
{
	if (!OidIsValid(relid))
		return NULL;
	if (get_rel_relkind(relid) == RELKIND_INDEX ||
		get_rel_relkind(relid) == RELKIND_PARTITIONED_INDEX)
		relid = IndexGetRelation(relid, true);
	return OidIsValid(relid) ? metadata_table(relid) : NULL;
}

const DistributedTable *
metadata_require_distributed(Oid relation)
{
	const DistributedTable *table = metadata_table(relation);

	if (table == NULL || table->kind != TABLE_DISTRIBUTED)
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("\"%s\" is not a distributed table",
							   DatumGetCString(
								   DirectFunctionCall1(regclassout, ObjectIdGetDatum(relation))))));
	return table;
}
