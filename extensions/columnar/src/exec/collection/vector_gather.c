/*
 * vector_gather.c
 *		Vectors put together of rows of a store, or of another vector.
 *
 * For each kind of array there is one loop that fetches entries by number; all else, bitmaps
 * included, is done for the batch as a whole.  Positions that nobody asked for are cleared, so
 * that whoever reads them finds zeroes, empty bytes and the first code of the dictionary.
 */
#include "exec/collection/vector_store_internal.h"

#include "utils/memutils.h"

/* ---- buffers ------------------------------------------------------------------------------- */

VectorBuffer *
vector_buffer_create(void)
{
	VectorBuffer *buffer = palloc0(sizeof(VectorBuffer));

	buffer->context = CurrentMemoryContext;
	return buffer;
}

/* The array, made if there is none, with zeroes if it is new or to be cleared. */
static void *
use_array(VectorBuffer *buffer, void *array, Size element, bool clear)
{
	if (array == NULL)
		return MemoryContextAllocZero(buffer->context, element * BLOCK_ROWS);
	if (clear)
		memset(array, 0, element * BLOCK_ROWS);
	return array;
}

/* A bitmap of the buffer with all bits cleared, made if there is none. */
static uint64 *
clear_bits(VectorBuffer *buffer, uint64 **bits)
{
	if (*bits == NULL)
		*bits = MemoryContextAlloc(buffer->context, sizeof(uint64) * BLOCK_WORDS);
	memset(*bits, 0, sizeof(uint64) * BLOCK_WORDS);
	return *bits;
}

static uint32 *
use_rows(VectorBuffer *buffer)
{
	return buffer->rows = use_array(buffer, buffer->rows, sizeof(uint32), false);
}

static void
use_bytes(VectorBuffer *buffer, bool clear)
{
	bool is_new = buffer->starts == NULL;

	buffer->starts = use_array(buffer, buffer->starts, sizeof(char *), false);
	buffer->lengths = use_array(buffer, buffer->lengths, sizeof(uint32), clear);
	for (int i = 0; (is_new || clear) && i < BLOCK_ROWS; i++)
		buffer->starts[i] = "";
}

void
vector_buffer_begin(VectorBuffer *buffer, const ColumnType *type, VectorForm form, bool clear,
					Vector *into)
{
	memset(into, 0, sizeof(*into));
	into->type = type;
	into->form = form;
	into->scale = -1;
	into->bits = VECTOR_BITS_UNKNOWN;
	switch (form)
	{
		case VECTOR_INT:
			into->ints = buffer->ints = use_array(buffer, buffer->ints, sizeof(int64), clear);
			break;
		case VECTOR_WIDE:
			into->wides = buffer->wides = use_array(buffer, buffer->wides, sizeof(int128), clear);
			break;
		case VECTOR_FLOAT:
			into->floats = buffer->floats = use_array(buffer, buffer->floats, sizeof(double),
													  clear);
			break;
		case VECTOR_BYTES:
			use_bytes(buffer, clear);
			into->starts = buffer->starts;
			into->lengths = buffer->lengths;
			break;
		case VECTOR_CODES:
			into->codes = buffer->codes = use_array(buffer, buffer->codes, sizeof(uint32), clear);
			break;
		case VECTOR_DATUM:
			into->datums = buffer->datums = use_array(buffer, buffer->datums, sizeof(Datum), clear);
			break;
	}
}

/* ---- entries ------------------------------------------------------------------------------- */

/*
 * static void name(from, rows, positions, n, into): entry rows[i] of from[] to position
 * positions[i] (or i) of into[].
 */
#define DEFINE_GATHER(name, source, target)                                             \
	static void name(const source *restrict from, const uint32 *restrict rows,          \
					 const uint16 *restrict positions, uint32 n, target *restrict into) \
	{                                                                                   \
		if (positions == NULL)                                                          \
			for (uint32 i = 0; i < n; i++)                                              \
				into[i] = from[rows[i]];                                                \
		else                                                                            \
			for (uint32 i = 0; i < n; i++)                                              \
				into[positions[i]] = from[rows[i]];                                     \
	}

DEFINE_GATHER(gather_narrow_ints, int32, int64)
DEFINE_GATHER(gather_ints, int64, int64)
DEFINE_GATHER(gather_wides, int128, int128)
DEFINE_GATHER(gather_floats, double, double)
DEFINE_GATHER(gather_codes, uint32, uint32)
DEFINE_GATHER(gather_starts, char *const, const char *)
DEFINE_GATHER(gather_datums, Datum, Datum)

static void
gather_pairs(const StoreBytes *restrict from, const uint32 *restrict rows,
			 const uint16 *restrict positions, uint32 n, const char **restrict starts,
			 uint32 *restrict lengths)
{
	for (uint32 i = 0; i < n; i++)
	{
		uint32 position = positions == NULL ? i : positions[i];

		starts[position] = from[rows[i]].start;
		lengths[position] = from[rows[i]].length;
	}
}

/* The lowest bits of eight bytes, the first byte's first (little-endian, as format.c demands). */
static inline uint64
pack_bits(uint64 bytes)
{
	return (bytes * UINT64CONST(0x0102040810204080)) >> 56;
}

/* A bitmap by position of the rows that have a bit in from[]; NULL if there are none. */
static uint64 *
gather_bits(const uint64 *from, const uint32 *rows, const uint16 *positions, uint32 n,
			VectorBuffer *buffer, uint64 **bits)
{
	uint64 marks[BLOCK_ROWS / 8] = {0};
	uint8 *marked = (uint8 *) marks;
	uint64 any = 0;

	if (from == NULL)
		return NULL;
	for (uint32 i = 0; i < n; i++)
	{
		uint8 bit = (uint8) ((from[rows[i] >> 6] >> (rows[i] & 63)) & 1);

		marked[positions == NULL ? i : positions[i]] = bit;
		any |= bit;
	}
	if (any == 0)
		return NULL;
	clear_bits(buffer, bits);
	for (uint32 word = 0; word < BLOCK_WORDS; word++)
		for (uint32 i = 0; i < 8; i++)
			(*bits)[word] |= pack_bits(marks[8 * word + i]) << (8 * i);
	return *bits;
}

/* ---- rows of a store ----------------------------------------------------------------------- */

VECTOR_KERNEL static bool
has_missing_rows(const uint32 *rows, uint32 n)
{
	bool missing = false;

	for (uint32 i = 0; i < n; i++)
		missing |= rows[i] == VECTOR_NO_ROW;
	return missing;
}

/* The rows with the first in place of none. */
static const uint32 *
replace_missing_rows(const uint32 *rows, uint32 n, VectorBuffer *buffer)
{
	uint32 *replaced = use_rows(buffer);

	for (uint32 i = 0; i < n; i++)
		replaced[i] = rows[i] == VECTOR_NO_ROW ? 0 : rows[i];
	return replaced;
}

/* Makes values NULL where there is no row. */
static void
mark_missing_rows(const uint32 *rows, const uint16 *positions, uint32 n, VectorBuffer *buffer,
				  Vector *into)
{
	if (into->nulls == NULL)
		into->nulls = clear_bits(buffer, &buffer->nulls);
	for (uint32 i = 0; i < n; i++)
	{
		uint32 position = positions == NULL ? i : positions[i];

		buffer->nulls[position >> 6] |= (uint64) (rows[i] == VECTOR_NO_ROW) << (position & 63);
	}
}

/* What a numeric has besides mantissas; the entries of exceptions are indexes. */
static void
gather_numeric(const StoreColumn *column, const uint32 *rows, const uint16 *positions, uint32 n,
			   VectorBuffer *buffer, Vector *into)
{
	into->scale = Max(column->scale, 0);
	into->padded = gather_bits(column->padded, rows, positions, n, buffer, &buffer->padded);
	into->padded_scale = column->padded_scale;
	into->exceptions = gather_bits(column->exceptions, rows, positions, n, buffer,
								   &buffer->exceptions);
	if (into->exceptions == NULL)
		return;
	use_bytes(buffer, false);
	into->starts = buffer->starts;
	into->lengths = buffer->lengths;
	for (uint32 i = 0; i < n; i++)
	{
		uint32 position = positions == NULL ? i : positions[i];
		const StoreBytes *bytes;

		if (!vector_bit(into->exceptions, position))
			continue;
		bytes = &column->odd[into->form == VECTOR_WIDE ? (uint32) into->wides[position]
													   : (uint32) into->ints[position]];
		buffer->starts[position] = bytes->start;
		buffer->lengths[position] = bytes->length;
	}
}

static Dictionary *
show_dictionary(StoreDictionary *dictionary)
{
	if (!dictionary->is_shown)
		dictionary->shown.serial = dictionary_next_serial();
	dictionary->is_shown = true;
	return &dictionary->shown;
}

static void
gather_values(StoreColumn *column, const uint32 *rows, const uint16 *positions, uint32 n,
			  VectorBuffer *buffer, Vector *into)
{
	static const VectorForm forms[] = {
		[STORE_INT32] = VECTOR_INT,	  [STORE_INT64] = VECTOR_INT,	[STORE_INT128] = VECTOR_WIDE,
		[STORE_FLOAT] = VECTOR_FLOAT, [STORE_CODES] = VECTOR_CODES, [STORE_BYTES] = VECTOR_BYTES};
	const void *values = column->values;

	vector_buffer_begin(buffer, &column->type, forms[column->layout],
						positions != NULL || n < BLOCK_ROWS, into);
	switch (column->layout)
	{
		case STORE_INT32:
			gather_narrow_ints(values, rows, positions, n, buffer->ints);
			break;
		case STORE_INT64:
			gather_ints(values, rows, positions, n, buffer->ints);
			break;
		case STORE_INT128:
			gather_wides(values, rows, positions, n, buffer->wides);
			break;
		case STORE_FLOAT:
			gather_floats(values, rows, positions, n, buffer->floats);
			break;
		case STORE_CODES:
			gather_codes(values, rows, positions, n, buffer->codes);
			into->dictionary = show_dictionary(&column->dictionary);
			break;
		case STORE_BYTES:
			gather_pairs(values, rows, positions, n, buffer->starts, buffer->lengths);
			break;
	}
}

void
vector_store_gather(VectorStore *store, int column, const uint32 *rows, const uint16 *positions,
					uint32 n, VectorBuffer *buffer, Vector *into)
{
	StoreColumn *from = &store->columns[column];
	bool missing = has_missing_rows(rows, n);
	const uint32 *present = missing ? replace_missing_rows(rows, n, buffer) : rows;

	Assert(n <= BLOCK_ROWS && column < store->ncolumns);
	if (store->count == 0 || (from->layout == STORE_CODES && from->dictionary.shown.nentries == 0))
	{
		vector_make_null(&from->type, buffer, into);
		return;
	}
	gather_values(from, present, positions, n, buffer, into);
	if (from->type.form == FORM_NUMERIC)
		gather_numeric(from, present, positions, n, buffer, into);
	into->nulls = gather_bits(from->nulls, present, positions, n, buffer, &buffer->nulls);
	if (missing)
		mark_missing_rows(rows, positions, n, buffer, into);
}

/* ---- rows of another vector ---------------------------------------------------------------- */

void
vector_gather(const Vector *vector, const uint16 *from, uint32 n, VectorBuffer *buffer,
			  Vector *into)
{
	uint32 *rows = use_rows(buffer);

	Assert(n <= BLOCK_ROWS);
	for (uint32 i = 0; i < n; i++)
		rows[i] = from[i];
	vector_buffer_begin(buffer, vector->type, vector->form, n < BLOCK_ROWS, into);
	into->scale = vector->scale;
	into->constant = vector->constant;
	into->bits = vector->bits;
	into->padded_scale = vector->padded_scale;
	into->dictionary = vector->dictionary;
	into->nulls = gather_bits(vector->nulls, rows, NULL, n, buffer, &buffer->nulls);
	into->padded = gather_bits(vector->padded, rows, NULL, n, buffer, &buffer->padded);
	into->exceptions = gather_bits(vector->exceptions, rows, NULL, n, buffer, &buffer->exceptions);
	switch (vector->form)
	{
		case VECTOR_INT:
			gather_ints(vector->ints, rows, NULL, n, buffer->ints);
			break;
		case VECTOR_WIDE:
			gather_wides(vector->wides, rows, NULL, n, buffer->wides);
			break;
		case VECTOR_FLOAT:
			gather_floats(vector->floats, rows, NULL, n, buffer->floats);
			break;
		case VECTOR_CODES:
			gather_codes(vector->codes, rows, NULL, n, buffer->codes);
			break;
		case VECTOR_DATUM:
			gather_datums(vector->datums, rows, NULL, n, buffer->datums);
			break;
		case VECTOR_BYTES:
			break;
	}
	if (vector->form == VECTOR_BYTES || into->exceptions != NULL)
	{
		use_bytes(buffer, false);
		into->starts = buffer->starts;
		into->lengths = buffer->lengths;
		gather_starts(vector->starts, rows, NULL, n, buffer->starts);
		gather_codes(vector->lengths, rows, NULL, n, buffer->lengths);
	}
}

void
vector_make_null(const ColumnType *type, VectorBuffer *buffer, Vector *into)
{
	static const VectorForm forms[] = {[FORM_INT] = VECTOR_INT,
									   [FORM_FLOAT] = VECTOR_FLOAT,
									   [FORM_NUMERIC] = VECTOR_INT,
									   [FORM_FIXED] = VECTOR_BYTES,
									   [FORM_BYTES] = VECTOR_BYTES};

	vector_buffer_begin(buffer, type, forms[type->form], true, into);
	into->scale = type->form == FORM_NUMERIC ? 0 : -1;
	into->nulls = clear_bits(buffer, &buffer->nulls);
	memset(buffer->nulls, 0xff, sizeof(uint64) * BLOCK_WORDS);
}
