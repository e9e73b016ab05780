/*
 * row_group_read.c
 *		Reading a row group: its footer, its chunks, its row numbers.  See row_group.h.
 *
 * Opening costs a look at the footer cache and nothing else; chunks are opened,
 * summaries parsed and the bytes of an inline group fetched when they are asked
 * for.  Nothing that comes from disk is believed before its length and CRC are
 * checked: the footer's here, those of the chunks in chunk.h.
 *
 * Row numbers: without GROUP_HAS_ROW_NUMBERS row i is first_row + i.  Ascending
 * numbers are searched by zone map and then within one block, unordered ones
 * (order_by) block by block.  A group in which the session looks more rows up has its
 * numbers read once and kept in order: see number_order.h.
 */
#include "store/catalog/row_group.h"

#include "access/htup_details.h"
#include "utils/memutils.h"

#include "store/catalog/number_order.h"
#include "store/catalog/row_group_cache.h"

/* Look-ups in a group after which it pays to keep its numbers in order. */
#define LOOKUPS_ENOUGH 64

/* The bytes of an inline group, fetched at the first read. */
typedef struct InlineSource
{
	ByteSource source; /* first member */
	RowGroupReader *reader;
	char *bytes;
} InlineSource;

struct RowGroupReader
{
	GroupCatalog *catalog;
	GroupRecord record;
	MemoryContext context;
	uint32 nblocks;
	ByteSource *source; /* one of the two below */
	PageSource pages;
	InlineSource inlined;
	RelationTypes *types;

	char *footer;
	uint32 footer_length;
	uint64 footer_bytes_read;
	uint32 *summary_at;		  /* by attribute - 1, [natts] for row numbers: offset of its length */
	ChunkSummary **summaries; /* the same, parsed; NULL until asked for */
	ChunkReader **chunks;

	/* of the table, by attribute - 1 of the caller's; NULL: the same */
	const AttrNumber *attributes;
	int nattributes;

	/* row numbers */
	ColumnBlock numbers; /* the block decoded last */
	int64 numbers_block; /* which, or -1 */
};

/* ---- bytes ------------------------------------------------------------------------------------ */

static void
read_inline(ByteSource *source, uint64 offset, uint64 length, char *into)
{
	InlineSource *inlined = (InlineSource *) source;

	if (inlined->bytes == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(inlined->reader->context);

		inlined->bytes = group_catalog_read_inline(inlined->reader->catalog,
												   &inlined->reader->record);
		MemoryContextSwitchTo(caller);
	}
	memcpy(into, inlined->bytes + offset, length);
}

static inline void
set_place(const RowGroupReader *reader, int column)
{
	format_place_set(RelationGetRelationName(reader->catalog->relation), reader->record.group_id,
					 column);
}

/* ---- opening ---------------------------------------------------------------------------------- */

/* Is the record one that a group can have? */
static void
check_record(const GroupRecord *record)
{
	if (record->version != FORMAT_VERSION)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("row group %llu of table \"%s\" has format version %u",
							   (unsigned long long) record->group_id, format_place.relation,
							   record->version),
						errdetail("This library reads version %d.", FORMAT_VERSION),
						errhint("Update the library strata_columnar.")));
	if (record->state != GROUP_STORED && record->state != GROUP_INLINE)
		format_damaged("its record has state %u", record->state);
	if (record->nrows == 0 || record->nrows > ROW_GROUP_ROWS_MAX)
		format_damaged("its record says %u rows", record->nrows);
	if (record->row_span < record->nrows)
		format_damaged("%u rows do not fit into %llu row numbers", record->nrows,
					   (unsigned long long) record->row_span);
	if (record->natts > MaxHeapAttributeNumber)
		format_damaged("its record says %u columns", record->natts);
	if (record->footer_offset > record->length ||
		record->length - record->footer_offset > MaxAllocSize)
		format_damaged("its footer would be at %llu of %llu bytes",
					   (unsigned long long) record->footer_offset,
					   (unsigned long long) record->length);
	if (record->state == GROUP_STORED &&
		(record->first_block == InvalidBlockNumber || record->first_block == 0 ||
		 record->nblocks < page_run_blocks(record->length)))
		format_damaged("%llu bytes do not fit into %u blocks from %u on",
					   (unsigned long long) record->length, record->nblocks, record->first_block);
}

static RowGroupKey
make_key(const RowGroupReader *reader)
{
	RowGroupKey key;

	memset(&key, 0, sizeof(key));
	key.file = compat_file_locator(reader->catalog->relation);
	key.group_id = reader->record.group_id;
	key.crc = reader->record.footer_crc;
	return key;
}

/* Brings the footer's bytes, from the cache or from the group. */
static void
load_footer(RowGroupReader *reader)
{
	const GroupRecord *record = &reader->record;
	RowGroupKey key = make_key(reader);

	reader->footer_length = (uint32) (record->length - record->footer_offset);
	reader->footer = palloc(Max(reader->footer_length, 1));
	if (row_group_cache_get_footer(&key, reader->footer_length, reader->footer))
		return;

	byte_source_read(reader->source, record->footer_offset, reader->footer_length, reader->footer);
	reader->footer_bytes_read = reader->footer_length;
	if (format_crc(reader->footer, reader->footer_length) != record->footer_crc)
		format_damaged("the checksum of its footer is wrong");
	row_group_cache_put_footer(&key, reader->footer_length, reader->footer);
}

/* Finds where each summary lies. */
static void
index_footer(RowGroupReader *reader)
{
	const GroupRecord *record = &reader->record;
	ByteCursor cursor = {.at = reader->footer, .end = reader->footer + reader->footer_length};
	int nchunks = record->natts + ((record->flags & GROUP_HAS_ROW_NUMBERS) ? 1 : 0);
	uint16 version = byte_cursor_u16(&cursor);
	uint16 natts = byte_cursor_u16(&cursor);
	uint32 nrows = byte_cursor_u32(&cursor);
	uint16 flags = byte_cursor_u16(&cursor);

	if (version != record->version || natts != record->natts || nrows != record->nrows ||
		flags != (record->flags & GROUP_HAS_ROW_NUMBERS))
		format_damaged("its footer does not agree with its record");

	reader->summary_at = palloc(sizeof(uint32) * (nchunks + 1));
	reader->summaries = palloc0(sizeof(ChunkSummary *) * (nchunks + 1));
	reader->chunks = palloc0(sizeof(ChunkReader *) * (nchunks + 1));
	for (int i = 0; i < nchunks; i++)
	{
		reader->summary_at[i] = (uint32) (cursor.at - reader->footer);
		byte_cursor_bytes(&cursor, byte_cursor_u32(&cursor));
	}
	if (cursor.at != cursor.end)
		format_damaged("its footer is longer than its contents");
}

RowGroupReader *
row_group_reader_open(GroupCatalog *catalog, const GroupRecord *record,
					  BufferAccessStrategy strategy)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "columnar row group",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	RowGroupReader *reader = palloc0(sizeof(RowGroupReader));

	reader->catalog = catalog;
	reader->record = *record;
	reader->context = context;
	reader->numbers_block = -1;
	set_place(reader, 0);
	check_record(record);
	reader->nblocks = (record->nrows + BLOCK_ROWS - 1) / BLOCK_ROWS;

	if (record->state == GROUP_INLINE)
	{
		reader->inlined.source.length = record->length;
		reader->inlined.source.read = read_inline;
		reader->inlined.reader = reader;
		reader->source = &reader->inlined.source;
	}
	else
	{
		page_source_init(&reader->pages, catalog->relation, record->first_block, record->length,
						 strategy);
		reader->source = &reader->pages.source;
	}

	load_footer(reader);
	index_footer(reader);
	reader->types = row_group_cache_types(catalog->relation, group_catalog_descriptor(catalog));
	MemoryContextSwitchTo(caller);
	return reader;
}

void
row_group_reader_close(RowGroupReader *reader)
{
	format_place_set("", 0, 0);
	MemoryContextDelete(reader->context); /* its chunks, and the reference to the types */
}

bool
row_group_reader_rebind(RowGroupReader *reader, GroupCatalog *catalog)
{
	if (!row_group_cache_is_current(reader->types, catalog->relation))
		return false;
	reader->catalog = catalog;
	reader->pages.relation = catalog->relation;
	return true;
}

const GroupRecord *
row_group_reader_record(const RowGroupReader *reader)
{
	return &reader->record;
}

uint32
row_group_reader_nblocks(const RowGroupReader *reader)
{
	return reader->nblocks;
}

/* ---- chunks ----------------------------------------------------------------------------------- */

/* Parses summary number i, of a column of this type; NULL if there is no chunk. */
static const ChunkSummary *
parse_summary(RowGroupReader *reader, int i, const ColumnType *type)
{
	ByteCursor cursor = {.at = reader->footer + reader->summary_at[i],
						 .end = reader->footer + reader->footer_length};
	MemoryContext caller;
	ChunkSummary *summary;
	uint32 length;

	if (reader->summaries[i] != NULL)
		return reader->summaries[i];
	length = byte_cursor_u32(&cursor);
	if (length == 0)
		return NULL;
	cursor.end = cursor.at + length;

	caller = MemoryContextSwitchTo(reader->context);
	summary = palloc0(sizeof(ChunkSummary));
	chunk_summary_read(type, &cursor, summary);
	MemoryContextSwitchTo(caller);
	if (summary->offset > reader->record.footer_offset ||
		summary->length > reader->record.footer_offset - summary->offset)
		format_damaged("its bytes would be at %llu, %llu of them",
					   (unsigned long long) summary->offset, (unsigned long long) summary->length);
	reader->summaries[i] = summary;
	return summary;
}

/* Opens chunk number i. */
static ChunkReader *
open_chunk(RowGroupReader *reader, int i, const ColumnType *type)
{
	const ChunkSummary *summary;
	MemoryContext caller;

	if (reader->chunks[i] != NULL)
		return reader->chunks[i];
	summary = parse_summary(reader, i, type);
	if (summary == NULL)
		return NULL;
	caller = MemoryContextSwitchTo(reader->context);
	reader->chunks[i] = chunk_reader_open(reader->source, summary, type, reader->record.nrows);
	MemoryContextSwitchTo(caller);
	return reader->chunks[i];
}

void
row_group_reader_set_attributes(RowGroupReader *reader, const AttrNumber *attributes,
								int nattributes)
{
	reader->attributes = attributes;
	reader->nattributes = nattributes;
}

/* The table's attribute, of the caller's. */
static AttrNumber
translate_attribute(const RowGroupReader *reader, AttrNumber attribute)
{
	return reader->attributes ? reader->attributes[attribute - 1] : attribute;
}

static const ColumnType *
get_type(RowGroupReader *reader, AttrNumber attribute)
{
	if (attribute <= 0)
		return NULL;
	set_place(reader, attribute);
	return row_group_cache_type(reader->types, attribute);
}

const ColumnType *
row_group_reader_type(RowGroupReader *reader, AttrNumber attribute)
{
	return get_type(reader, translate_attribute(reader, attribute));
}

const ChunkSummary *
row_group_reader_summary(RowGroupReader *reader, AttrNumber attribute)
{
	AttrNumber own = translate_attribute(reader, attribute);
	const ColumnType *type = get_type(reader, own);

	if (type == NULL || own > reader->record.natts)
		return NULL;
	return parse_summary(reader, own - 1, type);
}

ChunkReader *
row_group_reader_chunk(RowGroupReader *reader, AttrNumber attribute)
{
	AttrNumber own = translate_attribute(reader, attribute);
	const ColumnType *type = get_type(reader, own);

	if (type == NULL || own > reader->record.natts)
		return NULL;
	return open_chunk(reader, own - 1, type);
}

void
row_group_reader_prefetch(RowGroupReader *reader, const Bitmapset *attributes)
{
	int natts = Min(reader->record.natts, group_catalog_descriptor(reader->catalog)->natts);

	if (reader->source->prefetch == NULL)
		return;
	if (reader->attributes != NULL)
		natts = reader->nattributes;
	for (int i = 1; i <= natts; i++)
	{
		const ChunkSummary *summary;

		if (attributes != NULL && !bms_is_member(i, attributes))
			continue;
		summary = row_group_reader_summary(reader, i);
		if (summary != NULL)
			reader->source->prefetch(reader->source, summary->offset, summary->length);
	}
}

/* ---- row numbers ------------------------------------------------------------------------------ */

static ChunkReader *
open_numbers(RowGroupReader *reader)
{
	ChunkReader *chunk = open_chunk(reader, reader->record.natts, row_group_number_type());

	if (chunk == NULL)
		format_damaged("its row numbers are missing");
	return chunk;
}

/* Decodes the differences to first_row of a block; they are checked to be in the group's range. */
static const int64 *
decode_numbers(RowGroupReader *reader, uint32 block)
{
	ChunkReader *chunk;
	uint32 nrows;
	uint64 largest = 0;

	if (reader->numbers_block == block)
		return reader->numbers.ints;
	chunk = open_numbers(reader);
	if (reader->numbers.context == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(reader->context);

		column_block_init(&reader->numbers, row_group_number_type());
		MemoryContextSwitchTo(caller);
	}
	reader->numbers_block = -1;
	chunk_reader_decode(chunk, block, &reader->numbers);

	nrows = Min(reader->record.nrows - block * BLOCK_ROWS, BLOCK_ROWS);
	if (reader->numbers.form != BLOCK_INT || reader->numbers.has_nulls ||
		reader->numbers.nrows != nrows)
		format_damaged("its row numbers are no row numbers");
	for (uint32 i = 0; i < nrows; i++)
		largest = Max(largest, (uint64) reader->numbers.ints[i]);
	if (largest >= reader->record.row_span)
		format_damaged("row %llu lies outside of its %llu rows",
					   (unsigned long long) (reader->record.first_row + largest),
					   (unsigned long long) reader->record.row_span);
	reader->numbers_block = block;
	return reader->numbers.ints;
}

void
row_group_reader_row_numbers(RowGroupReader *reader, uint32 block, uint64 *rows)
{
	const GroupRecord *record = &reader->record;
	uint32 nrows = Min(record->nrows - block * BLOCK_ROWS, BLOCK_ROWS);

	Assert(block < reader->nblocks);
	set_place(reader, 0);
	if (record->flags & GROUP_HAS_ROW_NUMBERS)
	{
		const int64 *numbers = decode_numbers(reader, block);

		for (uint32 i = 0; i < nrows; i++)
			rows[i] = record->first_row + (uint64) numbers[i];
	}
	else
	{
		uint64 first = record->first_row + (uint64) block * BLOCK_ROWS;

		for (uint32 i = 0; i < nrows; i++)
			rows[i] = first + i;
	}
}

void
row_group_reader_number_bounds(RowGroupReader *reader, uint32 block, uint64 *lowest,
							   uint64 *highest)
{
	const GroupRecord *record = &reader->record;

	*lowest = record->first_row;
	*highest = record->first_row + record->row_span - 1;
	if (record->flags & GROUP_HAS_ROW_NUMBERS)
	{
		const ZoneMap *zone;

		set_place(reader, 0);
		zone = chunk_reader_zone(open_numbers(reader), block);
		if (zone->has_bounds)
		{
			*lowest = record->first_row + (uint64) zone->min.number;
			*highest = record->first_row + (uint64) zone->max.number;
		}
	}
	else
	{
		*lowest += (uint64) block * BLOCK_ROWS;
		*highest = *lowest + Min(record->nrows - block * BLOCK_ROWS, BLOCK_ROWS) - 1;
	}
}

/* Can the block contain this difference, as far as its zone map tells? */
static inline bool
block_may_contain(RowGroupReader *reader, uint32 block, int64 number)
{
	const ZoneMap *zone = chunk_reader_zone(open_numbers(reader), block);

	return !zone->has_bounds || (zone->min.number <= number && number <= zone->max.number);
}

static bool
find_ascending(RowGroupReader *reader, int64 number, uint32 *position)
{
	ChunkReader *chunk = open_numbers(reader);
	uint32 low = 0;
	uint32 high = reader->nblocks;
	uint32 block;
	uint32 nrows;
	const int64 *numbers;

	/* the last block that begins at or before the number */
	while (low < high)
	{
		uint32 middle = low + (high - low) / 2;
		const ZoneMap *zone = chunk_reader_zone(chunk, middle);

		if (!zone->has_bounds)
			format_damaged("its row numbers have no zone map");
		if (zone->min.number <= number)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0)
		return false;
	block = low - 1;
	if (!block_may_contain(reader, block, number))
		return false;

	numbers = decode_numbers(reader, block);
	nrows = Min(reader->record.nrows - block * BLOCK_ROWS, BLOCK_ROWS);
	low = 0;
	high = nrows;
	while (low < high)
	{
		uint32 middle = low + (high - low) / 2;

		if (numbers[middle] < number)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == nrows || numbers[low] != number)
		return false;
	*position = block * BLOCK_ROWS + low;
	return true;
}

/* Walks through the blocks that may have the number. */
static bool
find_by_block(RowGroupReader *reader, int64 number, uint32 *position)
{
	for (uint32 block = 0; block < reader->nblocks; block++)
	{
		uint32 first = block * BLOCK_ROWS;
		uint32 nrows = Min(reader->record.nrows - first, BLOCK_ROWS);
		const int64 *numbers;

		if (!block_may_contain(reader, block, number))
			continue;
		numbers = decode_numbers(reader, block);
		for (uint32 i = 0; i < nrows; i++)
		{
			if (numbers[i] == number)
			{
				*position = first + i;
				return true;
			}
		}
	}
	return false;
}

/* Reads all numbers, for look-ups to come. */
static const NumberOrder *
keep_order(RowGroupReader *reader, const RowGroupKey *key)
{
	const GroupRecord *record = &reader->record;
	int64 *numbers = palloc(sizeof(int64) * record->nrows);
	const NumberOrder *order;

	for (uint32 block = 0; block < reader->nblocks; block++)
	{
		uint32 first = block * BLOCK_ROWS;

		memcpy(&numbers[first], decode_numbers(reader, block),
			   sizeof(int64) * Min(record->nrows - first, BLOCK_ROWS));
	}
	order = number_order_keep(key, numbers, record->nrows, record->row_span);
	pfree(numbers);
	return order;
}

static bool
find_stored(RowGroupReader *reader, int64 number, uint32 *position)
{
	const GroupRecord *record = &reader->record;
	bool ascends = (record->flags & GROUP_ROWS_ASCEND) != 0;
	RowGroupKey key = make_key(reader);
	uint32 lookups;
	const NumberOrder *order = number_order_find(&key, &lookups);

	/* to walk costs nearly as much as to make a map; a search by bounds, or to sort, pays for longer */
	if (order == NULL &&
		lookups >=
			(ascends || !number_order_is_map(record->nrows, record->row_span) ? LOOKUPS_ENOUGH : 2))
		order = keep_order(reader, &key);
	if (order != NULL)
		return number_order_search(order, number, position);
	return ascends ? find_ascending(reader, number, position)
				   : find_by_block(reader, number, position);
}

bool
row_group_reader_position(RowGroupReader *reader, uint64 row, uint32 *position)
{
	const GroupRecord *record = &reader->record;

	set_place(reader, 0);
	if (row < record->first_row || row - record->first_row >= record->row_span)
		return false;
	if (record->flags & GROUP_HAS_ROW_NUMBERS)
		return find_stored(reader, (int64) (row - record->first_row), position);
	if (row - record->first_row >= record->nrows)
		return false;
	*position = (uint32) (row - record->first_row);
	return true;
}

/* ---- counters --------------------------------------------------------------------------------- */

uint64
row_group_reader_chunk_bytes_read(const RowGroupReader *reader)
{
	int nchunks = reader->record.natts + ((reader->record.flags & GROUP_HAS_ROW_NUMBERS) ? 1 : 0);
	uint64 bytes = 0;

	for (int i = 0; i < nchunks; i++)
	{
		if (reader->chunks[i] != NULL)
			bytes += chunk_reader_bytes_read(reader->chunks[i]);
	}
	return bytes;
}

uint64
row_group_reader_bytes_read(const RowGroupReader *reader)
{
	return reader->footer_bytes_read + row_group_reader_chunk_bytes_read(reader);
}

uint64
row_group_reader_pages_read(const RowGroupReader *reader)
{
	return reader->record.state == GROUP_STORED ? reader->pages.pages_read : 0;
}
