/*
 * aggregate_exec.c
 *		ColumnarAggregate: groups and transition states from batches of its ColumnarScans.
 *
 * For each batch: keys and arguments are evaluated as vectors, rows get the numbers of
 * their groups, every aggregate advances its states.  At the end one row per group goes
 * up: keys and states, as core's Partial Aggregate would send them.
 *
 * Memory: when groups and states outgrow what a hash node may use, all of them go up at
 * once and the node begins anew: the node above combines states of one group wherever
 * they come from.
 *
 * Columns that the keys determine (GROUP BY a primary key, and other columns) are
 * treated as keys.  Aggregates with one transition share it, arguments that are equal
 * are evaluated once.
 *
 * The scans are children whose rows nobody asks for; the time they need is measured
 * here, by batch.  In a parallel query each process aggregates the row groups it gets.
 */
#include "aggregate.h"

#include "commands/explain.h"
#include "executor/executor.h"
#include "executor/nodeHash.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "utils/memutils.h"
#include "utils/ruleutils.h"

#include "custom_scan.h"
#include "vector_aggregate.h"
#include "vector_expression.h"
#include "vector_groups.h"

/* An expression over rows, and its values for the batch at hand. */
typedef struct AggregateInput
{
	Expr *source;
	bool
		shared; /* evaluated once for all rows; else by its aggregate, for those that pass FILTER */
	VectorExpression *expression;
	Vector *values;
} AggregateInput;

/* Aggregates with the same transition. */
typedef struct AggregateTransition
{
	const Aggref *aggref; /* one of them */
	VectorAggregate *states;
	int nargs;
	int *args; /* into inputs */
	VectorExpression *filter;
} AggregateTransition;

/* A column of what the node returns. */
typedef struct AggregateColumn
{
	bool is_key;
	int index; /* into keys or transitions */
} AggregateColumn;

typedef struct ColumnarAggregateState
{
	CustomScanState custom; /* first member */
	VectorScope scope;
	int nleaves;
	ColumnarScanState **leaves;
	AttrNumber **attributes; /* of each leaf: see VectorInput */
	int leaf;				 /* the one that is read; nleaves: all are */

	int ninputs;
	AggregateInput *inputs;
	int nkeys;
	int *keys; /* into inputs */
	int ntransitions;
	AggregateTransition *transitions;
	int ncolumns;
	AggregateColumn *columns;

	MemoryContext context;
	VectorGroups *groups; /* NULL without keys */
	uint32 ngroups;
	Size limit;
	int known_leaf;		/* of the row group whose dictionaries the groups know */
	uint32 known_group; /* of that leaf */
	uint64 number;		/* of batches */
	uint32 numbers[BLOCK_ROWS];
	uint32 filtered_numbers[BLOCK_ROWS];
	uint16 filtered[BLOCK_ROWS];

	bool emitting;
	uint32 next; /* group to return */
	uint64 spills;
} ColumnarAggregateState;

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

/* The number of an input, made if there is none like it. */
static int
find_input(ColumnarAggregateState *state, Expr *source, bool shared)
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

static int
find_transition(ColumnarAggregateState *state, const Aggref *aggref)
{
	AggregateTransition *transition;
	ListCell *cell;

	for (int i = 0; i < state->ntransitions; i++)
		if (state->transitions[i].aggref->aggtransno == aggref->aggtransno &&
			state->transitions[i].aggref->aggtype == aggref->aggtype)
			return i;
	transition = &state->transitions[state->ntransitions];
	transition->aggref = aggref;
	transition->args = palloc(sizeof(int) * Max(list_length(aggref->args), 1));
	foreach(cell, aggref->args)
		transition->args[transition->nargs++] = find_input(
			state, lfirst_node(TargetEntry, cell)->expr, aggref->aggfilter == NULL);
	if (aggref->aggfilter != NULL)
		transition->filter = vector_expression_compile(aggref->aggfilter, &state->scope);
	transition->states = vector_aggregate_create(aggref, &state->custom.ss.ps);
	return state->ntransitions++;
}

static void
init_columns(ColumnarAggregateState *state, List *tlist)
{
	int ninputs = 0;
	ListCell *cell;

	foreach(cell, tlist)
	{
		Expr *expression = lfirst_node(TargetEntry, cell)->expr;

		ninputs += IsA(expression, Aggref) ? list_length(((Aggref *) expression)->args) : 1;
	}
	state->inputs = palloc0(sizeof(AggregateInput) * Max(ninputs, 1));
	state->keys = palloc(sizeof(int) * Max(list_length(tlist), 1));
	state->transitions = palloc0(sizeof(AggregateTransition) * Max(list_length(tlist), 1));
	state->columns = palloc(sizeof(AggregateColumn) * Max(list_length(tlist), 1));
	foreach(cell, tlist)
	{
		Expr *expression = lfirst_node(TargetEntry, cell)->expr;
		AggregateColumn *column = &state->columns[state->ncolumns++];

		column->is_key = !IsA(expression, Aggref);
		if (column->is_key)
		{
			column->index = state->nkeys;
			state->keys[state->nkeys++] = find_input(state, expression, true);
		}
		else
			column->index = find_transition(state, (Aggref *) expression);
	}
}

static void
init_groups(ColumnarAggregateState *state)
{
	VectorKey *keys = palloc(sizeof(VectorKey) * Max(state->nkeys, 1));

	for (int i = 0; i < state->nkeys; i++)
	{
		Node *source = (Node *) state->inputs[state->keys[i]].source;

		keys[i].type = exprType(source);
		keys[i].typmod = exprTypmod(source);
		keys[i].collation = exprCollation(source);
	}
	if (state->nkeys > 0)
		state->groups = vector_groups_create(state->nkeys, keys);
}

/* The relation whose columns the expressions name: 0 if they name none. */
static Index
find_relation(List *tlist)
{
	List *vars = pull_var_clause((Node *) tlist, PVC_RECURSE_AGGREGATES | PVC_RECURSE_PLACEHOLDERS);

	return vars == NIL ? 0 : linitial_node(Var, vars)->varno;
}

/* What is computed of the rows, and a slot for such rows. */
static void
init_scope(ColumnarAggregateState *state, List *tlist, EState *estate)
{
	VectorScope *scope = &state->scope;
	Relation relation = state->leaves[0]->custom.ss.ss_currentRelation;

	scope->parent = &state->custom.ss.ps;
	scope->context = state->context;
	scope->varno = find_relation(tlist);
	if (scope->varno != 0 && estate->es_range_table_size >= scope->varno)
		relation = ExecGetRangeTableRelation(estate, scope->varno);
	scope->slot = ExecInitExtraTupleSlot(estate, RelationGetDescr(relation), &TTSOpsVirtual);
	ExecStoreAllNullTuple(scope->slot);
}

static AttrNumber *
make_attributes(const List *list)
{
	AttrNumber *attributes;
	ListCell *cell;

	if (list == NIL)
		return NULL;
	attributes = palloc(sizeof(AttrNumber) * list_length(list));
	foreach(cell, list)
		attributes[foreach_current_index(cell)] = (AttrNumber) lfirst_int(cell);
	return attributes;
}

static void
init_leaves(ColumnarAggregateState *state, CustomScan *plan, EState *estate, int eflags)
{
	ListCell *child;
	ListCell *attributes;

	state->nleaves = list_length(plan->custom_plans);
	state->leaves = palloc(sizeof(ColumnarScanState *) * state->nleaves);
	state->attributes = palloc(sizeof(AttrNumber *) * state->nleaves);
	forboth(child, plan->custom_plans, attributes, plan->custom_private)
	{
		int i = foreach_current_index(child);
		PlanState *scan = ExecInitNode(lfirst(child), estate, eflags);

		state->custom.custom_ps = lappend(state->custom.custom_ps, scan);
		state->leaves[i] = (ColumnarScanState *) scan;
		state->attributes[i] = make_attributes(lfirst(attributes));
	}
}

static void
begin(CustomScanState *node, EState *estate, int eflags)
{
	ColumnarAggregateState *state = (ColumnarAggregateState *) node;
	CustomScan *plan = (CustomScan *) node->ss.ps.plan;
	MemoryContext caller;

	state->context = AllocSetContextCreate(estate->es_query_cxt, "columnar aggregate",
										   ALLOCSET_DEFAULT_SIZES);
	init_leaves(state, plan, estate, eflags);
	init_scope(state, plan->custom_scan_tlist, estate);
	caller = MemoryContextSwitchTo(state->context);
	init_columns(state, plan->custom_scan_tlist);
	init_groups(state);
	MemoryContextSwitchTo(caller);
	state->limit = get_hash_memory_limit();
	state->known_leaf = -1;
}

/* ---- input -------------------------------------------------------------------------------------- */

/* The next batch of the leaves; NULL when all are read. */
static RowBatch *
fetch_batch(ColumnarAggregateState *state)
{
	while (state->leaf < state->nleaves)
	{
		ColumnarScanState *scan = state->leaves[state->leaf];
		Instrumentation *instrument = scan->custom.ss.ps.instrument;
		RowBatch *batch;

		if (instrument)
			InstrStartNode(instrument);
		batch = custom_scan_next_batch(scan);
		if (instrument)
			InstrStopNode(instrument, batch ? batch->nselected : 0);
		if (batch != NULL)
			return batch;
		state->leaf++;
	}
	return NULL;
}

static void
evaluate_inputs(ColumnarAggregateState *state, VectorInput *input)
{
	for (int i = 0; i < state->ninputs; i++)
		if (state->inputs[i].shared)
			state->inputs[i].values = vector_expression_evaluate(state->inputs[i].expression,
																 input);
}

static void
assign_groups(ColumnarAggregateState *state, VectorInput *input)
{
	Vector **keys = palloc(sizeof(Vector *) * state->nkeys);
	uint32 ngroups;

	if (state->known_leaf != state->leaf || state->known_group != input->batch->group)
	{
		vector_groups_forget_dictionaries(state->groups);
		state->known_leaf = state->leaf;
		state->known_group = input->batch->group;
	}
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
	vector_aggregate_advance(transition->states, collect_arguments(state, transition), &rows);
}

static void
take_batch(ColumnarAggregateState *state, RowBatch *batch)
{
	ExprContext *econtext = state->custom.ss.ps.ps_ExprContext;
	VectorInput input = {.batch = batch,
						 .attributes = state->attributes[state->leaf],
						 .selection = batch->selection,
						 .nselected = batch->nselected,
						 .number = ++state->number};
	MemoryContext caller;
	VectorRows rows;

	ResetExprContext(econtext);
	caller = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	evaluate_inputs(state, &input);
	if (state->groups != NULL)
		assign_groups(state, &input);
	vector_rows_init(&rows, batch->nrows, input.selection, input.nselected,
					 state->groups ? state->numbers : NULL, state->ngroups);
	for (int i = 0; i < state->ntransitions; i++)
	{
		AggregateTransition *transition = &state->transitions[i];

		if (transition->filter != NULL)
			advance_filtered(state, transition, &input);
		else
			vector_aggregate_advance(transition->states, collect_arguments(state, transition),
									 &rows);
	}
	MemoryContextSwitchTo(caller);
}

static Size
count_memory(const ColumnarAggregateState *state)
{
	Size memory = vector_groups_memory(state->groups);

	for (int i = 0; i < state->ntransitions; i++)
		memory += vector_aggregate_memory(state->transitions[i].states);
	return memory;
}

/* Reads until all is read, or memory is full. */
static void
aggregate(ColumnarAggregateState *state)
{
	RowBatch *batch;

	if (state->groups == NULL && state->ngroups == 0)
	{
		state->ngroups = 1;
		for (int i = 0; i < state->ntransitions; i++)
			vector_aggregate_resize(state->transitions[i].states, 1);
	}
	while ((batch = fetch_batch(state)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		take_batch(state, batch);
		if (state->groups != NULL && count_memory(state) > state->limit)
		{
			state->spills++;
			return;
		}
	}
}

/* ---- output ------------------------------------------------------------------------------------- */

static void
forget_groups(ColumnarAggregateState *state)
{
	if (state->groups != NULL)
		vector_groups_reset(state->groups);
	for (int i = 0; i < state->ntransitions; i++)
		vector_aggregate_reset(state->transitions[i].states);
	state->ngroups = 0;
	state->next = 0;
	state->emitting = false;
}

static TupleTableSlot *
emit(ColumnarAggregateState *state, uint32 group)
{
	TupleTableSlot *slot = state->custom.ss.ss_ScanTupleSlot;
	ExprContext *econtext = state->custom.ss.ps.ps_ExprContext;
	MemoryContext caller;

	ResetExprContext(econtext);
	caller = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	ExecClearTuple(slot);
	for (int i = 0; i < state->ncolumns; i++)
	{
		const AggregateColumn *column = &state->columns[i];

		slot->tts_values[i] = column->is_key
								  ? vector_groups_value(state->groups, column->index, group,
														&slot->tts_isnull[i])
								  : vector_aggregate_state(state->transitions[column->index].states,
														   group, &slot->tts_isnull[i]);
	}
	ExecStoreVirtualTuple(slot);
	MemoryContextSwitchTo(caller);
	if (state->custom.ss.ps.ps_ProjInfo == NULL)
		return slot;
	econtext->ecxt_scantuple = slot;
	return ExecProject(state->custom.ss.ps.ps_ProjInfo);
}

static TupleTableSlot *
execute(CustomScanState *node)
{
	ColumnarAggregateState *state = (ColumnarAggregateState *) node;

	for (;;)
	{
		if (!state->emitting)
		{
			aggregate(state);
			state->emitting = true;
		}
		if (state->next < state->ngroups)
			return emit(state, state->next++);
		if (state->leaf >= state->nleaves)
			return NULL;
		forget_groups(state);
	}
}

static void
rescan(CustomScanState *node)
{
	ColumnarAggregateState *state = (ColumnarAggregateState *) node;

	forget_groups(state);
	state->leaf = 0;
	state->known_leaf = -1;
	for (int i = 0; i < state->ninputs; i++)
		vector_expression_reset(state->inputs[i].expression);
	for (int i = 0; i < state->ntransitions; i++)
		if (state->transitions[i].filter != NULL)
			vector_expression_reset(state->transitions[i].filter);
	for (int i = 0; i < state->nleaves; i++)
	{
		PlanState *leaf = &state->leaves[i]->custom.ss.ps;

		if (node->ss.ps.chgParam != NULL)
			UpdateChangedParamSet(leaf, node->ss.ps.chgParam);
		/* else the leaf is told so when its first batch is asked for */
		ExecReScan(leaf);
	}
}

static void
end(CustomScanState *node)
{
	ColumnarAggregateState *state = (ColumnarAggregateState *) node;

	for (int i = 0; i < state->nleaves; i++)
		ExecEndNode(&state->leaves[i]->custom.ss.ps);
	MemoryContextDelete(state->context);
}

/* ---- EXPLAIN ------------------------------------------------------------------------------------ */

static char *
deparse(Expr *expression, CustomScanState *node, List *ancestors, ExplainState *es)
{
	List *context = set_deparse_context_plan(es->deparse_cxt, node->ss.ps.plan, ancestors);

	return deparse_expression((Node *) expression, context, es->verbose, false);
}

static List *
add_scalar_part(List *texts, const VectorExpression *expression, CustomScanState *node,
				List *ancestors, ExplainState *es)
{
	Expr *part = vector_expression_scalar_part(expression);

	return part ? lappend(texts, deparse(part, node, ancestors, es)) : texts;
}

static void
explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
	ColumnarAggregateState *state = (ColumnarAggregateState *) node;
	List *keys = NIL;
	List *scalar = NIL;

	for (int i = 0; i < state->nkeys; i++)
		keys = lappend(keys, deparse(state->inputs[state->keys[i]].source, node, ancestors, es));
	if (keys != NIL)
		ExplainPropertyList("Group Key", keys, es);
	for (int i = 0; i < state->ninputs; i++)
		scalar = add_scalar_part(scalar, state->inputs[i].expression, node, ancestors, es);
	for (int i = 0; i < state->ntransitions; i++)
	{
		const AggregateTransition *transition = &state->transitions[i];

		if (transition->filter != NULL)
			scalar = add_scalar_part(scalar, transition->filter, node, ancestors, es);
		if (!vector_aggregate_has_kernel(transition->aggref))
			scalar = lappend(scalar, deparse((Expr *) transition->aggref, node, ancestors, es));
	}
	if (scalar != NIL)
		ExplainPropertyList("Evaluated by Row", scalar, es);
	if (es->analyze && state->spills > 0)
		ExplainPropertyUInteger("Times Memory Was Full", NULL, state->spills, es);
}

static const CustomExecMethods aggregate_exec_methods = {
	.CustomName = "ColumnarAggregate",
	.BeginCustomScan = begin,
	.ExecCustomScan = execute,
	.EndCustomScan = end,
	.ReScanCustomScan = rescan,
	.ExplainCustomScan = explain,
};

const CustomScanMethods aggregate_scan_methods = {
	.CustomName = "ColumnarAggregate",
	.CreateCustomScanState = create_state,
};
