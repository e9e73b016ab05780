/*
 * batch_source.c
 *		Reading the batches of one child, or of several in turn.
 *
 * Children are nodes of their own in EXPLAIN, though nobody asks them for rows: their time and
 * the rows of their batches are counted here.
 */
#include "exec/batch/batch_projection.h"

#include "executor/executor.h"
#include "executor/instrument.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"

/* The nodes of this library. */
#define NODES_MAX 16

static struct
{
	const CustomScanMethods *methods;
	BatchRole role;
} nodes[NODES_MAX];
static int nnodes = 0;

void
batch_source_register(const CustomScanMethods *methods, BatchRole role)
{
	if (nnodes == NODES_MAX)
		elog(ERROR, "too many kinds of nodes");
	nodes[nnodes].methods = methods;
	nodes[nnodes++].role = role;
	RegisterCustomScanMethods(methods);
}

BatchRole
batch_source_path_role(const Path *path)
{
	if (!IsA(path, CustomPath))
		return BATCH_ROLE_NONE;
	/* names are unique in a server, see custom_scan.h; a path and its plan have the same one */
	for (int i = 0; i < nnodes; i++)
		if (strcmp(((const CustomPath *) path)->methods->CustomName,
				   nodes[i].methods->CustomName) == 0)
			return nodes[i].role;
	return BATCH_ROLE_NONE;
}

BatchRole
batch_source_plan_role(const Plan *plan)
{
	if (!IsA(plan, CustomScan))
		return BATCH_ROLE_NONE;
	for (int i = 0; i < nnodes; i++)
		if (((const CustomScan *) plan)->methods == nodes[i].methods)
			return nodes[i].role;
	return BATCH_ROLE_NONE;
}

List *
batch_source_columns(List *expressions)
{
	List *vars = pull_var_clause((Node *) expressions,
								 PVC_RECURSE_AGGREGATES | PVC_RECURSE_PLACEHOLDERS);
	List *columns = NIL;
	ListCell *cell;

	foreach(cell, vars)
		columns = list_append_unique(columns, lfirst(cell));
	return columns;
}

/* Which columns Vars are, or the Vars that columns are. */
typedef struct ColumnNames
{
	List *columns;
	bool to_numbers;
} ColumnNames;

static Node *
translate_columns(Node *node, ColumnNames *names)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Var) && names->to_numbers)
	{
		Var *var = (Var *) node;
		ListCell *cell;

		foreach(cell, names->columns)
			if (equal(lfirst(cell), var))
				return (Node *) makeVar(INDEX_VAR, foreach_current_index(cell) + 1, var->vartype,
										var->vartypmod, var->varcollid, 0);
		elog(ERROR, "column %d of relation %u is not among those that are read", var->varattno,
			 var->varno);
	}
	if (IsA(node, Var) && ((Var *) node)->varno == INDEX_VAR)
		return copyObject(list_nth(names->columns, ((Var *) node)->varattno - 1));
	return expression_tree_mutator(node, translate_columns, names);
}

Node *
batch_source_number_columns(Node *expression, List *columns)
{
	return translate_columns(expression, &(ColumnNames){.columns = columns, .to_numbers = true});
}

Node *
batch_source_name_columns(Node *expression, List *columns)
{
	return translate_columns(expression, &(ColumnNames){.columns = columns});
}

void
batch_source_init_scope(VectorScope *scope, CustomScanState *node, TupleDesc columns,
						MemoryContext context)
{
	scope->parent = &node->ss.ps;
	scope->context = context;
	scope->varno = INDEX_VAR;
	scope->slot = ExecInitExtraTupleSlot(node->ss.ps.state, columns, &TTSOpsVirtual);
	ExecStoreAllNullTuple(scope->slot);
}

/* The node's own column that an entry of its target list is; 0: it is computed. */
static AttrNumber
find_own_column(const CustomScan *plan, int entry)
{
	const TargetEntry *target = list_nth(plan->scan.plan.targetlist, entry - 1);
	const Var *var = (const Var *) target->expr;
	int varno = plan->scan.scanrelid > 0 ? (int) plan->scan.scanrelid : INDEX_VAR;

	return IsA(var, Var) && var->varno == varno && var->varattno > 0 ? var->varattno : 0;
}

/* Columns of the child are entries of its target list: its own columns, if all of them are that. */
static void
init_entries(BatchChild *child, int ncolumns)
{
	bool computed = false;

	child->projected = palloc0(sizeof(AttrNumber) * Max(ncolumns, 1));
	for (int i = 0; i < ncolumns; i++)
	{
		if (child->attributes[i] == 0)
			continue;
		child->attributes[i] = -child->attributes[i];
		child->projected[i] = child->rows ? child->attributes[i]
										  : find_own_column((const CustomScan *) child->plan->plan,
															child->attributes[i]);
		computed |= child->projected[i] == 0;
	}
	if (computed)
		child->projection = batch_projection_create((BatchSource *) child->plan);
	else
		memcpy(child->attributes, child->projected, sizeof(AttrNumber) * ncolumns);
}

static void
init_child(BatchChild *child, PlanState *plan, const List *columns)
{
	bool entries = false;
	ListCell *cell;

	child->plan = plan;
	child->attributes = palloc(sizeof(AttrNumber) * Max(list_length(columns), 1));
	child->projected = child->attributes;
	child->rows = batch_source_is_one(plan) ? NULL : batch_rows_create(plan);
	foreach(cell, columns)
	{
		child->attributes[foreach_current_index(cell)] = (AttrNumber) lfirst_int(cell);
		entries |= lfirst_int(cell) < 0;
	}
	if (entries)
		init_entries(child, list_length(columns));
}

void
batch_reader_init(BatchReader *reader, CustomScanState *node, int first, const List *columns,
				  int eflags)
{
	CustomScan *plan = (CustomScan *) node->ss.ps.plan;
	ListCell *cell;

	reader->nchildren = list_length(columns);
	reader->children = palloc0(sizeof(BatchChild) * Max(reader->nchildren, 1));
	reader->current = 0;
	reader->backward = false;
	reader->number = 0;
	foreach(cell, columns)
	{
		int i = foreach_current_index(cell);
		PlanState *child = ExecInitNode(list_nth(plan->custom_plans, first + i), node->ss.ps.state,
										eflags);

		node->custom_ps = lappend(node->custom_ps, child);
		init_child(&reader->children[i], child, lfirst(cell));
	}
}

VectorBatch *
batch_source_read(BatchSource *source)
{
	PlanState *plan = &source->custom.ss.ps;
	VectorBatch *batch;

	if (plan->chgParam != NULL)
		ExecReScan(plan);
	if (plan->instrument)
		InstrStartNode(plan->instrument);
	batch = source->next_batch(source);
	if (plan->instrument)
		InstrStopNode(plan->instrument, batch ? batch->nselected : 0);
	return batch;
}

static VectorBatch *
read_child(BatchChild *child)
{
	if (child->rows != NULL)
		return batch_rows_next(child->rows);
	if (child->projection != NULL)
		return batch_projection_next(child->projection);
	return batch_source_read((BatchSource *) child->plan);
}

/* The child as a node that has batches; NULL if it has none. */
static BatchSource *
get_source(const BatchChild *child)
{
	return child->rows ? NULL : (BatchSource *) child->plan;
}

void
batch_reader_limit(const BatchReader *reader, AttrNumber column, const BatchLimit *limit)
{
	for (int i = 0; i < reader->nchildren; i++)
	{
		const BatchChild *child = &reader->children[i];
		BatchSource *source = get_source(child);

		if (source != NULL && source->limit != NULL && child->projected[column - 1] > 0)
			source->limit(source, child->projected[column - 1], limit);
	}
}

void
batch_reader_filter(const BatchReader *reader, AttrNumber column, KeyFilter *filter,
					const KeyRate *next)
{
	for (int i = 0; i < reader->nchildren; i++)
	{
		const BatchChild *child = &reader->children[i];
		BatchSource *source = get_source(child);

		if (source != NULL && source->filter != NULL && child->projected[column - 1] > 0)
			source->filter(source, child->projected[column - 1], filter, next);
	}
}

static bool
take_group(void *owner, RowGroupReader *group)
{
	const BatchChild *child = owner;

	return child->taker(child->owner, child->attributes, group);
}

void
batch_reader_set_taker(BatchReader *reader, BatchTaker taker, void *owner)
{
	for (int i = 0; i < reader->nchildren; i++)
	{
		BatchChild *child = &reader->children[i];
		BatchSource *source = get_source(child);

		if (source == NULL || source->offer_groups == NULL || child->projection != NULL)
			continue;
		child->taker = taker;
		child->owner = owner;
		source->offer_groups(source, take_group, child);
	}
}

void
batch_reader_turn(BatchReader *reader)
{
	reader->backward = true;
	for (int i = 0; i < reader->nchildren; i++)
	{
		BatchSource *source = get_source(&reader->children[i]);

		if (source != NULL && source->turn != NULL)
			source->turn(source);
	}
}

bool
batch_reader_next(BatchReader *reader, VectorInput *input)
{
	for (; reader->current < reader->nchildren; reader->current++)
	{
		int number = reader->backward ? reader->nchildren - 1 - reader->current : reader->current;
		BatchChild *child = &reader->children[number];
		VectorBatch *batch = read_child(child);

		if (batch == NULL)
			continue;
		input->batch = batch;
		input->attributes = child->attributes;
		input->selection = batch->selection;
		input->nselected = batch->nselected;
		input->number = ++reader->number;
		return true;
	}
	return false;
}

void
batch_reader_rescan(BatchReader *reader, CustomScanState *node)
{
	reader->current = 0;
	for (int i = 0; i < reader->nchildren; i++)
	{
		PlanState *child = reader->children[i].plan;

		if (node->ss.ps.chgParam != NULL)
			UpdateChangedParamSet(child, node->ss.ps.chgParam);
		ExecReScan(child);
		if (reader->children[i].rows != NULL)
			batch_rows_rescan(reader->children[i].rows);
		if (reader->children[i].projection != NULL)
			batch_projection_rescan(reader->children[i].projection);
	}
}

void
batch_reader_end(BatchReader *reader)
{
	for (int i = 0; i < reader->nchildren; i++)
		ExecEndNode(reader->children[i].plan);
}
