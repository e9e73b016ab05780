/*
 * chunk_write.c
 *		Encoding one column of a row group (chunk_internal.h draws the bytes).
 *
 * Each block chooses its own encoding, and each frame, a run of blocks of about
 * FRAME_BYTES, whether the general codec is worth it.  A column of bytes may have a
 * model for all of its blocks (a dictionary, or FSST's symbols).  FSST and a general
 * codec see the same redundancy, so a sample frame is written both ways and symbols
 * are kept only where they leave less after compression: against lz4 they often
 * do, against zstd seldom.
 *
 * What a reader wants to know without reading the chunk is gathered on the way:
 * zone maps, sum, number of distinct values, Bloom filter.
 *
 * Memory: everything but the result lies in a context that is deleted at the end.
 */
#include "compat.h"

#include "utils/memutils.h"

#include "store/codec/bytes_codec.h"
#include "store/chunk/bloom_filter.h"
#include "store/chunk/chunk_internal.h"
#include "store/codec/float_codec.h"
#include "store/codec/integer_codec.h"
#include "store/codec/numeric_codec.h"
#include "store/value/varint.h"

/* Shorter pieces are not worth a try of the general codec. */
#define COMPRESSED_BYTES_MIN 128

/* Symbols must leave less than this part of what the general codec alone leaves. */
#define FSST_GAIN 0.95

#define INNER_INTEGER_MASK 0x0F
#define INNER_BYTES_MASK 0x7F

typedef struct ChunkWriter
{
	const ColumnValues *values;
	const ColumnType *type;
	const ChunkOptions *options;
	ChunkSummary *summary;
	BytesModel *model; /* or NULL */
	NumericSum numeric_sum;
	bool any_compressed;
	uint64 raw_length; /* of all pieces so far */

	/* the frame that is being gathered */
	ByteBuffer frame;
	uint32 frame_nblocks;
	bool frame_is_numbers;

	/* parts of the header, and what follows it */
	uint32 nframes;
	ByteBuffer frame_table;
	ByteBuffer block_table;
	ByteBuffer zones;
	ByteBuffer stored_model;
	ByteBuffer stored_frames;
	ByteBuffer bloom;
} ChunkWriter;

/* ---- names of encodings ------------------------------------------------------------------------ */

static ChunkEncoding
name_integer_encoding(IntegerEncoding encoding)
{
	static const uint8 names[INTEGER_NENCODINGS] = {
		[INTEGER_CONSTANT] = ENCODING_CONSTANT,
		[INTEGER_RLE] = ENCODING_RLE,
		[INTEGER_FOR] = ENCODING_FOR,
		[INTEGER_PFOR] = ENCODING_PFOR,
		[INTEGER_DELTA] = ENCODING_DELTA,
		[INTEGER_SCALE] = ENCODING_SCALE,
		[INTEGER_DICTIONARY] = ENCODING_DICTIONARY,
		[INTEGER_BITMAP] = ENCODING_BITMAP,
	};

	Assert(encoding < INTEGER_NENCODINGS);
	return names[encoding];
}

static ChunkEncoding
name_bytes_encoding(BytesEncoding encoding)
{
	switch (encoding)
	{
		case BYTES_RAW:
			return ENCODING_RAW;
		case BYTES_DICTIONARY:
			return ENCODING_DICTIONARY;
		case BYTES_FSST:
			return ENCODING_FSST;
		case BYTES_CONSTANT:
			return ENCODING_CONSTANT;
	}
	pg_unreachable();
}

/* ---- values of a block ------------------------------------------------------------------------- */

/*
 * The byte behind that of the encoding, where a block of another codec begins with
 * its own encoding (and bits of that codec's).
 */
static uint8
inner_byte(const ByteBuffer *bytes, uint64 start)
{
	return (uint8) bytes->data[start + 1];
}

/* Appends the block's values to `into`; *is_numbers tells that they are no byte strings. */
static ChunkEncoding
encode_values(const ChunkWriter *writer, const BytesModel *model, uint32 first, uint32 nrows,
			  ByteBuffer *into, bool *is_numbers)
{
	const ColumnValues *values = writer->values;
	uint64 start = into->length;
	int64 filled[BLOCK_ROWS];
	const int64 *ints;

	*is_numbers = true;
	switch (writer->type->form)
	{
		case FORM_INT:
			ints = column_values_fill_nulls(values, first, nrows, filled);
			return name_integer_encoding(integer_encode(ints, nrows, into));
		case FORM_FLOAT:
			ints = column_values_fill_nulls(values, first, nrows, filled);
			switch (float_encode(ints, nrows, writer->type->length == sizeof(float4), into))
			{
				case FLOAT_RAW:
					return ENCODING_RAW;
				case FLOAT_ALP:
					return ENCODING_ALP;
				case FLOAT_INTEGER:
					return name_integer_encoding(inner_byte(into, start) & INNER_INTEGER_MASK);
			}
			break;
		case FORM_NUMERIC:
			switch (numeric_encode(model, values, first, nrows, into))
			{
				case NUMERIC_INT64:
					return ENCODING_NUMERIC64;
				case NUMERIC_INT128:
					return ENCODING_NUMERIC128;
				case NUMERIC_BYTES:
					*is_numbers = false;
					return name_bytes_encoding(inner_byte(into, start) & INNER_BYTES_MASK);
			}
			break;
		case FORM_FIXED:
		case FORM_BYTES:
			*is_numbers = false;
			return name_bytes_encoding(bytes_encode(model, values, first, nrows, into));
	}
	pg_unreachable();
}

/* Appends which rows of the block are NULL, in the shortest form. */
static ChunkNulls
write_nulls(const ColumnValues *values, uint32 first, uint32 nrows, uint32 nnulls, ByteBuffer *into)
{
	uint32 bitmap_length = (nrows + 7) / 8;

	if (nnulls == 0)
		return CHUNK_NULLS_NONE;
	if (nnulls == nrows)
		return CHUNK_NULLS_ALL;
	if (1 + nnulls * sizeof(uint16) < bitmap_length)
	{
		byte_buffer_put_u8(into, (uint8) nnulls);
		for (uint32 i = 0; i < nrows; i++)
		{
			if (values->nulls[first + i])
				byte_buffer_put_u16(into, (uint16) i);
		}
		return CHUNK_NULLS_LIST;
	}
	else
	{
		uint64 words[BLOCK_WORDS] = {0};

		for (uint32 i = 0; i < nrows; i++)
			words[i >> 6] |= (uint64) (values->nulls[first + i] != 0) << (i & 63);
		byte_buffer_append(into, words, bitmap_length);
		return CHUNK_NULLS_BITMAP;
	}
}

/* ---- pieces ------------------------------------------------------------------------------------ */

/* Appends the bytes to `into`, compressed if that pays, and describes them in `table`. */
static void
store_piece(ChunkWriter *writer, const ByteBuffer *bytes, bool may_compress, ByteBuffer *into,
			ByteBuffer *table)
{
	const ChunkOptions *options = writer->options;
	uint64 start = into->length;
	bool compressed = false;

	if (may_compress && bytes->length >= COMPRESSED_BYTES_MIN)
		compressed = codec_compress(options->codec, options->level, options->saving, bytes->data,
									bytes->length, into);
	if (!compressed)
		byte_buffer_append(into, bytes->data, bytes->length);

	varint_put(table, bytes->length << 1 | compressed);
	if (compressed)
		varint_put(table, into->length - start);
	byte_buffer_put_u32(table, format_crc(into->data + start, into->length - start));
	writer->raw_length += bytes->length;
	writer->any_compressed |= compressed;
}

static void
close_frame(ChunkWriter *writer)
{
	bool may_compress = !(writer->options->keep_numbers && writer->frame_is_numbers);

	varint_put(&writer->frame_table, writer->frame_nblocks);
	store_piece(writer, &writer->frame, may_compress, &writer->stored_frames, &writer->frame_table);
	writer->nframes++;
	writer->frame.length = 0;
	writer->frame_nblocks = 0;
	writer->frame_is_numbers = true;
}

/* ---- blocks ------------------------------------------------------------------------------------ */

/* Computes the block's zone map, widens that of the chunk by it, and adds its values up. */
static void
summarize_block(ChunkWriter *writer, uint32 first, uint32 nrows, ZoneMap *zone)
{
	const ColumnValues *values = writer->values;
	ChunkSummary *summary = writer->summary;

	if (writer->type->form == FORM_NUMERIC)
		zone_map_compute_numeric(zone, values, first, nrows, &writer->numeric_sum);
	else
		zone_map_compute(zone, values, first, nrows);
	zone_map_merge(writer->type, &summary->zone, zone);

	if (writer->type->form == FORM_INT && chunk_has_sum(writer->type))
	{
		/* rows that are NULL hold 0 */
		for (uint32 i = 0; i < nrows; i++)
			summary->sum += values->ints[first + i];
	}
}

static void
add_block(ChunkWriter *writer, uint32 first, uint32 nrows)
{
	ByteBuffer *frame = &writer->frame;
	uint64 start = frame->length;
	ChunkEncoding encoding = ENCODING_NULL;
	ChunkNulls nulls;
	bool is_numbers;
	ZoneMap zone;

	summarize_block(writer, first, nrows, &zone);
	if (writer->values->nrows > BLOCK_ROWS)
		zone_map_write(writer->type, &zone, &writer->zones);

	nulls = write_nulls(writer->values, first, nrows, zone.nnulls, frame);
	if (nulls != CHUNK_NULLS_ALL)
	{
		encoding = encode_values(writer, writer->model, first, nrows, frame, &is_numbers);
		writer->frame_is_numbers &= is_numbers;
	}
	writer->summary->encodings |= (uint32) 1 << encoding;
	byte_buffer_put_u8(&writer->block_table, (uint8) (encoding | nulls << CHUNK_NULLS_SHIFT));
	if (nulls != CHUNK_NULLS_ALL)
		varint_put(&writer->block_table, frame->length - start);

	writer->frame_nblocks++;
	if (frame->length >= FRAME_BYTES)
		close_frame(writer);
}

/* ---- the model --------------------------------------------------------------------------------- */

/* Length of some blocks in the middle, about a frame, after compression. */
static uint64
try_model(ChunkWriter *writer, const BytesModel *model, uint32 first, uint32 last)
{
	const ChunkOptions *options = writer->options;
	ByteBuffer bytes;
	ByteBuffer stored;
	uint64 length;

	byte_buffer_init(&bytes, FRAME_BYTES * 2);
	byte_buffer_init(&stored, FRAME_BYTES);
	for (uint32 block = first; block <= last; block++)
	{
		uint32 nrows = chunk_count_rows(writer->values->nrows, block);
		bool is_numbers;

		encode_values(writer, model, block * BLOCK_ROWS, nrows, &bytes, &is_numbers);
	}
	length = bytes.length;
	if (codec_compress(options->codec, options->level, options->saving, bytes.data, bytes.length,
					   &stored))
		length = stored.length;
	byte_buffer_free(&bytes);
	byte_buffer_free(&stored);
	return length;
}

static uint64
count_value_bytes(const ColumnValues *values, uint32 block)
{
	uint32 first = block * BLOCK_ROWS;
	uint32 end = first + chunk_count_rows(values->nrows, block);

	if (values->type->form == FORM_FIXED)
		return (uint64) (end - first) * values->type->length;
	return values->ends[end - 1] - (first == 0 ? 0 : values->ends[first - 1]);
}

/* Does the model leave clearly less than the general codec alone?  Tried on a sample frame. */
static bool
is_model_worth_it(ChunkWriter *writer, const BytesModel *model)
{
	uint32 nblocks = chunk_count_blocks(writer->values->nrows);
	uint32 first = nblocks / 2;
	uint32 last = first;
	uint64 bytes = count_value_bytes(writer->values, first);
	double share;
	ByteBuffer table;
	uint64 without;
	uint64 with;

	while (bytes < FRAME_BYTES && last + 1 < nblocks)
		bytes += count_value_bytes(writer->values, ++last);
	share = (double) (last - first + 1) / nblocks;

	byte_buffer_init(&table, 0);
	bytes_model_write(model, &table);
	without = try_model(writer, NULL, first, last);
	with = try_model(writer, model, first, last) + (uint64) (table.length * share);
	byte_buffer_free(&table);
	return with < without * FSST_GAIN;
}

static BytesModel *
choose_model(ChunkWriter *writer)
{
	const ColumnValues *values = writer->values;
	Codec codec = writer->options->codec;
	BytesModel *model = NULL;

	if (writer->type->form == FORM_NUMERIC)
		return numeric_model_train(values);
	if (writer->type->form != FORM_FIXED && writer->type->form != FORM_BYTES)
		return NULL;

	/* entries of a dictionary as symbols would be in zstd's way */
	if (codec == CODEC_ZSTD)
		model = bytes_model_train(values, false);
	if (model == NULL)
		model = bytes_model_train(values, true);
	if (model != NULL && codec != CODEC_NONE && bytes_model_nentries(model) == 0 &&
		!is_model_worth_it(writer, model))
		return NULL;
	return model;
}

/* ---- the Bloom filter -------------------------------------------------------------------------- */

static uint64
hash_datum(const ColumnType *type, Datum value)
{
	return DatumGetUInt64(
		FunctionCall2Coll((FmgrInfo *) &type->hash, type->collation, value, UInt64GetDatum(0)));
}

/* Hashes of all values, or of a dictionary's entries. */
static void
build_bloom_filter(ChunkWriter *writer)
{
	const ColumnValues *values = writer->values;
	Dictionary *dictionary = writer->model != NULL ? bytes_model_dictionary(writer->model) : NULL;
	uint32 nitems = dictionary != NULL ? dictionary->nentries : values->nrows;
	uint64 *hashes = MemoryContextAllocHuge(CurrentMemoryContext, Max(nitems, 1) * sizeof(uint64));
	uint32 nhashes = 0;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "columnar hashes",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);

	for (uint32 i = 0; i < nitems; i++)
	{
		bool isnull = false;
		Datum value;

		if (dictionary != NULL)
			value = column_type_from_bytes(writer->type, dictionary->starts[i],
										   dictionary->lengths[i]);
		else
			value = column_values_datum(values, i, &isnull);
		if (!isnull)
			hashes[nhashes++] = hash_datum(writer->type, value);
		if (i % 64 == 63)
			MemoryContextReset(context);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	bloom_filter_write(hashes, nhashes, &writer->bloom);
	pfree(hashes);
}

/* ---- the chunk --------------------------------------------------------------------------------- */

static void
init_writer(ChunkWriter *writer, const ColumnValues *values, const ChunkOptions *options,
			ChunkSummary *summary)
{
	memset(writer, 0, sizeof(*writer));
	writer->values = values;
	writer->type = values->type;
	writer->options = options;
	writer->summary = summary;
	writer->numeric_sum.known = true;
	writer->frame_is_numbers = true;
	byte_buffer_init(&writer->frame, 0);
	byte_buffer_init(&writer->frame_table, 0);
	byte_buffer_init(&writer->block_table, 0);
	byte_buffer_init(&writer->zones, 0);
	byte_buffer_init(&writer->stored_model, 0);
	byte_buffer_init(&writer->stored_frames, 0);
	byte_buffer_init(&writer->bloom, 0);
}

/* Encodes everything behind the header; the model's piece is described in *model_table. */
static void
encode_chunk(ChunkWriter *writer, ByteBuffer *model_table)
{
	const ColumnValues *values = writer->values;

	writer->model = choose_model(writer);
	if (writer->model != NULL)
	{
		ByteBuffer model;

		byte_buffer_init(&model, 0);
		bytes_model_write(writer->model, &model);
		store_piece(writer, &model, true, &writer->stored_model, model_table);
	}
	for (uint32 block = 0; block < chunk_count_blocks(values->nrows); block++)
		add_block(writer, block * BLOCK_ROWS, chunk_count_rows(values->nrows, block));
	if (writer->frame_nblocks > 0)
		close_frame(writer);
	if (writer->options->bloom && OidIsValid(writer->type->hash.fn_oid))
		build_bloom_filter(writer);
}

static void
write_header(const ChunkWriter *writer, const ByteBuffer *model_table, ByteBuffer *header)
{
	uint8 flags = writer->type->form;

	flags |= writer->type->is_unsigned ? CHUNK_FLAG_UNSIGNED : 0;
	flags |= writer->model != NULL ? CHUNK_FLAG_HAS_MODEL : 0;
	flags |= writer->bloom.length > 0 ? CHUNK_FLAG_HAS_BLOOM : 0;

	byte_buffer_put_u8(header, CHUNK_MAGIC);
	byte_buffer_put_u8(header, flags);
	byte_buffer_put_u8(header, writer->summary->codec);
	varint_put(header, writer->values->nrows);
	varint_put(header, writer->nframes);
	byte_buffer_append(header, model_table->data, model_table->length);
	if (writer->bloom.length > 0)
	{
		varint_put(header, writer->type->hash.fn_oid);
		varint_put(header, writer->bloom.length);
		byte_buffer_put_u32(header, format_crc(writer->bloom.data, writer->bloom.length));
	}
	byte_buffer_append(header, writer->frame_table.data, writer->frame_table.length);
	byte_buffer_append(header, writer->block_table.data, writer->block_table.length);
	byte_buffer_append(header, writer->zones.data, writer->zones.length);
}

static uint32
count_distinct(const ChunkWriter *writer)
{
	uint32 nentries = writer->model != NULL ? bytes_model_nentries(writer->model) : 0;

	return nentries > 0 ? nentries : chunk_distinct_estimate(writer->values);
}

static void
finish_summary(ChunkWriter *writer, const ByteBuffer *header)
{
	ChunkSummary *summary = writer->summary;

	summary->header_length = (uint32) header->length;
	summary->header_crc = format_crc(header->data, header->length);
	summary->length = header->length + writer->stored_model.length + writer->stored_frames.length +
					  writer->bloom.length;
	summary->raw_length = header->length + writer->raw_length + writer->bloom.length;
	summary->has_bloom = writer->bloom.length > 0;
	summary->distinct = count_distinct(writer);
	summary->has_sum = chunk_has_sum(writer->type);
	if (writer->type->form == FORM_NUMERIC)
	{
		summary->has_sum = writer->numeric_sum.known;
		summary->sum_scale = writer->numeric_sum.scale;
		summary->sum = writer->numeric_sum.known ? writer->numeric_sum.total : 0;
	}
}

void
chunk_write(const ColumnValues *values, const ChunkOptions *options, ByteBuffer *into,
			ChunkSummary *summary)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "columnar chunk writer",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	ChunkWriter writer;
	ByteBuffer model_table;
	ByteBuffer header;

	Assert(values->nrows <= ROW_GROUP_ROWS_MAX);
	memset(summary, 0, sizeof(*summary));
	init_writer(&writer, values, options, summary);
	byte_buffer_init(&model_table, 0);
	byte_buffer_init(&header, 0);

	encode_chunk(&writer, &model_table);
	summary->codec = writer.any_compressed ? options->codec : CODEC_NONE;
	write_header(&writer, &model_table, &header);
	finish_summary(&writer, &header);

	MemoryContextSwitchTo(old);
	byte_buffer_align(into);
	summary->offset = into->length;
	byte_buffer_append(into, header.data, header.length);
	byte_buffer_append(into, writer.stored_model.data, writer.stored_model.length);
	byte_buffer_append(into, writer.stored_frames.data, writer.stored_frames.length);
	byte_buffer_append(into, writer.bloom.data, writer.bloom.length);
	MemoryContextDelete(context);
}
