/*
 * vector_group_layout.c
 *		From the words of a row's keys to one code of 64 bits, in one of three ways.
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
 */
#include "exec/keys/vector_groups_internal.h"

#include "port/pg_bitutils.h"
#include "utils/memutils.h"

/* An array may have so many entries without any groups; and with them, so many for each. */
#define DIRECT_BITS_MIN 16
#define DIRECT_BITS_MAX 30
#define DIRECT_ENTRIES_PER_GROUP 8

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

VECTOR_KERNEL void
group_widen_range(const int64 *restrict words, const uint8 *restrict skipped, uint32 n, int64 *low,
				  int64 *high)
{
	int64 smallest = *low;
	int64 largest = *high;

	if (skipped == NULL)
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
			smallest = skipped[i] ? smallest : Min(smallest, words[i]);
			largest = skipped[i] ? largest : Max(largest, words[i]);
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
	/* no word is odd here: of the tags, NULL's alone is not 0 */
	group_widen_range(key->group_words, key->group_tags, groups->count, low, high);
	group_widen_range(key->rows.words, key->rows.tags, n, low, high);
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

void
group_layout_make_codes(VectorGroups *groups, uint32 n)
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
