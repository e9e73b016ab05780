/*
 * vector_join_list.c
 *		The codes that a join index has, one after the other, with their rows: see vector_join_index.h.
 *
 * Where the index is an array that stays in the cache, the codes are looked up and listed in one loop without
 * branches.  Most codes of a ranked index are not there, as a filter has left a part of the rows: only for
 * those that are does anything but the bit matter.
 */
#include "exec/keys/vector_groups_internal.h"
#include "exec/join/vector_join_index.h"

/* So many rows are looked at together, a bit for each. */
#define MATCH_STEP 64

/* Up to so many rows of a step are listed bit by bit; more of them by a look at each row. */
#define MATCH_FEW 16

/* Bits of the rows that have a partner among the MATCH_STEP from here on. */
static pg_attribute_always_inline uint64
matched_bits(const uint32 *restrict found)
{
	uint8 matches[MATCH_STEP];
	uint64 bits = 0;

	for (int i = 0; i < MATCH_STEP; i++)
		matches[i] = found[i] != VECTOR_NO_ROW;
	for (int i = 0; i < MATCH_STEP; i += 8)
	{
		uint64 eight;

		/* the product has the lowest bits of the eight bytes side by side at its top */
		memcpy(&eight, matches + i, sizeof(eight));
		bits |= (eight * UINT64CONST(0x0102040810204080)) >> 56 << i;
	}
	return bits;
}

VECTOR_KERNEL uint32
join_list_found(const uint32 *found, const uint16 *selection, uint32 n, uint16 *positions,
				uint32 *rows)
{
	uint32 nlisted = 0;
	uint32 i = 0;

	while (i < n)
	{
		uint32 end = Min(i + MATCH_STEP, n);
		uint64 bits = end == i + MATCH_STEP ? matched_bits(found + i) : PG_UINT64_MAX;

		if (__builtin_popcountll(bits) <= MATCH_FEW)
		{
			for (; bits != 0; bits &= bits - 1)
			{
				uint32 row = i + (uint32) __builtin_ctzll(bits);

				positions[nlisted] = selection[row];
				rows[nlisted++] = found[row];
			}
			i = end;
		}
		for (; i < end; i++)
		{
			positions[nlisted] = selection[i];
			rows[nlisted] = found[i];
			nlisted += found[i] != VECTOR_NO_ROW;
		}
	}
	return nlisted;
}

VECTOR_KERNEL static uint32
list_direct(const uint32 *restrict entries, const uint64 *restrict codes, const uint16 *selection,
			uint32 n, uint16 *positions, uint32 *restrict rows)
{
	uint32 nlisted = 0;

	for (uint32 i = 0; i < n; i++)
	{
		uint32 entry = entries[codes[i]];

		positions[nlisted] = selection[i];
		rows[nlisted] = entry - 1;
		nlisted += entry != 0;
	}
	return nlisted;
}

VECTOR_KERNEL static uint32
list_ranked(const JoinIndex *index, const uint64 *restrict codes, const uint16 *selection, uint32 n,
			uint16 *positions, uint32 *restrict rows)
{
	const JoinRank *restrict ranks = index->ranks;
	uint32 nlisted = 0;

	for (uint32 i = 0; i < n; i++)
	{
		uint32 code = (uint32) codes[i];

		positions[nlisted] = selection[i];
		rows[nlisted] = code;
		nlisted += ranks[code / RANK_CODES].bits >> code % RANK_CODES & 1;
	}
	for (uint32 i = 0; i < nlisted; i++)
		rows[i] = index->entries[join_rank_entry(ranks, rows[i])] - 1;
	return nlisted;
}

uint32
join_index_list(const JoinIndex *index, const uint64 *codes, const uint16 *selection, uint32 n,
				uint16 *positions, uint32 *rows)
{
	uint32 found[GROUP_ROWS];

	if (index->plan.bytes <= GROUP_CACHE_BYTES && index->plan.form == JOIN_INDEX_DIRECT)
		return list_direct(index->entries, codes, selection, n, positions, rows);
	if (index->plan.bytes <= GROUP_CACHE_BYTES && index->plan.form == JOIN_INDEX_RANKED)
		return list_ranked(index, codes, selection, n, positions, rows);
	if (join_index_find(index, codes, n, found) == 0)
		return 0;
	return join_list_found(found, selection, n, positions, rows);
}
