/*
 * custom_scan_exec.c
 *		ColumnarScan: batches of rows, filtered on the columns of the quals, the other
 *		columns decoded for what is left.
 *
 * Quals are evaluated in the planner's order, which is what keeps row security: each
 * over the rows of the batch that the ones before have left.  Columns are
 * decoded when the first qual that needs them still has rows; the output's when
 * all quals are through.  Quals that are volatile, expensive or have subplans are
 * evaluated row by row as rows are asked for.
 *
 * The node runs under ExecScan(): in an EvalPlanQual recheck all quals are
 * evaluated on the row under test.  ss_ScanTupleSlot holds the row returned last,
 * with its ctid, for WHERE CURRENT OF.  Cursors may turn round at any row, and past the last.
 *
 * What this transaction has in its write buffers is stored when the node is initialised, before parallel
 * mode begins (custom_scan_parallel.c).
 *
 * Memory: readers and blocks live in the scan's context.  A row's datums live in
 * the per-tuple context, which ExecScan() resets before the next row.
 */
#include "exec/scan/custom_scan.h"

#include "access/sysattr.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "pgstat.h"
#include "utils/memutils.h"

#include "exec/batch/batch_offer.h"
#include "store/options/settings.h"
#include "exec/scan/tree_scan.h"
#include "exec/expression/vector_expression.h"
#include "store/rows/write_buffer.h"

/* A qual that is evaluated batch by batch. */
struct ScanFilter
{
	ExprState *state;
	ScanColumns columns;
	VectorExpression *vector; /* NULL: row by row */
	/* outcomes by code of a dictionary, if the only column is encoded so: see filter_by_code() */
	uint64 serial;	/* of the dictionary; 0: none */
	int8 *outcomes; /* -1 unknown */
	uint32 capacity;
};

/* ---- columns of a row --------------------------------------------------------------------------- */

/* Sets which columns of the relation an expression needs. */
static void
init_columns(ScanColumns *columns, Node *expression, ColumnarScanState *state)
{
	CustomScan *plan = (CustomScan *) state->source.custom.ss.ps.plan;
	TupleDesc descriptor = RelationGetDescr(state->source.custom.ss.ss_currentRelation);
	Bitmapset *offsets = NULL;
	Bitmapset *members;
	int member = -1;

	members = custom_scan_add_columns(NULL, expression, plan->scan.scanrelid, descriptor);
	columns->count = 0;
	columns->attributes = palloc(sizeof(AttrNumber) * Max(bms_num_members(members), 1));
	columns->blocks = palloc0(sizeof(ColumnBlock *) * Max(bms_num_members(members), 1));
	while ((member = bms_next_member(members, member)) >= 0)
		columns->attributes[columns->count++] = member;

	pull_varattnos(expression, plan->scan.scanrelid, &offsets);
	columns->tid = bms_is_member(
		SelfItemPointerAttributeNumber - FirstLowInvalidHeapAttributeNumber, offsets);
	bms_free(offsets);
	bms_free(members);
}

static void
decode_columns(ScanColumns *columns, RowBatch *batch)
{
	for (int i = 0; i < columns->count; i++)
		columns->blocks[i] = row_batch_column(batch, columns->attributes[i]);
}

/* Sets the slot's ctid, for which row numbers may have to be read. */
static inline void
store_place(ColumnarScanState *state, uint32 row)
{
	row_number_to_tid(row_batch_row_number(state->batch, row),
					  &state->source.custom.ss.ss_ScanTupleSlot->tts_tid);
}

/*
 * Puts a row into the scan slot; its datums in the per-tuple context. Other columns stay NULL, and
 * ctid what it was unless the expression asks for it.
 */
static void
store_row(ColumnarScanState *state, const ScanColumns *columns, uint32 row)
{
	TupleTableSlot *slot = state->source.custom.ss.ss_ScanTupleSlot;
	MemoryContext caller = MemoryContextSwitchTo(
		state->source.custom.ss.ps.ps_ExprContext->ecxt_per_tuple_memory);

	ExecClearTuple(slot);
	for (int i = 0; i < columns->count; i++)
	{
		AttrNumber attribute = columns->attributes[i];

		slot->tts_values[attribute - 1] = column_block_datum(columns->blocks[i], row,
															 &slot->tts_isnull[attribute - 1]);
	}
	ExecStoreVirtualTuple(slot);
	slot->tts_tableOid = RelationGetRelid(state->relation);
	if (columns->tid)
		store_place(state, row);
	MemoryContextSwitchTo(caller);
}

/* The slot's columns are NULL again: what they point to is about to go. */
static void
forget_columns(ColumnarScanState *state, const ScanColumns *columns)
{
	TupleTableSlot *slot = state->source.custom.ss.ss_ScanTupleSlot;

	ExecClearTuple(slot);
	for (int i = 0; i < columns->count; i++)
	{
		slot->tts_values[columns->attributes[i] - 1] = (Datum) 0;
		slot->tts_isnull[columns->attributes[i] - 1] = true;
	}
}

/* ---- filter ------------------------------------------------------------------------------------- */

static bool
passes_row(ColumnarScanState *state, ScanFilter *filter, uint32 row)
{
	ExprContext *econtext = state->source.custom.ss.ps.ps_ExprContext;

	ResetExprContext(econtext);
	store_row(state, &filter->columns, row);
	return ExecQual(filter->state, econtext);
}

/* Is every row of the batch the same to the filter? */
static bool
is_constant(const ScanFilter *filter)
{
	for (int i = 0; i < filter->columns.count; i++)
		if (!filter->columns.blocks[i]->constant || filter->columns.blocks[i]->has_nulls)
			return false;
	return !filter->columns.tid;
}

/* Is the filter a function of a dictionary's codes? Then its outcomes are kept per row group. */
static bool
prepare_by_code(ColumnarScanState *state, ScanFilter *filter)
{
	ColumnBlock *block;
	Dictionary *dictionary;

	if (filter->columns.count != 1 || filter->columns.tid)
		return false;
	block = filter->columns.blocks[0];
	if (block->form != BLOCK_CODES || block->has_exceptions)
		return false;
	dictionary = block->dictionary;
	if (filter->serial == dictionary->serial)
		return true;

	if (filter->capacity < dictionary->nentries)
	{
		if (filter->outcomes != NULL)
			pfree(filter->outcomes);
		filter->outcomes = MemoryContextAlloc(state->context, dictionary->nentries);
		filter->capacity = dictionary->nentries;
	}
	memset(filter->outcomes, -1, dictionary->nentries);
	filter->serial = dictionary->serial;
	return true;
}

static bool
passes_by_code(ColumnarScanState *state, ScanFilter *filter, uint32 row)
{
	ColumnBlock *block = filter->columns.blocks[0];
	int8 *outcome;

	if (column_block_is_null(block, row))
		return passes_row(state, filter, row);
	outcome = &filter->outcomes[block->codes[row]];
	if (*outcome < 0)
		*outcome = passes_row(state, filter, row);
	return *outcome > 0;
}

static uint32
filter_vector(ColumnarScanState *state, ScanFilter *filter)
{
	VectorInput input = {.batch = &state->source.batch,
						 .selection = state->batch->selection,
						 .nselected = state->batch->nselected,
						 .number = state->nbatches};

	vector_batch_of_rows(&state->source.batch, state->batch);
	return vector_expression_filter(filter->vector, &input, state->batch->selection);
}

/* Narrows the selection of the batch to the rows that pass one filter, looking at each. */
static uint32
filter_rows(ColumnarScanState *state, ScanFilter *filter)
{
	RowBatch *batch = state->batch;
	uint32 kept = 0;

	decode_columns(&filter->columns, batch);
	if (is_constant(filter))
		kept = passes_row(state, filter, batch->selection[0]) ? batch->nselected : 0;
	else if (prepare_by_code(state, filter))
	{
		for (uint32 i = 0; i < batch->nselected; i++)
			if (passes_by_code(state, filter, batch->selection[i]))
				batch->selection[kept++] = batch->selection[i];
	}
	else
	{
		for (uint32 i = 0; i < batch->nselected; i++)
			if (passes_row(state, filter, batch->selection[i]))
				batch->selection[kept++] = batch->selection[i];
	}
	forget_columns(state, &filter->columns);
	return kept;
}

/* Narrows the batch's selection to the rows that pass one filter. */
static void
apply_filter(ColumnarScanState *state, ScanFilter *filter)
{
	uint32 kept = filter->vector ? filter_vector(state, filter) : filter_rows(state, filter);

	InstrCountFiltered1(&state->source.custom, state->batch->nselected - kept);
	state->batch->nselected = kept;
}

/* Do all rows of the batch pass, as the bounds of its columns prove? */
static bool
passes_all(ColumnarScanState *state)
{
	return state->nfilters > 0 && state->pruner != NULL &&
		   pruner_passes(state->pruner, state->batch->reader, state->batch->block);
}

static void
apply_filters(ColumnarScanState *state)
{
	for (int i = 0; i < state->nfilters && state->batch->nselected > 0; i++)
		apply_filter(state, &state->filters[i]);
}

/* ---- rows --------------------------------------------------------------------------------------- */

/* Begins the scan of the table, or of the next leaf; false if there is none. */
static bool
begin_scan(ColumnarScanState *state)
{
	if (state->tree != NULL)
		return tree_scan_open_next(state);
	state->scan = row_scan_begin(
		state->relation, NULL, state->source.custom.ss.ps.state->es_snapshot, state->ahead,
		state->pruner ? pruner_callbacks(state->pruner) : NULL, custom_scan_shared(state));
	pgstat_count_heap_scan(state->relation);
	return true;
}

/* The next batch of rows, of the next leaf if need be; NULL at the end. */
static RowBatch *
read_batch(ColumnarScanState *state, ScanDirection direction)
{
	RowBatch *batch = NULL;

	while (state->scan != NULL || begin_scan(state))
	{
		batch = row_scan_next(state->scan, direction);
		if (batch != NULL || state->tree == NULL || !tree_scan_open_next(state))
			break;
	}
	return batch;
}

/* The next batch with rows that pass the filters, and the place before its first; false at the end. */
static bool
next_batch(ColumnarScanState *state, ScanDirection direction)
{
	ExprContext *econtext = state->source.custom.ss.ps.ps_ExprContext;
	MemoryContext caller = MemoryContextSwitchTo(state->context);

	econtext->ecxt_scantuple = state->source.custom.ss.ss_ScanTupleSlot;
	forget_columns(state, &state->output);
	do
	{
		state->batch = read_batch(state, direction);
		if (state->batch != NULL)
		{
			/* a macro of indexes, but tables have the same counter: tuples returned */
			pgstat_count_index_tuples(state->relation, state->batch->nselected);
			state->nbatches++;
		}
		if (state->batch != NULL && !passes_all(state))
			apply_filters(state);
	} while (state->batch != NULL && state->batch->nselected == 0);

	state->has_output = false;
	MemoryContextSwitchTo(caller);
	if (state->batch == NULL)
		return false;
	state->position = ScanDirectionIsBackward(direction) ? (int32) state->batch->nselected : -1;
	ResetExprContext(econtext);
	return true;
}

/* Steps to the next row of the batches; false at the end. */
static bool
step(ColumnarScanState *state, ScanDirection direction)
{
	do
	{
		if (state->batch == NULL)
			continue;
		state->position += ScanDirectionIsBackward(direction) ? -1 : 1;
		if (state->position >= 0 && state->position < (int32) state->batch->nselected)
			return true;
	} while (next_batch(state, direction));
	return false;
}

/* ExecScanAccessMtd: the next row that passes all quals. */
static TupleTableSlot *
fetch_row(ScanState *node)
{
	ColumnarScanState *state = (ColumnarScanState *) node;
	ExprContext *econtext = node->ps.ps_ExprContext;

	for (;;)
	{
		if (!step(state, node->ps.state->es_direction))
			return ExecClearTuple(node->ss_ScanTupleSlot);
		if (!state->has_output)
		{
			MemoryContext caller = MemoryContextSwitchTo(state->context);

			decode_columns(&state->output, state->batch);
			MemoryContextSwitchTo(caller);
			state->has_output = true;
		}
		store_row(state, &state->output, state->batch->selection[state->position]);
		if (state->row_qual == NULL)
			break;

		econtext->ecxt_scantuple = node->ss_ScanTupleSlot;
		if (ExecQual(state->row_qual, econtext))
			break;
		InstrCountFiltered1(node, 1);
		ResetExprContext(econtext);
		CHECK_FOR_INTERRUPTS();
	}
	/* the row may be that of a cursor */
	store_place(state, state->batch->selection[state->position]);
	return node->ss_ScanTupleSlot;
}

/* Narrows the batch to the rows that pass the quals that are not evaluated by batch. */
static void
apply_row_qual(ColumnarScanState *state)
{
	RowBatch *batch = state->batch;
	ExprContext *econtext = state->source.custom.ss.ps.ps_ExprContext;
	uint32 kept = 0;

	decode_columns(&state->output, batch);
	for (uint32 i = 0; i < batch->nselected; i++)
	{
		CHECK_FOR_INTERRUPTS();
		ResetExprContext(econtext);
		store_row(state, &state->output, batch->selection[i]);
		econtext->ecxt_scantuple = state->source.custom.ss.ss_ScanTupleSlot;
		if (ExecQual(state->row_qual, econtext))
			batch->selection[kept++] = batch->selection[i];
	}
	forget_columns(state, &state->output);
	InstrCountFiltered1(&state->source.custom, batch->nselected - kept);
	batch->nselected = kept;
}

/* Narrows the batch to the rows whose keys the nodes above have a use for. */
static void
apply_keys(ColumnarScanState *state)
{
	MemoryContext caller = MemoryContextSwitchTo(state->context);
	ExprContext *econtext = state->source.custom.ss.ps.ps_ExprContext;

	vector_batch_of_rows(&state->source.batch, state->batch);
	state->removed_by_keys += scan_keys_apply(&state->keys, &state->source.batch,
											  econtext->ecxt_per_tuple_memory);
	state->batch->nselected = state->source.batch.nselected;
	ResetExprContext(econtext);
	MemoryContextSwitchTo(caller);
}

/* For a node above that works on batches: the next one with rows that pass all quals. */
static VectorBatch *
produce_batch(BatchSource *source)
{
	ColumnarScanState *state = (ColumnarScanState *) source;

	while (next_batch(state, state->direction))
	{
		if (state->keys.nkeys > 0)
			apply_keys(state);
		if (state->row_qual != NULL && state->batch->nselected > 0)
			apply_row_qual(state);
		if (state->batch->nselected == 0)
			continue;
		vector_batch_of_rows(&source->batch, state->batch);
		return &source->batch;
	}
	return NULL;
}

/* ExecScanRecheckMtd: does the row of an EvalPlanQual recheck pass the quals? */
static bool
recheck_row(ScanState *node, TupleTableSlot *slot)
{
	ColumnarScanState *state = (ColumnarScanState *) node;
	ExprContext *econtext = node->ps.ps_ExprContext;

	econtext->ecxt_scantuple = slot;
	ResetExprContext(econtext);
	for (int i = 0; i < state->nfilters; i++)
		if (!ExecQual(state->filters[i].state, econtext))
			return false;
	return state->row_qual == NULL || ExecQual(state->row_qual, econtext);
}

/* ---- what the node above asks for ---------------------------------------------------------------- */

static void
limit_column(BatchSource *source, AttrNumber column, const BatchLimit *limit)
{
	ColumnarScanState *state = (ColumnarScanState *) source;

	if (state->pruner != NULL)
		pruner_add_limit(state->pruner, column, limit);
}

/* A join asks for the keys itself of what it reads from here. */
static void
filter_column(BatchSource *source, AttrNumber column, KeyFilter *filter, const KeyRate *next)
{
	ColumnarScanState *state = (ColumnarScanState *) source;
	MemoryContext caller = MemoryContextSwitchTo(state->context);

	if (next != filter->join)
		scan_keys_add(&state->keys, column, filter, next);
	MemoryContextSwitchTo(caller);
}

static void
offer_groups(BatchSource *source, GroupTaker taker, void *owner)
{
	ColumnarScanState *state = (ColumnarScanState *) source;

	if (state->pruner == NULL)
		return;
	state->offers_groups = true;
	pruner_set_taker(state->pruner, taker, owner);
}

static void
turn(BatchSource *source)
{
	((ColumnarScanState *) source)->direction = BackwardScanDirection;
}

/* ---- the node ----------------------------------------------------------------------------------- */

static const CustomExecMethods exec_methods;

static Node *
create_state(CustomScan *plan)
{
	ColumnarScanState *state = palloc0(sizeof(ColumnarScanState));

	NodeSetTag(state, T_CustomScanState);
	state->source.custom.methods = &exec_methods;
	state->source.next_batch = produce_batch;
	state->source.limit = limit_column;
	state->source.filter = filter_column;
	state->source.offer_groups = offer_groups;
	state->source.turn = turn;
	state->direction = ForwardScanDirection;
	return (Node *) state;
}

/* The quals that may be asked about the bounds of rows that row security hides. */
static List *
get_secure_quals(CustomScan *plan)
{
	List *quals = NIL;

	int first = SCAN_FIRST_LEAF + Max(list_nth_int(plan->custom_private, SCAN_LEAVES), 0);

	for (int i = first; i < list_length(plan->custom_private); i++)
		quals = lappend(quals, list_nth(plan->custom_exprs, list_nth_int(plan->custom_private, i)));
	return quals;
}

/* Does the expression need more of a row than columns? */
static bool
needs_row(Node *expression, Index varno)
{
	Bitmapset *offsets = NULL;
	int first;

	pull_varattnos(expression, varno, &offsets);
	first = bms_next_member(offsets, -1);
	return first >= 0 && first + FirstLowInvalidHeapAttributeNumber <= 0;
}

/* Quals that are evaluated together: by kernels, or one qual row by row. */
static void
add_filter(ColumnarScanState *state, List *quals, VectorScope *scope)
{
	ScanFilter *filter = &state->filters[state->nfilters++];

	filter->state = ExecInitQual(quals, &state->source.custom.ss.ps);
	init_columns(&filter->columns, (Node *) quals, state);
	if (scope != NULL)
		filter->vector = vector_expression_compile_quals(quals, scope);
}

static void
init_quals(ColumnarScanState *state, CustomScan *plan)
{
	int nbatch = list_nth_int(plan->custom_private, SCAN_BATCH_QUALS);
	List *batch_quals = list_copy_head(plan->custom_exprs, nbatch);
	List *row_quals = list_copy_tail(plan->custom_exprs, nbatch);
	VectorScope scope = {.parent = &state->source.custom.ss.ps,
						 .varno = plan->scan.scanrelid,
						 .context = state->context};

	state->filters = palloc0(sizeof(ScanFilter) * Max(nbatch, 1));
	if (nbatch > 0 && columnar_enable_vector &&
		!needs_row((Node *) batch_quals, plan->scan.scanrelid))
	{
		scope.slot = ExecInitExtraTupleSlot(
			state->source.custom.ss.ps.state,
			RelationGetDescr(state->source.custom.ss.ss_currentRelation), &TTSOpsVirtual);
		ExecStoreAllNullTuple(scope.slot);
		add_filter(state, batch_quals, &scope);
	}
	else
	{
		for (int i = 0; i < nbatch; i++)
			add_filter(state, list_make1(list_nth(batch_quals, i)), NULL);
	}
	state->row_qual = ExecInitQual(row_quals, &state->source.custom.ss.ps);
	init_columns(&state->output, (Node *) list_concat(row_quals, plan->scan.plan.targetlist),
				 state);
}

/* Which columns row groups are read ahead for: those of the filter, and the others if many rows pass. */
static Bitmapset *
choose_ahead(ColumnarScanState *state, CustomScan *plan)
{
	/* a set that is empty would mean all: attribute 0 is none */
	Bitmapset *ahead = bms_make_singleton(0);

	for (int i = 0; i < state->nfilters; i++)
		for (int j = 0; j < state->filters[i].columns.count; j++)
			ahead = bms_add_member(ahead, state->filters[i].columns.attributes[j]);
	if (state->nfilters == 0 || list_nth_int(plan->custom_private, SCAN_EAGER))
		for (int i = 0; i < state->output.count; i++)
			ahead = bms_add_member(ahead, state->output.attributes[i]);
	return ahead;
}

static void
begin(CustomScanState *node, EState *estate, int eflags)
{
	ColumnarScanState *state = (ColumnarScanState *) node;
	CustomScan *plan = (CustomScan *) node->ss.ps.plan;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	MemoryContext caller;

	state->context = AllocSetContextCreate(estate->es_query_cxt, "columnar custom scan",
										   ALLOCSET_DEFAULT_SIZES);
	memset(slot->tts_isnull, true, slot->tts_tupleDescriptor->natts);
	state->relation = node->ss.ss_currentRelation;
	init_quals(state, plan);
	state->ahead = choose_ahead(state, plan);
	if (columnar_enable_pruning)
	{
		List *secure = get_secure_quals(plan);

		state->pruner = pruner_create(node->ss.ss_currentRelation, plan->scan.scanrelid, secure,
									  list_length(secure) == list_length(plan->custom_exprs),
									  &node->ss.ps);
	}

	/* the scan begins with the first row, which may never be asked for; rows cannot be stored then */
	caller = MemoryContextSwitchTo(state->context);
	state->tree = tree_scan_begin(state, eflags);
	MemoryContextSwitchTo(caller);
	if (state->tree == NULL && !(eflags & EXEC_FLAG_EXPLAIN_ONLY) && !IsParallelWorker())
		write_buffer_flush(node->ss.ss_currentRelation);
}

static TupleTableSlot *
execute(CustomScanState *node)
{
	BatchSource *source = (BatchSource *) node;

	if (source->offer != NULL)
		return batch_offer_next(source);
	return ExecScan(&node->ss, fetch_row, recheck_row);
}

static void
rescan(CustomScanState *node)
{
	ColumnarScanState *state = (ColumnarScanState *) node;

	forget_columns(state, &state->output);
	state->batch = NULL;
	if (state->tree != NULL)
		tree_scan_rescan(state);
	else if (state->scan != NULL)
	{
		row_scan_rescan(state->scan);
		pgstat_count_heap_scan(node->ss.ss_currentRelation);
	}
	if (state->pruner != NULL)
	{
		pruner_reset(state->pruner);
		pruner_forget_limits(state->pruner);
	}
	scan_keys_forget(&state->keys);
	for (int i = 0; i < state->nfilters; i++)
	{
		state->filters[i].serial = 0;
		if (state->filters[i].vector != NULL)
			vector_expression_reset(state->filters[i].vector);
	}
	ExecScanReScan(&node->ss);
}

/* ---- its end ------------------------------------------------------------------------------------ */

static void
end(CustomScanState *node)
{
	ColumnarScanState *state = (ColumnarScanState *) node;

	custom_scan_report(state);
	if (state->tree != NULL)
		tree_scan_close(state);
	else if (state->scan != NULL)
		row_scan_end(state->scan);
	state->scan = NULL;
	state->batch = NULL;
	MemoryContextDelete(state->context);
}

static const CustomExecMethods exec_methods = {
	.CustomName = "ColumnarScan",
	.BeginCustomScan = begin,
	.ExecCustomScan = execute,
	.EndCustomScan = end,
	.ReScanCustomScan = rescan,
	.EstimateDSMCustomScan = custom_scan_estimate_dsm,
	.InitializeDSMCustomScan = custom_scan_initialize_dsm,
	.ReInitializeDSMCustomScan = custom_scan_reinitialize_dsm,
	.InitializeWorkerCustomScan = custom_scan_initialize_worker,
	.ShutdownCustomScan = custom_scan_shut_down,
	.ExplainCustomScan = custom_scan_explain,
};

const CustomScanMethods custom_scan_methods = {
	.CustomName = "ColumnarScan",
	.CreateCustomScanState = create_state,
};
