/*
 * count_once.c
 *		Counts of distinct values that several workers have sent.
 *
 * Each worker sends a group and value once, with the number of its rows there.  Rows come merged, so that what several
 * workers have sent of one value comes in a row.
 */
#include "postgres.h"

#include "nodes/pg_list.h"
#include "utils/datum.h"
#include "utils/memutils.h"

#include "execute/count_once.h"

struct CountOnce
{
	TupleDesc desc;
	SortSupport keys;
	int key_count;
	const List *columns;
	Datum *values; /* the last row's key */
	bool *nulls;
	bool *counted; /* per column: has a row with this key counted? */
	bool started;
	MemoryContext context; /* of values */
};

CountOnce *
count_once_create(TupleDesc desc, SortSupport keys, int key_count, const List *columns)
{
	CountOnce *once = palloc0(sizeof(CountOnce));

	once->desc = desc;
	once->keys = keys;
	once->key_count = key_count;
	once->columns = columns;
	once->values = palloc0(sizeof(Datum) * key_count);
	once->nulls = palloc0(sizeof(bool) * key_count);
	once->counted = palloc0(sizeof(bool) * list_length(columns));
	once->context = AllocSetContextCreate(CurrentMemoryContext, "strata count once",
										  ALLOCSET_SMALL_SIZES);
	return once;
}

static bool
is_same_key(CountOnce *once, TupleTableSlot *slot)
{
	if (!once->started || once->key_count == 0)
		return false;
	/* the last key changes most often */
	for (int i = once->key_count - 1; i >= 0; i--)
	{
		int column = once->keys[i].ssup_attno - 1;

		if (ApplySortComparator(once->values[i], once->nulls[i], slot->tts_values[column],
								slot->tts_isnull[column], &once->keys[i]) != 0)
			return false;
	}
	return true;
}

static void
remember_key(CountOnce *once, TupleTableSlot *slot)
{
	MemoryContext previous = MemoryContextSwitchTo(once->context);

	MemoryContextReset(once->context);
	for (int i = 0; i < once->key_count; i++)
	{
		int column = once->keys[i].ssup_attno - 1;
		Form_pg_attribute attribute = TupleDescAttr(once->desc, column);

		once->nulls[i] = slot->tts_isnull[column];
		if (!once->nulls[i])
			once->values[i] = datumCopy(slot->tts_values[column], attribute->attbyval,
										attribute->attlen);
	}
	once->started = true;
	MemoryContextSwitchTo(previous);
}

void
count_once_apply(CountOnce *once, TupleTableSlot *slot)
{
	bool same = is_same_key(once, slot);
	int i = 0;
	ListCell *lc;

	if (!same)
		remember_key(once, slot);
	foreach(lc, once->columns)
	{
		int column = lfirst_int(lc) - 1;
		bool counts = !slot->tts_isnull[column] && DatumGetInt64(slot->tts_values[column]) > 0 &&
					  !(same && once->counted[i]);

		slot->tts_values[column] = Int64GetDatum(counts ? 1 : 0);
		slot->tts_isnull[column] = false;
		once->counted[i] = counts || (same && once->counted[i]);
		i++;
	}
}
