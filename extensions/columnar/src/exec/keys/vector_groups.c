/*
 * vector_groups.c
 *		From the values of GROUP BY to group numbers 0, 1, 2 ... in order of appearance.
 *
 * See vector_groups_internal.h for the steps, vector_group_layout.c for how the words of a row's
 * keys become one code.
 *
 * In front of that stands an array for keys that come as dictionary codes: it leads
 * from the codes of a row to its group.  It is filled as combinations of codes are met, by the
 * long way, and lasts as long as the dictionaries do.
 *
 * Memory: what belongs to the groups lies in the context `data`, which a reset empties;
 * buffers of a batch beside it; garbage of a batch in `scratch`.
 */
#include "exec/keys/vector_groups_internal.h"

#include "port/pg_bitutils.h"
#include "utils/memutils.h"

/* Combinations of dictionary codes for which there is an array. */
#define CODE_TABLE_ENTRIES 65536

/* an entry of which the group is being looked up */
#define ENTRY_PENDING PG_UINT32_MAX

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
	for (int i = 0; i < groups->nall; i++)
		group_key_forget(&groups->keys[i], groups->data);
	groups->code_table.serials[0] = 0;
}

bool
vector_groups_are_alike(Oid type, Oid collation)
{
	return group_key_is_alike(type, collation);
}

/* Puts the keys that others determine behind these. */
static void
order_keys(VectorGroups *groups, int nkeys, const VectorKey *keys)
{
	groups->order = palloc(sizeof(int) * (Size) nkeys);
	groups->vectors = palloc(sizeof(Vector *) * (Size) nkeys);
	for (int i = 0; i < nkeys; i++)
		if (!keys[i].determined)
			groups->order[groups->nkeys++] = i;
	Assert(groups->nkeys > 0);
	groups->nall = groups->nkeys;
	for (int i = 0; i < nkeys; i++)
		if (keys[i].determined)
			groups->order[groups->nall++] = i;
	for (int i = 0; i < nkeys; i++)
		group_key_init(&groups->keys[i], &keys[groups->order[i]]);
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
	order_keys(groups, nkeys, keys);
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
	int at = 0;

	Assert(key < groups->nall && group < groups->count);
	while (groups->order[at] != key)
		at++;
	return group_key_value(&groups->keys[at], group, isnull);
}

Size
vector_groups_memory(const VectorGroups *groups)
{
	return MemoryContextMemAllocated(groups->context, true);
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

/* The keys that need not be looked at before: their values are loaded for new groups only. */
static void
append_determined(VectorGroups *groups, Vector *const *vectors, const uint16 *rows,
				  const uint16 *which, uint32 n)
{
	uint16 fresh[GROUP_ROWS];
	uint16 positions[GROUP_ROWS];

	for (uint32 i = 0; i < n; i++)
	{
		fresh[i] = rows[which[i]];
		positions[i] = (uint16) i;
	}
	for (int i = groups->nkeys; i < groups->nall; i++)
	{
		group_key_load(&groups->keys[i], vectors[i], fresh, n);
		group_key_append(&groups->keys[i], vectors[i], fresh, positions, n, groups->count);
	}
}

/* Makes groups of the rows which[0 .. n - 1] of those loaded. */
static void
append_groups(VectorGroups *groups, Vector *const *vectors, const uint16 *rows, const uint16 *which,
			  uint32 n)
{
	for (int i = 0; i < groups->nkeys; i++)
		group_key_append(&groups->keys[i], vectors[i], rows, which, n, groups->count);
	if (groups->nall > groups->nkeys)
		append_determined(groups, vectors, rows, which, n);
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
		group_layout_make_codes(groups, n);
		find_groups(groups, n, numbers);
	}
	else
	{
		group_layout_make_codes(groups, n);
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
	Vector **vectors = groups->vectors;

	Assert(nselected <= GROUP_ROWS);
	if (nselected == 0)
		return groups->count;
	for (int i = 0; i < groups->nall; i++)
		vectors[i] = keys[groups->order[i]];
	if (has_code_table(groups, vectors))
		assign_codes(groups, vectors, selection, nselected, numbers);
	else
		assign_rows(groups, vectors, selection, nselected, numbers);
	return groups->count;
}
