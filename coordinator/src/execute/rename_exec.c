/*
 * rename_exec.c
 *		Execution of the node that hands on rows under other expressions.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "nodes/extensible.h"

#include "execute/rename_exec.h"
#include "plan/rename_plan.h"

static PlanState *
child_of(ScanState *node)
{
	return linitial(((CustomScanState *) node)->custom_ps);
}

static void
begin_rename(CustomScanState *node, EState *estate, int eflags)
{
	CustomScan *scan = (CustomScan *) node->ss.ps.plan;

	node->custom_ps = list_make1(ExecInitNode(linitial(scan->custom_plans), estate, eflags));
}

static TupleTableSlot *
next_row(ScanState *node)
{
	TupleTableSlot *slot = node->ss_ScanTupleSlot;
	TupleTableSlot *row = ExecProcNode(child_of(node));
	int count = slot->tts_tupleDescriptor->natts;

	ExecClearTuple(slot);
	if (TupIsNull(row))
		return slot;
	slot_getsomeattrs(row, count);
	memcpy(slot->tts_values, row->tts_values, sizeof(Datum) * count);
	memcpy(slot->tts_isnull, row->tts_isnull, sizeof(bool) * count);
	return ExecStoreVirtualTuple(slot);
}

static bool
recheck_row(ScanState *node, TupleTableSlot *slot)
{
	return true; /* groups are not rechecked */
}

static TupleTableSlot *
exec_rename(CustomScanState *node)
{
	return ExecScan(&node->ss, next_row, recheck_row);
}

static void
end_rename(CustomScanState *node)
{
	ExecEndNode(child_of(&node->ss));
}

static void
rescan_rename(CustomScanState *node)
{
	PlanState *child = child_of(&node->ss);

	ExecScanReScan(&node->ss);
	if (node->ss.ps.chgParam != NULL)
		UpdateChangedParamSet(child, node->ss.ps.chgParam);
	if (child->chgParam == NULL)
		ExecReScan(child);
}

static const CustomExecMethods rename_exec_methods = {
	.CustomName = RENAME_NAME,
	.BeginCustomScan = begin_rename,
	.ExecCustomScan = exec_rename,
	.EndCustomScan = end_rename,
	.ReScanCustomScan = rescan_rename,
};

static Node *
create_state(CustomScan *scan)
{
	CustomScanState *state = makeNode(CustomScanState);

	state->methods = &rename_exec_methods;
	return (Node *) state;
}

static const CustomScanMethods rename_scan_methods = {
	.CustomName = RENAME_NAME,
	.CreateCustomScanState = create_state,
};

void
rename_initialize(void)
{
	RegisterCustomScanMethods(&rename_scan_methods);
}
