/*
 * bitpack.h
 *		Unsigned integers of w bits, 0 <= w <= 64, side by side.
 *
 * A full block of 1024 values is packed in lanes: up to 32 bits in 32 lanes of
 * 32-bit words (value i is row i / 32 of lane i % 32), above in 16 lanes of
 * 64-bit words, so that the compiler unpacks all lanes with vector instructions.
 * A shorter block is packed value after value, least significant bit first.
 * Either way the size is bitpack_size(n, w) bytes.
 */
#ifndef COLUMNAR_BITPACK_H
#define COLUMNAR_BITPACK_H

#include "store/value/format.h"

/* Bits needed for the value: 0 for 0, 64 for the largest. */
static inline int
bitpack_width(uint64 value)
{
	return value == 0 ? 0 : 64 - __builtin_clzll(value);
}

static inline uint64
bitpack_size(uint32 nvalues, int width)
{
	return ((uint64) nvalues * width + 7) / 8;
}

/* Packs values (each < 2^width) into bitpack_size() bytes at `into`. */
extern void bitpack_pack(const uint64 *values, uint32 nvalues, int width, char *into);

/*
 * Unpacks and adds `base` (wrapping) to each.  Reads exactly bitpack_size()
 * bytes, which the caller has checked to exist; writes nvalues values.
 */
extern void
bitpack_unpack(const char *from, uint32 nvalues, int width, uint64 base, uint64 *values);

#endif
