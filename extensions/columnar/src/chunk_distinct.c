/*
 * chunk_distinct.c
 *		How many distinct values a column has: for the planner, so about right is enough.
 *
 * Few values are counted exactly by sorting their hashes.  More are estimated by
 * HyperLogLog (Flajolet, Fusy, Gandouet, Meunier, 2007) with 4096 registers, that is
 * within 2 to 3 %; linear counting where many registers are empty.  Values are told
 * apart by their bytes: 1.1 and 1.10 are two.
 */
#include "compat.h"

#include <math.h>

#include "chunk_internal.h"

#define EXACT_VALUES 1024

#define REGISTER_BITS 12
#define NREGISTERS (1 << REGISTER_BITS)
#define RANK_MAX (64 - REGISTER_BITS + 1)

#define ST_SORT sort_hashes
#define ST_ELEMENT_TYPE uint64
#define ST_COMPARE(a, b) (*(a) < *(b) ? -1 : *(a) > *(b))
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

static inline uint64
mix(uint64 value)
{
	value ^= value >> 32;
	value *= UINT64CONST(0xd6e8feb86659fd93);
	value ^= value >> 32;
	value *= UINT64CONST(0xd6e8feb86659fd93);
	value ^= value >> 32;
	return value;
}

static inline uint64
hash_value_bytes(const char *bytes, uint32 length)
{
	uint64 hash = length;
	uint64 word;

	for (; length >= sizeof(word); length -= sizeof(word), bytes += sizeof(word))
	{
		memcpy(&word, bytes, sizeof(word));
		hash = mix(hash ^ word);
	}
	word = 0;
	memcpy(&word, bytes, length);
	return mix(hash ^ word);
}

static inline uint64
hash_row(const ColumnValues *values, uint32 row)
{
	const char *bytes;
	uint32 length;

	/* 0 is a fixed point of mix(), which the constant moves away */
	if (values->ints != NULL)
		return mix((uint64) values->ints[row] + UINT64CONST(0x9e3779b97f4a7c15));
	bytes = column_values_bytes(values, row, &length);
	return hash_value_bytes(bytes, length);
}

static inline bool
is_null_row(const ColumnValues *values, uint32 row)
{
	return values->nulls != NULL && values->nulls[row];
}

static uint32
count_exactly(const ColumnValues *values)
{
	uint64 hashes[EXACT_VALUES];
	uint32 nhashes = 0;
	uint32 ndistinct = 1;

	for (uint32 row = 0; row < values->nrows; row++)
	{
		if (!is_null_row(values, row))
			hashes[nhashes++] = hash_row(values, row);
	}
	sort_hashes(hashes, nhashes);
	for (uint32 i = 1; i < nhashes; i++)
		ndistinct += hashes[i] != hashes[i - 1];
	return ndistinct;
}

/* The estimate from the number of registers of each rank (0: empty). */
static double
estimate_from_ranks(const uint32 *nranks)
{
	double sum = 0;
	double estimate;

	for (int rank = 0; rank <= RANK_MAX; rank++)
		sum += ldexp(nranks[rank], -rank);
	estimate = 0.7213 / (1 + 1.079 / NREGISTERS) * NREGISTERS * NREGISTERS / sum;
	if (estimate <= 2.5 * NREGISTERS && nranks[0] > 0)
		estimate = NREGISTERS * log((double) NREGISTERS / nranks[0]);
	return estimate;
}

/* The estimate of all values that are not NULL. */
static double
estimate_by_registers(const ColumnValues *values)
{
	uint8 registers[NREGISTERS] = {0};
	uint32 nranks[RANK_MAX + 1] = {0};

	for (uint32 row = 0; row < values->nrows; row++)
	{
		uint64 hash;
		uint8 rank;

		if (is_null_row(values, row))
			continue;
		hash = hash_row(values, row);
		/* the bit below the register's number bounds the rank */
		rank = 1 + __builtin_clzll(hash << REGISTER_BITS | UINT64CONST(1) << (REGISTER_BITS - 1));
		if (rank > registers[hash >> (64 - REGISTER_BITS)])
			registers[hash >> (64 - REGISTER_BITS)] = rank;
	}
	for (int i = 0; i < NREGISTERS; i++)
		nranks[registers[i]]++;
	return rint(estimate_from_ranks(nranks));
}

uint32
chunk_distinct_estimate(const ColumnValues *values)
{
	uint32 nvalues = values->nrows - values->nnulls;

	if (nvalues <= 1)
		return nvalues;
	if (nvalues <= EXACT_VALUES)
		return count_exactly(values);
	return (uint32) Min(Max(estimate_by_registers(values), 1), nvalues);
}
