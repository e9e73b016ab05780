/*
 * numeric_codec.c
 *		numeric as scaled integers: an int64 or int128 mantissa and one scale per block.
 *
 * A block:
 *
 *		u8	encoding; 2 (bytes): a block of bytes_codec follows, and nothing else
 *		scale, number n of exceptions (varints)
 *		if n > 0: their rows, their lengths (blocks of integer_codec),
 *			number of their bytes (varint), the bytes
 *		0 (int64): the mantissas, a block of integer_codec
 *		1 (int128): u8 0: base (u64 low, u64 high), differences, a block of integer_codec
 *				  or u8 1: high halves, low halves, two such blocks
 *
 * Rows that are NULL or exceptions have the mantissa before them, so that they cost
 * next to nothing.  The scale is that of more than half of the block's values; a
 * value with another scale, or whose bytes are not those that numeric's functions
 * would make of its mantissa (NaN, infinities, forms of old releases), is an
 * exception: bytes come back as they were.
 */
#include "store/codec/numeric_codec.h"
#include "store/codec/integer_codec.h"
#include "store/value/varint.h"

#include "utils/memutils.h"

/* One exception in so many values is borne. */
#define EXCEPTION_SHARE 4

/* First byte of int128 mantissas. */
typedef enum WideLayout
{
	WIDE_DIFFERENCES = 0,
	WIDE_HALVES = 1
} WideLayout;

/* ---- encoding ------------------------------------------------------------------------------ */

/* scales[] of a row that has no mantissa */
#define SCALE_NULL (-1)
#define SCALE_NONE (-2)

/* The rows of a block as scaled integers, as far as they are. */
typedef struct ScaledRows
{
	uint32 npresent;
	int32 scale;	/* that of most values, if one is */
	uint32 nscaled; /* values of this scale */
	int128 smallest;
	int128 largest;
	int128 mantissas[BLOCK_ROWS];
	int32 scales[BLOCK_ROWS];
} ScaledRows;

/*
 * Takes rows first, first + step ... (nrows of them) apart.  The scale is found as
 * a majority is: by letting values of different scales cancel each other.
 */
static void
scale_rows(ScaledRows *rows, const ColumnValues *values, uint32 first, uint32 nrows, uint32 step)
{
	uint32 votes = 0;

	rows->npresent = rows->nscaled = 0;
	rows->scale = 0;
	for (uint32 i = 0; i < nrows; i++)
	{
		uint32 row = first + i * step;
		uint32 length;
		const char *bytes;
		int32 scale;

		if (values->nulls != NULL && values->nulls[row])
		{
			rows->scales[i] = SCALE_NULL;
			continue;
		}
		rows->npresent++;
		bytes = column_values_bytes(values, row, &length);
		if (!numeric_to_scaled_exactly(bytes, length, &rows->mantissas[i], &scale))
		{
			rows->scales[i] = SCALE_NONE;
			continue;
		}
		rows->scales[i] = scale;
		if (votes == 0)
			rows->scale = scale;
		votes += rows->scale == scale ? 1 : -1;
	}
	for (uint32 i = 0; i < nrows; i++)
		rows->nscaled += rows->scales[i] == rows->scale;
}

/* Are so few of the values exceptions that the block is one of scaled integers? */
static bool
are_scaled(const ScaledRows *rows)
{
	return (rows->npresent - rows->nscaled) * EXCEPTION_SHARE <= rows->npresent;
}

/* Gives NULLs and exceptions the mantissa before them (the first: behind), and finds the range. */
static void
fill_mantissas(ScaledRows *rows, uint32 nrows)
{
	int128 previous = 0;

	for (uint32 i = 0; i < nrows; i++)
	{
		if (rows->scales[i] == rows->scale)
		{
			previous = rows->mantissas[i];
			break;
		}
	}
	rows->smallest = rows->largest = previous;
	for (uint32 i = 0; i < nrows; i++)
	{
		if (rows->scales[i] == rows->scale)
			previous = rows->mantissas[i];
		else
			rows->mantissas[i] = previous;
		rows->smallest = Min(rows->smallest, previous);
		rows->largest = Max(rows->largest, previous);
	}
}

static void
write_exceptions(const ScaledRows *rows, const ColumnValues *values, uint32 first, uint32 nrows,
				 ByteBuffer *into)
{
	int64 positions[BLOCK_ROWS];
	int64 lengths[BLOCK_ROWS];
	uint32 nexceptions = 0;
	uint64 nbytes = 0;
	uint32 length;

	for (uint32 i = 0; i < nrows; i++)
	{
		if (rows->scales[i] == rows->scale || rows->scales[i] == SCALE_NULL)
			continue;
		column_values_bytes(values, first + i, &length);
		positions[nexceptions] = i;
		lengths[nexceptions] = length;
		nexceptions++;
		nbytes += length;
	}
	Assert(nexceptions == rows->npresent - rows->nscaled);

	varint_put(into, nexceptions);
	if (nexceptions == 0)
		return;
	integer_encode(positions, nexceptions, into);
	integer_encode(lengths, nexceptions, into);
	varint_put(into, nbytes);
	for (uint32 i = 0; i < nexceptions; i++)
	{
		const char *bytes = column_values_bytes(values, first + (uint32) positions[i], &length);

		byte_buffer_append(into, bytes, length);
	}
}

static void
write_wide(const ScaledRows *rows, uint32 nrows, ByteBuffer *into)
{
	int64 block[BLOCK_ROWS];

	if ((uint128) rows->largest - (uint128) rows->smallest <= PG_INT64_MAX)
	{
		byte_buffer_put_u8(into, WIDE_DIFFERENCES);
		byte_buffer_put_u64(into, (uint64) rows->smallest);
		byte_buffer_put_u64(into, (uint64) (rows->smallest >> 64));
		for (uint32 i = 0; i < nrows; i++)
			block[i] = (int64) (rows->mantissas[i] - rows->smallest);
		integer_encode(block, nrows, into);
		return;
	}
	byte_buffer_put_u8(into, WIDE_HALVES);
	for (uint32 i = 0; i < nrows; i++)
		block[i] = (int64) (rows->mantissas[i] >> 64);
	integer_encode(block, nrows, into);
	for (uint32 i = 0; i < nrows; i++)
		block[i] = (int64) rows->mantissas[i];
	integer_encode(block, nrows, into);
}

static void
encode_scaled(const ColumnValues *values, uint32 first, uint32 nrows, ByteBuffer *into)
{
	int64 filled[BLOCK_ROWS];

	byte_buffer_put_u8(into, NUMERIC_INT64);
	varint_put(into, values->scale);
	varint_put(into, 0); /* exceptions */
	integer_encode(column_values_fill_nulls(values, first, nrows, filled), nrows, into);
}

NumericEncoding
numeric_encode(const BytesModel *model, const ColumnValues *values, uint32 first, uint32 nrows,
			   ByteBuffer *into)
{
	ScaledRows rows;
	bool narrow;

	if (column_values_are_scaled(values))
	{
		encode_scaled(values, first, nrows, into);
		return NUMERIC_INT64;
	}
	scale_rows(&rows, values, first, nrows, 1);
	if (!are_scaled(&rows))
	{
		byte_buffer_put_u8(into, NUMERIC_BYTES);
		bytes_encode(model, values, first, nrows, into);
		return NUMERIC_BYTES;
	}
	fill_mantissas(&rows, nrows);
	narrow = rows.smallest >= PG_INT64_MIN && rows.largest <= PG_INT64_MAX;

	byte_buffer_put_u8(into, narrow ? NUMERIC_INT64 : NUMERIC_INT128);
	varint_put(into, rows.scale);
	write_exceptions(&rows, values, first, nrows, into);
	if (narrow)
	{
		int64 block[BLOCK_ROWS];

		for (uint32 i = 0; i < nrows; i++)
			block[i] = (int64) rows.mantissas[i];
		integer_encode(block, nrows, into);
	}
	else
		write_wide(&rows, nrows, into);
	return narrow ? NUMERIC_INT64 : NUMERIC_INT128;
}

BytesModel *
numeric_model_train(const ColumnValues *values)
{
	uint32 step = values->nrows / BLOCK_ROWS + 1;
	uint32 nrows = (values->nrows + step - 1) / step;
	ScaledRows rows;

	if (column_values_are_scaled(values))
		return NULL;
	scale_rows(&rows, values, 0, nrows, step);
	if (are_scaled(&rows))
		return NULL;
	return bytes_model_train(values, false);
}

/* ---- decoding ------------------------------------------------------------------------------ */

static void
check_value(const char *bytes, uint32 length)
{
	if (!numeric_is_valid(bytes, length))
		format_damaged("%u bytes that should be a numeric are none", length);
}

/* Rows without bytes are NULLs; lest one is asked for by mistake, it is a zero. */
static void
check_values(uint32 nrows, ColumnBlock *block)
{
	static const uint16 zero = 0x8000; /* its header, with scale 0, and no digits */

	for (uint32 i = 0; i < nrows; i++)
	{
		if (block->form == BLOCK_CODES)
			check_value(block->dictionary->starts[block->codes[i]],
						block->dictionary->lengths[block->codes[i]]);
		else if (block->lengths[i] == 0)
		{
			block->starts[i] = (const char *) &zero;
			block->lengths[i] = sizeof(zero);
		}
		else
			check_value(block->starts[i], block->lengths[i]);
	}
}

static void
read_exceptions(ByteCursor *cursor, uint32 nrows, uint32 nexceptions, ColumnBlock *block)
{
	int64 positions[BLOCK_ROWS];
	int64 lengths[BLOCK_ROWS];
	int64 previous = -1;
	ByteCursor bytes;
	uint64 nbytes;

	integer_decode(cursor, nexceptions, positions, NULL);
	integer_decode(cursor, nexceptions, lengths, NULL);
	nbytes = varint_get(cursor);
	bytes.at = byte_cursor_bytes(cursor, nbytes);
	bytes.end = bytes.at + nbytes;

	column_block_use(block, BLOCK_BYTES);
	memset(block->exceptions, 0, sizeof(block->exceptions));
	for (uint32 i = 0; i < nexceptions; i++)
	{
		int64 row = positions[i];

		if (row <= previous || row >= nrows)
			format_damaged("an exception is at row " INT64_FORMAT " of %u", row, nrows);
		if (lengths[i] < 0 || lengths[i] > MaxAllocSize)
			format_damaged("an exception has the length " INT64_FORMAT, lengths[i]);
		block->starts[row] = byte_cursor_bytes(&bytes, lengths[i]);
		block->lengths[row] = (uint32) lengths[i];
		check_value(block->starts[row], block->lengths[row]);
		block->exceptions[row >> 6] |= UINT64CONST(1) << (row & 63);
		previous = row;
	}
	if (bytes.at != bytes.end)
		format_damaged("exceptions have " UINT64_FORMAT " bytes too many",
					   (uint64) (bytes.end - bytes.at));
	block->has_exceptions = true;
}

static void
read_wide(ByteCursor *cursor, uint32 nrows, int128 *wides, bool *constant)
{
	uint8 layout = byte_cursor_u8(cursor);
	int64 block[BLOCK_ROWS];

	if (layout == WIDE_DIFFERENCES)
	{
		uint128 base = byte_cursor_u64(cursor);

		base |= (uint128) byte_cursor_u64(cursor) << 64;
		integer_decode(cursor, nrows, block, constant);
		for (uint32 i = 0; i < nrows; i++)
			wides[i] = (int128) (base + (uint64) block[i]);
	}
	else if (layout == WIDE_HALVES)
	{
		int64 low[BLOCK_ROWS];

		integer_decode(cursor, nrows, block, NULL);
		integer_decode(cursor, nrows, low, NULL);
		for (uint32 i = 0; i < nrows; i++)
			wides[i] = (int128) ((uint128) block[i] << 64 | (uint64) low[i]);
		*constant = false;
	}
	else
		format_damaged("a block of wide mantissas has the unknown layout %u", layout);
}

static void
decode_scaled(NumericEncoding encoding, ByteCursor *cursor, uint32 nrows, ColumnBlock *block)
{
	uint64 scale = varint_get_limited(cursor, NUMERIC_SCALE_MAX, "the scale of a block");
	uint64 nexceptions = varint_get_limited(cursor, nrows, "the number of exceptions");

	block->form = encoding == NUMERIC_INT64 ? BLOCK_INT : BLOCK_WIDE;
	block->nrows = nrows;
	block->scale = (int32) scale;
	block->has_exceptions = false;
	block->dictionary = NULL;
	column_block_use(block, block->form);
	if (nexceptions > 0)
		read_exceptions(cursor, nrows, (uint32) nexceptions, block);

	if (encoding == NUMERIC_INT64)
		integer_decode(cursor, nrows, block->ints, &block->constant);
	else
		read_wide(cursor, nrows, block->wides, &block->constant);
	if (block->has_exceptions)
		block->constant = false;
}

/* Leaves the block's null bitmap alone. */
void
numeric_decode(BytesModel *model, ByteCursor *cursor, uint32 nrows, ByteBuffer *arena,
			   ColumnBlock *block)
{
	uint8 encoding = byte_cursor_u8(cursor);

	if (nrows > BLOCK_ROWS)
		format_damaged("a block has %u rows", nrows);
	switch (encoding)
	{
		case NUMERIC_INT64:
		case NUMERIC_INT128:
			decode_scaled(encoding, cursor, nrows, block);
			return;
		case NUMERIC_BYTES:
			bytes_decode(model, cursor, nrows, arena, block);
			check_values(nrows, block);
			return;
	}
	format_damaged("a block of numerics has the unknown encoding %u", encoding);
}
