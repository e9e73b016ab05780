/*
 * compaction.c
 *		Merging small row groups and dropping dead rows: see compaction.h.
 *
 * Which groups: neighbours by row number that are alive, fit together into one
 * group, and are small, or more than a fifth dead.  A group that another
 * transaction is still writing separates its neighbours: a merged group's range of row
 * numbers must not contain another group, because a row is looked up by range.  The list
 * is taken under the space lock, under which writers reserve ranges, so no range
 * can appear between two neighbours later.
 *
 * What may go: rows whose deletion every snapshot sees.  Their vectors are deleted, too, once
 * no group has rows that they name.  Old snapshots find both through the old tuples.
 */
#include "store/table/compaction.h"

#include "access/heapam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "store/value/column_values.h"
#include "store/options/options.h"
#include "store/catalog/row_group.h"
#include "store/rows/row_state.h"
#include "store/options/settings.h"
#include "store/pages/space.h"
#include "store/rows/write_buffer.h"

/* A group is rewritten when this share of its rows is dead ... */
#define COMPACT_DEAD_SHARE 0.2
/* ... or when it is smaller than this share of what a group may hold, and has a neighbour. */
#define COMPACT_SMALL_SHARE 0.5
/* In the background a group waits for neighbours of at least this share of its rows. */
#define COMPACT_THRIFTY_SHARE 0.25

/* ---- collecting rows ---------------------------------------------------------------------------- */

struct RowCollector
{
	Relation relation;
	MemoryContext context;
	TableOptions *options;
	int natts;
	ColumnType *types;
	ColumnValues *columns;
	uint32 nrows;
	uint64 *row_numbers;
	uint32 capacity;
};

static void
begin_columns(RowCollector *collector)
{
	TupleDesc descriptor = RelationGetDescr(collector->relation);

	memset(collector->columns, 0, sizeof(ColumnValues) * Max(collector->natts, 1));
	for (int i = 0; i < collector->natts; i++)
		if (!TupleDescAttr(descriptor, i)->attisdropped)
			column_values_init(&collector->columns[i], &collector->types[i]);
	collector->nrows = 0;
}

RowCollector *
row_collector_begin(Relation relation)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "columnar compaction",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	RowCollector *collector = palloc0(sizeof(RowCollector));
	TupleDesc descriptor = RelationGetDescr(relation);

	collector->relation = relation;
	collector->context = context;
	collector->options = options_of_table(relation);
	collector->natts = descriptor->natts;
	collector->types = palloc0(sizeof(ColumnType) * Max(descriptor->natts, 1));
	collector->columns = palloc0(sizeof(ColumnValues) * Max(descriptor->natts, 1));
	for (int i = 0; i < descriptor->natts; i++)
		if (!TupleDescAttr(descriptor, i)->attisdropped)
			column_type_init(&collector->types[i], TupleDescAttr(descriptor, i));
	collector->capacity = BLOCK_ROWS;
	collector->row_numbers = palloc(sizeof(uint64) * collector->capacity);
	begin_columns(collector);
	MemoryContextSwitchTo(caller);
	return collector;
}

bool
row_collector_is_full(const RowCollector *collector, uint32 more_rows)
{
	uint64 bytes = 0;

	if (collector->nrows == 0)
		return false;
	if (collector->nrows + more_rows > (uint32) collector->options->row_group_rows)
		return true;
	for (int i = 0; i < collector->natts; i++)
		if (collector->columns[i].type != NULL)
			bytes += column_values_size(&collector->columns[i]);
	return bytes >= ROW_GROUP_BYTES_MAX;
}

/* Append one column's values of a block for the rows taken. */
static void
append_column(RowCollector *collector, RowGroupReader *reader, uint32 block, AttrNumber attribute,
			  const uint16 *taken, uint32 ntaken, ColumnBlock *decoded)
{
	ChunkReader *chunk = row_group_reader_chunk(reader, attribute);
	ColumnValues *values = &collector->columns[attribute - 1];
	MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext, "column",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(scratch);
	bool isnull;

	if (chunk == NULL)
	{
		TupleDesc descriptor = RelationGetDescr(collector->relation);
		Datum value = getmissingattr(descriptor, attribute, &isnull);

		for (uint32 i = 0; i < ntaken; i++)
			column_values_append(values, value, isnull);
	}
	else
	{
		chunk_reader_decode(chunk, block, decoded);
		for (uint32 i = 0; i < ntaken; i++)
		{
			Datum value = column_block_datum(decoded, taken[i], &isnull);

			column_values_append(values, value, isnull);
		}
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(scratch);
}

uint64
row_collector_add(RowCollector *collector, GroupCatalog *catalog, const GroupRecord *record,
				  const DeletedRows *dead)
{
	MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext, "columnar group",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(scratch);
	RowGroupReader *reader = row_group_reader_open(catalog, record, NULL);
	ColumnBlock *decoded = palloc0(sizeof(ColumnBlock) * Max(collector->natts, 1));
	uint64 *numbers = palloc(sizeof(uint64) * BLOCK_ROWS);
	uint16 taken[BLOCK_ROWS];
	uint64 removed = 0;

	for (int i = 0; i < collector->natts; i++)
		if (collector->columns[i].type != NULL)
			column_block_init(&decoded[i], row_group_reader_type(reader, i + 1));
	row_group_reader_prefetch(reader, NULL);

	for (uint32 block = 0; block < row_group_reader_nblocks(reader); block++)
	{
		uint32 nrows = Min(BLOCK_ROWS, record->nrows - block * BLOCK_ROWS);
		uint32 ntaken = 0;

		CHECK_FOR_INTERRUPTS();
		row_group_reader_row_numbers(reader, block, numbers);
		while (collector->nrows + nrows > collector->capacity)
		{
			collector->capacity *= 2;
			collector->row_numbers = repalloc(collector->row_numbers,
											  sizeof(uint64) * collector->capacity);
		}
		for (uint32 i = 0; i < nrows; i++)
		{
			if (dead != NULL && deleted_rows_contains(dead, numbers[i]))
			{
				removed++;
				continue;
			}
			collector->row_numbers[collector->nrows++] = numbers[i];
			taken[ntaken++] = (uint16) i;
		}
		if (ntaken == 0)
			continue;
		for (int i = 0; i < collector->natts; i++)
			if (collector->columns[i].type != NULL)
				append_column(collector, reader, block, i + 1, taken, ntaken, &decoded[i]);
	}
	row_group_reader_close(reader);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(scratch);
	return removed;
}

/* Put the collected rows into ascending order of their numbers, or that of the table's order_by. */
static void
sort_rows(RowCollector *collector)
{
	GroupRecord one_command = {.nrows = collector->nrows};
	uint32 *order = row_group_sort_order(&one_command, collector->columns, collector->nrows,
										 collector->options);
	uint64 *numbers;

	if (order == NULL)
		return;
	numbers = palloc(sizeof(uint64) * collector->capacity);
	for (uint32 i = 0; i < collector->nrows; i++)
		numbers[i] = collector->row_numbers[order[i]];
	pfree(collector->row_numbers);
	collector->row_numbers = numbers;
	for (int i = 0; i < collector->natts; i++)
	{
		ColumnValues sorted;

		if (collector->columns[i].type == NULL)
			continue;
		column_values_select(&sorted, &collector->columns[i], order, collector->nrows);
		column_values_free(&collector->columns[i]);
		collector->columns[i] = sorted;
	}
	pfree(order);
}

bool
row_collector_write(RowCollector *collector, GroupCatalog *catalog, uint16 flags)
{
	MemoryContext caller;
	GroupRecord record;
	ItemPointerData tid;
	ByteBuffer bytes;
	CommandId cid;
	uint64 lowest = PG_UINT64_MAX;
	uint64 highest = 0;

	if (collector->nrows == 0)
		return false;
	caller = MemoryContextSwitchTo(collector->context);
	sort_rows(collector);
	for (uint32 i = 0; i < collector->nrows; i++)
	{
		lowest = Min(lowest, collector->row_numbers[i]);
		highest = Max(highest, collector->row_numbers[i]);
	}

	memset(&record, 0, sizeof(record));
	record.version = FORMAT_VERSION;
	record.state = GROUP_OPEN;
	record.first_block = InvalidBlockNumber;
	record.first_row = lowest;
	record.row_span = highest - lowest + 1;
	record.flags = flags;

	space_lock(catalog->relation);
	space_take_rows(catalog->relation, 0, &record.group_id);
	space_unlock(catalog->relation);

	byte_buffer_init(&bytes, 1024 * 1024);
	row_group_encode(&record, collector->columns, collector->natts, collector->nrows,
					 collector->row_numbers, collector->options, &bytes);
	cid = GetCurrentCommandId(true);
	group_catalog_insert(catalog, &record, cid, &tid);
	row_group_store(catalog, &record, &tid, cid, true, &bytes);

	byte_buffer_free(&bytes);
	for (int i = 0; i < collector->natts; i++)
		if (collector->columns[i].type != NULL)
			column_values_free(&collector->columns[i]);
	begin_columns(collector);
	MemoryContextSwitchTo(caller);
	return true;
}

void
row_collector_end(RowCollector *collector)
{
	MemoryContextDelete(collector->context);
}

void
row_collector_encode_again(GroupCatalog *catalog, const TableOptions *options, GroupRecord *record,
						   ByteBuffer *bytes)
{
	RowCollector *collector = row_collector_begin(catalog->relation);

	(void) row_collector_add(collector, catalog, record, NULL);
	Assert(collector->nrows == record->nrows);
	row_group_encode(record, collector->columns, collector->natts, collector->nrows,
					 collector->row_numbers, options, bytes);
	row_collector_end(collector);
}

/* ---- which groups ------------------------------------------------------------------------------- */

/* By first row; of several versions the live one last. */
static int
compare_tuples(const void *left, const void *right)
{
	const GroupTuple *a = left;
	const GroupTuple *b = right;

	if (a->entry.record.first_row != b->entry.record.first_row)
		return a->entry.record.first_row < b->entry.record.first_row ? -1 : 1;
	return (a->status == HEAPTUPLE_LIVE) - (b->status == HEAPTUPLE_LIVE);
}

GroupTuple *
compaction_list(GroupCatalog *catalog, TransactionId oldest_xmin, uint32 *ntuples)
{
	GroupTuple *tuples;

	space_lock(catalog->relation);
	tuples = group_catalog_list_all(catalog, oldest_xmin, ntuples);
	space_unlock(catalog->relation);
	qsort(tuples, *ntuples, sizeof(GroupTuple), compare_tuples);
	return tuples;
}

/* Is the group alive, stored, and not just now being deleted? */
static bool
is_compactable(const GroupTuple *tuple)
{
	return tuple->status == HEAPTUPLE_LIVE && tuple->entry.record.state != GROUP_OPEN &&
		   tuple->entry.record.nrows > 0;
}

/*
 * For each tuple: rows that are dead for everybody; an upper bound where numbers have gaps.
 * Of those that are not compactable 0.
 */
static uint32 *
count_dead(GroupCatalog *catalog, TransactionId horizon, const GroupTuple *tuples, uint32 ntuples)
{
	uint32 *ndead = palloc0(sizeof(uint32) * Max(ntuples, 1));
	DeadCount *counts = palloc(sizeof(DeadCount) * Max(ntuples, 1));
	uint32 n = 0;

	for (uint32 i = 0; i < ntuples; i++)
	{
		if (!is_compactable(&tuples[i]))
			continue;
		counts[n].first = tuples[i].entry.record.first_row;
		counts[n++].nrows = tuples[i].entry.record.row_span;
	}
	deleted_rows_count_dead(catalog, horizon, counts, n);
	n = 0;
	for (uint32 i = 0; i < ntuples; i++)
	{
		if (!is_compactable(&tuples[i]))
			continue;
		ndead[i] = (uint32) Min(counts[n].ndead, tuples[i].entry.record.nrows);
		n++;
	}
	pfree(counts);
	return ndead;
}

/*
 * Rows that the group has at most when the dead ones are gone.  Where its numbers
 * have gaps, a dead number need not be one of its rows.
 */
static uint32
count_left_at_most(const GroupRecord *record, uint32 ndead)
{
	return (record->flags & GROUP_HAS_ROW_NUMBERS) ? record->nrows : record->nrows - ndead;
}

/*
 * The end (exclusive) of the run of neighbours beginning at `first` that belong
 * into one group, and whether rewriting it pays.
 */
static uint32
find_run(const GroupTuple *tuples, const uint32 *ndead, uint32 ntuples, uint32 first,
		 const TableOptions *options, CompactionMode mode, bool *pays)
{
	uint32 limit = (uint32) options->row_group_rows;
	bool all = mode == COMPACT_ALL;
	uint64 rows = 0;
	uint64 first_rows = 0;
	uint32 members = 0;
	uint32 end = first;
	bool worn = false;

	for (uint32 i = first; i < ntuples; i++)
	{
		const GroupRecord *record = &tuples[i].entry.record;
		uint64 left;
		bool small;

		if (group_tuple_is_being_written(&tuples[i]))
			break;
		if (!is_compactable(&tuples[i]))
			continue; /* dead, or an older version: not in the way */
		left = count_left_at_most(record, ndead[i]);
		small = left < limit * COMPACT_SMALL_SHARE;
		if (members > 0 && (rows + left > limit || !(small || ndead[i] > 0 || all)))
			break;
		if (members == 0)
			first_rows = left;
		rows += left;
		members++;
		worn |= ndead[i] > record->nrows * COMPACT_DEAD_SHARE;
		end = i + 1;
		if (!small && !worn && !all)
			break; /* a good group: not worth being copied for its neighbours */
	}
	*pays = members > 1 || worn || (all && members > 0);
	if (mode == COMPACT_THRIFTY && !worn && rows - first_rows < first_rows * COMPACT_THRIFTY_SHARE)
	{
		/* the neighbours may still be worth a merge among themselves */
		*pays = false;
		return first + 1;
	}
	return Max(end, first + 1);
}

bool
compaction_is_due(Relation relation)
{
	TransactionId horizon = GetOldestNonRemovableTransactionId(relation);
	GroupCatalog *catalog = group_catalog_open(relation, AccessShareLock);
	uint32 ntuples;
	GroupTuple *tuples = compaction_list(catalog, horizon, &ntuples);
	uint32 *ndead = count_dead(catalog, horizon, tuples, ntuples);
	TableOptions *options = options_of_table(relation);
	bool due = false;
	uint32 next;

	for (uint32 i = 0; i < ntuples && !due; i = next)
	{
		next = i + 1;
		if (is_compactable(&tuples[i]))
			next = find_run(tuples, ndead, ntuples, i, options, COMPACT_THRIFTY, &due);
	}
	pfree(ndead);
	pfree(tuples);
	group_catalog_close(catalog);
	return due;
}

/* ---- vectors that name nothing any more --------------------------------------------------------- */

typedef struct VectorSweep
{
	Relation relation;
	TransactionId oldest_xmin;
	const GroupTuple *tuples; /* groups that stay, by first_row */
	uint32 ntuples;
	ItemPointerData *tids;
	uint32 ntids;
	uint32 capacity;
} VectorSweep;

/* Is a row number within a group that stays? */
static bool
is_in_group(const VectorSweep *sweep, uint64 row)
{
	for (uint32 low = 0, high = sweep->ntuples; low < high;)
	{
		uint32 middle = low + (high - low) / 2;
		const GroupRecord *record = &sweep->tuples[middle].entry.record;

		if (row < record->first_row)
			high = middle;
		else if (row - record->first_row < record->row_span)
			return true;
		else
			low = middle + 1;
	}
	return false;
}

/* Remember vectors that every snapshot sees (or whose locks ended) and that name no row of a group. */
static bool
sweep_vector(void *argument, HeapTuple tuple, Buffer buffer, int32 unit, const char *bytes,
			 uint32 length)
{
	VectorSweep *sweep = argument;
	RowVector vector;

	row_state_read_vector(&vector, sweep->relation, (uint32) unit, bytes, length);
	if (HeapTupleSatisfiesVacuum(tuple, sweep->oldest_xmin, buffer) != HEAPTUPLE_LIVE)
		return true;
	if (vector.action == VECTOR_LOCK)
	{
		RowWriter holder = row_state_holder(vector.holder);

		if (holder == ROW_WRITER_OWN || holder == ROW_WRITER_RUNNING)
			return true;
	}
	else
	{
		TransactionId xmin = HeapTupleHeaderGetXmin(tuple->t_data);

		if (TransactionIdIsNormal(xmin) && !TransactionIdPrecedes(xmin, sweep->oldest_xmin))
			return true;
		for (int i = 0; i < UNIT_ROWS; i++)
			if ((vector.bits[i / 64] >> (i % 64)) & 1 &&
				is_in_group(sweep, (uint64) vector.unit * UNIT_ROWS + i))
				return true;
	}
	if (sweep->ntids == sweep->capacity)
	{
		sweep->capacity *= 2;
		sweep->tids = repalloc_huge(sweep->tids, sizeof(ItemPointerData) * sweep->capacity);
	}
	sweep->tids[sweep->ntids++] = tuple->t_self;
	return true;
}

static void
delete_idle_vectors(GroupCatalog *catalog, TransactionId oldest_xmin, const GroupTuple *tuples,
					const bool *replaced, uint32 ntuples)
{
	VectorSweep sweep = {
		.relation = catalog->relation, .oldest_xmin = oldest_xmin, .capacity = 256};
	GroupTuple *kept = palloc(sizeof(GroupTuple) * Max(ntuples, 1));

	/* dead versions do not count: no snapshot that is left sees them */
	for (uint32 i = 0; i < ntuples; i++)
		if (!replaced[i] &&
			(is_compactable(&tuples[i]) || group_tuple_is_being_written(&tuples[i])))
			kept[sweep.ntuples++] = tuples[i];
	sweep.tuples = kept;
	sweep.tids = palloc(sizeof(ItemPointerData) * sweep.capacity);
	group_catalog_all_vectors(catalog, sweep_vector, &sweep);
	for (uint32 i = 0; i < sweep.ntids; i++)
		group_catalog_delete(catalog, &sweep.tids[i]);
	pfree(sweep.tids);
	pfree(kept);
}

/* ---- the work ----------------------------------------------------------------------------------- */

/* Collects the rows of a group that are not dead for everybody; returns how many are. */
static uint64
add_live_rows(RowCollector *collector, GroupCatalog *catalog, const GroupRecord *record,
			  TransactionId horizon)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "columnar dead rows",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	uint64 end = record->first_row + record->row_span;
	DeletedRows *dead = deleted_rows_dead_between(catalog, horizon, record->first_row, &end,
												  SIZE_MAX);
	uint64 removed = row_collector_add(collector, catalog, record, dead);

	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	return removed;
}

void
compaction_run(Relation relation, CompactionMode mode, uint32 limit, CompactionResult *result)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "columnar compaction",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	TransactionId horizon;
	GroupCatalog *catalog;
	GroupTuple *tuples;
	uint32 ntuples;
	bool *replaced;
	uint32 *ndead;
	TableOptions *options;
	RowCollector *collector;
	uint32 next;

	memset(result, 0, sizeof(*result));
	write_buffer_flush(relation);
	horizon = GetOldestNonRemovableTransactionId(relation);
	catalog = group_catalog_open(relation, RowExclusiveLock);
	tuples = compaction_list(catalog, horizon, &ntuples);
	replaced = palloc0(sizeof(bool) * Max(ntuples, 1));
	ndead = count_dead(catalog, horizon, tuples, ntuples);
	options = options_of_table(relation);
	collector = row_collector_begin(relation);

	for (uint32 i = 0; i < ntuples; i = next)
	{
		bool pays = false;

		next = i + 1;
		if (!is_compactable(&tuples[i]))
			continue;
		if (limit > 0 && result->groups_read >= limit)
		{
			result->more = true;
			break;
		}
		next = find_run(tuples, ndead, ntuples, i, options, mode, &pays);
		if (!pays)
			continue;
		for (uint32 j = i; j < next; j++)
		{
			const GroupRecord *record = &tuples[j].entry.record;

			if (!is_compactable(&tuples[j]))
				continue;
			if (row_collector_is_full(collector, count_left_at_most(record, ndead[j])))
				result->groups_written += row_collector_write(collector, catalog, GROUP_REWRITTEN);
			result->rows_removed += add_live_rows(collector, catalog, record, horizon);
			if (!group_catalog_delete(catalog, &tuples[j].entry.tid))
				ereport(ERROR,
						(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
						 errmsg("could not compact columnar table \"%s\" due to concurrent change",
								RelationGetRelationName(relation))));
			if (record->state == GROUP_INLINE)
				group_catalog_delete_parts(catalog, record);
			replaced[j] = true;
			result->groups_read++;
		}
		result->groups_written += row_collector_write(collector, catalog, GROUP_REWRITTEN);
	}
	row_collector_end(collector);
	delete_idle_vectors(catalog, horizon, tuples, replaced, ntuples);
	group_catalog_close(catalog);
	CommandCounterIncrement();
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
}
