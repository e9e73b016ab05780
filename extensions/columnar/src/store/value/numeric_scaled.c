/*
 * numeric_scaled.c
 *		A numeric's bytes taken apart into mantissa and scale, and put together again.
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
#include "store/value/numeric_scaled.h"

#define FORM_MASK 0xC000
#define FORM_SHORT 0x8000
#define FORM_SPECIAL 0xC000
#define SPECIAL_NAN 0xC000
#define SPECIAL_PLUS_INFINITY 0xD000
#define SPECIAL_MINUS_INFINITY 0xF000

#define LONG_NEGATIVE 0x4000
#define LONG_SCALE_MASK 0x3FFF

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

bool
numeric_to_scaled_exactly(const char *bytes, uint32 length, int128 *mantissa, int32 *scale)
{
	NumericParts parts;

	if (!take_apart(bytes, length, &parts) || !is_canonical(&parts) ||
		!find_mantissa(&parts, mantissa))
		return false;
	*scale = parts.scale;
	return true;
}

bool
numeric_is_valid(const char *bytes, uint32 length)
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

	Assert(scale >= 0 && scale <= NUMERIC_SCALE_MAX);
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
