/*
 * scan_keys.c
 *		The key filters of a ColumnarScan: which are asked, and in which order.
 *
 * They are asked after the conditions that are evaluated by batch, among which those of row security are,
 * and before other columns are decoded.  Those that have left the fewest rows so far come first.
 */
#include "exec/scan/scan_keys.h"

#include "utils/memutils.h"

void
scan_keys_add(AskedKeys *keys, AttrNumber column, KeyFilter *filter, const KeyRate *next)
{
	if (keys->nkeys == keys->capacity)
	{
		int capacity = Max(2 * keys->capacity, 4);

		keys->keys = keys->keys == NULL ? palloc(sizeof(AskedKey) * (Size) capacity)
										: repalloc(keys->keys, sizeof(AskedKey) * (Size) capacity);
		keys->capacity = capacity;
	}
	keys->keys[keys->nkeys++] = (AskedKey){.column = column, .filter = filter, .next = next};
}

void
scan_keys_forget(AskedKeys *keys)
{
	keys->nkeys = 0;
}

/* Does a filter leave fewer rows than another? */
static bool
leaves_fewer(const KeyRate *rate, const KeyRate *other)
{
	return (double) rate->passed * (double) other->asked <
		   (double) other->passed * (double) rate->asked;
}

/* Moves filters that leave fewer rows to the front, each by one place at most. */
static void
order_keys(AskedKeys *keys)
{
	for (int i = 1; i < keys->nkeys; i++)
	{
		AskedKey key = keys->keys[i];

		if (!leaves_fewer(&key.filter->rate, &keys->keys[i - 1].filter->rate))
			continue;
		keys->keys[i] = keys->keys[i - 1];
		keys->keys[i - 1] = key;
	}
}

uint32
scan_keys_apply(AskedKeys *keys, VectorBatch *batch, MemoryContext scratch)
{
	uint32 before = batch->nselected;

	for (int i = 0; i < keys->nkeys && batch->nselected > 0; i++)
	{
		const AskedKey *key = &keys->keys[i];
		KeyFilter *filter = key->filter;
		Vector values;
		MemoryContext caller;

		if (!key_filter_is_worth(filter, key->next))
			continue;
		batch->get_column(batch, key->column, &values);
		filter->rate.asked += batch->nselected;
		caller = MemoryContextSwitchTo(scratch);
		batch->nselected = filter->narrow(filter->owner, &values, batch->selection,
										  batch->nselected);
		MemoryContextSwitchTo(caller);
		filter->rate.passed += batch->nselected;
	}
	order_keys(keys);
	return before - batch->nselected;
}
