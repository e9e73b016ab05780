/*
 * lost_worker.c
 *		A worker that is lost for good: its shards are marked, and can be made anew, empty.
 *
 * strata.remove_worker(name, lost => true) forgets a worker that does not answer any more.  Rows of
 * reference tables are on all other nodes.  Rows of distributed tables that only it had are gone,
 * and nobody may mistake an answer without them for the whole: so its shards stay in strata.shard,
 * without a worker, and a statement that needs one of them is an error that names it (shard_map.c).
 * All else goes on: statements whose keys are elsewhere, and DDL, DROP and TRUNCATE among it, on the
 * workers that are left.  strata.recreate_lost_shards() is the word that the rows are given up: the
 * shards are made again, empty, where the group has fewest.
 *
 * Nobody is promised what is then lost.  The write-off takes ExclusiveLock on the tables, which
 * writers and lockers of rows exclude: when it is granted, no transaction that has written there
 * is still to commit.  Readers need no such care; they fail when they use the worker.
 *
 * A worker that comes back is a stranger.  Its id is never given out again, so what it has
 * prepared is nobody's (resolver.c), and add_worker() refuses it until its own administrator
 * has made it leave the cluster (worker_check.c).  Decision rows that it alone still kept are
 * deleted with the next round over the workers that are left.
 *
 * Locks, in the order of README.md: strata.cluster as add_worker() takes it, so that no DDL comes
 * between; the tables, by OID; the placement lock.
 */
#include "postgres.h"

#include "workers/lost_worker.h"

#include "access/table.h"
#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "cluster/metadata.h"
#include "cluster/relation_name.h"
#include "cluster/metadata_write.h"
#include "cluster/shard_map.h"
#include "server/argument.h"
#include "stream/remote_command.h"
#include "stream/remote_ddl.h"
#include "table/owner_guard.h"
#include "table/worker_table_sql.h"

PG_FUNCTION_INFO_V1(strata_recreate_lost_shards);

/* ---------------------------------------------------------------- write-off */

/* How many shards of the group the worker holds. */
static int
count_shards(const Colocation *colocation, int worker_id)
{
	return list_length(colocation_list_shards(colocation, colocation->shard_workers, worker_id));
}

/* Lock the distributed tables that have shards on the worker; returns their OIDs, ordered. */
static List *
lock_tables_of(int worker_id)
{
	List *affected = NIL;
	ListCell *cell;

	foreach(cell, metadata_write_tables(CATALOG_KIND_DISTRIBUTED))
	{
		const DistributedTable *table = metadata_table(lfirst_oid(cell));

		if (table == NULL || !bms_is_member(worker_id, table->colocation->workers))
			continue;
		LockRelationOid(table->relation, ExclusiveLock);
		affected = lappend_oid(affected, lfirst_oid(cell));
	}
	return affected;
}

static float4
get_row_estimate(Oid relation_oid)
{
	Relation relation = table_open(relation_oid, NoLock);
	float4 rows = relation->rd_rel->reltuples;

	table_close(relation, NoLock);
	return rows;
}

static void
report_loss(const DistributedTable *table, int worker_id)
{
	const Colocation *colocation = table->colocation;
	int lost = count_shards(colocation, worker_id);
	int left = colocation->shard_count - colocation->lost_count;
	float4 rows = get_row_estimate(table->relation);
	char *name = relation_name_qualified(table->relation);

	ereport(NOTICE,
			(errmsg("table %s loses %d of %d shards with worker \"%s\"", name, lost,
					colocation->shard_count, metadata_worker(worker_id)->name),
			 rows <= 0 ? errdetail("How many rows they held is not known: the table was "
								   "never analyzed.")
					   : errdetail("They held about %.0f of %.0f rows, by its last ANALYZE.",
								   (double) rows * lost / left, (double) rows)));
}

void
lost_worker_write_off(int worker_id)
{
	List *affected;
	ListCell *cell;
	char *name;

	remote_ddl_lock_for_seed();
	affected = lock_tables_of(worker_id);
	metadata_write_lock_placement();
	name = metadata_worker(worker_id)->name; /* not removed while we waited */

	foreach(cell, affected)
		report_loss(metadata_table(lfirst_oid(cell)), worker_id);
	if (affected != NIL)
		ereport(
			NOTICE,
			(errmsg("rows that only worker \"%s\" had are lost", name),
			 errdetail("Statements that need its shards fail from now on; all others work."),
			 errhint("SELECT strata.recreate_lost_shards(relation) gives the rows up and makes "
					 "a table's lost shards anew, empty, on the workers that are left. Those that "
					 "strata.kept_shards shows come back by strata.move_back(relation, shard).")));
	ereport(LOG, (errmsg("worker \"%s\" is written off as lost", name),
				  errdetail("%d tables lose shards.", list_length(affected))));
	metadata_write_lose_shards(worker_id, name);
	foreach(cell, affected)
		CacheInvalidateRelcacheByRelid(lfirst_oid(cell)); /* plans */
}

/* ---------------------------------------------------------------- empty shards in their place */

/* The group's lost shards, each with the worker that has fewest then: new places by number, or 0. */
static int *
choose_workers(const Colocation *colocation)
{
	const Bitmapset *workers = metadata_all_workers();
	int *places = palloc0(colocation->modulus * sizeof(int));
	int number = -1;
	int last = bms_prev_member(workers, -1);
	int worker_id = -1;
	int *load;

	if (last < 0)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("the cluster has no workers"),
						errhint("Add one with strata.add_worker().")));
	load = palloc0((last + 1) * sizeof(int));
	while ((worker_id = bms_next_member(workers, worker_id)) >= 0)
		load[worker_id] = count_shards(colocation, worker_id);
	while ((number = colocation_next_shard(colocation, number)) >= 0)
	{
		int best = -1;

		if (colocation->lost_with[number] == NULL)
			continue;
		worker_id = -1;
		while ((worker_id = bms_next_member(workers, worker_id)) >= 0)
		{
			if (best < 0 || load[worker_id] < load[best])
				best = worker_id;
		}
		places[number] = best;
		load[best]++;
	}
	return places;
}

/* Create the table's partitions where they are to be. */
static void
create_partitions(Oid relation_oid, const int *places)
{
	Relation relation = table_open(relation_oid, NoLock);
	const Colocation *colocation = metadata_table(relation_oid)->colocation;
	const Bitmapset *workers = metadata_all_workers();
	int *worker_ids = palloc(bms_num_members(workers) * sizeof(int));
	char **sqls = palloc(bms_num_members(workers) * sizeof(char *));
	bool guarded = owner_guard_begin(workers, relation);
	int worker_id = -1;
	int count = 0;

	while ((worker_id = bms_next_member(workers, worker_id)) >= 0)
	{
		List *shards = colocation_list_shards(colocation, places, worker_id);

		if (shards == NIL)
			continue;
		worker_ids[count] = worker_id;
		sqls[count++] = worker_table_sql_partitions(relation, shards, NIL);
	}
	remote_command_run_each(worker_ids, sqls, count, REMOTE_WRITE);
	if (guarded)
		owner_guard_end(workers);
	table_close(relation, NoLock);
}

/* recreate_lost_shards(relation): how many there were, of each table of its group */
Datum
strata_recreate_lost_shards(PG_FUNCTION_ARGS)
{
	Oid relation;
	const DistributedTable *table;
	const Colocation *colocation;
	List *tables;
	ListCell *cell;
	int *places;

	argument_refuse_null(fcinfo, 0, "relation");
	relation = PG_GETARG_OID(0);
	PreventCommandIfReadOnly("strata.recreate_lost_shards()");
	remote_ddl_lock_for_seed();
	table = metadata_require_distributed(relation);
	tables = metadata_write_group_tables(table->colocation->id);
	foreach(cell, tables)
		LockRelationOid(lfirst_oid(cell), AccessExclusiveLock);
	metadata_write_lock_placement();

	colocation = metadata_require_distributed(relation)->colocation;
	if (colocation->lost_count == 0)
		PG_RETURN_INT32(0);
	remote_ddl_note_placement();
	places = choose_workers(colocation);
	foreach(cell, tables)
		create_partitions(lfirst_oid(cell), places);
	for (int number = -1; (number = colocation_next_shard(colocation, number)) >= 0;)
	{
		if (places[number] != 0)
			metadata_write_place_shard(colocation->id, number, places[number]);
	}
	foreach(cell, tables)
		CacheInvalidateRelcacheByRelid(lfirst_oid(cell));
	CommandCounterIncrement();
	ereport(NOTICE, (errmsg_plural("%d shard of %s is empty now", "%d shards of %s are empty now",
								   colocation->lost_count, colocation->lost_count,
								   shard_map_describe_tables(colocation))));
	PG_RETURN_INT32(colocation->lost_count);
}
