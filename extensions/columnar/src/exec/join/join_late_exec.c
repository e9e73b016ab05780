/*
 * join_late_exec.c
 *		ColumnarLateJoin, which takes a nested loop or a hash join when it knows its outer rows.
 *
 * It reads outer rows until they are more than a loop is good for, and then runs one of the two joins. In
 * both ColumnarLateRows stands for the outer side: the rows that were kept, and then what is left of it.
 *
 * Invariant: one of the two joins runs between two rescans, so the outer side is read once.
 */
#include "exec/join/join_late.h"

#include "commands/explain.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "utils/memutils.h"

typedef struct LateJoinState
{
	CustomScanState custom; /* first member */
	PlanState *outer;
	PlanState *loop;
	PlanState *hash;
	PlanState *chosen; /* NULL until the outer rows were read */
	MemoryContext memory;
	MinimalTuple *kept;
	int nkept;
	int limit;
	bool is_read; /* all of the outer side */
} LateJoinState;

typedef struct LateRowsState
{
	CustomScanState custom; /* first member */
	LateJoinState *join;
	int next; /* of the rows that were kept */
} LateRowsState;

/* Whose two joins are being initialised: ColumnarLateRows below belong to it. */
static LateJoinState *initialised = NULL;

/* ---- ColumnarLateRows --------------------------------------------------------------------------- */

static void
rows_begin(CustomScanState *node, EState *estate, int eflags)
{
	((LateRowsState *) node)->join = initialised;
}

/* The row as the node's scan tuple, which its target list is computed of. */
static TupleTableSlot *
project(CustomScanState *node, TupleTableSlot *row)
{
	ProjectionInfo *projection = node->ss.ps.ps_ProjInfo;

	if (projection == NULL)
		return row;
	ResetExprContext(node->ss.ps.ps_ExprContext);
	node->ss.ps.ps_ExprContext->ecxt_scantuple = row;
	return ExecProject(projection);
}

/* The child's row as the node's scan tuple; valid as long as the child's. */
static TupleTableSlot *
refer_to(CustomScanState *node, TupleTableSlot *row)
{
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	int natts = slot->tts_tupleDescriptor->natts;

	ExecClearTuple(slot);
	slot_getallattrs(row);
	memcpy(slot->tts_values, row->tts_values, natts * sizeof(Datum));
	memcpy(slot->tts_isnull, row->tts_isnull, natts * sizeof(bool));
	return ExecStoreVirtualTuple(slot);
}

static TupleTableSlot *
read_outer(LateJoinState *join)
{
	TupleTableSlot *row = join->is_read ? NULL : ExecProcNode(join->outer);

	if (TupIsNull(row))
	{
		join->is_read = true;
		return NULL;
	}
	return row;
}

static TupleTableSlot *
rows_execute(CustomScanState *node)
{
	LateRowsState *state = (LateRowsState *) node;
	LateJoinState *join = state->join;
	TupleTableSlot *row;

	CHECK_FOR_INTERRUPTS();
	if (state->next < join->nkept)
	{
		row = node->ss.ss_ScanTupleSlot;
		ExecForceStoreMinimalTuple(join->kept[state->next++], row, false);
		return project(node, row);
	}
	row = read_outer(join);
	return row == NULL ? NULL : project(node, refer_to(node, row));
}

static void
rows_rescan(CustomScanState *node)
{
	((LateRowsState *) node)->next = 0;
}

static void
rows_end(CustomScanState *node)
{
}

/* ---- ColumnarLateJoin ---------------------------------------------------------------------------- */

static void
begin(CustomScanState *node, EState *estate, int eflags)
{
	LateJoinState *state = (LateJoinState *) node;
	const CustomScan *plan = (CustomScan *) node->ss.ps.plan;
	LateJoinState *above = initialised;

	state->limit = linitial_int(plan->custom_private);
	state->memory = AllocSetContextCreate(estate->es_query_cxt, "rows of a late join",
										  ALLOCSET_DEFAULT_SIZES);
	state->outer = ExecInitNode(list_nth(plan->custom_plans, LATE_CHILD_OUTER), estate, eflags);
	initialised = state;
	state->loop = ExecInitNode(list_nth(plan->custom_plans, LATE_CHILD_LOOP), estate, eflags);
	state->hash = ExecInitNode(list_nth(plan->custom_plans, LATE_CHILD_HASH), estate, eflags);
	initialised = above;
	node->custom_ps = list_make3(state->outer, state->loop, state->hash);
}

/* Keep outer rows until they end, or are too many for look-ups. */
static void
choose(LateJoinState *state)
{
	MemoryContext caller;
	int room = 0;

	while (state->nkept <= state->limit)
	{
		TupleTableSlot *row = read_outer(state);

		if (row == NULL)
			break;
		caller = MemoryContextSwitchTo(state->memory);
		if (state->nkept == room)
		{
			room = Max(2 * room, 64);
			state->kept = state->kept == NULL ? palloc(room * sizeof(MinimalTuple))
											  : repalloc(state->kept, room * sizeof(MinimalTuple));
		}
		state->kept[state->nkept++] = ExecCopySlotMinimalTuple(row);
		MemoryContextSwitchTo(caller);
	}
	state->chosen = state->is_read ? state->loop : state->hash;
}

static TupleTableSlot *
execute(CustomScanState *node)
{
	LateJoinState *state = (LateJoinState *) node;
	TupleTableSlot *row;

	CHECK_FOR_INTERRUPTS();
	if (state->chosen == NULL)
		choose(state);
	row = ExecProcNode(state->chosen);
	return TupIsNull(row) ? NULL : project(node, refer_to(node, row));
}

static void
rescan(CustomScanState *node)
{
	LateJoinState *state = (LateJoinState *) node;
	ListCell *cell;

	foreach(cell, node->custom_ps)
	{
		PlanState *child = lfirst(cell);

		if (node->ss.ps.chgParam != NULL)
			UpdateChangedParamSet(child, node->ss.ps.chgParam);
		/* otherwise its first ExecProcNode() begins anew */
		if (child->chgParam == NULL)
			ExecReScan(child);
	}
	MemoryContextReset(state->memory);
	state->kept = NULL;
	state->nkept = 0;
	state->is_read = false;
	state->chosen = NULL;
}

static void
end(CustomScanState *node)
{
	ListCell *cell;

	foreach(cell, node->custom_ps)
		ExecEndNode(lfirst(cell));
	MemoryContextDelete(((LateJoinState *) node)->memory);
}

static void
explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
	ExplainPropertyInteger("Nested Loop Up To", "rows", ((LateJoinState *) node)->limit, es);
}

/* ---- the rest of the nodes ------------------------------------------------------------------------ */

static const CustomExecMethods exec_methods = {
	.CustomName = "ColumnarLateJoin",
	.BeginCustomScan = begin,
	.ExecCustomScan = execute,
	.EndCustomScan = end,
	.ReScanCustomScan = rescan,
	.ExplainCustomScan = explain,
};

static const CustomExecMethods rows_exec_methods = {
	.CustomName = "ColumnarLateRows",
	.BeginCustomScan = rows_begin,
	.ExecCustomScan = rows_execute,
	.EndCustomScan = rows_end,
	.ReScanCustomScan = rows_rescan,
};

static Node *
create_state(CustomScan *plan)
{
	LateJoinState *state = (LateJoinState *) newNode(sizeof(LateJoinState), T_CustomScanState);

	state->custom.methods = &exec_methods;
	return (Node *) state;
}

static Node *
create_rows_state(CustomScan *plan)
{
	LateRowsState *state = (LateRowsState *) newNode(sizeof(LateRowsState), T_CustomScanState);

	state->custom.methods = &rows_exec_methods;
	return (Node *) state;
}

const CustomScanMethods join_late_scan_methods = {
	.CustomName = "ColumnarLateJoin",
	.CreateCustomScanState = create_state,
};

const CustomScanMethods join_late_rows_scan_methods = {
	.CustomName = "ColumnarLateRows",
	.CreateCustomScanState = create_rows_state,
};

void
join_late_initialize(void)
{
	RegisterCustomScanMethods(&join_late_scan_methods);
	RegisterCustomScanMethods(&join_late_rows_scan_methods);
}
