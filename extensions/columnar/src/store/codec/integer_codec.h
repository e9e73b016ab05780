/*
 * integer_codec.h
 *		Encodings of a block of int64: the base of all others.
 *
 * Every other encoding ends here: dictionary codes, byte lengths, scaled
 * numerics and the integers of ALP are blocks of int64.  The smallest encoding
 * is chosen per block by computing all their sizes, which is cheap.
 */
#ifndef COLUMNAR_INTEGER_CODEC_H
#define COLUMNAR_INTEGER_CODEC_H

#include "store/value/format.h"

/* Stored as a byte; never renumber. Names as shown by columnar_chunks(). */
typedef enum IntegerEncoding
{
	INTEGER_CONSTANT = 0,	/* constant: one value */
	INTEGER_RLE = 1,		/* rle: runs of values and lengths */
	INTEGER_FOR = 2,		/* for: base + bit-packed differences */
	INTEGER_PFOR = 3,		/* pfor: the same with patches for the few that do not fit */
	INTEGER_DELTA = 4,		/* delta: base, smallest step, bit-packed steps beyond it */
	INTEGER_SCALE = 5,		/* scale: (value - base) / common divisor, bit-packed */
	INTEGER_DICTIONARY = 6, /* dictionary: up to 256 values of the block, bit-packed codes */
	INTEGER_BITMAP = 7		/* bitmap: exactly 0 and 1, a bit each (booleans) */
} IntegerEncoding;

#define INTEGER_NENCODINGS 8

extern const char *integer_encoding_name(IntegerEncoding encoding);

/*
 * Appends the encoded block to `into` and returns the encoding chosen.
 * nvalues: 1 .. BLOCK_ROWS.  Values at NULL positions are the caller's choice
 * (best: the value before).
 */
extern IntegerEncoding integer_encode(const int64 *values, uint32 nvalues, ByteBuffer *into);

/* Size that integer_encode() would append, for choosing among other encodings. */
extern uint64 integer_encoded_size(const int64 *values, uint32 nvalues);

/*
 * Decodes exactly nvalues (<= BLOCK_ROWS) values; *constant (may be NULL) tells
 * that all are equal.  Moves the cursor behind the block.  ERROR on damage.
 */
extern void integer_decode(ByteCursor *cursor, uint32 nvalues, int64 *values, bool *constant);

#endif
