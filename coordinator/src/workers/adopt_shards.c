/*
 * adopt_shards.c
 *		A coordinator that was restored to an earlier time than its workers looks for shards where they are now.
 *
 * Shards that have moved since are not where its metadata says.  An empty place is no error, as a shard may be empty, so such a
 * coordinator uses no worker (wire/connection_open.c) until they are found here.  What the workers hold decides: a move is
 * committed on all nodes or on none, so each shard is whole on one worker.  The metadata follows where the worker that it
 * names lacks one of the group's tables' partitions, and exactly one other worker has all of them; or if that is so of the parts
 * into which the shard was split.
 *
 * Locks, in the order of README.md: strata.cluster as add_worker() takes it, so that no DDL comes between; the tables, by OID; the
 * placement lock.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/inval.h"

#include "cluster/metadata.h"
#include "cluster/metadata_write.h"
#include "cluster/relation_name.h"
#include "cluster/shard_map.h"
#include "server/settings.h"
#include "stream/remote_command.h"
#include "stream/remote_ddl.h"
#include "wire/connection.h"

PG_FUNCTION_INFO_V1(strata_adopt_shards);

/* A shard that is elsewhere, or its parts. */
typedef struct Adoption
{
	int colocation_id;
	int number;
	List *places; /* of ShardPlace */
} Adoption;

/* What a worker has of a group: shards of which it has all tables' partitions (ShardBounds). */
static List *
find_whole_shards(int worker_id, const List *tables)
{
	List *found = NIL;
	StringInfoData sql;
	ListCell *cell;
	char *text;
	char *shard;

	initStringInfo(&sql);
	appendStringInfoString(
		&sql,
		"SELECT pg_catalog.string_agg(pg_catalog.format('%s/%s', s.modulus, s.remainder), ',') "
		"FROM (SELECT l.modulus, l.remainder FROM strata_worker.shard_list() AS l "
		"WHERE pg_catalog.format('%I.%I', l.schema_name, l.table_name) "
		"OPERATOR(pg_catalog.=) ANY (ARRAY[");
	foreach(cell, tables)
		appendStringInfo(&sql, "%s%s", foreach_current_index(cell) > 0 ? ", " : "",
						 quote_literal_cstr(relation_name_qualified(lfirst_oid(cell))));
	appendStringInfo(&sql,
					 "]::pg_catalog.text[]) GROUP BY l.modulus, l.remainder "
					 "HAVING pg_catalog.count(*) OPERATOR(pg_catalog.=) %d) AS s",
					 list_length(tables));
	text = remote_command_fetch(worker_id, sql.data);
	while (text != NULL && (shard = strsep(&text, ",")) != NULL)
	{
		ShardBounds *bounds = palloc(sizeof(ShardBounds));

		bounds->modulus = pg_strtoint32(strsep(&shard, "/"));
		bounds->remainder = pg_strtoint32(shard);
		found = lappend(found, bounds);
	}
	return found;
}

static bool
has_shard(const List *shards, ShardBounds wanted)
{
	ListCell *cell;

	foreach(cell, shards)
	{
		const ShardBounds *bounds = lfirst(cell);

		if (bounds->modulus == wanted.modulus && bounds->remainder == wanted.remainder)
			return true;
	}
	return false;
}

/* The only worker that has the whole shard; 0 if there is none, or several. */
static int
find_holder(List *const *whole, ShardBounds bounds)
{
	int holder = 0;
	int worker_id = -1;

	while ((worker_id = bms_next_member(metadata_all_workers(), worker_id)) >= 0)
	{
		if (!has_shard(whole[worker_id], bounds))
			continue;
		if (holder != 0)
			return 0;
		holder = worker_id;
	}
	return holder;
}

/* Where the shard is, or all its parts are; false if one of them is not whole on any worker alone. */
static bool
find_places(List *const *whole, ShardBounds bounds, List **places)
{
	int worker_id = find_holder(whole, bounds);
	ShardPlace *place;

	if (worker_id == 0)
		return bounds.modulus <= STRATA_MAX_SHARD_COUNT / 2 &&
			   find_places(whole, (ShardBounds){bounds.modulus * 2, bounds.remainder}, places) &&
			   find_places(whole,
						   (ShardBounds){bounds.modulus * 2, bounds.remainder + bounds.modulus},
						   places);
	place = palloc(sizeof(ShardPlace));
	*place = (ShardPlace){bounds, worker_id};
	*places = lappend(*places, place);
	return true;
}

static void
report_places(const Colocation *colocation, int number, const char *where, const List *places)
{
	ListCell *cell;

	foreach(cell, places)
	{
		const ShardPlace *place = lfirst(cell);

		ereport(NOTICE, (errmsg("shard %d of %s is on worker \"%s\", not on worker \"%s\"",
								place->bounds.remainder, shard_map_describe_tables(colocation),
								metadata_worker(place->worker_id)->name, where),
						 list_length(places) == 1 ? 0 : errdetail("Shard %d was split.", number)));
	}
}

/* The group's shards that are elsewhere; WARNING for those that are nowhere, but for those of a worker that is written off. */
static List *
find_adoptions(const Colocation *colocation, List *adoptions)
{
	const Bitmapset *workers = metadata_all_workers();
	List *tables = metadata_write_group_tables(colocation->id);
	List **whole = palloc0((bms_prev_member(workers, -1) + 1) * sizeof(List *));
	int worker_id = -1;
	int number = -1;

	while ((worker_id = bms_next_member(workers, worker_id)) >= 0)
		whole[worker_id] = find_whole_shards(worker_id, tables);
	while ((number = colocation_next_shard(colocation, number)) >= 0)
	{
		int place = colocation->shard_workers[number];
		const char *lost_with = colocation->lost_with[number];
		const ShardBounds *bounds = colocation_shard_bounds(colocation, number);
		Adoption adoption = {.colocation_id = colocation->id, .number = number};

		if (lost_with == NULL && has_shard(whole[place], *bounds))
			continue;
		if (find_places(whole, *bounds, &adoption.places))
		{
			report_places(colocation, number,
						  lost_with != NULL ? lost_with : metadata_worker(place)->name,
						  adoption.places);
			adoptions = lappend(adoptions,
								memcpy(palloc(sizeof(Adoption)), &adoption, sizeof(Adoption)));
		}
		else if (lost_with == NULL)
			ereport(WARNING, (errmsg("shard %d of %s is not whole on any worker alone", number,
									 shard_map_describe_tables(colocation)),
							  errdetail("Worker \"%s\", which should have it, has not.",
										metadata_worker(place)->name)));
	}
	return adoptions;
}

/* strata.adopt_shards(): how many shards were elsewhere */
Datum
strata_adopt_shards(PG_FUNCTION_ARGS)
{
	List *tables;
	List *seen = NIL;
	List *adoptions = NIL;
	ListCell *cell;

	PreventCommandIfReadOnly("strata.adopt_shards()");
	connection_accept_unknown_changes(false);
	(void) connection_open_all(metadata_all_workers());
	remote_ddl_lock_for_seed();
	tables = metadata_write_tables(CATALOG_KIND_DISTRIBUTED);
	foreach(cell, tables)
		LockRelationOid(lfirst_oid(cell), AccessExclusiveLock);
	metadata_write_lock_placement();

	foreach(cell, tables)
	{
		const DistributedTable *table = metadata_table(lfirst_oid(cell));

		if (table == NULL || list_member_int(seen, table->colocation->id))
			continue; /* it was dropped meanwhile */
		seen = lappend_int(seen, table->colocation->id);
		adoptions = find_adoptions(table->colocation, adoptions);
	}
	if (adoptions == NIL && connection_newest_change() == 0)
		PG_RETURN_INT32(0);
	remote_ddl_note_placement(); /* what the workers have done is known from now on */
	foreach(cell, adoptions)
	{
		const Adoption *adoption = lfirst(cell);

		metadata_write_replace_shard(adoption->colocation_id, adoption->number, adoption->places);
	}
	foreach(cell, tables)
		CacheInvalidateRelcacheByRelid(lfirst_oid(cell)); /* plans */
	CommandCounterIncrement();
	PG_RETURN_INT32(list_length(adoptions));
}
