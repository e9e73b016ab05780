/*
 * test_integer.c
 *		Blocks of integers: every value comes back, the right encoding is chosen, damage is
 *		found or harmless.
 */
#include "harness.h"

#include "store/codec/bitpack.h"
#include "store/codec/integer_codec.h"

/* ---- blocks of each kind ----------------------------------------------------------------------- */

typedef void (*Generator)(int64 *values, uint32 nvalues);

static int64
random_int64(void)
{
	static const int64 extremes[] = {PG_INT64_MIN, PG_INT64_MIN + 1, -1, 0, 1,
									 PG_INT64_MAX, PG_INT64_MAX - 1};

	if (harness_random_below(4) == 0)
		return extremes[harness_random_below(lengthof(extremes))];
	return harness_random_below(2) ? harness_random_bits(64) : -harness_random_bits(64);
}

static void
make_constant(int64 *values, uint32 nvalues)
{
	int64 value = random_int64();

	for (uint32 i = 0; i < nvalues; i++)
		values[i] = value;
}

static void
make_runs(int64 *values, uint32 nvalues)
{
	uint64 longest = 2 + harness_random_below(60);

	for (uint32 i = 0; i < nvalues;)
	{
		int64 value = random_int64();

		for (uint64 end = i + 1 + harness_random_below(longest); i < nvalues && i < end; i++)
			values[i] = value;
	}
}

static void
make_narrow(int64 *values, uint32 nvalues)
{
	int64 base = random_int64();
	int width = 1 + harness_random_below(63);

	for (uint32 i = 0; i < nvalues; i++)
		values[i] = base + (harness_random() >> (64 - width));
}

/* A few per cent far above the rest. */
static void
make_high_outliers(int64 *values, uint32 nvalues)
{
	int64 base = random_int64();
	int width = 4 + harness_random_below(24);
	uint64 one_in = 12 + harness_random_below(200);

	for (uint32 i = 0; i < nvalues; i++)
		values[i] = (uint64) base + (harness_random() >> (64 - width)) +
					(harness_random_below(one_in) == 0 ? harness_random() >> 4 : 0);
}

/* Mostly large numbers, and a few that are far below. */
static void
make_low_outliers(int64 *values, uint32 nvalues)
{
	uint64 one_in = 12 + harness_random_below(200);

	for (uint32 i = 0; i < nvalues; i++)
		values[i] = harness_random_below(one_in) == 0
						? (int64) harness_random_below(10)
						: INT64CONST(700000000000000) + (int64) harness_random_below(1000000);
}

static void
make_steps(int64 *values, uint32 nvalues, int64 smallest, uint64 spread)
{
	uint64 value = random_int64();

	for (uint32 i = 0; i < nvalues; i++)
	{
		values[i] = value;
		value += (uint64) smallest + harness_random_below(spread);
	}
}

static void
make_ascending(int64 *values, uint32 nvalues)
{
	make_steps(values, nvalues, harness_random_bits(20), 1 + harness_random_bits(10));
}

static void
make_descending(int64 *values, uint32 nvalues)
{
	make_steps(values, nvalues, -(int64) (1 << 20) - (int64) harness_random_bits(30),
			   1 + harness_random_bits(10));
}

static void
make_sequence(int64 *values, uint32 nvalues)
{
	make_steps(values, nvalues, random_int64(), 1);
}

static void
make_multiples(int64 *values, uint32 nvalues)
{
	static const int64 divisors[] = {2, 3, 100, 1000000, 86400000000, 7LL << 40};
	int64 divisor = divisors[harness_random_below(lengthof(divisors))];
	int64 base = random_int64();

	for (uint32 i = 0; i < nvalues; i++)
		values[i] = (uint64) base + (uint64) divisor * harness_random_below(50000);
}

static void
make_few(int64 *values, uint32 nvalues)
{
	int64 entries[256];
	uint64 nentries = 2 + harness_random_below(lengthof(entries) - 1);

	for (int i = 0; i < nentries; i++)
		entries[i] = harness_random();
	for (uint32 i = 0; i < nvalues; i++)
		values[i] = entries[harness_random_below(nentries)];
}

static void
make_flags(int64 *values, uint32 nvalues)
{
	for (uint32 i = 0; i < nvalues; i++)
		values[i] = harness_random_below(2);
}

static void
make_noise(int64 *values, uint32 nvalues)
{
	for (uint32 i = 0; i < nvalues; i++)
		values[i] = harness_random();
}

static void
make_extremes(int64 *values, uint32 nvalues)
{
	for (uint32 i = 0; i < nvalues; i++)
		values[i] = random_int64();
}

static const Generator generators[] = {
	make_constant,	make_runs,		 make_narrow,	make_high_outliers, make_low_outliers,
	make_ascending, make_descending, make_sequence, make_multiples,		make_few,
	make_flags,		make_noise,		 make_extremes};

/* One of the kinds, or two of them one after the other. */
static void
make_any(int64 *values, uint32 nvalues)
{
	uint32 first = harness_random_below(3) ? nvalues : harness_random_below(nvalues + 1);

	generators[harness_random_below(lengthof(generators))](values, first);
	if (first < nvalues)
		generators[harness_random_below(lengthof(generators))](values + first, nvalues - first);
}

static uint32
random_size(void)
{
	static const uint32 sizes[] = {1,	2,	 3,	  4,   7,	8,	 9,	  63,	64,	  65,
								   100, 127, 128, 129, 255, 256, 257, 1022, 1023, 1024};

	if (harness_random_below(3) == 0)
		return BLOCK_ROWS;
	if (harness_random_below(3) == 0)
		return 1 + harness_random_below(BLOCK_ROWS);
	return sizes[harness_random_below(lengthof(sizes))];
}

/* ---- round trips ------------------------------------------------------------------------------- */

/* Encodes and decodes; returns the encoding. */
static IntegerEncoding
check_round_trip(const int64 *values, uint32 nvalues)
{
	ByteBuffer buffer;
	IntegerEncoding encoding;
	char *bytes;
	ByteCursor cursor;
	int64 *decoded = malloc(nvalues * sizeof(int64));
	bool constant;
	bool equal = true;

	byte_buffer_init(&buffer, 0);
	byte_buffer_put_u8(&buffer, 0xaa);
	encoding = integer_encode(values, nvalues, &buffer);
	CHECK(buffer.length - 1 == integer_encoded_size(values, nvalues));
	/* "for" over all 64 bits is always possible */
	CHECK(buffer.length - 1 <= 10 + nvalues * 8);

	bytes = harness_copy(buffer.data + 1, buffer.length - 1);
	cursor = (ByteCursor){bytes, bytes + buffer.length - 1};
	integer_decode(&cursor, nvalues, decoded, &constant);
	CHECK(cursor.at == cursor.end);
	for (uint32 i = 0; i < nvalues; i++)
	{
		CHECK_THAT(decoded[i] == values[i], "%s: value %u of %u is %lld and was %lld",
				   integer_encoding_name(encoding), i, nvalues, (long long) decoded[i],
				   (long long) values[i]);
		equal = equal && values[i] == values[0];
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
	uint64 chosen[INTEGER_NENCODINGS] = {0};
	int64 values[BLOCK_ROWS];

	for (int i = 0; i < 5000; i++)
	{
		uint32 nvalues = random_size();

		make_any(values, nvalues);
		chosen[check_round_trip(values, nvalues)]++;
	}
	for (int encoding = 0; encoding < INTEGER_NENCODINGS; encoding++)
		CHECK_THAT(chosen[encoding] > 0, "%s was never chosen", integer_encoding_name(encoding));
}

/* What each kind of block is there for. */
static void
check_choices(void)
{
	static const struct
	{
		Generator generator;
		IntegerEncoding encoding;
	} expected[] = {
		{make_constant, INTEGER_CONSTANT}, {make_runs, INTEGER_RLE},
		{make_narrow, INTEGER_FOR},		   {make_high_outliers, INTEGER_PFOR},
		{make_low_outliers, INTEGER_PFOR}, {make_ascending, INTEGER_DELTA},
		{make_descending, INTEGER_DELTA},  {make_sequence, INTEGER_DELTA},
		{make_multiples, INTEGER_SCALE},   {make_few, INTEGER_DICTIONARY},
		{make_flags, INTEGER_BITMAP},	   {make_noise, INTEGER_FOR},
	};
	int64 values[BLOCK_ROWS];

	for (int i = 0; i < lengthof(expected); i++)
	{
		int right = 0;

		for (int round = 0; round < 20; round++)
		{
			expected[i].generator(values, BLOCK_ROWS);
			right += check_round_trip(values, BLOCK_ROWS) == expected[i].encoding;
		}
		CHECK_THAT(right >= 15, "generator %d gives %s only %d times of 20", i,
				   integer_encoding_name(expected[i].encoding), right);
	}
}

/* Blocks with the whole range of int64, where differences wrap. */
static void
check_wrapping(void)
{
	int64 values[BLOCK_ROWS];

	for (uint32 nvalues = 2; nvalues <= BLOCK_ROWS; nvalues = nvalues * 2 - 1)
	{
		for (uint32 i = 0; i < nvalues; i++)
			values[i] = i % 2 ? PG_INT64_MAX : PG_INT64_MIN;
		check_round_trip(values, nvalues);
		for (uint32 i = 0; i < nvalues; i++)
			values[i] = i < nvalues / 2 ? PG_INT64_MIN + i : PG_INT64_MAX - i;
		check_round_trip(values, nvalues);
		/* steps of 2^63 and 2^63 - 1 */
		for (uint32 i = 0; i < nvalues; i++)
			values[i] = (uint64) i * ((UINT64CONST(1) << 63) - i % 2);
		check_round_trip(values, nvalues);
		/* a divisor that is no int64 */
		for (uint32 i = 0; i < nvalues; i++)
			values[i] = i % 2 ? PG_INT64_MAX - 1 : PG_INT64_MIN;
		check_round_trip(values, nvalues);
	}
}

/* The bytes of some blocks, written down: what is stored can be read for ever. */
static void
check_bytes(const int64 *values, uint32 nvalues, const char *expected, uint64 length)
{
	ByteBuffer buffer;

	byte_buffer_init(&buffer, 0);
	integer_encode(values, nvalues, &buffer);
	CHECK_THAT(buffer.length == length, "%llu bytes in place of %llu",
			   (unsigned long long) buffer.length, (unsigned long long) length);
	CHECK(memcmp(buffer.data, expected, length) == 0);
	byte_buffer_free(&buffer);
}

#define CHECK_BYTES(expected, nvalues, ...)                            \
	do                                                                 \
	{                                                                  \
		static const int64 values_[BLOCK_ROWS] = {__VA_ARGS__};        \
		check_bytes(values_, nvalues, expected, sizeof(expected) - 1); \
	} while (0)

static void
check_stored_bytes(void)
{
	CHECK_BYTES("\x10\x05", 3, 5, 5, 5);
	CHECK_BYTES("\x20\x00\xff", 2, -256, -256);
	CHECK_BYTES("\x07\x06", 3, 0, 1, 1);
	CHECK_BYTES("\x12\xfe\x01\x02", 2, -2, -1);
	CHECK_BYTES("\x14\x0a\x01\x02\x00", 10, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28);
	CHECK_BYTES("\x05\x02\xe8\x03\x02\xb4\xb4\xb4\xb4", 16, 0, 1000, 3000, 2000, 0, 1000, 3000,
				2000, 0, 1000, 3000, 2000, 0, 1000, 3000, 2000);
	/* 60 times 0 and 40 times 9: a block of values, a block of lengths - 1 */
	CHECK_BYTES("\x01\x02\x00\x02\x04\x90\x12\x27\x05\x14\x00", 100, [60 ... 99] = 9);
	/* three entries of 20 bits, then the codes 0 1 2 1 four times */
	CHECK_BYTES("\x06\x02\x14\x00\x00\x30\x24\xf4\x03\x00\x01\x64\x64\x64\x64", 16, 0, 1000003,
				65539, 1000003, 0, 1000003, 65539, 1000003, 0, 1000003, 65539, 1000003, 0, 1000003,
				65539, 1000003);
	/* 4 bits each, and one patch: value 5 has 62 above its 4 bits, which are 8 */
	CHECK_BYTES("\x03\x04\x01\x00\x70\x5e\x8c\x1a\xf8\xd6\xb4\x92\x70\x5e\x3c\x1a\xf8\xd6\xb4\x92"
				"\x10\x05\x10\x3e",
				32, 0, 7, 14, 5, 12, 1000, 10, 1, 8, 15, 6, 13, 4, 11, 2, 9, 0, 7, 14, 5, 12, 3, 10,
				1, 8, 15, 6, 13, 4, 11, 2, 9);
}

/* ---- damage ------------------------------------------------------------------------------------ */

typedef struct Damaged
{
	char *bytes;
	uint64 length;
	uint32 nvalues;
} Damaged;

static void
decode_into(const Damaged *damaged, int64 *values, bool *constant)
{
	ByteCursor cursor = {damaged->bytes, damaged->bytes + damaged->length};

	integer_decode(&cursor, damaged->nvalues, values, constant);
	CHECK(cursor.at > damaged->bytes && cursor.at <= cursor.end);
}

/* Twice over different garbage: what was decoded must not depend on it. */
static void
decode_damaged(void *argument)
{
	const Damaged *damaged = argument;
	Size size = damaged->nvalues * sizeof(int64);
	/* palloc()ed: freed also after an ERROR */
	int64 *values = memset(palloc(size), 0x00, size);
	int64 *again = memset(palloc(size), 0xff, size);
	bool constant;

	decode_into(damaged, values, &constant);
	decode_into(damaged, again, &constant);
	CHECK(memcmp(values, again, size) == 0);
	for (uint32 i = 0; constant && i < damaged->nvalues; i++)
		CHECK(values[i] == values[0]);
}

static void
fuzz(void)
{
	int64 values[BLOCK_ROWS];
	ByteBuffer buffer;
	uint64 errors = 0;

	byte_buffer_init(&buffer, 0);
	while (harness_time_is_left(500))
	{
		uint32 nvalues = random_size();

		make_any(values, nvalues);
		buffer.length = 0;
		integer_encode(values, nvalues, &buffer);
		for (int i = 0; i < 50; i++)
		{
			Damaged damaged = {.nvalues = nvalues};

			damaged.bytes = harness_damage(buffer.data, buffer.length, &damaged.length);
			if (harness_random_below(20) == 0)
				damaged.nvalues = random_size();
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
	check_many_round_trips();
	check_choices();
	check_wrapping();
	check_stored_bytes();
	fuzz();
	return harness_finish();
}
