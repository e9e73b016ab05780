/*
 * vector_store_numeric.c
 *		Numerics of a store: mantissas of one scale, and exceptions.
 *
 * The first rows decide on the scale.  Of other values those of one smaller scale are brought
 * to it and marked as padded; the rest are exceptions, kept as bytes.
 */
#include "exec/collection/vector_store_internal.h"

#include "store/codec/numeric_codec.h"

/* Scales below are told apart when the column's is chosen. */
#define SCALES_COUNTED 64

/* A scale that one value in so many has is a usual one. */
#define USUAL_SHARE 8

/* Differences of scales for which the power of ten is an int64. */
#define SCALE_DIFFERENCE_MAX (NUMERIC_POWERS_OF_TEN - 2)

/* Mantissa at the display scale; false if the row is an exception, with these bytes. */
static inline bool
read_numeric(const Vector *vector, uint32 row, int128 *mantissa, int32 *scale, const char **bytes,
			 uint32 *length)
{
	*bytes = NULL;
	if (vector_bit(vector->exceptions, row))
	{
		*bytes = vector->starts[row];
		*length = vector->lengths[row];
	}
	else if (vector->form == VECTOR_INT || vector->form == VECTOR_WIDE)
	{
		*mantissa = vector_shown(vector, row, scale);
		return true;
	}
	else
		*bytes = store_bytes_of(vector, row, length);
	return numeric_to_scaled(*bytes, *length, mantissa, scale);
}

/* The largest of the usual scales, to which smaller ones can be brought; -1: no mantissas. */
static int32
choose_scale(const Vector *vector, const uint16 *selection, uint32 n)
{
	uint16 counts[SCALES_COUNTED] = {0};
	uint32 total = 0;
	int32 scale = -1;

	for (uint32 i = 0; i < n; i++)
	{
		uint32 row = selection[i];
		int128 mantissa;
		const char *bytes;
		uint32 length;
		int32 shown;

		if (vector_is_null(vector, row) ||
			!read_numeric(vector, row, &mantissa, &shown, &bytes, &length))
			continue;
		if (shown < SCALES_COUNTED)
		{
			counts[shown]++;
			total++;
		}
		if (scale < 0)
			scale = shown;
	}
	for (int32 i = 0; i < SCALES_COUNTED && total > 0; i++)
		if (counts[i] * USUAL_SHARE >= total)
			scale = i;
	return scale;
}

/* ---- rows ---------------------------------------------------------------------------------- */

/* Adds an exception for the row; the bytes are copied. */
static void
add_exception(VectorStore *store, StoreColumn *column, uint32 row, const char *bytes, uint32 length)
{
	char *copy = store_allocate(store, length);

	memcpy(copy, bytes, length);
	if (column->nodd == column->odd_capacity)
	{
		uint32 capacity = Max(2 * column->odd_capacity, 16);

		if (column->odd == NULL)
			column->odd = MemoryContextAllocHuge(store->data, sizeof(StoreBytes) * capacity);
		else
			column->odd = repalloc_huge(column->odd, sizeof(StoreBytes) * (Size) capacity);
		column->odd_capacity = capacity;
	}
	column->odd[column->nodd] = (StoreBytes){.start = copy, .length = length};
	store_set_bit(store, &column->exceptions, row);
	switch (column->layout)
	{
		case STORE_INT32:
			((int32 *) column->values)[row] = (int32) column->nodd++;
			break;
		case STORE_INT64:
			((int64 *) column->values)[row] = column->nodd++;
			break;
		default:
			((int128 *) column->values)[row] = column->nodd++;
			break;
	}
}

/* Stores a mantissa of the column's scale; rows before this one are kept in any case. */
static void
put_mantissa(VectorStore *store, StoreColumn *column, uint32 row, int128 mantissa)
{
	if (column->layout == STORE_INT32)
	{
		if (mantissa == (int32) mantissa)
		{
			((int32 *) column->values)[row] = (int32) mantissa;
			return;
		}
		store_set_layout(store, column, STORE_INT64, row);
	}
	if (column->layout == STORE_INT64)
	{
		if (mantissa == (int64) mantissa)
		{
			((int64 *) column->values)[row] = (int64) mantissa;
			return;
		}
		store_set_layout(store, column, STORE_INT128, row);
	}
	((int128 *) column->values)[row] = mantissa;
}

/* Brings a value to the column's scale, and marks it; false if it has no room for it. */
static bool
put_padded(VectorStore *store, StoreColumn *column, uint32 row, int128 mantissa, int32 scale)
{
	int32 difference = column->scale - scale;

	if (difference <= 0 || difference > SCALE_DIFFERENCE_MAX ||
		(column->padded != NULL && column->padded_scale != scale) ||
		__builtin_mul_overflow(mantissa, (int128) numeric_powers_of_ten[difference], &mantissa))
		return false;
	column->padded_scale = scale;
	store_set_bit(store, &column->padded, row);
	put_mantissa(store, column, row, mantissa);
	return true;
}

static void
append_numeric(VectorStore *store, StoreColumn *column, uint32 into, const Vector *vector,
			   uint32 row)
{
	int128 mantissa;
	int32 scale;
	const char *bytes;
	uint32 length;
	struct varlena *made;

	if (read_numeric(vector, row, &mantissa, &scale, &bytes, &length))
	{
		if (column->scale < 0)
			column->scale = scale;
		if (scale == column->scale)
		{
			put_mantissa(store, column, into, mantissa);
			return;
		}
		if (put_padded(store, column, into, mantissa, scale))
			return;
	}
	if (bytes != NULL)
	{
		add_exception(store, column, into, bytes, length);
		return;
	}
	made = (struct varlena *) DatumGetPointer(numeric_from_scaled(mantissa, scale));
	add_exception(store, column, into, VARDATA_ANY(made), VARSIZE_ANY_EXHDR(made));
	pfree(made);
}

/* ---- vectors ------------------------------------------------------------------------------- */

/* Mantissas of 128 bits; as few bits are kept of them as they need. */
static void
append_wides(VectorStore *store, StoreColumn *column, const Vector *vector, const uint16 *selection,
			 uint32 n)
{
	for (uint32 i = 0; i < n; i++)
		put_mantissa(store, column, store->count + i,
					 vector_is_null(vector, selection[i]) ? 0 : vector->wides[selection[i]]);
}

/* Mantissas with the column's two scales. */
static void
append_ints(VectorStore *store, StoreColumn *column, const Vector *vector, const uint16 *selection,
			uint32 n)
{
	int64 values[BLOCK_ROWS];

	for (uint32 i = 0; i < n; i++)
		values[i] = vector->ints[selection[i]];
	for (uint32 i = 0; vector->nulls != NULL && i < n; i++)
		values[i] = vector_bit(vector->nulls, selection[i]) ? 0 : values[i];
	for (uint32 i = 0; vector->padded != NULL && i < n; i++)
	{
		if (vector_bit(vector->padded, selection[i]))
		{
			store_set_bit(store, &column->padded, store->count + i);
			column->padded_scale = vector->padded_scale;
		}
	}
	store_append_ints(store, column, values, n);
}

void
store_append_numerics(VectorStore *store, StoreColumn *column, const Vector *vector,
					  const uint16 *selection, uint32 n)
{
	bool same_padded = vector->padded == NULL || column->padded == NULL ||
					   vector->padded_scale == column->padded_scale;

	if (column->scale < 0)
	{
		bool is_plain = (vector->form == VECTOR_INT || vector->form == VECTOR_WIDE) &&
						vector->exceptions == NULL;

		column->scale = is_plain ? vector->scale : choose_scale(vector, selection, n);
	}
	if (vector->exceptions == NULL && vector->scale == column->scale)
	{
		if (vector->form == VECTOR_INT && same_padded)
		{
			append_ints(store, column, vector, selection, n);
			return;
		}
		if (vector->form == VECTOR_WIDE && vector->padded == NULL)
		{
			append_wides(store, column, vector, selection, n);
			return;
		}
	}
	for (uint32 i = 0; i < n; i++)
	{
		if (vector_is_null(vector, selection[i]))
			put_mantissa(store, column, store->count + i, 0);
		else
			append_numeric(store, column, store->count + i, vector, selection[i]);
	}
}
