/*
 * batch_offer.c
 *		Rows that go from a plan into a table by batches: see batch_offer.h.
 *
 * Rows are offered only where nothing else looks at each of them: by the top node of a query whose
 * receiver is a new table, and by the node below the ModifyTable of an INSERT into a table
 * without triggers for rows, indexes, checks, generated columns and the like.  NOT NULL is
 * what most tables have: rows are taken up to the first that lacks a value, which core then refuses.
 *
 * Invariants:
 *	 - The slot has all values of its own row: whoever knows nothing of offers sees a plain row.
 *	 - A row is either taken or returned, in the order of the plan.
 *	 - What core counts for a row (rows processed, rows of the node) is counted for those taken.
 *
 * Volatile functions and correlated sub-selects, in the target list or a condition, are left to core:
 * they are called row by row, and may look at the table into which the rows before went.
 *
 * Memory: the offer lives as long as the query; vectors until the node's next batch, a row's values
 * until the next row.  Values of any length that are computed row by row (repeat(), a || b) would
 * be there for all rows of a batch at once: of these only as many are computed together as take
 * little memory.
 */
#include "exec/batch/batch_offer.h"

#include "exec/batch/batch_projection.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "store/rows/columnar_slot.h"
#include "store/options/settings.h"
#include "store/table/table_am.h"
#include "exec/vector/vector_append.h"
#include "store/rows/write_buffer.h"

/* Rows whose computed values are made together: at first, at most; and the bytes that they may have. */
#define FIRST_COMPUTED_ROWS 8
#define COMPUTED_ROWS_MAX 128
#define COMPUTED_BYTES_MAX (1024 * 1024)

/* Rows are appended together as long as they have no more bytes: the buffer's limits are looked at in between. */
#define APPENDED_BYTES_MAX (256 * 1024)

struct BatchOffer
{
	SlotOffer base; /* first member */
	BatchSource *source;
	MemoryContext context; /* of the expressions */
	MemoryContext row;	   /* of the values in the slot */
	TupleTableSlot *slot;
	int ncolumns;
	VectorExpression **expressions; /* of the node's target list */
	Vector **columns;				/* their values for the input */
	VectorInput input;				/* the rows of the batch that are computed together */
	uint32 evaluated;				/* rows of the batch's selection that were, so far */
	uint32 next; /* index into the input's selection: the first row that is not returned or taken */
	uint32 at_once; /* how many are; 0: all, as no value of any length is computed by row */
	uint64 taken;
};

static ExecutorStart_hook_type previous_start_hook = NULL;

static uint32 take_rows(SlotOffer *base, Relation relation, CommandId cid);

/* ---- who offers --------------------------------------------------------------------------------- */

/* Is nothing done for each row but to insert it, and to look for NULLs? */
static bool
inserts_only(const ModifyTableState *modify)
{
	const ModifyTable *plan = (const ModifyTable *) modify->ps.plan;
	const ResultRelInfo *result = modify->resultRelInfo;
	Relation relation = result->ri_RelationDesc;
	const TriggerDesc *triggers = result->ri_TrigDesc;
	const TupleConstr *constraints = RelationGetDescr(relation)->constr;

	if (modify->operation != CMD_INSERT || modify->mt_nrels != 1 || !columnar_is_table(relation))
		return false;
	if (plan->onConflictAction != ONCONFLICT_NONE || plan->returningLists != NIL ||
		result->ri_WithCheckOptions != NIL || result->ri_projectNew != NULL)
		return false;
	if (triggers != NULL && (triggers->trig_insert_before_row || triggers->trig_insert_after_row ||
							 triggers->trig_insert_instead_row || triggers->trig_insert_new_table))
		return false;
	if (constraints != NULL && (constraints->num_check > 0 || constraints->has_generated_stored))
		return false;
	/* a partition that is named itself checks that rows belong to it */
	return !relation->rd_rel->relhasindex && !relation->rd_rel->relispartition;
}

/* The node whose rows are inserted one by one; NULL if there is none, or more is done with them. */
static PlanState *
find_source(const QueryDesc *query)
{
	PlanState *top = query->planstate;
	PlanState *node = NULL;

	if (top == NULL)
		return NULL;
	if (IsA(top, ModifyTableState))
		node = inserts_only((ModifyTableState *) top) ? outerPlanState(top) : NULL;
	else if (query->operation == CMD_SELECT && query->dest != NULL &&
			 (query->dest->mydest == DestIntoRel || query->dest->mydest == DestTransientRel))
		node = top;
	return node != NULL && batch_source_is_one(node) ? node : NULL;
}

/* Is a sub-select read for each row, not once? */
static bool
has_correlated_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, SubPlan) && !((const SubPlan *) node)->useHashTable)
		return true;
	return expression_tree_walker(node, has_correlated_walker, context);
}

/* Is it computed row by row, and has any length? */
static bool
is_computed(const TargetEntry *target, const VectorExpression *expression)
{
	Oid type = exprType((Node *) target->expr);

	/* (numerics are short) */
	return get_typlen(type) < 0 && type != NUMERICOID &&
		   vector_expression_scalar_part(expression) != NULL;
}

/* Can all columns of a batch be had as vectors, before any of its rows is inserted? */
static bool
suits_vectors(const PlanState *node)
{
	const CustomScan *plan = (const CustomScan *) node->plan;
	Index varno = plan->scan.scanrelid;
	Bitmapset *attributes = NULL;
	ListCell *cell;
	int first;

	if (contain_volatile_functions((Node *) node->plan->targetlist) ||
		contain_subplans((Node *) node->plan->targetlist) ||
		contain_volatile_functions((Node *) plan->custom_exprs) ||
		has_correlated_walker((Node *) plan->custom_exprs, NULL))
		return false;
	foreach(cell, node->plan->targetlist)
		if (lfirst_node(TargetEntry, cell)->resjunk)
			return false;
	if (varno == 0)
		return true;
	/* system columns, and whole rows */
	pull_varattnos((Node *) node->plan->targetlist, varno, &attributes);
	first = bms_next_member(attributes, -1);
	return first < 0 || first + FirstLowInvalidHeapAttributeNumber > 0;
}

static void
begin_offer(BatchSource *source)
{
	CustomScanState *node = &source->custom;
	EState *estate = node->ss.ps.state;
	MemoryContext caller = MemoryContextSwitchTo(estate->es_query_cxt);
	List *targets = node->ss.ps.plan->targetlist;
	BatchOffer *offer = palloc0(sizeof(BatchOffer));
	ListCell *cell;

	offer->base.take = take_rows;
	offer->source = source;
	offer->context = AllocSetContextCreate(estate->es_query_cxt, "columnar offered rows",
										   ALLOCSET_DEFAULT_SIZES);
	offer->row = AllocSetContextCreate(offer->context, "columnar offered row",
									   ALLOCSET_DEFAULT_SIZES);
	offer->slot = ExecInitExtraTupleSlot(estate, ExecGetResultType(&node->ss.ps),
										 &columnar_slot_ops);
	offer->ncolumns = list_length(targets);
	offer->expressions = batch_projection_compile(source, offer->context);
	offer->columns = palloc0(sizeof(Vector *) * Max(offer->ncolumns, 1));

	foreach(cell, targets)
		if (is_computed(lfirst_node(TargetEntry, cell),
						offer->expressions[foreach_current_index(cell)]))
			offer->at_once = FIRST_COMPUTED_ROWS;

	columnar_slot_set_offer(offer->slot, &offer->base);
	source->offer = offer;
	MemoryContextSwitchTo(caller);
}

static void
start_executor(QueryDesc *query, int eflags)
{
	PlanState *node;

	if (previous_start_hook)
		previous_start_hook(query, eflags);
	else
		standard_ExecutorStart(query, eflags);

	if (!columnar_enable_vector)
		return;
	node = find_source(query);
	if (node != NULL && suits_vectors(node))
		begin_offer((BatchSource *) node);
}

void
batch_offer_initialize(void)
{
	previous_start_hook = ExecutorStart_hook;
	ExecutorStart_hook = start_executor;
}

/* ---- rows --------------------------------------------------------------------------------------- */

/* Fetches the node's next batch; false at the end. */
static bool
read_batch(BatchOffer *offer)
{
	BatchSource *source = offer->source;

	offer->input.batch = source->next_batch(source);
	offer->evaluated = 0;
	ResetExprContext(source->custom.ss.ps.ps_ExprContext);
	return offer->input.batch != NULL;
}

/* By the bytes that the values have: as many rows the next time as have not many more. */
static void
adapt_to_lengths(BatchOffer *offer)
{
	uint64 bytes = 0;

	for (int i = 0; i < offer->ncolumns; i++)
		bytes += vector_count_bytes(offer->columns[i], offer->input.selection,
									offer->input.nselected);
	if (bytes > COMPUTED_BYTES_MAX)
		offer->at_once = Max((uint64) offer->input.nselected * COMPUTED_BYTES_MAX / bytes, 1);
	else
		offer->at_once = Min(offer->at_once * 2, COMPUTED_ROWS_MAX);
}

/* Computes the columns of the next rows; false if there are none. */
static bool
evaluate_rows(BatchOffer *offer)
{
	VectorInput *input = &offer->input;
	MemoryContext caller;

	offer->next = input->nselected = 0;
	if ((input->batch == NULL || offer->evaluated >= input->batch->nselected) && !read_batch(offer))
		return false;
	input->selection = input->batch->selection + offer->evaluated;
	input->nselected = input->batch->nselected - offer->evaluated;
	if (offer->at_once > 0)
		input->nselected = Min(input->nselected, offer->at_once);
	offer->evaluated += input->nselected;
	input->number++;

	caller = MemoryContextSwitchTo(
		offer->source->custom.ss.ps.ps_ExprContext->ecxt_per_tuple_memory);
	for (int i = 0; i < offer->ncolumns; i++)
		offer->columns[i] = vector_expression_evaluate(offer->expressions[i], input);
	MemoryContextSwitchTo(caller);
	if (offer->at_once > 0)
		adapt_to_lengths(offer);
	return true;
}

TupleTableSlot *
batch_offer_next(BatchSource *source)
{
	BatchOffer *offer = source->offer;
	TupleTableSlot *slot = offer->slot;
	MemoryContext caller;
	uint32 row;

	CHECK_FOR_INTERRUPTS();
	ExecClearTuple(slot);
	if (offer->next >= offer->input.nselected && !evaluate_rows(offer))
		return NULL;

	row = offer->input.selection[offer->next++];
	MemoryContextReset(offer->row);
	caller = MemoryContextSwitchTo(offer->row);
	for (int i = 0; i < offer->ncolumns; i++)
		slot->tts_values[i] = vector_datum(offer->columns[i], row, &slot->tts_isnull[i]);
	MemoryContextSwitchTo(caller);
	return ExecStoreVirtualTuple(slot);
}

/* ---- taking ------------------------------------------------------------------------------------- */

/* How many of the offered rows, from the first, have values where the table demands them? */
static uint32
count_rows_without_nulls(const BatchOffer *offer, TupleDesc descriptor)
{
	const uint16 *positions = offer->input.selection + offer->next;
	uint32 n = offer->input.nselected - offer->next;

	for (int i = 0; i < descriptor->natts; i++)
	{
		const Vector *column = offer->columns[i];

		if (!TupleDescAttr(descriptor, i)->attnotnull || column->nulls == NULL)
			continue;
		for (uint32 row = 0; row < n; row++)
			if (vector_is_null(column, positions[row]))
				n = row;
	}
	return n;
}

/* How many of the rows may be appended at once: there is room, and they are short. */
static uint32
count_fitting(const WriteRoom *room, Vector *const *columns, const uint16 *positions, uint32 nrows)
{
	nrows = Min(nrows, room->nrows);
	for (;; nrows /= 2)
	{
		uint64 bytes = 0;

		for (int i = 0; i < room->natts; i++)
			if (room->columns[i].type != NULL)
				bytes += vector_count_bytes(columns[i], positions, nrows);
		if (bytes <= APPENDED_BYTES_MAX || nrows == 1)
			return nrows;
	}
}

/* Appends the rows at these positions of vectors, one for each of the table's columns. */
static void
append_rows(Relation relation, Vector *const *columns, const uint16 *positions, uint32 nrows,
			CommandId cid)
{
	while (nrows > 0)
	{
		WriteRoom room;
		uint32 n;

		write_buffer_lend(relation, cid, &room);
		n = count_fitting(&room, columns, positions, nrows);
		for (int i = 0; i < room.natts; i++)
			if (room.columns[i].type != NULL)
				vector_append(columns[i], positions, n, &room.columns[i]);
		write_buffer_take_back(relation, &room, n);
		positions += n;
		nrows -= n;
		CHECK_FOR_INTERRUPTS();
	}
}

/* SlotOffer.take */
static uint32
take_rows(SlotOffer *base, Relation relation, CommandId cid)
{
	BatchOffer *offer = (BatchOffer *) base;
	TupleDesc descriptor = RelationGetDescr(relation);
	PlanState *node;
	uint32 n;

	if (offer->next >= offer->input.nselected || offer->ncolumns != descriptor->natts ||
		relation->rd_rel->relhasindex)
		return 0;
	n = count_rows_without_nulls(offer, descriptor);
	append_rows(relation, offer->columns, offer->input.selection + offer->next, n, cid);
	offer->next += n;
	offer->taken += n;

	node = &offer->source->custom.ss.ps;
	node->state->es_processed += n;
	if (node->instrument != NULL)
		node->instrument->tuplecount += n;
	return n;
}

/* ---- EXPLAIN ------------------------------------------------------------------------------------ */

void
batch_offer_explain(const BatchSource *source, ExplainState *es)
{
	const BatchOffer *offer = source->offer;
	List *names = NIL;
	ListCell *cell;

	if (offer == NULL)
		return;
	ExplainPropertyBool("Offers Batches", true, es);
	foreach(cell, source->custom.ss.ps.plan->targetlist)
	{
		const TargetEntry *target = lfirst_node(TargetEntry, cell);

		if (vector_expression_scalar_part(offer->expressions[target->resno - 1]) != NULL)
			names = lappend(names, target->resname ? target->resname : "?column?");
	}
	if (names != NIL)
		ExplainPropertyList("Columns Computed by Row", names, es);
	if (es->analyze)
		ExplainPropertyUInteger("Rows Taken", NULL, offer->taken, es);
}
