/*
 * row_group_write.c
 *		Making a row group: sort, encode, place.  See row_group.h for the whole.
 *
 * Bytes of the footer:
 *
 *		u16 format version | u16 natts | u32 nrows | u16 flags
 *		per attribute:		 u32 length, ChunkSummary (length 0: no chunk, dropped)
 *		with row numbers:	 u32 length, ChunkSummary
 *
 * Each summary has its length before it, because its parsing needs the column's
 * type, which is gone once the column is dropped.
 *
 * Order of the steps of storing (row_group_store): the record names the extent
 * before the extent is written, so that nobody takes the same blocks; it says
 * STORED after all bytes are logged, so whoever sees the record can read the
 * group.  A failure in between leaves an OPEN record, which has no rows.
 *
 * Memory: in the current context.
 */
#include "store/catalog/row_group.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/sortsupport.h"
#include "utils/typcache.h"

#include "store/catalog/merge_request.h"
#include "store/catalog/row_group_cache.h"
#include "store/options/settings.h"
#include "store/pages/space.h"

/* ---- order ------------------------------------------------------------------------------------- */

/* A column to sort by, as an array that is quick to compare. */
typedef struct SortColumn
{
	bool is_int; /* compare ints[]; else datums[] */
	bool descending;
	bool nulls_first;
	const uint8 *nulls;
	const int64 *ints;
	Datum *datums;
	SortSupportData support;
} SortColumn;

typedef struct SortState
{
	int ncolumns;
	SortColumn *columns;
} SortState;

static int
compare_in_column(SortColumn *column, uint32 a, uint32 b)
{
	int result;

	if (column->nulls != NULL && (column->nulls[a] || column->nulls[b]))
	{
		if (column->nulls[a] == column->nulls[b])
			return 0;
		return (column->nulls[a] != 0) == column->nulls_first ? -1 : 1;
	}
	if (column->is_int)
		result = (column->ints[a] > column->ints[b]) - (column->ints[a] < column->ints[b]);
	else
		result = column->support.comparator(column->datums[a], column->datums[b], &column->support);
	if (!column->descending)
		return result;
	return result < 0 ? 1 : (result > 0 ? -1 : 0);
}

static int
compare_rows(SortState *state, uint32 a, uint32 b)
{
	for (int i = 0; i < state->ncolumns; i++)
	{
		int result = compare_in_column(&state->columns[i], a, b);

		if (result != 0)
			return result;
	}
	return 0;
}

static int
compare_positions(const void *a, const void *b, void *argument)
{
	uint32 left = *(const uint32 *) a;
	uint32 right = *(const uint32 *) b;
	int result = compare_rows(argument, left, right);

	if (result != 0)
		return result;
	return left < right ? -1 : 1;
}

/* Prepares the comparison of a column; false if its type has no order that C code knows. */
static bool
prepare_sort_column(SortColumn *sort, const ColumnValues *values, const OrderColumn *order)
{
	const ColumnType *type = values->type;
	TypeCacheEntry *entry;

	if (type == NULL || type->zone == ZONE_NONE)
		return false;
	sort->descending = order->descending;
	sort->nulls_first = order->nulls_first;
	sort->nulls = values->nulls;
	sort->is_int = type->zone == ZONE_INT;
	if (sort->is_int)
	{
		sort->ints = values->ints;
		return true;
	}

	entry = lookup_type_cache(type->typid, TYPECACHE_LT_OPR);
	if (!OidIsValid(entry->lt_opr))
		return false;
	memset(&sort->support, 0, sizeof(sort->support));
	sort->support.ssup_cxt = CurrentMemoryContext;
	sort->support.ssup_collation = type->collation;
	sort->support.abbreviate = false;
	PrepareSortSupportFromOrderingOp(entry->lt_opr, &sort->support);

	sort->datums = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(Datum) * values->nrows);
	for (uint32 i = 0; i < values->nrows; i++)
	{
		bool isnull;

		sort->datums[i] = column_values_datum(values, i, &isnull);
	}
	return true;
}

/* Sorts order[first .. end); was anything out of order? */
static bool
sort_command(SortState *state, uint32 *order, uint32 first, uint32 end)
{
	for (uint32 i = first + 1; i < end; i++)
	{
		if (compare_rows(state, i - 1, i) > 0)
		{
			qsort_arg(&order[first], end - first, sizeof(uint32), compare_positions, state);
			return true;
		}
		CHECK_FOR_INTERRUPTS();
	}
	return false;
}

uint32 *
row_group_sort_order(const GroupRecord *record, const ColumnValues *columns, uint32 nrows,
					 const TableOptions *options)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext context;
	SortState state;
	uint32 *order;
	bool changed = false;

	if (options->norder == 0 || nrows < 2)
		return NULL;

	order = palloc(sizeof(uint32) * nrows);
	for (uint32 i = 0; i < nrows; i++)
		order[i] = i;

	context = AllocSetContextCreate(caller, "columnar sort", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(context);
	state.ncolumns = 0;
	state.columns = palloc0(sizeof(SortColumn) * options->norder);
	for (int i = 0; i < options->norder; i++)
	{
		/* a column that cannot be compared ends the order: the rest would not make clusters */
		if (!prepare_sort_column(&state.columns[state.ncolumns],
								 &columns[options->order[i].attribute - 1], &options->order[i]))
			break;
		state.ncolumns++;
	}

	if (record->nruns == 0)
		changed = sort_command(&state, order, 0, nrows);
	else
	{
		uint32 first = 0;

		for (int i = 0; i < record->nruns; i++)
		{
			for (uint32 j = 0; j < record->runs[i].repeats && first < nrows; j++)
			{
				uint32 end = Min(first + record->runs[i].rows, nrows);

				changed |= sort_command(&state, order, first, end);
				first = end;
			}
		}
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	if (changed)
		return order;
	pfree(order);
	return NULL;
}

/* ---- encoding ---------------------------------------------------------------------------------- */

/* Appends a summary with its length before it. */
static void
write_summary(const ColumnType *type, const ChunkSummary *summary, ByteBuffer *footer)
{
	uint64 at = footer->length;
	uint32 length;

	byte_buffer_put_u32(footer, 0);
	chunk_summary_write(type, summary, footer);
	length = (uint32) (footer->length - at - sizeof(uint32));
	memcpy(footer->data + at, &length, sizeof(length));
}

/* Is row i first_row + i, so that nobody needs to be told? */
static bool
are_consecutive(const GroupRecord *record, uint32 nrows, const uint64 *row_numbers)
{
	for (uint32 i = 0; i < nrows; i++)
		if (row_numbers[i] != record->first_row + i)
			return false;
	return true;
}

/* Writes the chunk of row numbers; returns the record's flags for it. */
static uint16
write_row_numbers(const GroupRecord *record, uint32 nrows, const uint64 *row_numbers,
				  const ChunkOptions *options, ByteBuffer *into, uint64 base, ChunkSummary *summary)
{
	uint16 flags = GROUP_HAS_ROW_NUMBERS | GROUP_ROWS_ASCEND;
	ColumnValues values;

	column_values_init(&values, row_group_number_type());
	for (uint32 i = 0; i < nrows; i++)
	{
		Assert(row_numbers[i] >= record->first_row);
		column_values_append(&values, Int64GetDatum((int64) (row_numbers[i] - record->first_row)),
							 false);
		if (i > 0 && row_numbers[i] <= row_numbers[i - 1])
			flags &= ~GROUP_ROWS_ASCEND;
	}
	byte_buffer_align(into);
	chunk_write(&values, options, into, summary);
	summary->offset -= base;
	column_values_free(&values);
	return flags;
}

void
row_group_encode(GroupRecord *record, const ColumnValues *columns, int natts, uint32 nrows,
				 const uint64 *row_numbers, const TableOptions *options, ByteBuffer *into)
{
	uint64 base = into->length;
	ChunkOptions chunk_options;
	ChunkSummary summary;
	ByteBuffer footer;

	record->version = FORMAT_VERSION;
	record->nrows = nrows;
	record->natts = natts;
	record->flags &= ~(GROUP_HAS_ROW_NUMBERS | GROUP_ROWS_ASCEND);
	if (row_numbers != NULL && are_consecutive(record, nrows, row_numbers))
		row_numbers = NULL;

	byte_buffer_init(&footer, 1024);
	byte_buffer_put_u16(&footer, FORMAT_VERSION);
	byte_buffer_put_u16(&footer, (uint16) natts);
	byte_buffer_put_u32(&footer, nrows);
	byte_buffer_put_u16(&footer, row_numbers != NULL ? GROUP_HAS_ROW_NUMBERS : 0);

	for (int i = 0; i < natts; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (columns[i].type == NULL)
		{
			byte_buffer_put_u32(&footer, 0);
			continue;
		}
		Assert(columns[i].nrows == nrows);
		options_of_chunk(options, i + 1, &chunk_options);
		chunk_write(&columns[i], &chunk_options, into, &summary);
		summary.offset -= base;
		write_summary(columns[i].type, &summary, &footer);
	}
	if (row_numbers != NULL)
	{
		options_of_chunk(options, InvalidAttrNumber, &chunk_options);
		record->flags |= write_row_numbers(record, nrows, row_numbers, &chunk_options, into, base,
										   &summary);
		write_summary(row_group_number_type(), &summary, &footer);
	}

	record->footer_offset = into->length - base;
	record->footer_crc = format_crc(footer.data, footer.length);
	byte_buffer_append(into, footer.data, footer.length);
	record->length = into->length - base;
	byte_buffer_free(&footer);
}

/* ---- placing ----------------------------------------------------------------------------------- */

static void
store_inline(GroupCatalog *catalog, GroupRecord *record, ItemPointer tid, CommandId cid,
			 const ByteBuffer *bytes)
{
	record->first_block = InvalidBlockNumber;
	record->nblocks = 0;
	group_catalog_write_inline(catalog, record, cid, bytes->data);
	record->state = GROUP_INLINE;
	group_catalog_overwrite(catalog, tid, record);
	if (record->group_id % MERGE_INLINE_GROUPS == MERGE_INLINE_GROUPS - 1)
		merge_request_note(RelationGetRelid(catalog->relation));
}

static void
store_in_extent(GroupCatalog *catalog, GroupRecord *record, ItemPointer tid,
				const ByteBuffer *bytes)
{
	GroupRecord claim = *record;

	/* claim the blocks: an OPEN record has no rows, whatever happens next */
	claim.state = GROUP_OPEN;
	claim.nrows = 0;
	claim.nblocks = page_run_blocks(bytes->length);
	space_lock(catalog->relation);
	claim.first_block = space_take_extent(catalog->relation, claim.nblocks);
	group_catalog_overwrite(catalog, tid, &claim);
	space_unlock(catalog->relation);

	page_run_write(catalog->relation, claim.first_block, bytes->data, bytes->length);

	record->first_block = claim.first_block;
	record->nblocks = claim.nblocks;
	record->state = GROUP_STORED;
	group_catalog_overwrite(catalog, tid, record);
}

void
row_group_store(GroupCatalog *catalog, GroupRecord *record, ItemPointer tid, CommandId cid,
				bool may_inline, const ByteBuffer *bytes)
{
	Assert(record->length == bytes->length);
	if (may_inline && record->nrows < INLINE_ROWS_MAX && record->length < INLINE_BYTES_MAX)
		store_inline(catalog, record, tid, cid, bytes);
	else
		store_in_extent(catalog, record, tid, bytes);
}
