/*
 * bitpack.c
 *		Unsigned integers of w bits, side by side, at the speed of memory.
 *
 * A full block lies in L lanes of b-bit words (32 of 32, above w = 32: 16 of 64):
 *
 *		word 0:      lane 0 | lane 1 | ... | lane L-1		rows of a lane follow each other
 *		word 1:      lane 0 | lane 1 | ... | lane L-1		inside of its words, least
 *		...													significant bit first
 *		word w-1:    lane 0 | lane 1 | ... | lane L-1
 *
 * Row r of every lane begins at bit r * w, so all lanes of a row need the same
 * shifts: the loop over the lanes is a vector instruction or two, whatever the
 * width, and its result is L consecutive values.  A second word is always read
 * (where there is none, the last again) and masked away if it was not needed,
 * which spares branches that would depend on the width.
 *
 * Writing 8 bytes a value is most of the work, so one loop for all widths reaches
 * the speed that code of its own for each would have.
 */
#include "store/codec/bitpack.h"

#define LANES32 32
#define LANES64 16

StaticAssertDecl(BLOCK_ROWS == LANES32 * 32 && BLOCK_ROWS == LANES64 * 64,
				 "a lane has one row per bit of its words");

/* A word in the middle of bytes. */
typedef uint32 Word32 __attribute__((aligned(1), may_alias));
typedef uint64 Word64 __attribute__((aligned(1), may_alias));

/*
 * Unpacks, and packs, one full block of LANES lanes of words of WORD_BITS bits.
 * The template's functions end in the number of bits.
 */
#define DEFINE_BLOCK_FUNCTIONS(WORD_BITS, Word, Aligned, LANES)                                   \
	FORMAT_VECTORISED static void unpack_block##WORD_BITS(const Word *restrict from, int width,   \
														  uint64 base, uint64 *restrict values)   \
	{                                                                                             \
		const Aligned mask = ~(Aligned) 0 >> (WORD_BITS - width);                                 \
                                                                                                  \
		for (int row = 0; row < WORD_BITS; row++)                                                 \
		{                                                                                         \
			int word = row * width / WORD_BITS;                                                   \
			int shift = row * width % WORD_BITS;                                                  \
			const Word *low = from + word * LANES;                                                \
			const Word *high = from + Min(word + 1, width - 1) * LANES;                           \
                                                                                                  \
			for (int lane = 0; lane < LANES; lane++)                                              \
			{                                                                                     \
				Aligned value = low[lane] >> shift;                                               \
                                                                                                  \
				/* in two steps: one of WORD_BITS bits is undefined */                            \
				value |= high[lane] << 1 << (WORD_BITS - 1 - shift);                              \
				values[row * LANES + lane] = (value & mask) + base;                               \
			}                                                                                     \
		}                                                                                         \
	}                                                                                             \
                                                                                                  \
	FORMAT_VECTORISED static void pack_block##WORD_BITS(const uint64 *restrict values, int width, \
														Word *restrict into)                      \
	{                                                                                             \
		Aligned words[LANES] = {0};                                                               \
                                                                                                  \
		for (int row = 0; row < WORD_BITS; row++)                                                 \
		{                                                                                         \
			int shift = row * width % WORD_BITS;                                                  \
			const uint64 *from = values + row * LANES;                                            \
                                                                                                  \
			for (int lane = 0; lane < LANES; lane++)                                              \
				words[lane] |= (Aligned) from[lane] << shift;                                     \
			if (shift + width < WORD_BITS)                                                        \
				continue;                                                                         \
			/* the words are full: what did not fit begins the next ones */                       \
			for (int lane = 0; lane < LANES; lane++)                                              \
				into[lane] = words[lane];                                                         \
			into += LANES;                                                                        \
			for (int lane = 0; lane < LANES; lane++)                                              \
				words[lane] = (Aligned) from[lane] >> 1 >> (WORD_BITS - 1 - shift);               \
		}                                                                                         \
	}

DEFINE_BLOCK_FUNCTIONS(32, Word32, uint32, LANES32)
DEFINE_BLOCK_FUNCTIONS(64, Word64, uint64, LANES64)

/* ---- shorter blocks ---------------------------------------------------------------------------- */

/* The value at bit `bit`, reading no byte at or after `end`. */
static inline uint64
get_bits(const unsigned char *from, const unsigned char *end, uint64 bit, int width)
{
	const unsigned char *at = from + bit / 8;
	int shift = bit % 8;
	uint64 value = 0;

	if (likely(end - at >= sizeof(value)))
		memcpy(&value, at, sizeof(value));
	else
		memcpy(&value, at, end - at);
	value >>= shift;
	if (shift + width > 64)
		value |= (uint64) at[8] << (64 - shift);
	return value & (~UINT64CONST(0) >> (64 - width));
}

/* Values of more bits may reach into a ninth byte. */
#define EIGHTS_WIDTH_MAX 57

/*
 * Unpacks nvalues, a multiple of 8: eight have `width` bytes together, so all eights begin at the same bits.  Reads
 * up to 8 bytes after the last.
 */
FORMAT_VECTORISED static void
unpack_eights(const unsigned char *restrict from, uint32 nvalues, int width, uint64 base,
			  uint64 *restrict values)
{
	const uint64 mask = ~UINT64CONST(0) >> (64 - width);
	uint32 bytes[8];
	uint64 shifts[8];

	for (int i = 0; i < 8; i++)
	{
		bytes[i] = i * width / 8;
		shifts[i] = i * width % 8;
	}
	for (uint32 done = 0; done < nvalues; done += 8, from += width)
	{
		uint64 words[8];

		for (int i = 0; i < 8; i++)
			memcpy(&words[i], from + bytes[i], sizeof(uint64));
		for (int i = 0; i < 8; i++)
			values[done + i] = (words[i] >> shifts[i] & mask) + base;
	}
}

static void
unpack_short(const char *from, uint32 nvalues, int width, uint64 base, uint64 *values)
{
	const unsigned char *bytes = (const unsigned char *) from;
	uint64 size = bitpack_size(nvalues, width);
	unsigned char rest[2 * (EIGHTS_WIDTH_MAX + 8)] = {0};
	uint64 rest_values[80];
	uint32 neights; /* with 8 bytes behind each of them */
	uint32 done;

	if (width > EIGHTS_WIDTH_MAX)
	{
		for (uint32 i = 0; i < nvalues; i++)
			values[i] = get_bits(bytes, bytes + size, (uint64) i * width, width) + base;
		return;
	}
	neights = size < 8 ? 0 : (size - 8) / width;
	done = neights * 8;
	unpack_eights(bytes, done, width, base, values);
	/* the last of them, up to 72, from a copy that has room behind */
	memcpy(rest, bytes + (Size) neights * width, size - (Size) neights * width);
	unpack_eights(rest, TYPEALIGN(8, nvalues - done), width, base, rest_values);
	memcpy(values + done, rest_values, sizeof(uint64) * (nvalues - done));
}

static void
pack_short(const uint64 *values, uint32 nvalues, int width, char *into)
{
	uint64 word = 0;
	int filled = 0;

	for (uint32 i = 0; i < nvalues; i++)
	{
		word |= values[i] << filled;
		if (filled + width < 64)
		{
			filled += width;
			continue;
		}
		memcpy(into, &word, sizeof(word));
		into += sizeof(word);
		/* in two steps: a shift by 64 is undefined */
		word = values[i] >> 1 >> (63 - filled);
		filled += width - 64;
	}
	memcpy(into, &word, (filled + 7) / 8);
}

/* ---- any block --------------------------------------------------------------------------------- */

void
bitpack_pack(const uint64 *values, uint32 nvalues, int width, char *into)
{
	Assert(width >= 0 && width <= 64);

	if (width == 0)
		return;
	if (nvalues != BLOCK_ROWS)
		pack_short(values, nvalues, width, into);
	else if (width <= 32)
		pack_block32(values, width, (Word32 *) into);
	else
		pack_block64(values, width, (Word64 *) into);
}

FORMAT_VECTORISED static void
fill(uint64 value, uint32 nvalues, uint64 *values)
{
	if (nvalues == BLOCK_ROWS)
		for (uint32 i = 0; i < BLOCK_ROWS; i++)
			values[i] = value;
	else
		for (uint32 i = 0; i < nvalues; i++)
			values[i] = value;
}

void
bitpack_unpack(const char *from, uint32 nvalues, int width, uint64 base, uint64 *values)
{
	Assert(width >= 0 && width <= 64);

	if (width == 0)
		fill(base, nvalues, values);
	else if (nvalues != BLOCK_ROWS)
		unpack_short(from, nvalues, width, base, values);
	else if (width <= 32)
		unpack_block32((const Word32 *) from, width, base, values);
	else
		unpack_block64((const Word64 *) from, width, base, values);
}
