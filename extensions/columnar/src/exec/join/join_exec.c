/*
 * join_exec.c
 *		ColumnarJoin: a hash join whose sides and whose result are batches.
 *
 * The build side is read first: its keys go into a VectorJoinTable, the columns that are
 * needed later into a VectorStore.  Then each batch of the probe side is looked up, which is join_probe.c's.
 *
 * Memory: join_spill.c says what happens to build sides that are too large for it.
 */
#include "exec/join/join_internal.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/memutils.h"

#include "exec/batch/batch_offer.h"
#include "store/options/settings.h"

/* Fewer rows are not split, as nothing would be won. */
#define SPLIT_ROWS_MIN (2 * BLOCK_ROWS)

static const CustomExecMethods join_exec_methods;
static void limit_column(BatchSource *source, AttrNumber number, const BatchLimit *limit);
static void
filter_column(BatchSource *source, AttrNumber number, KeyFilter *filter, const KeyRate *next);
static uint32 narrow_to_keys(void *owner, Vector *values, uint16 *selection, uint32 n);
static VectorBatch *next_batch(BatchSource *source);

static Node *
create_state(CustomScan *plan)
{
	ColumnarJoinState *state = (ColumnarJoinState *) newNode(sizeof(ColumnarJoinState),
															 T_CustomScanState);

	state->source.custom.methods = &join_exec_methods;
	state->source.next_batch = next_batch;
	state->source.limit = limit_column;
	state->source.filter = filter_column;
	return (Node *) state;
}

/* ---- begin -------------------------------------------------------------------------------------- */

static void
init_keys(JoinSide *side, List *keys)
{
	ListCell *cell;

	side->keys = vector_expression_compile_list(keys, &side->scope);
	side->key_types = palloc(sizeof(VectorKey) * list_length(keys));
	side->key_values = palloc(sizeof(Vector *) * list_length(keys));
	side->key_sources = keys;
	foreach(cell, keys)
		side->key_types[foreach_current_index(cell)] = vector_key_of(lfirst(cell));
}

/* Which of the node's columns come from the side. */
static void
assign_columns(ColumnarJoinState *state, const List *columns, bool of_probe)
{
	ListCell *cell;

	foreach(cell, (List *) linitial(columns))
		if (lfirst_int(cell) != 0)
			state->columns[foreach_current_index(cell)].of_probe = of_probe;
}

/* The columns that rows of the node have. */
static void
init_outputs(ColumnarJoinState *state, CustomScan *plan)
{
	List *numbers = output_columns_find(plan->scan.plan.targetlist);
	ListCell *cell;

	state->outputs = palloc0(sizeof(OutputColumn) * Max(list_length(numbers), 1));
	foreach(cell, numbers)
		state->outputs[state->noutputs++].number = lfirst_int(cell);
}

/* The columns that are asked for after the keys: by conditions, and by who reads the result. */
static void
init_columns(ColumnarJoinState *state, CustomScan *plan, List *conditions)
{
	List *users = list_concat(list_copy(conditions), list_copy(plan->scan.plan.targetlist));
	ListCell *cell;

	state->ncolumns = list_length(plan->custom_scan_tlist);
	state->columns = palloc0(sizeof(JoinColumn) * Max(state->ncolumns, 1));
	assign_columns(state, list_nth(plan->custom_private, JOIN_PRIVATE_PROBE), true);
	assign_columns(state, list_nth(plan->custom_private, JOIN_PRIVATE_BUILD), false);
	foreach(cell, plan->custom_scan_tlist)
	{
		JoinColumn *column = &state->columns[foreach_current_index(cell)];

		column->key = vector_key_of((Node *) lfirst_node(TargetEntry, cell)->expr);
		column->buffer = vector_buffer_create();
		column_type_init(
			&column->type,
			TupleDescAttr(state->source.custom.ss.ss_ScanTupleSlot->tts_tupleDescriptor,
						  foreach_current_index(cell)));
	}
	foreach(cell, output_columns_find(users))
	{
		AttrNumber number = lfirst_int(cell);
		JoinColumn *column = &state->columns[number - 1];
		JoinSide *side = column->of_probe ? &state->probe : &state->build;

		column->index = state->nkeys + list_length(side->columns);
		side->columns = lappend_int(side->columns, number);
	}
	init_outputs(state, plan);
}

/* What is stored of the side's rows. */
static void
init_stored(const ColumnarJoinState *state, JoinSide *side)
{
	ListCell *cell;

	side->nstored = state->nkeys + list_length(side->columns);
	side->stored_types = palloc(sizeof(VectorKey) * side->nstored);
	side->file_attributes = palloc0(sizeof(AttrNumber) * Max(state->ncolumns, 1));
	side->file_keys = palloc(sizeof(Vector) * state->nkeys);
	memcpy(side->stored_types, side->key_types, sizeof(VectorKey) * state->nkeys);
	foreach(cell, side->columns)
	{
		const JoinColumn *column = &state->columns[lfirst_int(cell) - 1];

		side->stored_types[column->index] = column->key;
		side->file_attributes[lfirst_int(cell) - 1] = (AttrNumber) (column->index + 1);
	}
}

static void
begin(CustomScanState *node, EState *estate, int eflags)
{
	ColumnarJoinState *state = (ColumnarJoinState *) node;
	CustomScan *plan = (CustomScan *) node->ss.ps.plan;
	List *numbers = list_nth(plan->custom_private, JOIN_PRIVATE_NUMBERS);
	List *probe = list_nth(plan->custom_private, JOIN_PRIVATE_PROBE);
	List *build = list_nth(plan->custom_private, JOIN_PRIVATE_BUILD);
	int nkeys = list_nth_int(numbers, JOIN_NUMBER_KEYS);
	int nconditions = list_nth_int(numbers, JOIN_NUMBER_CONDITIONS);
	List *others = list_copy_tail(plan->custom_exprs, 2 * nkeys);
	List *conditions = list_copy_head(others, nconditions);
	List *filters = list_copy_tail(others, nconditions);
	TupleDesc columns = node->ss.ss_ScanTupleSlot->tts_tupleDescriptor;
	MemoryContext caller;

	state->kind = list_nth_int(numbers, JOIN_NUMBER_KIND);
	state->nkeys = nkeys;
	state->context = AllocSetContextCreate(estate->es_query_cxt, "columnar join",
										   ALLOCSET_DEFAULT_SIZES);
	batch_reader_init(&state->probe.reader, node, 0, probe, eflags);
	batch_reader_init(&state->build.reader, node, list_length(probe), build, eflags);
	batch_source_init_scope(&state->probe.scope, node, columns, state->context);
	batch_source_init_scope(&state->build.scope, node, columns, state->context);
	batch_source_init_scope(&state->scope, node, columns, state->context);

	caller = MemoryContextSwitchTo(state->context);
	init_keys(&state->probe, list_copy_head(plan->custom_exprs, nkeys));
	init_keys(&state->build, list_copy_head(list_copy_tail(plan->custom_exprs, nkeys), nkeys));
	init_columns(state, plan, others);
	if (conditions != NIL)
		state->conditions = vector_expression_compile_quals(conditions, &state->scope);
	if (filters != NIL)
		state->filters = vector_expression_compile_quals(filters, &state->scope);
	init_stored(state, &state->probe);
	init_stored(state, &state->build);
	state->store = vector_store_create(state->build.nstored, state->build.stored_types);
	state->table = vector_join_table_create(nkeys, state->build.key_types);
	state->zones = palloc0(sizeof(KeyZones *) * nkeys);
	state->filter.narrow = narrow_to_keys;
	state->filter.owner = state;
	state->filter.join = &state->rate;
	MemoryContextSwitchTo(caller);

	state->source.batch.selection = state->selection;
	state->source.batch.owner = state;
	state->source.batch.get_column = join_get_column;
	state->limit = get_hash_memory_limit();
	join_begin_parts(state);
	state->phase = JOIN_PHASE_BUILD;
}

/* ---- build -------------------------------------------------------------------------------------- */

/* The next rows of the side in a file. */
static bool
read_file(const ColumnarJoinState *state, JoinSide *side, VectorFile *file, VectorInput *input)
{
	VectorBatch *batch = vector_file_read(file);

	if (batch == NULL)
		return false;
	input->batch = batch;
	input->attributes = side->file_attributes;
	input->selection = batch->selection;
	input->nselected = batch->nselected;
	input->number = ++side->file_number;
	for (int i = 0; i < state->nkeys; i++)
	{
		side->key_values[i] = &side->file_keys[i];
		batch->get_column(batch, (AttrNumber) (i + 1), side->key_values[i]);
	}
	return true;
}

bool
join_next_input(ColumnarJoinState *state, JoinSide *side, VectorInput *input)
{
	ExprContext *econtext = state->source.custom.ss.ps.ps_ExprContext;
	const JoinPart *part = linitial(state->parts);
	VectorFile *file = side == &state->probe ? part->probe : part->build;
	MemoryContext caller;

	ResetExprContext(econtext);
	if (file != NULL)
		return read_file(state, side, file, input);
	if (!batch_reader_next(&side->reader, input))
		return false;
	caller = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	for (int i = 0; i < state->nkeys; i++)
		side->key_values[i] = vector_expression_evaluate(side->keys[i], input);
	MemoryContextSwitchTo(caller);
	return true;
}

Vector **
join_collect_columns(ColumnarJoinState *state, JoinSide *side, const VectorInput *input)
{
	Vector *vectors = palloc(sizeof(Vector) * side->nstored);
	Vector **columns = palloc(sizeof(Vector *) * side->nstored);
	int i = state->nkeys;
	ListCell *cell;

	memcpy(columns, side->key_values, sizeof(Vector *) * state->nkeys);
	foreach(cell, side->columns)
	{
		columns[i] = &vectors[i];
		input->batch->get_column(input->batch, input->attributes[lfirst_int(cell) - 1], columns[i]);
		i++;
	}
	return columns;
}

static void
add_build_batch(ColumnarJoinState *state, VectorInput *input)
{
	MemoryContext caller = MemoryContextSwitchTo(
		state->source.custom.ss.ps.ps_ExprContext->ecxt_per_tuple_memory);

	vector_join_table_add(state->table, state->build.key_values, input->selection,
						  input->nselected);
	vector_store_append(state->store, join_collect_columns(state, &state->build, input),
						input->selection, input->nselected);
	MemoryContextSwitchTo(caller);
}

bool
join_emits_build_rows(const ColumnarJoinState *state)
{
	return state->kind == JOIN_KIND_BUILD_OUTER || state->kind == JOIN_KIND_FULL ||
		   state->kind == JOIN_KIND_BUILD_SEMI || state->kind == JOIN_KIND_BUILD_ANTI;
}

bool
join_emits_unmatched_probe_rows(const ColumnarJoinState *state)
{
	return state->kind == JOIN_KIND_PROBE_OUTER || state->kind == JOIN_KIND_FULL ||
		   state->kind == JOIN_KIND_PROBE_ANTI;
}

/*
 * A row that the node above has no use for may be missing in either side: what an outer join
 * then returns in its place has a NULL in this column, which is of no use either.
 */
/*
 * A row that is left out may be missed as a partner: the other side's row then comes out with NULLs,
 * which must not be of use.
 */
static void
limit_column(BatchSource *source, AttrNumber number, const BatchLimit *limit)
{
	ColumnarJoinState *state = (ColumnarJoinState *) source;
	bool of_probe = state->columns[number - 1].of_probe;

	if (limit->nulls && (!of_probe || join_emits_build_rows(state)))
		return;
	batch_reader_limit(of_probe ? &state->probe.reader : &state->build.reader, number, limit);
}

/* The same of single keys, of which NULL is none. */
static void
filter_column(BatchSource *source, AttrNumber number, KeyFilter *filter, const KeyRate *next)
{
	ColumnarJoinState *state = (ColumnarJoinState *) source;

	if (state->columns[number - 1].of_probe)
		batch_reader_filter(&state->probe.reader, number, filter, &state->rate);
	else
		batch_reader_filter(&state->build.reader, number, filter, NULL);
}

/* A KeyFilter's: the rows that the table finds. */
static uint32
narrow_to_keys(void *owner, Vector *values, uint16 *selection, uint32 n)
{
	ColumnarJoinState *state = owner;
	uint32 rows[BLOCK_ROWS];

	return vector_join_table_list(state->table, &values, selection, n, selection, rows);
}

/* Is a key a column of the probe side, so that nodes below can be told about it? */
static AttrNumber
get_probe_column(const ColumnarJoinState *state, int key)
{
	const Var *var = list_nth(state->probe.key_sources, key);

	return IsA(var, Var) ? var->varattno : 0;
}

/* Where the keys are, before the table is finished. */
static void
note_zones(ColumnarJoinState *state)
{
	for (int i = 0; i < state->nkeys; i++)
	{
		if (!columnar_enable_key_filters || get_probe_column(state, i) == 0)
			continue;
		if (state->zones[i] == NULL)
			state->zones[i] = MemoryContextAlloc(state->context, sizeof(KeyZones));
		vector_join_table_zones(state->table, i, state->zones[i]);
	}
}

/* Probe rows without a partner are of no use: tells the probe side about the keys. */
static void
limit_probe_side(ColumnarJoinState *state)
{
	state->rate = state->filter.rate = (KeyRate){0};
	for (int i = 0; i < state->nkeys; i++)
	{
		AttrNumber column = get_probe_column(state, i);
		BatchLimit limit = {.zones = columnar_enable_key_filters ? state->zones[i] : NULL};

		if (column != 0 && vector_join_table_range(state->table, i, &limit.low, &limit.high))
			batch_reader_limit(&state->probe.reader, column, &limit);
	}
	if (columnar_enable_key_filters && state->nkeys == 1 && get_probe_column(state, 0) != 0)
		batch_reader_filter(&state->probe.reader, get_probe_column(state, 0), &state->filter,
							&state->rate);
}

static void
begin_marks(ColumnarJoinState *state)
{
	Size words = vector_store_count(state->store) / 64 + 1;

	if (state->marks != NULL)
		pfree(state->marks);
	state->marks = MemoryContextAllocExtended(state->context, words * sizeof(uint64),
											  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
}

static Size
count_memory(const ColumnarJoinState *state)
{
	return vector_store_memory(state->store) + vector_join_table_memory(state->table);
}

/* Reads the build side of the part at work; false if it was too large, and is in smaller parts now. */
static bool
read_build_side(ColumnarJoinState *state)
{
	const JoinPart *part = linitial(state->parts);
	VectorInput input;
	Size memory;
	bool limits;

	while (join_next_input(state, &state->build, &input))
	{
		CHECK_FOR_INTERRUPTS();
		add_build_batch(state, &input);
		memory = count_memory(state);
		state->build_memory = Max(state->build_memory, memory);
		if (memory > state->limit && !part->is_final &&
			vector_store_count(state->store) >= SPLIT_ROWS_MIN)
		{
			join_split_part(state);
			return false;
		}
	}
	limits = part->probe == NULL && !join_emits_unmatched_probe_rows(state);
	if (limits)
		note_zones(state);
	vector_join_table_finish(state->table);
	state->build_rows += vector_store_count(state->store);
	state->build_memory = Max(state->build_memory, count_memory(state));
	if (join_emits_build_rows(state))
		begin_marks(state);
	if (limits)
		limit_probe_side(state);
	return true;
}

/*
 * Where to go on after the build side.  Without keys that can be found the probe side is not
 * read, if none of its rows comes out alone.
 */
static JoinPhase
choose_phase(const ColumnarJoinState *state)
{
	if (!vector_join_table_is_empty(state->table) || join_emits_unmatched_probe_rows(state))
		return JOIN_PHASE_PROBE;
	return join_emits_build_rows(state) ? JOIN_PHASE_REST : JOIN_PHASE_END;
}

/* ---- batches ------------------------------------------------------------------------------------ */

static VectorBatch *
next_batch(BatchSource *source)
{
	ColumnarJoinState *state = (ColumnarJoinState *) source;
	bool ready = false;

	while (!ready)
	{
		CHECK_FOR_INTERRUPTS();
		switch (state->phase)
		{
			case JOIN_PHASE_BUILD:
				if (state->parts == NIL)
					return NULL;
				if (read_build_side(state))
				{
					state->phase = choose_phase(state);
					state->next = 0;
				}
				break;
			case JOIN_PHASE_PROBE:
				if (join_next_input(state, &state->probe, &state->input))
					ready = join_probe_batch(state);
				else
				{
					state->phase = join_emits_build_rows(state) ? JOIN_PHASE_REST : JOIN_PHASE_END;
					state->next = 0;
				}
				break;
			case JOIN_PHASE_PAIRS:
				ready = join_emit_pairs(state);
				break;
			case JOIN_PHASE_REST:
				if (state->next >= vector_store_count(state->store))
					state->phase = JOIN_PHASE_END;
				else
					ready = join_emit_rest(state);
				break;
			case JOIN_PHASE_END:
				if (state->parts != NIL)
					join_next_part(state);
				state->phase = JOIN_PHASE_BUILD;
				break;
		}
	}
	return &source->batch;
}

/* ---- rows --------------------------------------------------------------------------------------- */

static TupleTableSlot *
execute(CustomScanState *node)
{
	ColumnarJoinState *state = (ColumnarJoinState *) node;

	if (state->source.offer != NULL)
		return batch_offer_next(&state->source);
	return output_row_next(&state->source, state->outputs, state->noutputs, &state->cursor);
}

/* ---- the rest of the node ----------------------------------------------------------------------- */

static void
reset_expressions(ColumnarJoinState *state)
{
	for (int i = 0; i < state->nkeys; i++)
	{
		vector_expression_reset(state->probe.keys[i]);
		vector_expression_reset(state->build.keys[i]);
	}
	if (state->conditions != NULL)
		vector_expression_reset(state->conditions);
	if (state->filters != NULL)
		vector_expression_reset(state->filters);
}

static void
rescan(CustomScanState *node)
{
	ColumnarJoinState *state = (ColumnarJoinState *) node;

	reset_expressions(state);
	state->cursor.has_batch = false;
	join_begin_parts(state);
	batch_reader_rescan(&state->probe.reader, node);
	batch_reader_rescan(&state->build.reader, node);
	state->phase = JOIN_PHASE_BUILD;
}

static void
end(CustomScanState *node)
{
	ColumnarJoinState *state = (ColumnarJoinState *) node;

	while (join_next_part(state))
		;
	batch_reader_end(&state->probe.reader);
	batch_reader_end(&state->build.reader);
	MemoryContextDelete(state->context);
}

static const CustomExecMethods join_exec_methods = {
	.CustomName = "ColumnarJoin",
	.BeginCustomScan = begin,
	.ExecCustomScan = execute,
	.EndCustomScan = end,
	.ReScanCustomScan = rescan,
	.ExplainCustomScan = join_explain,
};

const CustomScanMethods join_scan_methods = {
	.CustomName = "ColumnarJoin",
	.CreateCustomScanState = create_state,
};
