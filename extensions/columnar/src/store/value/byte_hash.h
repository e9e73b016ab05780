/*
 * byte_hash.h
 *		A fast hash of bytes in memory, two words at a time.
 *
 * Not for what is stored: it differs between machines.
 */
#ifndef COLUMNAR_BYTE_HASH_H
#define COLUMNAR_BYTE_HASH_H

#include "postgres.h"

#define BYTE_HASH_FIRST UINT64CONST(0xA0761D6478BD642F)
#define BYTE_HASH_SECOND UINT64CONST(0xE7037ED1A0B428DB)

static inline uint64
byte_hash_word(const char *at)
{
	uint64 word;

	memcpy(&word, at, sizeof(word));
	return word;
}

static inline uint32
byte_hash_half(const char *at)
{
	uint32 half;

	memcpy(&half, at, sizeof(half));
	return half;
}

/* All bits of the product of two words, folded into one. */
static inline uint64
byte_hash_fold(uint64 a, uint64 b)
{
	uint128 product = (uint128) a * b;

	return (uint64) product ^ (uint64) (product >> 64);
}

static inline uint64
byte_hash(const char *bytes, uint32 length)
{
	const char *end = bytes + length;
	uint64 hash = length * UINT64CONST(0x9E3779B97F4A7C15);
	uint64 a = 0;
	uint64 b = 0;

	for (; end - bytes > 16; bytes += 16)
		hash = byte_hash_fold(byte_hash_word(bytes) ^ BYTE_HASH_FIRST ^ hash,
							  byte_hash_word(bytes + 8) ^ BYTE_HASH_SECOND);

	/* the last 0 .. 16 bytes, some of them twice */
	if (end - bytes >= 8)
	{
		a = byte_hash_word(bytes);
		b = byte_hash_word(end - 8);
	}
	else if (end - bytes >= 4)
	{
		a = byte_hash_half(bytes);
		b = byte_hash_half(end - 4);
	}
	else if (end > bytes)
	{
		a = (uint64) (uint8) bytes[0] << 16 | (uint64) (uint8) bytes[(end - bytes) / 2] << 8 |
			(uint8) end[-1];
	}
	hash = byte_hash_fold(a ^ BYTE_HASH_FIRST ^ hash, b ^ BYTE_HASH_SECOND);
	return byte_hash_fold(hash ^ BYTE_HASH_SECOND, BYTE_HASH_FIRST);
}

#endif
