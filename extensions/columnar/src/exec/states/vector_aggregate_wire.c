/*
 * vector_aggregate_wire.c
 *		Totals of scaled integers in the wire format of core's numeric aggregates.
 *
 * A total is sent as a NumericVar: number of digits to base 10000, weight of the first, sign,
 * display scale, digits; each in network byte order.  numeric_avg_serialize() and
 * numeric_serialize() send what accum_sum_final() returns, which has no zero digits at either
 * end; int8_avg_serialize() and numeric_poly_serialize() what int128_to_numericvar() returns,
 * which has them at the end.
 *
 * Terms of different scales are added up digit by digit, so that none must be multiplied,
 * and a total may pass 128 bits.
 */
#include "compat.h"

#include "catalog/pg_type.h"
#include "libpq/pqformat.h"
#include "utils/array.h"

#include "exec/states/vector_aggregate_internal.h"

#define BASE 10000
#define BASE_DIGITS 4

/* As in numeric.c. */
#define SIGN_POSITIVE 0x0000
#define SIGN_NEGATIVE 0x4000

/* Digits to base 10000 of an uint128, and one more where they are shifted. */
#define INTEGER_DIGITS 11

/* Digits of an average total: more are allocated. */
#define LOCAL_DIGITS 64

/* Digits to base 10000 behind the decimal point. */
static int
count_fraction_digits(int32 scale)
{
	return (scale + BASE_DIGITS - 1) / BASE_DIGITS;
}

/* Adds the digits of a term to digits[], which begin with the one of weight -fraction. */
static void
add_term(int64 *digits, int fraction, const WireTerm *term)
{
	static const uint32 powers_of_ten[BASE_DIGITS] = {1, 10, 100, 1000};
	const uint64 four_digits = UINT64CONST(10000000000000000); /* BASE ^ 4 */
	int64 sign = term->negative ? -1 : 1;
	uint128 wide = term->magnitude;
	int at = fraction - count_fraction_digits(term->scale);
	int cut = term->scale % BASE_DIGITS;
	uint64 rest;

	if (cut > 0)
	{
		/* the last digit has so many decimal digits only */
		digits[at++] += sign * (int64) (wide % powers_of_ten[cut]) *
						powers_of_ten[BASE_DIGITS - cut];
		wide /= powers_of_ten[cut];
	}
	while (wide > PG_UINT64_MAX)
	{
		uint64 low = (uint64) (wide % four_digits);

		wide /= four_digits;
		for (int i = 0; i < 4; i++)
		{
			digits[at++] += sign * (int64) (low % BASE);
			low /= BASE;
		}
	}
	for (rest = (uint64) wide; rest > 0; rest /= BASE)
		digits[at++] += sign * (int64) (rest % BASE);
}

/* Makes every digit one of 0 .. BASE - 1; false if the total is negative. */
static bool
carry_digits(int64 *digits, int ndigits)
{
	int64 carry = 0;

	for (int i = 0; i < ndigits; i++)
	{
		int64 digit = digits[i] + carry;

		carry = digit / BASE;
		digit -= carry * BASE;
		if (digit < 0)
		{
			digit += BASE;
			carry--;
		}
		digits[i] = digit;
	}
	return carry >= 0;
}

/* Sends digits[], from the last down to the first, as a NumericVar. */
static void
put_digits(StringInfo into, const int64 *digits, int first, int ndigits, int weight, bool negative,
		   int32 dscale)
{
	pq_sendint32(into, ndigits);
	pq_sendint32(into, weight);
	pq_sendint32(into, negative ? SIGN_NEGATIVE : SIGN_POSITIVE);
	pq_sendint32(into, dscale);
	for (int i = first + ndigits - 1; i >= first; i--)
		pq_sendint16(into, (uint16) digits[i]);
}

static void
put_total(StringInfo into, const WireTerm *terms, int nterms, int32 dscale, bool strip)
{
	int64 local[LOCAL_DIGITS];
	int64 *digits = local;
	int fraction = 0;
	int ndigits;
	int first = 0;
	bool negative;

	for (int i = 0; i < nterms; i++)
		fraction = Max(fraction, count_fraction_digits(terms[i].scale));
	/* one digit more for what is carried */
	ndigits = fraction + INTEGER_DIGITS + 1;
	if (ndigits > LOCAL_DIGITS)
		digits = palloc(sizeof(int64) * ndigits);
	memset(digits, 0, sizeof(int64) * ndigits);

	for (int i = 0; i < nterms; i++)
		add_term(digits, fraction, &terms[i]);
	negative = !carry_digits(digits, ndigits);
	if (negative)
	{
		memset(digits, 0, sizeof(int64) * ndigits);
		for (int i = 0; i < nterms; i++)
		{
			WireTerm opposite = terms[i];

			opposite.negative = !opposite.negative;
			add_term(digits, fraction, &opposite);
		}
		carry_digits(digits, ndigits);
	}

	while (ndigits > 0 && digits[ndigits - 1] == 0)
		ndigits--;
	while (strip && first < ndigits && digits[first] == 0)
		first++;
	if (ndigits == 0)
		put_digits(into, digits, 0, 0, 0, false, dscale);
	else
		put_digits(into, digits, first, ndigits - first, ndigits - 1 - fraction, negative, dscale);
	if (digits != local)
		pfree(digits);
}

void
wire_put_total(StringInfo into, const WireTerm *terms, int nterms, int32 dscale)
{
	put_total(into, terms, nterms, dscale, true);
}

void
wire_put_int128(StringInfo into, int128 value)
{
	WireTerm term = wire_term(value, 0);

	put_total(into, &term, 1, 0, false);
}

Datum
wire_average_array(int64 count, int64 total)
{
	Datum elements[2] = {Int64GetDatum(count), Int64GetDatum(total)};

	return PointerGetDatum(
		construct_array(elements, 2, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}
