/*
 * vector.c
 *		Vectors made of column blocks, datums made of vectors, and how large their integers are.
 */
#include "exec/vector/vector.h"

#include "port/pg_bitutils.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "store/codec/float_codec.h"
#include "store/codec/numeric_codec.h"

void
vector_type_init(ColumnType *type, Oid typid, int32 typmod, Oid collation)
{
	FormData_pg_attribute attribute = {
		.atttypid = typid, .atttypmod = typmod, .attcollation = collation};

	get_typlenbyvalalign(typid, &attribute.attlen, &attribute.attbyval, &attribute.attalign);
	column_type_init(type, &attribute);
}

/* Borrows a decoded block. */
static void
borrow_block(Vector *vector, const ColumnBlock *block)
{
	static const VectorForm forms[] = {[BLOCK_INT] = VECTOR_INT,
									   [BLOCK_WIDE] = VECTOR_WIDE,
									   [BLOCK_FLOAT] = VECTOR_FLOAT,
									   [BLOCK_BYTES] = VECTOR_BYTES,
									   [BLOCK_CODES] = VECTOR_CODES};

	vector->type = block->type;
	vector->form = forms[block->form];
	vector->scale = block->scale;
	vector->constant = block->constant && !block->has_nulls && !block->has_exceptions;
	vector->bits = VECTOR_BITS_UNKNOWN;
	vector->nulls = block->has_nulls ? block->nulls : NULL;
	vector->exceptions = block->has_exceptions ? block->exceptions : NULL;
	vector->padded = NULL;
	vector->padded_scale = 0;
	vector->ints = block->ints;
	vector->wides = block->wides;
	vector->floats = block->floats;
	vector->starts = block->starts;
	vector->lengths = block->lengths;
	vector->codes = block->codes;
	vector->dictionary = block->dictionary;
	vector->datums = NULL;
}

static void
get_row_column(VectorBatch *batch, AttrNumber column, Vector *into)
{
	borrow_block(into, row_batch_column(batch->rows, column));
}

void
vector_batch_of_rows(VectorBatch *batch, RowBatch *rows)
{
	batch->nrows = rows->nrows;
	batch->nselected = rows->nselected;
	batch->selection = rows->selection;
	batch->get_column = get_row_column;
	batch->rows = rows;
	batch->owner = NULL;
}

/* The datum of a dictionary entry; made once, beside the dictionary. */
static Datum
find_entry_datum(const Vector *vector, uint32 code)
{
	Dictionary *dictionary = vector->dictionary;

	Assert(code < dictionary->nentries);
	if (dictionary->datums[code] == (Datum) 0)
	{
		MemoryContext old = MemoryContextSwitchTo(GetMemoryChunkContext(dictionary->datums));

		dictionary->datums[code] = column_type_from_bytes(vector->type, dictionary->starts[code],
														  dictionary->lengths[code]);
		MemoryContextSwitchTo(old);
	}
	return dictionary->datums[code];
}

Datum
vector_datum(const Vector *vector, uint32 row, bool *isnull)
{
	int128 mantissa;
	int32 scale;

	*isnull = vector_is_null(vector, row);
	if (*isnull)
		return (Datum) 0;
	if (vector_bit(vector->exceptions, row))
		return column_type_from_bytes(vector->type, vector->starts[row], vector->lengths[row]);

	switch (vector->form)
	{
		case VECTOR_INT:
			if (vector->scale < 0)
				return column_type_from_int(vector->type, vector->ints[row]);
			/* FALLTHROUGH */
		case VECTOR_WIDE:
			mantissa = vector_shown(vector, row, &scale);
			return numeric_from_scaled(mantissa, scale);
		case VECTOR_FLOAT:
			if (vector->type->length == sizeof(float4))
				return column_type_from_int(vector->type,
											(int64) float_narrow_single(vector->floats[row]));
			return Float8GetDatum(vector->floats[row]);
		case VECTOR_BYTES:
			return column_type_from_bytes(vector->type, vector->starts[row], vector->lengths[row]);
		case VECTOR_CODES:
			return find_entry_datum(vector, vector->codes[row]);
		case VECTOR_DATUM:
			return vector->datums[row];
	}
	pg_unreachable();
}

/* All bits that differ from the sign in any of the values. */
VECTOR_KERNEL static uint64
collect_block_bits(const int64 *values)
{
	uint64 bits = 0;

	for (int i = 0; i < BLOCK_ROWS; i++)
		bits |= (uint64) (values[i] ^ (values[i] >> 63));
	return bits;
}

int
vector_bits(Vector *vector, uint32 nrows)
{
	uint64 bits = 0;

	Assert(vector->form == VECTOR_INT);
	if (vector->bits != VECTOR_BITS_UNKNOWN)
		return vector->bits;
	if (nrows == BLOCK_ROWS && !vector->constant)
		bits = collect_block_bits(vector->ints);
	else
	{
		uint32 count = vector->constant ? Min(nrows, 1) : nrows;

		for (uint32 i = 0; i < count; i++)
			bits |= (uint64) (vector->ints[i] ^ (vector->ints[i] >> 63));
	}
	vector->bits = bits == 0 ? 0 : (int8) (pg_leftmost_one_pos64(bits) + 1);
	return vector->bits;
}
