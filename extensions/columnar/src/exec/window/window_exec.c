/*
 * window_exec.c
 *		ColumnarWindow: window functions of one window clause, from sorted batches.
 *
 * Batches of the child come sorted by partition and order.  Neighbours are compared to find where
 * partitions and peers begin; rows are stored, and functions take them.  When enough rows are there
 * whose results are known, functions compute these for up to 1024 rows at a time, and the rows go
 * up with them.  See window_internal.h.
 *
 * A condition on the results that the planner took from the query above is a filter here; if
 * there is one partition and the condition stays false after its first row, nothing more is
 * read.
 *
 * Memory: rows of a partition, or peers, if a function waits for the last of them; the planner leaves
 * larger partitions to core.  Two ExprContexts: the node's own is for the batch at hand, which may
 * be in use longer than for one row that is returned.
 */
#include "exec/window/window_internal.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/memutils.h"

/* Entries of the keys: two neighbours in turn, and the last row of the batch before. */
#define ENTRY_LAST 2
#define ENTRIES 3

#define STARTS_MIN 1024

static const CustomExecMethods window_exec_methods;

static Node *
create_state(CustomScan *plan)
{
	ColumnarWindowState *state = (ColumnarWindowState *) newNode(sizeof(ColumnarWindowState),
																 T_CustomScanState);

	state->custom.methods = &window_exec_methods;
	return (Node *) state;
}

/* ---- begin -------------------------------------------------------------------------------------- */

static void
init_outputs(ColumnarWindowState *state, CustomScan *plan)
{
	List *users = list_concat_copy(plan->scan.plan.targetlist, plan->scan.plan.qual);
	ListCell *cell;

	state->outputs = palloc0(sizeof(OutputColumn) * Max(state->ncolumns, 1));
	foreach(cell, output_columns_find(users))
	{
		AttrNumber number = lfirst_int(cell);
		OutputColumn *column = &state->outputs[state->noutputs];

		/* the others are functions */
		if (number > state->ncolumns)
			continue;
		column->number = number;
		column->buffer = vector_buffer_create();
		state->noutputs++;
	}
	state->nstored = state->noutputs;
}

static void
init_keys(ColumnarWindowState *state, CustomScan *plan)
{
	List *operators = list_nth(plan->custom_private, WINDOW_PRIVATE_OPERATORS);
	List *nulls = list_nth(plan->custom_private, WINDOW_PRIVATE_NULLS);

	state->nkeys = list_length(operators);
	state->key_sources = list_copy_head(plan->custom_exprs, state->nkeys);
	state->key_expressions = vector_expression_compile_list(state->key_sources, &state->scope);
	state->key_types = sort_key_sources(state->key_sources, operators, nulls);
	state->keys = palloc0(sizeof(SortKey) * Max(state->nkeys, 1));
	for (int i = 0; i < state->nkeys; i++)
	{
		sort_key_init(&state->keys[i], &state->key_types[i]);
		sort_key_reserve(&state->keys[i], state->context, ENTRIES);
	}
}

/* So many of the last rows does lag() look at. */
static uint32
find_history(const ColumnarWindowState *state)
{
	uint32 history = 0;

	for (int i = 0; i < state->nfunctions; i++)
		if (state->functions[i].kind == WINDOW_LAG && state->functions[i].offset > 0 &&
			state->functions[i].offset <= BLOCK_ROWS)
			history = Max(history, (uint32) state->functions[i].offset);
	return state->delay == WINDOW_DELAY_PARTITION ? 0 : history;
}

static void
init_functions(ColumnarWindowState *state, CustomScan *plan)
{
	List *arguments = list_copy_tail(plan->custom_exprs, state->nkeys);
	List *functions = list_nth(plan->custom_private, WINDOW_PRIVATE_FUNCTIONS);
	ListCell *cell;

	state->functions = palloc0(sizeof(WindowFunction) * Max(list_length(functions), 1));
	foreach(cell, functions)
	{
		WindowFunction *function = &state->functions[state->nfunctions++];
		const WindowFunc *source = lfirst_node(WindowFunc, cell);
		int n = list_length(source->args);

		window_function_init(state, function, source, list_copy_head(arguments, n));
		arguments = list_copy_tail(arguments, n);
		state->delay = Max(state->delay,
						   window_find_delay(function->kind, function->offset, state->frame));
	}
	state->history = find_history(state);
}

static void
init_stores(ColumnarWindowState *state, CustomScan *plan)
{
	VectorKey *types = palloc0(sizeof(VectorKey) * Max(state->nstored, 1));

	for (int i = 0; i < state->noutputs; i++)
		types[i] = output_column_type(plan, state->outputs[i].number);
	for (int i = 0; i < state->nfunctions; i++)
		if (state->functions[i].column >= state->noutputs)
			types[state->functions[i].column] = vector_key_of(
				linitial(state->functions[i].source->args));
	state->store = vector_store_create(state->nstored, types);
	state->spare = vector_store_create(state->nstored, types);
	state->vectors = palloc(sizeof(Vector *) * Max(state->nstored, 1));
	state->buffers = palloc(sizeof(VectorBuffer *) * Max(state->nstored, 1));
	for (int i = 0; i < state->nstored; i++)
	{
		state->vectors[i] = palloc(sizeof(Vector));
		state->buffers[i] = vector_buffer_create();
	}
}

static void
begin(CustomScanState *node, EState *estate, int eflags)
{
	ColumnarWindowState *state = (ColumnarWindowState *) node;
	CustomScan *plan = (CustomScan *) node->ss.ps.plan;
	List *numbers = list_nth(plan->custom_private, WINDOW_PRIVATE_NUMBERS);
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	MemoryContext caller;

	state->context = AllocSetContextCreate(estate->es_query_cxt, "columnar window",
										   ALLOCSET_DEFAULT_SIZES);
	batch_reader_init(&state->reader, node, 0,
					  list_nth(plan->custom_private, WINDOW_PRIVATE_COLUMNS), eflags);
	batch_source_init_scope(&state->scope, node, slot->tts_tupleDescriptor, state->context);
	memset(slot->tts_isnull, true, slot->tts_tupleDescriptor->natts);
	state->output = CreateExprContext(estate);
	if (node->ss.ps.ps_ProjInfo != NULL)
		node->ss.ps.ps_ProjInfo->pi_exprContext = state->output;
	state->ncolumns = list_nth_int(numbers, WINDOW_NUMBER_COLUMNS);
	state->npartition = list_nth_int(numbers, WINDOW_NUMBER_PARTITION);
	state->frame = list_nth_int(numbers, WINDOW_NUMBER_FRAME);
	state->stops = list_nth_int(numbers, WINDOW_NUMBER_STOP);

	caller = MemoryContextSwitchTo(state->context);
	state->last_values = AllocSetContextCreate(state->context, "columnar window's last row",
											   ALLOCSET_SMALL_SIZES);
	state->spare_values = AllocSetContextCreate(state->context, "columnar window's last row",
												ALLOCSET_SMALL_SIZES);
	state->results = AllocSetContextCreate(state->context, "columnar window's results",
										   ALLOCSET_DEFAULT_SIZES);
	init_outputs(state, plan);
	init_keys(state, plan);
	init_functions(state, plan);
	init_stores(state, plan);
	MemoryContextSwitchTo(caller);
	state->place.partition = state->place.peers = -1;
}

/* ---- where partitions and peers begin ----------------------------------------------------------- */

/* Marks rows that differ from the one before, by numbers at their positions. */
static void
mark_ints(const Vector *vector, const uint16 *selection, uint32 n, bool *marks)
{
	for (uint32 i = 1; i < n; i++)
	{
		bool null_before = vector_is_null(vector, selection[i - 1]);
		bool null = vector_is_null(vector, selection[i]);

		marks[i] |= null_before != null ||
					(!null && vector->ints[selection[i - 1]] != vector->ints[selection[i]]);
	}
}

/* The same of any vector. */
static void
mark_values(SortKey *key, const Vector *vector, const uint16 *selection, uint32 n, bool *marks)
{
	bool coded = vector->form == VECTOR_CODES;

	sort_key_take(key, 0, vector, selection[0]);
	for (uint32 i = 1; i < n; i++)
	{
		uint32 entry = i & 1;

		sort_key_take(key, entry, vector, selection[i]);
		if (marks[i])
			continue;
		if (coded && !key->nulls[0] && !key->nulls[1] &&
			vector->codes[selection[i - 1]] == vector->codes[selection[i]])
			continue;
		marks[i] = sort_key_compare(key, entry, entry ^ 1) != 0;
	}
}

static void
mark_key(ColumnarWindowState *state, SortKey *key, const Vector *vector, bool *marks)
{
	const uint16 *selection = state->input.selection;
	uint32 n = state->input.nselected;

	if (state->has_last)
	{
		sort_key_take(key, 0, vector, selection[0]);
		marks[0] |= sort_key_compare(key, 0, ENTRY_LAST) != 0;
	}
	if (vector->form == VECTOR_INT && vector->exceptions == NULL && key->is_default &&
		(key->form == SORT_WORD || key->type.form == FORM_NUMERIC))
		mark_ints(vector, selection, n, marks);
	else
		mark_values(key, vector, selection, n, marks);
}

/* Keeps the keys of the batch's last row. */
static void
keep_last(ColumnarWindowState *state, Vector *const *keys)
{
	MemoryContext old = state->last_values;
	MemoryContext caller = MemoryContextSwitchTo(state->spare_values);

	for (int i = 0; i < state->nkeys; i++)
	{
		sort_key_take(&state->keys[i], ENTRY_LAST, keys[i],
					  state->input.selection[state->input.nselected - 1]);
		sort_key_copy(&state->keys[i], ENTRY_LAST);
	}
	MemoryContextSwitchTo(caller);
	MemoryContextReset(old);
	state->last_values = state->spare_values;
	state->spare_values = old;
	state->has_last = true;
}

static void
mark_boundaries(ColumnarWindowState *state)
{
	Vector **keys = palloc(sizeof(Vector *) * Max(state->nkeys, 1));
	uint32 n = state->input.nselected;

	memset(state->begins_partition, false, n);
	state->begins_partition[0] = !state->has_last;
	for (int i = 0; i < state->nkeys; i++)
	{
		keys[i] = vector_expression_evaluate(state->key_expressions[i], &state->input);
		if (i == state->npartition)
			memcpy(state->begins_peers, state->begins_partition, n);
		mark_key(state, &state->keys[i], keys[i],
				 i < state->npartition ? state->begins_partition : state->begins_peers);
	}
	if (state->nkeys == state->npartition)
		memcpy(state->begins_peers, state->begins_partition, n);
	keep_last(state, keys);
}

/* ---- input -------------------------------------------------------------------------------------- */

static bool
read_batch(ColumnarWindowState *state)
{
	ExprContext *econtext = state->custom.ss.ps.ps_ExprContext;
	MemoryContext caller;

	CHECK_FOR_INTERRUPTS();
	ResetExprContext(econtext);
	if (state->ended || !batch_reader_next(&state->reader, &state->input))
		return false;
	caller = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	state->position = 0;
	mark_boundaries(state);
	for (int i = 0; i < state->nfunctions; i++)
	{
		WindowFunction *function = &state->functions[i];

		for (int argument = 0; argument < function->narguments; argument++)
			function->values[argument] = vector_expression_evaluate(function->arguments[argument],
																	&state->input);
	}
	MemoryContextSwitchTo(caller);
	state->has_input = true;
	return true;
}

static void
add_start(ColumnarWindowState *state, WindowStarts *starts, uint32 row)
{
	if (starts->count == starts->capacity)
	{
		starts->capacity = Max(2 * starts->capacity, STARTS_MIN);
		if (starts->rows == NULL)
			starts->rows = MemoryContextAllocHuge(state->context,
												  sizeof(uint32) * starts->capacity);
		else
			starts->rows = repalloc_huge(starts->rows, sizeof(uint32) * (Size) starts->capacity);
	}
	starts->rows[starts->count++] = row;
}

/* Stores the columns of rows up to this index of the selection. */
static void
store_rows(ColumnarWindowState *state, uint32 to)
{
	Vector *vectors = palloc(sizeof(Vector) * Max(state->noutputs, 1));
	Vector **columns = palloc(sizeof(Vector *) * Max(state->nstored, 1));
	const VectorInput *input = &state->input;

	for (int i = 0; i < state->nfunctions; i++)
		if (state->functions[i].column >= 0)
			columns[state->functions[i].column] = state->functions[i].values[0];
	for (int i = 0; i < state->noutputs; i++)
	{
		columns[i] = &vectors[i];
		input->batch->get_column(input->batch, input->attributes[state->outputs[i].number - 1],
								 columns[i]);
	}
	vector_store_append(state->store, columns, input->selection + state->position,
						to - state->position);
}

/* Takes the rows of the input up to this index of the selection. */
static void
take_rows(ColumnarWindowState *state, uint32 to)
{
	MemoryContext caller = MemoryContextSwitchTo(
		state->custom.ss.ps.ps_ExprContext->ecxt_per_tuple_memory);
	uint32 row = vector_store_count(state->store);

	for (uint32 i = state->position; i < to; i++, row++)
	{
		if (state->begins_partition[i])
			add_start(state, &state->partitions, row);
		if (state->begins_peers[i])
			add_start(state, &state->peers, row);
		state->groups[i] = state->partitions.count - 1;
	}
	store_rows(state, to);
	for (int i = 0; i < state->nfunctions; i++)
		window_function_take(state, &state->functions[i], state->position, to);
	state->position = to;
	MemoryContextSwitchTo(caller);
}

/* The first row from which on others may wait, when there are enough; false: there is none. */
static bool
find_cut(const ColumnarWindowState *state, uint32 *cut)
{
	uint32 pending = vector_store_count(state->store) - state->first;
	uint32 n = state->input.nselected;
	uint32 from = state->position;

	*cut = n;
	if (pending < BLOCK_ROWS)
		from += BLOCK_ROWS - pending;
	for (uint32 i = from; i < n; i++)
	{
		if (state->delay == WINDOW_DELAY_NONE ||
			(state->delay == WINDOW_DELAY_PEERS ? state->begins_peers[i]
												: state->begins_partition[i]))
		{
			*cut = i;
			return true;
		}
	}
	return false;
}

/* Reads until there are rows to return; false: no more. */
static bool
fill_store(ColumnarWindowState *state)
{
	bool enough = false;

	while (!enough && (state->has_input || read_batch(state)))
	{
		uint32 cut;

		enough = find_cut(state, &cut);
		take_rows(state, cut);
		state->has_input = cut < state->input.nselected;
	}
	state->ended = !enough;
	state->memory = Max(state->memory, vector_store_memory(state->store));
	for (int i = 0; i < state->nfunctions; i++)
		window_function_close(&state->functions[i]);
	state->next = state->first;
	state->nplaced = state->shown = 0;
	state->emitting = vector_store_count(state->store) > state->first;
	return state->emitting;
}

/* ---- output ------------------------------------------------------------------------------------- */

/* The rows were returned; the last ones stay if lag() may look at them. */
static void
empty_store(ColumnarWindowState *state)
{
	VectorStore *old = state->store;
	uint32 count = vector_store_count(old);
	uint32 kept = Min(state->history, count);

	if (kept > 0)
	{
		uint16 selection[BLOCK_ROWS];
		uint32 rows[BLOCK_ROWS];

		for (uint32 i = 0; i < kept; i++)
		{
			selection[i] = (uint16) i;
			rows[i] = count - kept + i;
		}
		for (int i = 0; i < state->nstored; i++)
			vector_store_gather(old, i, rows, NULL, kept, state->buffers[i], state->vectors[i]);
		vector_store_append(state->spare, state->vectors, selection, kept);
		state->store = state->spare;
		state->spare = old;
	}
	vector_store_reset(old);
	state->first = kept;
	state->partitions.count = state->peers.count = 0;
	state->place.partition = state->place.peers = -1;
	for (int i = 0; i < state->nfunctions; i++)
		window_function_forget(&state->functions[i]);
	MemoryContextReset(state->results);
	state->emitting = false;
}

/* Does the row begin the next of them? */
static bool
is_start(const WindowStarts *starts, int32 number, uint32 row)
{
	return number + 1 < (int32) starts->count && starts->rows[number + 1] == row;
}

/* Makes the results of the next rows; false if all were returned. */
static bool
place_rows(ColumnarWindowState *state)
{
	WindowPlace *place = &state->place;
	uint32 n = Min(BLOCK_ROWS, vector_store_count(state->store) - state->next);

	for (uint32 i = 0; i < n; i++)
	{
		uint32 row = state->next + i;

		if (is_start(&state->partitions, place->partition, row))
		{
			place->partition++;
			place->number = place->dense_rank = 0;
		}
		if (is_start(&state->peers, place->peers, row))
		{
			place->peers++;
			place->rank = place->number + 1;
			place->dense_rank++;
		}
		place->number++;
		state->places[i] = *place;
		state->numbers[i] = row;
	}
	state->next += n;
	state->nplaced = n;
	state->shown = 0;
	if (n == 0)
		return false;
	for (int i = 0; i < state->noutputs; i++)
		vector_store_gather(state->store, i, state->numbers, NULL, n, state->outputs[i].buffer,
							&state->outputs[i].vector);
	for (int i = 0; i < state->nfunctions; i++)
		window_function_place(state, &state->functions[i]);
	return true;
}

/* Puts a row into the scan slot. */
static TupleTableSlot *
store_row(ColumnarWindowState *state, uint32 row)
{
	TupleTableSlot *slot = output_row_store(&state->custom, state->output, state->outputs,
											state->noutputs, row);
	MemoryContext caller = MemoryContextSwitchTo(state->output->ecxt_per_tuple_memory);

	for (int i = 0; i < state->nfunctions; i++)
		slot->tts_values[state->ncolumns + i] = window_function_value(
			state, &state->functions[i], row, &slot->tts_isnull[state->ncolumns + i]);
	MemoryContextSwitchTo(caller);
	return slot;
}

/* Does the row in the scan slot pass?  If not, nothing else may. */
static bool
passes_filter(ColumnarWindowState *state)
{
	if (ExecQual(state->custom.ss.ps.qual, state->output))
		return true;
	InstrCountFiltered1(&state->custom, 1);
	if (state->stops)
	{
		state->ended = true;
		state->has_input = false;
		empty_store(state);
	}
	return false;
}

static TupleTableSlot *
execute(CustomScanState *node)
{
	ColumnarWindowState *state = (ColumnarWindowState *) node;

	for (;;)
	{
		TupleTableSlot *slot;

		CHECK_FOR_INTERRUPTS();
		if (!state->emitting && (state->ended || !fill_store(state)))
			return NULL;
		if (state->shown == state->nplaced && !place_rows(state))
		{
			empty_store(state);
			continue;
		}
		slot = store_row(state, state->shown++);
		if (node->ss.ps.qual != NULL && !passes_filter(state))
			continue;
		return node->ss.ps.ps_ProjInfo ? ExecProject(node->ss.ps.ps_ProjInfo) : slot;
	}
}

/* ---- the rest of the node ----------------------------------------------------------------------- */

static void
rescan(CustomScanState *node)
{
	ColumnarWindowState *state = (ColumnarWindowState *) node;

	for (int i = 0; i < state->nkeys; i++)
		vector_expression_reset(state->key_expressions[i]);
	for (int i = 0; i < state->nfunctions; i++)
		for (int argument = 0; argument < state->functions[i].narguments; argument++)
			vector_expression_reset(state->functions[i].arguments[argument]);
	vector_store_reset(state->store);
	empty_store(state);
	state->has_input = state->has_last = state->ended = false;
	state->nplaced = state->shown = 0;
	batch_reader_rescan(&state->reader, node);
}

static void
end(CustomScanState *node)
{
	ColumnarWindowState *state = (ColumnarWindowState *) node;

	batch_reader_end(&state->reader);
	MemoryContextDelete(state->context);
}

static const CustomExecMethods window_exec_methods = {
	.CustomName = "ColumnarWindow",
	.BeginCustomScan = begin,
	.ExecCustomScan = execute,
	.EndCustomScan = end,
	.ReScanCustomScan = rescan,
	.ExplainCustomScan = window_explain,
};

const CustomScanMethods window_scan_methods = {
	.CustomName = "ColumnarWindow",
	.CreateCustomScanState = create_state,
};
