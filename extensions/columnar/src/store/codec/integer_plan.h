/*
 * integer_plan.h
 *		Which encoding makes a block of integers smallest: the decision, without the writing.
 *
 * integer_codec.c writes what was decided here, with the same parts: the runs, the
 * patches, the dictionary and the exact division.
 */
#ifndef COLUMNAR_INTEGER_PLAN_H
#define COLUMNAR_INTEGER_PLAN_H

#include "store/codec/integer_codec.h"

/* Most distinct values of a dictionary: codes are at most 8 bits wide. */
#define INTEGER_DICTIONARY_MAX 256

#define INTEGER_TABLE_BITS 10
#define INTEGER_TABLE_SLOTS (1 << INTEGER_TABLE_BITS)

/* An encoding, the exact size of the block with it, and what writing it needs. */
typedef struct IntegerPlan
{
	IntegerEncoding encoding;
	uint64 size;
	int64 base;
	int64 step; /* delta; scale: the divisor */
	int width;	/* of the block's bits; dictionary: of its entries */
} IntegerPlan;

/* Distinct values in order of appearance; slots hold a position in entries + 1. */
typedef struct IntegerTable
{
	uint32 nentries;
	int64 entries[INTEGER_DICTIONARY_MAX];
	uint16 slots[INTEGER_TABLE_SLOTS];
} IntegerTable;

/* How to divide by a number what it divides without remainder. */
typedef struct IntegerDivisor
{
	uint64 value;
	uint64 inverse; /* of its odd part, modulo 2^64 */
	uint64 largest; /* quotient there is */
	int zeros;		/* trailing zero bits of value */
} IntegerDivisor;

/* The smallest encoding of 1 .. BLOCK_ROWS values; `nested`: inside of another block. */
extern void
integer_plan_choose(const int64 *values, uint32 nvalues, bool nested, IntegerPlan *plan);

/* Bytes that the number needs when its sign fills the rest, 0 to 8. */
extern int integer_plan_count_bytes(int64 number);

/* Values and lengths - 1 of the runs, each with room for nvalues; returns their number. */
extern uint32 integer_plan_collect_runs(const int64 *values, uint32 nvalues, int64 *run_values,
										int64 *run_lengths);

/*
 * The values that do not fit base + width bits: their positions, and what lies
 * above the bits; each with room for nvalues.  Returns their number.
 */
extern uint32 integer_plan_collect_patches(const int64 *values, uint32 nvalues, int64 base,
										   int width, int64 *positions, int64 *tops);

extern void integer_table_init(IntegerTable *table);

/* value > 0 */
extern IntegerDivisor integer_divisor_make(uint64 value);

/* a - b modulo 2^64: a difference of int64 does not fit int64. */
static inline uint64
integer_subtract(int64 a, int64 b)
{
	return (uint64) a - (uint64) b;
}

/*
 * number / divisor if there is no remainder, else more than divisor->largest:
 * multiplication by the odd part's inverse is a permutation of all numbers, whose
 * multiples take the small places; one with trailing bits left is rotated high.
 */
static inline uint64
integer_divisor_divide(uint64 number, const IntegerDivisor *divisor)
{
	uint64 quotient = number * divisor->inverse;

	return quotient >> divisor->zeros | quotient << (-divisor->zeros & 63);
}

/*
 * Position of the value, which is added if it is new and there are fewer than
 * `limit` (at most INTEGER_DICTIONARY_MAX); limit if it is not.
 */
static inline uint32
integer_table_find(IntegerTable *table, int64 value, uint32 limit)
{
	uint32 slot = (uint64) value * UINT64CONST(0x9e3779b97f4a7c15) >> (64 - INTEGER_TABLE_BITS);

	while (table->slots[slot] != 0)
	{
		if (table->entries[table->slots[slot] - 1] == value)
			return table->slots[slot] - 1;
		slot = (slot + 1) % INTEGER_TABLE_SLOTS;
	}
	if (table->nentries >= limit)
		return limit;
	table->entries[table->nentries] = value;
	table->slots[slot] = ++table->nentries;
	return table->nentries - 1;
}

#endif
