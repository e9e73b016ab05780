/*
 * remote_ddl.c
 *		DDL on the workers: which of it they have seen, and the lock between DDL and new workers.
 *
 * A worker that takes part in no transaction misses nothing: DDL goes to all workers and fails when one
 * is down.  But a worker restored from a backup, or replaced by a replica that lagged, has an old
 * schema.  Hence a counter in strata.cluster, raised once by each transaction that sends DDL
 * to the workers, and recorded by each of them in the same transaction
 * (strata_worker.schema_version).  A session tells a worker the committed version when it connects, and a
 * worker that does not know it refuses (strata_worker.check_schema_version); a restored server
 * has no old connections.
 *
 * Versions are recorded by this server's own statements alone (worker/src/session_mark.c).  A version is a
 * count and 32 random bits, as two coordinators that go on from one backup count alike.
 *
 * No refusal is false: when the new version is visible here, every worker has prepared the
 * transaction that brings it, and a worker that is behind but holds prepared DDL of
 * this cluster is admitted: its locks protect what it is about to change.
 *
 * The counter is raised at PRE_COMMIT, after the last user code, so that concurrent DDL on different
 * tables waits for each other only while it commits and can come into no deadlock by it.  The workers insert
 * rows rather than update one: an update would fail in REPEATABLE READ when another
 * DDL came between.
 *
 * Locks, all on strata.cluster: RowExclusiveLock for DDL, ShareRowExclusiveLock for adding a
 * worker, ShareUpdateExclusiveLock for raising the counter.
 */
#include "postgres.h"

#include "stream/remote_ddl.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/rel.h"

#include "cluster/cluster_identity.h"
#include "cluster/metadata.h"
#include "cluster/metadata_write.h"
#include "stream/kept_shard.h"
#include "stream/remote_command.h"

/* Has this transaction sent DDL? */
static bool changed = false;

void
remote_ddl_lock_for_change(void)
{
	LockRelationOid(metadata_catalog_oid("cluster"), RowExclusiveLock);
}

void
remote_ddl_lock_for_seed(void)
{
	LockRelationOid(metadata_catalog_oid("cluster"), ShareRowExclusiveLock);
}

void
remote_ddl_note_placement(void)
{
	remote_ddl_lock_for_change();
	changed = true;
}

void
remote_ddl_note_change(void)
{
	remote_ddl_note_placement();
	kept_shard_drop_for_change();
}

void
remote_ddl_silence(bool quiet)
{
	ListCell *cell;

	foreach(cell, connection_list())
		((WorkerConnection *) lfirst(cell))->quiet = quiet;
}

void
remote_ddl_send(const char *sql)
{
	remote_ddl_note_change();
	if (metadata_all_workers() == NULL)
		return;
	connection_open_all(metadata_all_workers());
	remote_ddl_silence(true);
	PG_TRY();
	{
		remote_command_run(metadata_all_workers(), REMOTE_WRITE, sql);
	}
	PG_FINALLY();
	{
		remote_ddl_silence(false);
	}
	PG_END_TRY();
}

static char *
build_record(int64 version)
{
	return psprintf("SELECT strata_worker.record_schema_version(" INT64_FORMAT ")", version);
}

void
remote_ddl_seed_version(int worker_id)
{
	ClusterIdentity identity;
	char *sql;

	cluster_identity_read(&identity);
	sql = build_record(identity.schema_version);
	remote_command_run_each(&worker_id, &sql, 1, REMOTE_WRITE);
}

static void
record_on_workers(int64 version)
{
	remote_command_run(metadata_all_workers(), REMOTE_WRITE, build_record(version));
}

/* The next count, which is nobody else's; of workers' changes that are not known here, too: strata.adopt_shards() ends that. */
static int64
choose_next(int64 version)
{
	int64 newest = Max(SCHEMA_CHANGE_OF(version), connection_newest_change());
	uint32 token;

	if (!pg_strong_random(&token, sizeof(token)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random values")));
	return (newest + 1) << 32 | token;
}

void
remote_ddl_advance_version(void)
{
	ClusterIdentity identity;
	Relation catalog;
	HeapTuple tuple;
	int64 version;
	int columns;
	Datum *values;
	bool *nulls;
	bool *replaced;

	if (!changed)
		return;
	changed = false;
	if (metadata_all_workers() == NULL)
		return;
	catalog = table_open(metadata_catalog_oid("cluster"), ShareUpdateExclusiveLock);
	tuple = cluster_identity_row(catalog, &identity);
	version = choose_next(identity.schema_version);
	columns = RelationGetNumberOfAttributes(catalog);
	values = palloc0(columns * sizeof(Datum));
	nulls = palloc0(columns * sizeof(bool));
	replaced = palloc0(columns * sizeof(bool));
	values[CATALOG_CLUSTER_DDL_VERSION - 1] = Int64GetDatum(version);
	replaced[CATALOG_CLUSTER_DDL_VERSION - 1] = true;
	CatalogTupleUpdate(
		catalog, &tuple->t_self,
		heap_modify_tuple(tuple, RelationGetDescr(catalog), values, nulls, replaced));
	table_close(catalog, NoLock);
	record_on_workers(version);
}

void
remote_ddl_reset(void)
{
	changed = false;
}
