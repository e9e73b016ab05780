/*
 * shard_map.c
 *		Which worker holds a key.
 *
 * A worker's shards are native hash partitions: the row goes where PostgreSQL's
 * partition hash says.  We call the very function that core calls
 * (compute_partition_hash_value), with the function of the key type's default
 * hash operator class, so that the two can never disagree.  All shards of a
 * group have the same modulus, hence the remainder is the shard.
 */
#include "postgres.h"

#include "access/hash.h"
#include "catalog/partition.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "partitioning/partbounds.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "shard_map.h"

/* Remainder of a key that is hashed by this function of the group's operator family. */
static int
compute_remainder(const Colocation *colocation, FmgrInfo *hash, Datum key, bool isnull)
{
	Oid collation = colocation->key_collation;
	uint64 value = compute_partition_hash_value(1, hash, &collation, &key, &isnull);

	return (int) (value % (uint64) colocation->shard_count);
}

static int
get_shard_worker(const Colocation *colocation, int remainder)
{
	int worker = colocation->shard_workers[remainder];

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

int
shard_map_remainder(const Colocation *colocation, Datum key, bool isnull)
{
	if (!OidIsValid(colocation->hash.fn_oid))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
						errmsg("key type %u of colocation group %d cannot be hashed",
							   colocation->key_type, colocation->id)));

	/* The function's own cache (fn_extra) lives as long as the group. */
	return compute_remainder(colocation, unconstify(FmgrInfo *, &colocation->hash), key, isnull);
}

int
shard_map_worker(const Colocation *colocation, Datum key, bool isnull)
{
	return get_shard_worker(colocation, shard_map_remainder(colocation, key, isnull));
}

int
shard_map_worker_for_type(const Colocation *colocation, Oid type, Datum key, bool isnull)
{
	Oid hashed;
	Oid function = InvalidOid;
	FmgrInfo hash;

	if (isnull || type == colocation->key_type)
		return shard_map_worker(colocation, key, isnull);

	hashed = find_hashed_type(colocation, type);
	if (hashed == colocation->key_type)
		return shard_map_worker(colocation, key, isnull);
	if (OidIsValid(hashed))
		function = get_opfamily_proc(colocation->key_opfamily, hashed, hashed, HASHEXTENDED_PROC);
	if (!OidIsValid(function))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_FUNCTION),
						errmsg("values of type %s cannot be routed by a key of type %s",
							   format_type_be(type), format_type_be(colocation->key_type))));
	fmgr_info(function, &hash);
	return get_shard_worker(colocation, compute_remainder(colocation, &hash, key, false));
}
