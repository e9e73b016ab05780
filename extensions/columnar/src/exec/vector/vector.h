/*
 * vector.h
 *		Up to 1024 values of an expression: what the executor's kernels read and write.
 *
 * A vector is indexed by the row's position in its batch, like the column blocks it is
 * made from, and never compacted: which rows matter says the selection that goes with
 * it.  Values at positions that are not selected, or NULL, are undefined but may be read:
 * kernels compute whole blocks where that is faster, and must not raise errors for them.
 *
 * Numerics as mantissas all have the vector's scale, but some rows ("padded") may be shown
 * with fewer digits: the 0 of CASE WHEN x THEN 1.50 ELSE 0 END.  Whoever looks at values need
 * not care; whoever makes numerics, or tells their display scale, must.  For rows that are
 * NULL or exceptions the bit means nothing, and a constant vector has none.
 *
 * A vector of a column borrows the arrays of its block; one that an expression made
 * belongs to the expression and is overwritten by the next batch.
 */
#ifndef COLUMNAR_VECTOR_H
#define COLUMNAR_VECTOR_H

#include "store/codec/column_block.h"
#include "store/rows/row_scan.h"

#include "nodes/execnodes.h"

/*
 * Before a function whose loops run over whole blocks of BLOCK_ROWS values: compiled for
 * several generations of processors.  A constant number of rounds lets gcc -O2 use vector
 * instructions, and no array ends before BLOCK_ROWS.
 */
#define VECTOR_KERNEL FORMAT_VECTORISED

typedef enum VectorForm
{
	VECTOR_INT, /* ints[]: types passed by value but floats (as column_type_to_int()), numerics with scale >= 0 */
	VECTOR_WIDE,  /* wides[]: a numeric's int128 mantissas, with scale */
	VECTOR_FLOAT, /* floats[]: float8, and float4 (exact) */
	VECTOR_BYTES, /* starts[], lengths[]: what follows the varlena header; FORM_FIXED: the value */
	VECTOR_CODES, /* codes[] into a dictionary of such bytes */
	VECTOR_DATUM  /* datums[]: anything, made by an expression; valid until the next batch */
} VectorForm;

#define VECTOR_BITS_UNKNOWN (-1)

typedef struct Vector
{
	const ColumnType *type;
	VectorForm form;
	int32 scale;		 /* numeric as VECTOR_INT or VECTOR_WIDE: digits after the point; else -1 */
	bool constant;		 /* the same value (not NULL) in all rows */
	int8 bits;			 /* VECTOR_INT: -2^bits <= value < 2^bits; see vector_bits() */
	const uint64 *nulls; /* bit set = NULL; no pointer: no NULLs */
	const uint64 *exceptions; /* numerics: bit set = in starts[]/lengths[] instead; or no pointer */
	const uint64 *padded;	  /* mantissas: bit set = shown with padded_scale; or no pointer */
	int32 padded_scale;		  /* < scale: the digits behind are zeroes */
	const int64 *ints;
	const int128 *wides;
	const double *floats;
	const char *const *starts;
	const uint32 *lengths;
	const uint32 *codes;
	Dictionary *dictionary;
	const Datum *datums;
} Vector;

/*
 * Up to 1024 rows that a node has for the node above it: of a table, or of a join.  Columns are
 * made when they are first asked for.
 */
typedef struct VectorBatch VectorBatch;
struct VectorBatch
{
	uint32 nrows; /* positions are below */
	uint32 nselected;
	uint16 *selection; /* positions of the rows to look at, ascending; room for BLOCK_ROWS */
	/* a column (1, 2 ...) of the batch; lives until the next batch */
	void (*get_column)(VectorBatch *batch, AttrNumber column, Vector *into);
	RowBatch *rows; /* the table's rows, whose attributes are the columns; NULL of others */
	void *owner;	/* for get_column() */
};

/* Rows that an expression is evaluated for. */
typedef struct VectorInput
{
	VectorBatch *batch;
	const AttrNumber
		*attributes; /* of the batch, by attribute - 1 of the expression's; NULL: the same */
	const uint16 *selection; /* positions, ascending */
	uint32 nselected;
	uint64 number; /* differs from batch to batch: what is kept between calls belongs to one */
} VectorInput;

static inline bool
vector_bit(const uint64 *bits, uint32 row)
{
	return bits != NULL && ((bits[row >> 6] >> (row & 63)) & 1);
}

static inline bool
vector_is_null(const Vector *vector, uint32 row)
{
	return vector_bit(vector->nulls, row);
}

/* The type of values that are no column's. */
extern void vector_type_init(ColumnType *type, Oid typid, int32 typmod, Oid collation);

/* A table's batch; its selection is shared. */
extern void vector_batch_of_rows(VectorBatch *batch, RowBatch *rows);

/* The bytes of a row of VECTOR_BYTES or VECTOR_CODES, or of an exception. */
static inline const char *
vector_bytes(const Vector *vector, uint32 row, uint32 *length)
{
	if (vector->form == VECTOR_CODES)
	{
		uint32 code = vector->codes[row];

		*length = vector->dictionary->lengths[code];
		return vector->dictionary->starts[code];
	}
	*length = vector->lengths[row];
	return vector->starts[row];
}

/* Mantissa and display scale of a numeric that is a mantissa, no exception: VECTOR_INT or _WIDE. */
static inline int128
vector_shown(const Vector *vector, uint32 row, int32 *scale)
{
	int128 mantissa = vector->form == VECTOR_WIDE ? vector->wides[row] : (int128) vector->ints[row];

	*scale = vector->scale;
	if (vector_bit(vector->padded, row))
	{
		for (; *scale > vector->padded_scale; (*scale)--)
			mantissa /= 10;
	}
	return mantissa;
}

/* One value as a datum in the current memory context (dictionary entries: shared, do not free). */
extern Datum vector_datum(const Vector *vector, uint32 row, bool *isnull);

/*
 * So many bits hold all of the first nrows ints besides the sign (0 .. 63), NULLs and rows
 * that are not selected included: an upper bound, from which follows that sums and products
 * do not overflow.  Computed at the first call (one pass) and kept in *vector.
 */
extern int vector_bits(Vector *vector, uint32 nrows);

#endif
