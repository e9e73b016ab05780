/*
 * shard_space.c
 *		Is there room for a shard that moves, where it goes to, and is it not too large (shard_move.c)?
 *
 * A full disk ends the move, and nothing is wrong afterwards; but all that writes on that worker has met it, too, and without
 * room for WAL the server itself ends.  So it is asked before a row is copied.
 *
 * What a shard takes is what it has on the source: pg_total_relation_size() of its leaves has everything, for columnar tables keep
 * their rows in the main fork and their catalogs in it and in TOAST.  All of it comes into the tablespace in which the
 * target makes new tables, wherever the leaves are here: the tiers of the target move them on later.  A tenth more is asked for:
 * leaves from a slow tier arrive compressed as on the fast one, and rows are written meanwhile.  A half of a shard that is split takes half.
 *
 * It is written to WAL once, but checkpoints take away what is above max_wal_size.  Not looked at: WAL that a slot or the archive
 * holds back longer than that, disks of replicas, which the coordinator does not reach, and other moves to the same worker at the same
 * time, of which the rebalancer makes none.
 *
 * strata.move_limit: VACUUM on both workers keeps all rows that are deleted while somebody copies, of all tables.  The default is what is copied
 * in ten minutes.  It does not count for splits, by which one gets below it.
 */
#include "postgres.h"

#include "workers/shard_space.h"

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "server/settings.h"
#include "stream/remote_command.h"
#include "workers/shard_fill.h"
#include "workers/shard_partition.h"

static int64
measure_shard(const ShardMove *move)
{
	const char *bytes = remote_command_fetch(
		move->source, psprintf("SELECT pg_catalog.sum(pg_catalog.pg_total_relation_size(p.relid))"
							   "::pg_catalog.int8 FROM (%s) p",
							   shard_fill_leaves_sql(move)));

	return bytes == NULL ? 0 : strtoi64(bytes, NULL, 10);
}

static char *
print_size(int64 bytes)
{
	return TextDatumGetCString(DirectFunctionCall1(pg_size_pretty, Int64GetDatum(bytes)));
}

static void
check_limit(const ShardMove *move, int64 bytes)
{
	int64 limit = (int64) strata_move_limit * 1024;

	if (limit == 0 || bytes <= limit || shard_move_is_split(move))
		return;
	ereport(
		ERROR,
		(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
		 errmsg("shard %d of table \"%s\" is larger than strata.move_limit", move->bounds.remainder,
				get_rel_name(linitial_oid(move->tables))),
		 errdetail("It has %s on worker \"%s\", with those of colocated tables; the limit is %s.",
				   print_size(bytes), metadata_worker(move->source)->name, print_size(limit)),
		 errhint("Split it with strata.split_shard(), or raise strata.move_limit while VACUUM "
				 "may be held back.")));
}

/* Where a worker lacks room for so many bytes, for people; NULL if it has it. */
static char *
find_shortage(int worker_id, int64 bytes)
{
	return remote_command_fetch(
		worker_id,
		psprintf(
			"SELECT pg_catalog.format('It takes up to %%s, and the file system has %%s free.', "
			"pg_catalog.string_agg(pg_catalog.format('%%s in %%s', "
			"pg_catalog.pg_size_pretty(n.bytes), s.place), ' and ' ORDER BY s.is_wal), "
			"pg_catalog.pg_size_pretty(pg_catalog.min(s.free_bytes))) "
			"FROM strata_worker.free_space() AS s CROSS JOIN LATERAL "
			"(SELECT CASE WHEN s.is_wal THEN least(" INT64_FORMAT ", pg_catalog.pg_size_bytes("
			"pg_catalog.current_setting('max_wal_size'))) ELSE " INT64_FORMAT " END) AS "
			"n(bytes) GROUP BY s.device HAVING pg_catalog.sum(n.bytes) OPERATOR(pg_catalog.>) "
			"pg_catalog.min(s.free_bytes) LIMIT 1",
			bytes, bytes));
}

/* The worker's share of the shard's parts. */
static int64
share_of(const ShardMove *move, int worker_id, int64 bytes)
{
	int here = 0;
	ListCell *cell;

	foreach(cell, move->parts)
		here += ((ShardPart *) lfirst(cell))->worker_id == worker_id;
	return bytes / list_length(move->parts) * here;
}

static void
check_room(const ShardMove *move, int worker_id, int64 bytes)
{
	char *shortage = find_shortage(worker_id, bytes + bytes / 10);

	if (shortage != NULL)
		ereport(ERROR, (errcode(ERRCODE_DISK_FULL),
						errmsg("worker \"%s\" has no room for shard %d of table \"%s\"",
							   metadata_worker(worker_id)->name, move->bounds.remainder,
							   get_rel_name(linitial_oid(move->tables))),
						errdetail_internal("%s", shortage),
						errhint("Free space there, or choose another worker.")));
}

void
shard_space_check(const ShardMove *move)
{
	int64 bytes = measure_shard(move);
	int before = 0;
	ListCell *cell;

	check_limit(move, bytes);
	if (!shard_partition_worker_has(move->source, "free_space"))
		return;
	foreach(cell, move->parts)
	{
		int worker_id = ((ShardPart *) lfirst(cell))->worker_id;

		if (worker_id != before)
			check_room(move, worker_id, share_of(move, worker_id, bytes));
		before = worker_id;
	}
}
