/*
 * output_rows.h
 *		Rows of a node that makes vectors of its columns: one by one, in the scan slot.
 */
#ifndef COLUMNAR_OUTPUT_ROWS_H
#define COLUMNAR_OUTPUT_ROWS_H

#include "exec/batch/batch_source.h"
#include "exec/collection/vector_store.h"
#include "exec/keys/vector_groups.h"

/* A column of the node that somebody above asks for. */
typedef struct OutputColumn
{
	AttrNumber number;
	bool is_made; /* for the batch at hand */
	Vector vector;
	VectorBuffer *buffer;
} OutputColumn;

/* Where the next row is in a BatchSource's batch; all zero: there is none. */
typedef struct OutputCursor
{
	bool has_batch;
	uint32 position; /* an index into its selection */
} OutputCursor;

/* The columns of the node that expressions name: integers, ascending. */
extern List *output_columns_find(List *expressions);

/* What a column of the node is to be kept as. */
extern VectorKey output_column_type(const CustomScan *plan, AttrNumber number);

/* Puts a row of the vectors into the scan slot, in the memory of `econtext`; other columns stay as they are. */
extern TupleTableSlot *output_row_store(CustomScanState *node, ExprContext *econtext,
										const OutputColumn *columns, int ncolumns, uint32 row);

/* The next row of the node's batches, as it returns it; NULL at the end. */
extern TupleTableSlot *
output_row_next(BatchSource *source, OutputColumn *columns, int ncolumns, OutputCursor *cursor);

#endif
