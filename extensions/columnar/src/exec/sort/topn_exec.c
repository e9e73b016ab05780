/*
 * topn_exec.c
 *		ColumnarTopN: the first rows by an order, from the batches of its children.
 *
 * For each batch: the first key is evaluated, and rows that cannot be among the best are left out;
 * for the rest the other keys are, and the best of all rows so far are found; only for rows of
 * the batch that are among these the columns to return are decoded, and stored.
 *
 * The children are told the bounds of the first key, if it is an integer column, each time
 * they become narrower, so that blocks and row groups without better rows are not read.
 * Where the column follows the order of the rows, they are read from the end that has the best.
 *
 * Expressions of the target list are evaluated for the rows that are returned; core's Sort
 * has cheap ones evaluated before, for all rows, and so meets errors of rows that nobody sees.
 *
 * Memory: the store keeps rows that were forgotten, until there are so many that the others are
 * moved to a new one.
 *
 * In a parallel query each process finds the best rows of its share.
 */
#include "exec/sort/topn_internal.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/memutils.h"

/* The store is renewed when it has so many times the rows that are wanted, and at least so many. */
#define STORE_FACTOR 4
#define STORE_ROWS_MIN 4096

static const CustomExecMethods topn_exec_methods;

static Node *
create_state(CustomScan *plan)
{
	ColumnarTopNState *state = (ColumnarTopNState *) newNode(sizeof(ColumnarTopNState),
															 T_CustomScanState);

	state->custom.methods = &topn_exec_methods;
	return (Node *) state;
}

/* ---- begin -------------------------------------------------------------------------------------- */

/* The column whose bounds the children may use: the first key, if it is one. */
static AttrNumber
find_limited_column(const Node *first)
{
	return IsA(first, Var) ? ((const Var *) first)->varattno : 0;
}

static void
init_keys(ColumnarTopNState *state, CustomScan *plan)
{
	state->key_sources = plan->custom_exprs;
	state->nkeys = list_length(state->key_sources);
	state->keys = vector_expression_compile_list(state->key_sources, &state->scope);
	state->key_types = sort_key_sources(state->key_sources,
										list_nth(plan->custom_private, TOPN_PRIVATE_OPERATORS),
										list_nth(plan->custom_private, TOPN_PRIVATE_NULLS));
	state->limited = find_limited_column(linitial(state->key_sources));
	state->rank = topn_rank_create(state->nkeys, state->key_types, state->bound);
}

/* The columns that the target list asks for. */
static void
init_columns(ColumnarTopNState *state, CustomScan *plan)
{
	List *numbers = output_columns_find(plan->scan.plan.targetlist);
	VectorKey *types = palloc0(sizeof(VectorKey) * Max(list_length(numbers), 1));
	ListCell *cell;

	state->columns = palloc0(sizeof(OutputColumn) * Max(list_length(numbers), 1));
	foreach(cell, numbers)
	{
		OutputColumn *column = &state->columns[state->ncolumns];

		column->number = lfirst_int(cell);
		column->buffer = vector_buffer_create();
		types[state->ncolumns++] = output_column_type(plan, column->number);
	}
	state->store = vector_store_create(state->ncolumns, types);
	state->spare = vector_store_create(state->ncolumns, types);
}

static void
begin(CustomScanState *node, EState *estate, int eflags)
{
	ColumnarTopNState *state = (ColumnarTopNState *) node;
	CustomScan *plan = (CustomScan *) node->ss.ps.plan;
	List *numbers = list_nth(plan->custom_private, TOPN_PRIVATE_NUMBERS);
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	MemoryContext caller;

	state->context = AllocSetContextCreate(estate->es_query_cxt, "columnar top n",
										   ALLOCSET_DEFAULT_SIZES);
	batch_reader_init(&state->reader, node, 0, list_nth(plan->custom_private, TOPN_PRIVATE_COLUMNS),
					  eflags);
	if (list_nth_int(numbers, TOPN_NUMBER_BACKWARD))
		batch_reader_turn(&state->reader);
	batch_source_init_scope(&state->scope, node, slot->tts_tupleDescriptor, state->context);
	memset(slot->tts_isnull, true, slot->tts_tupleDescriptor->natts);
	state->bound = (uint32) list_nth_int(numbers, TOPN_NUMBER_BOUND);
	state->limit = (Size) work_mem * 1024;
	caller = MemoryContextSwitchTo(state->context);
	init_keys(state, plan);
	init_columns(state, plan);
	MemoryContextSwitchTo(caller);
}

/* ---- input -------------------------------------------------------------------------------------- */

/* Moves the rows that are not forgotten to the other store. */
static void
renew_store(ColumnarTopNState *state)
{
	VectorStore *old = state->store;
	Vector **vectors = palloc(sizeof(Vector *) * Max(state->ncolumns, 1));
	uint16 selection[BLOCK_ROWS];
	uint32 nrows;
	const uint32 *rows = topn_rank_rows(state->rank, &nrows);

	for (uint32 i = 0; i < BLOCK_ROWS; i++)
		selection[i] = (uint16) i;
	for (uint32 first = 0; first < nrows; first += BLOCK_ROWS)
	{
		uint32 n = Min(BLOCK_ROWS, nrows - first);

		for (int i = 0; i < state->ncolumns; i++)
		{
			OutputColumn *column = &state->columns[i];

			vector_store_gather(old, i, rows + first, NULL, n, column->buffer, &column->vector);
			vectors[i] = &column->vector;
		}
		vector_store_append(state->spare, vectors, selection, n);
	}
	topn_rank_renumber(state->rank);
	vector_store_reset(old);
	state->store = state->spare;
	state->spare = old;
}

static bool
is_store_full(const ColumnarTopNState *state)
{
	uint32 stored = vector_store_count(state->store);
	uint32 nrows;

	topn_rank_rows(state->rank, &nrows);
	if (stored > Max(STORE_FACTOR * state->bound, STORE_ROWS_MIN))
		return true;
	return stored > 2 * nrows && vector_store_memory(state->store) > state->limit;
}

/* Stores the columns of the chosen rows of the batch. */
static void
store_rows(ColumnarTopNState *state, const VectorInput *input, uint32 nchosen)
{
	Vector *vectors = palloc(sizeof(Vector) * Max(state->ncolumns, 1));
	Vector **columns = palloc(sizeof(Vector *) * Max(state->ncolumns, 1));

	for (int i = 0; i < state->ncolumns; i++)
	{
		columns[i] = &vectors[i];
		input->batch->get_column(input->batch, input->attributes[state->columns[i].number - 1],
								 columns[i]);
	}
	vector_store_append(state->store, columns, state->chosen, nchosen);
	state->stored += nchosen;
	if (is_store_full(state))
		renew_store(state);
}

/* Tells the children which rows are of no use. */
static void
tell_bounds(ColumnarTopNState *state)
{
	BatchLimit limit = {0};

	if (state->limited != 0 && topn_rank_bounds(state->rank, &limit.low, &limit.high, &limit.nulls))
		batch_reader_limit(&state->reader, state->limited, &limit);
}

static void
take_batch(ColumnarTopNState *state, VectorInput input)
{
	Vector **keys = palloc(sizeof(Vector *) * state->nkeys);
	uint32 nchosen;

	keys[0] = vector_expression_evaluate(state->keys[0], &input);
	input.nselected = topn_rank_filter(state->rank, keys[0], input.selection, input.nselected,
									   state->survivors);
	if (input.nselected == 0)
		return;
	input.selection = state->survivors;
	for (int i = 1; i < state->nkeys; i++)
		keys[i] = vector_expression_evaluate(state->keys[i], &input);
	nchosen = topn_rank_add(state->rank, keys, input.selection, input.nselected,
							vector_store_count(state->store), state->chosen);
	if (nchosen > 0)
		store_rows(state, &input, nchosen);
	tell_bounds(state);
}

static void
read_input(ColumnarTopNState *state)
{
	ExprContext *econtext = state->custom.ss.ps.ps_ExprContext;
	VectorInput input;

	while (batch_reader_next(&state->reader, &input))
	{
		MemoryContext caller;

		CHECK_FOR_INTERRUPTS();
		ResetExprContext(econtext);
		caller = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
		take_batch(state, input);
		MemoryContextSwitchTo(caller);
	}
}

/* ---- output ------------------------------------------------------------------------------------- */

static void
sort_rows(ColumnarTopNState *state)
{
	MemoryContext caller = MemoryContextSwitchTo(state->context);

	state->order = topn_rank_sort(state->rank, &state->nrows);
	state->next = state->first_gathered = state->ngathered = 0;
	state->emitting = true;
	MemoryContextSwitchTo(caller);
}

/* Makes vectors of the next rows. */
static void
gather_rows(ColumnarTopNState *state)
{
	state->first_gathered = state->next;
	state->ngathered = Min(BLOCK_ROWS, state->nrows - state->next);
	for (int i = 0; i < state->ncolumns; i++)
	{
		OutputColumn *column = &state->columns[i];

		vector_store_gather(state->store, i, state->order + state->next, NULL, state->ngathered,
							column->buffer, &column->vector);
	}
}

static TupleTableSlot *
execute(CustomScanState *node)
{
	ColumnarTopNState *state = (ColumnarTopNState *) node;
	TupleTableSlot *slot;

	if (!state->emitting)
	{
		read_input(state);
		sort_rows(state);
	}
	if (state->next >= state->nrows)
		return NULL;
	if (state->next >= state->first_gathered + state->ngathered)
		gather_rows(state);
	slot = output_row_store(node, node->ss.ps.ps_ExprContext, state->columns, state->ncolumns,
							state->next++ - state->first_gathered);
	return node->ss.ps.ps_ProjInfo ? ExecProject(node->ss.ps.ps_ProjInfo) : slot;
}

/* ---- the rest of the node ----------------------------------------------------------------------- */

static void
rescan(CustomScanState *node)
{
	ColumnarTopNState *state = (ColumnarTopNState *) node;

	for (int i = 0; i < state->nkeys; i++)
		vector_expression_reset(state->keys[i]);
	topn_rank_reset(state->rank);
	vector_store_reset(state->store);
	if (state->order != NULL)
		pfree(state->order);
	state->order = NULL;
	state->emitting = false;
	batch_reader_rescan(&state->reader, node);
}

static void
end(CustomScanState *node)
{
	ColumnarTopNState *state = (ColumnarTopNState *) node;

	batch_reader_end(&state->reader);
	MemoryContextDelete(state->context);
}

static const CustomExecMethods topn_exec_methods = {
	.CustomName = "ColumnarTopN",
	.BeginCustomScan = begin,
	.ExecCustomScan = execute,
	.EndCustomScan = end,
	.ReScanCustomScan = rescan,
	.ExplainCustomScan = topn_explain,
};

const CustomScanMethods topn_scan_methods = {
	.CustomName = "ColumnarTopN",
	.CreateCustomScanState = create_state,
};
