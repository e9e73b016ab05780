/*
 * vector_append.c
 *		From the vectors of a batch to the values of a column: see vector_append.h.
 *
 * Integers, mantissas, floats and bytes are copied from array to array.  What is held in another way
 * than the column wants it (a numeric of 128 bits, what an expression without a kernel made) goes
 * through its datum.
 */
#include "exec/vector/vector_append.h"

#include "access/detoast.h"
#include "utils/datum.h"

#include "store/codec/float_codec.h"

/* Do both hold values the same way? */
static bool
are_alike(const ColumnType *from, const ColumnType *into)
{
	return from->form == into->form && from->length == into->length &&
		   from->is_unsigned == into->is_unsigned;
}

static bool
has_null(const Vector *vector, const uint16 *positions, uint32 nrows)
{
	if (vector->nulls == NULL)
		return false;
	for (uint32 i = 0; i < nrows; i++)
		if (vector_bit(vector->nulls, positions[i]))
			return true;
	return false;
}

/* One value, whatever the form of the vector. */
static void
append_datum(const Vector *vector, uint32 row, ColumnValues *into)
{
	bool isnull;
	Datum value = vector_datum(vector, row, &isnull);

	column_values_append(into, value, isnull);
}

/* Values with bytes of their own, or a dictionary's. */
static void
append_bytes(const Vector *vector, const uint16 *positions, uint32 nrows, ColumnValues *into)
{
	for (uint32 i = 0; i < nrows; i++)
	{
		uint32 length;
		const char *bytes;

		if (vector_is_null(vector, positions[i]))
		{
			column_values_append(into, (Datum) 0, true);
			continue;
		}
		bytes = vector_bytes(vector, positions[i], &length);
		column_values_append_bytes(into, bytes, length);
	}
}

/* Numerics as mantissas; only some may be exceptions or NULL. */
static void
append_mantissas(const Vector *vector, const uint16 *positions, uint32 nrows, ColumnValues *into)
{
	for (uint32 i = 0; i < nrows; i++)
	{
		uint32 row = positions[i];

		if (vector_is_null(vector, row))
			column_values_append(into, (Datum) 0, true);
		else if (vector_bit(vector->exceptions, row))
			column_values_append_bytes(into, vector->starts[row], vector->lengths[row]);
		else
			column_values_append_scaled(into, vector->ints[row], vector->scale);
	}
}

/* Into ints[] without a look at each: there is room, and no NULL. */
static void
copy_ints(const int64 *from, const uint16 *positions, uint32 nrows, ColumnValues *into)
{
	int64 *ints = into->ints + into->nrows;

	for (uint32 i = 0; i < nrows; i++)
		ints[i] = from[positions[i]];
}

static void
copy_floats(const Vector *vector, const uint16 *positions, uint32 nrows, ColumnValues *into)
{
	int64 *ints = into->ints + into->nrows;

	for (uint32 i = 0; i < nrows; i++)
	{
		double value = vector->floats[positions[i]];

		if (into->type->length == sizeof(float4))
			ints[i] = (int64) float_narrow_single(value);
		else
			memcpy(&ints[i], &value, sizeof(value));
	}
}

/* Appends the values if all of them can be copied; else nothing, and false. */
static bool
copy_numbers(const Vector *vector, const uint16 *positions, uint32 nrows, ColumnValues *into)
{
	bool is_mantissa = vector->form == VECTOR_INT && vector->scale >= 0;

	if (into->ints == NULL || has_null(vector, positions, nrows))
		return false;
	if (is_mantissa &&
		(vector->exceptions != NULL || (into->scale >= 0 && into->scale != vector->scale)))
		return false;

	column_values_reserve(into, nrows);
	if (vector->form == VECTOR_FLOAT)
		copy_floats(vector, positions, nrows, into);
	else
		copy_ints(vector->ints, positions, nrows, into);
	if (is_mantissa)
		into->scale = vector->scale;
	if (into->nulls != NULL)
		memset(into->nulls + into->nrows, 0, nrows);
	into->nrows += nrows;
	return true;
}

void
vector_append(const Vector *vector, const uint16 *positions, uint32 nrows, ColumnValues *into)
{
	bool is_alike = are_alike(vector->type, into->type) && vector->padded == NULL;
	bool is_number = vector->form == VECTOR_INT || vector->form == VECTOR_FLOAT;

	if (is_alike && is_number && copy_numbers(vector, positions, nrows, into))
		return;
	if (is_alike && vector->form == VECTOR_INT && vector->scale >= 0)
		append_mantissas(vector, positions, nrows, into);
	else if (is_alike && (vector->form == VECTOR_BYTES || vector->form == VECTOR_CODES))
		append_bytes(vector, positions, nrows, into);
	else
	{
		for (uint32 i = 0; i < nrows; i++)
			append_datum(vector, positions[i], into);
	}
}

static uint64
count_datum_bytes(const ColumnType *type, Datum value)
{
	/* of what it will be when it was detoasted */
	return type->length == -1 ? toast_raw_datum_size(value)
							  : datumGetSize(value, false, type->length);
}

uint64
vector_count_bytes(const Vector *vector, const uint16 *positions, uint32 nrows)
{
	bool has_bytes = vector->form == VECTOR_BYTES || vector->form == VECTOR_CODES;
	uint64 bytes = 0;

	/* numbers are short */
	if (vector->type->byval || (!has_bytes && vector->form != VECTOR_DATUM))
		return 0;
	for (uint32 i = 0; i < nrows; i++)
	{
		uint32 length;

		if (vector_is_null(vector, positions[i]))
			continue;
		if (has_bytes)
		{
			vector_bytes(vector, positions[i], &length);
			bytes += length;
		}
		else
			bytes += count_datum_bytes(vector->type, vector->datums[positions[i]]);
	}
	return bytes;
}
