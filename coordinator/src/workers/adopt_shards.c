/*
 * adopt_shards.c
 *		A coordinator that was restored to an earlier time than its workers looks for shards where they are now.
 *
 * Shards that have moved since are not where its metadata says.  An empty place is no error, as a shard may be empty, so such a
 * coordinator uses no worker (wire/connection_open.c) until they are found here.  What the workers hold decides: a move is
 * committed on all nodes or on none, so each shard is whole on one worker.  The metadata follows where the worker that it
 * names lacks one of the group's tables' partitions, and exactly one other worker has all of them.
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
#include "stream/remote_command.h"
#include "stream/remote_ddl.h"
#include "wire/connection.h"

PG_FUNCTION_INFO_V1(strata_adopt_shards);

/* A shard that is elsewhere. */
typedef struct Adoption
{
	int colocation_id;
	int remainder;
	int worker_id;
} Adoption;

/* The remainders of which a worker has all tables' partitions. */
static Bitmapset *
find_whole_shards(int worker_id, const List *tables, int modulus)
{
	Bitmapset *found = NULL;
	StringInfoData sql;
	ListCell *cell;
	char *text;
	char *remainder;

	initStringInfo(&sql);
	appendStringInfo(&sql,
					 "SELECT pg_catalog.string_agg(s.remainder::pg_catalog.text, ',') FROM ("
					 "SELECT l.remainder FROM strata_worker.shard_list() AS l "
					 "WHERE l.modulus OPERATOR(pg_catalog.=) %d AND "
					 "pg_catalog.format('%%I.%%I', l.schema_name, l.table_name) "
					 "OPERATOR(pg_catalog.=) ANY (ARRAY[",
					 modulus);
	foreach(cell, tables)
		appendStringInfo(&sql, "%s%s", foreach_current_index(cell) > 0 ? ", " : "",
						 quote_literal_cstr(relation_name_qualified(lfirst_oid(cell))));
	appendStringInfo(&sql,
					 "]::pg_catalog.text[]) GROUP BY l.remainder "
					 "HAVING pg_catalog.count(*) OPERATOR(pg_catalog.=) %d) AS s",
					 list_length(tables));
	text = remote_command_fetch(worker_id, sql.data);
	while (text != NULL && (remainder = strsep(&text, ",")) != NULL)
		found = bms_add_member(found, pg_strtoint32(remainder));
	return found;
}

/* The only worker that has the whole shard; 0 if there is none, or several. */
static int
find_holder(Bitmapset *const *whole, int remainder)
{
	int holder = 0;
	int worker_id = -1;

	while ((worker_id = bms_next_member(metadata_all_workers(), worker_id)) >= 0)
	{
		if (!bms_is_member(remainder, whole[worker_id]))
			continue;
		if (holder != 0)
			return 0;
		holder = worker_id;
	}
	return holder;
}

/* The group's shards that are elsewhere; WARNING for those that are nowhere, but for those of a worker that is written off. */
static List *
find_adoptions(const Colocation *colocation, List *adoptions)
{
	const Bitmapset *workers = metadata_all_workers();
	List *tables = metadata_write_group_tables(colocation->id);
	Bitmapset **whole = palloc0((bms_prev_member(workers, -1) + 1) * sizeof(Bitmapset *));
	int worker_id = -1;

	while ((worker_id = bms_next_member(workers, worker_id)) >= 0)
		whole[worker_id] = find_whole_shards(worker_id, tables, colocation->shard_count);
	for (int remainder = 0; remainder < colocation->shard_count; remainder++)
	{
		int place = colocation->shard_workers[remainder];
		const char *lost_with = colocation->lost_with[remainder];
		Adoption *adoption;

		if (lost_with == NULL && bms_is_member(remainder, whole[place]))
			continue;
		worker_id = find_holder(whole, remainder);
		if (worker_id == 0 && lost_with != NULL)
			continue;
		if (worker_id == 0)
		{
			ereport(WARNING, (errmsg("shard %d of %s is not whole on any worker alone", remainder,
									 shard_map_describe_tables(colocation)),
							  errdetail("Worker \"%s\", which should have it, has not.",
										metadata_worker(place)->name)));
			continue;
		}
		ereport(NOTICE,
				(errmsg("shard %d of %s is on worker \"%s\", not on worker \"%s\"", remainder,
						shard_map_describe_tables(colocation), metadata_worker(worker_id)->name,
						lost_with != NULL ? lost_with : metadata_worker(place)->name)));
		adoption = palloc(sizeof(Adoption));
		*adoption = (Adoption){colocation->id, remainder, worker_id};
		adoptions = lappend(adoptions, adoption);
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
	remote_ddl_note_change(); /* what the workers have done is known from now on */
	foreach(cell, adoptions)
	{
		const Adoption *adoption = lfirst(cell);

		metadata_write_place_shard(adoption->colocation_id, adoption->remainder,
								   adoption->worker_id);
	}
	foreach(cell, tables)
		CacheInvalidateRelcacheByRelid(lfirst_oid(cell)); /* plans */
	CommandCounterIncrement();
	PG_RETURN_INT32(list_length(adoptions));
}
