/*
 * topn_rank.c
 *		The best rows so far, by their sort keys: see topn_rank.h.
 *
 * Keys are kept in arrays, one entry per row.  When there are a quarter more entries than are
 * wanted, the best are selected in linear time and the others forgotten; from then on a row must be
 * better than the worst of these.  So for a small LIMIT that bar is raised after each batch that
 * had better rows, and for a large one a row still costs the same on average.
 *
 * Memory: values that are passed by reference are those of the batch until it is known that
 * the row stays; then they are copied to a context that is tidied up when most of it is waste.
 */
#include "exec/sort/topn_internal.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "store/codec/numeric_codec.h"

/* Waste that is not worth tidying up. */
#define WASTE_BYTES ((Size) 1024 * 1024)

/* Entries that are sorted to find the best among them. */
#define SORTED_ENTRIES 16

TopnRank *
topn_rank_create(int nkeys, const SortKeySource *keys, uint32 bound)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "columnar rank",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	TopnRank *rank = palloc0(sizeof(TopnRank));

	rank->context = context;
	rank->values = AllocSetContextCreate(context, "columnar rank's values", ALLOCSET_DEFAULT_SIZES);
	rank->bound = bound;
	rank->nkeys = nkeys;
	rank->keys = palloc0(sizeof(SortKey) * nkeys);
	for (int i = 0; i < nkeys; i++)
		sort_key_init(&rank->keys[i], &keys[i]);
	MemoryContextSwitchTo(caller);
	return rank;
}

static int
compare_entries(TopnRank *rank, uint32 a, uint32 b)
{
	for (int i = 0; i < rank->nkeys; i++)
	{
		int order = sort_key_compare(&rank->keys[i], a, b);

		if (order != 0)
			return order;
	}
	return 0;
}

/* ---- the best of the entries -------------------------------------------------------------------- */

static int
compare_numbers(const void *left, const void *right, void *rank)
{
	uint32 a = *(const uint32 *) left;
	uint32 b = *(const uint32 *) right;
	int order = compare_entries(rank, a, b);

	if (order != 0)
		return order;
	return a < b ? -1 : a > b;
}

static bool
is_better(TopnRank *rank, uint32 a, uint32 b)
{
	return compare_numbers(&a, &b, rank) < 0;
}

static inline void
exchange(uint32 *a, uint32 *b)
{
	uint32 kept = *a;

	*a = *b;
	*b = kept;
}

/* The middle one of the first, the middle, and the last. */
static uint32
choose_pivot(TopnRank *rank, uint32 *numbers, uint32 n)
{
	uint32 a = numbers[0];
	uint32 b = numbers[n / 2];
	uint32 c = numbers[n - 1];

	if (is_better(rank, b, a))
		exchange(&a, &b);
	if (is_better(rank, c, b))
		b = is_better(rank, c, a) ? a : c;
	return b;
}

/* Reorders the entries: the best `wanted` come first, and the worst of these last among them. */
static void
select_best(TopnRank *rank, uint32 *numbers, uint32 n, uint32 wanted)
{
	/* each round leaves about half of them; who is that unlucky has to sort */
	for (int rounds = 0; n > SORTED_ENTRIES && rounds < 64; rounds++)
	{
		uint32 pivot = choose_pivot(rank, numbers, n);
		uint32 low = 0;
		uint32 high = n - 1;

		for (;;)
		{
			while (is_better(rank, numbers[low], pivot))
				low++;
			while (is_better(rank, pivot, numbers[high]))
				high--;
			if (low >= high)
				break;
			exchange(&numbers[low], &numbers[high]);
			low++;
			high--;
		}
		/* low: so many are not worse than the pivot, which is one of these or comes next */
		if (low == high && !is_better(rank, pivot, numbers[low]))
			low++;
		if (wanted <= low)
			n = low;
		else
		{
			numbers += low;
			n -= low;
			wanted -= low;
		}
	}
	qsort_arg(numbers, n, sizeof(uint32), compare_numbers, rank);
}

/* Sets what depends on the worst entry. */
static void
set_worst(TopnRank *rank, uint32 entry)
{
	const SortKey *first = &rank->keys[0];

	rank->has_worst = true;
	rank->worst = entry;
	rank->is_tightened = true;
	rank->serial = 0;
	rank->has_mantissa = false;
	if (first->type.form == FORM_NUMERIC && !first->nulls[entry])
	{
		struct varlena *value = PG_DETOAST_DATUM_PACKED(first->datums[entry]);

		rank->has_mantissa = numeric_to_scaled(VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value),
											   &rank->mantissa, &rank->scale);
	}
}

static void
move_entry(TopnRank *rank, uint32 to, uint32 from)
{
	rank->rows[to] = rank->rows[from];
	rank->positions[to] = rank->positions[from];
	for (int i = 0; i < rank->nkeys; i++)
		sort_key_move(&rank->keys[i], to, from);
}

/* Forgets all but the best entries; how many of the first `nold` stay. */
static uint32
keep_best(TopnRank *rank, uint32 nold)
{
	uint32 *order = rank->order;
	bool *kept = palloc0(sizeof(bool) * rank->count);
	uint32 nkept = 0;
	uint32 old_kept = 0;
	uint32 worst = 0;

	for (uint32 i = 0; i < rank->count; i++)
		order[i] = i;
	select_best(rank, order, rank->count, rank->bound);
	for (uint32 i = 0; i < rank->bound; i++)
		kept[order[i]] = true;
	for (uint32 i = 0; i < rank->count; i++)
	{
		if (!kept[i])
			continue;
		old_kept += i < nold;
		if (i == order[rank->bound - 1])
			worst = nkept;
		move_entry(rank, nkept++, i);
	}
	pfree(kept);
	rank->count = nkept;
	set_worst(rank, worst);
	return old_kept;
}

/* ---- memory ------------------------------------------------------------------------------------- */

static void *
grow(TopnRank *rank, void *array, Size element, uint32 capacity)
{
	if (array == NULL)
		return MemoryContextAllocHuge(rank->context, element * capacity);
	return repalloc_huge(array, element * capacity);
}

/* Makes room for n more entries and one that is compared with them. */
static void
reserve(TopnRank *rank, uint32 n)
{
	uint32 capacity = Max(rank->capacity, 2 * BLOCK_ROWS);

	if (rank->count + n < rank->capacity)
		return;
	while (rank->count + n >= capacity)
		capacity *= 2;
	rank->rows = grow(rank, rank->rows, sizeof(uint32), capacity);
	rank->positions = grow(rank, rank->positions, sizeof(uint16), capacity);
	rank->order = grow(rank, rank->order, sizeof(uint32), capacity);
	for (int i = 0; i < rank->nkeys; i++)
		sort_key_reserve(&rank->keys[i], rank->context, capacity);
	rank->capacity = capacity;
}

/* Copies what an entry refers to into the current context. */
static void
copy_values(TopnRank *rank, uint32 entry)
{
	for (int i = 0; i < rank->nkeys; i++)
		rank->value_bytes += sort_key_copy(&rank->keys[i], entry);
}

/* Copies the values of entries from `first` on. */
static void
keep_values(TopnRank *rank, uint32 first)
{
	MemoryContext old = rank->values;
	MemoryContext caller;
	bool tidy = rank->value_bytes > 2 * rank->live_bytes + WASTE_BYTES;

	if (tidy)
	{
		rank->values = AllocSetContextCreate(rank->context, "columnar rank's values",
											 ALLOCSET_DEFAULT_SIZES);
		rank->value_bytes = 0;
		first = 0;
	}
	caller = MemoryContextSwitchTo(rank->values);
	for (uint32 i = first; i < rank->count; i++)
		copy_values(rank, i);
	MemoryContextSwitchTo(caller);
	if (tidy)
	{
		rank->live_bytes = rank->value_bytes;
		MemoryContextDelete(old);
	}
}

void
topn_rank_reset(TopnRank *rank)
{
	MemoryContextReset(rank->values);
	rank->value_bytes = rank->live_bytes = 0;
	rank->count = 0;
	rank->has_worst = false;
	rank->is_tightened = false;
	rank->has_mantissa = false;
	rank->serial = 0;
}

/* ---- rows --------------------------------------------------------------------------------------- */

/* Puts the row into the entry behind the last; is it among the best so far? */
static bool
take_row(TopnRank *rank, Vector *const *keys, uint32 row)
{
	for (int i = 0; i < rank->nkeys; i++)
	{
		SortKey *key = &rank->keys[i];
		int order;

		sort_key_take(key, rank->count, keys[i], row);
		if (!rank->has_worst)
			continue;
		order = sort_key_compare(key, rank->count, rank->worst);
		if (order > 0)
			return false;
		if (order == 0)
			continue;
		while (++i < rank->nkeys)
			sort_key_take(&rank->keys[i], rank->count, keys[i], row);
		return true;
	}
	/* it came later than the worst, to which it is equal */
	return !rank->has_worst;
}

uint32
topn_rank_add(TopnRank *rank, Vector *const *keys, const uint16 *selection, uint32 nselected,
			  uint32 next_row, uint16 *into)
{
	uint32 first = rank->count;
	uint32 added = 0;

	reserve(rank, nselected);
	for (uint32 i = 0; i < nselected; i++)
	{
		if (!take_row(rank, keys, selection[i]))
			continue;
		rank->positions[rank->count++] = selection[i];
	}
	if (rank->count - first > 0 && rank->count > rank->bound + rank->bound / 4)
		first = keep_best(rank, first);
	keep_values(rank, first);
	for (uint32 i = first; i < rank->count; i++)
	{
		rank->rows[i] = next_row + added;
		into[added++] = rank->positions[i];
	}
	return added;
}

bool
topn_rank_bounds(TopnRank *rank, int64 *low, int64 *high, bool *nulls)
{
	const SortKey *key = &rank->keys[0];
	int64 word;

	if (!rank->is_tightened)
		return false;
	rank->is_tightened = false;
	if (key->form != SORT_WORD || key->type.form != FORM_INT)
		return false;
	if (key->nulls[rank->worst])
	{
		*nulls = rank->nkeys > 1;
		*low = key->nulls_first ? PG_INT64_MAX : PG_INT64_MIN;
		*high = key->nulls_first ? PG_INT64_MIN : PG_INT64_MAX;
		return true;
	}
	word = key->words[rank->worst];
	*nulls = key->nulls_first;
	*low = PG_INT64_MIN;
	*high = key->descending ? ~word : word;
	/* rows with the same key that come later are worse, if there is no other key */
	if (key->descending)
	{
		*low = *high + (rank->nkeys == 1 && *high < PG_INT64_MAX);
		*high = PG_INT64_MAX;
	}
	else if (rank->nkeys == 1 && *high > PG_INT64_MIN)
		(*high)--;
	return true;
}

const uint32 *
topn_rank_rows(const TopnRank *rank, uint32 *nrows)
{
	*nrows = rank->count;
	return rank->rows;
}

void
topn_rank_renumber(TopnRank *rank)
{
	for (uint32 i = 0; i < rank->count; i++)
		rank->rows[i] = i;
}

uint32 *
topn_rank_sort(TopnRank *rank, uint32 *nrows)
{
	uint32 *numbers = MemoryContextAllocHuge(CurrentMemoryContext,
											 sizeof(uint32) * Max(rank->count, 1));

	for (uint32 i = 0; i < rank->count; i++)
		numbers[i] = i;
	if (rank->count > rank->bound)
		select_best(rank, numbers, rank->count, rank->bound);
	*nrows = Min(rank->count, rank->bound);
	qsort_arg(numbers, *nrows, sizeof(uint32), compare_numbers, rank);
	for (uint32 i = 0; i < *nrows; i++)
		numbers[i] = rank->rows[numbers[i]];
	return numbers;
}
