/*
 * shard_map.c
 *		Which worker holds a key.
 *
 * A worker's shards are native hash partitions: the row goes where PostgreSQL's
 * partition hash says.  We call the very function that core calls
 * (compute_partition_hash_value), with the function of the key type's default
 * hash operator class, so that the two can never disagree.  A shard that was split has left two with twice
 * its modulus; the remainder of the greatest one says which shard it is.
 *
 * A shard that was lost with its worker (lost_worker.c) is nowhere: a statement that needs it is
 * refused here, so that no answer leaves its rows out in silence.  So is one on rows that lie where another version of their
 * key's collation put them: values that are equal under a collation which is not deterministic are hashed by ICU's
 * sort keys, and those change with the operating system.
 */
#include "postgres.h"

#include "access/hash.h"
#include "access/htup_details.h"
#include "catalog/partition.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "lib/stringinfo.h"
#include "partitioning/partbounds.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "cluster/metadata_write.h"
#include "cluster/shard_map.h"

/* So many tables are named in a message. */
#define TABLES_NAMED 3

/* Was looked at last, and hashes as it did when rows were placed. */
static Oid current_collation = InvalidOid;

char *
shard_map_describe_tables(const Colocation *colocation)
{
	List *tables = metadata_write_group_tables(colocation->id);
	int count = list_length(tables);
	StringInfoData text;
	ListCell *cell;

	initStringInfo(&text);
	appendStringInfoString(&text, count == 1 ? "table" : "tables");
	foreach(cell, tables)
	{
		int position = foreach_current_index(cell);
		char *name = get_rel_name(lfirst_oid(cell));

		if (position == TABLES_NAMED && count > TABLES_NAMED)
		{
			appendStringInfo(&text, " and %d more", count - TABLES_NAMED);
			break;
		}
		appendStringInfo(&text, "%s \"%s\"",
						 position == 0			 ? ""
						 : position == count - 1 ? " and"
												 : ",",
						 name != NULL ? name : "?");
	}
	return text.data;
}

static void
report_lost(const Colocation *colocation, int remainder)
{
	int number = colocation->shard_numbers[remainder];
	List *tables = metadata_write_group_tables(colocation->id);
	char *example = tables == NIL ? "..."
								  : DatumGetCString(DirectFunctionCall1(
										regclassout, ObjectIdGetDatum(linitial_oid(tables))));

	ereport(
		ERROR,
		(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
		 errmsg("shard %d of %s was lost with worker \"%s\"", number,
				shard_map_describe_tables(colocation), colocation->lost_with[remainder]),
		 errdetail_plural("%d of %d shards is lost; the rows of the others can be used.",
						  "%d of %d shards are lost; the rows of the others can be used.",
						  colocation->lost_count, colocation->lost_count, colocation->shard_count),
		 errhint("Name keys of other shards in the statement; or have an administrator give the "
				 "rows up: SELECT strata.recreate_lost_shards(%s).",
				 quote_literal_cstr(example))));
}

void
shard_map_require_shard(const Colocation *colocation, Oid relation, int number)
{
	if (colocation_has_shard(colocation, number))
		return;
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("table \"%s\" has no shard %d", get_rel_name(relation), number),
					colocation->shard_count == colocation->modulus
						? errdetail("Its shards have the numbers 0 to %d.", colocation->modulus - 1)
						: errdetail("Some of its shards were split: SELECT * FROM strata.shards "
									"lists them.")));
}

void
shard_map_require_all(const Colocation *colocation)
{
	if (colocation->lost_count == 0)
		return;
	for (int remainder = 0; remainder < colocation->modulus; remainder++)
	{
		if (colocation->lost_with[remainder] != NULL)
			report_lost(colocation, remainder);
	}
}

static int
get_shard_worker(const Colocation *colocation, int remainder)
{
	int worker = colocation->shard_workers[remainder];

	if (colocation->lost_with[remainder] != NULL)
		report_lost(colocation, remainder);
	if (worker == 0)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("shard %d of colocation group %d has no worker", remainder, colocation->id),
				 errhint("Look at strata.shard.")));
	return worker;
}

/*
 * Type of the operator family under which values of `type` are hashed: the base
 * type of a domain, text for varchar; InvalidOid when the family has none.
 */
static Oid
find_hashed_type(const Colocation *colocation, Oid type)
{
	Oid base = getBaseType(type);
	Oid opclass;

	if (base == colocation->key_type)
		return base;
	if (OidIsValid(get_opfamily_proc(colocation->key_opfamily, base, base, HASHEXTENDED_PROC)))
		return base;

	/* Binary-compatible types (varchar) borrow another type's operator class. */
	opclass = GetDefaultOpClass(base, HASH_AM_OID);
	if (OidIsValid(opclass) && get_opclass_family(opclass) == colocation->key_opfamily)
	{
		Oid input = get_opclass_input_type(opclass);

		/*
		 * A polymorphic class (arrays, enums) hashes each type in its own way: equal values of
		 * two different types need not have equal hashes.
		 */
		if (!IsPolymorphicType(input) && input != RECORDOID)
			return input;
	}
	return InvalidOid;
}

bool
shard_map_type_hashable(const Colocation *colocation, Oid type)
{
	return OidIsValid(find_hashed_type(colocation, type));
}

/* The hash that the group's operator family has for a value of this type. */
static FmgrInfo *
find_hash(const Colocation *colocation, Oid type, FmgrInfo *other)
{
	Oid hashed = type == colocation->key_type ? type : find_hashed_type(colocation, type);
	Oid function = InvalidOid;

	/* The function's own cache (fn_extra) lives as long as the group. */
	if (hashed == colocation->key_type && OidIsValid(colocation->hash.fn_oid))
		return unconstify(FmgrInfo *, &colocation->hash);
	if (OidIsValid(hashed))
		function = get_opfamily_proc(colocation->key_opfamily, hashed, hashed, HASHEXTENDED_PROC);
	if (!OidIsValid(function))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_FUNCTION),
						errmsg("values of type %s cannot be routed by a key of type %s",
							   format_type_be(type), format_type_be(colocation->key_type))));
	fmgr_info(function, other);
	return other;
}

/* The version that the operating system provides, NULL if the collation has none. */
static char *
find_provided_version(Oid collation)
{
	LOCAL_FCINFO(call, 1);
	Datum version;

	InitFunctionCallInfoData(*call, NULL, 1, InvalidOid, NULL, NULL);
	call->args[0].value = ObjectIdGetDatum(collation);
	call->args[0].isnull = false;
	version = pg_collation_actual_version(call);
	return call->isnull ? NULL : TextDatumGetCString(version);
}

/* Does the operating system provide another version than rows were placed by?  Then the two are set. */
static bool
has_moved_on(Oid collation, char **recorded, char **provided)
{
	HeapTuple tuple;
	Datum version;
	bool isnull;

	if (!OidIsValid(collation) || get_collation_isdeterministic(collation))
		return false;
	tuple = SearchSysCache1(COLLOID, ObjectIdGetDatum(collation));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for collation %u", collation);
	version = SysCacheGetAttr(COLLOID, tuple, Anum_pg_collation_collversion, &isnull);
	*recorded = isnull ? NULL : TextDatumGetCString(version);
	ReleaseSysCache(tuple);
	*provided = find_provided_version(collation);
	return *recorded != NULL && *provided != NULL && strcmp(*recorded, *provided) != 0;
}

static void
forget_current_collation(Datum argument, int cache, uint32 hash)
{
	current_collation = InvalidOid;
}

void
shard_map_require_collation(const Colocation *colocation)
{
	static bool registered = false;
	Oid collation = colocation->key_collation;
	char *recorded;
	char *provided;

	if (collation == current_collation)
		return;
	if (!registered)
		CacheRegisterSyscacheCallback(COLLOID, forget_current_collation, (Datum) 0);
	registered = true;
	if (has_moved_on(collation, &recorded, &provided))
		ereport(
			ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("rows of %s lie where version %s of collation \"%s\" has put them",
					shard_map_describe_tables(colocation), recorded, get_collation_name(collation)),
			 errdetail("The operating system provides version %s, which may give equal keys other "
					   "hashes.",
					   provided),
			 errhint("Run strata.undistribute_table() on them, then ALTER COLLATION ... REFRESH "
					 "VERSION, and distribute them again.")));
	current_collation = collation;
}

uint64
shard_map_hash(const Colocation *colocation, Oid type, Datum key, bool isnull)
{
	Oid collation = colocation->key_collation;
	FmgrInfo other;
	FmgrInfo *hash = find_hash(colocation, isnull ? colocation->key_type : type, &other);

	shard_map_require_collation(colocation);
	return compute_partition_hash_value(1, hash, &collation, &key, &isnull);
}

/* Remainder (0 .. modulus - 1) of a key; NULL keys hash to 0, as in core. */
static int
find_remainder(const Colocation *colocation, Datum key, bool isnull)
{
	uint64 hash = shard_map_hash(colocation, colocation->key_type, key, isnull);

	return (int) (hash % (uint64) colocation->modulus);
}

int
shard_map_worker(const Colocation *colocation, Datum key, bool isnull)
{
	return get_shard_worker(colocation, find_remainder(colocation, key, isnull));
}

int
shard_map_worker_for_type(const Colocation *colocation, Oid type, Datum key, bool isnull)
{
	uint64 hash = shard_map_hash(colocation, type, key, isnull);

	return get_shard_worker(colocation, (int) (hash % (uint64) colocation->modulus));
}
