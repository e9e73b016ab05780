/*
 * move_back.c
 *		A shard that was lost with the worker to which it had moved comes back from the one that it had left.
 *
 * That one keeps it as it was until the other one's archive has it (stream/kept_shard.c); what was written there since then is
 * lost.  As the way back into use is for emergencies, it is simple: everybody waits, and rows are compared with the bounds and the
 * foreign keys.
 *
 * Locks as of strata.recreate_lost_shards() (lost_worker.c).
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "cluster/metadata.h"
#include "cluster/metadata_write.h"
#include "cluster/relation_name.h"
#include "cluster/shard_map.h"
#include "server/argument.h"
#include "stream/kept_shard.h"
#include "stream/remote_command.h"
#include "stream/remote_ddl.h"
#include "table/owner_guard.h"

PG_FUNCTION_INFO_V1(strata_move_back);

typedef struct KeptShard
{
	char *name;
	int worker_id;
	TimestampTz since;
} KeptShard;

static void
check_lost(const Colocation *colocation, Oid relation, int shard)
{
	shard_map_require_shard(colocation, relation, shard);
	if (colocation->lost_with[shard] == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("shard %d of table \"%s\" is not lost", shard, get_rel_name(relation)),
				 errdetail("It is on worker \"%s\".",
						   metadata_worker(colocation->shard_workers[shard])->name),
				 errhint("strata.move_shard() moves it to another worker.")));
}

/* Take the newest that is kept of the shard, and of which nobody hears any more; false if there is nothing. */
static bool
take_kept(const Colocation *colocation, int shard, KeptShard *kept)
{
	MemoryContext caller = CurrentMemoryContext;
	bool found;

	SPI_connect();
	if (SPI_execute(
			psprintf("DELETE FROM strata.kept_shard WHERE name = (SELECT k.name FROM "
					 "strata.kept_shard AS k "
					 "JOIN strata.worker AS w USING (worker_id) WHERE k.colocation_id = %d "
					 "AND k.modulus = %d AND k.remainder = %d AND k.target = %s "
					 "ORDER BY k.kept_since DESC LIMIT 1) RETURNING name, worker_id, kept_since",
					 colocation->id, colocation->shard_moduli[shard], shard,
					 quote_literal_cstr(colocation->lost_with[shard])),
			false, 0) != SPI_OK_DELETE_RETURNING)
		elog(ERROR, "could not look for what is kept");
	found = SPI_processed == 1;
	if (found)
	{
		HeapTuple row = SPI_tuptable->vals[0];
		TupleDesc desc = SPI_tuptable->tupdesc;
		bool isnull;

		kept->name = MemoryContextStrdup(caller, SPI_getvalue(row, desc, 1));
		kept->worker_id = DatumGetInt32(SPI_getbinval(row, desc, 2, &isnull));
		kept->since = DatumGetTimestampTz(SPI_getbinval(row, desc, 3, &isnull));
	}
	SPI_finish();
	return found;
}

static void
require_kept(const Colocation *colocation, Oid relation, int shard, KeptShard *kept)
{
	if (kept_shard_is_known() && take_kept(colocation, shard, kept))
		return;
	ereport(
		ERROR,
		(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
		 errmsg("no worker keeps shard %d of table \"%s\"", shard, get_rel_name(relation)),
		 errdetail("A worker keeps a shard that has left it until the archive of its new worker "
				   "has it, which is worker \"%s\".",
				   colocation->lost_with[shard]),
		 errhint("Restore that worker from its archive. SELECT strata.recreate_lost_shards(%s) "
				 "gives the rows up.",
				 quote_literal_cstr(relation_name_qualified(relation)))));
}

/* A table's partition is one again. */
static void
use_kept(const KeptShard *kept, const Colocation *colocation, int shard, Oid relation_oid)
{
	const Bitmapset *worker = bms_make_singleton(kept->worker_id);
	Relation relation = table_open(relation_oid, NoLock);
	bool guarded = owner_guard_begin(worker, relation);

	(void) remote_command_run(
		worker, REMOTE_WRITE,
		psprintf("SELECT strata_worker.use_kept_shard(%s, %s::pg_catalog.regclass, %s, %d, %d)",
				 quote_literal_cstr(kept_shard_schema(kept->name, relation_oid)),
				 quote_literal_cstr(relation_name_qualified(relation_oid)),
				 quote_literal_cstr(
					 relation_name_of_shard(RelationGetRelationName(relation), shard,
											metadata_has_periods(metadata_table(relation_oid)))),
				 colocation->shard_moduli[shard], shard));
	if (guarded)
		owner_guard_end(worker);
	table_close(relation, NoLock);
	CacheInvalidateRelcacheByRelid(relation_oid);
}

/* move_back(relation, shard): the time at which the rows were as they are now */
Datum
strata_move_back(PG_FUNCTION_ARGS)
{
	Oid relation;
	int shard;
	List *tables;
	const Colocation *colocation;
	KeptShard kept;
	ListCell *cell;

	argument_refuse_null(fcinfo, 0, "relation");
	argument_refuse_null(fcinfo, 1, "shard");
	relation = PG_GETARG_OID(0);
	shard = PG_GETARG_INT32(1);
	PreventCommandIfReadOnly("strata.move_back()");
	remote_ddl_lock_for_seed();
	tables = metadata_write_group_tables(metadata_require_distributed(relation)->colocation->id);
	foreach(cell, tables)
		LockRelationOid(lfirst_oid(cell), AccessExclusiveLock);
	metadata_write_lock_placement();

	colocation = metadata_require_distributed(relation)->colocation;
	check_lost(colocation, relation, shard);
	require_kept(colocation, relation, shard, &kept);
	remote_ddl_note_placement();
	foreach(cell, tables)
		use_kept(&kept, colocation, shard, lfirst_oid(cell));
	metadata_write_place_shard(colocation->id, shard, kept.worker_id);
	CommandCounterIncrement();
	ereport(NOTICE, (errmsg("shard %d of %s is on worker \"%s\" again, as it was at %s", shard,
							shard_map_describe_tables(colocation),
							metadata_worker(kept.worker_id)->name, timestamptz_to_str(kept.since)),
					 errdetail("What was written to it since then is lost.")));
	PG_RETURN_TIMESTAMPTZ(kept.since);
}
