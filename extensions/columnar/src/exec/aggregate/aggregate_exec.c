/*
 * aggregate_exec.c
 *		ColumnarAggregate: groups and transition states from the batches of its children.
 *
 * For each batch: keys and arguments are evaluated as vectors, rows get the numbers of
 * their groups, every aggregate advances its states.  At the end one row per group goes
 * up: keys and states, as core's Partial Aggregate would send them.
 *
 * Memory: when groups and states outgrow what a hash node may use, all of them go up at
 * once and the node begins anew: the node above combines states of one group wherever
 * they come from.  A node that does the whole aggregation, results and HAVING included,
 * has no other above it: it puts rows of further groups aside (aggregate_spill.c).  Values of
 * DISTINCT aggregates that do not fit are put aside first (aggregate_distinct.c).
 *
 * Columns that the keys determine (GROUP BY a primary key, and other columns) are
 * treated as keys.  Aggregates with one transition share it, arguments that are equal
 * are evaluated once.
 *
 * In a parallel query each process aggregates the row groups that it gets; or all rows, of a
 * share of the groups (aggregate_share.c).
 */
#include "exec/aggregate/aggregate_internal.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/planner.h"
#include "utils/memutils.h"

static const CustomExecMethods aggregate_exec_methods;

/* ---- begin -------------------------------------------------------------------------------------- */

static Node *
create_state(CustomScan *plan)
{
	ColumnarAggregateState *state = (ColumnarAggregateState *) newNode(
		sizeof(ColumnarAggregateState), T_CustomScanState);

	state->custom.methods = &aggregate_exec_methods;
	return (Node *) state;
}

int
aggregate_find_input(ColumnarAggregateState *state, Expr *source, bool shared)
{
	AggregateInput *input;

	for (int i = 0; shared && i < state->ninputs; i++)
		if (state->inputs[i].shared && equal(state->inputs[i].source, source))
			return i;
	input = &state->inputs[state->ninputs];
	input->source = source;
	input->shared = shared;
	input->expression = vector_expression_compile(source, &state->scope);
	return state->ninputs++;
}

/* The aggregate for rows from which duplicates were taken. */
static const Aggref *
make_plain(const Aggref *aggref)
{
	Aggref *plain;

	if (aggref->aggdistinct == NIL)
		return aggref;
	plain = (Aggref *) copyObjectImpl(aggref);
	plain->aggdistinct = NIL;
	plain->aggorder = NIL;
	return plain;
}

static int
find_transition(ColumnarAggregateState *state, const Aggref *aggref)
{
	AggregateTransition *transition;
	int number;
	ListCell *cell;

	for (int i = 0; i < state->ntransitions; i++)
		if (state->transitions[i].aggref != NULL &&
			state->transitions[i].aggref->aggtransno == aggref->aggtransno &&
			state->transitions[i].aggref->aggtype == aggref->aggtype)
			return i;
	number = state->ntransitions++;
	transition = &state->transitions[number];
	transition->aggref = aggref;
	transition->states = vector_aggregate_create(make_plain(aggref), &state->custom.ss.ps);
	if (aggregate_make_linear(state, transition))
		return number;
	transition->args = palloc(sizeof(int) * Max(list_length(aggref->args), 1));
	foreach(cell, aggref->args)
		transition->args[transition->nargs++] = aggregate_find_input(
			state, lfirst_node(TargetEntry, cell)->expr, aggref->aggfilter == NULL);
	if (aggref->aggfilter != NULL)
		transition->filter = vector_expression_compile(aggref->aggfilter, &state->scope);
	if (aggref->aggdistinct != NIL)
	{
		transition->distinct = aggregate_distinct_create(aggref);
		state->has_distinct = true;
	}
	return number;
}

static void
init_aggregate(ColumnarAggregateState *state, AggregateOutput *output, Aggref *aggref)
{
	Aggref *partial = aggref;

	if (state->whole)
	{
		partial = copyObject(aggref);
		mark_partial_aggref(partial, AGGSPLIT_INITIAL_SERIAL);
	}
	output->index = find_transition(state, partial);
	if (state->whole)
		output->final = vector_final_create(aggref, state->transitions[output->index].states,
											&state->custom.ss.ps);
}

static void
init_outputs(ColumnarAggregateState *state, List *tlist)
{
	int ninputs = 0;
	ListCell *cell;

	foreach(cell, tlist)
	{
		Expr *expression = lfirst_node(TargetEntry, cell)->expr;

		ninputs += IsA(expression, Aggref) ? list_length(((Aggref *) expression)->args) : 1;
	}
	/* (a sum that is derived from another has two) */
	state->inputs = palloc0(sizeof(AggregateInput) * 2 * Max(ninputs, 1));
	state->keys = palloc(sizeof(int) * Max(list_length(tlist), 1));
	state->transitions = palloc0(sizeof(AggregateTransition) * 2 * Max(list_length(tlist), 1));
	state->outputs = palloc(sizeof(AggregateOutput) * Max(list_length(tlist), 1));
	foreach(cell, tlist)
	{
		Expr *expression = lfirst_node(TargetEntry, cell)->expr;
		AggregateOutput *output = &state->outputs[state->noutputs++];

		output->is_key = !IsA(expression, Aggref);
		output->final = NULL;
		if (output->is_key)
		{
			output->index = state->nkeys;
			state->keys[state->nkeys] = aggregate_find_input(state, expression, true);
			state->inputs[state->keys[state->nkeys++]].is_key = true;
		}
		else
			init_aggregate(state, output, (Aggref *) expression);
	}
}

/* Is the key one of the node's columns, whose equal values are the same to every function? */
static bool
is_plain_key(const ColumnarAggregateState *state, int key)
{
	const VectorKey *type = &state->key_types[key];

	return IsA(state->inputs[state->keys[key]].source, Var) &&
		   vector_groups_are_alike(type->type, type->collation);
}

/* Is the key computed from columns that are keys themselves? */
static bool
is_determined(const ColumnarAggregateState *state, int key)
{
	Node *source = (Node *) state->inputs[state->keys[key]].source;
	List *vars = pull_var_clause(source, PVC_RECURSE_PLACEHOLDERS);
	ListCell *cell;

	if (vars == NIL || IsA(source, Var))
		return false;
	foreach(cell, vars)
	{
		bool found = false;

		for (int i = 0; i < state->nkeys && !found; i++)
			found = is_plain_key(state, i) &&
					equal(state->inputs[state->keys[i]].source, lfirst(cell));
		if (!found)
			return false;
	}
	return true;
}

static void
init_groups(ColumnarAggregateState *state)
{
	state->key_types = palloc(sizeof(VectorKey) * Max(state->nkeys, 1));
	for (int i = 0; i < state->nkeys; i++)
		state->key_types[i] = vector_key_of((Node *) state->inputs[state->keys[i]].source);
	for (int i = 0; i < state->nkeys; i++)
		state->key_types[i].determined = is_determined(state, i);
	if (state->nkeys > 0)
		state->groups = vector_groups_create(state->nkeys, state->key_types);
}

static void
init_group_vector(ColumnarAggregateState *state)
{
	ColumnType *type = palloc(sizeof(ColumnType));

	vector_type_init(type, INT8OID, -1, InvalidOid);
	state->group_vector = (Vector){.type = type,
								   .form = VECTOR_INT,
								   .scale = -1,
								   .bits = VECTOR_BITS_UNKNOWN,
								   .ints = state->group_words};
}

static void
begin(CustomScanState *node, EState *estate, int eflags)
{
	ColumnarAggregateState *state = (ColumnarAggregateState *) node;
	CustomScan *plan = (CustomScan *) node->ss.ps.plan;
	MemoryContext caller;

	state->context = AllocSetContextCreate(estate->es_query_cxt, "columnar aggregate",
										   ALLOCSET_DEFAULT_SIZES);
	batch_reader_init(&state->reader, node, 0, linitial(plan->custom_private), eflags);
	state->columns = batch_source_columns(plan->custom_scan_tlist);
	batch_source_init_scope(&state->scope, node, ExecTypeFromExprList(state->columns),
							state->context);
	caller = MemoryContextSwitchTo(state->context);
	state->whole = linitial_int(lsecond(plan->custom_private));
	init_outputs(state, (List *) batch_source_number_columns((Node *) plan->custom_scan_tlist,
															 state->columns));
	init_groups(state);
	init_group_vector(state);
	MemoryContextSwitchTo(caller);
	aggregate_begin_summaries(state);
	aggregate_begin_parts(state);
	state->limit = get_hash_memory_limit();
}

/* ---- input -------------------------------------------------------------------------------------- */

/* The keys, or what else is the same for all rows. */
static void
evaluate_inputs(ColumnarAggregateState *state, VectorInput *input, bool keys)
{
	for (int i = 0; i < state->ninputs; i++)
		if (state->inputs[i].shared && state->inputs[i].is_key == keys)
			state->inputs[i].values = vector_expression_evaluate(state->inputs[i].expression,
																 input);
}

static void
assign_groups(ColumnarAggregateState *state, VectorInput *input)
{
	Vector **keys = palloc(sizeof(Vector *) * state->nkeys);
	uint32 ngroups;

	for (int i = 0; i < state->nkeys; i++)
		keys[i] = state->inputs[state->keys[i]].values;
	ngroups = vector_groups_assign(state->groups, keys, input->selection, input->nselected,
								   state->numbers);
	if (ngroups > state->ngroups)
		for (int i = 0; i < state->ntransitions; i++)
			vector_aggregate_resize(state->transitions[i].states, ngroups);
	state->ngroups = ngroups;
}

/* The rows that pass an aggregate's FILTER, and their groups. */
static uint32
filter_rows(ColumnarAggregateState *state, AggregateTransition *transition, VectorInput *input)
{
	const uint8 *truth = vector_expression_truth(transition->filter, input);
	uint32 kept = 0;

	for (uint32 i = 0; i < input->nselected; i++)
	{
		state->filtered[kept] = input->selection[i];
		state->filtered_numbers[kept] = state->numbers[i];
		kept += truth[input->selection[i]] == TRUTH_TRUE;
	}
	return kept;
}

static Vector **
collect_arguments(ColumnarAggregateState *state, const AggregateTransition *transition)
{
	Vector **arguments = palloc(sizeof(Vector *) * Max(transition->nargs, 1));

	for (int i = 0; i < transition->nargs; i++)
		arguments[i] = state->inputs[transition->args[i]].values;
	return arguments;
}

static void
advance_transition(ColumnarAggregateState *state, AggregateTransition *transition, VectorRows *rows)
{
	VectorRows distinct;

	if (transition->distinct != NULL)
	{
		Vector *argument = state->inputs[transition->args[0]].values;
		uint32 kept = aggregate_distinct_choose(state, transition->distinct, argument, rows);

		if (kept == 0)
			return;
		vector_rows_init(&distinct, rows->nrows, state->filtered, kept,
						 state->groups ? state->filtered_numbers : NULL, state->ngroups);
		rows = &distinct;
	}
	vector_aggregate_advance(transition->states, collect_arguments(state, transition), rows);
}

/* An aggregate with a FILTER: its arguments may raise errors for rows that do not pass it. */
static void
advance_filtered(ColumnarAggregateState *state, AggregateTransition *transition, VectorInput *input)
{
	VectorInput filtered = *input;
	VectorRows rows;

	filtered.selection = state->filtered;
	filtered.nselected = filter_rows(state, transition, input);
	if (filtered.nselected == 0)
		return;
	for (int i = 0; i < transition->nargs; i++)
	{
		AggregateInput *argument = &state->inputs[transition->args[i]];

		argument->values = vector_expression_evaluate(argument->expression, &filtered);
	}
	vector_rows_init(&rows, input->batch->nrows, filtered.selection, filtered.nselected,
					 state->groups ? state->filtered_numbers : NULL, state->ngroups);
	advance_transition(state, transition, &rows);
	if (transition->aggref == NULL)
		aggregate_check_linear(state, transition, &filtered);
}

static void
take_batch(ColumnarAggregateState *state, VectorInput input)
{
	ExprContext *econtext = state->custom.ss.ps.ps_ExprContext;
	MemoryContext caller;
	VectorRows rows;

	ResetExprContext(econtext);
	caller = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	evaluate_inputs(state, &input, true);
	if (state->nshares > 1)
		aggregate_choose_share(state, &input);
	if (state->groups != NULL && input.nselected > 0)
		assign_groups(state, &input);
	if (state->files != NULL)
		aggregate_put_aside(state, &input);
	if (input.nselected == 0)
	{
		MemoryContextSwitchTo(caller);
		return;
	}
	evaluate_inputs(state, &input, false);
	vector_rows_init(&rows, input.batch->nrows, input.selection, input.nselected,
					 state->groups ? state->numbers : NULL, state->ngroups);
	for (int i = 0; i < state->ntransitions; i++)
	{
		AggregateTransition *transition = &state->transitions[i];

		if (transition->of != NULL)
			continue;
		if (transition->filter != NULL)
		{
			advance_filtered(state, transition, &input);
			continue;
		}
		advance_transition(state, transition, &rows);
		if (transition->aggref == NULL)
			aggregate_check_linear(state, transition, &input);
	}
	MemoryContextSwitchTo(caller);
}

/* Of groups and states. */
static Size
count_memory(const ColumnarAggregateState *state)
{
	Size memory = state->groups ? vector_groups_memory(state->groups) : 0;

	for (int i = 0; i < state->ntransitions; i++)
		memory += vector_aggregate_memory(state->transitions[i].states);
	return memory;
}

/* After a batch; false if the groups have to go up to make room. */
static bool
keep_to_limit(ColumnarAggregateState *state)
{
	if ((state->groups == NULL && !state->has_distinct) ||
		count_memory(state) + aggregate_distinct_memory(state) <= state->limit)
		return true;
	if (aggregate_distinct_close(state) || state->groups == NULL)
		return true;
	/* sets that are full are no reason to have fewer groups */
	if (state->has_distinct && count_memory(state) <= state->limit / 2)
		return true;
	if (!state->whole)
		return false;
	aggregate_close_groups(state);
	return true;
}

static void
forget_groups(ColumnarAggregateState *state)
{
	if (state->groups != NULL)
		vector_groups_reset(state->groups);
	for (int i = 0; i < state->ntransitions; i++)
	{
		vector_aggregate_reset(state->transitions[i].states);
		if (state->transitions[i].distinct != NULL)
			aggregate_distinct_forget(state->transitions[i].distinct);
	}
	state->ngroups = 0;
	state->next = 0;
	state->emitting = false;
}

/* Begins to read from the first row again, for other groups or other parameters. */
static void
read_again(ColumnarAggregateState *state)
{
	forget_groups(state);
	aggregate_begin_parts(state);
	batch_reader_rescan(&state->reader, &state->custom);
}

/* Reads until all is read, or memory is full. */
static void
aggregate(ColumnarAggregateState *state)
{
	VectorInput input;

	if (state->groups == NULL && state->ngroups == 0)
	{
		state->ngroups = 1;
		for (int i = 0; i < state->ntransitions; i++)
			vector_aggregate_resize(state->transitions[i].states, 1);
	}
	while (aggregate_next_input(state, &input))
	{
		CHECK_FOR_INTERRUPTS();
		take_batch(state, input);
		if (!keep_to_limit(state))
		{
			state->spills++;
			return;
		}
	}
	if (state->has_distinct)
		aggregate_distinct_finish(state, count_memory(state));
}

/* ---- output ------------------------------------------------------------------------------------- */

/* Puts a group into the scan slot; false if HAVING leaves it out. */
static bool
store_group(ColumnarAggregateState *state, uint32 group)
{
	TupleTableSlot *slot = state->custom.ss.ss_ScanTupleSlot;
	ExprContext *econtext = state->custom.ss.ps.ps_ExprContext;
	MemoryContext caller;

	ResetExprContext(econtext);
	caller = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	ExecClearTuple(slot);
	for (int i = 0; i < state->noutputs; i++)
	{
		const AggregateOutput *output = &state->outputs[i];
		bool *isnull = &slot->tts_isnull[i];

		if (output->is_key)
			slot->tts_values[i] = vector_groups_value(state->groups, output->index, group, isnull);
		else if (output->final != NULL)
			slot->tts_values[i] = vector_final_value(output->final, group, isnull);
		else
			slot->tts_values[i] = vector_aggregate_state(state->transitions[output->index].states,
														 group, isnull);
	}
	ExecStoreVirtualTuple(slot);
	MemoryContextSwitchTo(caller);
	econtext->ecxt_scantuple = slot;
	if (ExecQual(state->custom.ss.ps.qual, econtext))
		return true;
	InstrCountFiltered1(&state->custom, 1);
	return false;
}

static TupleTableSlot *
execute(CustomScanState *node)
{
	ColumnarAggregateState *state = (ColumnarAggregateState *) node;

	for (;;)
	{
		if (!state->emitting)
		{
			if (state->has_share || aggregate_take_share(state))
				aggregate(state);
			state->emitting = true;
		}
		while (state->next < state->ngroups)
		{
			CHECK_FOR_INTERRUPTS();
			if (!store_group(state, state->next++))
				continue;
			if (node->ss.ps.ps_ProjInfo == NULL)
				return node->ss.ss_ScanTupleSlot;
			return ExecProject(node->ss.ps.ps_ProjInfo);
		}
		if (state->whole ? aggregate_next_part(state) : batch_reader_has_more(&state->reader))
			forget_groups(state);
		else if (aggregate_take_share(state))
			read_again(state);
		else
			return NULL;
	}
}

static void
rescan(CustomScanState *node)
{
	ColumnarAggregateState *state = (ColumnarAggregateState *) node;

	state->has_asked = false;
	state->has_share = false;
	for (int i = 0; i < state->ninputs; i++)
		vector_expression_reset(state->inputs[i].expression);
	for (int i = 0; i < state->ntransitions; i++)
		if (state->transitions[i].filter != NULL)
			vector_expression_reset(state->transitions[i].filter);
	read_again(state);
}

static void
end(CustomScanState *node)
{
	ColumnarAggregateState *state = (ColumnarAggregateState *) node;

	batch_reader_end(&state->reader);
	forget_groups(state);
	aggregate_end_parts(state);
	MemoryContextDelete(state->context);
}

static const CustomExecMethods aggregate_exec_methods = {
	.CustomName = "ColumnarAggregate",
	.BeginCustomScan = begin,
	.ExecCustomScan = execute,
	.EndCustomScan = end,
	.ReScanCustomScan = rescan,
	.EstimateDSMCustomScan = aggregate_estimate_dsm,
	.InitializeDSMCustomScan = aggregate_initialize_dsm,
	.ReInitializeDSMCustomScan = aggregate_reinitialize_dsm,
	.InitializeWorkerCustomScan = aggregate_initialize_worker,
	.ExplainCustomScan = aggregate_explain,
};

const CustomScanMethods aggregate_scan_methods = {
	.CustomName = "ColumnarAggregate",
	.CreateCustomScanState = create_state,
};
