/*
 * sort_key.c
 *		The values of a sort key, and their order: see sort_key.h.
 */
#include "exec/collection/sort_key.h"

#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/typcache.h"

#include "exec/collection/vector_store_internal.h"
#include "store/chunk/zone_map.h"

/* Is the order that of the type's default btree operator class, or its reverse? */
static bool
is_default_order(const SortKey *key, Oid sort_operator)
{
	TypeCacheEntry *entry = lookup_type_cache(key->type.typid, TYPECACHE_BTREE_OPFAMILY);
	Oid family;
	Oid input_type;
	CompatStrategy strategy;

	return get_ordering_op_properties(sort_operator, &family, &input_type, &strategy) &&
		   family == entry->btree_opf && input_type == entry->btree_opintype;
}

static SortForm
choose_form(const SortKey *key)
{
	if (!key->is_default)
		return SORT_DATUM;
	if (key->type.zone == ZONE_INT || key->type.zone == ZONE_FLOAT)
		return SORT_WORD;
	if (key->type.zone == ZONE_BYTES && key->type.bytes_are_ordered)
		return SORT_BYTES;
	return SORT_DATUM;
}

SortKeySource *
sort_key_sources(const List *expressions, const List *operators, const List *nulls_first)
{
	SortKeySource *sources = palloc0(sizeof(SortKeySource) * Max(list_length(expressions), 1));
	ListCell *cell;

	foreach(cell, expressions)
	{
		int i = foreach_current_index(cell);

		sources[i].value = vector_key_of(lfirst(cell));
		sources[i].sort_operator = list_nth_oid(operators, i);
		sources[i].nulls_first = list_nth_int(nulls_first, i);
	}
	return sources;
}

void
sort_key_init(SortKey *key, const SortKeySource *source)
{
	memset(key, 0, sizeof(*key));
	vector_key_type(&source->value, &key->type);
	key->support.ssup_cxt = CurrentMemoryContext;
	key->support.ssup_collation = source->value.collation;
	key->support.ssup_nulls_first = source->nulls_first;
	PrepareSortSupportFromOrderingOp(source->sort_operator, &key->support);
	key->descending = key->support.ssup_reverse;
	key->nulls_first = source->nulls_first;
	key->is_default = is_default_order(key, source->sort_operator);
	key->form = choose_form(key);
}

static void *
grow(MemoryContext context, void *array, Size element, uint32 capacity)
{
	if (array == NULL)
		return MemoryContextAllocHuge(context, element * capacity);
	return repalloc_huge(array, element * capacity);
}

void
sort_key_reserve(SortKey *key, MemoryContext context, uint32 capacity)
{
	key->nulls = grow(context, key->nulls, sizeof(bool), capacity);
	key->words = grow(context, key->words, sizeof(int64), capacity);
	if (key->form == SORT_BYTES)
		key->bytes = grow(context, key->bytes, sizeof(SortBytes), capacity);
	else if (key->form == SORT_DATUM)
		key->datums = grow(context, key->datums, sizeof(Datum), capacity);
}

static int64
take_word(const SortKey *key, const Vector *vector, uint32 row)
{
	if (vector->form == VECTOR_INT)
		return vector->ints[row];
	if (vector->form == VECTOR_FLOAT)
		return sort_float_word(vector->floats[row]);
	if (key->type.form != FORM_FLOAT)
		return column_type_to_int(&key->type, vector->datums[row]);
	return sort_float_word(key->type.length == sizeof(float4)
							   ? (double) DatumGetFloat4(vector->datums[row])
							   : DatumGetFloat8(vector->datums[row]));
}

void
sort_key_take(SortKey *key, uint32 entry, const Vector *vector, uint32 row)
{
	int64 word = 0;

	key->nulls[entry] = vector_is_null(vector, row);
	if (key->nulls[entry])
	{
		key->words[entry] = 0;
		return;
	}
	if (key->form == SORT_WORD)
		word = take_word(key, vector, row);
	else if (key->form == SORT_BYTES)
	{
		SortBytes *bytes = &key->bytes[entry];

		bytes->start = store_bytes_of(vector, row, &bytes->length);
		bytes->length = zone_map_trim(&key->type, bytes->start, bytes->length);
		word = sort_bytes_word(bytes->start, bytes->length);
	}
	else
	{
		bool isnull;

		key->datums[entry] = vector_datum(vector, row, &isnull);
	}
	key->words[entry] = key->descending ? ~word : word;
}

Size
sort_key_copy(SortKey *key, uint32 entry)
{
	if (key->nulls[entry])
		return 0;
	if (key->form == SORT_BYTES)
	{
		SortBytes *bytes = &key->bytes[entry];
		char *copy = MemoryContextAllocHuge(CurrentMemoryContext, Max(bytes->length, 1));

		memcpy(copy, bytes->start, bytes->length);
		bytes->start = copy;
		return bytes->length;
	}
	if (key->form == SORT_DATUM && !key->type.byval)
	{
		Datum value = key->datums[entry];

		if (key->type.length == -1)
			value = PointerGetDatum(PG_DETOAST_DATUM_PACKED(value));
		if (value == key->datums[entry])
			value = datumCopy(value, false, key->type.length);
		key->datums[entry] = value;
		return datumGetSize(value, false, key->type.length);
	}
	return 0;
}

void
sort_key_move(SortKey *key, uint32 to, uint32 from)
{
	key->nulls[to] = key->nulls[from];
	key->words[to] = key->words[from];
	if (key->form == SORT_BYTES)
		key->bytes[to] = key->bytes[from];
	else if (key->form == SORT_DATUM)
		key->datums[to] = key->datums[from];
}

/* The order of bytes whose words are equal. */
static int
compare_bytes(const SortKey *key, uint32 a, uint32 b)
{
	const SortBytes *left = &key->bytes[a];
	const SortBytes *right = &key->bytes[b];
	int order = sort_bytes_compare(left->start, left->length, right->start, right->length);

	return key->descending ? (order < 0) - (order > 0) : order;
}

int
sort_key_compare(SortKey *key, uint32 a, uint32 b)
{
	if (key->nulls[a] || key->nulls[b])
	{
		if (key->nulls[a] == key->nulls[b])
			return 0;
		return key->nulls[a] == key->nulls_first ? -1 : 1;
	}
	if (key->form == SORT_DATUM)
		return ApplySortComparator(key->datums[a], false, key->datums[b], false, &key->support);
	if (key->words[a] != key->words[b])
		return key->words[a] < key->words[b] ? -1 : 1;
	return key->form == SORT_BYTES ? compare_bytes(key, a, b) : 0;
}

/* As core's EXPLAIN does. */
char *
sort_key_options(const SortKeySource *source)
{
	TypeCacheEntry *type = lookup_type_cache(source->value.type,
											 TYPECACHE_LT_OPR | TYPECACHE_GT_OPR);
	bool reverse = false;
	StringInfoData text;

	initStringInfo(&text);
	if (OidIsValid(source->value.collation) &&
		source->value.collation != get_typcollation(source->value.type))
		appendStringInfo(&text, " COLLATE %s",
						 quote_identifier(get_collation_name(source->value.collation)));
	if (source->sort_operator == type->gt_opr)
	{
		appendStringInfoString(&text, " DESC");
		reverse = true;
	}
	else if (source->sort_operator != type->lt_opr)
	{
		appendStringInfo(&text, " USING %s", get_opname(source->sort_operator));
		get_equality_op_for_ordering_op(source->sort_operator, &reverse);
	}
	if (source->nulls_first != reverse)
		appendStringInfoString(&text, source->nulls_first ? " NULLS FIRST" : " NULLS LAST");
	return text.data;
}
