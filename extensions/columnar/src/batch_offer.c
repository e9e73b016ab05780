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
 * Target lists with volatile functions are left to core: their calls have an order, row by row.
 *
 * Memory: the offer lives as long as the query; vectors until the node's next batch, a row's values
 * until the next row.
 */
#include "batch_offer.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "columnar_slot.h"
#include "settings.h"
#include "table_am.h"
#include "write_buffer.h"

struct BatchOffer
{
	BatchSource *source;
	MemoryContext context; /* of the expressions */
	MemoryContext row;	   /* of the values in the slot */
	TupleTableSlot *slot;
	int ncolumns;
	VectorExpression **expressions; /* of the node's target list */
	Vector **columns;				/* their values in the batch */
	VectorInput input;
	uint32 next; /* index into the batch's selection: the first row that is not returned or taken */
	uint64 taken;
};

static ExecutorStart_hook_type previous_start_hook = NULL;

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

/* Can all columns of the node's rows be had as vectors? */
static bool
suits_vectors(const PlanState *node)
{
	Index varno = ((const Scan *) node->plan)->scanrelid;
	Bitmapset *attributes = NULL;
	ListCell *cell;
	int first;

	if (contain_volatile_functions((Node *) node->plan->targetlist) ||
		contain_subplans((Node *) node->plan->targetlist))
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
	VectorScope scope = {0};
	ListCell *cell;

	offer->source = source;
	offer->context = AllocSetContextCreate(estate->es_query_cxt, "columnar offered rows",
										   ALLOCSET_DEFAULT_SIZES);
	offer->row = AllocSetContextCreate(offer->context, "columnar offered row",
									   ALLOCSET_DEFAULT_SIZES);
	offer->slot = ExecInitExtraTupleSlot(estate, ExecGetResultType(&node->ss.ps),
										 &columnar_slot_ops);
	offer->ncolumns = list_length(targets);
	offer->expressions = palloc(sizeof(VectorExpression *) * Max(offer->ncolumns, 1));
	offer->columns = palloc0(sizeof(Vector *) * Max(offer->ncolumns, 1));

	batch_source_init_scope(&scope, node, node->ss.ss_ScanTupleSlot->tts_tupleDescriptor,
							offer->context);
	if (((Scan *) node->ss.ps.plan)->scanrelid > 0)
		scope.varno = ((Scan *) node->ss.ps.plan)->scanrelid;
	foreach(cell, targets)
		offer->expressions[foreach_current_index(cell)] = vector_expression_compile(
			lfirst_node(TargetEntry, cell)->expr, &scope);

	columnar_slot_set_offer(offer->slot, offer);
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

/* Computes the columns of the node's next batch; false at the end. */
static bool
read_batch(BatchOffer *offer)
{
	BatchSource *source = offer->source;
	ExprContext *econtext = source->custom.ss.ps.ps_ExprContext;
	VectorBatch *batch = source->next_batch(source);
	MemoryContext caller;

	offer->next = 0;
	if (batch == NULL)
	{
		offer->input.nselected = 0;
		return false;
	}
	offer->input.batch = batch;
	offer->input.selection = batch->selection;
	offer->input.nselected = batch->nselected;
	offer->input.number++;

	ResetExprContext(econtext);
	caller = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	for (int i = 0; i < offer->ncolumns; i++)
		offer->columns[i] = vector_expression_evaluate(offer->expressions[i], &offer->input);
	MemoryContextSwitchTo(caller);
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
	if (offer->next >= offer->input.nselected && !read_batch(offer))
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

uint32
batch_offer_take(Relation relation, TupleTableSlot *slot, CommandId cid)
{
	BatchOffer *offer = columnar_slot_offer(slot);
	TupleDesc descriptor = RelationGetDescr(relation);
	PlanState *node;
	uint32 n;

	if (offer == NULL || offer->next >= offer->input.nselected ||
		offer->ncolumns != descriptor->natts || relation->rd_rel->relhasindex)
		return 0;
	n = count_rows_without_nulls(offer, descriptor);
	write_buffer_append_vectors(relation, offer->columns, offer->input.selection + offer->next, n,
								cid);
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
