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
 *
 * The bytes of a numeric are private to PostgreSQL's numeric.c, yet they cannot
 * change while pg_upgrade keeps tables: a header word (and a second one with the
 * weight in the long form), then digits to base 10000, most significant first,
 *
 *		short	10 s dddddd wwwwwww		sign, display scale 0 .. 63, weight -64 .. 63
 *		long	0s dddddddddddddd		sign, display scale 0 .. 16383; then the weight
 *		special	11 ...					NaN, Infinity, -Infinity
 *
 * and the value is the sum of digit[i] * 10000 ^ (weight - i).  The functions of
 * numeric.c leave no zero digits at either end, use the short form where it fits,
 * and give a zero no digits, weight 0 and no sign: see make_result().
 */
#include "numeric_codec.h"
#include "integer_codec.h"
#include "varint.h"

#include "utils/memutils.h"

#define FORM_MASK 0xC000
#define FORM_SHORT 0x8000
#define FORM_SPECIAL 0xC000
#define SPECIAL_NAN 0xC000
#define SPECIAL_PLUS_INFINITY 0xD000
#define SPECIAL_MINUS_INFINITY 0xF000

#define LONG_NEGATIVE 0x4000
#define LONG_SCALE_MASK 0x3FFF
#define SCALE_MAX LONG_SCALE_MASK

#define SHORT_NEGATIVE 0x2000
#define SHORT_SCALE_SHIFT 7
#define SHORT_SCALE_MAX 0x3F
#define SHORT_WEIGHT_MASK 0x7F /* two's complement of 7 bits */
#define SHORT_WEIGHT_MAX 63
#define SHORT_WEIGHT_MIN (-64)

#define BASE 10000
#define BASE_DIGITS 4 /* decimal digits of a digit */

/* Digits of the largest mantissa, one of them cut by the decimal point. */
#define DIGITS_MAX 12

#define INT128_LARGEST ((int128) (~(uint128) 0 >> 1))

/* One exception in so many values is borne. */
#define EXCEPTION_SHARE 4

/* First byte of int128 mantissas. */
typedef enum WideLayout
{
	WIDE_DIFFERENCES = 0,
	WIDE_HALVES = 1
} WideLayout;

const uint64 numeric_powers_of_ten[NUMERIC_POWERS_OF_TEN] = {1,
															 10,
															 100,
															 1000,
															 10000,
															 100000,
															 1000000,
															 10000000,
															 100000000,
															 1000000000,
															 UINT64CONST(10000000000),
															 UINT64CONST(100000000000),
															 UINT64CONST(1000000000000),
															 UINT64CONST(10000000000000),
															 UINT64CONST(100000000000000),
															 UINT64CONST(1000000000000000),
															 UINT64CONST(10000000000000000),
															 UINT64CONST(100000000000000000),
															 UINT64CONST(1000000000000000000),
															 UINT64CONST(10000000000000000000)};

/* ---- from a numeric's bytes ---------------------------------------------------------------- */

/* A finite numeric, taken apart. */
typedef struct NumericParts
{
	bool is_short;
	bool negative;
	int32 scale;
	int32 weight;
	uint32 ndigits;
	const char *digits;
} NumericParts;

static inline uint16
read_word(const char *at)
{
	uint16 word;

	memcpy(&word, at, sizeof(word));
	return word;
}

static inline uint32
get_digit(const NumericParts *parts, uint32 i)
{
	return read_word(parts->digits + sizeof(uint16) * i);
}

/* False for NaN, infinities, and bytes that are no numeric; digits are not looked at. */
static inline bool
take_apart(const char *bytes, uint32 length, NumericParts *parts)
{
	uint16 header;
	uint32 header_length;

	if (length < sizeof(uint16) || length % sizeof(uint16) != 0)
		return false;
	header = read_word(bytes);
	if ((header & FORM_MASK) == FORM_SPECIAL)
		return false;

	parts->is_short = (header & FORM_MASK) == FORM_SHORT;
	if (parts->is_short)
	{
		header_length = sizeof(uint16);
		parts->negative = (header & SHORT_NEGATIVE) != 0;
		parts->scale = (header >> SHORT_SCALE_SHIFT) & SHORT_SCALE_MAX;
		parts->weight = ((header & SHORT_WEIGHT_MASK) ^ 0x40) - 0x40;
	}
	else
	{
		header_length = 2 * sizeof(uint16);
		if (length < header_length)
			return false;
		parts->negative = (header & LONG_NEGATIVE) != 0;
		parts->scale = header & LONG_SCALE_MASK;
		parts->weight = (int16) read_word(bytes + sizeof(uint16));
	}
	parts->digits = bytes + header_length;
	parts->ndigits = (length - header_length) / sizeof(uint16);
	return true;
}

static inline bool
fits_short(int32 scale, int32 weight)
{
	return scale <= SHORT_SCALE_MAX && weight <= SHORT_WEIGHT_MAX && weight >= SHORT_WEIGHT_MIN;
}

/* Are the parts those that numeric's functions leave? */
static inline bool
is_canonical(const NumericParts *parts)
{
	if (parts->is_short != fits_short(parts->scale, parts->weight))
		return false;
	if (parts->ndigits == 0)
		return !parts->negative && parts->weight == 0;
	return get_digit(parts, 0) != 0 && get_digit(parts, parts->ndigits - 1) != 0;
}

/*
 * The digits as one integer times 10 ^ shift: for values of few digits, which fit.
 * False if that is no integer.
 */
static inline bool
join_few_digits(const NumericParts *parts, int shift, uint64 *magnitude)
{
	uint32 last = get_digit(parts, parts->ndigits - 1);
	uint32 invalid = last;
	uint64 sum = 0;

	for (uint32 i = 0; i + 1 < parts->ndigits; i++)
	{
		uint32 digit = get_digit(parts, i);

		invalid = Max(invalid, digit);
		sum = sum * BASE + digit;
	}
	if (invalid >= BASE)
		return false;
	if (shift >= 0)
		*magnitude = (sum * BASE + last) * numeric_powers_of_ten[shift];
	else
	{
		/* the last digit stands across the end of the scale */
		uint32 divisor = (uint32) numeric_powers_of_ten[-shift];

		*magnitude = sum * numeric_powers_of_ten[BASE_DIGITS + shift] + last / divisor;
		return last % divisor == 0;
	}
	return true;
}

/* sum = sum * factor + digit; false on overflow. */
static inline bool
multiply_add(uint128 *sum, uint64 factor, uint32 digit)
{
	return !__builtin_mul_overflow(*sum, (uint128) factor, sum) &&
		   !__builtin_add_overflow(*sum, (uint128) digit, sum);
}

/* The same for many digits; false too if it passes 128 bits. */
static bool
join_many_digits(const NumericParts *parts, int shift, uint128 *magnitude)
{
	uint32 last = get_digit(parts, parts->ndigits - 1);
	uint128 sum = 0;

	if (last >= BASE)
		return false;
	for (uint32 i = 0; i + 1 < parts->ndigits; i++)
	{
		uint32 digit = get_digit(parts, i);

		if (digit >= BASE || !multiply_add(&sum, BASE, digit))
			return false;
	}
	if (shift < 0)
	{
		uint32 divisor = (uint32) numeric_powers_of_ten[-shift];

		*magnitude = sum;
		return last % divisor == 0 &&
			   multiply_add(magnitude, numeric_powers_of_ten[BASE_DIGITS + shift], last / divisor);
	}
	if (!multiply_add(&sum, BASE, last))
		return false;
	for (; shift > 0 && sum > 0; shift -= Min(shift, 18))
	{
		if (!multiply_add(&sum, numeric_powers_of_ten[Min(shift, 18)], 0))
			return false;
	}
	*magnitude = sum;
	return true;
}

/* Mantissa of the parts; false if there is none. */
static inline bool
find_mantissa(const NumericParts *parts, int128 *mantissa)
{
	/* decimal places between the last digit and the end of the scale */
	int shift;

	if (parts->ndigits == 0)
	{
		*mantissa = 0;
		return true;
	}
	if (parts->ndigits > DIGITS_MAX)
		return false;

	shift = BASE_DIGITS * (parts->weight - (int) parts->ndigits + 1) + parts->scale;
	if (shift <= -BASE_DIGITS)
		return false;
	if (parts->ndigits <= 4 && shift < BASE_DIGITS)
	{
		uint64 magnitude;

		if (!join_few_digits(parts, shift, &magnitude))
			return false;
		*mantissa = parts->negative ? -(int128) magnitude : (int128) magnitude;
	}
	else
	{
		uint128 magnitude;

		if (!join_many_digits(parts, shift, &magnitude) || magnitude > (uint128) INT128_LARGEST)
			return false;
		*mantissa = parts->negative ? -(int128) magnitude : (int128) magnitude;
	}
	return true;
}

bool
numeric_to_scaled(const char *bytes, uint32 length, int128 *mantissa, int32 *scale)
{
	NumericParts parts;

	if (!take_apart(bytes, length, &parts) || !find_mantissa(&parts, mantissa))
		return false;
	*scale = parts.scale;
	return true;
}

/* Bytes that numeric's functions can be called with?  All others are damage. */
static bool
is_numeric(const char *bytes, uint32 length)
{
	NumericParts parts;

	if (length >= sizeof(uint16) && (read_word(bytes) & FORM_MASK) == FORM_SPECIAL)
	{
		uint16 header = read_word(bytes);

		/* old releases made NaN with the second header word */
		return length <= 2 * sizeof(uint16) && length % sizeof(uint16) == 0 &&
			   (header == SPECIAL_NAN || header == SPECIAL_PLUS_INFINITY ||
				header == SPECIAL_MINUS_INFINITY);
	}
	if (!take_apart(bytes, length, &parts))
		return false;
	for (uint32 i = 0; i < parts.ndigits; i++)
	{
		if (get_digit(&parts, i) >= BASE)
			return false;
	}
	return true;
}

/* ---- to a numeric -------------------------------------------------------------------------- */

/* Puts the digits of the value before `at`, none for the zeroes in front; returns their start. */
static inline uint16 *
put_digits(uint64 value, uint16 *at)
{
	while (value >= BASE * BASE)
	{
		uint64 rest = value / (BASE * BASE);
		uint32 two = (uint32) (value - rest * (BASE * BASE));

		*--at = two % BASE;
		*--at = two / BASE;
		value = rest;
	}
	if (value >= BASE)
	{
		*--at = (uint32) value % BASE;
		*--at = (uint32) value / BASE;
	}
	else if (value > 0)
		*--at = (uint16) value;
	return at;
}

/* The same with 128 bits. */
static uint16 *
put_wide_digits(uint128 value, uint16 *at)
{
	const uint64 four = numeric_powers_of_ten[4 * BASE_DIGITS];

	while (value > PG_UINT64_MAX)
	{
		uint64 low = (uint64) (value % four);

		value /= four;
		for (int i = 0; i < 4; i++)
		{
			*--at = low % BASE;
			low /= BASE;
		}
	}
	return put_digits((uint64) value, at);
}

/*
 * Puts the digits of magnitude / 10^scale, aligned to the decimal point, before
 * `at`; returns their start.
 */
static inline uint16 *
put_aligned_digits(uint128 magnitude, int32 scale, uint16 *at)
{
	/* decimal digits that the digit at the end has of the mantissa */
	int cut = scale % BASE_DIGITS;

	if (magnitude <= PG_UINT64_MAX / 1000)
	{
		static const uint16 factors[BASE_DIGITS] = {1, 1000, 100, 10};

		return put_digits((uint64) magnitude * factors[cut], at);
	}
	if (cut > 0)
	{
		uint64 divisor = numeric_powers_of_ten[cut];

		*--at = (uint16) ((uint64) (magnitude % divisor) *
						  numeric_powers_of_ten[BASE_DIGITS - cut]);
		magnitude /= divisor;
	}
	return put_wide_digits(magnitude, at);
}

Datum
numeric_from_scaled(int128 mantissa, int32 scale)
{
	uint16 digits[DIGITS_MAX];
	uint16 *end = digits + DIGITS_MAX;
	uint16 *start;
	bool negative = mantissa < 0;
	int32 weight = 0;
	Size length;
	char *result;
	char *at;

	Assert(scale >= 0 && scale <= SCALE_MAX);
	start = put_aligned_digits(negative ? -(uint128) mantissa : (uint128) mantissa, scale, end);
	if (start < end)
	{
		weight = (int32) (end - start) - 1 - (scale + BASE_DIGITS - 1) / BASE_DIGITS;
		/* the first digit is not 0 */
		while (end[-1] == 0)
			end--;
	}

	length = (char *) end - (char *) start;
	if (fits_short(scale, weight))
	{
		uint16 header = FORM_SHORT | (negative ? SHORT_NEGATIVE : 0) | scale << SHORT_SCALE_SHIFT |
						(weight & SHORT_WEIGHT_MASK);

		result = palloc(VARHDRSZ + sizeof(uint16) + length);
		SET_VARSIZE(result, VARHDRSZ + sizeof(uint16) + length);
		memcpy(result + VARHDRSZ, &header, sizeof(uint16));
		at = result + VARHDRSZ + sizeof(uint16);
	}
	else
	{
		uint16 header[2] = {(negative ? LONG_NEGATIVE : 0) | scale, (uint16) weight};

		result = palloc(VARHDRSZ + sizeof(header) + length);
		SET_VARSIZE(result, VARHDRSZ + sizeof(header) + length);
		memcpy(result + VARHDRSZ, header, sizeof(header));
		at = result + VARHDRSZ + sizeof(header);
	}
	memcpy(at, start, length);
	return PointerGetDatum(result);
}

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
		NumericParts parts;
		uint32 length;
		const char *bytes;

		if (values->nulls != NULL && values->nulls[row])
		{
			rows->scales[i] = SCALE_NULL;
			continue;
		}
		rows->npresent++;
		bytes = column_values_bytes(values, row, &length);
		if (!take_apart(bytes, length, &parts) || !is_canonical(&parts) ||
			!find_mantissa(&parts, &rows->mantissas[i]))
		{
			rows->scales[i] = SCALE_NONE;
			continue;
		}
		rows->scales[i] = parts.scale;
		if (votes == 0)
			rows->scale = parts.scale;
		votes += rows->scale == parts.scale ? 1 : -1;
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

NumericEncoding
numeric_encode(const BytesModel *model, const ColumnValues *values, uint32 first, uint32 nrows,
			   ByteBuffer *into)
{
	ScaledRows rows;
	bool narrow;

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

	scale_rows(&rows, values, 0, nrows, step);
	if (are_scaled(&rows))
		return NULL;
	return bytes_model_train(values, false);
}

/* ---- decoding ------------------------------------------------------------------------------ */

static void
check_value(const char *bytes, uint32 length)
{
	if (!is_numeric(bytes, length))
		format_damaged("%u bytes that should be a numeric are none", length);
}

/* Rows without bytes are NULLs; lest one is asked for by mistake, it is a zero. */
static void
check_values(uint32 nrows, ColumnBlock *block)
{
	static const uint16 zero = FORM_SHORT;

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
	uint64 scale = varint_get_limited(cursor, SCALE_MAX, "the scale of a block");
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
