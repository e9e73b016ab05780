/*
 * column_values.h
 *		The values of one column of a row group while it is being written.
 *
 * Rows are positions: a NULL takes a position, with 0 or no bytes.  Everything
 * lies in the memory context that was current at column_values_init().
 */
#ifndef COLUMNAR_COLUMN_VALUES_H
#define COLUMNAR_COLUMN_VALUES_H

#include "column_type.h"

typedef struct ColumnValues
{
	const ColumnType *type;
	MemoryContext context;
	uint32 nrows;
	uint32 capacity;
	uint32 nnulls;
	uint8 *nulls; /* a byte per row, 1 = NULL; NULL while there is none */
	int64 *ints;  /* FORM_INT, FORM_FLOAT */
	/* FORM_NUMERIC, BYTES: value i is bytes[ends[i - 1] .. ends[i]); FIXED: bytes[i * length ..) */
	ByteBuffer bytes;
	uint64 *ends;
} ColumnValues;

extern void column_values_init(ColumnValues *values, const ColumnType *type);
/* Appends a value; detoasts, flattens and copies.  Memory used grows; see column_values_size. */
extern void column_values_append(ColumnValues *values, Datum value, bool isnull);
/* Value `row` as a datum allocated in the current context. */
extern Datum column_values_datum(const ColumnValues *values, uint32 row, bool *isnull);
/* The bytes of value `row` (FORM_NUMERIC, FIXED, BYTES). */
extern const char *column_values_bytes(const ColumnValues *values, uint32 row, uint32 *length);
/* Bytes that the values take in memory. */
extern uint64 column_values_size(const ColumnValues *values);
/* A new ColumnValues with rows order[0], order[1] ... order[nrows - 1] of the old. */
extern void column_values_select(ColumnValues *into, const ColumnValues *from, const uint32 *order,
								 uint32 nrows);
extern void column_values_free(ColumnValues *values);

#endif
