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
#include "topn_internal.h"

#include "access/stratnum.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/typcache.h"

#include "numeric_codec.h"
#include "vector_store_internal.h"
#include "zone_map.h"

/* Waste that is not worth tidying up. */
#define WASTE_BYTES ((Size) 1024 * 1024)

/* Entries that are sorted to find the best among them. */
#define SORTED_ENTRIES 16

/* ---- keys --------------------------------------------------------------------------------------- */

static RankForm
choose_form(const RankKey *key, Oid sort_operator)
{
	TypeCacheEntry *entry = lookup_type_cache(key->type.typid, TYPECACHE_BTREE_OPFAMILY);
	Oid family;
	Oid input_type;
	int16 strategy;

	if (!get_ordering_op_properties(sort_operator, &family, &input_type, &strategy) ||
		family != entry->btree_opf || input_type != entry->btree_opintype)
		return RANK_DATUM;
	if (key->type.zone == ZONE_INT || key->type.zone == ZONE_FLOAT)
		return RANK_WORD;
	if (key->type.zone == ZONE_BYTES && key->type.bytes_are_ordered)
		return RANK_BYTES;
	return RANK_DATUM;
}

static void
init_key(RankKey *key, const TopnKey *source)
{
	vector_key_type(&source->value, &key->type);
	key->support.ssup_cxt = CurrentMemoryContext;
	key->support.ssup_collation = source->value.collation;
	key->support.ssup_nulls_first = source->nulls_first;
	PrepareSortSupportFromOrderingOp(source->sort_operator, &key->support);
	key->descending = key->support.ssup_reverse;
	key->nulls_first = source->nulls_first;
	key->form = choose_form(key, source->sort_operator);
}

TopnRank *
topn_rank_create(int nkeys, const TopnKey *keys, uint32 bound)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "columnar rank",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	TopnRank *rank = palloc0(sizeof(TopnRank));

	rank->context = context;
	rank->values = AllocSetContextCreate(context, "columnar rank's values", ALLOCSET_DEFAULT_SIZES);
	rank->bound = bound;
	rank->nkeys = nkeys;
	rank->keys = palloc0(sizeof(RankKey) * nkeys);
	for (int i = 0; i < nkeys; i++)
		init_key(&rank->keys[i], &keys[i]);
	MemoryContextSwitchTo(caller);
	return rank;
}

/* The first bytes as a number of the same order, which may be equal for different bytes. */
static int64
make_prefix(const char *bytes, uint32 length)
{
	uint64 prefix = 0;

	memcpy(&prefix, bytes, Min(length, sizeof(prefix)));
	return (int64) (pg_ntoh64(prefix) ^ (UINT64CONST(1) << 63));
}

static int64
take_word(const RankKey *key, const Vector *vector, uint32 row)
{
	if (vector->form == VECTOR_INT)
		return vector->ints[row];
	if (vector->form == VECTOR_FLOAT)
		return rank_float_word(vector->floats[row]);
	if (key->type.form != FORM_FLOAT)
		return column_type_to_int(&key->type, vector->datums[row]);
	return rank_float_word(key->type.length == sizeof(float4)
							   ? (double) DatumGetFloat4(vector->datums[row])
							   : DatumGetFloat8(vector->datums[row]));
}

void
rank_take_value(RankKey *key, uint32 entry, const Vector *vector, uint32 row)
{
	int64 word = 0;

	key->nulls[entry] = vector_is_null(vector, row);
	if (key->nulls[entry])
	{
		key->words[entry] = 0;
		return;
	}
	if (key->form == RANK_WORD)
		word = take_word(key, vector, row);
	else if (key->form == RANK_BYTES)
	{
		RankBytes *bytes = &key->bytes[entry];

		bytes->start = store_bytes_of(vector, row, &bytes->length);
		bytes->length = zone_map_trim(&key->type, bytes->start, bytes->length);
		word = make_prefix(bytes->start, bytes->length);
	}
	else
	{
		bool isnull;

		key->datums[entry] = vector_datum(vector, row, &isnull);
	}
	key->words[entry] = key->descending ? ~word : word;
}

/* The order of bytes whose prefixes are equal. */
static int
compare_bytes(const RankKey *key, uint32 a, uint32 b)
{
	const RankBytes *left = &key->bytes[a];
	const RankBytes *right = &key->bytes[b];
	int order = memcmp(left->start, right->start, Min(left->length, right->length));

	if (order == 0)
		order = left->length < right->length ? -1 : left->length > right->length;
	return key->descending ? (order < 0) - (order > 0) : order;
}

int
rank_compare_key(RankKey *key, uint32 a, uint32 b)
{
	if (key->nulls[a] || key->nulls[b])
	{
		if (key->nulls[a] == key->nulls[b])
			return 0;
		return key->nulls[a] == key->nulls_first ? -1 : 1;
	}
	if (key->form == RANK_DATUM)
		return ApplySortComparator(key->datums[a], false, key->datums[b], false, &key->support);
	if (key->words[a] != key->words[b])
		return key->words[a] < key->words[b] ? -1 : 1;
	return key->form == RANK_BYTES ? compare_bytes(key, a, b) : 0;
}

static int
compare_entries(TopnRank *rank, uint32 a, uint32 b)
{
	for (int i = 0; i < rank->nkeys; i++)
	{
		int order = rank_compare_key(&rank->keys[i], a, b);

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
	const RankKey *first = &rank->keys[0];

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
	{
		RankKey *key = &rank->keys[i];

		key->nulls[to] = key->nulls[from];
		key->words[to] = key->words[from];
		if (key->form == RANK_BYTES)
			key->bytes[to] = key->bytes[from];
		else if (key->form == RANK_DATUM)
			key->datums[to] = key->datums[from];
	}
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
	{
		RankKey *key = &rank->keys[i];

		key->nulls = grow(rank, key->nulls, sizeof(bool), capacity);
		key->words = grow(rank, key->words, sizeof(int64), capacity);
		if (key->form == RANK_BYTES)
			key->bytes = grow(rank, key->bytes, sizeof(RankBytes), capacity);
		else if (key->form == RANK_DATUM)
			key->datums = grow(rank, key->datums, sizeof(Datum), capacity);
	}
	rank->capacity = capacity;
}

/* Copies what an entry refers to into the current context. */
static void
copy_values(TopnRank *rank, uint32 entry)
{
	for (int i = 0; i < rank->nkeys; i++)
	{
		RankKey *key = &rank->keys[i];

		if (key->nulls[entry])
			continue;
		if (key->form == RANK_BYTES)
		{
			RankBytes *bytes = &key->bytes[entry];
			char *copy = MemoryContextAllocHuge(CurrentMemoryContext, Max(bytes->length, 1));

			memcpy(copy, bytes->start, bytes->length);
			bytes->start = copy;
			rank->value_bytes += bytes->length;
		}
		else if (key->form == RANK_DATUM && !key->type.byval)
		{
			Datum value = key->datums[entry];

			if (key->type.length == -1)
				value = PointerGetDatum(PG_DETOAST_DATUM_PACKED(value));
			if (value == key->datums[entry])
				value = datumCopy(value, false, key->type.length);
			key->datums[entry] = value;
			rank->value_bytes += datumGetSize(value, false, key->type.length);
		}
	}
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
		RankKey *key = &rank->keys[i];
		int order;

		rank_take_value(key, rank->count, keys[i], row);
		if (!rank->has_worst)
			continue;
		order = rank_compare_key(key, rank->count, rank->worst);
		if (order > 0)
			return false;
		if (order == 0)
			continue;
		while (++i < rank->nkeys)
			rank_take_value(&rank->keys[i], rank->count, keys[i], row);
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
	const RankKey *key = &rank->keys[0];
	int64 word;

	if (!rank->is_tightened)
		return false;
	rank->is_tightened = false;
	if (key->form != RANK_WORD || key->type.form != FORM_INT)
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
