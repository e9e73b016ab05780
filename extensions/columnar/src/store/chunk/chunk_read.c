/*
 * chunk_read.c
 *		Reading a column chunk block by block (chunk_internal.h draws the bytes).
 *
 * Opening reads the header alone.  Zone maps, the model and the Bloom filter are
 * parsed or read when first asked for.  Of the frames the last one is kept, so
 * blocks asked for in ascending order read each byte once, in ascending order.
 *
 * Nothing is believed: the summary must fit the source, the header the summary, and
 * the lengths of all parts must add up to the chunk's; a CRC covers every stored
 * byte and is checked before the byte is used.  The codecs check what they decode
 * once more, so that a damaged file that keeps its CRC cannot crash the server
 * either.  (With FORMAT_FUZZ defined, CRCs are not checked: a fuzzer's damage
 * reaches the codecs.)
 *
 * The column can have changed its type without a rewrite (column_type.c).  Then the
 * integers' sign is adapted; a Bloom filter of another hash function is not asked.
 *
 * Memory: all of a reader lies in its own context.
 */
#include "compat.h"

#include "utils/memutils.h"

#include "store/chunk/bloom_filter.h"
#include "store/codec/bytes_codec.h"
#include "store/chunk/chunk_internal.h"
#include "store/codec/float_codec.h"
#include "store/codec/integer_codec.h"
#include "store/codec/numeric_codec.h"
#include "store/value/varint.h"

#define NO_FRAME PG_UINT32_MAX

typedef struct BlockEntry
{
	uint64 offset; /* in the raw frame */
	uint64 length;
	uint32 frame;
	ChunkNulls nulls;
} BlockEntry;

struct ChunkReader
{
	MemoryContext context;
	ByteSource *source;
	const ColumnType *type;
	ChunkSummary summary;
	uint32 nrows;
	uint32 nblocks;
	uint32 nframes;
	FormatPlace place; /* format_place when the reader was opened */
	Codec codec;
	bool is_unsigned; /* as it was when the chunk was written */
	bool has_model;
	bool has_bloom;
	char *header;
	ByteCursor zone_bytes; /* in the header */
	ZoneMap *zones;		   /* NULL until asked for */
	ChunkPiece model_piece;
	BytesModel *model; /* NULL until needed */
	ChunkPiece *frames;
	BlockEntry *blocks;
	ChunkPiece bloom_piece;
	Oid bloom_hash;
	char *bloom;	   /* NULL until asked */
	ByteBuffer stored; /* scratch: compressed bytes */
	ByteBuffer frame;  /* raw bytes of frame `loaded` */
	uint32 loaded;	   /* or NO_FRAME */
	ByteBuffer arena;  /* decompressed strings of the last block */
	uint64 bytes_read;
};

/* ---- reading bytes ----------------------------------------------------------------------------- */

static void
check_crc(const char *bytes, uint64 length, uint32 crc, const char *what)
{
#ifndef FORMAT_FUZZ
	if (format_crc(bytes, length) != crc)
		format_damaged("the checksum of %s is wrong", what);
#endif
}

static void
read_bytes(ChunkReader *reader, uint64 offset, uint64 length, char *into)
{
	byte_source_read(reader->source, reader->summary.offset + offset, length, into);
	reader->bytes_read += length;
}

/* Makes the buffer hold `length` bytes, all of them yet to be written. */
static void
resize_buffer(ByteBuffer *buffer, uint64 length)
{
	buffer->length = 0;
	byte_buffer_reserve(buffer, length);
	buffer->length = length;
}

/* The raw bytes of a piece, in *into. */
static void
read_piece(ChunkReader *reader, const ChunkPiece *piece, const char *what, ByteBuffer *into)
{
	ByteBuffer *stored = piece->compressed ? &reader->stored : into;

	resize_buffer(stored, piece->stored_length);
	read_bytes(reader, piece->offset, piece->stored_length, stored->data);
	check_crc(stored->data, piece->stored_length, piece->crc, what);
	if (piece->compressed)
	{
		resize_buffer(into, piece->raw_length);
		codec_decompress(reader->codec, stored->data, stored->length, into->data,
						 piece->raw_length);
	}
}

/* ---- the header -------------------------------------------------------------------------------- */

/* What of the chunk has not been accounted for while the header is parsed. */
typedef struct ChunkBudget
{
	uint64 offset; /* where the next part begins */
	uint64 raw_left;
} ChunkBudget;

/* Takes the next `stored_length` bytes of the chunk. */
static void
take_bytes(const ChunkReader *reader, ChunkBudget *budget, ChunkPiece *piece)
{
	if (piece->stored_length > reader->summary.length - budget->offset)
		format_damaged("a part of " UINT64_FORMAT " bytes passes the end of the chunk",
					   piece->stored_length);
	if (piece->raw_length > budget->raw_left)
		format_damaged("a part of " UINT64_FORMAT " bytes passes the chunk's raw length",
					   piece->raw_length);
	piece->offset = budget->offset;
	budget->offset += piece->stored_length;
	budget->raw_left -= piece->raw_length;
}

static void
parse_piece(const ChunkReader *reader, ByteCursor *cursor, ChunkBudget *budget, ChunkPiece *piece)
{
	uint64 length = varint_get(cursor);

	piece->raw_length = length >> 1;
	piece->compressed = length & 1;
	piece->stored_length = piece->compressed ? varint_get(cursor) : piece->raw_length;
	piece->crc = byte_cursor_u32(cursor);
	if (piece->compressed && reader->codec == CODEC_NONE)
		format_damaged("a part is compressed, but the chunk has no codec");
	take_bytes(reader, budget, piece);
}

/* The fields in front of the tables. */
static void
parse_start(ChunkReader *reader, ByteCursor *cursor)
{
	uint8 magic = byte_cursor_u8(cursor);
	uint8 flags = byte_cursor_u8(cursor);
	uint8 codec = byte_cursor_u8(cursor);
	uint64 nrows = varint_get(cursor);
	ColumnForm form = flags & CHUNK_FORM_MASK;

	if (magic != CHUNK_MAGIC || (flags & CHUNK_FLAGS_UNKNOWN) != 0 || codec > CODEC_ZSTD)
		format_damaged("there is no column chunk, or one of an unknown kind");
	if (form != reader->type->form)
		format_damaged("the chunk holds values of form %d, but its column has form %d", (int) form,
					   (int) reader->type->form);
	if (nrows != reader->nrows)
		format_damaged("the chunk has " UINT64_FORMAT " rows instead of %u", nrows, reader->nrows);
	reader->codec = codec;
	reader->is_unsigned = (flags & CHUNK_FLAG_UNSIGNED) != 0;
	reader->has_model = (flags & CHUNK_FLAG_HAS_MODEL) != 0;
	reader->has_bloom = (flags & CHUNK_FLAG_HAS_BLOOM) != 0;
	reader->nframes = (uint32) varint_get_limited(cursor, reader->nblocks, "the number of frames");
	if (reader->has_bloom != reader->summary.has_bloom)
		format_damaged("header and summary of the chunk differ about its Bloom filter");
}

/* Each frame's place; returns in blocks[].frame which blocks it has. */
static void
parse_frames(ChunkReader *reader, ByteCursor *cursor, ChunkBudget *budget)
{
	uint32 block = 0;

	reader->frames = palloc0(Max(reader->nframes, 1) * sizeof(ChunkPiece));
	for (uint32 frame = 0; frame < reader->nframes; frame++)
	{
		uint64 nblocks = varint_get(cursor);

		if (nblocks == 0 || nblocks > reader->nblocks - block)
			format_damaged("frame %u has " UINT64_FORMAT " blocks", frame, nblocks);
		for (uint32 end = block + (uint32) nblocks; block < end; block++)
			reader->blocks[block].frame = frame;
		parse_piece(reader, cursor, budget, &reader->frames[frame]);
	}
	if (block != reader->nblocks)
		format_damaged("the frames have %u blocks instead of %u", block, reader->nblocks);
}

/* Each block's place in its frame; the blocks of a frame fill it. */
static void
parse_blocks(ChunkReader *reader, ByteCursor *cursor)
{
	uint64 offset = 0;

	for (uint32 i = 0; i < reader->nblocks; i++)
	{
		BlockEntry *block = &reader->blocks[i];
		uint64 frame_length = reader->frames[block->frame].raw_length;
		uint8 kind = byte_cursor_u8(cursor);
		bool is_last = i + 1 == reader->nblocks || block[1].frame != block->frame;

		block->nulls = kind >> CHUNK_NULLS_SHIFT;
		if (block->nulls > CHUNK_NULLS_LIST || (kind & CHUNK_ENCODING_MASK) >= CHUNK_NENCODINGS ||
			(block->nulls == CHUNK_NULLS_ALL) != ((kind & CHUNK_ENCODING_MASK) == ENCODING_NULL))
			format_damaged("block %u has the unknown kind %u", i, kind);
		block->offset = offset;
		if (block->nulls != CHUNK_NULLS_ALL)
			block->length = varint_get_limited(cursor, frame_length - offset, "a block's length");
		offset += block->length;
		if (is_last && offset != frame_length)
			format_damaged("the blocks of frame %u have " UINT64_FORMAT
						   " bytes instead of " UINT64_FORMAT,
						   block->frame, offset, frame_length);
		if (is_last)
			offset = 0;
	}
}

static void
parse_header(ChunkReader *reader)
{
	const ChunkSummary *summary = &reader->summary;
	ByteCursor cursor = {reader->header, reader->header + summary->header_length};
	ChunkBudget budget = {summary->header_length, summary->raw_length - summary->header_length};

	check_crc(reader->header, summary->header_length, summary->header_crc, "the chunk's header");
	parse_start(reader, &cursor);
	if (reader->has_model)
		parse_piece(reader, &cursor, &budget, &reader->model_piece);
	if (reader->has_bloom)
	{
		reader->bloom_hash = (Oid) varint_get_limited(&cursor, PG_UINT32_MAX, "a function's OID");
		reader->bloom_piece.raw_length = varint_get(&cursor);
		reader->bloom_piece.stored_length = reader->bloom_piece.raw_length;
		reader->bloom_piece.crc = byte_cursor_u32(&cursor);
	}
	reader->blocks = palloc0(Max(reader->nblocks, 1) * sizeof(BlockEntry));
	parse_frames(reader, &cursor, &budget);
	take_bytes(reader, &budget, &reader->bloom_piece);
	parse_blocks(reader, &cursor);

	if (budget.offset != summary->length || budget.raw_left != 0)
		format_damaged("the parts of the chunk have " UINT64_FORMAT
					   " bytes instead of " UINT64_FORMAT,
					   budget.offset, summary->length);
	if (reader->nblocks == 1 && cursor.at != cursor.end)
		format_damaged("the chunk's header is longer than what it holds");
	reader->zone_bytes = cursor;
}

/* Can the summary be that of a chunk of so many rows in this source? */
static void
check_summary(const ByteSource *source, const ChunkSummary *summary, uint32 nrows)
{
	if (summary->offset > source->length || summary->length > source->length - summary->offset)
		format_damaged("the chunk passes the end of its row group");
	if (summary->header_length > summary->length || summary->header_length > summary->raw_length)
		format_damaged("the chunk is shorter than its header");
	if (nrows > ROW_GROUP_ROWS_MAX)
		format_damaged("the row group has %u rows", nrows);
	if (summary->zone.nrows != nrows)
		format_damaged("the chunk has %u rows instead of %u", summary->zone.nrows, nrows);
}

/* Errors from here on are about this column, and block (-1: none in particular). */
static void
set_place(const ChunkReader *reader, int block)
{
	format_place = reader->place;
	format_place.block = block;
}

ChunkReader *
chunk_reader_open(ByteSource *source, const ChunkSummary *summary, const ColumnType *type,
				  uint32 nrows)
{
	MemoryContext context;
	MemoryContext old;
	ChunkReader *reader;

	check_summary(source, summary, nrows);
	context = AllocSetContextCreate(CurrentMemoryContext, "columnar chunk reader",
									ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	reader = palloc0(sizeof(ChunkReader));
	reader->context = context;
	reader->source = source;
	reader->type = type;
	reader->summary = *summary;
	reader->nrows = nrows;
	reader->nblocks = chunk_count_blocks(nrows);
	reader->place = format_place;
	reader->loaded = NO_FRAME;
	byte_buffer_init(&reader->stored, 0);
	byte_buffer_init(&reader->frame, 0);
	byte_buffer_init(&reader->arena, 0);

	reader->header = MemoryContextAllocHuge(context, Max(summary->header_length, 1));
	read_bytes(reader, 0, summary->header_length, reader->header);
	parse_header(reader);
	MemoryContextSwitchTo(old);
	return reader;
}

void
chunk_reader_close(ChunkReader *reader)
{
	MemoryContextDelete(reader->context);
}

uint32
chunk_reader_nblocks(const ChunkReader *reader)
{
	return reader->nblocks;
}

uint64
chunk_reader_bytes_read(const ChunkReader *reader)
{
	return reader->bytes_read;
}

/* ---- zone maps and Bloom filter ---------------------------------------------------------------- */

static void
parse_zones(ChunkReader *reader)
{
	ByteCursor cursor = reader->zone_bytes;
	ZoneMap *zones = MemoryContextAlloc(reader->context, reader->nblocks * sizeof(ZoneMap));

	for (uint32 block = 0; block < reader->nblocks; block++)
	{
		uint32 nrows = chunk_count_rows(reader->nrows, block);
		bool all_null = reader->blocks[block].nulls == CHUNK_NULLS_ALL;
		bool none_null = reader->blocks[block].nulls == CHUNK_NULLS_NONE;

		set_place(reader, (int) block);
		zone_map_read(reader->type, &cursor, &zones[block]);
		if (zones[block].nrows != nrows || (zones[block].nnulls == nrows) != all_null ||
			(zones[block].nnulls == 0) != none_null)
			format_damaged("the zone map is of %u rows with %u NULLs", zones[block].nrows,
						   zones[block].nnulls);
	}
	set_place(reader, -1);
	if (cursor.at != cursor.end)
		format_damaged("the chunk's header is longer than what it holds");
	reader->zones = zones;
}

const ZoneMap *
chunk_reader_zone(ChunkReader *reader, uint32 block)
{
	Assert(block < reader->nblocks);
	/* the only block's is the chunk's */
	if (reader->nblocks == 1)
		return &reader->summary.zone;
	if (reader->zones == NULL)
		parse_zones(reader);
	return &reader->zones[block];
}

bool
chunk_reader_may_contain(ChunkReader *reader, uint64 hash)
{
	const ChunkPiece *piece = &reader->bloom_piece;

	if (!reader->has_bloom || reader->bloom_hash != reader->type->hash.fn_oid)
		return true;
	set_place(reader, -1);
	if (reader->bloom == NULL)
	{
		char *bloom = MemoryContextAllocHuge(reader->context, Max(piece->stored_length, 1));

		read_bytes(reader, piece->offset, piece->stored_length, bloom);
		check_crc(bloom, piece->stored_length, piece->crc, "the Bloom filter");
		reader->bloom = bloom;
	}
	return bloom_filter_test(reader->bloom, piece->stored_length, hash);
}

/* ---- blocks ------------------------------------------------------------------------------------ */

static void
load_frame(ChunkReader *reader, uint32 frame)
{
	reader->loaded = NO_FRAME;
	read_piece(reader, &reader->frames[frame], "the frame", &reader->frame);
	reader->loaded = frame;
}

/* The model stays for the reader's life, and so do the bytes that it points into. */
static void
load_model(ChunkReader *reader)
{
	MemoryContext old = MemoryContextSwitchTo(reader->context);
	ByteBuffer bytes;
	ByteCursor cursor;
	BytesModel *model;

	byte_buffer_init(&bytes, reader->model_piece.raw_length);
	read_piece(reader, &reader->model_piece, "the dictionary", &bytes);
	cursor = (ByteCursor){bytes.data, bytes.data + bytes.length};
	model = bytes_model_read(&cursor);
	if (cursor.at != cursor.end)
		format_damaged("the dictionary is followed by other bytes");
	reader->model = model;
	MemoryContextSwitchTo(old);
}

static uint32
count_bits(const uint64 *words)
{
	uint32 count = 0;

	for (int i = 0; i < BLOCK_WORDS; i++)
		count += __builtin_popcountll(words[i]);
	return count;
}

static void
set_all_null(ColumnBlock *block, uint32 nrows)
{
	memset(block->nulls, 0, sizeof(block->nulls));
	for (uint32 i = 0; i < nrows / 64; i++)
		block->nulls[i] = PG_UINT64_MAX;
	if (nrows % 64 != 0)
		block->nulls[nrows / 64] = (UINT64CONST(1) << (nrows % 64)) - 1;
}

static void
read_null_list(ByteCursor *cursor, uint32 nrows, uint64 *nulls)
{
	uint32 count = byte_cursor_u8(cursor);
	int previous = -1;

	for (uint32 i = 0; i < count; i++)
	{
		uint16 row = byte_cursor_u16(cursor);

		if (row >= nrows || row <= previous)
			format_damaged("row %u is in the list of NULLs behind row %d, of %u rows", row,
						   previous, nrows);
		nulls[row >> 6] |= UINT64CONST(1) << (row & 63);
		previous = row;
	}
}

/* Fills has_nulls and nulls; CHUNK_NULLS_BITMAP and _LIST mean some, but not all. */
static void
read_nulls(ByteCursor *cursor, ChunkNulls kind, uint32 nrows, ColumnBlock *block)
{
	uint32 length = (nrows + 7) / 8;
	uint32 nnulls;

	block->has_nulls = kind != CHUNK_NULLS_NONE;
	if (kind == CHUNK_NULLS_NONE)
		return;
	if (kind == CHUNK_NULLS_ALL)
	{
		set_all_null(block, nrows);
		return;
	}
	memset(block->nulls, 0, sizeof(block->nulls));
	if (kind == CHUNK_NULLS_LIST)
		read_null_list(cursor, nrows, block->nulls);
	else
		memcpy(block->nulls, byte_cursor_bytes(cursor, length), length);

	nnulls = count_bits(block->nulls);
	if (nnulls == 0 || nnulls >= nrows)
		format_damaged("%u of %u rows are NULL", nnulls, nrows);
	if (nrows % 64 != 0 && block->nulls[nrows / 64] >> (nrows % 64) != 0)
		format_damaged("the bitmap of NULLs has more than %u rows", nrows);
}

/* A block without any value: zeros and empty strings, so that whoever looks finds no garbage. */
static void
fill_without_values(const ColumnType *type, uint32 nrows, ColumnBlock *block)
{
	block->constant = true;
	switch (type->form)
	{
		case FORM_INT:
		case FORM_NUMERIC:
			block->form = BLOCK_INT;
			block->scale = type->form == FORM_NUMERIC ? 0 : -1;
			column_block_use(block, BLOCK_INT);
			memset(block->ints, 0, nrows * sizeof(int64));
			break;
		case FORM_FLOAT:
			block->form = BLOCK_FLOAT;
			column_block_use(block, BLOCK_FLOAT);
			memset(block->floats, 0, nrows * sizeof(double));
			break;
		case FORM_FIXED:
		case FORM_BYTES:
			block->form = BLOCK_BYTES;
			column_block_use(block, BLOCK_BYTES);
			for (uint32 i = 0; i < nrows; i++)
				block->starts[i] = "";
			memset(block->lengths, 0, nrows * sizeof(uint32));
			break;
	}
}

static void
decode_ints(const ChunkReader *reader, ByteCursor *cursor, uint32 nrows, ColumnBlock *block)
{
	const ColumnType *type = reader->type;

	block->form = BLOCK_INT;
	column_block_use(block, BLOCK_INT);
	integer_decode(cursor, nrows, block->ints, &block->constant);
	if (reader->is_unsigned == type->is_unsigned)
		return;
	for (uint32 i = 0; i < nrows; i++)
		block->ints[i] = column_type_to_int(type, column_type_from_int(type, block->ints[i]));
}

static void
decode_values(ChunkReader *reader, ByteCursor *cursor, uint32 nrows, ColumnBlock *block)
{
	const ColumnType *type = reader->type;

	switch (type->form)
	{
		case FORM_INT:
			decode_ints(reader, cursor, nrows, block);
			break;
		case FORM_FLOAT:
			block->form = BLOCK_FLOAT;
			column_block_use(block, BLOCK_FLOAT);
			float_decode(cursor, nrows, type->length == sizeof(float4), block->floats,
						 &block->constant);
			break;
		case FORM_NUMERIC:
			numeric_decode(reader->model, cursor, nrows, &reader->arena, block);
			break;
		case FORM_FIXED:
		case FORM_BYTES:
			bytes_decode(reader->model, cursor, nrows, &reader->arena, block);
			break;
	}
}

void
chunk_reader_decode(ChunkReader *reader, uint32 block, ColumnBlock *out)
{
	const BlockEntry *entry = &reader->blocks[block];
	ByteCursor cursor = {NULL, NULL};
	uint32 nrows;

	Assert(block < reader->nblocks);
	set_place(reader, (int) block);
	nrows = chunk_count_rows(reader->nrows, block);
	out->nrows = nrows;
	out->scale = -1;
	out->constant = false;
	out->has_exceptions = false;
	out->dictionary = NULL;

	if (entry->nulls == CHUNK_NULLS_ALL)
	{
		read_nulls(&cursor, entry->nulls, nrows, out);
		fill_without_values(reader->type, nrows, out);
	}
	else
	{
		if (reader->has_model && reader->model == NULL)
			load_model(reader);
		if (reader->loaded != entry->frame)
			load_frame(reader, entry->frame);
		cursor.at = reader->frame.data + entry->offset;
		cursor.end = cursor.at + entry->length;
		read_nulls(&cursor, entry->nulls, nrows, out);
		decode_values(reader, &cursor, nrows, out);
		if (cursor.at != cursor.end)
			format_damaged("the block's values are followed by other bytes");
	}
	set_place(reader, -1);
}
