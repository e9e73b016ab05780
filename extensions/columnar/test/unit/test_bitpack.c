/*
 * test_bitpack.c
 *		Packed integers of every width, against a reader of single bits written from
 *		the layout's description.
 */
#include "harness.h"

#include "store/codec/bitpack.h"

/* Bit `bit` of packed bytes, where full blocks are in lanes and others in a row. */
static uint64
read_value(const unsigned char *from, uint32 nvalues, int width, uint32 position)
{
	uint32 lanes = width <= 32 ? 32 : 16;
	uint32 word_bits = width <= 32 ? 32 : 64;
	uint64 value = 0;

	for (int i = 0; i < width; i++)
	{
		uint64 bit = (uint64) position * width + i;

		if (nvalues == BLOCK_ROWS)
		{
			uint64 lane_bit = (uint64) (position / lanes) * width + i;

			bit = (lane_bit / word_bits * lanes + position % lanes) * word_bits +
				  lane_bit % word_bits;
		}
		value |= (uint64) (from[bit / 8] >> bit % 8 & 1) << i;
	}
	return value;
}

static void
check_width(uint32 nvalues, int width)
{
	uint64 size = bitpack_size(nvalues, width);
	uint64 base = harness_random();
	/* of their exact sizes, and at odd addresses, for the sanitizers */
	char *packed = (char *) malloc(size + 1) + 1;
	uint64 *values = malloc(nvalues * sizeof(uint64));
	uint64 *unpacked = malloc(nvalues * sizeof(uint64));

	for (uint32 i = 0; i < nvalues; i++)
		values[i] = width == 0 ? 0 : harness_random() >> (64 - width);
	bitpack_pack(values, nvalues, width, packed);
	bitpack_unpack(packed, nvalues, width, base, unpacked);
	for (uint32 i = 0; i < nvalues; i++)
	{
		CHECK_THAT(unpacked[i] == values[i] + base, "value %u of %u, width %d", i, nvalues, width);
		CHECK_THAT(read_value((unsigned char *) packed, nvalues, width, i) == values[i],
				   "layout of value %u of %u, width %d", i, nvalues, width);
	}
	free(packed - 1);
	free(values);
	free(unpacked);
}

int
main(int argc, char **argv)
{
	static const uint32 sizes[] = {1, 2, 3, 7, 8, 9, 63, 64, 65, 1023, 1024};

	harness_start(argc, argv);
	CHECK(bitpack_width(0) == 0 && bitpack_width(1) == 1 && bitpack_width(255) == 8);
	CHECK(bitpack_width(256) == 9 && bitpack_width(PG_UINT64_MAX) == 64);
	for (int width = 0; width <= 64; width++)
	{
		for (int i = 0; i < lengthof(sizes); i++)
			check_width(sizes[i], width);
		check_width(1 + harness_random_below(BLOCK_ROWS), width);
	}
	return harness_finish();
}
