/*
 * chunk_summary.c
 *		What the footer of a row group keeps of a column chunk, as bytes.
 *
 *		offset, length, raw length - length (folded), header length, u32 CRC of the
 *		header, encodings, u8 codec and SUMMARY_* flags, distinct values,
 *		SUMMARY_HAS_SUM: scale (folded), sum (folded, up to 128 bits), zone map
 *
 * Numbers are varints, since the summary of a chunk of one row should not be
 * longer than the chunk.  The footer's CRC covers them.
 */
#include "compat.h"

#include "catalog/pg_type.h"

#include "store/chunk/chunk_internal.h"
#include "store/value/varint.h"

#define SUMMARY_CODEC_MASK 0x0F
#define SUMMARY_HAS_BLOOM 0x10
#define SUMMARY_HAS_SUM 0x20

const char *
chunk_encoding_name(ChunkEncoding encoding)
{
	static const char *const names[CHUNK_NENCODINGS] = {
		[ENCODING_CONSTANT] = "constant",
		[ENCODING_RLE] = "rle",
		[ENCODING_FOR] = "for",
		[ENCODING_PFOR] = "pfor",
		[ENCODING_DELTA] = "delta",
		[ENCODING_SCALE] = "scale",
		[ENCODING_DICTIONARY] = "dictionary",
		[ENCODING_BITMAP] = "bitmap",
		[ENCODING_RAW] = "raw",
		[ENCODING_ALP] = "alp",
		[ENCODING_FSST] = "fsst",
		[ENCODING_NUMERIC64] = "numeric64",
		[ENCODING_NUMERIC128] = "numeric128",
		[ENCODING_NULL] = "null",
	};

	return encoding < CHUNK_NENCODINGS ? names[encoding] : "unknown";
}

bool
chunk_has_sum(const ColumnType *type)
{
	switch (type->typid)
	{
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case CASHOID:
			return type->form == FORM_INT;
		default:
			return type->form == FORM_NUMERIC;
	}
}

void
chunk_summary_write(const ColumnType *type, const ChunkSummary *summary, ByteBuffer *into)
{
	uint8 flags = summary->codec;

	flags |= summary->has_bloom ? SUMMARY_HAS_BLOOM : 0;
	flags |= summary->has_sum ? SUMMARY_HAS_SUM : 0;
	varint_put(into, summary->offset);
	varint_put(into, summary->length);
	varint_put_signed(into, (int64) (summary->raw_length - summary->length));
	varint_put(into, summary->header_length);
	byte_buffer_put_u32(into, summary->header_crc);
	varint_put(into, summary->encodings);
	byte_buffer_put_u8(into, flags);
	varint_put(into, summary->distinct);
	if (summary->has_sum)
	{
		varint_put_signed(into, summary->sum_scale);
		varint_put_wide(into, varint_fold(summary->sum));
	}
	zone_map_write(type, &summary->zone, into);
}

void
chunk_summary_read(const ColumnType *type, ByteCursor *cursor, ChunkSummary *summary)
{
	uint8 flags;

	memset(summary, 0, sizeof(*summary));
	summary->offset = varint_get(cursor);
	summary->length = varint_get(cursor);
	summary->raw_length = summary->length + (uint64) varint_get_signed(cursor);
	summary->header_length = (uint32) varint_get_limited(cursor, PG_UINT32_MAX,
														 "the length of a chunk's header");
	summary->header_crc = byte_cursor_u32(cursor);
	summary->encodings = (uint32) varint_get_limited(cursor, PG_UINT32_MAX,
													 "the set of a chunk's encodings");
	flags = byte_cursor_u8(cursor);
	summary->codec = flags & SUMMARY_CODEC_MASK;
	summary->has_bloom = (flags & SUMMARY_HAS_BLOOM) != 0;
	summary->distinct = (uint32) varint_get_limited(cursor, ROW_GROUP_ROWS_MAX,
													"the number of a chunk's distinct values");
	if (flags & SUMMARY_HAS_SUM)
	{
		summary->sum_scale = (int32) varint_get_signed(cursor);
		summary->sum = varint_unfold(varint_get_wide(cursor));
		/* a column whose type became another without a rewrite may have lost its sums */
		summary->has_sum = chunk_has_sum(type);
	}
	zone_map_read(type, cursor, &summary->zone);
}
