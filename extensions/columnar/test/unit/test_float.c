/*
 * test_float.c
 *		Blocks of floats: every bit comes back, the right encoding is chosen, damage is found
 *		or harmless.
 */
#include "harness.h"

#include "store/codec/float_codec.h"

/* ---- blocks of each kind ----------------------------------------------------------------------- */

/* Makes values, as doubles; those of float4 are rounded to it. */
typedef void (*Generator)(double *values, uint32 nvalues);

static double
get_double(uint64 bits)
{
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static uint64
get_bits(double value)
{
	uint64 bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* The double nearest to number / 10^digits, by way of text as it comes from a user. */
static double
read_decimal(int64 number, int digits)
{
	char text[64];

	snprintf(text, sizeof(text), "%llde-%d", (long long) number, digits);
	return strtod(text, NULL);
}

static void
make_decimals(double *values, uint32 nvalues, int digits, uint64 limit)
{
	for (uint32 i = 0; i < nvalues; i++)
		values[i] = read_decimal((int64) harness_random_below(2 * limit) - (int64) limit, digits);
}

static void
make_prices(double *values, uint32 nvalues)
{
	make_decimals(values, nvalues, 2, 100000);
}

static void
make_any_decimals(double *values, uint32 nvalues)
{
	make_decimals(values, nvalues, harness_random_below(23), 1 + harness_random_bits(49));
}

/* 1 to 4 digits after the point. */
static void
make_mixed_decimals(double *values, uint32 nvalues)
{
	for (uint32 i = 0; i < nvalues; i++)
		values[i] = read_decimal(harness_random_below(8000), 1 + harness_random_below(4));
}

static void
make_whole(double *values, uint32 nvalues)
{
	for (uint32 i = 0; i < nvalues; i++)
		values[i] = harness_random_below(1000000);
}

/* Nothing but noise, between 2^-100 and 2^100, which float4 can have as well. */
static void
make_noise(double *values, uint32 nvalues)
{
	for (uint32 i = 0; i < nvalues; i++)
		values[i] = get_double((harness_random() & UINT64CONST(0x800fffffffffffff)) |
							   (923 + harness_random_below(200)) << 52);
}

static void
make_any_doubles(double *values, uint32 nvalues)
{
	for (uint32 i = 0; i < nvalues; i++)
		values[i] = get_double(harness_random());
}

static void
make_few_of_noise(double *values, uint32 nvalues)
{
	double entries[7];

	make_noise(entries, lengthof(entries));
	for (uint32 i = 0; i < nvalues; i++)
		values[i] = entries[harness_random_below(lengthof(entries))];
}

static void
make_constant(double *values, uint32 nvalues)
{
	double value = harness_random_below(2) ? get_double(harness_random()) : read_decimal(15, 1);

	for (uint32 i = 0; i < nvalues; i++)
		values[i] = value;
}

/* What is no number, or a special one. */
static double
make_special(void)
{
	static const uint64 specials[] = {
		UINT64CONST(0x8000000000000000), /* -0 */
		UINT64CONST(0x7ff0000000000000), /* infinity */
		UINT64CONST(0xfff0000000000000), /* -infinity */
		UINT64CONST(0x7ff8000000000000), /* NaN */
		UINT64CONST(0xfff8000000000123), /* negative NaN with a payload */
		UINT64CONST(0x7ff4000020000000), /* signalling NaN */
		UINT64CONST(0x0000000000000001), /* smallest denormal number */
		UINT64CONST(0x7fefffffffffffff), /* largest number */
		UINT64CONST(0x4330000000000000), /* 2^52 */
		UINT64CONST(0x4320000000000000), /* 2^51 */
		UINT64CONST(0xc320000000000001), /* the next below -2^51 */
	};

	return get_double(specials[harness_random_below(lengthof(specials))]);
}

static void
make_specials(double *values, uint32 nvalues)
{
	for (uint32 i = 0; i < nvalues; i++)
		values[i] = make_special();
}

/* Prices with a few special numbers. */
static void
make_exceptions(double *values, uint32 nvalues)
{
	make_prices(values, nvalues);
	for (uint32 i = 0; i < nvalues; i++)
		if (harness_random_below(30) == 0)
			values[i] = make_special();
}

/* Sums of decimals, whose last bits are no decimal's. */
static void
make_sums(double *values, uint32 nvalues)
{
	make_prices(values, nvalues);
	for (uint32 i = 1; i < nvalues; i++)
		if (harness_random_below(2))
			values[i] += values[i - 1];
}

static const Generator generators[] = {make_any_doubles,	make_prices,   make_any_decimals,
									   make_mixed_decimals, make_whole,	   make_noise,
									   make_few_of_noise,	make_constant, make_specials,
									   make_exceptions,		make_sums};

/* The bits of a block as float_encode() takes them. */
static void
make_bits(Generator generator, uint32 nvalues, bool is_single, int64 *bits)
{
	double values[BLOCK_ROWS];

	generator(values, nvalues);
	for (uint32 i = 0; i < nvalues; i++)
		bits[i] = is_single ? float_narrow_single(values[i]) : get_bits(values[i]);
}

static void
make_any_bits(uint32 nvalues, bool is_single, int64 *bits)
{
	uint32 first = harness_random_below(3) ? nvalues : harness_random_below(nvalues);

	make_bits(generators[harness_random_below(lengthof(generators))], nvalues, is_single, bits);
	make_bits(generators[harness_random_below(lengthof(generators))], nvalues - first, is_single,
			  bits + first);
}

static uint32
random_size(void)
{
	static const uint32 sizes[] = {1, 2, 3, 31, 32, 33, 64, 1022, 1023, 1024};

	return harness_random_below(2) ? sizes[harness_random_below(lengthof(sizes))]
								   : 1 + harness_random_below(BLOCK_ROWS);
}

/* ---- round trips ------------------------------------------------------------------------------- */

static FloatEncoding
check_round_trip(const int64 *bits, uint32 nvalues, bool is_single)
{
	ByteBuffer buffer;
	FloatEncoding encoding;
	char *bytes;
	ByteCursor cursor;
	double *decoded = malloc(nvalues * sizeof(double));
	bool constant;
	bool equal = true;

	byte_buffer_init(&buffer, 0);
	byte_buffer_put_u8(&buffer, 0xaa);
	encoding = float_encode(bits, nvalues, is_single, &buffer);
	CHECK(buffer.length - 1 <= 1 + nvalues * (is_single ? 4 : 8));

	bytes = harness_copy(buffer.data + 1, buffer.length - 1);
	cursor = (ByteCursor){bytes, bytes + buffer.length - 1};
	float_decode(&cursor, nvalues, is_single, decoded, &constant);
	CHECK(cursor.at == cursor.end);
	for (uint32 i = 0; i < nvalues; i++)
	{
		int64 back = is_single ? float_narrow_single(decoded[i]) : get_bits(decoded[i]);

		CHECK_THAT(back == bits[i], "encoding %d, single %d: value %u of %u is %llx and was %llx",
				   encoding, is_single, i, nvalues, (long long) back, (long long) bits[i]);
		equal = equal && bits[i] == bits[0];
	}
	CHECK(constant == equal);
	free(bytes);
	free(decoded);
	byte_buffer_free(&buffer);
	return encoding;
}

static void
check_many_round_trips(void)
{
	int64 bits[BLOCK_ROWS];

	for (int i = 0; i < 3000; i++)
	{
		uint32 nvalues = random_size();
		bool is_single = harness_random_below(2);

		make_any_bits(nvalues, is_single, bits);
		check_round_trip(bits, nvalues, is_single);
	}
}

static void
check_choices(void)
{
	static const struct
	{
		Generator generator;
		FloatEncoding encoding;
	} expected[] = {
		{make_prices, FLOAT_ALP}, {make_mixed_decimals, FLOAT_ALP},	  {make_whole, FLOAT_ALP},
		{make_noise, FLOAT_RAW},  {make_few_of_noise, FLOAT_INTEGER}, {make_exceptions, FLOAT_ALP},
	};
	int64 bits[BLOCK_ROWS];

	for (int i = 0; i < lengthof(expected); i++)
	{
		for (int is_single = 0; is_single < 2; is_single++)
		{
			FloatEncoding encoding;

			make_bits(expected[i].generator, BLOCK_ROWS, is_single, bits);
			encoding = check_round_trip(bits, BLOCK_ROWS, is_single);
			CHECK_THAT(encoding == expected[i].encoding, "generator %d, single %d: encoding %d", i,
					   is_single, encoding);
		}
	}
}

/* Decimals leave no exceptions: their blocks are as small as those of the integers. */
static void
check_sizes(void)
{
	int64 bits[BLOCK_ROWS];
	double values[BLOCK_ROWS];
	ByteBuffer buffer;

	byte_buffer_init(&buffer, 0);
	for (int digits = 0; digits <= 15; digits++)
	{
		/* up to 15 digits, which take 50 bits */
		make_decimals(values, BLOCK_ROWS, digits, INT64CONST(499999999999999));
		for (int i = 0; i < BLOCK_ROWS; i++)
			bits[i] = get_bits(values[i]);
		buffer.length = 0;
		CHECK(float_encode(bits, BLOCK_ROWS, false, &buffer) == FLOAT_ALP);
		CHECK_THAT(buffer.length <= BLOCK_ROWS * 50 / 8 + 20, "%llu bytes for %d digits",
				   (unsigned long long) buffer.length, digits);
	}
	for (int digits = 0; digits <= 6; digits++)
	{
		/* up to 6 digits of float4, which take 20 bits */
		make_decimals(values, BLOCK_ROWS, digits, 499999);
		for (int i = 0; i < BLOCK_ROWS; i++)
			bits[i] = float_narrow_single(values[i]);
		buffer.length = 0;
		CHECK(float_encode(bits, BLOCK_ROWS, true, &buffer) == FLOAT_ALP);
		CHECK_THAT(buffer.length <= BLOCK_ROWS * 20 / 8 + 20, "%llu bytes for %d digits",
				   (unsigned long long) buffer.length, digits);
	}
	byte_buffer_free(&buffer);
}

/* All kinds of NaN, and the edges of every exponent, from float4 to double and back. */
static void
check_widening(void)
{
	for (uint64 exponent = 0; exponent < 512; exponent++)
	{
		for (int i = 0; i < 200; i++)
		{
			uint32 bits = exponent << 23 | (i < 2 ? i : harness_random_bits(23));

			CHECK(float_narrow_single(float_widen_single(bits)) == bits);
		}
	}
	CHECK(float_widen_single(0x3f800000) == 1.0);
	CHECK(float_widen_single(0xc0490fdb) == -3.14159274101257324);
	/* the smallest float4 is no denormal number as double */
	CHECK(float_widen_single(1) == 1.401298464324817e-45);
}

static void
check_stored_bytes(void)
{
	static const double prices[] = {1.25, 0.5, 3.75};
	static const double odd[] = {1.0 / 3};
	int64 bits[3];
	ByteBuffer buffer;

	byte_buffer_init(&buffer, 0);
	for (int i = 0; i < 3; i++)
		bits[i] = get_bits(prices[i]);
	/* two digits, no exception; for: 50 + 75, 0 and 325 in 9 bits */
	CHECK(float_encode(bits, 3, false, &buffer) == FLOAT_ALP);
	CHECK(buffer.length == 11);
	CHECK(memcmp(buffer.data, "\x01\x02\x00\x00\x12\x32\x09\x4b\x00\x14\x05", 11) == 0);
	buffer.length = 0;
	bits[0] = get_bits(odd[0]);
	CHECK(float_encode(bits, 1, false, &buffer) == FLOAT_RAW);
	CHECK(buffer.length == 9);
	CHECK(memcmp(buffer.data, "\x00\x55\x55\x55\x55\x55\x55\xd5\x3f", 9) == 0);
	byte_buffer_free(&buffer);
}

/* ---- damage ------------------------------------------------------------------------------------ */

typedef struct Damaged
{
	char *bytes;
	uint64 length;
	uint32 nvalues;
	bool is_single;
} Damaged;

static void
decode_into(const Damaged *damaged, double *values, bool *constant)
{
	ByteCursor cursor = {damaged->bytes, damaged->bytes + damaged->length};

	float_decode(&cursor, damaged->nvalues, damaged->is_single, values, constant);
	CHECK(cursor.at > damaged->bytes && cursor.at <= cursor.end);
}

/* Twice over different garbage: what was decoded must not depend on it. */
static void
decode_damaged(void *argument)
{
	const Damaged *damaged = argument;
	Size size = damaged->nvalues * sizeof(double);
	double *values = memset(palloc(size), 0x00, size);
	double *again = memset(palloc(size), 0xff, size);
	bool constant;

	decode_into(damaged, values, &constant);
	decode_into(damaged, again, &constant);
	CHECK(memcmp(values, again, size) == 0);
	for (uint32 i = 0; constant && i < damaged->nvalues; i++)
		CHECK(get_bits(values[i]) == get_bits(values[0]));
}

static void
fuzz(void)
{
	int64 bits[BLOCK_ROWS];
	ByteBuffer buffer;
	uint64 errors = 0;

	byte_buffer_init(&buffer, 0);
	while (harness_time_is_left(300))
	{
		Damaged damaged = {.nvalues = random_size(), .is_single = harness_random_below(2)};
		uint32 nvalues = damaged.nvalues;

		make_any_bits(nvalues, damaged.is_single, bits);
		buffer.length = 0;
		float_encode(bits, nvalues, damaged.is_single, &buffer);
		for (int i = 0; i < 50; i++)
		{
			damaged.nvalues = harness_random_below(20) ? nvalues : random_size();
			damaged.bytes = harness_damage(buffer.data, buffer.length, &damaged.length);
			errors += !harness_try_damaged(decode_damaged, &damaged);
			free(damaged.bytes);
		}
	}
	/* what is cut off is always noticed */
	CHECK(errors > 0);
	byte_buffer_free(&buffer);
}

int
main(int argc, char **argv)
{
	harness_start(argc, argv);
	check_widening();
	check_many_round_trips();
	check_choices();
	check_sizes();
	check_stored_bytes();
	fuzz();
	return harness_finish();
}
