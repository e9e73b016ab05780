/*
 * vector_leaf.c
 *		Where values come from: columns of the batch, values that do not depend on rows,
 *		and the ExprState of what has no kernel.
 *
 * An ExprState sees one row at a time in the scope's slot, with the columns that it needs
 * and an ExprContext of our own, whose per-tuple memory is reset after each row: results
 * are copied into the node's memory.  It is made without JIT compilation, which would
 * cost more than the rows that come here are worth.
 */
#include "exec/expression/vector_expression_internal.h"

#include "access/sysattr.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "utils/memutils.h"

#include "store/catalog/group_catalog.h"
#include "store/codec/numeric_codec.h"

/* ---- columns ------------------------------------------------------------------------------------ */

void
vector_leaf_column(const VectorInput *input, AttrNumber attribute, Vector *into)
{
	if (input->attributes != NULL)
		attribute = input->attributes[attribute - 1];
	input->batch->get_column(input->batch, attribute, into);
}

static void
evaluate_column(VectorExpression *node, VectorInput *input)
{
	const VectorShared *shared = node->scope->shared;
	AttrNumber attribute = ((Var *) node->expression)->varattno;

	if (shared->entries != NULL)
		node->result = *shared->entries;
	else
		vector_leaf_column(input, attribute, &node->result);
	/* the block's type goes away with its row group */
	node->result.type = &node->type;
}

VectorExpression *
vector_leaf_compile_column(Var *var, VectorScope *scope)
{
	VectorExpression *node = vector_node_create((Expr *) var, scope, NIL);

	node->evaluate = evaluate_column;
	node->is_cheap = true;
	node->is_shared = true;
	node->is_reused = true;
	return node;
}

/* ---- relabelled --------------------------------------------------------------------------------- */

/* The same bits read as another type: int4 as oid. */
static void
evaluate_relabelled_ints(VectorExpression *node, VectorInput *input)
{
	const Vector *from = vector_node_values(node->args[0], input);
	Vector *result = vector_node_begin(node, VECTOR_INT);

	for (uint32 i = 0; i < BLOCK_ROWS; i++)
		node->ints[i] = column_type_to_int(&node->type,
										   column_type_from_int(from->type, from->ints[i]));
	result->nulls = from->nulls;
	result->constant = from->constant;
}

static void
evaluate_relabelled(VectorExpression *node, VectorInput *input)
{
	node->result = *vector_node_values(node->args[0], input);
	node->result.type = &node->type;
}

static void
decide_relabelled(VectorExpression *node, VectorInput *input, uint8 *truth)
{
	memcpy(truth, vector_node_truth(node->args[0], input), BLOCK_ROWS);
}

/* A value of one type taken for one of another, without a change to its bits; NULL if forms differ. */
VectorExpression *
vector_leaf_compile_relabel(Expr *expression, Expr *argument, VectorScope *scope)
{
	VectorExpression *node = vector_node_create(expression, scope, list_make1(argument));
	const ColumnType *from = &node->args[0]->type;

	if (from->form != node->type.form || from->length != node->type.length ||
		from->byval != node->type.byval || node->holds_datums != node->args[0]->holds_datums)
		return NULL;
	node->is_cheap = node->args[0]->is_cheap;
	if (from->form == FORM_INT && from->is_unsigned != node->type.is_unsigned)
		node->evaluate = evaluate_relabelled_ints;
	else
	{
		node->evaluate = evaluate_relabelled;
		if (node->type.typid == BOOLOID)
			node->decide = decide_relabelled;
	}
	return node;
}

/* ---- values that do not depend on rows ---------------------------------------------------------- */

/* The value in all rows of the result. */
static void
broadcast(VectorExpression *node)
{
	Vector *result = &node->result;

	switch (result->form)
	{
		case VECTOR_INT:
			for (uint32 i = 1; i < BLOCK_ROWS; i++)
				node->ints[i] = node->ints[0];
			break;
		case VECTOR_WIDE:
			for (uint32 i = 1; i < BLOCK_ROWS; i++)
				node->wides[i] = node->wides[0];
			break;
		case VECTOR_FLOAT:
			for (uint32 i = 1; i < BLOCK_ROWS; i++)
				node->floats[i] = node->floats[0];
			break;
		case VECTOR_BYTES:
			break;
		default:
			for (uint32 i = 1; i < BLOCK_ROWS; i++)
				node->datums[i] = node->datums[0];
			break;
	}
	if (result->form == VECTOR_BYTES || result->exceptions != NULL)
	{
		for (uint32 i = 1; i < BLOCK_ROWS; i++)
		{
			node->starts[i] = node->starts[0];
			node->lengths[i] = node->lengths[0];
		}
	}
	if (result->nulls != NULL)
		memset(node->nulls, 0xff, sizeof(uint64) * BLOCK_WORDS);
	if (result->exceptions != NULL)
		memset(node->exceptions, 0xff, sizeof(uint64) * BLOCK_WORDS);
	result->constant = result->nulls == NULL;
}

/* A numeric constant of more than 64 bits but not more than 128 is better a wide one. */
static void
widen_exception(VectorExpression *node)
{
	Vector *result = &node->result;
	int128 mantissa;
	int32 scale;

	if (result->exceptions == NULL ||
		!numeric_to_scaled(node->starts[0], node->lengths[0], &mantissa, &scale))
		return;
	vector_node_begin(node, VECTOR_WIDE)->scale = scale;
	node->wides[0] = mantissa;
}

static void
evaluate_value(VectorExpression *node, VectorInput *input)
{
	vector_leaf_prepare_scalar(node);
	vector_leaf_evaluate_scalar(node, &(VectorInput){.batch = NULL,
													 .selection = &(const uint16){0},
													 .nselected = 1,
													 .number = input->number});
	if (node->type.form == FORM_NUMERIC && !node->holds_datums)
		widen_exception(node);
	broadcast(node);
	node->partial = false;
}

VectorExpression *
vector_leaf_compile_value(Expr *expression, VectorScope *scope)
{
	VectorExpression *node = vector_node_create(expression, scope, NIL);

	node->evaluate = evaluate_value;
	node->row_free = true;
	node->is_cheap = true;
	node->is_shared = true;
	node->can_fail = !IsA(expression, Const) && !IsA(expression, Param);
	return node;
}

/* ---- ExprState ---------------------------------------------------------------------------------- */

struct VectorScalar
{
	ExprState *state;
	int ncolumns;
	VectorExpression **columns;
	bool whole; /* it looks at the row as such, or its ctid */
};

static VectorExpression *
find_column(Index varno, AttrNumber attribute, VectorScope *scope)
{
	Form_pg_attribute form = TupleDescAttr(scope->slot->tts_tupleDescriptor, attribute - 1);

	return vector_node_compile(
		(Expr *) makeVar(varno, attribute, form->atttypid, form->atttypmod, form->attcollation, 0),
		scope);
}

static void
collect_columns(VectorScalar *scalar, Expr *expression, VectorScope *scope)
{
	TupleDesc descriptor = scope->slot->tts_tupleDescriptor;
	Bitmapset *offsets = NULL;
	int offset = -1;
	bool all;

	pull_varattnos((Node *) expression, scope->varno, &offsets);
	all = bms_is_member(-FirstLowInvalidHeapAttributeNumber, offsets);
	scalar->columns = palloc(sizeof(VectorExpression *) * Max(descriptor->natts, 1));
	if (all)
		for (AttrNumber i = 1; i <= descriptor->natts; i++)
			offsets = bms_add_member(offsets, i - FirstLowInvalidHeapAttributeNumber);
	while ((offset = bms_next_member(offsets, offset)) >= 0)
	{
		AttrNumber attribute = offset + FirstLowInvalidHeapAttributeNumber;

		if (attribute <= 0)
			scalar->whole = true;
		else if (!TupleDescAttr(descriptor, attribute - 1)->attisdropped)
			scalar->columns[scalar->ncolumns++] = find_column(scope->varno, attribute, scope);
	}
	bms_free(offsets);
}

/* ExecInitExpr() without JIT. */
static ExprState *
make_state(Expr *expression, PlanState *parent)
{
	int flags = parent->state->es_jit_flags;
	ExprState *state;

	parent->state->es_jit_flags = 0;
	state = ExecInitExpr(expression, parent);
	parent->state->es_jit_flags = flags;
	return state;
}

void
vector_leaf_prepare_scalar(VectorExpression *node)
{
	VectorScope *scope = node->scope;
	MemoryContext caller;

	if (node->scalar != NULL)
		return;
	caller = MemoryContextSwitchTo(scope->context);
	node->scalar = palloc0(sizeof(VectorScalar));
	collect_columns(node->scalar, node->expression, scope);
	node->scalar->state = make_state(node->expression, scope->parent);
	if (scope->shared->econtext == NULL)
		scope->shared->econtext = CreateExprContext(scope->parent->state);
	MemoryContextSwitchTo(caller);
}

/* Where the expression looks for its columns. */
static void
set_tuple(ExprContext *econtext, const VectorScope *scope)
{
	if (scope->varno == OUTER_VAR)
		econtext->ecxt_outertuple = scope->slot;
	else if (scope->varno == INNER_VAR)
		econtext->ecxt_innertuple = scope->slot;
	else
		econtext->ecxt_scantuple = scope->slot;
}

/* Puts the columns of a row into the slot; their datums in the current context. */
static void
fill_slot(const VectorExpression *node, VectorInput *input, uint32 row)
{
	const VectorScalar *scalar = node->scalar;
	TupleTableSlot *slot = node->scope->slot;

	if (scalar->whole)
	{
		/* column 0 is none: the row's place alone, and NULLs for columns that were dropped */
		Bitmapset *none = bms_make_singleton(0);

		row_batch_store(input->batch->rows, row, none, slot);
		bms_free(none);
	}
	ExecClearTuple(slot);
	for (int i = 0; i < scalar->ncolumns; i++)
	{
		VectorExpression *column = scalar->columns[i];
		AttrNumber attribute = ((Var *) column->expression)->varattno;

		slot->tts_values[attribute - 1] = vector_datum(&column->result, row,
													   &slot->tts_isnull[attribute - 1]);
	}
	ExecStoreVirtualTuple(slot);
	if (scalar->whole)
		row_number_to_tid(row_batch_row_number(input->batch->rows, row), &slot->tts_tid);
}

void
vector_leaf_evaluate_scalar(VectorExpression *node, VectorInput *input)
{
	VectorScope *scope = node->scope;
	ExprContext *econtext;
	MemoryContext caller = CurrentMemoryContext;
	const Vector *column = NULL;
	bool recalls;

	vector_leaf_prepare_scalar(node);
	econtext = scope->shared->econtext;
	for (int i = 0; i < node->scalar->ncolumns; i++)
		vector_node_values(node->scalar->columns[i], input);
	vector_value_begin(node, -1);
	set_tuple(econtext, scope);
	if (node->scalar->ncolumns == 1 && !node->scalar->whole)
		column = &node->scalar->columns[0]->result;
	recalls = column != NULL && vector_recall_begin(node, column);
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		Datum value;
		bool isnull;

		if (recalls && vector_recall_find(node, column, row, &value, &isnull))
		{
			vector_value_store(node, input, row, value, isnull);
			continue;
		}
		ResetExprContext(econtext);
		MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
		if (node->scalar->ncolumns > 0 || node->scalar->whole)
			fill_slot(node, input, row);
		value = ExecEvalExpr(node->scalar->state, econtext, &isnull);
		vector_value_store(node, input, row, value, isnull);
		if (recalls)
			vector_recall_keep(node, column, row, value, isnull);
	}
	MemoryContextSwitchTo(caller);
	ResetExprContext(econtext);
	if (column != NULL)
		vector_recall_end(node, input->nselected);
	if (node->type.form == FORM_NUMERIC && node->result.scale < 0)
		node->result.scale = 0;
	node->partial = true;
}

void
vector_leaf_decide_scalar(VectorExpression *node, VectorInput *input, uint8 *truth)
{
	node->values_memo.known = false;
	vector_leaf_evaluate_scalar(node, input);
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];

		truth[row] = vector_is_null(&node->result, row) ? TRUTH_NULL
														: (node->ints[row] != 0) * TRUTH_TRUE;
	}
}

VectorExpression *
vector_leaf_compile_scalar(Expr *expression, VectorScope *scope)
{
	VectorExpression *node = vector_node_create(expression, scope, NIL);

	node->evaluate = vector_leaf_evaluate_scalar;
	node->can_fail = true;
	node->is_scalar = true;
	return node;
}
