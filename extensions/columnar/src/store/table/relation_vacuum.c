/*
 * relation_vacuum.c
 *		VACUUM of a columnar table.
 *
 * What it does: vacuums the TOAST relation, i.e. the catalog (core would do that
 * after this call, which is too late to know what became free); removes index
 * entries of rows that no snapshot sees; finds the free extents; cuts the end of
 * the file off; records statistics.
 *
 * Index entries are judged by what is known of their rows: those of no row group, of a number that its
 * group does not have, or that are dead can go.  What is known of a part of the row numbers fits
 * into maintenance_work_mem; there is a pass over the indexes for each part.
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
#include "postmaster/autovacuum.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "store/catalog/merge_request.h"
#include "store/table/compaction.h"
#include "store/catalog/row_group.h"
#include "store/pages/space.h"

/* The file is cut when its free end has so many blocks, or is such a share of it. */
#define TRUNCATE_BLOCKS 1024
#define TRUNCATE_SHARE 16

/* ---- rows that index entries may point to ------------------------------------------------------- */

/* The row numbers of one group. */
typedef struct RowRange
{
	GroupRecord record;
	uint64 first;
	uint64 span;
	uint64 reach;		/* end of the range that reaches furthest among this and those before it */
	bool has_gaps;		/* not all numbers are those of rows: what there are is read for a pass */
	bool being_written; /* by a transaction that may give numbers back behind the range */
	uint64 *present;	/* during a pass: a bitmap of the numbers that exist, or */
	uint64 *numbers;	/* these, sorted, if that is smaller; or neither */
} RowRange;

typedef struct LiveRows
{
	RowRange *ranges; /* by first row, disjoint or overlapping only with older versions */
	uint32 nranges;
	uint64 end; /* row numbers from here on were given out after the list was made */

	/* the pass */
	uint64 from; /* entries of rows in [from, to) are looked at */
	uint64 to;
	DeletedRows *dead;
} LiveRows;

static int
compare_ranges(const void *left, const void *right)
{
	uint64 a = ((const RowRange *) left)->first;
	uint64 b = ((const RowRange *) right)->first;

	return a < b ? -1 : a > b;
}

static int
compare_numbers(const void *left, const void *right)
{
	uint64 a = *(const uint64 *) left;
	uint64 b = *(const uint64 *) right;

	return a < b ? -1 : a > b;
}

/* Is a bitmap of a range's numbers smaller than a list? */
static bool
is_dense(const RowRange *range)
{
	return range->span / 64 <= range->record.nrows;
}

/* What the numbers of a range with gaps take. */
static Size
numbers_size(const RowRange *range)
{
	return sizeof(uint64) * (is_dense(range) ? range->span / 64 + 1 : range->record.nrows);
}

/* Reads which row numbers a group with gaps has. */
static void
read_numbers(GroupCatalog *catalog, RowRange *range)
{
	const GroupRecord *record = &range->record;
	bool dense = is_dense(range);
	uint64 *all = palloc0(numbers_size(range));
	RowGroupReader *reader = row_group_reader_open(catalog, record, NULL);
	uint64 *rows = palloc(sizeof(uint64) * BLOCK_ROWS);

	for (uint32 block = 0; block < row_group_reader_nblocks(reader); block++)
	{
		uint32 first = block * BLOCK_ROWS;
		uint32 nrows = Min(BLOCK_ROWS, record->nrows - first);

		compat_vacuum_delay_point(false);
		row_group_reader_row_numbers(reader, block, rows);
		for (uint32 i = 0; dense && i < nrows; i++)
		{
			uint64 offset = rows[i] - record->first_row;

			all[offset / 64] |= UINT64CONST(1) << (offset % 64);
		}
		if (!dense)
			memcpy(&all[first], rows, sizeof(uint64) * nrows);
	}
	pfree(rows);
	row_group_reader_close(reader);
	if (!dense && !(record->flags & GROUP_ROWS_ASCEND))
		qsort(all, record->nrows, sizeof(uint64), compare_numbers);
	range->present = dense ? all : NULL;
	range->numbers = dense ? NULL : all;
}

/* List what has rows that some snapshot may see, now or later. */
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
	live->ranges = palloc_extended(sizeof(RowRange) * Max(ntuples, 1), MCXT_ALLOC_HUGE);
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
			!range[-1].has_gaps)
			continue;
		memset(range, 0, sizeof(RowRange));
		range->record = *record;
		range->first = record->first_row;
		range->span = record->row_span;
		range->being_written = group_tuple_is_being_written(&tuples[i]);
		range->has_gaps = record->state != GROUP_OPEN && (record->flags & GROUP_HAS_ROW_NUMBERS) &&
						  tuples[i].status == HEAPTUPLE_LIVE;
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
	pfree(tuples);
}

/*
 * Begin the next pass: as many row numbers from live->from on as what must be known of
 * them fits into memory, which is about half for the dead ones and half for those of groups with
 * gaps (of one group at least: 1 MB at most).  In the current memory context.
 */
static void
begin_pass(GroupCatalog *catalog, TransactionId oldest_xmin, Size memory, LiveRows *live)
{
	Size used = 0;

	live->to = live->end;
	live->dead = deleted_rows_dead_between(catalog, oldest_xmin, live->from, &live->to, memory / 4);
	for (uint32 i = 0; i < live->nranges && live->ranges[i].first < live->to; i++)
	{
		RowRange *range = &live->ranges[i];

		range->present = range->numbers = NULL;
		if (!range->has_gaps || range->first + range->span <= live->from)
			continue;
		if (used > 0 && used + numbers_size(range) > memory / 2 && range->first > live->from)
		{
			live->to = range->first;
			break;
		}
		used += numbers_size(range);
		read_numbers(catalog, range);
	}
}

/* Is the row in a range, and there? */
static bool
has_row(const RowRange *range, uint64 row)
{
	uint64 offset = row - range->first;

	if (row < range->first || offset >= range->span)
		return false;
	if (range->present != NULL)
		return (range->present[offset / 64] >> (offset % 64)) & 1;
	return range->numbers == NULL || bsearch(&row, range->numbers, range->record.nrows,
											 sizeof(uint64), compare_numbers) != NULL;
}

/* IndexBulkDeleteCallback: may this entry be removed? */
static bool
is_dead_entry(ItemPointer tid, void *argument)
{
	LiveRows *live = argument;
	uint64 row = row_number_from_tid(tid);
	uint32 low = 0;
	uint32 high = live->nranges;

	if (row < live->from || row >= live->to)
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
			return deleted_rows_contains(live->dead, row);
	}
	return true;
}

/* Remove dead entries from all indexes; returns in how many passes. */
static uint32
remove_dead_entries(GroupCatalog *catalog, TransactionId oldest_xmin, const IndexVacuumInfo *infos,
					int nindexes, IndexBulkDeleteResult **results)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "columnar vacuum pass",
												  ALLOCSET_DEFAULT_SIZES);
	int kilobytes = compat_is_autovacuum_worker() && autovacuum_work_mem != -1
						? autovacuum_work_mem
						: maintenance_work_mem;
	LiveRows live = {0};
	uint32 npasses = 0;

	list_live_rows(catalog, oldest_xmin, &live);
	for (live.from = 0; live.from < live.end; live.from = live.to)
	{
		MemoryContext caller = MemoryContextSwitchTo(context);

		begin_pass(catalog, oldest_xmin, (Size) kilobytes * 1024, &live);
		MemoryContextSwitchTo(caller);
		for (int i = 0; i < nindexes; i++)
		{
			IndexVacuumInfo info = infos[i];

			results[i] = index_bulk_delete(&info, results[i], is_dead_entry, &live);
		}
		MemoryContextReset(context);
		npasses++;
	}
	MemoryContextDelete(context);
	return npasses;
}

/* Remove dead entries from all indexes and let them clean up. */
static void
vacuum_indexes(Relation relation, GroupCatalog *catalog, TransactionId oldest_xmin,
			   BufferAccessStrategy strategy, double rows, int message_level)
{
	Relation *indexes;
	int nindexes;
	IndexVacuumInfo *infos;
	IndexBulkDeleteResult **results;
	uint32 npasses = 0;

	/* empty when the catalog was opened; entries that come now are not for us to judge */
	if (catalog->toast == NULL)
		return;
	vac_open_indexes(relation, RowExclusiveLock, &nindexes, &indexes);
	infos = palloc0(sizeof(IndexVacuumInfo) * Max(nindexes, 1));
	results = palloc0(sizeof(IndexBulkDeleteResult *) * Max(nindexes, 1));
	for (int i = 0; i < nindexes; i++)
	{
		infos[i].index = indexes[i];
		compat_index_vacuum_set_table(&infos[i], relation);
		infos[i].estimated_count = true;
		infos[i].message_level = DEBUG2;
		infos[i].num_heap_tuples = rows;
		infos[i].strategy = strategy;
	}
	if (nindexes > 0)
		npasses = remove_dead_entries(catalog, oldest_xmin, infos, nindexes, results);
	for (int i = 0; i < nindexes; i++)
	{
		IndexBulkDeleteResult *result;

		infos[i].estimated_count = false;
		result = index_vacuum_cleanup(&infos[i], results[i]);
		if (result == NULL)
			continue;
		ereport(message_level,
				(errmsg("index \"%s\": %.0f dead entries removed, %.0f left; passes: %u",
						RelationGetRelationName(indexes[i]), result->tuples_removed,
						result->num_index_tuples, npasses)));
		if (!result->estimated_count)
			compat_update_relstats(indexes[i], result->num_pages, result->num_index_tuples, 0,
								   false, InvalidTransactionId, InvalidMultiXactId, NULL, NULL,
								   false);
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
vacuum_catalog(Relation relation, CompatVacuumParams *params, BufferAccessStrategy strategy)
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
columnar_vacuum(Relation relation, CompatVacuumParams *params, BufferAccessStrategy strategy)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "columnar vacuum",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	TransactionId oldest_xmin = GetOldestNonRemovableTransactionId(relation);
	TimestampTz start = GetCurrentTimestamp();
	GroupCatalog *catalog;
	GroupTuple *tuples;
	uint32 ntuples;
	double rows = 0;
	BlockNumber end;

	vacuum_catalog(relation, params, strategy);

	catalog = group_catalog_open(relation, AccessShareLock);
	tuples = compaction_list(catalog, oldest_xmin, &ntuples);
	for (uint32 i = 0; i < ntuples; i++)
		if (tuples[i].status == HEAPTUPLE_LIVE)
			rows += tuples[i].entry.record.nrows;
	pfree(tuples);
	rows = Max(rows - (double) deleted_rows_probe(catalog, SnapshotAny, PG_UINT64_MAX), 0);

	if (params->index_cleanup != VACOPTVALUE_DISABLED)
		vacuum_indexes(relation, catalog, oldest_xmin, strategy, rows,
					   (params->options & VACOPT_VERBOSE) ? INFO : DEBUG2);

	if (RelationGetNumberOfBlocks(relation) > 0)
	{
		space_lock(relation);
		end = find_free_extents(catalog, oldest_xmin, true);
		space_unlock(relation);
		if (params->truncate != VACOPTVALUE_DISABLED)
			truncate_file(catalog, oldest_xmin, end);
	}

	compat_update_relstats(relation, RelationGetNumberOfBlocks(relation), rows, 0,
						   relation->rd_rel->relhasindex, oldest_xmin, GetOldestMultiXactId(), NULL,
						   NULL, false);
	compat_report_vacuum(relation, (PgStat_Counter) rows, 0, start);
	group_catalog_close(catalog);

	if (compaction_is_due(relation))
		merge_request_note(RelationGetRelid(relation));
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
}
