/*
 * bloom_filter.h
 *		Split-block Bloom filter of a chunk's distinct hashes (32-byte blocks, 8 bits
 *		per value, one in each 32-bit word): one cache line per question.
 *
 * Hashes are those of the type's default hash operator class (extended, seed 0),
 * so that int4 = int8 and 1.0 = 1.00 agree.  No false negatives; about 1 % false
 * positives at 10 to 11 bits per distinct value.
 */
#ifndef COLUMNAR_BLOOM_FILTER_H
#define COLUMNAR_BLOOM_FILTER_H

#include "store/value/format.h"

/* Appends a filter of the hashes (duplicates are counted out first; sorts the array). */
extern void bloom_filter_write(uint64 *hashes, uint32 nhashes, ByteBuffer *into);
/* May the filter's set contain the hash?  ERROR when the bytes are no filter. */
extern bool bloom_filter_test(const char *bytes, uint64 length, uint64 hash);

#endif
