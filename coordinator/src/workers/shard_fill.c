/*
 * shard_fill.c
 *		The rounds in which rows of a shard that moves are copied (shard_move.c): the first, and those that bring what has changed.
 */
#include "postgres.h"

#include "workers/shard_fill.h"

#include "access/table.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "fault_point.h"
#include "server/clock.h"
#include "stream/remote_command.h"
#include "table/owner_guard.h"
#include "table/shard_copy.h"
#include "table/worker_table_sql.h"
#include "workers/move_progress.h"
#include "workers/shard_lock.h"
#include "workers/shard_partition.h"

/* Rounds are made until one takes less, or has fewer rows; so often one may take no less than the one before. */
#define SHORT_ROUND_MS 100
#define SHORT_ROUND_ROWS 1000
#define VAIN_ROUNDS 3

char *
shard_fill_leaves_sql(const ShardMove *move)
{
	StringInfoData sql;
	ListCell *cell;

	initStringInfo(&sql);
	foreach(cell, move->tables)
	{
		Relation relation = table_open(lfirst_oid(cell), NoLock);

		appendStringInfo(
			&sql, "%sSELECT relid FROM pg_catalog.pg_partition_tree(%s) WHERE isleaf",
			foreach_current_index(cell) > 0 ? " UNION ALL " : "",
			quote_literal_cstr(worker_table_sql_shard_name(relation, move->bounds.remainder)));
		table_close(relation, NoLock);
	}
	return sql.data;
}

int64
shard_fill_estimate(const ShardMove *move)
{
	const char *rows = remote_command_fetch(
		move->source, psprintf("SELECT pg_catalog.sum(greatest(c.reltuples, 0))::pg_catalog.int8 "
							   "FROM pg_catalog.pg_class c, (%s) p "
							   "WHERE c.oid OPERATOR(pg_catalog.=) p.relid",
							   shard_fill_leaves_sql(move)));

	return rows == NULL ? 0 : strtoi64(rows, NULL, 10);
}

/* So many rows have been copied, or deleted. */
static void
note_rows(void *argument, int64 rows)
{
	move_progress_add_rows(rows);
	shard_lock_give_way(argument);
}

uint64
shard_fill_look(const ShardMove *move)
{
	uint64 rows = 0;
	ListCell *part;
	ListCell *copies;
	ListCell *cell;

	foreach(part, move->parts)
	{
		foreach(copies, ((ShardPart *) lfirst(part))->copies)
		{
			foreach(cell, (List *) lfirst(copies))
				rows += shard_copy_look(lfirst(cell));
		}
	}
	return rows;
}

static bool
is_any_behind(const List *copies)
{
	ListCell *cell;

	foreach(cell, copies)
	{
		if (shard_copy_is_behind(lfirst(cell)))
			return true;
	}
	return false;
}

/* Bring a part's tables to what the last look has seen. */
static void
fill_part(ShardMove *move, const ShardPart *part)
{
	/* reading, too, computes constant parts of indexes */
	const Bitmapset *both = bms_add_member(bms_make_singleton(move->source), part->worker_id);
	ListCell *table;
	ListCell *copies;

	forboth(table, move->tables, copies, part->copies)
	{
		Relation relation;
		bool guarded;
		ListCell *cell;

		if (!is_any_behind(lfirst(copies)))
			continue;
		relation = table_open(lfirst_oid(table), NoLock);
		guarded = owner_guard_begin(both, relation);
		shard_partition_enforce_keys(part->worker_id, false);
		foreach(cell, (List *) lfirst(copies))
			shard_copy_catch_up(lfirst(cell), note_rows, move);
		shard_partition_enforce_keys(part->worker_id, true);
		if (guarded)
			owner_guard_end(both);
		table_close(relation, NoLock);
	}
}

void
shard_fill(ShardMove *move)
{
	ListCell *part;

	foreach(part, move->parts)
		fill_part(move, lfirst(part));
}

static void
analyze_part(ShardMove *move, const ShardPart *part)
{
	const Bitmapset *target = bms_make_singleton(part->worker_id);
	ListCell *cell;

	foreach(cell, move->tables)
	{
		Relation relation = table_open(lfirst_oid(cell), NoLock);
		bool guarded = owner_guard_begin(target, relation);

		shard_partition_run(
			part->worker_id,
			psprintf("ANALYZE %s", worker_table_sql_shard_name(relation, part->bounds.remainder)));
		if (guarded)
			owner_guard_end(target);
		table_close(relation, NoLock);
		shard_lock_give_way(move);
	}
}

void
shard_fill_until_short(ShardMove *move)
{
	int64 before = PG_INT64_MAX;
	int vain = 0;

	if (move->exclusive)
		return;
	for (;;)
	{
		int64 begin = clock_now();
		uint64 rows = shard_fill_look(move);
		int64 took;

		FAULT_POINT("shard_move_round");
		shard_fill(move);
		took = clock_now() - begin;
		if (took < SHORT_ROUND_MS || rows < SHORT_ROUND_ROWS)
			return;
		if (took >= before && ++vain == VAIN_ROUNDS)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("gave up moving shard %d of table \"%s\": its rows change "
							"faster than they are copied",
							move->bounds.remainder, get_rel_name(linitial_oid(move->tables))),
					 errhint("Move it again when less is written.")));
		before = took;
	}
}

void
shard_fill_plan(const ShardMove *move, bool copying)
{
	const char *sql = shard_copy_planning(copying);
	ListCell *part;

	shard_partition_run(move->source, sql);
	foreach(part, move->parts)
		shard_partition_run(((ShardPart *) lfirst(part))->worker_id, sql);
}

void
shard_fill_first(ShardMove *move)
{
	ListCell *part;

	(void) shard_fill_look(move);
	shard_fill(move);
	FAULT_POINT("shard_move_filled");
	foreach(part, move->parts)
		analyze_part(move, lfirst(part));
	move_progress_set_phase(MOVE_CATCHES_UP);
	shard_fill_plan(move, true);
	shard_fill_until_short(move);
}
