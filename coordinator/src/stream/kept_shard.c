/*
 * kept_shard.c
 *		What the worker that a shard has left keeps of it for a while (workers/shard_switch.c, workers/move_back.c).
 *
 * A move makes old rows new: those that were in the source's backups are in the target's newest WAL alone.  Where that is archived, a
 * restore of the target would not have them until it is, nor the source after the switch.  So until then the source keeps the
 * tables, apart from its partitioned ones: in a schema of their own, without foreign keys, which would go on to be checked.
 *
 * strata.kept_shard has a row for each, written by the transaction that moves the shard; strata.release_kept_shards(), which the
 * rebalancer's task calls (services/shard_mover.c), drops what is not needed any more and deletes the row in one transaction.
 *
 * These tables follow no DDL, and what they consist of, as types, would be in its way.  So DDL drops them first; but not of a
 * shard that is lost, for then they may be all that there is of it.
 *
 * The names are random: a coordinator that was restored would give numbers out again.
 */
#include "postgres.h"

#include "stream/kept_shard.h"

#include "access/genam.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "parser/parse_func.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

static Oid
find_catalog(void)
{
	Oid schema = get_namespace_oid("strata", true);

	return OidIsValid(schema) ? get_relname_relid("kept_shard", schema) : InvalidOid;
}

bool
kept_shard_is_known(void)
{
	return OidIsValid(find_catalog());
}

void
kept_shard_lock(void)
{
	LockRelationOid(find_catalog(), RowExclusiveLock);
}

char *
kept_shard_add(int colocation_id, ShardBounds bounds, int worker_id, const char *target)
{
	MemoryContext caller = CurrentMemoryContext;
	char *name;

	SPI_connect();
	if (SPI_execute(psprintf("INSERT INTO strata.kept_shard (colocation_id, modulus, remainder, "
							 "worker_id, target) "
							 "VALUES (%d, %d, %d, %d, %s) RETURNING name",
							 colocation_id, bounds.modulus, bounds.remainder, worker_id,
							 quote_literal_cstr(target)),
					false, 0) != SPI_OK_INSERT_RETURNING ||
		SPI_processed != 1)
		elog(ERROR, "could not note that a shard is kept");
	name = MemoryContextStrdup(caller,
							   SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1));
	SPI_finish();
	return name;
}

char *
kept_shard_schema(const char *name, Oid relation)
{
	return psprintf("%s_%u", name, relation);
}

static bool
is_anything_kept(Oid catalog_oid)
{
	Relation catalog = table_open(catalog_oid, AccessShareLock);
	SysScanDesc scan = systable_beginscan(catalog, InvalidOid, false, NULL, 0, NULL);
	bool found = systable_getnext(scan) != NULL;

	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return found;
}

void
kept_shard_drop_for_change(void)
{
	Oid catalog = find_catalog();
	Oid types[] = {BOOLOID};
	List *name = list_make2(makeString("strata"), makeString("release_kept_shards"));

	/* as the extension's owner, whoever changes a table */
	if (OidIsValid(catalog) && is_anything_kept(catalog))
		(void) OidFunctionCall1(LookupFuncName(name, 1, types, false), BoolGetDatum(true));
}
