/*
 * vector_store_bytes.c
 *		Text and the like in a store: codes into a dictionary of the store, or plain.
 *
 * A column begins with a dictionary, which makes grouping and conditions above the store work
 * on codes.  When it has too many entries the column becomes plain: a pointer and a length for
 * each row.  Either way the bytes lie in the arena, once for each entry of a dictionary that came
 * in, whose code is looked up in an array and not by a hash of the bytes.
 */
#include "exec/collection/vector_store_internal.h"

#include "common/hashfn.h"
#include "utils/memutils.h"

#define ENTRIES_MIN 16

/* no room for another entry */
#define NO_CODE PG_UINT32_MAX

const char *
store_bytes_of(const Vector *vector, uint32 row, uint32 *length)
{
	const ColumnType *type = vector->type;
	struct varlena *flat;
	char *value;

	if (vector->form != VECTOR_DATUM)
		return vector_bytes(vector, row, length);
	value = DatumGetPointer(vector->datums[row]);
	if (type->length > 0)
	{
		*length = (uint32) type->length;
		return value;
	}
	if (type->length == -2)
	{
		*length = (uint32) strlen(value);
		return value;
	}
	flat = PG_DETOAST_DATUM_PACKED(PointerGetDatum(value));
	*length = VARSIZE_ANY_EXHDR(flat);
	return VARDATA_ANY(flat);
}

/* ---- the dictionary ------------------------------------------------------------------------ */

static void *
grow_array(VectorStore *store, void *array, Size size)
{
	return array == NULL ? MemoryContextAlloc(store->data, size) : repalloc(array, size);
}

static void
add_slot(StoreDictionary *dictionary, uint32 code)
{
	uint32 position = dictionary->hashes[code] & (dictionary->nslots - 1);

	while (dictionary->slots[position] != 0)
		position = (position + 1) & (dictionary->nslots - 1);
	dictionary->slots[position] = code + 1;
}

void
store_reserve_entries(VectorStore *store, StoreColumn *column, uint32 nentries)
{
	StoreDictionary *dictionary = &column->dictionary;
	Dictionary *shown = &dictionary->shown;
	uint32 old = dictionary->capacity;
	uint32 capacity = Max(old, ENTRIES_MIN);

	if (nentries <= old)
		return;
	while (capacity < nentries)
		capacity *= 2;
	shown->starts = grow_array(store, shown->starts, sizeof(char *) * capacity);
	shown->lengths = grow_array(store, shown->lengths, sizeof(uint32) * capacity);
	shown->datums = grow_array(store, shown->datums, sizeof(Datum) * capacity);
	memset(shown->datums + old, 0, sizeof(Datum) * (capacity - old));
	dictionary->hashes = grow_array(store, dictionary->hashes, sizeof(uint32) * capacity);
	dictionary->capacity = capacity;

	dictionary->nslots = 2 * capacity;
	dictionary->slots = grow_array(store, dictionary->slots, sizeof(uint32) * dictionary->nslots);
	memset(dictionary->slots, 0, sizeof(uint32) * dictionary->nslots);
	for (uint32 code = 0; code < shown->nentries; code++)
		add_slot(dictionary, code);
}

/* The code of a value, which becomes an entry if it is none; NO_CODE if there is no room. */
static uint32
find_code(VectorStore *store, StoreColumn *column, const char *bytes, uint32 length)
{
	StoreDictionary *dictionary = &column->dictionary;
	Dictionary *shown = &dictionary->shown;
	uint32 hash = hash_bytes((const unsigned char *) bytes, (int) length);
	uint32 code = shown->nentries;
	char *copy;

	for (uint32 position = hash; dictionary->nslots > 0; position++)
	{
		uint32 entry = dictionary->slots[position & (dictionary->nslots - 1)];

		if (entry == 0)
			break;
		entry--;
		if (dictionary->hashes[entry] == hash && shown->lengths[entry] == length &&
			memcmp(shown->starts[entry], bytes, length) == 0)
			return entry;
	}
	if (code == STORE_ENTRIES_MAX)
		return NO_CODE;

	store_reserve_entries(store, column, code + 1);
	copy = store_allocate(store, length);
	memcpy(copy, bytes, length);
	shown->starts[code] = copy;
	shown->lengths[code] = length;
	dictionary->hashes[code] = hash;
	add_slot(dictionary, code);
	shown->nentries++;
	dictionary->is_shown = false;
	return code;
}

void
store_drop_dictionary(VectorStore *store, StoreColumn *column, uint32 count)
{
	const Dictionary *shown = &column->dictionary.shown;
	uint32 *codes = column->values;
	StoreBytes *values = MemoryContextAllocHuge(store->data, sizeof(StoreBytes) * store->capacity);

	Assert(column->layout == STORE_CODES);
	for (uint32 i = 0; i < count; i++)
	{
		if (vector_bit(column->nulls, i))
			values[i] = (StoreBytes){.start = "", .length = 0};
		else
			values[i] = (StoreBytes){.start = shown->starts[codes[i]],
									 .length = shown->lengths[codes[i]]};
	}
	column->is_plain = true;
	column->layout = STORE_BYTES;
	column->values = values;
	pfree(codes);
	/* its entries, and vectors with it, stay as they are until the reset */
	column->map.serial = 0;
}

/* ---- dictionaries that came in ------------------------------------------------------------- */

/* Makes the column's map one of this dictionary. */
static StoreMap *
use_map(VectorStore *store, StoreColumn *column, const Dictionary *dictionary)
{
	StoreMap *map = &column->map;
	uint32 known = 0;

	if (map->serial == dictionary->serial)
		known = map->nentries;
	if (map->serial == dictionary->serial && known >= dictionary->nentries)
		return map;
	if (column->layout == STORE_CODES)
	{
		if (dictionary->nentries > map->nentries || map->codes == NULL)
			map->codes = grow_array(store, map->codes, sizeof(uint32) * dictionary->nentries);
		memset(map->codes + known, 0, sizeof(uint32) * (dictionary->nentries - known));
	}
	else
	{
		if (dictionary->nentries > map->nentries || map->copies == NULL)
			map->copies = grow_array(store, map->copies, sizeof(char *) * dictionary->nentries);
		memset(map->copies + known, 0, sizeof(char *) * (dictionary->nentries - known));
	}
	map->serial = dictionary->serial;
	map->nentries = dictionary->nentries;
	return map;
}

/* False if an entry is not met yet. */
static bool
translate_codes(const uint32 *map, const uint32 *codes, const uint16 *selection, uint32 n,
				uint32 *into)
{
	uint32 missing = 0;

	for (uint32 i = 0; i < n; i++)
	{
		uint32 code = map[codes[selection[i]]];

		into[i] = code - 1;
		missing |= code == 0;
	}
	return missing == 0;
}

/* Codes of a vector's codes; false if the dictionary has no room. */
static bool
append_coded(VectorStore *store, StoreColumn *column, const Vector *vector, const uint16 *selection,
			 uint32 n)
{
	const Dictionary *dictionary = vector->dictionary;
	uint32 *map = use_map(store, column, dictionary)->codes;
	uint32 *into = (uint32 *) column->values + store->count;

	if (vector->nulls == NULL && translate_codes(map, vector->codes, selection, n, into))
		return true;
	for (uint32 i = 0; i < n; i++)
	{
		uint32 code;

		into[i] = 0;
		if (vector_is_null(vector, selection[i]))
			continue;
		code = vector->codes[selection[i]];
		if (map[code] == 0)
			map[code] = find_code(store, column, dictionary->starts[code],
								  dictionary->lengths[code]) +
						1;
		if (map[code] == 0)
			return false;
		into[i] = map[code] - 1;
	}
	return true;
}

/* Codes of bytes; false if the dictionary has no room. */
static bool
append_codes(VectorStore *store, StoreColumn *column, const Vector *vector, const uint16 *selection,
			 uint32 n)
{
	uint32 *into = (uint32 *) column->values + store->count;
	const char *last = NULL;
	uint32 last_length = 0;
	uint32 code = 0;

	for (uint32 i = 0; i < n; i++)
	{
		const char *bytes;
		uint32 length;

		into[i] = 0;
		if (vector_is_null(vector, selection[i]))
			continue;
		bytes = store_bytes_of(vector, selection[i], &length);
		/* the rows of a constant or a run are the same bytes */
		if (bytes != last || length != last_length)
		{
			code = find_code(store, column, bytes, length);
			if (code == NO_CODE)
				return false;
			last = bytes;
			last_length = length;
		}
		into[i] = code;
	}
	return true;
}

/* ---- plain --------------------------------------------------------------------------------- */

static void
append_plain_coded(VectorStore *store, StoreColumn *column, const Vector *vector,
				   const uint16 *selection, uint32 n)
{
	const Dictionary *dictionary = vector->dictionary;
	const char **copies = use_map(store, column, dictionary)->copies;
	StoreBytes *into = (StoreBytes *) column->values + store->count;

	for (uint32 i = 0; i < n; i++)
	{
		uint32 code;

		into[i] = (StoreBytes){.start = "", .length = 0};
		if (vector_is_null(vector, selection[i]))
			continue;
		code = vector->codes[selection[i]];
		if (copies[code] == NULL)
		{
			char *copy = store_allocate(store, dictionary->lengths[code]);

			memcpy(copy, dictionary->starts[code], dictionary->lengths[code]);
			copies[code] = copy;
		}
		into[i] = (StoreBytes){.start = copies[code], .length = dictionary->lengths[code]};
	}
}

/* Borrows the bytes, then copies them all at once. */
static void
append_plain(VectorStore *store, StoreColumn *column, const Vector *vector, const uint16 *selection,
			 uint32 n)
{
	StoreBytes *into = (StoreBytes *) column->values + store->count;
	StoreBytes last = {.start = NULL, .length = 0};
	const char *copied = NULL;
	Size total = 0;
	char *free;

	for (uint32 i = 0; i < n; i++)
	{
		into[i] = (StoreBytes){.start = "", .length = 0};
		if (!vector_is_null(vector, selection[i]))
			into[i].start = store_bytes_of(vector, selection[i], &into[i].length);
		if (into[i].start != last.start || into[i].length != last.length)
			total += into[i].length;
		last = into[i];
	}
	free = store_allocate(store, total);
	last.start = NULL;
	for (uint32 i = 0; i < n; i++)
	{
		if (into[i].start != last.start || into[i].length != last.length)
		{
			last = into[i];
			memcpy(free, last.start, last.length);
			copied = free;
			free += last.length;
		}
		into[i].start = copied;
	}
}

void
store_append_bytes(VectorStore *store, StoreColumn *column, const Vector *vector,
				   const uint16 *selection, uint32 n)
{
	if (column->layout == STORE_CODES)
	{
		if (vector->form == VECTOR_CODES ? append_coded(store, column, vector, selection, n)
										 : append_codes(store, column, vector, selection, n))
			return;
		store_drop_dictionary(store, column, store->count);
	}
	if (vector->form == VECTOR_CODES)
		append_plain_coded(store, column, vector, selection, n);
	else
		append_plain(store, column, vector, selection, n);
}
