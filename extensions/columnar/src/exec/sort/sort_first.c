/*
 * sort_first.c
 *		Which rows can be among the first of their partition, if no others are wanted.
 *
 * The keys of the first rows of each partition so far are kept: the last of them is the bar that a row has to pass, once
 * there are as many as are wanted.  Rows that pass are kept by the caller; some of them are behind the bar later, and
 * sort_first_select() finds these.
 *
 * Memory: what there is of partitions is bounded by half of work_mem; of partitions that are met afterwards all rows pass.
 * Values that are passed by reference are the batch's until its end, then copied to a context that is tidied up when most
 * of it is waste.
 */
#include "exec/sort/sort_internal.h"

#include "miscadmin.h"
#include "utils/memutils.h"

/* Waste that is not worth tidying up. */
#define WASTE_BYTES ((Size) 1024 * 1024)

#define GROUPS_MIN 64

/* The entry of the row at hand; those of group g are FIRST_ENTRY + g * rows and the following. */
#define CANDIDATE 0
#define FIRST_ENTRY 1

struct SortFirst
{
	MemoryContext context;
	MemoryContext values; /* what entries refer to */
	Size value_bytes;	  /* in it */
	Size live_bytes;	  /* of these when it was last tidied up */
	bool refers;
	SortBound bound;
	VectorGroups *groups; /* NULL: there is one */
	bool is_closed;
	Size limit;
	int nkeys; /* of the order within partitions */
	SortKey *keys;
	uint32 ngroups;
	uint32 capacity;
	uint32 *counts;		 /* entries, by group */
	uint32 *heaps;		 /* entries of group g from g * rows on, the last in order first */
	uint8 *fresh;		 /* by entry: is it of this batch? */
	uint32 *new_entries; /* of this batch */
	uint32 nnew;
	bool is_displaced; /* has an entry of this batch been given up for another one? */
	uint32 numbers[BLOCK_ROWS];
	uint16 passed[BLOCK_ROWS]; /* rows, and the places of their groups in `numbers` */
	uint16 places[BLOCK_ROWS];
	uint16 all[BLOCK_ROWS]; /* 0, 1, 2 ... */
};

/* ---- life ---------------------------------------------------------------------------------------- */

static void
reserve_groups(SortFirst *first, uint32 capacity)
{
	Size rows = first->bound.rows;
	Size entries = FIRST_ENTRY + capacity * rows;
	MemoryContext caller = MemoryContextSwitchTo(first->context);

	for (int i = 0; i < first->nkeys; i++)
		sort_key_reserve(&first->keys[i], first->context, (uint32) entries);
	first->counts = repalloc_huge(first->counts, capacity * sizeof(uint32));
	first->heaps = repalloc_huge(first->heaps, capacity * rows * sizeof(uint32));
	first->fresh = repalloc_huge(first->fresh, entries);
	memset(first->counts + first->capacity, 0, (capacity - first->capacity) * sizeof(uint32));
	memset(first->fresh + entries - (capacity - first->capacity) * rows, 0,
		   (capacity - first->capacity) * rows);
	first->capacity = capacity;
	MemoryContextSwitchTo(caller);
}

SortFirst *
sort_first_create(const SortBound *bound, int nkeys, const SortKeySource *keys, Size limit)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "columnar first rows",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	SortFirst *first = palloc0(sizeof(SortFirst));

	first->context = context;
	first->values = AllocSetContextCreate(context, "columnar first rows' values",
										  ALLOCSET_DEFAULT_SIZES);
	first->bound = *bound;
	first->limit = limit / 2;
	if (bound->partition > 0)
	{
		VectorKey *types = palloc(sizeof(VectorKey) * bound->partition);

		for (int i = 0; i < bound->partition; i++)
			types[i] = keys[i].value;
		first->groups = vector_groups_create(bound->partition, types);
	}
	first->nkeys = nkeys - bound->partition;
	first->keys = palloc0(sizeof(SortKey) * Max(first->nkeys, 1));
	for (int i = 0; i < first->nkeys; i++)
	{
		SortKey *key = &first->keys[i];

		sort_key_init(key, &keys[bound->partition + i]);
		first->refers |= key->form == SORT_BYTES || (key->form == SORT_DATUM && !key->type.byval);
	}
	for (uint32 i = 0; i < BLOCK_ROWS; i++)
		first->all[i] = (uint16) i;
	first->counts = palloc(sizeof(uint32));
	first->heaps = palloc(sizeof(uint32));
	first->fresh = palloc0(FIRST_ENTRY);
	first->new_entries = palloc(sizeof(uint32) * BLOCK_ROWS);
	reserve_groups(first, bound->partition > 0 ? GROUPS_MIN : 1);
	MemoryContextSwitchTo(caller);
	return first;
}

void
sort_first_reset(SortFirst *first)
{
	if (first->groups != NULL)
		vector_groups_reset(first->groups);
	first->is_closed = false;
	MemoryContextReset(first->values);
	first->value_bytes = first->live_bytes = 0;
	memset(first->counts, 0, first->capacity * sizeof(uint32));
	first->ngroups = 0;
}

/* ---- the entries of a group ------------------------------------------------------------------------ */

static int
compare_entries(SortFirst *first, uint32 a, uint32 b)
{
	for (int i = 0; i < first->nkeys; i++)
	{
		int order = sort_key_compare(&first->keys[i], a, b);

		if (order != 0)
			return order;
	}
	return 0;
}

/* The order of the row and an entry; all keys of the row are taken if it comes before. */
static int
compare_row(SortFirst *first, Vector *const *keys, uint32 row, uint32 entry)
{
	for (int i = 0; i < first->nkeys; i++)
	{
		int order;

		sort_key_take(&first->keys[i], CANDIDATE, keys[i], row);
		order = sort_key_compare(&first->keys[i], CANDIDATE, entry);
		if (order == 0)
			continue;
		while (order < 0 && ++i < first->nkeys)
			sort_key_take(&first->keys[i], CANDIDATE, keys[i], row);
		return order;
	}
	return 0;
}

/* Puts the entry in place of the last in order, which it comes before. */
static void
sift_down(SortFirst *first, uint32 *heap, uint32 count, uint32 entry)
{
	uint32 place = 0;

	for (;;)
	{
		uint32 child = 2 * place + 1;

		if (child >= count)
			break;
		if (child + 1 < count && compare_entries(first, heap[child + 1], heap[child]) > 0)
			child++;
		if (compare_entries(first, heap[child], entry) <= 0)
			break;
		heap[place] = heap[child];
		place = child;
	}
	heap[place] = entry;
}

static void
sift_up(SortFirst *first, uint32 *heap, uint32 place, uint32 entry)
{
	while (place > 0 && compare_entries(first, entry, heap[(place - 1) / 2]) > 0)
	{
		heap[place] = heap[(place - 1) / 2];
		place = (place - 1) / 2;
	}
	heap[place] = entry;
}

/* The row at hand becomes an entry. */
static void
put_entry(SortFirst *first, uint32 entry)
{
	for (int i = 0; i < first->nkeys; i++)
		sort_key_move(&first->keys[i], entry, CANDIDATE);
	if (first->fresh[entry])
		first->is_displaced = true;
	else
	{
		first->fresh[entry] = true;
		first->new_entries[first->nnew++] = entry;
	}
}

/* Can the row be among the first of its group? */
static bool
take_row(SortFirst *first, Vector *const *keys, uint32 row, uint32 group)
{
	uint32 rows = first->bound.rows;
	uint32 *heap = first->heaps + (Size) group * rows;
	uint32 count = first->counts[group];
	uint32 entry;

	if (count < rows)
	{
		entry = FIRST_ENTRY + group * rows + count;
		for (int i = 0; i < first->nkeys; i++)
			sort_key_take(&first->keys[i], CANDIDATE, keys[i], row);
		put_entry(first, entry);
		sift_up(first, heap, count, entry);
		first->counts[group]++;
	}
	else
	{
		int order = compare_row(first, keys, row, heap[0]);

		if (order >= 0)
			return order == 0 && first->bound.peers;
		entry = heap[0];
		put_entry(first, entry);
		sift_down(first, heap, rows, entry);
	}
	return true;
}

/* ---- values ------------------------------------------------------------------------------------------ */

static void
copy_entry(SortFirst *first, uint32 entry)
{
	for (int i = 0; i < first->nkeys; i++)
		first->value_bytes += sort_key_copy(&first->keys[i], entry);
}

/* Entries of this batch have values of their own from now on. */
static void
keep_values(SortFirst *first)
{
	MemoryContext old = first->values;
	MemoryContext caller = MemoryContextSwitchTo(old);

	for (uint32 i = 0; i < first->nnew; i++)
	{
		if (first->refers)
			copy_entry(first, first->new_entries[i]);
		first->fresh[first->new_entries[i]] = false;
	}
	first->nnew = 0;
	if (first->value_bytes > 2 * first->live_bytes + WASTE_BYTES)
	{
		first->values = AllocSetContextCreate(first->context, "columnar first rows' values",
											  ALLOCSET_DEFAULT_SIZES);
		MemoryContextSwitchTo(first->values);
		first->value_bytes = 0;
		for (uint32 group = 0; group < first->ngroups; group++)
		{
			for (uint32 i = 0; i < first->counts[group]; i++)
				copy_entry(first, FIRST_ENTRY + group * first->bound.rows + i);
		}
		first->live_bytes = first->value_bytes;
		MemoryContextDelete(old);
	}
	MemoryContextSwitchTo(caller);
}

/* ---- rows -------------------------------------------------------------------------------------------- */

/* The group of each of the rows. */
static void
assign_groups(SortFirst *first, Vector *const *partition, const uint16 *selection, uint32 nselected)
{
	if (first->groups == NULL)
	{
		memset(first->numbers, 0, sizeof(uint32) * nselected);
		first->ngroups = 1;
		return;
	}
	first->ngroups = vector_groups_assign(first->groups, partition, selection, nselected,
										  first->numbers);
	if (first->ngroups > first->capacity)
		reserve_groups(first, Max(2 * first->capacity, first->ngroups));
}

/* No memory for further partitions? */
static void
close_groups(SortFirst *first)
{
	Size entry = sizeof(int64) * 2 * first->nkeys + sizeof(uint32);

	if (first->groups == NULL || first->is_closed ||
		vector_groups_memory(first->groups) + first->value_bytes +
				(Size) first->capacity * first->bound.rows * entry <=
			first->limit)
		return;
	vector_groups_close(first->groups);
	first->is_closed = true;
}

/* Is the row, which passed, behind the bar by now? */
static bool
is_behind(SortFirst *first, Vector *const *keys, uint32 row, uint32 group)
{
	return group != VECTOR_NO_GROUP && first->counts[group] == first->bound.rows &&
		   compare_row(first, keys, row, first->heaps[(Size) group * first->bound.rows]) > 0;
}

uint32
sort_first_filter(SortFirst *first, Vector *const *keys, const uint16 *selection, uint32 nselected,
				  uint16 *into)
{
	Vector *const *order = keys + first->bound.partition;
	uint32 npassed = 0;
	uint32 n = 0;

	assign_groups(first, keys, selection, nselected);
	first->is_displaced = false;
	for (uint32 i = 0; i < nselected; i++)
	{
		uint32 group = first->numbers[i];

		if (group != VECTOR_NO_GROUP && !take_row(first, order, selection[i], group))
			continue;
		first->passed[npassed] = selection[i];
		first->places[npassed++] = (uint16) i;
	}
	for (uint32 i = 0; i < npassed; i++)
	{
		if (!first->is_displaced ||
			!is_behind(first, order, first->passed[i], first->numbers[first->places[i]]))
			into[n++] = first->passed[i];
	}
	keep_values(first);
	close_groups(first);
	return n;
}

uint32
sort_first_select(SortFirst *first, Vector *const *keys, uint32 nrows, uint16 *into)
{
	uint32 n = 0;

	assign_groups(first, keys, first->all, nrows);
	for (uint32 i = 0; i < nrows; i++)
	{
		if (!is_behind(first, keys + first->bound.partition, i, first->numbers[i]))
			into[n++] = (uint16) i;
	}
	return n;
}

uint64
sort_first_count(const SortFirst *first)
{
	return (uint64) first->ngroups * first->bound.rows;
}

const SortBound *
sort_first_bound(const SortFirst *first)
{
	return &first->bound;
}

Size
sort_first_memory(const SortFirst *first)
{
	return MemoryContextMemAllocated(first->context, true);
}
