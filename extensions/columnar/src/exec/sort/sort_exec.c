/*
 * sort_exec.c
 *		ColumnarSort: the rows of its children in an order, as batches or as rows.
 *
 * All rows are read into a store, whose columns are those that are asked for above, and the keys;
 * then the numbers of its rows are sorted, and columns gathered in that order.  If the store
 * outgrows work_mem, what there is goes to a file, sorted, and files are merged in the end.
 *
 * If only the first rows of each partition are wanted, those that cannot be among them are not stored (sort_first.c), and
 * no column but the keys is decoded for them; now and then those that cannot be any more are taken out.
 *
 * Expressions of the target list are evaluated for the rows that are returned.
 *
 * In a parallel query each process sorts its share.
 */
#include "exec/sort/sort_internal.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/memutils.h"

/* Fewer rows, if they take less memory, are not written to a file of their own. */
#define RUN_ROWS_MIN (4 * BLOCK_ROWS)
#define RUN_BYTES_MIN ((Size) 1024 * 1024)

/* Fewer rows are not looked through for those that are not wanted. */
#define TIDY_ROWS_MIN (4 * BLOCK_ROWS)

static const CustomExecMethods sort_exec_methods;

static VectorBatch *next_batch(BatchSource *source);

static Node *
create_state(CustomScan *plan)
{
	ColumnarSortState *state = (ColumnarSortState *) newNode(sizeof(ColumnarSortState),
															 T_CustomScanState);

	state->source.custom.methods = &sort_exec_methods;
	state->source.next_batch = next_batch;
	return (Node *) state;
}

/* ---- begin -------------------------------------------------------------------------------------- */

static void
add_column(ColumnarSortState *state, AttrNumber number)
{
	OutputColumn *column = &state->columns[state->ncolumns];

	column->number = number;
	column->buffer = vector_buffer_create();
	if (number > 0)
		state->by_number[number - 1] = state->ncolumns;
	state->ncolumns++;
}

/* The columns that are asked for. */
static void
init_outputs(ColumnarSortState *state, CustomScan *plan)
{
	int natts = list_length(plan->custom_scan_tlist);
	ListCell *cell;

	state->columns = palloc0(sizeof(OutputColumn) *
							 Max(natts + list_length(plan->custom_exprs), 1));
	state->by_number = palloc(sizeof(int) * Max(natts, 1));
	for (int i = 0; i < natts; i++)
		state->by_number[i] = -1;
	foreach(cell, output_columns_find(plan->scan.plan.targetlist))
		add_column(state, lfirst_int(cell));
	state->noutputs = state->ncolumns;
}

/* The store's column with the key: one that is asked for, or another one. */
static int
find_key_column(ColumnarSortState *state, const Node *expression)
{
	const Var *var = (const Var *) expression;

	if (IsA(var, Var) && state->by_number[var->varattno - 1] >= 0)
		return state->by_number[var->varattno - 1];
	add_column(state, 0);
	return state->ncolumns - 1;
}

static void
init_keys(ColumnarSortState *state, CustomScan *plan)
{
	state->key_sources = plan->custom_exprs;
	state->nkeys = list_length(state->key_sources);
	state->expressions = vector_expression_compile_list(state->key_sources, &state->scope);
	state->key_types = sort_key_sources(state->key_sources,
										list_nth(plan->custom_private, SORT_PRIVATE_OPERATORS),
										list_nth(plan->custom_private, SORT_PRIVATE_NULLS));
	state->keys = palloc0(sizeof(SortKey) * state->nkeys);
	state->key_columns = palloc(sizeof(int) * state->nkeys);
	for (int i = 0; i < state->nkeys; i++)
	{
		sort_key_init(&state->keys[i], &state->key_types[i]);
		state->key_columns[i] = find_key_column(state, list_nth(state->key_sources, i));
		if (state->keys[i].form == SORT_DATUM && state->keys[i].type.form != FORM_NUMERIC)
			state->row_memory += SORT_DATUM_MEMORY;
	}
}

static VectorKey *
collect_types(const ColumnarSortState *state, const CustomScan *plan)
{
	VectorKey *types = palloc0(sizeof(VectorKey) * Max(state->ncolumns, 1));

	for (int i = 0; i < state->nkeys; i++)
		types[state->key_columns[i]] = state->key_types[i].value;
	for (int i = 0; i < state->noutputs; i++)
		types[i] = output_column_type(plan, state->columns[i].number);
	return types;
}

/* What keeps rows apart of which only the first of each partition are wanted. */
static void
init_first(ColumnarSortState *state, CustomScan *plan, const VectorKey *types)
{
	List *numbers = list_nth(plan->custom_private, SORT_PRIVATE_NUMBERS);
	SortBound bound = {.partition = list_nth_int(numbers, SORT_NUMBER_PARTITION),
					   .rows = list_nth_int(numbers, SORT_NUMBER_ROWS),
					   .peers = list_nth_int(numbers, SORT_NUMBER_PEERS)};

	if (bound.rows == 0)
		return;
	state->first = sort_first_create(&bound, state->nkeys, state->key_types, state->limit);
	state->spare = vector_store_create(state->ncolumns, types);
	state->tidy_rows = TIDY_ROWS_MIN;
	if (list_nth_int(numbers, SORT_NUMBER_BACKWARD))
		batch_reader_turn(&state->reader);
}

static void get_column(VectorBatch *batch, AttrNumber number, Vector *into);

static void
begin(CustomScanState *node, EState *estate, int eflags)
{
	ColumnarSortState *state = (ColumnarSortState *) node;
	CustomScan *plan = (CustomScan *) node->ss.ps.plan;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	MemoryContext caller;
	VectorKey *types;

	state->context = AllocSetContextCreate(estate->es_query_cxt, "columnar sort",
										   ALLOCSET_DEFAULT_SIZES);
	batch_reader_init(&state->reader, node, 0, list_nth(plan->custom_private, SORT_PRIVATE_COLUMNS),
					  eflags);
	batch_source_init_scope(&state->scope, node, slot->tts_tupleDescriptor, state->context);
	memset(slot->tts_isnull, true, slot->tts_tupleDescriptor->natts);
	state->limit = (Size) work_mem * 1024;
	state->row_memory = SORT_ORDER_MEMORY;
	caller = MemoryContextSwitchTo(state->context);
	init_outputs(state, plan);
	init_keys(state, plan);
	types = collect_types(state, plan);
	state->store = vector_store_create(state->ncolumns, types);
	init_first(state, plan, types);
	state->merge = sort_merge_create(state->ncolumns, types, state->nkeys, state->keys,
									 state->key_columns);
	MemoryContextSwitchTo(caller);
	state->source.batch.selection = state->selection;
	state->source.batch.owner = state;
	state->source.batch.get_column = get_column;
}

/* ---- input -------------------------------------------------------------------------------------- */

/* Adds the batch to the store, but for rows that cannot be among the first of their partition, if no others are wanted. */
static void
store_batch(ColumnarSortState *state, VectorInput *input)
{
	Vector **keys = palloc(sizeof(Vector *) * state->nkeys);
	Vector *vectors = palloc(sizeof(Vector) * Max(state->ncolumns, 1));
	Vector **columns = palloc0(sizeof(Vector *) * Max(state->ncolumns, 1));

	for (int i = 0; i < state->nkeys; i++)
	{
		if (state->first == NULL && state->key_columns[i] < state->noutputs)
			continue;
		keys[i] = vector_expression_evaluate(state->expressions[i], input);
		columns[state->key_columns[i]] = keys[i];
	}
	if (state->first != NULL)
	{
		input->nselected = sort_first_filter(state->first, keys, input->selection, input->nselected,
											 state->selection);
		input->selection = state->selection;
		if (input->nselected == 0)
			return;
	}
	for (int i = 0; i < state->noutputs; i++)
	{
		columns[i] = &vectors[i];
		input->batch->get_column(input->batch, input->attributes[state->columns[i].number - 1],
								 columns[i]);
	}
	vector_store_append(state->store, columns, input->selection, input->nselected);
}

/* Moves those of some rows of the store that are wanted to the spare one. */
static void
move_rows(ColumnarSortState *state, uint32 from, uint32 n, VectorBuffer **buffers, Vector *vectors)
{
	Vector **keys = palloc(sizeof(Vector *) * state->nkeys);
	Vector **columns = palloc(sizeof(Vector *) * Max(state->ncolumns, 1));
	uint16 wanted[BLOCK_ROWS];
	uint32 rows[BLOCK_ROWS];

	for (uint32 i = 0; i < n; i++)
		rows[i] = from + i;
	for (int i = 0; i < state->ncolumns; i++)
	{
		vector_store_gather(state->store, i, rows, NULL, n, buffers[i], &vectors[i]);
		columns[i] = &vectors[i];
	}
	for (int i = 0; i < state->nkeys; i++)
		keys[i] = columns[state->key_columns[i]];
	n = sort_first_select(state->first, keys, n, wanted);
	vector_store_append(state->spare, columns, wanted, n);
}

/* Takes rows out of the store that are not among the first of their partition any more. */
static void
tidy_store(ColumnarSortState *state)
{
	VectorStore *old = state->store;
	uint32 nrows = vector_store_count(old);
	VectorBuffer **buffers = palloc(sizeof(VectorBuffer *) * Max(state->ncolumns, 1));
	Vector *vectors = palloc(sizeof(Vector) * Max(state->ncolumns, 1));

	for (int i = 0; i < state->ncolumns; i++)
		buffers[i] = vector_buffer_create();
	for (uint32 from = 0; from < nrows; from += BLOCK_ROWS)
		move_rows(state, from, Min(BLOCK_ROWS, nrows - from), buffers, vectors);
	vector_store_reset(old);
	state->store = state->spare;
	state->spare = old;
	state->tidy_rows = Max(2 * vector_store_count(state->store), TIDY_ROWS_MIN);
}

static Size
count_memory(const ColumnarSortState *state)
{
	Size memory = state->first != NULL ? sort_first_memory(state->first) : 0;

	return memory + vector_store_memory(state->store) +
		   state->row_memory * vector_store_count(state->store);
}

/* Do the rows take more memory than they may? */
static bool
is_store_full(const ColumnarSortState *state)
{
	Size memory = count_memory(state);

	return memory > state->limit &&
		   (memory > RUN_BYTES_MIN || vector_store_count(state->store) >= RUN_ROWS_MIN);
}

/* Are there rows in the store that are not wanted any more, so many that it is time to look for them? */
static bool
is_untidy(const ColumnarSortState *state, uint32 rows)
{
	uint32 count = vector_store_count(state->store);

	return state->first != NULL && count > sort_first_count(state->first) &&
		   (count > rows || is_store_full(state));
}

static void
sort_store(ColumnarSortState *state)
{
	MemoryContext caller = MemoryContextSwitchTo(state->context);

	state->memory = Max(state->memory, count_memory(state));
	state->order = sort_order_rows(state->store, state->nkeys, state->keys, state->key_columns);
	state->next = 0;
	MemoryContextSwitchTo(caller);
}

static void
forget_order(ColumnarSortState *state)
{
	if (state->order != NULL)
		pfree(state->order);
	state->order = NULL;
}

/* Writes the store's rows to a file, and empties it. */
static void
write_run(ColumnarSortState *state)
{
	sort_store(state);
	sort_merge_add(state->merge, state->store, state->order);
	forget_order(state);
	vector_store_reset(state->store);
}

static void
read_input(ColumnarSortState *state)
{
	ExprContext *econtext = state->source.custom.ss.ps.ps_ExprContext;
	VectorInput input;

	while (batch_reader_next(&state->reader, &input))
	{
		MemoryContext caller;

		CHECK_FOR_INTERRUPTS();
		ResetExprContext(econtext);
		caller = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
		store_batch(state, &input);
		if (is_untidy(state, state->tidy_rows))
			tidy_store(state);
		MemoryContextSwitchTo(caller);
		if (is_store_full(state))
			write_run(state);
	}
	if (is_untidy(state, 0))
		tidy_store(state);
	if (sort_merge_count(state->merge) == 0)
	{
		sort_store(state);
		state->phase = SORT_PHASE_MEMORY;
		return;
	}
	if (vector_store_count(state->store) > 0)
		write_run(state);
	state->nruns = sort_merge_count(state->merge);
	state->phase = SORT_PHASE_FILES;
}

/* ---- batches ------------------------------------------------------------------------------------ */

/* Who asks for the column soon looks at its bytes, which lie anywhere in memory. */
static void
prefetch_bytes(const Vector *vector, uint32 n)
{
	if (vector->form != VECTOR_BYTES)
		return;
	for (uint32 i = 0; i < n; i++)
		__builtin_prefetch(vector->starts[i]);
}

static void
get_column(VectorBatch *batch, AttrNumber number, Vector *into)
{
	ColumnarSortState *state = batch->owner;
	int index = state->by_number[number - 1];
	OutputColumn *column = &state->columns[index];

	Assert(index >= 0 && index < state->noutputs);
	if (!column->is_made)
	{
		vector_store_gather(state->from, index, state->rows, NULL, batch->nrows, column->buffer,
							&column->vector);
		prefetch_bytes(&column->vector, batch->nrows);
	}
	column->is_made = true;
	*into = column->vector;
}

/* The next rows of the result; how many, 0 at the end. */
static uint32
find_rows(ColumnarSortState *state)
{
	uint32 *order;
	uint32 n;

	if (state->phase == SORT_PHASE_FILES)
	{
		state->from = sort_merge_next(state->merge, &order, &n);
		state->rows = order;
		return n;
	}
	n = Min(BLOCK_ROWS, vector_store_count(state->store) - state->next);
	state->from = state->store;
	state->rows = state->order + state->next;
	state->next += n;
	return n;
}

static VectorBatch *
next_batch(BatchSource *source)
{
	ColumnarSortState *state = (ColumnarSortState *) source;
	uint32 n;

	if (state->phase == SORT_PHASE_READ)
		read_input(state);
	n = state->phase == SORT_PHASE_END ? 0 : find_rows(state);
	if (n == 0)
	{
		state->phase = SORT_PHASE_END;
		return NULL;
	}
	for (uint32 i = 0; i < n; i++)
		state->selection[i] = (uint16) i;
	for (int i = 0; i < state->noutputs; i++)
		state->columns[i].is_made = false;
	source->batch.nrows = source->batch.nselected = n;
	return &source->batch;
}

/* ---- rows --------------------------------------------------------------------------------------- */

static TupleTableSlot *
execute(CustomScanState *node)
{
	ColumnarSortState *state = (ColumnarSortState *) node;

	return output_row_next(&state->source, state->columns, state->noutputs, &state->cursor);
}

/* ---- the rest of the node ----------------------------------------------------------------------- */

/* Are the rows still there, and the same?  Files can be read but once. */
static bool
can_return_again(const ColumnarSortState *state)
{
	return state->source.custom.ss.ps.chgParam == NULL && state->order != NULL;
}

static void
rescan(CustomScanState *node)
{
	ColumnarSortState *state = (ColumnarSortState *) node;

	state->cursor.has_batch = false;
	state->next = 0;
	if (can_return_again(state))
	{
		state->phase = SORT_PHASE_MEMORY;
		return;
	}
	for (int i = 0; i < state->nkeys; i++)
		vector_expression_reset(state->expressions[i]);
	forget_order(state);
	vector_store_reset(state->store);
	sort_merge_reset(state->merge);
	if (state->first != NULL)
		sort_first_reset(state->first);
	state->phase = SORT_PHASE_READ;
	batch_reader_rescan(&state->reader, node);
}

static void
end(CustomScanState *node)
{
	ColumnarSortState *state = (ColumnarSortState *) node;

	sort_merge_reset(state->merge);
	batch_reader_end(&state->reader);
	MemoryContextDelete(state->context);
}

static const CustomExecMethods sort_exec_methods = {
	.CustomName = "ColumnarSort",
	.BeginCustomScan = begin,
	.ExecCustomScan = execute,
	.EndCustomScan = end,
	.ReScanCustomScan = rescan,
	.ExplainCustomScan = sort_explain,
};

const CustomScanMethods sort_scan_methods = {
	.CustomName = "ColumnarSort",
	.CreateCustomScanState = create_state,
};
