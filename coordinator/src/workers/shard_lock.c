/*
 * shard_lock.c
 *		What a move of a shard holds while it copies, and for whom it gives way (shard_move.c).
 */
#include "postgres.h"

#include "workers/shard_lock.h"

#include "access/table.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "cluster/constraint.h"
#include "cluster/metadata.h"
#include "table/foreign_key_rules.h"
#include "wire/worker_use.h"

/* Reference tables that the table's foreign keys point to. */
static List *
list_referenced(Oid relation)
{
	List *found = NIL;
	ListCell *cell;

	foreach(cell, foreign_key_rules_list(relation))
	{
		ForeignKeyTables tables = constraint_key_tables(lfirst_oid(cell));
		const DistributedTable *table = metadata_table(tables.referenced);

		if (tables.referencing == relation && table != NULL && table->kind == TABLE_REFERENCE)
			found = list_append_unique_oid(found, tables.referenced);
	}
	return found;
}

List *
shard_lock_list_with_keys(const List *tables)
{
	List *found = NIL;
	ListCell *cell;

	foreach(cell, tables)
	{
		if (foreign_key_rules_on_workers(lfirst_oid(cell)))
			found = lappend_oid(found, lfirst_oid(cell));
	}
	return found;
}

bool
shard_lock_must_exclude_writers(const List *with_keys)
{
	ListCell *cell;

	foreach(cell, with_keys)
	{
		if (metadata_has_periods(metadata_table(lfirst_oid(cell))))
			return true;
	}
	return false;
}

/* What the move holds on a shell while it copies. */
static LOCKMODE
get_lock_mode(const ShardMove *move)
{
	return move->exclusive ? ExclusiveLock : ShareUpdateExclusiveLock;
}

void
shard_lock_tables(ShardMove *move)
{
	ListCell *cell;

	foreach(cell, move->tables)
	{
		LockRelationOid(lfirst_oid(cell), get_lock_mode(move));
		LockRelationOid(lfirst_oid(cell), ShareUpdateExclusiveLock); /* for give_way() */
	}
	foreach(cell, move->tables)
		move->referenced = list_concat_unique_oid(move->referenced,
												  list_referenced(lfirst_oid(cell)));
	list_sort(move->referenced, list_oid_cmp);
	foreach(cell, move->exclusive ? move->referenced : NIL)
		LockRelationOid(lfirst_oid(cell), ShareLock);
}

/* Does somebody wait for a lock on the table that conflicts with this one of ours? */
static bool
is_awaited(Oid relation_oid, LOCKMODE mode)
{
	Relation relation = table_open(relation_oid, NoLock);
	bool awaited = LockHasWaitersRelation(relation, mode);

	table_close(relation, NoLock);
	return awaited;
}

/* The switch has taken its locks, here or in an earlier move of this transaction. */
static bool
has_switched(Oid relation_oid)
{
	Relation relation = table_open(relation_oid, NoLock);
	bool locked = CheckRelationLockedByMe(relation, AccessExclusiveLock, false);

	table_close(relation, NoLock);
	return locked;
}

void
shard_lock_give_way(void *argument)
{
	const ShardMove *move = argument;
	const char *waiting = NULL;
	ListCell *cell;
	bool held = worker_use_is_wanted(move->source);

	CHECK_FOR_INTERRUPTS();
	if (has_switched(linitial_oid(move->tables)))
		return;
	foreach(cell, move->tables)
	{
		if (is_awaited(lfirst_oid(cell), ShareUpdateExclusiveLock))
			waiting = "another command waits for it";
	}
	foreach(cell, move->parts)
		held = held || worker_use_is_wanted(((ShardPart *) lfirst(cell))->worker_id);
	if (held)
		waiting = "its worker is held"; /* when nobody uses it any more */
	if (waiting != NULL)
		ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
						errmsg("gave up moving a shard of table \"%s\": %s",
							   get_rel_name(linitial_oid(move->tables)), waiting),
						errhint("Move it again later.")));
}

bool
shard_lock_is_awaited(const ShardMove *move)
{
	ListCell *cell;

	foreach(cell, move->tables)
	{
		if (is_awaited(lfirst_oid(cell), get_lock_mode(move)))
			return true;
	}
	foreach(cell, move->exclusive ? move->referenced : NIL)
	{
		if (is_awaited(lfirst_oid(cell), ShareLock))
			return true;
	}
	return false;
}

void
shard_lock_report_changed_group(Oid relation)
{
	ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					errmsg("the colocation group of \"%s\" has changed", get_rel_name(relation)),
					errhint("Move the shard again.")));
}
