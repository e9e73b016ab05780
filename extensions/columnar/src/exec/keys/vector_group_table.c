/*
 * vector_group_table.c
 *		From codes of 64 bits to groups: an array, or a hash table with open addressing.
 *
 * Slots hold the whole code, so that a table can grow by itself, and their positions
 * are the upper bits of the mixed code: growing moves slots in ascending order, which
 * is cheap however large the table is.
 */
#include "exec/keys/vector_groups_internal.h"

#include <sys/mman.h>

#include "utils/memutils.h"

/* Look-ups between two checks of whether the table must grow. */
#define LOOK_UP_ROWS 128

#define LARGE_PAGE_BYTES ((Size) 2 * 1024 * 1024)
#define LARGE_PAGES_MIN (2 * LARGE_PAGE_BYTES)

#define SLOT_BITS_MIN 9
#define SLOT_BITS_MAX 32

void
group_table_forget(GroupTable *table, MemoryContext context)
{
	table->context = context;
	table->direct = NULL;
	table->slots = NULL;
	table->bits = 0;
	table->nused = 0;
}

static void
free_table(GroupTable *table)
{
	if (table->direct != NULL)
		pfree(table->direct);
	if (table->slots != NULL)
		pfree(table->slots);
	group_table_forget(table, table->context);
}

void *
group_allocate(MemoryContext context, Size size)
{
	char *memory = MemoryContextAllocHuge(context, size);

#ifdef MADV_HUGEPAGE
	if (size >= LARGE_PAGES_MIN)
	{
		char *start = (char *) TYPEALIGN(LARGE_PAGE_BYTES, memory);
		char *end = (char *) TYPEALIGN_DOWN(LARGE_PAGE_BYTES, memory + size);

		/* advice alone: no matter if it fails */
		(void) madvise(start, end - start, MADV_HUGEPAGE);
	}
#endif
	return memory;
}

static void *
make_zeroes(GroupTable *table, Size size)
{
	return memset(group_allocate(table->context, size), 0, size);
}

void
group_table_make_direct(GroupTable *table, int bits)
{
	free_table(table);
	table->direct = make_zeroes(table, sizeof(uint32) << bits);
	table->bits = bits;
}

/* ---- the hash table ------------------------------------------------------------------------ */

/*
 * May a table have so many entries?  It becomes fuller when it is large: probes of one that
 * the cache holds cost more than its memory does.
 */
static inline bool
has_room(int bits, uint64 count)
{
	uint64 nslots = UINT64CONST(1) << bits;

	return sizeof(GroupSlot) * nslots <= GROUP_CACHE_BYTES ? count * 4 <= nslots
														   : count * 8 <= nslots * 5;
}

static inline uint32
find_position(const GroupTable *table, uint64 code)
{
	return (uint32) (group_mix(code) >> (64 - table->bits));
}

static inline uint32
get_mask(const GroupTable *table)
{
	return (uint32) ((UINT64CONST(1) << table->bits) - 1);
}

/* Puts the group into a free slot. */
static inline void
put_slot(GroupTable *table, uint64 code, uint32 entry)
{
	uint32 mask = get_mask(table);
	uint32 position = find_position(table, code);

	while (table->slots[position].entry != 0)
		position = (position + 1) & mask;
	table->slots[position].code = code;
	table->slots[position].entry = entry;
}

/* Makes room for n more. */
static void
reserve_slots(GroupTable *table, uint32 n)
{
	uint64 count = (uint64) table->nused + n;
	GroupSlot *old = table->slots;
	Size nold = old == NULL ? 0 : (Size) 1 << table->bits;
	int bits = Max(table->bits, SLOT_BITS_MIN);

	if (old != NULL && has_room(bits, count))
		return;
	while (!has_room(bits, count))
		bits++;
	if (bits > SLOT_BITS_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("too many groups of rows")));

	table->slots = make_zeroes(table, sizeof(GroupSlot) << bits);
	table->bits = bits;
	for (Size i = 0; i < nold; i++)
	{
		if (old[i].entry != 0)
			put_slot(table, old[i].code, old[i].entry);
	}
	if (old != NULL)
		pfree(old);
}

void
group_table_make_hashed(GroupTable *table, uint32 count)
{
	free_table(table);
	reserve_slots(table, count);
}

GROUP_PIECE void
find_piece(const uint64 *restrict codes, uint32 n, int bits, uint32 *restrict positions)
{
	for (uint32 i = 0; i < n; i++)
		positions[i] = (uint32) (group_mix(codes[i]) >> (64 - bits));
}

VECTOR_KERNEL static void
find_positions(const uint64 *codes, uint32 n, int bits, uint32 *positions)
{
	GROUP_IN_PIECES(n, find_piece(codes + at, piece, bits, positions + at));
}

/*
 * Looks at the first slot of each code, without branches that depend on what is there: most
 * codes are found, but which ones are not cannot be predicted.  Those go to misses[].
 */
static uint32
look_up_first_slots(const GroupSlot *restrict slots, const uint64 *restrict codes,
					const uint32 *restrict positions, uint32 n, uint32 *restrict numbers,
					uint32 *restrict misses)
{
	uint32 nmisses = 0;

	for (uint32 i = 0; i < n; i++)
	{
		const GroupSlot *slot = &slots[positions[i]];

		numbers[i] = slot->entry - 1;
		misses[nmisses] = i;
		nmisses += (slot->code != codes[i]) | (slot->entry == 0);
	}
	return nmisses;
}

/* A few look-ups, for which there is room if all are new. */
static uint32
assign_hashed(GroupTable *table, const uint64 *codes, uint32 n, uint32 first, uint32 *numbers,
			  uint32 *restrict fresh)
{
	GroupSlot *slots = table->slots;
	uint32 mask = get_mask(table);
	uint32 nfresh = 0;
	uint32 nmisses;
	uint32 positions[LOOK_UP_ROWS];
	uint32 misses[LOOK_UP_ROWS];

	find_positions(codes, n, table->bits, positions);
	if (sizeof(GroupSlot) << table->bits > GROUP_CACHE_BYTES)
	{
		for (uint32 i = 0; i < n; i++)
			__builtin_prefetch(&slots[positions[i]]);
	}
	nmisses = look_up_first_slots(slots, codes, positions, n, numbers, misses);
	for (uint32 m = 0; m < nmisses; m++)
	{
		uint32 i = misses[m];
		uint64 code = codes[i];
		uint32 position = positions[i];

		while (slots[position].entry != 0 && slots[position].code != code)
			position = (position + 1) & mask;
		if (slots[position].entry == 0)
		{
			fresh[nfresh++] = i;
			slots[position].code = code;
			slots[position].entry = first + nfresh;
		}
		numbers[i] = slots[position].entry - 1;
	}
	table->nused += nfresh;
	return nfresh;
}

static void
find_hashed(const GroupTable *table, const uint64 *codes, uint32 n, uint32 *numbers)
{
	const GroupSlot *slots = table->slots;
	uint32 mask = get_mask(table);
	uint32 positions[LOOK_UP_ROWS];

	find_positions(codes, n, table->bits, positions);
	for (uint32 i = 0; i < n; i++)
		__builtin_prefetch(&slots[positions[i]]);
	for (uint32 i = 0; i < n; i++)
	{
		uint32 position = positions[i];

		while (slots[position].entry != 0 && slots[position].code != codes[i])
			position = (position + 1) & mask;
		numbers[i] = slots[position].entry - 1;
	}
}

bool
group_table_next(const GroupTable *table, uint64 code, uint32 *position, uint32 *group)
{
	uint32 mask = get_mask(table);
	uint32 at = *position == PG_UINT32_MAX ? find_position(table, code) : (*position + 1) & mask;

	for (; table->slots[at].entry != 0; at = (at + 1) & mask)
	{
		if (table->slots[at].code == code)
		{
			*position = at;
			*group = table->slots[at].entry - 1;
			return true;
		}
	}
	return false;
}

/* ---- the array ----------------------------------------------------------------------------- */

GROUP_PIECE uint32
look_up_piece(const uint32 *restrict direct, const uint64 *restrict codes, uint32 n,
			  uint32 *restrict numbers)
{
	uint32 nmissing = 0;

	for (uint32 i = 0; i < n; i++)
	{
		uint32 entry = direct[codes[i]];

		numbers[i] = entry - 1;
		nmissing += entry == 0;
	}
	return nmissing;
}

/* Returns how many codes have no group; their numbers are wrong. */
VECTOR_KERNEL static uint32
look_up_direct(const uint32 *direct, const uint64 *codes, uint32 n, uint32 *numbers)
{
	uint32 nmissing = 0;

	GROUP_IN_PIECES(n, nmissing += look_up_piece(direct, codes + at, piece, numbers + at));
	return nmissing;
}

static uint32
assign_direct(GroupTable *table, const uint64 *codes, uint32 n, uint32 first, uint32 *numbers,
			  uint16 *fresh)
{
	uint32 nfresh = 0;

	if (look_up_direct(table->direct, codes, n, numbers) == 0)
		return 0;
	for (uint32 i = 0; i < n; i++)
	{
		uint32 *entry = &table->direct[codes[i]];

		if (*entry == 0)
		{
			fresh[nfresh++] = (uint16) i;
			*entry = first + nfresh;
		}
		numbers[i] = *entry - 1;
	}
	return nfresh;
}

/* ---- both ---------------------------------------------------------------------------------- */

uint32
group_table_assign(GroupTable *table, const uint64 *codes, uint32 n, uint32 first, uint32 *numbers,
				   uint16 *fresh)
{
	uint32 nfresh = 0;

	if (table->direct != NULL)
		return assign_direct(table, codes, n, first, numbers, fresh);

	for (uint32 done = 0; done < n; done += LOOK_UP_ROWS)
	{
		uint32 nrows = Min(n - done, LOOK_UP_ROWS);
		uint32 found[LOOK_UP_ROWS];
		uint32 nfound;

		reserve_slots(table, nrows);
		nfound = assign_hashed(table, codes + done, nrows, first + nfresh, numbers + done, found);
		for (uint32 i = 0; i < nfound; i++)
			fresh[nfresh++] = (uint16) (done + found[i]);
	}
	return nfresh;
}

void
group_table_find(const GroupTable *table, const uint64 *codes, uint32 n, uint32 *numbers)
{
	if (table->direct != NULL)
	{
		look_up_direct(table->direct, codes, n, numbers);
		return;
	}
	for (uint32 done = 0; done < n; done += LOOK_UP_ROWS)
		find_hashed(table, codes + done, Min(n - done, LOOK_UP_ROWS), numbers + done);
}

void
group_table_add(GroupTable *table, const uint64 *codes, uint32 n, uint32 first)
{
	if (table->direct != NULL)
	{
		for (uint32 i = 0; i < n; i++)
			table->direct[codes[i]] = first + i + 1;
		return;
	}
	reserve_slots(table, n);
	for (uint32 i = 0; i < n; i++)
		put_slot(table, codes[i], first + i + 1);
	table->nused += n;
}
