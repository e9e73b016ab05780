/*
 * vector_append.h
 *		From the vectors of a batch to the values of a column that is being written.
 */
#ifndef COLUMNAR_VECTOR_APPEND_H
#define COLUMNAR_VECTOR_APPEND_H

#include "store/value/column_values.h"
#include "exec/vector/vector.h"

/*
 * Appends the values at these positions, as column_values_append() would their datums.  The vector is of the
 * column's type, or of one that it may be taken for without a change of its datums.
 */
extern void
vector_append(const Vector *vector, const uint16 *positions, uint32 nrows, ColumnValues *into);

/* About how many bytes they will have there, not counting numbers. */
extern uint64 vector_count_bytes(const Vector *vector, const uint16 *positions, uint32 nrows);

#endif
