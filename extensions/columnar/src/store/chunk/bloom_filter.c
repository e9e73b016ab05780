/*
 * bloom_filter.c
 *		A Bloom filter whose questions touch one cache line.
 *
 * The idea is that of split-block filters (Putze, Sanders, Singler: Cache-, Hash-
 * and Space-Efficient Bloom Filters, 2007): the upper half of a hash chooses a
 * block of 8 words, the lower half chooses, through eight odd multipliers, one
 * bit in each word.  Hashes are mixed once more before use, since the hash
 * function of a foreign type may leave bits constant.
 *
 *		u32		version of mixing and multipliers (BLOOM_VERSION)
 *		u32		number of blocks; 0: the set is empty
 *		blocks	of 8 words of 32 bits
 *
 * A reader that does not know the version must answer "may contain".
 */
#include "compat.h"

#include "store/chunk/bloom_filter.h"

#define BLOOM_VERSION 1
#define BLOOM_WORDS 8
#define BLOOM_BLOCK_BYTES (BLOOM_WORDS * sizeof(uint32))
#define BLOOM_HEADER_BYTES (2 * sizeof(uint32))
#define BLOOM_BITS_PER_VALUE 11

/* Odd, else arbitrary: part of the format. */
static const uint32 bloom_multipliers[BLOOM_WORDS] = {
	0x7f4a7c15, 0x2545f491, 0xd6e8feb9, 0x94d049bb, 0x133111eb, 0xbf58476d, 0x52dce729, 0xe7037ed1};

#define ST_SORT sort_hashes
#define ST_ELEMENT_TYPE uint64
#define ST_COMPARE(a, b) (*(a) < *(b) ? -1 : *(a) > *(b))
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

static uint64
mix_hash(uint64 hash)
{
	hash ^= hash >> 33;
	hash *= UINT64CONST(0xff51afd7ed558ccd);
	hash ^= hash >> 33;
	hash *= UINT64CONST(0xc4ceb9fe1a85ec53);
	hash ^= hash >> 33;
	return hash;
}

/* The block of a mixed hash: its upper half scaled to the number of blocks. */
static uint64
choose_block(uint64 mixed, uint32 nblocks)
{
	return ((mixed >> 32) * nblocks) >> 32;
}

static uint32
choose_bit(uint64 mixed, int word)
{
	return (uint32) 1 << ((uint32) ((uint32) mixed * bloom_multipliers[word]) >> 27);
}

/* Sorts, and moves the distinct ones to the front. */
static uint32
remove_duplicates(uint64 *hashes, uint32 nhashes)
{
	uint32 ndistinct = 0;

	if (nhashes == 0)
		return 0;
	sort_hashes(hashes, nhashes);
	for (uint32 i = 1; i < nhashes; i++)
	{
		if (hashes[i] != hashes[ndistinct])
			hashes[++ndistinct] = hashes[i];
	}
	return ndistinct + 1;
}

void
bloom_filter_write(uint64 *hashes, uint32 nhashes, ByteBuffer *into)
{
	uint32 ndistinct = remove_duplicates(hashes, nhashes);
	uint32 nblocks = (uint32) (((uint64) ndistinct * BLOOM_BITS_PER_VALUE + BLOOM_BLOCK_BYTES * 8 -
								1) /
							   (BLOOM_BLOCK_BYTES * 8));
	uint64 nbytes = (uint64) nblocks * BLOOM_BLOCK_BYTES;
	char *blocks;

	byte_buffer_put_u32(into, BLOOM_VERSION);
	byte_buffer_put_u32(into, nblocks);
	byte_buffer_reserve(into, nbytes);
	blocks = into->data + into->length;
	memset(blocks, 0, nbytes);
	into->length += nbytes;

	for (uint32 i = 0; i < ndistinct; i++)
	{
		uint64 mixed = mix_hash(hashes[i]);
		char *at = blocks + choose_block(mixed, nblocks) * BLOOM_BLOCK_BYTES;
		uint32 words[BLOOM_WORDS];

		memcpy(words, at, sizeof(words));
		for (int word = 0; word < BLOOM_WORDS; word++)
			words[word] |= choose_bit(mixed, word);
		memcpy(at, words, sizeof(words));
	}
}

bool
bloom_filter_test(const char *bytes, uint64 length, uint64 hash)
{
	ByteCursor cursor = {.at = bytes, .end = bytes + length};
	uint32 version = byte_cursor_u32(&cursor);
	uint32 nblocks;
	uint64 mixed = mix_hash(hash);
	uint32 words[BLOOM_WORDS];

	if (version != BLOOM_VERSION)
		return true;
	nblocks = byte_cursor_u32(&cursor);
	if (length != BLOOM_HEADER_BYTES + (uint64) nblocks * BLOOM_BLOCK_BYTES)
		format_damaged("a Bloom filter of %u blocks has " UINT64_FORMAT " bytes", nblocks, length);
	if (nblocks == 0)
		return false;

	memcpy(words, cursor.at + choose_block(mixed, nblocks) * BLOOM_BLOCK_BYTES, sizeof(words));
	for (int word = 0; word < BLOOM_WORDS; word++)
	{
		if ((words[word] & choose_bit(mixed, word)) == 0)
			return false;
	}
	return true;
}
