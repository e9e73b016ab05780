/*
 * partner_keys.c
 *		The values that a Gather's other side of a join has, for the workers (plan/partner_keys.h).
 *
 * Values are sorted and each is sent once, where that is possible for their type; values that are equal but not identical
 * are kept apart, since the join's equality is another one, maybe.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/array.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/tuplesort.h"
#include "parser/parse_oper.h"

#include "compat.h"
#include "execute/partner_keys.h"
#include "values/row_format.h"

/* More are not sent, nor are more bytes of them. */
#define MOST_KEYS 100000
#define MOST_BYTES (16 * 1024 * 1024)

/* Values on their way into the array. */
typedef struct KeyBuilder
{
	Oid type;
	int16 length;
	bool by_value;
	MemoryContext context; /* of the array */
	MemoryContext one;	   /* of what is made for one value */
	ArrayBuildState *array;
	int count;
	Size bytes;
	Datum last; /* the value that came before, a copy */
} KeyBuilder;

/* False if there are too many.  In the context of one value. */
static bool
add_key_here(KeyBuilder *keys, Datum value)
{
	if (keys->count > 0 && datum_image_eq(keys->last, value, keys->by_value, keys->length))
		return true;
	if (keys->count == MOST_KEYS || keys->bytes > MOST_BYTES)
		return false;
	keys->array = accumArrayResult(keys->array, value, false, keys->type, keys->context);
	keys->last = keys->array->dvalues[keys->array->nelems - 1];
	keys->bytes += datumGetSize(keys->last, keys->by_value, keys->length);
	keys->count++;
	return true;
}

static bool
add_key(KeyBuilder *keys, Datum value)
{
	MemoryContext old = MemoryContextSwitchTo(keys->one);
	bool added = add_key_here(keys, value);

	MemoryContextSwitchTo(old);
	MemoryContextReset(keys->one);
	return added;
}

/* The child's values in order; NULL if their type has none. */
static Tuplesortstate *
begin_sort(const KeyBuilder *keys, Oid collation)
{
	Oid operator;

	get_sort_group_operators(keys->type, false, false, false, &operator, NULL, NULL, NULL);
	if (!OidIsValid(operator))
		return NULL;
	return tuplesort_begin_datum(keys->type, operator, collation, false, work_mem, NULL,
								 TUPLESORT_NONE);
}

static bool
read_values(PlanState *child, KeyBuilder *keys, Tuplesortstate *sort)
{
	for (;;)
	{
		TupleTableSlot *slot = ExecProcNode(child);
		Datum value;
		bool isnull;

		CHECK_FOR_INTERRUPTS();
		if (TupIsNull(slot))
			return true;
		value = slot_getattr(slot, 1, &isnull);
		if (isnull)
			continue;
		if (sort != NULL)
			tuplesort_putdatum(sort, value, false);
		else if (!add_key(keys, value))
			return false;
	}
}

static bool
read_sorted(KeyBuilder *keys, Tuplesortstate *sort)
{
	Datum value;
	bool isnull;

	tuplesort_performsort(sort);
	for (;;)
	{
		MemoryContext old = MemoryContextSwitchTo(keys->one);
		bool found = compat_tuplesort_getdatum(sort, &value, &isnull);

		MemoryContextSwitchTo(old);
		CHECK_FOR_INTERRUPTS();
		if (!found)
			return true;
		if (!add_key(keys, value))
			return false;
	}
}

PartnerKeyList *
partner_keys_read(GatherScanState *state)
{
	PartnerKeyList *result = palloc0(sizeof(PartnerKeyList));
	Form_pg_attribute column = TupleDescAttr(state->child->ps_ResultTupleDesc, 0);
	KeyBuilder keys = {.type = column->atttypid, .context = CurrentMemoryContext};
	Tuplesortstate *sort;
	StringInfoData literal;
	bool complete;

	get_typlenbyval(keys.type, &keys.length, &keys.by_value);
	sort = begin_sort(&keys, column->attcollation);
	keys.one = AllocSetContextCreate(keys.context, "strata partner key", ALLOCSET_SMALL_SIZES);
	complete = read_values(state->child, &keys, sort);
	if (sort != NULL)
	{
		complete = read_sorted(&keys, sort);
		tuplesort_end(sort);
	}
	MemoryContextDelete(keys.one);
	result->count = complete ? keys.count : -1;
	if (complete && keys.count > 0)
	{
		initStringInfo(&literal);
		row_format_append_literal(&literal, get_array_type(keys.type),
								  makeArrayResult(keys.array, keys.context), false);
		result->literal = literal.data;
	}
	return result;
}
