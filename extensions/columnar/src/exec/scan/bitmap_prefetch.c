/*
 * bitmap_prefetch.c
 *		Bitmap heap scans of columnar tables do not prefetch.
 *
 * Core reads ahead the blocks that a bitmap's tids name.  Those of a columnar table
 * are row numbers in disguise (row_number_to_tid()), no blocks of its file: at
 * best the wrong ones are read, and beyond the file's last segment of 1 GB it is an
 * error.  The setting of each scan is cleared when the executor has
 * made its state, in parallel workers too.
 *
 * Left out: the subplans that an EvalPlanQual recheck makes anew have no hook.
 */
#include "exec/scan/custom_scan.h"

#include "access/parallel.h"
#include "access/table.h"
#include "store/rows/write_buffer.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"

#include "store/table/table_am.h"

static ExecutorStart_hook_type previous_start_hook = NULL;

/* planstate_tree_walker() callback. */
static bool
stop_prefetch(PlanState *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, BitmapHeapScanState))
	{
		BitmapHeapScanState *scan = (BitmapHeapScanState *) node;

		if (scan->ss.ss_currentRelation != NULL && columnar_is_table(scan->ss.ss_currentRelation))
			compat_stop_bitmap_prefetch(scan);
	}
	return planstate_tree_walker(node, stop_prefetch, context);
}

/*
 * Workers of a parallel index scan cannot look into this session's write buffers, and
 * the scan does not store them: do it before parallel mode begins.
 */
static void
store_buffers_for_workers(PlannedStmt *plan)
{
	ListCell *cell;

	foreach(cell, plan->rtable)
	{
		RangeTblEntry *entry = lfirst_node(RangeTblEntry, cell);

		if (entry->rtekind == RTE_RELATION && !write_buffer_is_empty(entry->relid))
		{
			Relation relation = table_open(entry->relid, AccessShareLock);

			write_buffer_flush(relation);
			table_close(relation, NoLock);
		}
	}
}

static void
start_executor(QueryDesc *query, int eflags)
{
	ListCell *cell;

	if (query->plannedstmt->parallelModeNeeded && !IsParallelWorker() &&
		!(eflags & EXEC_FLAG_EXPLAIN_ONLY))
		store_buffers_for_workers(query->plannedstmt);

	if (previous_start_hook)
		previous_start_hook(query, eflags);
	else
		standard_ExecutorStart(query, eflags);

	stop_prefetch(query->planstate, NULL);
	/* also those that no expression refers to any more */
	foreach(cell, query->estate->es_subplanstates)
		stop_prefetch(lfirst(cell), NULL);
}

void
bitmap_prefetch_initialize(void)
{
	previous_start_hook = ExecutorStart_hook;
	ExecutorStart_hook = start_executor;
}
