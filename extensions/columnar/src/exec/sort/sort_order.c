/*
 * sort_order.c
 *		The rows of a store in the order of their keys.
 *
 * Each key is made a number of as few bits as the range of its values needs: integers, floats and
 * mantissas of numerics by their distance from the smallest, entries of a dictionary by their
 * rank, bytes by the first eight; NULLs come before or behind.  The numbers of the first keys
 * are put together to a word of 64 bits, and words are sorted digit by digit, without a comparison.
 *
 * Rows whose words are equal are compared by the keys from the first on that is not in the word
 * with all its bits.
 *
 * Memory: all lies in a context that is gone in the end, but for the result.
 */
#include "exec/sort/sort_internal.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/memutils.h"

#include "exec/collection/vector_store_internal.h"
#include "store/chunk/zone_map.h"

#define WORD_BITS 64
#define DIGIT_BITS 8
#define DIGITS (1 << DIGIT_BITS)

/* How rows are compared by a key. */
typedef enum OrderForm
{
	ORDER_INTS, /* integers, and mantissas of numerics */
	ORDER_WIDES,
	ORDER_FLOATS,
	ORDER_RANKS, /* of the dictionary's entries */
	ORDER_BYTES,
	ORDER_DATUMS
} OrderForm;

typedef struct OrderKey
{
	SortKey *key;
	VectorStore *store;
	int number; /* of the column */
	const StoreColumn *column;
	OrderForm form;
	uint32 *ranks;
	Datum *datums; /* of all rows, made when the first two are compared */
	/* as words */
	bool has_words;
	bool exact; /* rows with equal words are equal */
	int shift;	/* ORDER_WIDES: so many bits are cut off */
	bool any;	/* is there a row that is not NULL? */
	int64 low;
	int64 high;
} OrderKey;

typedef struct RowOrder
{
	MemoryContext context;
	uint32 nrows;
	int nkeys;
	OrderKey *keys;
	int first; /* rows with equal words are compared from this key on */
	int bits;  /* of the words */
	uint64 *words;
} RowOrder;

/* Of a row whose word leaves no room for its number. */
typedef struct OrderItem
{
	uint64 word;
	uint32 row;
} OrderItem;

/* ---- comparisons -------------------------------------------------------------------------------- */

static OrderForm
choose_form(const SortKey *key, const StoreColumn *column)
{
	switch (column->layout)
	{
		case STORE_CODES:
			return ORDER_RANKS;
		case STORE_BYTES:
			return key->form == SORT_BYTES ? ORDER_BYTES : ORDER_DATUMS;
		case STORE_FLOAT:
			return key->form == SORT_WORD ? ORDER_FLOATS : ORDER_DATUMS;
		default:
			if (key->type.form != FORM_NUMERIC)
				return key->form == SORT_WORD ? ORDER_INTS : ORDER_DATUMS;
			if (!key->is_default || column->exceptions != NULL)
				return ORDER_DATUMS;
			return column->layout == STORE_INT128 ? ORDER_WIDES : ORDER_INTS;
	}
}

/* Bytes of SORT_BYTES, ascending. */
static int
compare_pieces(const ColumnType *type, const StoreBytes *a, const StoreBytes *b)
{
	return sort_bytes_compare(a->start, zone_map_trim(type, a->start, a->length), b->start,
							  zone_map_trim(type, b->start, b->length));
}

static int
compare_datums(OrderKey *order, Datum a, Datum b)
{
	return order->key->support.comparator(a, b, &order->key->support);
}

static int64
get_int(const StoreColumn *column, uint32 row)
{
	return column->layout == STORE_INT32 ? ((const int32 *) column->values)[row]
										 : ((const int64 *) column->values)[row];
}

/* The order of two rows that are not NULL, ascending. */
static int
compare_values(OrderKey *order, uint32 a, uint32 b)
{
	const StoreColumn *column = order->column;
	const StoreBytes *bytes = column->values;
	int128 left;
	int128 right;

	switch (order->form)
	{
		case ORDER_INTS:
			left = get_int(column, a);
			right = get_int(column, b);
			break;
		case ORDER_WIDES:
			left = ((const int128 *) column->values)[a];
			right = ((const int128 *) column->values)[b];
			break;
		case ORDER_FLOATS:
			left = sort_float_word(((const double *) column->values)[a]);
			right = sort_float_word(((const double *) column->values)[b]);
			break;
		case ORDER_RANKS:
			left = order->ranks[((const uint32 *) column->values)[a]];
			right = order->ranks[((const uint32 *) column->values)[b]];
			break;
		case ORDER_BYTES:
			return compare_pieces(&order->key->type, &bytes[a], &bytes[b]);
		default:
			return compare_datums(order, order->datums[a], order->datums[b]);
	}
	return (left > right) - (left < right);
}

static int
compare_by_key(OrderKey *order, uint32 a, uint32 b)
{
	bool null_a = vector_bit(order->column->nulls, a);
	bool null_b = vector_bit(order->column->nulls, b);
	int result;

	if (null_a || null_b)
	{
		if (null_a && null_b)
			return 0;
		return null_a == order->key->nulls_first ? -1 : 1;
	}
	result = compare_values(order, a, b);
	return order->key->descending ? (result < 0) - (result > 0) : result;
}

/* The order of two rows by the keys from this one on. */
static int
compare_from(RowOrder *rows, int first, uint32 a, uint32 b)
{
	for (int i = first; i < rows->nkeys; i++)
	{
		int result = compare_by_key(&rows->keys[i], a, b);

		if (result != 0)
			return result;
	}
	return 0;
}

static int
compare_rows(const void *a, const void *b, void *argument)
{
	RowOrder *rows = argument;

	CHECK_FOR_INTERRUPTS();
	return compare_from(rows, rows->first, *(const uint32 *) a, *(const uint32 *) b);
}

/* A row with its first key that is compared, which is not NULL, beside it: one cache miss less. */
typedef struct DatumItem
{
	Datum value;
	uint32 row;
} DatumItem;

static int
compare_items(const void *a, const void *b, void *argument)
{
	RowOrder *rows = argument;
	OrderKey *order = &rows->keys[rows->first];
	const DatumItem *left = a;
	const DatumItem *right = b;
	int result = compare_datums(order, left->value, right->value);

	CHECK_FOR_INTERRUPTS();
	if (result != 0)
		return order->key->descending ? (result < 0) - (result > 0) : result;
	return compare_from(rows, rows->first + 1, left->row, right->row);
}

/* The values of all rows as datums. */
static void
make_datums(RowOrder *rows, OrderKey *order)
{
	VectorBuffer *buffer = vector_buffer_create();
	uint32 numbers[BLOCK_ROWS];
	Vector vector;
	bool isnull;

	order->datums = MemoryContextAllocHuge(rows->context,
										   sizeof(Datum) * Max((Size) rows->nrows, 1));
	for (uint32 first = 0; first < rows->nrows; first += BLOCK_ROWS)
	{
		uint32 n = Min(BLOCK_ROWS, rows->nrows - first);

		CHECK_FOR_INTERRUPTS();
		for (uint32 i = 0; i < n; i++)
			numbers[i] = first + i;
		vector_store_gather(order->store, order->number, numbers, NULL, n, buffer, &vector);
		for (uint32 i = 0; i < n; i++)
			order->datums[first + i] = vector_datum(&vector, i, &isnull);
	}
}

/* ---- the order of a dictionary ------------------------------------------------------------------ */

typedef struct EntryOrder
{
	OrderKey *order;
	Datum *datums;
} EntryOrder;

static int
compare_entries(const void *a, const void *b, void *argument)
{
	EntryOrder *entries = argument;

	return compare_datums(entries->order, entries->datums[*(const uint32 *) a],
						  entries->datums[*(const uint32 *) b]);
}

static void
init_ranks(OrderKey *order)
{
	const SortKey *key = order->key;
	const Dictionary *dictionary = &order->column->dictionary.shown;
	uint32 n = dictionary->nentries;
	EntryOrder entries = {.order = order};
	uint32 *codes = palloc(sizeof(uint32) * Max(n, 1));

	entries.datums = palloc(sizeof(Datum) * Max(n, 1));
	order->ranks = palloc0(sizeof(uint32) * Max(n, 1));
	for (uint32 i = 0; i < n; i++)
	{
		codes[i] = i;
		entries.datums[i] = column_type_from_bytes(&key->type, dictionary->starts[i],
												   dictionary->lengths[i]);
	}
	qsort_arg(codes, n, sizeof(uint32), compare_entries, &entries);
	for (uint32 i = 1; i < n; i++)
		order->ranks[codes[i]] = order->ranks[codes[i - 1]] +
								 (compare_entries(&codes[i - 1], &codes[i], &entries) != 0);
}

/* ---- words of a key ----------------------------------------------------------------------------- */

/* The words of n rows, ascending in the order of the values; of NULLs they mean nothing. */
static void
read_words(const OrderKey *order, uint32 first, uint32 n, int64 *words)
{
	const StoreColumn *column = order->column;
	const StoreBytes *bytes = (const StoreBytes *) column->values + first;

	switch (order->form)
	{
		case ORDER_INTS:
			if (column->layout == STORE_INT64)
				memcpy(words, (const int64 *) column->values + first, sizeof(int64) * n);
			else
			{
				for (uint32 i = 0; i < n; i++)
					words[i] = ((const int32 *) column->values)[first + i];
			}
			break;
		case ORDER_WIDES:
			for (uint32 i = 0; i < n; i++)
				words[i] = (int64) (((const int128 *) column->values)[first + i] >> order->shift);
			break;
		case ORDER_FLOATS:
			for (uint32 i = 0; i < n; i++)
				words[i] = sort_float_word(((const double *) column->values)[first + i]);
			break;
		case ORDER_RANKS:
			for (uint32 i = 0; i < n; i++)
				words[i] = order->ranks[((const uint32 *) column->values)[first + i]];
			break;
		default:
			for (uint32 i = 0; i < n; i++)
				words[i] = sort_bytes_word(
					bytes[i].start,
					zone_map_trim(&order->key->type, bytes[i].start, bytes[i].length));
			break;
	}
}

/* The smallest and the largest word. */
static void
find_range(OrderKey *order, uint32 nrows)
{
	const uint64 *nulls = order->column->nulls;
	int64 words[BLOCK_ROWS];

	order->low = PG_INT64_MAX;
	order->high = PG_INT64_MIN;
	for (uint32 first = 0; first < nrows; first += BLOCK_ROWS)
	{
		uint32 n = Min(BLOCK_ROWS, nrows - first);

		read_words(order, first, n, words);
		for (uint32 i = 0; i < n; i++)
		{
			if (vector_bit(nulls, first + i))
				continue;
			order->low = Min(order->low, words[i]);
			order->high = Max(order->high, words[i]);
			order->any = true;
		}
	}
}

/* How many of the bits of 128 are of no use in words. */
static int
find_shift(const OrderKey *order, uint32 nrows)
{
	const int128 *values = order->column->values;
	uint128 bits = 0;
	uint64 high;

	for (uint32 i = 0; i < nrows; i++)
		bits |= (uint128) (values[i] ^ (values[i] >> 127));
	high = (uint64) (bits >> (WORD_BITS - 1));
	return high == 0 ? 0 : pg_leftmost_one_pos64(high) + 1;
}

/* Are there only strings that a word holds?  They have no byte that is 0. */
static bool
are_short(const OrderKey *order, uint32 nrows)
{
	const StoreBytes *bytes = order->column->values;
	Oid type = order->key->type.typid;

	if (type != TEXTOID && type != VARCHAROID)
		return false;
	for (uint32 i = 0; i < nrows; i++)
		if (bytes[i].length > sizeof(uint64))
			return false;
	return true;
}

static void
init_key(OrderKey *order, SortKey *key, VectorStore *store, int column)
{
	uint32 nrows = store->count;

	memset(order, 0, sizeof(*order));
	order->key = key;
	order->store = store;
	order->number = column;
	order->column = &store->columns[column];
	order->form = choose_form(key, order->column);
	order->has_words = order->form != ORDER_DATUMS;
	order->exact = order->has_words;
	if (order->form == ORDER_RANKS)
		init_ranks(order);
	if (order->form == ORDER_WIDES)
	{
		order->shift = find_shift(order, nrows);
		order->exact = order->shift == 0;
	}
	if (order->form == ORDER_BYTES)
		order->exact = are_short(order, nrows);
	if (order->form == ORDER_BYTES && !order->exact)
	{
		/* finding the range would cost more than it is worth */
		order->any = true;
		order->low = PG_INT64_MIN;
		order->high = PG_INT64_MAX;
	}
	else if (order->has_words)
		find_range(order, nrows);
}

/* ---- words of rows ------------------------------------------------------------------------------ */

/*
 * A key's place in the words: a row's number is its distance from the first value in the order,
 * less the bits cut off first, plus the base, less the bits cut off then.
 */
typedef struct WordPart
{
	int first_cut;
	uint64 base;
	uint64 null; /* the number of NULLs, before the second cut */
	int second_cut;
	int bits;
} WordPart;

static int
count_bits(uint64 value)
{
	return value == 0 ? 0 : pg_leftmost_one_pos64(value) + 1;
}

/* Finds room for a key in the words; without enough of it the key is no longer exact. */
static WordPart
place_key(OrderKey *order, int room)
{
	WordPart part = {0};
	uint64 most = order->any ? (uint64) order->high - (uint64) order->low : 0;

	if (order->column->nulls != NULL)
	{
		part.first_cut = most == PG_UINT64_MAX;
		part.base = order->key->nulls_first;
		most = (most >> part.first_cut) + 1;
		part.null = order->key->nulls_first ? 0 : most;
	}
	part.bits = count_bits(most);
	if (part.bits > room)
	{
		part.second_cut = part.bits - room;
		part.bits = room;
	}
	order->exact &= part.first_cut == 0 && part.second_cut == 0;
	return part;
}

/* Puts a key's numbers behind what is in the words. */
static void
add_words(RowOrder *rows, const OrderKey *order, WordPart part)
{
	const uint64 *nulls = order->column->nulls;
	bool descending = order->key->descending;
	int64 words[BLOCK_ROWS];

	for (uint32 first = 0; first < rows->nrows; first += BLOCK_ROWS)
	{
		uint32 n = Min(BLOCK_ROWS, rows->nrows - first);
		uint64 *into = rows->words + first;

		CHECK_FOR_INTERRUPTS();
		read_words(order, first, n, words);
		for (uint32 i = 0; i < n; i++)
		{
			uint64 number = descending ? (uint64) order->high - (uint64) words[i]
									   : (uint64) words[i] - (uint64) order->low;

			number = (number >> part.first_cut) + part.base;
			if (vector_bit(nulls, first + i))
				number = part.null;
			number >>= part.second_cut;
			into[i] = part.bits == WORD_BITS ? number : into[i] << part.bits | number;
		}
	}
}

/* Makes the words, of as many keys as there is room for. */
static void
make_words(RowOrder *rows)
{
	Size size = sizeof(uint64) * Max((Size) rows->nrows, 1);

	rows->words = MemoryContextAllocExtended(rows->context, size,
											 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	while (rows->first < rows->nkeys && rows->bits < WORD_BITS)
	{
		OrderKey *order = &rows->keys[rows->first];
		WordPart part;

		if (!order->has_words)
			break;
		part = place_key(order, WORD_BITS - rows->bits);
		add_words(rows, order, part);
		rows->bits += part.bits;
		if (!order->exact)
			break;
		rows->first++;
	}
}

/* ---- sorting words ------------------------------------------------------------------------------ */

/*
 * static Element *name(from, to, n, first, end): sorts by the bits from `first` to before `end` of
 * word_of(element), and returns where the result is: in one of the two arrays.  Elements with
 * equal bits stay in their order.
 */
#define DEFINE_SORT(name, Element, word_of)                                              \
	static Element *name(Element *from, Element *to, uint32 n, int first, int end)       \
	{                                                                                    \
		for (int bit = first; bit < end; bit += DIGIT_BITS)                              \
		{                                                                                \
			uint32 starts[DIGITS] = {0};                                                 \
			uint32 mask = bit + DIGIT_BITS > end ? (1U << (end - bit)) - 1 : DIGITS - 1; \
			uint32 start = 0;                                                            \
			Element *other = from;                                                       \
                                                                                         \
			CHECK_FOR_INTERRUPTS();                                                      \
			for (uint32 i = 0; i < n; i++)                                               \
				starts[(uint32) (word_of(from[i]) >> bit) & mask]++;                     \
			if (starts[(uint32) (word_of(from[0]) >> bit) & mask] == n)                  \
				continue;                                                                \
			for (uint32 i = 0; i <= mask; i++)                                           \
			{                                                                            \
				uint32 count = starts[i];                                                \
                                                                                         \
				starts[i] = start;                                                       \
				start += count;                                                          \
			}                                                                            \
			for (uint32 i = 0; i < n; i++)                                               \
				to[starts[(uint32) (word_of(from[i]) >> bit) & mask]++] = from[i];       \
			from = to;                                                                   \
			to = other;                                                                  \
		}                                                                                \
		return from;                                                                     \
	}

#define WORD_OF_WORD(word) (word)
#define WORD_OF_ITEM(item) ((item).word)

DEFINE_SORT(sort_words, uint64, WORD_OF_WORD)
DEFINE_SORT(sort_items, OrderItem, WORD_OF_ITEM)

static bool
are_in_order(const uint64 *words, uint32 n)
{
	for (uint32 i = 1; i < n; i++)
		if (words[i - 1] > words[i])
			return false;
	return true;
}

static void *
allocate(const RowOrder *rows, Size element)
{
	return MemoryContextAllocHuge(rows->context, element * rows->nrows);
}

/* Rows and words in order; the row's number fits into the word, below the keys. */
static void
sort_with_numbers(RowOrder *rows, int number_bits, uint32 *result)
{
	uint64 *words = rows->words;
	uint64 mask = (UINT64CONST(1) << number_bits) - 1;

	for (uint32 i = 0; i < rows->nrows; i++)
		words[i] = words[i] << number_bits | i;
	words = sort_words(words, allocate(rows, sizeof(uint64)), rows->nrows, number_bits,
					   number_bits + rows->bits);
	for (uint32 i = 0; i < rows->nrows; i++)
	{
		result[i] = (uint32) (words[i] & mask);
		words[i] >>= number_bits;
	}
	rows->words = words;
}

static void
sort_as_items(RowOrder *rows, uint32 *result)
{
	OrderItem *items = allocate(rows, sizeof(OrderItem));

	for (uint32 i = 0; i < rows->nrows; i++)
		items[i] = (OrderItem){.word = rows->words[i], .row = i};
	items = sort_items(items, allocate(rows, sizeof(OrderItem)), rows->nrows, 0, rows->bits);
	for (uint32 i = 0; i < rows->nrows; i++)
	{
		result[i] = items[i].row;
		rows->words[i] = items[i].word;
	}
}

/* Moves rows whose first key that is compared is NULL to their end of the array. */
static void
part_nulls(const RowOrder *rows, uint32 **start, uint32 *n)
{
	const OrderKey *order = &rows->keys[rows->first];
	uint32 *numbers = *start;
	uint32 nnulls = 0;
	uint32 *nulls;

	if (order->column->nulls == NULL)
		return;
	nulls = MemoryContextAllocHuge(rows->context, sizeof(uint32) * (Size) *n);
	for (uint32 i = 0; i < *n; i++)
	{
		if (vector_bit(order->column->nulls, numbers[i]))
			nulls[nnulls++] = numbers[i];
		else
			numbers[i - nnulls] = numbers[i];
	}
	*n -= nnulls;
	if (order->key->nulls_first)
	{
		memmove(numbers + nnulls, numbers, sizeof(uint32) * *n);
		*start += nnulls;
	}
	memcpy(order->key->nulls_first ? numbers : numbers + *n, nulls, sizeof(uint32) * nnulls);
	pfree(nulls);
}

/* Sorts rows by a first key that is a datum; the NULLs among them by the other keys. */
static void
sort_by_datums(RowOrder *rows, uint32 *numbers, uint32 n)
{
	const OrderKey *order = &rows->keys[rows->first];
	uint32 *present = numbers;
	uint32 npresent = n;
	DatumItem *items;

	part_nulls(rows, &present, &npresent);
	if (present > numbers)
		qsort_arg(numbers, present - numbers, sizeof(uint32), compare_rows, rows);
	else if (npresent < n)
		qsort_arg(numbers + npresent, n - npresent, sizeof(uint32), compare_rows, rows);
	items = MemoryContextAllocHuge(rows->context, sizeof(DatumItem) * Max((Size) npresent, 1));
	for (uint32 i = 0; i < npresent; i++)
		items[i] = (DatumItem){.value = order->datums[present[i]], .row = present[i]};
	qsort_arg(items, npresent, sizeof(DatumItem), compare_items, rows);
	for (uint32 i = 0; i < npresent; i++)
		present[i] = items[i].row;
	pfree(items);
}

/* Sorts rows whose words are equal by what is left. */
static void
sort_ties(RowOrder *rows, uint32 *result)
{
	uint32 end;

	for (int i = rows->first; i < rows->nkeys; i++)
		if (rows->keys[i].form == ORDER_DATUMS)
			make_datums(rows, &rows->keys[i]);
	for (uint32 start = 0; start < rows->nrows; start = end)
	{
		for (end = start + 1; end < rows->nrows && rows->words[end] == rows->words[start];)
			end++;
		if (end - start < 2)
			continue;
		if (rows->keys[rows->first].form == ORDER_DATUMS)
			sort_by_datums(rows, result + start, end - start);
		else
			qsort_arg(result + start, end - start, sizeof(uint32), compare_rows, rows);
	}
}

uint32 *
sort_order_rows(VectorStore *store, int nkeys, SortKey *keys, const int *columns)
{
	RowOrder rows = {.nrows = store->count, .nkeys = nkeys};
	uint32 *result = MemoryContextAllocHuge(CurrentMemoryContext,
											sizeof(uint32) * Max((Size) rows.nrows, 1));
	MemoryContext caller;
	int number_bits = count_bits(rows.nrows);

	rows.context = AllocSetContextCreate(CurrentMemoryContext, "columnar sort order",
										 ALLOCSET_DEFAULT_SIZES);
	caller = MemoryContextSwitchTo(rows.context);
	rows.keys = palloc(sizeof(OrderKey) * nkeys);
	for (int i = 0; i < nkeys; i++)
		init_key(&rows.keys[i], &keys[i], store, columns[i]);
	make_words(&rows);
	for (uint32 i = 0; i < rows.nrows; i++)
		result[i] = i;
	if (!are_in_order(rows.words, rows.nrows))
	{
		if (rows.bits + number_bits <= WORD_BITS)
			sort_with_numbers(&rows, number_bits, result);
		else
			sort_as_items(&rows, result);
	}
	if (rows.first < nkeys)
		sort_ties(&rows, result);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(rows.context);
	return result;
}
