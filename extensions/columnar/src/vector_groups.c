/*
 * vector_groups.c
 *		From the values of GROUP BY to group numbers 0, 1, 2 ... in order of appearance.
 *
 * See vector_groups_internal.h for the steps.  The words of a row's keys become one code
 * of 64 bits, in one of three ways:
 *
 *		direct	The keys' ranges together have few bits.  Each key has some bits of
 *				the code: 0 for NULL, else word - base + 1.  The code is an index.
 *		packed	The same with up to 64 bits; the code is looked up in a hash table.
 *		hashed	Ranges have more bits than that, or a key is odd: the code is a hash of all
 *				words and tags.  What is found is compared with the words of the group.
 *
 * A word out of its key's range makes new ranges, with room to grow, and a new table from
 * the words of the groups; as the ranges at least double, this happens a few times.  Whether
 * an array takes less memory than the hash table is asked again when there are twice as
 * many groups.
 *
 * In front of all this stands an array for keys that come as dictionary codes: it leads
 * from the codes of a row to its group.  It is filled as combinations of codes are met, by the
 * long way, and lasts as long as the dictionaries do.
 *
 * Memory: what belongs to the groups lies in the context `data`, which a reset empties;
 * buffers of a batch beside it; garbage of a batch in `scratch`.
 */
#include "vector_groups_internal.h"

#include "port/pg_bitutils.h"
#include "utils/memutils.h"

/* An array may have so many entries without any groups; and with them, so many for each. */
#define DIRECT_BITS_MIN 16
#define DIRECT_BITS_MAX 30
#define DIRECT_ENTRIES_PER_GROUP 8

/* Combinations of dictionary codes for which there is an array. */
#define CODE_TABLE_ENTRIES 65536

/* an entry of which the group is being looked up */
#define ENTRY_PENDING PG_UINT32_MAX

typedef enum GroupLayout
{
	LAYOUT_NONE, /* no rows yet */
	LAYOUT_DIRECT,
	LAYOUT_PACKED,
	LAYOUT_HASHED
} GroupLayout;

/* From combinations of dictionary codes to groups. */
typedef struct CodeTable
{
	uint64 *serials; /* of each key's dictionary; 0: the table is empty */
	uint32 *nentries;
	uint32 *groups; /* group + 1; 0: not met yet */
	uint32 capacity;
} CodeTable;

struct VectorGroups
{
	MemoryContext context;
	MemoryContext data;
	MemoryContext scratch;
	uint32 count;
	bool closed;
	GroupLayout layout;
	uint32 review; /* number of groups at which a packed layout is thought over */
	GroupTable table;
	CodeTable code_table;
	uint64 codes[GROUP_ROWS];
	uint16 fresh[GROUP_ROWS];
	int nkeys;
	GroupKey keys[FLEXIBLE_ARRAY_MEMBER];
};

/* ---- life ---------------------------------------------------------------------------------- */

bool
vector_groups_can_key(Oid type, Oid collation)
{
	return group_key_kind(type, collation) != GROUP_KEY_NONE;
}

/* The groups' memory is empty. */
static void
begin_groups(VectorGroups *groups)
{
	groups->count = 0;
	groups->closed = false;
	groups->layout = LAYOUT_NONE;
	groups->review = 0;
	group_table_forget(&groups->table, groups->data);
	for (int i = 0; i < groups->nkeys; i++)
		group_key_forget(&groups->keys[i], groups->data);
	groups->code_table.serials[0] = 0;
}

VectorGroups *
vector_groups_create(int nkeys, const VectorKey *keys)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "vector groups",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	VectorGroups *groups = palloc0(offsetof(VectorGroups, keys) +
								   sizeof(GroupKey) * (Size) Max(nkeys, 1));

	Assert(nkeys >= 1);
	groups->context = context;
	groups->data = AllocSetContextCreate(context, "vector groups' data", ALLOCSET_DEFAULT_SIZES);
	groups->scratch = AllocSetContextCreate(context, "vector groups' scratch",
											ALLOCSET_DEFAULT_SIZES);
	groups->nkeys = nkeys;
	for (int i = 0; i < nkeys; i++)
		group_key_init(&groups->keys[i], &keys[i]);
	groups->code_table.serials = palloc0(sizeof(uint64) * (Size) nkeys);
	groups->code_table.nentries = palloc0(sizeof(uint32) * (Size) nkeys);
	begin_groups(groups);
	MemoryContextSwitchTo(old);
	return groups;
}

void
vector_groups_reset(VectorGroups *groups)
{
	MemoryContextReset(groups->data);
	MemoryContextReset(groups->scratch);
	begin_groups(groups);
}

void
vector_groups_close(VectorGroups *groups)
{
	groups->closed = true;
	for (int i = 0; i < groups->nkeys; i++)
		groups->keys[i].values.closed = true;
}

uint32
vector_groups_count(const VectorGroups *groups)
{
	return groups->count;
}

Datum
vector_groups_value(const VectorGroups *groups, int key, uint32 group, bool *isnull)
{
	Assert(key < groups->nkeys && group < groups->count);
	/* what is shown may be made now, which changes nothing for the caller */
	return group_key_value((GroupKey *) &groups->keys[key], group, isnull);
}

Size
vector_groups_memory(const VectorGroups *groups)
{
	return MemoryContextMemAllocated(groups->context, true);
}

/* ---- codes --------------------------------------------------------------------------------- */

/*
 * Adds a key's part to codes (`first`: begins them); false if a word is out of range.
 * Differences are modulo 2^64, which makes them unique even where words overflow.
 */
GROUP_PIECE bool
pack_piece(const int64 *restrict words, uint32 n, uint64 base, uint64 limit, int shift, bool first,
		   uint64 *restrict codes)
{
	uint64 outside = 0;

	for (uint32 i = 0; i < n; i++)
	{
		uint64 difference = (uint64) words[i] - base;

		outside |= difference > limit;
		codes[i] = (first ? 0 : codes[i]) | (difference + 1) << shift;
	}
	return outside == 0;
}

VECTOR_KERNEL static bool
pack_words(const int64 *words, uint32 n, uint64 base, uint64 limit, int shift, bool first,
		   uint64 *codes)
{
	bool inside = true;

	if (first)
		GROUP_IN_PIECES(
			n, inside &= pack_piece(words + at, piece, base, limit, shift, true, codes + at));
	else
		GROUP_IN_PIECES(
			n, inside &= pack_piece(words + at, piece, base, limit, shift, false, codes + at));
	return inside;
}

/* The same with NULLs. */
VECTOR_KERNEL static bool
pack_nullable_words(const int64 *restrict words, const uint8 *restrict tags, uint32 n, uint64 base,
					uint64 limit, int shift, bool first, uint64 *restrict codes)
{
	bool outside = false;

	for (uint32 i = 0; i < n; i++)
	{
		uint64 difference = (uint64) words[i] - base;
		uint64 part = (difference + 1) << shift;

		outside |= difference > limit && tags[i] != TAG_NULL;
		part = tags[i] == TAG_NULL ? 0 : part;
		codes[i] = first ? part : codes[i] | part;
	}
	return !outside;
}

GROUP_PIECE void
hash_piece(const int64 *restrict words, uint32 n, bool first, uint64 *restrict codes)
{
	for (uint32 i = 0; i < n; i++)
		codes[i] = group_mix((first ? 0 : codes[i]) ^ (uint64) words[i]);
}

VECTOR_KERNEL static void
hash_words(const int64 *words, uint32 n, bool first, uint64 *codes)
{
	if (first)
		GROUP_IN_PIECES(n, hash_piece(words + at, piece, true, codes + at));
	else
		GROUP_IN_PIECES(n, hash_piece(words + at, piece, false, codes + at));
}

VECTOR_KERNEL static void
hash_tags(const uint8 *restrict tags, uint32 n, uint64 *restrict codes)
{
	for (uint32 i = 0; i < n; i++)
		codes[i] ^= tags[i] * UINT64CONST(0xA24BAED4963EE407);
}

/* The codes of n rows or groups under the layout; false if there is none for some. */
static bool
make_codes(const VectorGroups *groups, const WordColumn *columns, uint32 n, uint64 *codes)
{
	for (int i = 0; i < groups->nkeys; i++)
	{
		const GroupKey *key = &groups->keys[i];
		const WordColumn *column = &columns[i];
		bool inside = true;

		if (groups->layout == LAYOUT_HASHED)
		{
			hash_words(column->words, n, i == 0, codes);
			if (column->tags != NULL)
				hash_tags(column->tags, n, codes);
		}
		else if (column->tags != NULL)
			inside = pack_nullable_words(column->words, column->tags, n, key->base, key->limit,
										 key->shift, i == 0, codes);
		else
			inside = pack_words(column->words, n, key->base, key->limit, key->shift, i == 0, codes);
		if (!inside)
			return false;
	}
	return true;
}

/* ---- layouts ------------------------------------------------------------------------------- */

/* Widens the range by the words of a column. */
VECTOR_KERNEL static void
widen_range(const int64 *restrict words, const uint8 *restrict tags, uint32 n, int64 *low,
			int64 *high)
{
	int64 smallest = *low;
	int64 largest = *high;

	if (tags == NULL)
	{
		for (uint32 i = 0; i < n; i++)
		{
			smallest = Min(smallest, words[i]);
			largest = Max(largest, words[i]);
		}
	}
	else
	{
		for (uint32 i = 0; i < n; i++)
		{
			smallest = tags[i] == TAG_NULL ? smallest : Min(smallest, words[i]);
			largest = tags[i] == TAG_NULL ? largest : Max(largest, words[i]);
		}
	}
	*low = smallest;
	*high = largest;
}

/*
 * The range of a key's words: of all groups and of the n rows loaded.  No words: 0 to 0.
 * Returns the bits that packing needs; 65 if it cannot be done.
 */
static int
measure_range(const VectorGroups *groups, const GroupKey *key, uint32 n, int64 *low, int64 *high)
{
	uint64 difference;

	*low = PG_INT64_MAX;
	*high = PG_INT64_MIN;
	if (key->has_odd || key->any_odd)
		return 65;
	widen_range(key->group_words, key->group_tags, groups->count, low, high);
	widen_range(key->rows.words, key->rows.tags, n, low, high);
	if (*low > *high)
		*low = *high = 0;

	/* 0 is for NULL */
	difference = (uint64) *high - (uint64) *low;
	return difference == PG_UINT64_MAX ? 65 : pg_leftmost_one_pos64(difference + 1) + 1;
}

/* Up to so many bits an array is good. */
static int
allow_direct_bits(const VectorGroups *groups)
{
	uint64 entries = (uint64) groups->count * DIRECT_ENTRIES_PER_GROUP;
	int bits = entries == 0 ? 0 : pg_leftmost_one_pos64(entries);

	return Min(Max(bits, DIRECT_BITS_MIN), DIRECT_BITS_MAX);
}

/* Gives the key so many bits, with room on the side where the range grew. */
static void
place_range(const VectorGroups *groups, GroupKey *key, int bits, int shift, int64 low, int64 high)
{
	uint64 room;

	key->limit = (PG_UINT64_MAX >> (64 - bits)) - 1;
	room = key->limit - ((uint64) high - (uint64) low);
	if (groups->layout == LAYOUT_PACKED)
		key->base = (uint64) low - room / 2;
	else if (groups->count > 0 && low < (int64) key->base)
		key->base = (uint64) low - room;
	else
		key->base = (uint64) low;
	key->bits = bits;
	key->shift = shift;
}

/* Makes the table of the layout from the groups' words. */
static void
fill_table(VectorGroups *groups, int bits)
{
	WordColumn *columns = palloc(sizeof(WordColumn) * (Size) groups->nkeys);
	uint64 codes[GROUP_ROWS];

	if (groups->layout == LAYOUT_DIRECT)
		group_table_make_direct(&groups->table, bits);
	else
		group_table_make_hashed(&groups->table, groups->count);

	for (uint32 first = 0; first < groups->count; first += GROUP_ROWS)
	{
		uint32 n = Min(groups->count - first, GROUP_ROWS);

		for (int i = 0; i < groups->nkeys; i++)
		{
			GroupKey *key = &groups->keys[i];

			columns[i].words = key->group_words + first;
			columns[i].tags = key->group_tags == NULL ? NULL : key->group_tags + first;
		}
		if (!make_codes(groups, columns, n, codes))
			elog(ERROR, "a group is out of the range of its keys");
		group_table_add(&groups->table, codes, n, first);
	}
	pfree(columns);
}

/*
 * Chooses the layout for all groups and the n rows loaded, and makes its table.  With
 * `only_direct` it does so only if that is an array.
 */
static void
choose_layout(VectorGroups *groups, uint32 n, bool only_direct)
{
	int64 *lows = palloc(sizeof(int64) * (Size) groups->nkeys);
	int64 *highs = palloc(sizeof(int64) * (Size) groups->nkeys);
	int *bits = palloc(sizeof(int) * (Size) groups->nkeys);
	int direct_bits = allow_direct_bits(groups);
	int needed = 0;
	int total = 0;

	for (int i = 0; i < groups->nkeys; i++)
	{
		bits[i] = measure_range(groups, &groups->keys[i], n, &lows[i], &highs[i]);
		needed = Min(needed + bits[i], 65);
	}
	if (only_direct && needed > direct_bits)
		return;

	groups->layout = needed <= direct_bits ? LAYOUT_DIRECT
					 : needed <= 64		   ? LAYOUT_PACKED
										   : LAYOUT_HASHED;
	for (int i = 0; i < groups->nkeys && groups->layout != LAYOUT_HASHED; i++)
	{
		/* room for growth: all that packed codes have, and twice the range in an array */
		int spare = groups->layout == LAYOUT_PACKED ? (64 - needed) / groups->nkeys : 1;

		if (groups->layout == LAYOUT_DIRECT && needed + 1 > direct_bits)
			spare = 0;
		else if (groups->layout == LAYOUT_DIRECT)
			needed++;
		place_range(groups, &groups->keys[i], bits[i] + spare, total, lows[i], highs[i]);
		total += bits[i] + spare;
	}
	fill_table(groups, total);
	pfree(bits);
	pfree(highs);
	pfree(lows);
}

/* ---- look-up ------------------------------------------------------------------------------- */

VECTOR_KERNEL static bool
are_words_of_groups(const int64 *restrict words, const int64 *restrict group_words,
					const uint32 *restrict numbers, uint32 n)
{
	uint64 different = 0;

	for (uint32 i = 0; i < n; i++)
		different |= (uint64) words[i] ^ (uint64) group_words[numbers[i]];
	return different == 0;
}

static inline uint8
get_tag(const uint8 *tags, uint32 i)
{
	return tags == NULL ? TAG_VALUE : tags[i];
}

static bool
are_tags_of_groups(const uint8 *tags, const uint8 *group_tags, const uint32 *numbers, uint32 n)
{
	uint8 different = 0;

	if (tags == NULL && group_tags == NULL)
		return true;
	for (uint32 i = 0; i < n; i++)
		different |= get_tag(tags, i) ^ get_tag(group_tags, numbers[i]);
	return different == 0;
}

/* Do the rows loaded have the keys of the groups they were given? */
static bool
are_right_groups(const VectorGroups *groups, const uint32 *numbers, uint32 n)
{
	for (int i = 0; i < groups->nkeys; i++)
	{
		const GroupKey *key = &groups->keys[i];

		if (!are_words_of_groups(key->rows.words, key->group_words, numbers, n) ||
			!are_tags_of_groups(key->rows.tags, key->group_tags, numbers, n))
			return false;
	}
	return true;
}

/* Does row i have the keys of the group? */
static bool
is_right_group(const VectorGroups *groups, uint32 i, uint32 group)
{
	for (int k = 0; k < groups->nkeys; k++)
	{
		const GroupKey *key = &groups->keys[k];

		if (key->rows.words[i] != key->group_words[group] ||
			get_tag(key->rows.tags, i) != get_tag(key->group_tags, group))
			return false;
	}
	return true;
}

/* Makes groups of the rows which[0 .. n - 1] of those loaded. */
static void
append_groups(VectorGroups *groups, Vector *const *vectors, const uint16 *rows, const uint16 *which,
			  uint32 n)
{
	for (int i = 0; i < groups->nkeys; i++)
		group_key_append(&groups->keys[i], vectors[i], rows, which, n, groups->count);
	groups->count += n;
}

/* Rows whose hash another group has, too: look at all groups of the hash. */
static void
correct_numbers(VectorGroups *groups, Vector *const *vectors, const uint16 *rows, uint32 n,
				uint32 *numbers)
{
	for (uint32 i = 0; i < n; i++)
	{
		uint32 position = PG_UINT32_MAX;
		uint16 which = (uint16) i;
		uint32 group;
		bool found;

		if (is_right_group(groups, i, numbers[i]))
			continue;
		do
			found = group_table_next(&groups->table, groups->codes[i], &position, &group);
		while (found && !is_right_group(groups, i, group));
		if (!found)
		{
			group = groups->count;
			group_table_add(&groups->table, &groups->codes[i], 1, group);
			append_groups(groups, vectors, rows, &which, 1);
		}
		numbers[i] = group;
	}
}

/* The codes of the rows loaded, under a layout that fits them. */
static void
make_row_codes(VectorGroups *groups, uint32 n)
{
	WordColumn *columns = palloc(sizeof(WordColumn) * (Size) groups->nkeys);
	bool has_odd = false;

	for (int i = 0; i < groups->nkeys; i++)
	{
		columns[i] = groups->keys[i].rows;
		has_odd |= groups->keys[i].has_odd;
	}
	if (groups->layout == LAYOUT_NONE || (has_odd && groups->layout != LAYOUT_HASHED))
		choose_layout(groups, n, false);
	else if (groups->layout == LAYOUT_PACKED && groups->count >= groups->review)
	{
		choose_layout(groups, n, true);
		groups->review = Max(2 * groups->count, 1 << (DIRECT_BITS_MIN - 3));
	}
	if (!make_codes(groups, columns, n, groups->codes))
	{
		choose_layout(groups, n, false);
		if (!make_codes(groups, columns, n, groups->codes))
			elog(ERROR, "values of group keys are out of range");
	}
	pfree(columns);
}

/* Gives values that are not in their closed set a number that no group has, but the next value would. */
static void
number_absent(GroupKey *key, uint32 n)
{
	if (key->kind < GROUP_KEY_NUMERIC || (key->kind == GROUP_KEY_NUMERIC && !key->has_odd))
		return;
	Assert(key->rows.words == key->row_words);
	for (uint32 i = 0; i < n; i++)
	{
		bool numbered = key->kind != GROUP_KEY_NUMERIC || key->row_tags[i] == TAG_ODD;

		if (numbered && key->row_words[i] == VALUE_ABSENT)
			key->row_words[i] = key->values.count;
	}
}

/* The groups of the rows loaded, of closed groups. */
static void
find_groups(VectorGroups *groups, uint32 n, uint32 *numbers)
{
	group_table_find(&groups->table, groups->codes, n, numbers);
	if (groups->layout != LAYOUT_HASHED)
		return;
	for (uint32 i = 0; i < n; i++)
	{
		uint32 position = PG_UINT32_MAX;
		bool found = numbers[i] != VECTOR_NO_GROUP;

		if (!found || is_right_group(groups, i, numbers[i]))
			continue;
		do
			found = group_table_next(&groups->table, groups->codes[i], &position, &numbers[i]);
		while (found && !is_right_group(groups, i, numbers[i]));
		if (!found)
			numbers[i] = VECTOR_NO_GROUP;
	}
}

/* The groups of any rows, the long way. */
static void
assign_rows(VectorGroups *groups, Vector *const *vectors, const uint16 *rows, uint32 n,
			uint32 *numbers)
{
	MemoryContext old = MemoryContextSwitchTo(groups->scratch);
	uint32 nfresh;

	for (int i = 0; i < groups->nkeys; i++)
		group_key_load(&groups->keys[i], vectors[i], rows, n);
	if (groups->closed)
	{
		for (int i = 0; i < groups->nkeys; i++)
			number_absent(&groups->keys[i], n);
		make_row_codes(groups, n);
		find_groups(groups, n, numbers);
	}
	else
	{
		make_row_codes(groups, n);
		nfresh = group_table_assign(&groups->table, groups->codes, n, groups->count, numbers,
									groups->fresh);
		if (nfresh > 0)
			append_groups(groups, vectors, rows, groups->fresh, nfresh);
		if (groups->layout == LAYOUT_HASHED && !are_right_groups(groups, numbers, n))
			correct_numbers(groups, vectors, rows, n, numbers);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(groups->scratch);
}

/* ---- dictionary codes ---------------------------------------------------------------------- */

/* Is the array for these dictionaries?  It is made so if it can be. */
static bool
has_code_table(VectorGroups *groups, Vector *const *vectors)
{
	CodeTable *table = &groups->code_table;
	bool same = table->serials[0] != 0;
	uint64 nentries = 1;

	for (int i = 0; i < groups->nkeys; i++)
	{
		const Dictionary *dictionary = vectors[i]->dictionary;

		if (vectors[i]->form != VECTOR_CODES)
			return false;
		nentries *= (uint64) dictionary->nentries + 1;
		if (nentries > CODE_TABLE_ENTRIES)
			return false;
		same &= table->serials[i] == dictionary->serial &&
				table->nentries[i] == dictionary->nentries;
	}
	if (same)
		return true;

	if (nentries > table->capacity)
	{
		if (table->groups != NULL)
			pfree(table->groups);
		table->capacity = 0;
		table->groups = MemoryContextAlloc(groups->context, sizeof(uint32) * nentries);
		table->capacity = (uint32) nentries;
	}
	memset(table->groups, 0, sizeof(uint32) * nentries);
	for (int i = 0; i < groups->nkeys; i++)
	{
		table->serials[i] = vectors[i]->dictionary->serial;
		table->nentries[i] = vectors[i]->dictionary->nentries;
	}
	return true;
}

/* indexes = indexes * factor + code; a NULL has the code after the last. */
GROUP_PIECE void
combine_piece(const uint32 *restrict codes, const uint16 *restrict rows, uint32 n, uint32 factor,
			  uint32 *restrict indexes)
{
	for (uint32 i = 0; i < n; i++)
		indexes[i] = indexes[i] * factor + codes[rows[i]];
}

VECTOR_KERNEL static void
combine_codes(const uint32 *codes, const uint16 *rows, uint32 n, uint32 factor, uint32 *indexes)
{
	GROUP_IN_PIECES(n, combine_piece(codes, rows + at, piece, factor, indexes + at));
}

static void
combine_nullable_codes(const Vector *vector, const uint16 *rows, uint32 n, uint32 factor,
					   uint32 *indexes)
{
	for (uint32 i = 0; i < n; i++)
	{
		uint32 code = vector_is_null(vector, rows[i]) ? factor - 1 : vector->codes[rows[i]];

		indexes[i] = indexes[i] * factor + code;
	}
}

GROUP_PIECE uint32
look_up_piece(const uint32 *restrict table, const uint32 *restrict indexes, uint32 n,
			  uint32 *restrict numbers)
{
	uint32 nmissing = 0;

	for (uint32 i = 0; i < n; i++)
	{
		uint32 entry = table[indexes[i]];

		numbers[i] = entry - 1;
		nmissing += entry == 0;
	}
	return nmissing;
}

/* Returns how many combinations have not been met yet; their numbers are wrong. */
VECTOR_KERNEL static uint32
look_up_codes(const uint32 *table, const uint32 *indexes, uint32 n, uint32 *numbers)
{
	uint32 nmissing = 0;

	GROUP_IN_PIECES(n, nmissing += look_up_piece(table, indexes + at, piece, numbers + at));
	return nmissing;
}

/* Finds the groups of the combinations that have not been met yet. */
static void
complete_code_table(VectorGroups *groups, Vector *const *vectors, const uint16 *rows, uint32 n,
					const uint32 *indexes)
{
	uint32 *table = groups->code_table.groups;
	uint16 missing[GROUP_ROWS] = {0};
	uint32 entries[GROUP_ROWS];
	uint32 numbers[GROUP_ROWS];
	uint32 nmissing = 0;

	for (uint32 i = 0; i < n; i++)
	{
		if (table[indexes[i]] == 0)
		{
			table[indexes[i]] = ENTRY_PENDING;
			entries[nmissing] = indexes[i];
			missing[nmissing++] = rows[i];
		}
	}
	assign_rows(groups, vectors, missing, nmissing, numbers);
	for (uint32 i = 0; i < nmissing; i++)
		table[entries[i]] = numbers[i] + 1;
}

static void
assign_codes(VectorGroups *groups, Vector *const *vectors, const uint16 *rows, uint32 n,
			 uint32 *numbers)
{
	uint32 indexes[GROUP_ROWS];

	memset(indexes, 0, sizeof(uint32) * n);
	for (int i = 0; i < groups->nkeys; i++)
	{
		uint32 factor = groups->code_table.nentries[i] + 1;

		if (vectors[i]->nulls != NULL)
			combine_nullable_codes(vectors[i], rows, n, factor, indexes);
		else
			combine_codes(vectors[i]->codes, rows, n, factor, indexes);
	}
	if (look_up_codes(groups->code_table.groups, indexes, n, numbers) > 0)
	{
		complete_code_table(groups, vectors, rows, n, indexes);
		look_up_codes(groups->code_table.groups, indexes, n, numbers);
	}
}

uint32
vector_groups_assign(VectorGroups *groups, Vector *const *keys, const uint16 *selection,
					 uint32 nselected, uint32 *numbers)
{
	Assert(nselected <= GROUP_ROWS);
	if (nselected == 0)
		return groups->count;
	if (has_code_table(groups, keys))
		assign_codes(groups, keys, selection, nselected, numbers);
	else
		assign_rows(groups, keys, selection, nselected, numbers);
	return groups->count;
}
