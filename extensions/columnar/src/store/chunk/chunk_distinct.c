/*
 * chunk_distinct.c
 *		How many distinct values a column has: for the planner, so about right is enough.
 *
 * Few values are counted exactly by sorting their hashes, integers that lie close together
 * by marking them.  Others are estimated by
 * HyperLogLog (Flajolet, Fusy, Gandouet, Meunier, 2007) with 4096 registers, that is
 * within 2 to 3 %; linear counting where many registers are empty.  Values are told
 * apart by their bytes: 1.1 and 1.10 are two.
 */
#include "compat.h"

#include <math.h>

#include "store/chunk/chunk_internal.h"
#include "store/value/byte_hash.h"

#define EXACT_VALUES 1024

/* Integers are marked if they lie so close together: a byte for each, which the processor's cache holds. */
#define MARKS_MAX (256 * 1024)
#define MARKS_PER_ROW 8

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
hash_row(const ColumnValues *values, uint32 row)
{
	const char *bytes;
	uint32 length;

	if (values->ints != NULL)
		return byte_hash_fold(
			byte_hash_fold((uint64) values->ints[row] ^ BYTE_HASH_FIRST, BYTE_HASH_SECOND),
			BYTE_HASH_FIRST);
	bytes = column_values_bytes(values, row, &length);
	return byte_hash(bytes, length);
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

/* From the smallest integer, *low, to the largest; NULLs count as 0. */
static uint64
find_span(const ColumnValues *values, int64 *low)
{
	int64 min = values->ints[0];
	int64 max = values->ints[0];

	for (uint32 row = 0; row < values->nrows; row++)
	{
		min = Min(min, values->ints[row]);
		max = Max(max, values->ints[row]);
	}
	*low = min;
	return (uint64) max - (uint64) min;
}

/* Counts integers from `low` to `low` + span, exactly. */
static uint32
count_by_marks(const ColumnValues *values, int64 low, uint32 span)
{
	uint8 *marks = palloc0(span + 1);
	uint32 ndistinct = 0;

	for (uint32 row = 0; row < values->nrows; row++)
		marks[values->ints[row] - low] = 1;
	if (values->nnulls > 0 && low <= 0 && -low <= span)
	{
		/* is there a 0 that is no NULL? */
		marks[-low] = 0;
		for (uint32 row = 0; row < values->nrows; row++)
			if (values->ints[row] == 0 && !values->nulls[row])
				marks[-low] = 1;
	}
	for (uint32 i = 0; i <= span; i++)
		ndistinct += marks[i];
	pfree(marks);
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

static inline void
add_hash(uint8 *registers, uint64 hash)
{
	uint32 number = (uint32) (hash >> (64 - REGISTER_BITS));
	/* the bit below the register's number bounds the rank */
	uint8 rank = 1 + __builtin_clzll(hash << REGISTER_BITS | UINT64CONST(1) << (REGISTER_BITS - 1));

	registers[number] = Max(registers[number], rank);
}

/* The estimate of all values that are not NULL. */
static double
estimate_by_registers(const ColumnValues *values)
{
	uint8 registers[NREGISTERS] = {0};
	uint32 nranks[RANK_MAX + 1] = {0};

	if (values->ints != NULL && values->nulls == NULL)
	{
		for (uint32 row = 0; row < values->nrows; row++)
			add_hash(registers, hash_row(values, row));
	}
	else
	{
		for (uint32 row = 0; row < values->nrows; row++)
			if (!is_null_row(values, row))
				add_hash(registers, hash_row(values, row));
	}
	for (int i = 0; i < NREGISTERS; i++)
		nranks[registers[i]]++;
	return rint(estimate_from_ranks(nranks));
}

uint32
chunk_distinct_estimate(const ColumnValues *values)
{
	uint32 nvalues = values->nrows - values->nnulls;
	int64 low;
	uint64 span;

	if (nvalues <= 1)
		return nvalues;
	if (nvalues <= EXACT_VALUES)
		return count_exactly(values);
	if (values->ints != NULL)
	{
		span = find_span(values, &low);
		if (span < MARKS_MAX && span < (uint64) values->nrows * MARKS_PER_ROW)
			return count_by_marks(values, low, (uint32) span);
	}
	return (uint32) Min(Max(estimate_by_registers(values), 1), nvalues);
}
