/*
 * test_bloom.c
 *		A Bloom filter knows all of its values, and few others.
 */
#include "harness.h"

#include "store/chunk/bloom_filter.h"

#define FALSE_POSITIVES_MAX 0.015

typedef struct FilterCase
{
	const char *bytes;
	uint64 length;
	uint64 hash;
	bool result;
} FilterCase;

/* Hashes of a good function, or (few_bits) of a poor one: small numbers. */
static uint64
make_hash(uint64 number, bool is_poor)
{
	uint64 hash = number;

	if (is_poor)
		return number;
	hash = (hash ^ hash >> 31) * UINT64CONST(0x7fb5d329728ea185);
	hash = (hash ^ hash >> 27) * UINT64CONST(0x81dadef4bc2dd44d);
	return hash ^ hash >> 33;
}

static void
check_filter(uint32 nvalues, uint32 nrepeats, bool is_poor)
{
	uint64 *hashes = palloc((Size) nvalues * nrepeats * sizeof(uint64));
	uint32 nhashes = 0;
	uint32 false_positives = 0;
	uint32 ntries = 20000;
	ByteBuffer filter;

	for (uint32 repeat = 0; repeat < nrepeats; repeat++)
	{
		for (uint32 i = 0; i < nvalues; i++)
			hashes[nhashes++] = make_hash((uint64) i * 2, is_poor);
	}
	byte_buffer_init(&filter, 0);
	byte_buffer_append(&filter, "before", 6);
	bloom_filter_write(hashes, nhashes, &filter);

	for (uint32 i = 0; i < nvalues; i++)
		CHECK_THAT(bloom_filter_test(filter.data + 6, filter.length - 6,
									 make_hash((uint64) i * 2, is_poor)),
				   "value %u of %u is not found", i, nvalues);
	for (uint32 i = 0; i < ntries; i++)
		false_positives += bloom_filter_test(filter.data + 6, filter.length - 6,
											 make_hash((uint64) i * 2 + 1, is_poor));
	/* of few values there may be by chance more */
	CHECK_THAT(nvalues < 100 || false_positives <= ntries * FALSE_POSITIVES_MAX,
			   "of %u values there are %u false positives in %u", nvalues, false_positives, ntries);
	/* repeated values take no room */
	CHECK_THAT(filter.length - 6 <= 8 + 32 + nvalues * 11.1 / 8, "%u values take %llu bytes",
			   nvalues, (unsigned long long) filter.length);
	pfree(hashes);
	byte_buffer_free(&filter);
}

static void
ask_filter(void *argument)
{
	FilterCase *test = argument;

	test->result = bloom_filter_test(test->bytes, test->length, test->hash);
}

static void
check_empty(void)
{
	ByteBuffer filter;

	byte_buffer_init(&filter, 0);
	bloom_filter_write(NULL, 0, &filter);
	CHECK(filter.length == 8);
	for (int i = 0; i < 100; i++)
		CHECK(!bloom_filter_test(filter.data, filter.length, harness_random()));
	byte_buffer_free(&filter);
}

/* A filter of another version may contain anything; one of a wrong length is damaged. */
static void
check_damage(void)
{
	uint64 hashes[200];
	ByteBuffer filter;
	FilterCase test = {0};

	for (int i = 0; i < lengthof(hashes); i++)
		hashes[i] = harness_random();
	byte_buffer_init(&filter, 0);
	bloom_filter_write(hashes, lengthof(hashes), &filter);
	test.bytes = filter.data;
	for (test.length = 0; test.length < filter.length; test.length++)
		CHECK(!harness_try_damaged(ask_filter, &test));

	test.length = filter.length;
	CHECK(harness_try_damaged(ask_filter, &test));
	filter.data[0]++;
	for (int i = 0; i < 100; i++)
	{
		test.hash = harness_random();
		CHECK(harness_try_damaged(ask_filter, &test) && test.result);
	}
	filter.data[0]--;

	while (harness_time_is_left(1000))
	{
		char *damaged = harness_damage(filter.data, filter.length, &test.length);

		test.bytes = damaged;
		test.hash = harness_random();
		(void) harness_try_damaged(ask_filter, &test);
		free(damaged);
	}
	byte_buffer_free(&filter);
}

int
main(int argc, char **argv)
{
	static const uint32 sizes[] = {1, 2, 10, 100, 1000, 10000, 131072};

	harness_start(argc, argv);
	check_empty();
	for (int i = 0; i < lengthof(sizes); i++)
	{
		check_filter(sizes[i], 1, false);
		check_filter(sizes[i], 1, true);
		check_filter(sizes[i], 3, false);
	}
	check_damage();
	return harness_finish();
}
