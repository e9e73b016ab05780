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
 * they come from.  A node that does the whole aggregation, results and HAVING included,
 * has no other above it: it forgets what it has and reads its input once for each of
 * 16 parts of the groups, by a hash of the keys.  (The planner takes such a node only if it
 * expects the groups to fit, so this is rare; a part that does not fit either takes the
 * memory that it needs.)
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
#include "common/hashfn.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/planner.h"
#include "utils/memutils.h"
#include "utils/ruleutils.h"
#include "utils/typcache.h"

#include "custom_scan.h"
#include "vector_aggregate.h"
#include "vector_aggregate_final.h"
#include "vector_expression.h"
#include "vector_groups.h"

/*
 * Groups that do not fit into memory are done in so many parts (a power of two), each of which
 * reads all rows: more parts would take too long, so beyond that the limit is exceeded ...
 */
#define SPLIT_BITS 4
/* ... and unless there are so many groups, which a few large states are not. */
#define SPLIT_GROUPS_MIN 64

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
	int index;			/* into keys or transitions */
	VectorFinal *final; /* of a result; NULL: a key or a state */
} AggregateColumn;

/* A part of the groups: those whose hash has these lowest bits. */
typedef struct AggregatePart
{
	int nbits;
	uint32 bits;
} AggregatePart;

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
	uint16 chosen[BLOCK_ROWS];

	bool whole;		/* results are returned, not states: each group once */
	List *parts;	/* AggregatePart that are to be done; the first is at work */
	FmgrInfo *hash; /* of each key, to part them */
	Oid *collations;

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
init_aggregate(ColumnarAggregateState *state, AggregateColumn *column, Aggref *aggref)
{
	Aggref *partial = aggref;

	if (state->whole)
	{
		partial = copyObject(aggref);
		mark_partial_aggref(partial, AGGSPLIT_INITIAL_SERIAL);
	}
	column->index = find_transition(state, partial);
	if (state->whole)
		column->final = vector_final_create(aggref, state->transitions[column->index].states,
											&state->custom.ss.ps);
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
		column->final = NULL;
		if (column->is_key)
		{
			column->index = state->nkeys;
			state->keys[state->nkeys++] = find_input(state, expression, true);
		}
		else
			init_aggregate(state, column, (Aggref *) expression);
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
	forboth(child, plan->custom_plans, attributes, linitial_node(List, plan->custom_private))
	{
		int i = foreach_current_index(child);
		PlanState *scan = ExecInitNode(lfirst(child), estate, eflags);

		state->custom.custom_ps = lappend(state->custom.custom_ps, scan);
		state->leaves[i] = (ColumnarScanState *) scan;
		state->attributes[i] = make_attributes(lfirst(attributes));
	}
}

/* All groups at once. */
static void
begin_parts(ColumnarAggregateState *state)
{
	MemoryContext caller = MemoryContextSwitchTo(state->context);

	state->parts = list_make1(palloc0(sizeof(AggregatePart)));
	MemoryContextSwitchTo(caller);
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
	state->whole = linitial_int(lsecond(plan->custom_private));
	begin_parts(state);
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

/* The functions that part groups: not of keys that cannot be hashed, which others determine. */
static void
init_hash(ColumnarAggregateState *state)
{
	MemoryContext caller = MemoryContextSwitchTo(state->context);

	state->hash = palloc0(sizeof(FmgrInfo) * state->nkeys);
	state->collations = palloc(sizeof(Oid) * state->nkeys);
	for (int i = 0; i < state->nkeys; i++)
	{
		Node *source = (Node *) state->inputs[state->keys[i]].source;
		TypeCacheEntry *type = lookup_type_cache(exprType(source), TYPECACHE_HASH_PROC);

		if (OidIsValid(type->hash_proc))
			fmgr_info(type->hash_proc, &state->hash[i]);
		state->collations[i] = exprCollation(source);
	}
	MemoryContextSwitchTo(caller);
}

static uint32
hash_row(ColumnarAggregateState *state, uint32 row)
{
	uint32 hash = 0;

	for (int i = 0; i < state->nkeys; i++)
	{
		uint32 of_key = 0;
		bool isnull;
		Datum value;

		if (!OidIsValid(state->hash[i].fn_oid))
			continue;
		value = vector_datum(state->inputs[state->keys[i]].values, row, &isnull);
		if (!isnull)
			of_key = DatumGetUInt32(
				FunctionCall1Coll(&state->hash[i], state->collations[i], value));
		hash = hash_combine(hash, of_key);
	}
	/* the bits below have to be independent of those that a type's function leaves alone */
	return murmurhash32(hash);
}

/* The rows whose groups belong to the part at work. */
static void
choose_part(ColumnarAggregateState *state, VectorInput *input)
{
	const AggregatePart *part = linitial(state->parts);
	uint32 mask = (UINT32_C(1) << part->nbits) - 1;
	uint32 kept = 0;

	if (state->hash == NULL)
		init_hash(state);
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint16 row = input->selection[i];

		if ((hash_row(state, row) & mask) == part->bits)
			state->chosen[kept++] = row;
	}
	input->selection = state->chosen;
	input->nselected = kept;
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
	if (((AggregatePart *) linitial(state->parts))->nbits > 0)
		choose_part(state, &input);
	if (input.nselected == 0)
	{
		MemoryContextSwitchTo(caller);
		return;
	}
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

/* Begins to read from the first row again, for other groups. */
static void
read_again(ColumnarAggregateState *state)
{
	forget_groups(state);
	state->leaf = 0;
	state->known_leaf = -1;
	for (int i = 0; i < state->nleaves; i++)
		ExecReScan(&state->leaves[i]->custom.ss.ps);
}

/*
 * The part at work does not fit into memory: it is done in smaller parts from now on.
 * False if that would not help.
 */
static bool
split_part(ColumnarAggregateState *state)
{
	MemoryContext caller;

	if (((AggregatePart *) linitial(state->parts))->nbits > 0 || state->ngroups < SPLIT_GROUPS_MIN)
		return false;
	caller = MemoryContextSwitchTo(state->context);
	state->parts = list_delete_first(state->parts);
	for (uint32 i = 0; i < 1 << SPLIT_BITS; i++)
	{
		AggregatePart *smaller = palloc(sizeof(AggregatePart));

		smaller->nbits = SPLIT_BITS;
		smaller->bits = i;
		state->parts = lcons(smaller, state->parts);
	}
	MemoryContextSwitchTo(caller);
	read_again(state);
	return true;
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
		if (state->groups == NULL || count_memory(state) <= state->limit)
			continue;
		if (!state->whole)
		{
			state->spills++;
			return;
		}
		if (split_part(state))
			state->spills++;
	}
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
	for (int i = 0; i < state->ncolumns; i++)
	{
		const AggregateColumn *column = &state->columns[i];
		bool *isnull = &slot->tts_isnull[i];

		if (column->is_key)
			slot->tts_values[i] = vector_groups_value(state->groups, column->index, group, isnull);
		else if (column->final != NULL)
			slot->tts_values[i] = vector_final_value(column->final, group, isnull);
		else
			slot->tts_values[i] = vector_aggregate_state(state->transitions[column->index].states,
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
		if (state->leaf < state->nleaves)
			forget_groups(state);
		else if (list_length(state->parts) > 1)
		{
			state->parts = list_delete_first(state->parts);
			read_again(state);
		}
		else
			return NULL;
	}
}

static void
rescan(CustomScanState *node)
{
	ColumnarAggregateState *state = (ColumnarAggregateState *) node;

	forget_groups(state);
	begin_parts(state);
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

	return deparse_expression((Node *) expression, context,
							  es->verbose || list_length(es->rtable) > 1, false);
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
