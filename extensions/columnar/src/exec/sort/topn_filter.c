/*
 * topn_filter.c
 *		Which rows of a batch can be among the best, as far as their first key tells.
 *
 * All but the first few batches of a table have none, so this is what a row costs: integers,
 * floats and mantissas of numerics are compared in whole blocks, entries of a dictionary once
 * until the bar is raised.  A row whose first key is equal to that of the worst entry is kept if
 * there are other keys; else it is worse, as it came later.
 */
#include "exec/sort/topn_internal.h"

#include "common/int.h"
#include "utils/memutils.h"

typedef struct MantissaRange
{
	bool is_empty;
	int128 low;
	int128 high;
} MantissaRange;

#define INT128_MAX_VALUE ((int128) (((uint128) 1 << 127) - 1))
#define INT128_MIN_VALUE (-INT128_MAX_VALUE - 1)

/* ---- whole blocks ------------------------------------------------------------------------------- */

/* marks[i] = is values[i] between low and high?  Is any? */
VECTOR_KERNEL static bool
mark_range(const int64 *restrict values, int64 low, int64 high, uint8 *restrict marks)
{
	uint8 any = 0;

	for (int i = 0; i < BLOCK_ROWS; i++)
	{
		marks[i] = (values[i] >= low) & (values[i] <= high);
		any |= marks[i];
	}
	return any != 0;
}

VECTOR_KERNEL static void
make_float_words(const double *restrict values, int64 *restrict words)
{
	for (int i = 0; i < BLOCK_ROWS; i++)
		words[i] = sort_float_word(values[i]);
}

static void
mark_wides(const int128 *values, const MantissaRange *range, const uint16 *selection,
		   uint32 nselected, uint8 *marks)
{
	for (uint32 i = 0; i < nselected; i++)
	{
		uint16 row = selection[i];

		marks[row] = values[row] >= range->low && values[row] <= range->high;
	}
}

/* Marks the words that are better than the worst entry's; which words, says `values`. */
static bool
mark_words(const TopnRank *rank, const int64 *values, uint8 *marks)
{
	const SortKey *key = &rank->keys[0];
	int64 word = key->words[rank->worst];
	bool strict = rank->nkeys == 1;

	/* words are kept in the order of the key, where less is better */
	if (strict && word == PG_INT64_MIN)
		return false;
	word -= strict;
	return key->descending ? mark_range(values, ~word, PG_INT64_MAX, marks)
						   : mark_range(values, PG_INT64_MIN, word, marks);
}

/* ---- numerics ----------------------------------------------------------------------------------- */

/*
 * The worst entry's mantissa at another scale, rounded down, and whether that is exact.  False
 * if it is beyond all mantissas.
 */
static bool
rescale(const TopnRank *rank, int32 scale, int128 *floor, bool *exact)
{
	int128 value = rank->mantissa;

	*exact = true;
	for (int32 i = rank->scale; i < scale; i++)
		if (__builtin_mul_overflow(value, (int128) 10, &value))
			return false;
	/* after 39 digits nothing is left */
	for (int32 i = scale; i < rank->scale && i < scale + 40; i++)
	{
		int128 rest = value % 10;

		*exact &= rest == 0;
		value = value / 10 - (rest < 0);
	}
	*floor = value;
	return true;
}

/* The mantissas of this scale that are better than the worst entry. */
static MantissaRange
find_range(const TopnRank *rank, int32 scale)
{
	MantissaRange range = {.low = INT128_MIN_VALUE, .high = INT128_MAX_VALUE};
	bool descending = rank->keys[0].descending;
	bool strict = rank->nkeys == 1;
	int128 floor;
	bool exact;

	if (!rescale(rank, scale, &floor, &exact))
		range.is_empty = descending == (rank->mantissa > 0);
	else if (!descending)
	{
		range.is_empty = exact && strict && floor == INT128_MIN_VALUE;
		range.high = exact && strict && !range.is_empty ? floor - 1 : floor;
	}
	else
	{
		bool beyond = strict || !exact;

		range.is_empty = beyond && floor == INT128_MAX_VALUE;
		range.low = beyond && !range.is_empty ? floor + 1 : floor;
	}
	return range;
}

static bool
mark_mantissas(const TopnRank *rank, const Vector *vector, const uint16 *selection,
			   uint32 nselected, uint8 *marks)
{
	MantissaRange range = find_range(rank, vector->scale);

	if (!range.is_empty && vector->form == VECTOR_WIDE)
	{
		mark_wides(vector->wides, &range, selection, nselected, marks);
		return true;
	}
	if (range.is_empty || range.low > PG_INT64_MAX || range.high < PG_INT64_MIN)
		return false;
	return mark_range(vector->ints, (int64) Max(range.low, PG_INT64_MIN),
					  (int64) Min(range.high, PG_INT64_MAX), marks);
}

/* ---- single rows -------------------------------------------------------------------------------- */

static bool
is_possible(TopnRank *rank, const Vector *vector, uint32 row)
{
	int order;

	sort_key_take(&rank->keys[0], rank->count, vector, row);
	order = sort_key_compare(&rank->keys[0], rank->count, rank->worst);
	return order < 0 || (order == 0 && rank->nkeys > 1);
}

static void
mark_rows(TopnRank *rank, const Vector *vector, const uint16 *selection, uint32 nselected,
		  uint8 *marks)
{
	for (uint32 i = 0; i < nselected; i++)
		if (!vector_is_null(vector, selection[i]))
			marks[selection[i]] = is_possible(rank, vector, selection[i]);
}

static void
begin_outcomes(TopnRank *rank, const Dictionary *dictionary)
{
	if (rank->serial == dictionary->serial)
		return;
	if (rank->noutcomes < dictionary->nentries)
	{
		if (rank->outcomes != NULL)
			pfree(rank->outcomes);
		rank->outcomes = MemoryContextAlloc(rank->context, dictionary->nentries);
		rank->noutcomes = dictionary->nentries;
	}
	memset(rank->outcomes, -1, dictionary->nentries);
	rank->serial = dictionary->serial;
}

static void
mark_codes(TopnRank *rank, const Vector *vector, const uint16 *selection, uint32 nselected,
		   uint8 *marks)
{
	begin_outcomes(rank, vector->dictionary);
	for (uint32 i = 0; i < nselected; i++)
	{
		uint16 row = selection[i];
		int8 *outcome;

		if (vector_is_null(vector, row))
			continue;
		outcome = &rank->outcomes[vector->codes[row]];
		if (*outcome < 0)
			*outcome = is_possible(rank, vector, row);
		marks[row] = (uint8) *outcome;
	}
}

/* Numerics that are no mantissas. */
static void
mark_exceptions(TopnRank *rank, const Vector *vector, const uint16 *selection, uint32 nselected,
				uint8 *marks)
{
	for (uint32 i = 0; i < nselected; i++)
		if (vector_bit(vector->exceptions, selection[i]) && !vector_is_null(vector, selection[i]))
			marks[selection[i]] = is_possible(rank, vector, selection[i]);
}

/* ---- the filter --------------------------------------------------------------------------------- */

/*
 * Sets the marks of the selected rows that are not NULL; the worst entry's key is not either.
 * False if none can be among the best; the marks are undefined then.
 */
static bool
mark_values(TopnRank *rank, const Vector *vector, const uint16 *selection, uint32 nselected,
			uint8 *marks)
{
	const SortKey *key = &rank->keys[0];
	bool any;

	if (key->form == SORT_WORD && vector->form == VECTOR_INT)
		return mark_words(rank, vector->ints, marks);
	if (key->form == SORT_WORD && vector->form == VECTOR_FLOAT)
	{
		int64 words[BLOCK_ROWS];

		make_float_words(vector->floats, words);
		return mark_words(rank, words, marks);
	}
	if (rank->has_mantissa && (vector->form == VECTOR_INT || vector->form == VECTOR_WIDE))
	{
		any = mark_mantissas(rank, vector, selection, nselected, marks);
		if (vector->exceptions == NULL)
			return any;
		if (!any)
			memset(marks, 0, BLOCK_ROWS);
		mark_exceptions(rank, vector, selection, nselected, marks);
		return true;
	}
	if (vector->form == VECTOR_CODES)
		mark_codes(rank, vector, selection, nselected, marks);
	else
		mark_rows(rank, vector, selection, nselected, marks);
	return true;
}

/* Selects the rows that are marked; NULLs if `nulls`. */
static uint32
collect(const Vector *vector, const uint8 *marks, bool nulls, const uint16 *selection,
		uint32 nselected, uint16 *into)
{
	uint32 kept = 0;

	if (vector->nulls == NULL)
	{
		for (uint32 i = 0; i < nselected; i++)
		{
			uint16 row = selection[i];

			into[kept] = row;
			kept += marks[row];
		}
		return kept;
	}
	for (uint32 i = 0; i < nselected; i++)
	{
		uint16 row = selection[i];

		into[kept] = row;
		kept += vector_is_null(vector, row) ? nulls : marks[row];
	}
	return kept;
}

uint32
topn_rank_filter(TopnRank *rank, const Vector *first, const uint16 *selection, uint32 nselected,
				 uint16 *into)
{
	const SortKey *key = &rank->keys[0];
	uint8 marks[BLOCK_ROWS];
	bool strict = rank->nkeys == 1;

	if (!rank->has_worst)
	{
		memmove(into, selection, sizeof(uint16) * nselected);
		return nselected;
	}
	if (key->nulls[rank->worst])
	{
		memset(marks, !key->nulls_first, sizeof(marks));
		return collect(first, marks, !strict, selection, nselected, into);
	}
	if (!mark_values(rank, first, selection, nselected, marks))
	{
		if (first->nulls == NULL || !key->nulls_first)
			return 0;
		memset(marks, 0, sizeof(marks));
	}
	return collect(first, marks, key->nulls_first, selection, nselected, into);
}
