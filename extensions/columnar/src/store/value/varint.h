/*
 * varint.h
 *		Integers in as many bytes as they need: seven bits a byte, least significant
 *		first, the high bit set on all but the last.
 *
 * For the headers of chunks and zone maps, which would otherwise outweigh the
 * data of a row group of one row.  Signed values are folded first, so that small
 * negative ones stay short.  Reading checks that the value fits its type.
 */
#ifndef COLUMNAR_VARINT_H
#define COLUMNAR_VARINT_H

#include "store/value/format.h"

#define VARINT_MAX_BYTES 19 /* of 128 bits */

/* The sign goes to bit 0: 0, -1, 1, -2 ... become 0, 1, 2, 3 ... */
static inline uint128
varint_fold(int128 value)
{
	return ((uint128) value << 1) ^ (uint128) (value >> 127);
}

static inline int128
varint_unfold(uint128 folded)
{
	return (int128) (folded >> 1) ^ -(int128) (folded & 1);
}

static inline void
varint_put_wide(ByteBuffer *into, uint128 value)
{
	char bytes[VARINT_MAX_BYTES];
	int length = 0;

	while (value >= 0x80)
	{
		bytes[length++] = (char) ((value & 0x7f) | 0x80);
		value >>= 7;
	}
	bytes[length++] = (char) value;
	byte_buffer_append(into, bytes, length);
}

static inline void
varint_put(ByteBuffer *into, uint64 value)
{
	char bytes[VARINT_MAX_BYTES];
	int length = 0;

	while (value >= 0x80)
	{
		bytes[length++] = (char) ((value & 0x7f) | 0x80);
		value >>= 7;
	}
	bytes[length++] = (char) value;
	byte_buffer_append(into, bytes, length);
}

static inline void
varint_put_signed(ByteBuffer *into, int64 value)
{
	varint_put(into, ((uint64) value << 1) ^ (uint64) (value >> 63));
}

static inline uint128
varint_get_wide(ByteCursor *cursor)
{
	uint128 value = 0;

	for (int shift = 0; shift < 128; shift += 7)
	{
		uint8 byte = byte_cursor_u8(cursor);

		if (shift == 126 && byte > 3)
			break;
		value |= (uint128) (byte & 0x7f) << shift;
		if (byte < 0x80)
			return value;
	}
	format_damaged("a number has more than 128 bits");
}

static inline uint64
varint_get(ByteCursor *cursor)
{
	uint64 value = 0;

	for (int shift = 0; shift < 64; shift += 7)
	{
		uint8 byte = byte_cursor_u8(cursor);

		if (shift == 63 && byte > 1)
			break;
		value |= (uint64) (byte & 0x7f) << shift;
		if (byte < 0x80)
			return value;
	}
	format_damaged("a number has more than 64 bits");
}

static inline int64
varint_get_signed(ByteCursor *cursor)
{
	uint64 folded = varint_get(cursor);

	return (int64) (folded >> 1) ^ -(int64) (folded & 1);
}

/* A number that must not pass `limit`; `what` names it in the error message. */
static inline uint64
varint_get_limited(ByteCursor *cursor, uint64 limit, const char *what)
{
	uint64 value = varint_get(cursor);

	if (value > limit)
		format_damaged("%s is " UINT64_FORMAT ", but cannot pass " UINT64_FORMAT, what, value,
					   limit);
	return value;
}

#endif
