/*
 * output_rows.c
 *		Rows of a node that makes vectors of its columns: see output_rows.h.
 */
#include "postgres.h"

#include "exec/batch/output_rows.h"

#include "access/sysattr.h"
#include "executor/executor.h"
#include "optimizer/optimizer.h"

List *
output_columns_find(List *expressions)
{
	Bitmapset *offsets = NULL;
	List *numbers = NIL;
	int offset = -1;

	pull_varattnos((Node *) expressions, INDEX_VAR, &offsets);
	while ((offset = bms_next_member(offsets, offset)) >= 0)
		numbers = lappend_int(numbers, offset + FirstLowInvalidHeapAttributeNumber);
	bms_free(offsets);
	return numbers;
}

VectorKey
output_column_type(const CustomScan *plan, AttrNumber number)
{
	return vector_key_of(
		(Node *) list_nth_node(TargetEntry, plan->custom_scan_tlist, number - 1)->expr);
}

TupleTableSlot *
output_row_store(CustomScanState *node, ExprContext *econtext, const OutputColumn *columns,
				 int ncolumns, uint32 row)
{
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	MemoryContext caller;

	ResetExprContext(econtext);
	caller = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	ExecClearTuple(slot);
	for (int i = 0; i < ncolumns; i++)
	{
		int column = columns[i].number - 1;

		slot->tts_values[column] = vector_datum(&columns[i].vector, row, &slot->tts_isnull[column]);
	}
	ExecStoreVirtualTuple(slot);
	MemoryContextSwitchTo(caller);
	econtext->ecxt_scantuple = slot;
	return slot;
}

static bool
fetch_batch(BatchSource *source, OutputColumn *columns, int ncolumns, OutputCursor *cursor)
{
	VectorBatch *batch = source->next_batch(source);

	cursor->position = 0;
	cursor->has_batch = batch != NULL;
	for (int i = 0; batch != NULL && i < ncolumns; i++)
		batch->get_column(batch, columns[i].number, &columns[i].vector);
	return cursor->has_batch;
}

TupleTableSlot *
output_row_next(BatchSource *source, OutputColumn *columns, int ncolumns, OutputCursor *cursor)
{
	CustomScanState *node = &source->custom;
	TupleTableSlot *slot;

	if ((!cursor->has_batch || cursor->position >= source->batch.nselected) &&
		!fetch_batch(source, columns, ncolumns, cursor))
		return NULL;
	slot = output_row_store(node, node->ss.ps.ps_ExprContext, columns, ncolumns,
							source->batch.selection[cursor->position++]);
	return node->ss.ps.ps_ProjInfo ? ExecProject(node->ss.ps.ps_ProjInfo) : slot;
}
