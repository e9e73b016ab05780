/*
 * column_block.h
 *		1024 decoded values of a column: native arrays, a null bitmap, no datums.
 *
 * This is what decoding fills and what the executor computes on; rows are made
 * from it one datum at a time.  Arrays belong to the block and are reused by the
 * next decode; byte pointers point into the ChunkReader that decoded them and
 * are valid until it decodes another block.
 */
#ifndef COLUMNAR_COLUMN_BLOCK_H
#define COLUMNAR_COLUMN_BLOCK_H

#include "store/value/column_type.h"

typedef enum BlockForm
{
	BLOCK_INT,	 /* ints[]; with scale >= 0 a numeric's scaled mantissas */
	BLOCK_WIDE,	 /* wides[]: a numeric's int128 mantissas, with scale */
	BLOCK_FLOAT, /* floats[], also for float4 (exact) */
	BLOCK_BYTES, /* starts[], lengths[]: FORM_BYTES, FORM_FIXED, and numerics that are no scaled integers */
	BLOCK_CODES /* codes[] into dictionary, whose entries have bytes as in BLOCK_BYTES */
} BlockForm;

/* Distinct values of a chunk, in no promised order; shared by its blocks. */
typedef struct Dictionary
{
	uint64 serial; /* no other of the process has or had the same, as addresses do; never 0 */
	uint32 nentries;
	const char **starts;
	uint32 *lengths;
	Datum *datums; /* entries as datums, made at first use (0 until then); reader's context */
} Dictionary;

typedef struct ColumnBlock
{
	const ColumnType *type;
	BlockForm form;
	uint32 nrows;
	int32 scale;   /* FORM_NUMERIC as BLOCK_INT or BLOCK_WIDE: digits after the point; else -1 */
	bool constant; /* all rows that are not NULL are equal */
	bool has_nulls;
	bool has_exceptions;	   /* numerics: some rows are in starts/lengths instead */
	uint64 nulls[BLOCK_WORDS]; /* bit set = NULL; only if has_nulls */
	uint64
		exceptions[BLOCK_WORDS]; /* bit set = starts[]/lengths[] hold it; only if has_exceptions */
	int64 *ints;
	int128 *wides;
	double *floats;
	const char **starts;
	uint32 *lengths;
	uint32 *codes;
	Dictionary *dictionary;
	MemoryContext context; /* of the arrays, made when first needed */
} ColumnBlock;

extern void column_block_init(ColumnBlock *block, const ColumnType *type);

/* Make sure that the array for `form` exists (BLOCK_ROWS entries). */
extern void column_block_use(ColumnBlock *block, BlockForm form);

/* Row `row` as a datum in the current memory context (dictionary entries: shared, do not free). */
extern Datum column_block_datum(ColumnBlock *block, uint32 row, bool *isnull);

extern void column_block_free(ColumnBlock *block);

/* For a new dictionary, and for one whose entries were replaced. */
extern uint64 dictionary_next_serial(void);

static inline bool
column_block_is_null(const ColumnBlock *block, uint32 row)
{
	return block->has_nulls && (block->nulls[row >> 6] >> (row & 63)) & 1;
}

#endif
