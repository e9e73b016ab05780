/*
 * column_values.h
 *		The values of one column of a row group while it is being written.
 *
 * Rows are positions: a NULL takes a position, with 0 or no bytes.  Everything
 * lies in the memory context that was current at column_values_init().
 *
 * Numerics are held as int64 mantissas ("scaled") as long as all of them have one display
 * scale and come back as the same bytes: that is how they will be encoded, and nobody has to
 * take them apart again.  With the first that does not, all become bytes.
 */
#ifndef COLUMNAR_COLUMN_VALUES_H
#define COLUMNAR_COLUMN_VALUES_H

#include "store/value/column_type.h"

typedef struct ColumnValues
{
	const ColumnType *type;
	MemoryContext context;
	uint32 nrows;
	uint32 capacity;
	uint32 nnulls;
	uint8 *nulls; /* a byte per row, 1 = NULL; NULL while there is none */
	int64 *ints;  /* FORM_INT, FORM_FLOAT; of numerics that are scaled: mantissas */
	int32 scale;  /* of all numerics that are scaled; -1 as long as there is none */
	/* other numerics, FORM_BYTES: value i is bytes[ends[i - 1] .. ends[i]); FIXED: bytes[i * length ..) */
	ByteBuffer bytes;
	uint64 *ends;
} ColumnValues;

extern void column_values_init(ColumnValues *values, const ColumnType *type);
/* Appends a value; detoasts, flattens and copies.  Memory used grows; see column_values_size. */
extern void column_values_append(ColumnValues *values, Datum value, bool isnull);
/* The same of bytes: of FORM_BYTES and FORM_NUMERIC what follows the varlena header. */
extern void column_values_append_bytes(ColumnValues *values, const char *bytes, uint32 length);
/* The same of a numeric; mantissas that come back as they are from numeric_from_scaled(). */
extern void column_values_append_scaled(ColumnValues *values, int64 mantissa, int32 scale);
/* Makes room for so many more values, so that fewer steps are needed later. */
extern void column_values_reserve(ColumnValues *values, uint32 nrows);
/* Value `row` as a datum allocated in the current context. */
extern Datum column_values_datum(const ColumnValues *values, uint32 row, bool *isnull);
/*
 * The ints of rows first .. first + nrows - 1, with the value before it in place of each NULL (before
 * the first value: that one), so that NULLs cost next to nothing.  At least one row must have a
 * value.  They are put into `filled` if there are NULLs.
 */
extern const int64 *
column_values_fill_nulls(const ColumnValues *values, uint32 first, uint32 nrows, int64 *filled);
/* Bytes that the values take in memory. */
extern uint64 column_values_size(const ColumnValues *values);
/* A new ColumnValues with rows order[0], order[1] ... order[nrows - 1] of the old. */
extern void column_values_select(ColumnValues *into, const ColumnValues *from, const uint32 *order,
								 uint32 nrows);
/* Forgets the values, but keeps the memory for others. */
extern void column_values_reset(ColumnValues *values);
extern void column_values_free(ColumnValues *values);

static inline bool
column_values_are_scaled(const ColumnValues *values)
{
	return values->ints != NULL && values->type->form == FORM_NUMERIC;
}

/* The bytes of value `row` (FORM_FIXED, BYTES, and numerics that are not scaled). */
static inline const char *
column_values_bytes(const ColumnValues *values, uint32 row, uint32 *length)
{
	uint64 start;

	if (values->type->form == FORM_FIXED)
	{
		bool isnull = values->nulls != NULL && values->nulls[row];

		*length = isnull ? 0 : values->type->length;
		return values->bytes.data + (uint64) row * values->type->length;
	}
	start = row == 0 ? 0 : values->ends[row - 1];
	*length = (uint32) (values->ends[row] - start);
	return values->bytes.data + start;
}

#endif
