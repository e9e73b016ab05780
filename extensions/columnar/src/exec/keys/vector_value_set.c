/*
 * vector_value_set.c
 *		Distinct values of a group key, numbered in order of appearance.
 *
 * A hash table of numbers with open addressing; values lie one after the other in an
 * arena, as datums: what a group shows is there without another copy.  A slot holds 32
 * bits of the hash, from which its position follows: a table that grows does not look
 * at the values.  It points to the value: the array of values by number is for who shows them.
 *
 * With many values each step of a look-up (slot, bytes) is a cache miss.  So a block of look-ups
 * goes through the steps together, and what the next step needs is prefetched.
 */
#include "exec/keys/vector_groups_internal.h"

#include "utils/datum.h"
#include "utils/memutils.h"

#include "store/value/byte_hash.h"

/* Look-ups that go through the steps together. */
#define LOOK_UP_ROWS 128

#define CACHE_LINE 64

#define SLOTS_MIN 512
#define ENTRIES_MIN 128

#define ARENA_BLOCK_MIN ((Size) 4096)
#define ARENA_BLOCK_DOUBLED ((Size) 256 * 1024)
#define ARENA_BLOCK_MAX ((Size) 8 * 1024 * 1024)

/* ---- memory -------------------------------------------------------------------------------- */

void
value_set_forget(ValueSet *set, MemoryContext context)
{
	set->closed = false;
	set->context = context;
	set->slots = NULL;
	set->nslots = 0;
	set->count = 0;
	set->capacity = 0;
	set->datums = NULL;
	set->free = NULL;
	set->free_bytes = 0;
	set->block_bytes = ARENA_BLOCK_MIN;
}

char *
value_set_allocate(ValueSet *set, Size size, Size align)
{
	Size skip = (align - (uintptr_t) set->free % align) % align;
	char *result;

	if (skip + size > set->free_bytes)
	{
		/* a large value has a block to itself */
		if (size > set->block_bytes / 8)
			return MemoryContextAllocHuge(set->context, size);
		set->free = group_allocate(set->context, set->block_bytes);
		set->free_bytes = set->block_bytes;
		/* from some size on by an eighth, so that little of all blocks together is unused */
		set->block_bytes += set->block_bytes < ARENA_BLOCK_DOUBLED ? set->block_bytes
																   : set->block_bytes / 8;
		set->block_bytes = Min(TYPEALIGN(ARENA_BLOCK_MIN, set->block_bytes), ARENA_BLOCK_MAX);
		skip = 0;
	}
	result = set->free + skip;
	set->free += skip + size;
	set->free_bytes -= skip + size;
	return result;
}

static void
grow_slots(ValueSet *set, uint32 nslots)
{
	ValueSlot *old = set->slots;
	uint32 nold = set->nslots;
	uint32 mask = nslots - 1;

	set->slots = group_allocate(set->context, sizeof(ValueSlot) * (Size) nslots);
	memset(set->slots, 0, sizeof(ValueSlot) * (Size) nslots);
	set->nslots = nslots;
	for (uint32 i = 0; i < nold; i++)
	{
		uint32 position = old[i].hash & mask;

		if (old[i].entry == 0)
			continue;
		while (set->slots[position].entry != 0)
			position = (position + 1) & mask;
		set->slots[position] = old[i];
	}
	if (old != NULL)
		pfree(old);
}

static inline bool
is_large(Size nslots)
{
	return sizeof(ValueSlot) * nslots > GROUP_CACHE_BYTES / 2;
}

/* May a table have so many values?  As in vector_group_table.c. */
static inline bool
has_room(uint64 nslots, uint64 count)
{
	return is_large(nslots) ? count * 8 <= nslots * 5 : count * 4 <= nslots;
}

/* Makes room for n more values. */
static void
reserve_values(ValueSet *set, uint32 n)
{
	uint64 count = (uint64) set->count + n;
	uint64 nslots = Max(set->nslots, SLOTS_MIN);

	while (!has_room(nslots, count))
		nslots *= 2;
	if (nslots > (UINT64CONST(1) << 31))
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("too many groups of rows")));
	if (nslots > set->nslots)
		grow_slots(set, (uint32) nslots);

	if (count > set->capacity)
	{
		uint32 capacity = Max(ENTRIES_MIN, set->capacity);

		while (capacity < count)
			capacity *= 2;
		if (set->datums == NULL)
			set->datums = MemoryContextAllocHuge(set->context, sizeof(Datum) * (Size) capacity);
		else
			set->datums = repalloc_huge(set->datums, sizeof(Datum) * (Size) capacity);
		set->capacity = capacity;
	}
}

/* Puts the slots of hashes into the cache, and then the first bytes of the values in them. */
static void
prefetch_values(const ValueSet *set, const uint32 *hashes, const uint32 *lengths, uint32 n)
{
	uint32 mask = set->nslots - 1;

	for (uint32 i = 0; i < n; i++)
		__builtin_prefetch(&set->slots[hashes[i] & mask]);
	if (set->type->byval)
		return;
	for (uint32 i = 0; i < n; i++)
	{
		ValueSlot slot = set->slots[hashes[i] & mask];
		const char *value = DatumGetPointer(slot.value);

		if (slot.entry == 0 || slot.hash != hashes[i])
			continue;
		__builtin_prefetch(value);
		if (lengths != NULL && lengths[i] > CACHE_LINE / 2)
			__builtin_prefetch(value + Min(lengths[i], CACHE_LINE));
	}
}

/* ---- bytes --------------------------------------------------------------------------------- */

uint64
group_hash_bytes(const char *bytes, uint32 length)
{
	return byte_hash(bytes, length);
}

static inline bool
are_equal_bytes(const char *a, const char *b, uint32 length)
{
	if (length >= 8)
	{
		uint32 last = length - 8;

		for (uint32 i = 0; i < last; i += 8)
		{
			if (byte_hash_word(a + i) != byte_hash_word(b + i))
				return false;
		}
		return byte_hash_word(a + last) == byte_hash_word(b + last);
	}
	if (length >= 4)
		return byte_hash_half(a) == byte_hash_half(b) &&
			   byte_hash_half(a + length - 4) == byte_hash_half(b + length - 4);
	for (uint32 i = 0; i < length; i++)
	{
		if (a[i] != b[i])
			return false;
	}
	return true;
}

/* Bytes of a value of the set that count. */
static inline const char *
get_significant(const ValueSet *set, Datum datum, uint32 *length)
{
	char *value = DatumGetPointer(datum);

	if (set->type->length == -1)
	{
		*length = value_set_significant(set, VARDATA(value), VARSIZE(value) - VARHDRSZ);
		return VARDATA(value);
	}
	*length = value_set_significant(set, value, (uint32) set->type->length);
	return value;
}

static Datum
add_bytes(ValueSet *set, const char *bytes, uint32 length)
{
	char *value;

	if (set->type->length == -1)
	{
		if ((Size) length + VARHDRSZ > MaxAllocSize)
			format_damaged("a value of %u bytes is longer than any can be", length);
		value = value_set_allocate(set, (Size) length + VARHDRSZ, ALIGNOF_INT);
		SET_VARSIZE(value, (Size) length + VARHDRSZ);
		memcpy(VARDATA(value), bytes, length);
	}
	else
	{
		if (length != (uint32) set->type->length)
			format_damaged("a value has %u bytes, but its type %d", length, set->type->length);
		value = value_set_allocate(set, length, ALIGNOF_INT);
		memcpy(value, bytes, length);
	}
	set->datums[set->count++] = PointerGetDatum(value);
	return PointerGetDatum(value);
}

/*
 * The number of a value with so many bytes that count.  Unless the set is closed, there is room
 * for one more.
 */
static inline int64
number_bytes(ValueSet *set, uint32 hash, const char *bytes, uint32 significant, uint32 length)
{
	uint32 mask = set->nslots - 1;

	for (uint32 position = hash & mask;; position = (position + 1) & mask)
	{
		ValueSlot *slot = &set->slots[position];

		if (slot->entry == 0)
		{
			if (set->closed)
				return VALUE_ABSENT;
			slot->value = add_bytes(set, bytes, length);
			slot->hash = hash;
			slot->entry = set->count;
			return slot->entry - 1;
		}
		if (slot->hash == hash)
		{
			uint32 other_length;
			const char *other = get_significant(set, slot->value, &other_length);

			if (other_length == significant && are_equal_bytes(other, bytes, significant))
				return slot->entry - 1;
		}
	}
}

void
value_set_number_bytes(ValueSet *set, const char *const *starts, const uint32 *lengths, uint32 n,
					   int64 *numbers)
{
	Assert(!set->by_functions);
	for (uint32 done = 0; done < n; done += LOOK_UP_ROWS)
	{
		uint32 nrows = Min(n - done, LOOK_UP_ROWS);
		uint32 hashes[LOOK_UP_ROWS];
		uint32 significant[LOOK_UP_ROWS];

		reserve_values(set, set->closed ? 0 : nrows);
		for (uint32 i = 0; i < nrows; i++)
		{
			const char *bytes = starts[done + i];
			uint64 hash;

			significant[i] = value_set_significant(set, bytes, lengths[done + i]);
			hash = byte_hash(bytes, significant[i]);
			hashes[i] = (uint32) (hash ^ hash >> 32);
		}
		if (is_large(set->nslots))
			prefetch_values(set, hashes, significant, nrows);
		for (uint32 i = 0; i < nrows; i++)
			numbers[done + i] = number_bytes(set, hashes[i], starts[done + i], significant[i],
											 lengths[done + i]);
	}
}

/* ---- datums -------------------------------------------------------------------------------- */

static uint32
hash_datum(ValueSet *set, Datum value)
{
	if (set->hash_is_extended)
	{
		uint64 hash = DatumGetUInt64(
			FunctionCall2Coll(&set->hash, set->collation, value, Int64GetDatum(0)));

		return (uint32) (group_mix(hash) >> 32);
	}
	return (
		uint32) (group_mix(DatumGetUInt32(FunctionCall1Coll(&set->hash, set->collation, value))) >>
				 32);
}

static Datum
add_datum(ValueSet *set, Datum value)
{
	if (!set->type->byval)
	{
		Size size = datumGetSize(value, false, set->type->length);
		char *copy = value_set_allocate(set, size, MAXIMUM_ALIGNOF);

		memcpy(copy, DatumGetPointer(value), size);
		value = PointerGetDatum(copy);
	}
	set->datums[set->count++] = value;
	return value;
}

static int64
number_datum(ValueSet *set, uint32 hash, Datum value)
{
	uint32 mask = set->nslots - 1;

	for (uint32 position = hash & mask;; position = (position + 1) & mask)
	{
		ValueSlot *slot = &set->slots[position];

		if (slot->entry == 0)
		{
			if (set->closed)
				return VALUE_ABSENT;
			slot->value = add_datum(set, value);
			slot->hash = hash;
			slot->entry = set->count;
			return slot->entry - 1;
		}
		if (slot->hash == hash &&
			DatumGetBool(FunctionCall2Coll(&set->equal, set->collation, slot->value, value)))
			return slot->entry - 1;
	}
}

void
value_set_number_datums(ValueSet *set, const Datum *datums, uint32 n, int64 *numbers)
{
	Assert(set->by_functions);
	for (uint32 done = 0; done < n; done += LOOK_UP_ROWS)
	{
		uint32 nrows = Min(n - done, LOOK_UP_ROWS);
		uint32 hashes[LOOK_UP_ROWS];

		reserve_values(set, set->closed ? 0 : nrows);
		for (uint32 i = 0; i < nrows; i++)
			hashes[i] = hash_datum(set, datums[done + i]);
		if (is_large(set->nslots))
			prefetch_values(set, hashes, NULL, nrows);
		for (uint32 i = 0; i < nrows; i++)
			numbers[done + i] = number_datum(set, hashes[i], datums[done + i]);
	}
}
