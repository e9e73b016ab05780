/*
 * float_codec.c
 *		Blocks of float8 and float4: ALP (decimals as integers, with exceptions) or raw bits.
 *
 * Layout of a block, after a byte that names the encoding:
 *
 *		raw			bits, 8 or 4 bytes each
 *		integer		block of integer_codec: the bits (of float4: sign-extended)
 *		alp			digits u8 | nexceptions u16 | block of integers
 *					| block of positions | block of bits, if there are exceptions
 *
 * ALP is after Afroozeh, Kuffo and Boncz, "ALP: Adaptive Lossless floating-Point
 * Compression", SIGMOD 2024.  The paper decodes by d * 10^f * 10^-e.  As 10^-e is
 * inexact, it needs a large e, and a search for the pair that leaves the fewest
 * exceptions.  Here a division decodes: d / 10^e with 10^e exact (e <= 22) and
 * |d| < 2^51 is correctly rounded, so it is the double nearest to the decimal, which
 * is what reading that decimal gave.  The smallest sufficient e is right without
 * a search, and decimals of up to 15 digits leave no exceptions.  Divisions of
 * vectors are slower than multiplications, but far below 1 ns a value.
 *
 * Rounding and conversion are by the constant 1.5 * 2^52: in a double between 2^52
 * and 2^53 the lowest bits are an integer.  Both directions are defined for all
 * 2^64 inputs, and the encoder keeps only what decode_decimal() gives back bit by
 * bit, so neither rounding mode nor fused multiplication can make a value wrong.
 */
#include "store/codec/float_codec.h"

#include "store/codec/bitpack.h"
#include "store/codec/integer_codec.h"

#define DIGITS_MAX 22

/* Values that decide the number of digits. */
#define SAMPLE_ROWS 32

/* Bits of an exception, about: its own and those of its position. */
#define EXCEPTION_BITS(is_single) ((is_single) ? 44 : 76)

#define ROUNDER 6755399441055744.0 /* 1.5 * 2^52 */
#define ROUNDER_BITS UINT64CONST(0x4338000000000000)

/* Decimals are below this, and not below its negative. */
#define DECIMAL_MAX (UINT64CONST(1) << 51)

/* All exact. */
static const double powers[DIGITS_MAX + 1] = {1e0,	1e1,  1e2,	1e3,  1e4,	1e5,  1e6,	1e7,
											  1e8,	1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
											  1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static inline uint64
get_bits(double value)
{
	uint64 bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline double
make_double(uint64 bits)
{
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* ---- decimals ---------------------------------------------------------------------------------- */

/* value * power, rounded; garbage if that is not below 2^51. */
static inline int64
encode_decimal(double value, double power)
{
	return get_bits(value * power + ROUNDER) - ROUNDER_BITS;
}

static inline double
decode_decimal(int64 decimal, double power)
{
	return (make_double((uint64) decimal + ROUNDER_BITS) - ROUNDER) / power;
}

/* The same to a float4, given as double. */
static inline double
decode_decimal_single(int64 decimal, double power)
{
	return (float4) decode_decimal(decimal, power);
}

/*
 * Does the decimal give exactly this value?  Of a float4, values are given widened.
 * Garbage can give it too, but would be a large integer among small ones.
 */
static inline bool
is_exact(double value, int64 decimal, double power, bool is_single)
{
	double decoded = is_single ? decode_decimal_single(decimal, power)
							   : decode_decimal(decimal, power);
	bool is_small = (uint64) decimal + DECIMAL_MAX < 2 * DECIMAL_MAX;

	return is_small & (get_bits(decoded) == get_bits(value));
}

/* ---- the number of digits ---------------------------------------------------------------------- */

/*
 * The fewest digits after the point that write the value exactly; -1 if it is no
 * short decimal.
 *
 * If any number of digits does, so does the largest for which the integer still
 * has fewer bits than the float's mantissa: one test decides.
 */
static int
count_digits(double value, bool is_single)
{
	int exponent = (int) (get_bits(value) >> 52 & 0x7ff) - 1023;
	/* |value| < 2^(exponent + 1); 77 / 256 is a bit less than the logarithm of 2 */
	int digits = ((is_single ? 22 : 49) - exponent) * 77 / 256;
	int64 decimal;

	digits = Min(Max(digits, 0), DIGITS_MAX);
	decimal = encode_decimal(value, powers[digits]);
	if (!is_exact(value, decimal, powers[digits], is_single))
		return -1;
	for (; digits > 0 && decimal % 10 == 0; digits--)
		decimal /= 10;
	return digits;
}

/* Estimated bits of the sample with so many digits; no number if most are exceptions. */
static uint64
estimate_bits(const double *sample, uint32 nsample, int digits, bool is_single)
{
	int64 min = PG_INT64_MAX;
	int64 max = PG_INT64_MIN;
	uint32 nexceptions = 0;

	for (uint32 i = 0; i < nsample; i++)
	{
		int64 decimal = encode_decimal(sample[i], powers[digits]);

		if (!is_exact(sample[i], decimal, powers[digits], is_single))
		{
			nexceptions++;
			continue;
		}
		min = Min(min, decimal);
		max = Max(max, decimal);
	}
	if (nexceptions > nsample / 2)
		return PG_UINT64_MAX;
	return (uint64) nexceptions * EXCEPTION_BITS(is_single) +
		   (uint64) nsample * bitpack_width((uint64) max - (uint64) min);
}

/* The number of digits that makes a sample of the block smallest; -1 if these are no decimals. */
static int
choose_digits(const double *values, uint32 nvalues, bool is_single)
{
	double sample[SAMPLE_ROWS];
	uint32 nsample = Min(nvalues, SAMPLE_ROWS);
	uint64 best_bits = PG_UINT64_MAX;
	bool tried[DIGITS_MAX + 1] = {false};
	int best = -1;

	for (uint32 i = 0; i < nsample; i++)
		sample[i] = values[(uint64) i * nvalues / nsample];
	for (uint32 i = 0; i < nsample; i++)
	{
		int digits = count_digits(sample[i], is_single);
		uint64 bits;

		if (digits < 0 || tried[digits])
			continue;
		tried[digits] = true;
		bits = estimate_bits(sample, nsample, digits, is_single);
		if (bits < best_bits)
		{
			best_bits = bits;
			best = digits;
		}
	}
	return best;
}

/* ---- encoding ---------------------------------------------------------------------------------- */

static pg_attribute_always_inline void
compute_decimals(const double *values, uint32 nvalues, double power, bool is_single,
				 int64 *decimals, uint64 *wrong)
{
	for (uint32 i = 0; i < nvalues; i++)
	{
		decimals[i] = encode_decimal(values[i], power);
		wrong[i] = !is_exact(values[i], decimals[i], power, is_single);
	}
}

/* All values as decimals; wrong[i] is 1 where that is an exception. */
FORMAT_VECTORISED static void
encode_decimals(const double *values, uint32 nvalues, double power, bool is_single, int64 *decimals,
				uint64 *wrong)
{
	/* numbers of rounds and kinds known to the compiler give better code */
	if (nvalues != BLOCK_ROWS)
		compute_decimals(values, nvalues, power, is_single, decimals, wrong);
	else if (is_single)
		compute_decimals(values, BLOCK_ROWS, power, true, decimals, wrong);
	else
		compute_decimals(values, BLOCK_ROWS, power, false, decimals, wrong);
}

/* Appends the block as ALP; false (and nothing appended) if all values are exceptions. */
static bool
write_alp(const double *values, const int64 *bits, uint32 nvalues, int digits, bool is_single,
		  ByteBuffer *into, uint32 *nexceptions)
{
	int64 decimals[BLOCK_ROWS];
	uint64 wrong[BLOCK_ROWS];
	int64 positions[BLOCK_ROWS];
	int64 exceptions[BLOCK_ROWS];
	uint32 count = 0;
	uint32 first = 0;

	encode_decimals(values, nvalues, powers[digits], is_single, decimals, wrong);
	for (uint32 i = 0; i < nvalues; i++)
	{
		positions[count] = i;
		exceptions[count] = bits[i];
		count += wrong[i];
	}
	*nexceptions = count;
	if (count == nvalues)
		return false;

	/* an exception's place takes the value before it, which every encoding likes */
	while (wrong[first])
		first++;
	for (uint32 i = 0; i < first; i++)
		decimals[i] = decimals[first];
	for (uint32 i = first + 1; i < nvalues; i++)
		if (wrong[i])
			decimals[i] = decimals[i - 1];

	byte_buffer_put_u8(into, FLOAT_ALP);
	byte_buffer_put_u8(into, digits);
	byte_buffer_put_u16(into, count);
	integer_encode(decimals, nvalues, into);
	if (count > 0)
	{
		integer_encode(positions, count, into);
		integer_encode(exceptions, count, into);
	}
	return true;
}

static void
write_raw(const int64 *bits, uint32 nvalues, bool is_single, ByteBuffer *into)
{
	byte_buffer_put_u8(into, FLOAT_RAW);
	if (!is_single)
		byte_buffer_append(into, bits, nvalues * sizeof(uint64));
	else
		for (uint32 i = 0; i < nvalues; i++)
			byte_buffer_put_u32(into, bits[i]);
}

FloatEncoding
float_encode(const int64 *bits, uint32 nvalues, bool is_single, ByteBuffer *into)
{
	double values[BLOCK_ROWS];
	int64 numbers[BLOCK_ROWS];
	uint64 start = into->length;
	uint64 raw_size = 1 + (uint64) nvalues * (is_single ? sizeof(uint32) : sizeof(uint64));
	uint64 alp_size = PG_UINT64_MAX;
	uint64 integer_size;
	uint32 nexceptions = 0;
	int digits;

	Assert(nvalues >= 1 && nvalues <= BLOCK_ROWS);

	for (uint32 i = 0; i < nvalues; i++)
	{
		values[i] = is_single ? float_widen_single(bits[i]) : make_double(bits[i]);
		/* whatever the upper half of a float4's holder is */
		numbers[i] = is_single ? (int32) bits[i] : bits[i];
	}
	digits = choose_digits(values, nvalues, is_single);
	if (digits >= 0 && write_alp(values, numbers, nvalues, digits, is_single, into, &nexceptions))
		alp_size = into->length - start;
	/* runs and few values are so in the integers of ALP as well: look no further */
	if (nexceptions == 0 && alp_size < raw_size / 2)
		return FLOAT_ALP;

	integer_size = 1 + integer_encoded_size(numbers, nvalues);
	if (alp_size < Min(raw_size, integer_size))
		return FLOAT_ALP;
	into->length = start;
	if (integer_size < raw_size)
	{
		byte_buffer_put_u8(into, FLOAT_INTEGER);
		integer_encode(numbers, nvalues, into);
		return FLOAT_INTEGER;
	}
	write_raw(numbers, nvalues, is_single, into);
	return FLOAT_RAW;
}

/* ---- decoding ---------------------------------------------------------------------------------- */

static pg_attribute_always_inline void
compute_values(const int64 *decimals, uint32 nvalues, double power, bool is_single, double *values)
{
	for (uint32 i = 0; i < nvalues; i++)
		values[i] = is_single ? decode_decimal_single(decimals[i], power)
							  : decode_decimal(decimals[i], power);
}

FORMAT_VECTORISED static void
decode_decimals(const int64 *decimals, uint32 nvalues, double power, bool is_single, double *values)
{
	if (nvalues != BLOCK_ROWS)
		compute_values(decimals, nvalues, power, is_single, values);
	else if (is_single)
		compute_values(decimals, BLOCK_ROWS, power, true, values);
	else
		compute_values(decimals, BLOCK_ROWS, power, false, values);
}

static double
widen_bits(int64 bits, bool is_single)
{
	return is_single ? float_widen_single(bits) : make_double(bits);
}

static void
decode_alp(ByteCursor *cursor, uint32 nvalues, bool is_single, double *values, bool *constant)
{
	int64 decimals[BLOCK_ROWS];
	int64 positions[BLOCK_ROWS];
	int64 exceptions[BLOCK_ROWS];
	uint8 digits = byte_cursor_u8(cursor);
	uint32 nexceptions = byte_cursor_u16(cursor);

	if (digits > DIGITS_MAX)
		format_damaged("floats of %d digits", digits);
	if (nexceptions >= nvalues)
		format_damaged("%u exceptions of %u floats", nexceptions, nvalues);

	integer_decode(cursor, nvalues, decimals, constant);
	decode_decimals(decimals, nvalues, powers[digits], is_single, values);
	if (nexceptions == 0)
		return;
	*constant = false;
	integer_decode(cursor, nexceptions, positions, NULL);
	integer_decode(cursor, nexceptions, exceptions, NULL);
	for (uint32 i = 0; i < nexceptions; i++)
	{
		uint64 position = positions[i];

		if (position >= nvalues)
			format_damaged("an exception of float %llu of %u", (unsigned long long) position,
						   nvalues);
		values[position] = widen_bits(exceptions[i], is_single);
	}
}

static void
decode_raw(ByteCursor *cursor, uint32 nvalues, bool is_single, double *values)
{
	Size width = is_single ? sizeof(uint32) : sizeof(uint64);
	const char *bytes = byte_cursor_bytes(cursor, nvalues * width);

	if (!is_single)
	{
		memcpy(values, bytes, nvalues * width);
		return;
	}
	for (uint32 i = 0; i < nvalues; i++)
	{
		uint32 bits;

		memcpy(&bits, bytes + i * width, sizeof(bits));
		values[i] = float_widen_single(bits);
	}
}

static void
decode_integer(ByteCursor *cursor, uint32 nvalues, bool is_single, double *values, bool *constant)
{
	int64 bits[BLOCK_ROWS];

	integer_decode(cursor, nvalues, bits, constant);
	for (uint32 i = 0; i < nvalues; i++)
		values[i] = widen_bits(bits[i], is_single);
}

void
float_decode(ByteCursor *cursor, uint32 nvalues, bool is_single, double *values, bool *constant)
{
	uint8 encoding = byte_cursor_u8(cursor);
	bool equal = nvalues == 1;

	if (nvalues < 1 || nvalues > BLOCK_ROWS)
		format_damaged("a block of %u floats", nvalues);
	switch (encoding)
	{
		case FLOAT_RAW:
			decode_raw(cursor, nvalues, is_single, values);
			break;
		case FLOAT_ALP:
			decode_alp(cursor, nvalues, is_single, values, &equal);
			break;
		case FLOAT_INTEGER:
			decode_integer(cursor, nvalues, is_single, values, &equal);
			break;
		default:
			format_damaged("a float block of the unknown encoding %d", encoding);
	}
	if (constant != NULL)
		*constant = equal;
}
