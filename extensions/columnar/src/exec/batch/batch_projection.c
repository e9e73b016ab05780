/*
 * batch_projection.c
 *		Batches of what a node's target list computes of its batches: see batch_projection.h.
 *
 * Memory: expressions live as long as the query; what is computed lies in a context that the next batch
 * empties, or in the node's memory for a tuple.
 */
#include "exec/batch/batch_projection.h"

#include "executor/executor.h"
#include "utils/memutils.h"

typedef struct ProjectedColumn
{
	VectorExpression *expression;
	uint64 number; /* of the batch for which it was computed */
	const Vector *values;
} ProjectedColumn;

struct BatchProjection
{
	VectorBatch batch;
	BatchSource *source;
	MemoryContext values;
	VectorInput input; /* the node's batch */
	int ncolumns;
	uint16 selection[BLOCK_ROWS];
	ProjectedColumn columns[FLEXIBLE_ARRAY_MEMBER];
};

VectorExpression **
batch_projection_compile(BatchSource *source, MemoryContext context)
{
	CustomScanState *node = &source->custom;
	List *targets = node->ss.ps.plan->targetlist;
	VectorExpression **expressions = palloc(sizeof(VectorExpression *) *
											Max(list_length(targets), 1));
	VectorScope scope = {0};
	ListCell *cell;

	batch_source_init_scope(&scope, node, node->ss.ss_ScanTupleSlot->tts_tupleDescriptor, context);
	if (((Scan *) node->ss.ps.plan)->scanrelid > 0)
		scope.varno = ((Scan *) node->ss.ps.plan)->scanrelid;
	foreach(cell, targets)
		expressions[foreach_current_index(cell)] = vector_expression_compile(
			lfirst_node(TargetEntry, cell)->expr, &scope);
	return expressions;
}

static void
get_column(VectorBatch *batch, AttrNumber number, Vector *into)
{
	BatchProjection *projection = batch->owner;
	ProjectedColumn *column = &projection->columns[number - 1];

	if (column->number != projection->input.number)
	{
		MemoryContext caller = MemoryContextSwitchTo(projection->values);

		column->values = vector_expression_evaluate(column->expression, &projection->input);
		column->number = projection->input.number;
		MemoryContextSwitchTo(caller);
	}
	*into = *column->values;
}

BatchProjection *
batch_projection_create(BatchSource *source)
{
	int ncolumns = list_length(source->custom.ss.ps.plan->targetlist);
	BatchProjection *projection = palloc0(offsetof(BatchProjection, columns) +
										  sizeof(ProjectedColumn) * Max(ncolumns, 1));
	VectorExpression **expressions = batch_projection_compile(source, CurrentMemoryContext);

	for (int i = 0; i < ncolumns; i++)
		projection->columns[i].expression = expressions[i];
	projection->ncolumns = ncolumns;
	projection->source = source;
	projection->values = AllocSetContextCreate(CurrentMemoryContext, "columnar projected columns",
											   ALLOCSET_DEFAULT_SIZES);
	projection->batch.get_column = get_column;
	projection->batch.selection = projection->selection;
	projection->batch.owner = projection;
	return projection;
}

void
batch_projection_rescan(BatchProjection *projection)
{
	for (int i = 0; i < projection->ncolumns; i++)
		vector_expression_reset(projection->columns[i].expression);
}

VectorBatch *
batch_projection_next(BatchProjection *projection)
{
	BatchSource *source = projection->source;
	VectorInput *input = &projection->input;
	VectorBatch *batch;

	if (source->custom.ss.ps.chgParam != NULL)
		batch_projection_rescan(projection);
	MemoryContextReset(projection->values);
	ResetExprContext(source->custom.ss.ps.ps_ExprContext);
	batch = batch_source_read(source);
	if (batch == NULL)
		return NULL;
	input->batch = batch;
	input->selection = batch->selection;
	input->nselected = batch->nselected;
	input->number++;
	projection->batch.nrows = batch->nrows;
	projection->batch.nselected = batch->nselected;
	memcpy(projection->selection, batch->selection, sizeof(uint16) * batch->nselected);
	return &projection->batch;
}
