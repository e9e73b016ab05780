/*
 * relation_vacuum.c
 *		VACUUM of a columnar table.
 *
 * What it does: vacuums the TOAST relation, i.e. the catalog (core would do that
 * after this call, which is too late to know what became free); removes index
 * entries of rows that no snapshot sees; finds the free extents; cuts the end of
 * the file off; records statistics.
 *
 * What it never does is write catalog tuples: the transaction id of a lazy VACUUM
 * is left out of other snapshots, so a reader could take a tuple that it wrote for
 * aborted.  Compaction runs in a transaction of its own, in the background, and is
 * asked for here when it is due.
 */
#include "store/table/table_am.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/multixact.h"
#include "access/table.h"
#include "catalog/storage.h"
#include "commands/vacuum.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "store/catalog/merge_request.h"
#include "store/table/compaction.h"
#include "store/catalog/row_group.h"
#include "store/pages/space.h"

/* The file is cut when its free end has so many blocks, or is such a share of it. */
#define TRUNCATE_BLOCKS 1024
#define TRUNCATE_SHARE 16

/* ---- rows that index entries may point to ------------------------------------------------------- */

/* The row numbers of one group; present: which of them exist, if not all do (by a bitmap). */
typedef struct RowRange
{
	uint64 first;
	uint64 span;
	uint64 reach; /* end of the range that reaches furthest among this and those before it */
	uint64 *present;
	bool being_written; /* by a transaction that may give numbers back behind the range */
} RowRange;

typedef struct LiveRows
{
	RowRange *ranges; /* by first row, disjoint or overlapping only with older versions */
	uint32 nranges;
	uint64 end; /* row numbers from here on were given out after the list was made */
	DeletedRows *dead;
	uint64 removed;
} LiveRows;

static int
compare_ranges(const void *left, const void *right)
{
	uint64 a = ((const RowRange *) left)->first;
	uint64 b = ((const RowRange *) right)->first;

	return a < b ? -1 : a > b;
}

/* A bitmap of the row numbers that a group with gaps has. */
static uint64 *
read_present_rows(GroupCatalog *catalog, const GroupRecord *record)
{
	uint64 *present = MemoryContextAllocExtended(CurrentMemoryContext,
												 ((record->row_span + 63) / 64) * sizeof(uint64),
												 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	RowGroupReader *reader = row_group_reader_open(catalog, record, NULL);
	uint64 *rows = palloc(sizeof(uint64) * BLOCK_ROWS);

	for (uint32 block = 0; block < row_group_reader_nblocks(reader); block++)
	{
		uint32 nrows = Min(BLOCK_ROWS, record->nrows - block * BLOCK_ROWS);

		row_group_reader_row_numbers(reader, block, rows);
		for (uint32 i = 0; i < nrows; i++)
		{
			uint64 offset = rows[i] - record->first_row;

			present[offset / 64] |= UINT64CONST(1) << (offset % 64);
		}
	}
	pfree(rows);
	row_group_reader_close(reader);
	return present;
}

/* Collect the rows that some snapshot may see, now or later. */
static void
list_live_rows(GroupCatalog *catalog, TransactionId oldest_xmin, LiveRows *live)
{
	SpaceState space;
	GroupTuple *tuples;
	uint32 ntuples;

	/* in one: between the two a range could be given back, and taken again by somebody else */
	space_lock(catalog->relation);
	space_read(catalog->relation, &space);
	live->end = space.next_row;
	tuples = compaction_list(catalog, oldest_xmin, &ntuples);
	space_unlock(catalog->relation);
	live->ranges = palloc(sizeof(RowRange) * Max(ntuples, 1));
	live->nranges = 0;
	for (uint32 i = 0; i < ntuples; i++)
	{
		const GroupRecord *record = &tuples[i].entry.record;
		RowRange *range = &live->ranges[live->nranges];

		if (tuples[i].status == HEAPTUPLE_DEAD)
			continue;
		/* older versions of a rewritten group only have rows that are dead, besides its own */
		if (tuples[i].status == HEAPTUPLE_RECENTLY_DEAD && live->nranges > 0 &&
			range[-1].first == record->first_row && range[-1].span >= record->row_span &&
			range[-1].present == NULL)
			continue;
		range->first = record->first_row;
		range->span = record->row_span;
		range->present = NULL;
		range->being_written = group_tuple_is_being_written(&tuples[i]);
		if (record->state != GROUP_OPEN && (record->flags & GROUP_HAS_ROW_NUMBERS) &&
			tuples[i].status == HEAPTUPLE_LIVE)
			range->present = read_present_rows(catalog, record);
		live->nranges++;
	}
	qsort(live->ranges, live->nranges, sizeof(RowRange), compare_ranges);
	for (uint32 i = 0; i < live->nranges; i++)
	{
		RowRange *range = &live->ranges[i];
		uint64 next = i + 1 < live->nranges ? range[1].first : live->end;

		/*
		 * Who stores a buffer first shortens its record, then gives the numbers behind it
		 * back.  In between they are in no record, yet somebody may take them before the
		 * indexes are read.
		 */
		if (range->being_written && range->first + range->span < next)
			range->span = next - range->first;
		range->reach = Max(range->first + range->span, i > 0 ? range[-1].reach : 0);
	}
	live->dead = deleted_rows_dead(catalog, oldest_xmin);
	pfree(tuples);
}

/* Is the row in a range, and there? */
static bool
has_row(const RowRange *range, uint64 row)
{
	uint64 offset = row - range->first;

	if (row < range->first || offset >= range->span)
		return false;
	return range->present == NULL || ((range->present[offset / 64] >> (offset % 64)) & 1);
}

/* IndexBulkDeleteCallback: may this entry be removed? */
static bool
is_dead_entry(ItemPointer tid, void *argument)
{
	LiveRows *live = argument;
	uint64 row = row_number_from_tid(tid);
	uint32 low = 0;
	uint32 high = live->nranges;

	if (row >= live->end)
		return false;
	while (low < high)
	{
		uint32 middle = low + (high - low) / 2;

		if (live->ranges[middle].first <= row)
			low = middle + 1;
		else
			high = middle;
	}
	/* the nearest range, and older versions of groups that reach further */
	for (; low > 0 && live->ranges[low - 1].reach > row; low--)
	{
		if (has_row(&live->ranges[low - 1], row))
		{
			if (deleted_rows_contains(live->dead, row))
				break;
			return false;
		}
	}
	live->removed++;
	return true;
}

/* Remove dead entries from all indexes and let them clean up. */
static void
vacuum_indexes(Relation relation, GroupCatalog *catalog, TransactionId oldest_xmin,
			   BufferAccessStrategy strategy, double rows)
{
	Relation *indexes;
	int nindexes;
	LiveRows live = {0};

	/* empty when the catalog was opened; entries that come now are not for us to judge */
	if (catalog->toast == NULL)
		return;
	vac_open_indexes(relation, RowExclusiveLock, &nindexes, &indexes);
	if (nindexes > 0)
		list_live_rows(catalog, oldest_xmin, &live);
	for (int i = 0; i < nindexes; i++)
	{
		IndexVacuumInfo info = {0};
		IndexBulkDeleteResult *result;

		info.index = indexes[i];
		compat_index_vacuum_set_table(&info, relation);
		info.estimated_count = true;
		info.message_level = DEBUG2;
		info.num_heap_tuples = rows;
		info.strategy = strategy;
		result = index_bulk_delete(&info, NULL, is_dead_entry, &live);
		info.estimated_count = false;
		result = index_vacuum_cleanup(&info, result);
		if (result != NULL && !result->estimated_count)
			vac_update_relstats(indexes[i], result->num_pages, result->num_index_tuples, 0, false,
								InvalidTransactionId, InvalidMultiXactId, NULL, NULL, false);
	}
	vac_close_indexes(nindexes, indexes, NoLock);
}

/* ---- space -------------------------------------------------------------------------------------- */

static int
compare_extents(const void *left, const void *right)
{
	BlockNumber a = ((const Extent *) left)->first;
	BlockNumber b = ((const Extent *) right)->first;

	return a < b ? -1 : a > b;
}

/*
 * Find what no record that is physically present names.  Under the space lock: no
 * extent is taken meanwhile.  Returns the first block of the free end of the file,
 * which counts as free only if `keep_end`.
 */
static BlockNumber
find_free_extents(GroupCatalog *catalog, TransactionId oldest_xmin, bool keep_end)
{
	Relation relation = catalog->relation;
	BlockNumber nblocks = RelationGetNumberOfBlocks(relation);
	uint32 ntuples;
	GroupTuple *tuples = group_catalog_list_all(catalog, oldest_xmin, &ntuples);
	Extent *used = palloc(sizeof(Extent) * Max(ntuples, 1));
	Extent *unused = palloc(sizeof(Extent) * (ntuples + 1));
	uint32 nused = 0;
	uint32 nunused = 0;
	BlockNumber next = 1;

	for (uint32 i = 0; i < ntuples; i++)
	{
		const GroupRecord *record = &tuples[i].entry.record;

		if (record->nblocks == 0 || record->first_block == InvalidBlockNumber)
			continue;
		used[nused].first = record->first_block;
		used[nused++].nblocks = record->nblocks;
	}
	qsort(used, nused, sizeof(Extent), compare_extents);
	for (uint32 i = 0; i < nused; i++)
	{
		if (used[i].first > next)
		{
			unused[nunused].first = next;
			unused[nunused++].nblocks = used[i].first - next;
		}
		next = Max(next, used[i].first + used[i].nblocks);
	}
	if (next < nblocks && keep_end)
	{
		unused[nunused].first = next;
		unused[nunused++].nblocks = nblocks - next;
	}
	space_set_free(relation, unused, nunused);
	pfree(used);
	pfree(unused);
	pfree(tuples);
	return next;
}

/* Cut the free end of the file off, if nobody is using the table. */
static void
truncate_file(GroupCatalog *catalog, TransactionId oldest_xmin, BlockNumber end)
{
	Relation relation = catalog->relation;
	BlockNumber nblocks = RelationGetNumberOfBlocks(relation);

	if (end >= nblocks ||
		(nblocks - end < TRUNCATE_BLOCKS && nblocks - end < nblocks / TRUNCATE_SHARE))
		return;
	if (!ConditionalLockRelation(relation, AccessExclusiveLock))
		return;
	space_lock(relation);
	/* extents may have been taken before the lock was */
	end = find_free_extents(catalog, oldest_xmin, false);
	if (end < RelationGetNumberOfBlocks(relation))
		RelationTruncate(relation, end);
	space_unlock(relation);
	UnlockRelation(relation, AccessExclusiveLock);
}

/* ---- VACUUM ------------------------------------------------------------------------------------- */

/* Vacuum the catalog, unless somebody else is at it. */
static void
vacuum_catalog(Relation relation, struct VacuumParams *params, BufferAccessStrategy strategy)
{
	Oid toast_id = relation->rd_rel->reltoastrelid;
	Relation toast;

	if (!OidIsValid(toast_id) || !ConditionalLockRelationOid(toast_id, ShareUpdateExclusiveLock))
		return;
	toast = table_open(toast_id, NoLock);
	heap_vacuum_rel(toast, params, strategy);
	table_close(toast, NoLock);
}

void
columnar_vacuum(Relation relation, struct VacuumParams *params, BufferAccessStrategy strategy)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "columnar vacuum",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	TransactionId oldest_xmin = GetOldestNonRemovableTransactionId(relation);
	GroupCatalog *catalog;
	GroupTuple *tuples;
	DeletedRows *dead;
	uint32 ntuples;
	double rows = 0;
	double dead_rows;
	BlockNumber end;

	vacuum_catalog(relation, params, strategy);

	catalog = group_catalog_open(relation, AccessShareLock);
	tuples = compaction_list(catalog, oldest_xmin, &ntuples);
	for (uint32 i = 0; i < ntuples; i++)
		if (tuples[i].status == HEAPTUPLE_LIVE)
			rows += tuples[i].entry.record.nrows;
	dead = deleted_rows_load(catalog, SnapshotAny);
	dead_rows = (double) deleted_rows_count(dead, 0, ROW_NUMBER_MAX);
	rows = Max(rows - dead_rows, 0);

	if (params->index_cleanup != VACOPTVALUE_DISABLED)
		vacuum_indexes(relation, catalog, oldest_xmin, strategy, rows);

	if (RelationGetNumberOfBlocks(relation) > 0)
	{
		space_lock(relation);
		end = find_free_extents(catalog, oldest_xmin, true);
		space_unlock(relation);
		if (params->truncate != VACOPTVALUE_DISABLED)
			truncate_file(catalog, oldest_xmin, end);
	}

	vac_update_relstats(relation, RelationGetNumberOfBlocks(relation), rows, 0,
						relation->rd_rel->relhasindex, oldest_xmin, GetOldestMultiXactId(), NULL,
						NULL, false);
	pgstat_report_vacuum(RelationGetRelid(relation), relation->rd_rel->relisshared,
						 (PgStat_Counter) rows, 0);
	group_catalog_close(catalog);

	if (compaction_is_due(relation))
		merge_request_note(RelationGetRelid(relation));
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
}
