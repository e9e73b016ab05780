/*
 * table_move.c
 *		Moves a columnar table to another tablespace while it is read and written.
 *
 * Core's ALTER TABLE SET TABLESPACE holds AccessExclusiveLock while it copies.  Here all but the last few
 * pages are copied before, because of two properties of the store: an extent's bytes never change,
 * and everything that changes is in the catalog (the TOAST relation), which is small.
 *
 *	1. Rounds, under ShareUpdateExclusiveLock: the extents of the row groups that were added, into
 *	   a new file, one behind the other, encoded again if the tablespace calls for other
 *	   compression; then the catalog's pages that changed, the places in their records exchanged for
 *	   the new ones; the pages of the catalog's index as they are.
 *	2. When little is left, AccessExclusiveLock, if it is to be had at once: a waiting request stops
 *	   everybody who comes behind it.  If not, another round, after a while; and after some of
 *	   these the request waits, but no longer than LONGEST_WAIT: else under steady load of short
 *	   transactions there is never a moment without any.
 *	3. The last round, the metapage, and in pg_class the new files of all three: an ordinary commit
 *	   decides, and removes the old files.
 *
 * Old snapshots see in the new files what they saw in the old: catalog tuples are copied with their
 * transaction ids, dead ones too, and every extent that one of them names.  So nothing
 * waits for old snapshots.  What an aborted transaction left is not copied; its records name no extent
 * any more.
 *
 * A failure before the commit leaves the old files, and removes the new ones, but for a crash, for which
 * core forgets them: their numbers are committed to strata_columnar.table_move before, by whose rows
 * they are removed later (columnar_move_forget()).  The row goes with the commit.
 *
 * Commands that want a lock that conflicts with ours (ALTER, TRUNCATE, VACUUM, ANALYZE) go first: the move
 * looks for waiters between row groups, and ends with an error.
 *
 * Indexes of the table stay where they are, or those that are in the table's tablespace go along: page by
 * page, as that of the catalog.  Under lock all their pages are looked at, so large ones make the lock last.
 */
#include "store/table/table_move.h"

#include <limits.h>
#include <math.h>

#include "access/genam.h"
#include "access/multixact.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlogutils.h"
#include "catalog/catalog.h"
#include "catalog/pg_tablespace.h"
#include "catalog/storage.h"
#include "commands/tablecmds.h"
#include "commands/tablespace.h"
#include "commands/vacuum.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/nodes.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/smgr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include COMPAT_FILE_MAP_HEADER
#include "utils/resowner.h"
#include "utils/timestamp.h"

#include "fault_point.h"
#include "store/pages/page_run.h"
#include "store/pages/space.h"
#include "store/table/table_am.h"
#include "store/rows/write_buffer.h"

/* So many bytes may be left for the last round. */
#define LAST_ROUND_BYTES (2 * 1024 * 1024)

/* Pauses between tries of the lock, in ms: from the first, twice as long each time, to the longest. */
#define FIRST_PAUSE 5
#define LONGEST_PAUSE 500

/* The lock is waited for, in ms, a part of the pause before, from a pause of so many on. */
#define WAIT_SHARE 10
#define FIRST_WAIT_PAUSE 80
#define LONGEST_WAIT 40

/* Slept at most, in ms, between two looks for waiters. */
#define LONGEST_SLEEP 10

PG_FUNCTION_INFO_V1(columnar_move_files);
PG_FUNCTION_INFO_V1(columnar_move_run);
PG_FUNCTION_INFO_V1(columnar_move_forget);

/* ---- what may be moved ------------------------------------------------------------------------- */

/* The tablespace, in which this role may make files; ERROR if it may not. */
static Oid
find_tablespace(Name name)
{
	Oid tablespace = get_tablespace_oid(NameStr(*name), false);
	AclResult result = ACLCHECK_OK;

	/* the database's own is open to all who may create relations in it */
	if (tablespace != MyDatabaseTableSpace)
		result = compat_tablespace_aclcheck(tablespace, GetUserId());
	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_TABLESPACE, NameStr(*name));
	return tablespace;
}

/* ERROR unless the table is one that can be moved, by this role. */
static void
check_movable(Relation table)
{
	const char *name = RelationGetRelationName(table);

	if (!columnar_is_table(table))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("\"%s\" is not a columnar table", name),
				 errhint("Use ALTER TABLE ... SET TABLESPACE.")));
	if (!compat_owns_table(RelationGetRelid(table), GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, name);
	if (!RelationIsPermanent(table))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("cannot move \"%s\" while it is in use", name),
						errdetail("It is a temporary or unlogged table."),
						errhint("Use ALTER TABLE ... SET TABLESPACE, which locks it.")));
	if (!XLogIsNeeded())
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("cannot move \"%s\" while it is in use", name),
						errdetail("wal_level is minimal."),
						errhint("Use ALTER TABLE ... SET TABLESPACE, which locks it.")));
}

/* ---- giving way --------------------------------------------------------------------------------- */

void
table_move_give_way(TableMove *move)
{
	CHECK_FOR_INTERRUPTS();
	if (!move->locked && LockHasWaitersRelation(move->table, ShareUpdateExclusiveLock))
		ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
						errmsg("gave up moving \"%s\": another command waits for it",
							   RelationGetRelationName(move->table)),
						errhint("Move it again later.")));
}

static void
sleep_for(TableMove *move, double milliseconds)
{
	TimestampTz end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), milliseconds);

	for (;;)
	{
		double left = (double) (end - GetCurrentTimestamp()) / 1000;

		if (left <= 0)
			return;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 (long) ceil(Min(left, LONGEST_SLEEP)), PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		table_move_give_way(move);
	}
}

void
table_move_note_written(TableMove *move, uint64 bytes)
{
	double ahead;

	move->written += bytes;
	if (move->locked)
		return;
	table_move_give_way(move);
	if (move->bytes_per_second <= 0)
		return;
	ahead = 2.0 * move->written / move->bytes_per_second * 1000 -
			(double) (GetCurrentTimestamp() - move->started) / 1000;
	if (ahead > 1)
		sleep_for(move, ahead);
}

/* Takes a lock if it is to be had within so many ms. */
static bool
lock_within(Oid relid, LOCKMODE mode, int64 milliseconds)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	int lock_timeout = LockTimeout;
	volatile bool locked = true;

	if (milliseconds <= 0)
		return ConditionalLockRelationOid(relid, mode);
	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		LockTimeout = (int) Min(milliseconds, INT_MAX);
		LockRelationOid(relid, mode);
		LockTimeout = lock_timeout;
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		LockTimeout = lock_timeout;
		MemoryContextSwitchTo(context);
		if (geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
			PG_RE_THROW();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		locked = false;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return locked;
}

/* ---- rounds ------------------------------------------------------------------------------------- */

/*
 * The locks of the last round, if they are to be had in time.  Only the first may fail for long: who
 * has one of the others has it, too, or is just releasing it.  A lock that was had is a standby's
 * until the end of the transaction, so it is not tried in vain.
 */
static bool
lock_for_last_round(TableMove *move, int wait)
{
	ListCell *cell;
	bool all = true;

	if (!lock_within(RelationGetRelid(move->table), AccessExclusiveLock, wait))
		return false;
	if (move->toast != NULL)
		all = lock_within(RelationGetRelid(move->toast), AccessExclusiveLock, LONGEST_WAIT / 2);
	foreach(cell, move->index_oids)
		all = all && lock_within(lfirst_oid(cell), AccessExclusiveLock, LONGEST_WAIT / 2);
	if (!all)
		ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
						errmsg("gave up moving \"%s\": somebody looks at its TOAST relation",
							   RelationGetRelationName(move->table)),
						errhint("Move it again later.")));
	return true;
}

/* Rounds until the locks are there. */
static void
copy_until_locked(TableMove *move, int64 patience)
{
	TimestampTz since = 0;
	double pause = FIRST_PAUSE;

	for (;;)
	{
		int wait;

		if (table_move_copy_new(move) > LAST_ROUND_BYTES)
			continue;
		/* what is flushed now is not waited for under the lock */
		XLogFlush(XactLastRecEnd);
		wait = pause >= FIRST_WAIT_PAUSE ? (int) Min(pause / WAIT_SHARE, LONGEST_WAIT) : 0;
		if (lock_for_last_round(move, wait))
			return;
		if (since == 0)
			since = GetCurrentTimestamp();
		else if (TimestampDifferenceExceeds(since, GetCurrentTimestamp(), patience))
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("gave up moving \"%s\": it was in use all the time",
							RelationGetRelationName(move->table)),
					 errdetail("The lock was not to be had for " INT64_FORMAT " ms.", patience),
					 errhint("Long transactions that use the table hold a lock on it: see "
							 "pg_locks. Move it again later.")));
		sleep_for(move, pause);
		pause = Min(pause * 2, LONGEST_PAUSE);
	}
}

/* The planner takes the rows for each page from the last VACUUM or ANALYZE: the pages are others now. */
static void
adapt_statistics(Relation table, BlockNumber old_blocks)
{
	double pages = table->rd_rel->relpages;

	if (pages == 0 || old_blocks == 0)
		return;
	pages = rint(pages * RelationGetNumberOfBlocks(table) / old_blocks);
	compat_update_relstats(table, (BlockNumber) Max(pages, 1), table->rd_rel->reltuples, 0,
						   table->rd_rel->relhasindex, InvalidTransactionId, InvalidMultiXactId,
						   NULL, NULL, true);
}

/* What is left, under lock; then the new files are the table's. */
static void
finish(TableMove *move)
{
	BlockNumber old_blocks = RelationGetNumberOfBlocks(move->table);
	SpaceState state;

	move->locked = true;
	FAULT_POINT("move_locked");
	if (move->toast != NULL &&
		!equal(list_truncate(list_copy(move->index_oids), move->ntoast_indexes),
			   RelationGetIndexList(move->toast)))
		ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
						errmsg("gave up moving \"%s\": its TOAST relation was reindexed",
							   RelationGetRelationName(move->table)),
						errhint("Move it again.")));
	table_move_copy_new(move);
	if (RelationGetNumberOfBlocks(move->table) > 0)
	{
		space_read(move->table, &state);
		if (!move->has_metapage)
			page_run_extend(move->file, 1);
		space_write_copy(move->file, &state);
	}
	FAULT_POINT("move_copied");

	file_install(move->table, move->file);
	if (move->toast != NULL)
		file_install(move->toast, move->toast_copy.file);
	for (int i = 0; i < list_length(move->index_oids); i++)
		file_install(move->indexes[i], move->index_copies[i].file);
	CommandCounterIncrement();
	adapt_statistics(move->table, old_blocks);
	FAULT_POINT("move_installed");
}

/* ---- the move as a whole ------------------------------------------------------------------------ */

/* The indexes of a table that are in its tablespace. */
static List *
list_companions(Relation table)
{
	List *companions = NIL;
	ListCell *cell;

	foreach(cell, RelationGetIndexList(table))
		if (get_rel_tablespace(lfirst_oid(cell)) == table->rd_rel->reltablespace)
			companions = lappend_oid(companions, lfirst_oid(cell));
	return companions;
}

static void
open_toast(TableMove *move, Oid toast_id, int64 patience)
{
	if (!lock_within(toast_id, ShareUpdateExclusiveLock, patience))
		ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
						errmsg("cannot move \"%s\" now", RelationGetRelationName(move->table)),
						errdetail("Another command, such as VACUUM, holds a lock on its TOAST "
								  "relation."),
						errhint("Move it again later.")));
	move->toast = table_open(toast_id, NoLock);
	move->index_oids = RelationGetIndexList(move->toast);
	move->ntoast_indexes = list_length(move->index_oids);
}

/* Opens the table and its catalog: nobody else changes them but by writing rows. */
static void
open_table(TableMove *move, Oid relid, bool with_indexes, int64 patience)
{
	Oid toast_id;
	ListCell *cell;
	int n = 0;

	/* readers and writers do not queue behind this one */
	if (!lock_within(relid, ShareUpdateExclusiveLock, patience))
		ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
						errmsg("cannot move \"%s\" now", get_rel_name(relid)),
						errdetail("Another command, such as VACUUM, holds a lock on it."),
						errhint("Move it again later.")));
	move->table = table_open(relid, NoLock);
	check_movable(move->table);
	write_buffer_flush(move->table);
	toast_id = move->table->rd_rel->reltoastrelid;
	if (OidIsValid(toast_id))
		open_toast(move, toast_id, patience);
	if (with_indexes)
		move->index_oids = list_concat(move->index_oids, list_companions(move->table));
	move->indexes = palloc(sizeof(Relation) * Max(list_length(move->index_oids), 1));
	foreach(cell, move->index_oids)
		move->indexes[n++] = index_open(lfirst_oid(cell), AccessShareLock);
}

static Relation
make_file(TableMove *move, Oid tablespace, Datum number)
{
	Relation file = file_create(tablespace, DatumGetObjectId(number));

	move->files = lappend(move->files, file);
	return file;
}

static void
make_files(TableMove *move, Oid tablespace, ArrayType *numbers)
{
	int nindexes = list_length(move->index_oids);
	Datum *elements;
	int nelements;

	deconstruct_array(numbers, OIDOID, sizeof(Oid), true, TYPALIGN_INT, &elements, NULL,
					  &nelements);
	if (nelements != 1 + (move->toast != NULL) + nindexes)
		ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
						errmsg("cannot move \"%s\" now", RelationGetRelationName(move->table)),
						errdetail("Its TOAST relation or an index was just made."),
						errhint("Move it again.")));
	/* so that an abort is logged, with the files that it removes */
	(void) GetTopTransactionId();
	move->file = make_file(move, tablespace, elements[0]);
	if (move->toast == NULL)
		return;
	file_copy_begin(&move->toast_copy, move->toast, make_file(move, tablespace, elements[1]));
	move->index_copies = palloc(sizeof(FileCopy) * nindexes);
	for (int i = 0; i < nindexes; i++)
		file_copy_begin(&move->index_copies[i], move->indexes[i],
						make_file(move, tablespace, elements[2 + i]));
}

static void
discard_files(TableMove *move)
{
	ListCell *cell;

	foreach(cell, move->files)
		file_discard(lfirst(cell));
	move->files = NIL;
}

/* The options for encoding again; NULL if the new tablespace has the same. */
static TableOptions *
choose_options(TableMove *move, Oid tablespace)
{
	TableOptions *now = options_of_table(move->table);
	TableOptions *then = options_in_tablespace(move->table, tablespace);

	if (now->compression == then->compression && now->compression_level == then->compression_level)
		return NULL;
	return then;
}

static void
run(TableMove *move, Oid tablespace, ArrayType *numbers, int64 patience)
{
	table_move_begin_copy(move);
	move->started = GetCurrentTimestamp();
	make_files(move, tablespace, numbers);
	FAULT_POINT("move_files_made");
	copy_until_locked(move, patience);
	finish(move);
}

/*
 * columnar_move_run(table, tablespace, numbers, recompress, bytes_per_second, patience, with_indexes):
 * moves the table in this transaction, into files with these numbers, which are committed.  NULL for
 * bytes_per_second: no limit; patience in ms.  Returns the bytes written, without WAL.
 */
Datum
columnar_move_run(PG_FUNCTION_ARGS)
{
	TableMove move = {.bytes_per_second = PG_ARGISNULL(4) ? 0 : PG_GETARG_INT64(4)};
	Oid tablespace;

	PreventCommandIfReadOnly("columnar_move_run()");
	for (int i = 0; i < PG_NARGS(); i++)
	{
		if (i != 4 && PG_ARGISNULL(i))
			ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
							errmsg("only bytes_per_second of columnar_move_run() may be null")));
	}
	tablespace = find_tablespace(PG_GETARG_NAME(1));
	open_table(&move, PG_GETARG_OID(0), PG_GETARG_BOOL(6), PG_GETARG_INT64(5));
	if (!CheckRelationTableSpaceMove(move.table, tablespace))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("\"%s\" is in tablespace \"%s\" already",
							   RelationGetRelationName(move.table), NameStr(*PG_GETARG_NAME(1)))));
	if (PG_GETARG_BOOL(3))
		move.options = choose_options(&move, tablespace);
	PG_TRY();
	{
		run(&move, tablespace, PG_GETARG_ARRAYTYPE_P(2), PG_GETARG_INT64(5));
	}
	PG_FINALLY();
	{
		discard_files(&move);
	}
	PG_END_TRY();
	for (int i = 0; i < list_length(move.index_oids); i++)
		index_close(move.indexes[i], NoLock);
	if (move.toast != NULL)
		table_close(move.toast, NoLock);
	table_close(move.table, NoLock);
	PG_RETURN_INT64((int64) move.written);
}

/*
 * columnar_move_files(table, tablespace, with_indexes): numbers for its new files, those of its catalog
 * and of its indexes.
 */
Datum
columnar_move_files(PG_FUNCTION_ARGS)
{
	Oid tablespace = find_tablespace(PG_GETARG_NAME(1));
	Relation table = table_open(PG_GETARG_OID(0), AccessShareLock);
	List *index_oids = NIL;
	Datum *numbers;
	int count = 1;

	check_movable(table);
	if (OidIsValid(table->rd_rel->reltoastrelid))
	{
		Relation toast = table_open(table->rd_rel->reltoastrelid, AccessShareLock);

		index_oids = RelationGetIndexList(toast);
		count = 2 + list_length(index_oids);
		table_close(toast, AccessShareLock);
	}
	if (PG_GETARG_BOOL(2))
		count += list_length(list_companions(table));
	table_close(table, NoLock);
	numbers = palloc(sizeof(Datum) * count);
	for (int i = 0; i < count; i++)
		numbers[i] = ObjectIdGetDatum(compat_new_file_number(tablespace));
	PG_RETURN_ARRAYTYPE_P(construct_array(numbers, count, OIDOID, sizeof(Oid), true, TYPALIGN_INT));
}

/*
 * columnar_move_forget(tablespace, numbers): removes files that a crash has left, at the commit; returns
 * how many.  Those that a relation uses stay.
 */
Datum
columnar_move_forget(PG_FUNCTION_ARGS)
{
	Oid tablespace = PG_GETARG_OID(0);
	Datum *numbers;
	int count;
	int32 removed = 0;

	deconstruct_array(PG_GETARG_ARRAYTYPE_P(1), OIDOID, sizeof(Oid), true, TYPALIGN_INT, &numbers,
					  NULL, &count);
	for (int i = 0; i < count; i++)
	{
		Oid number = DatumGetObjectId(numbers[i]);
		Relation file;

		if (OidIsValid(compat_relation_of_file(tablespace, number)))
			continue;
		file = CreateFakeRelcacheEntry(compat_make_file_locator(tablespace, MyDatabaseId, number));
		if (smgrexists(RelationGetSmgr(file), MAIN_FORKNUM))
		{
			/* so that the commit is logged, with the files that it removes */
			(void) GetTopTransactionId();
			RelationDropStorage(file);
			removed++;
		}
		FreeFakeRelcacheEntry(file);
	}
	PG_RETURN_INT32(removed);
}
