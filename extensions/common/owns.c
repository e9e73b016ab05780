/*
 * owns.c
 *		strata.owns(): would a row of a distributed table with this key be on this worker?
 *
 * Rows that every worker has, of reference tables, are divided by it among the workers, where each of them has to be met
 * once.  On the workers a distributed table is partitioned by hash and has the partitions of its shards there; of all workers
 * one has the partition of a key, NULL included.  The coordinator has the function to read what it writes for others.
 *
 * The table is locked for reading by whoever asks, who reads it in the same statement.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "fmgr.h"
#include "partitioning/partbounds.h"
#include "partitioning/partdesc.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/partcache.h"
#include "utils/rel.h"
#include "utils/varlena.h"

PG_FUNCTION_INFO_V1(strata_owns);

/* What a call site remembers, for the statement. */
typedef struct Owner
{
	Oid relation;
	FmgrInfo hash;
	Oid collation;
	int modulus;
	bool *here; /* by remainder */
} Owner;

/* The table of that name, whoever may use its schema: a view's reader need not. */
static Relation
open_table(text *name)
{
	RangeVar *table = makeRangeVarFromNameList(textToQualifiedNameList(name));
	Oid relation;

	if (table->schemaname != NULL)
		relation = get_relname_relid(table->relname, get_namespace_oid(table->schemaname, false));
	else
		relation = RangeVarGetRelid(table, NoLock, true);
	if (!OidIsValid(relation))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
						errmsg("relation \"%s\" does not exist", table->relname)));
	return relation_open(relation, AccessShareLock);
}

static Owner *
make_owner(FunctionCallInfo fcinfo)
{
	MemoryContext context = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);
	Relation relation = open_table(PG_GETARG_TEXT_PP(0));
	Owner *owner = palloc0(sizeof(Owner));
	PartitionKey key;
	PartitionDesc partitions;

	if (relation->rd_rel->relkind != RELKIND_PARTITIONED_TABLE ||
		(key = RelationGetPartitionKey(relation))->strategy != PARTITION_STRATEGY_HASH ||
		key->partnatts != 1)
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("\"%s\" is not a distributed table of a worker",
							   RelationGetRelationName(relation))));
	if (getBaseType(get_fn_expr_argtype(fcinfo->flinfo, 1)) != getBaseType(key->parttypid[0]))
		ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
						errmsg("the distribution key of table \"%s\" has another type",
							   RelationGetRelationName(relation))));
	owner->relation = RelationGetRelid(relation);
	fmgr_info_copy(&owner->hash, &key->partsupfunc[0], fcinfo->flinfo->fn_mcxt);
	owner->collation = key->partcollation[0];
	partitions = RelationGetPartitionDesc(relation, true);
	if (partitions->nparts > 0)
	{
		owner->modulus = partitions->boundinfo->nindexes;
		owner->here = palloc0(sizeof(bool) * owner->modulus);
		for (int i = 0; i < owner->modulus; i++)
			owner->here[i] = partitions->boundinfo->indexes[i] >= 0;
	}
	relation_close(relation, AccessShareLock);
	MemoryContextSwitchTo(context);
	return owner;
}

Datum
strata_owns(PG_FUNCTION_ARGS)
{
	Owner *owner = fcinfo->flinfo->fn_extra;
	Datum value = PG_GETARG_DATUM(1);
	bool isnull = PG_ARGISNULL(1);

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	if (owner == NULL)
		owner = fcinfo->flinfo->fn_extra = make_owner(fcinfo);
	if (owner->modulus == 0)
		PG_RETURN_BOOL(false);
	PG_RETURN_BOOL(owner->here[compute_partition_hash_value(1, &owner->hash, &owner->collation,
															&value, &isnull) %
							   owner->modulus]);
}
