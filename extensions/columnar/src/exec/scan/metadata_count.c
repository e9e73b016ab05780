/*
 * metadata_count.c
 *		SELECT count(*) FROM table, answered from row group records: ColumnarCount.
 *
 * A node in the place of the whole aggregation, for a query of one columnar table
 * (or of a partitioned or inherited one whose members all are) without any
 * condition, row security included.  It emits one row, with the
 * count for each count(*), count(constant) and count(column that is NOT NULL).
 *
 * The tables stay in the plan's range table, so privileges, locks and plan
 * invalidation are core's business.  The node has them by oid: indexes into
 * the range table would have to be renumbered, which custom_private is not.
 */
#include "exec/scan/custom_scan.h"

#include "access/parallel.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/planner.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "pgstat.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "not_null.h"
#include "store/options/settings.h"
#include "store/table/table_am.h"
#include "exec/scan/tree_plan.h"
#include "exec/scan/tree_scan.h"
#include "store/rows/write_buffer.h"

typedef struct ColumnarCountState
{
	CustomScanState custom; /* first member */
	List *tables;			/* oids */
	bool done;
} ColumnarCountState;

static create_upper_paths_hook_type previous_upper_hook = NULL;

static const CustomScanMethods count_methods;
static const CustomExecMethods count_exec_methods;

/* ---- which queries ------------------------------------------------------------------------------ */

/* Does the aggregate count all rows of the table? */
static bool
counts_all_rows(Aggref *aggref, Index rti, Oid relation)
{
	Node *argument;

	if (aggref->agglevelsup != 0 || aggref->aggfilter != NULL || aggref->aggdistinct != NIL ||
		aggref->aggorder != NIL || aggref->aggsplit != AGGSPLIT_SIMPLE)
		return false;
	if (aggref->aggfnoid == F_COUNT_)
		return true;
	if (aggref->aggfnoid != F_COUNT_ANY)
		return false;
	argument = (Node *) linitial_node(TargetEntry, aggref->args)->expr;
	if (IsA(argument, Const))
		return !((Const *) argument)->constisnull;
	return IsA(argument, Var) && ((Var *) argument)->varno == rti &&
		   ((Var *) argument)->varlevelsup == 0 &&
		   not_null_is_declared(relation, ((Var *) argument)->varattno, true);
}

/* The relation that a query without any condition is about; 0 if it is not of that kind. */
static Index
find_only_relation(PlannerInfo *root, RelOptInfo *input_rel)
{
	Query *query = root->parse;
	RangeTblEntry *rte;
	int rti;

	if (query->commandType != CMD_SELECT || !query->hasAggs || query->groupClause != NIL ||
		query->groupingSets != NIL || query->havingQual != NULL || query->rowMarks != NIL ||
		root->hasHavingQual)
		return 0;
	if (input_rel->reloptkind != RELOPT_BASEREL || input_rel->rtekind != RTE_RELATION ||
		input_rel->baserestrictinfo != NIL || input_rel->joininfo != NIL ||
		input_rel->lateral_relids != NULL || IS_DUMMY_REL(input_rel))
		return 0;
	/* a pseudo-constant condition may be in the join tree alone */
	if (query->jointree->quals != NULL || !bms_get_singleton_member(input_rel->relids, &rti))
		return 0;
	rte = planner_rt_fetch(rti, root);
	if (rte->rtekind != RTE_RELATION || rte->tablesample != NULL || rte->securityQuals != NIL)
		return 0;
	return rti;
}

static bool
is_columnar(Oid relid)
{
	Relation relation = table_open(relid, NoLock);
	bool result = columnar_is_table(relation);

	table_close(relation, NoLock);
	return result;
}

/* Adds the tables below a relation of the range table; false if one of them is not ours. */
static bool
add_tables(PlannerInfo *root, Index rti, List **tables)
{
	RangeTblEntry *rte = planner_rt_fetch(rti, root);
	PlannedTree *tree = tree_plan_find(root->simple_rel_array[rti]);
	ListCell *cell;

	if (tree != NULL)
	{
		/* not locked: see count_rows() */
		*tables = list_concat(*tables, tree->leaves);
		return true;
	}
	if (rte->rtekind != RTE_RELATION || rte->tablesample != NULL)
		return false;
	if (!rte->inh)
	{
		if (rte->relkind != RELKIND_RELATION && rte->relkind != RELKIND_MATVIEW)
			return false;
		*tables = lappend_oid(*tables, rte->relid);
		return is_columnar(rte->relid);
	}
	/* the members of an inheritance tree, of which a table with rows of its own is one */
	foreach(cell, root->append_rel_list)
	{
		AppendRelInfo *member = lfirst_node(AppendRelInfo, cell);

		if (member->parent_relid == rti && !add_tables(root, member->child_relid, tables))
			return false;
	}
	return true;
}

/* Collects the Aggrefs of the target list that are not yet known; false if one is not a plain count. */
static bool
collect_counts(List *expressions, Index rti, Oid relation, List **counts)
{
	List *found = pull_var_clause((Node *) expressions, PVC_INCLUDE_AGGREGATES |
															PVC_RECURSE_WINDOWFUNCS |
															PVC_RECURSE_PLACEHOLDERS);
	ListCell *cell;

	foreach(cell, found)
	{
		if (!IsA(lfirst(cell), Aggref) || !counts_all_rows(lfirst(cell), rti, relation))
			return false;
		*counts = list_append_unique(*counts, lfirst(cell));
	}
	return *counts != NIL;
}

/* ---- path and plan ------------------------------------------------------------------------------ */

/* path->custom_private: the Aggrefs, the tables' oids, and the range-table index: of a single one, or 0; of all. */
static Plan *
make_count_plan(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist, List *clauses,
				List *custom_plans)
{
	CustomScan *scan = makeNode(CustomScan);
	PlannedTree *tree = tree_plan_find(
		root->simple_rel_array[lsecond_int(lthird(path->custom_private))]);
	AttrNumber number = 1;
	ListCell *cell;

	foreach(cell, linitial(path->custom_private))
		scan->custom_scan_tlist = lappend(
			scan->custom_scan_tlist,
			makeTargetEntry(copyObject(lfirst(cell)), number++, NULL, false));
	scan->scan.plan.targetlist = tlist;
	scan->scan.scanrelid = linitial_int(lthird(path->custom_private));
	scan->flags = path->flags;
	scan->custom_private = list_make1(lsecond(path->custom_private));
	if (tree != NULL)
		tree_plan_add_dependencies(root, tree);
	scan->methods = &count_methods;
	return &scan->scan.plan;
}

static const CustomPathMethods count_path_methods = {
	.CustomName = "ColumnarCount",
	.PlanCustomPath = make_count_plan,
};

static void
add_count_path(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *output_rel)
{
	Index rti = find_only_relation(root, input_rel);
	List *tables = NIL;
	List *counts = NIL;
	CustomPath *path;
	bool single;

	if (rti == 0 ||
		!collect_counts(output_rel->reltarget->exprs, rti, planner_rt_fetch(rti, root)->relid,
						&counts) ||
		!add_tables(root, rti, &tables))
		return;

	single = !planner_rt_fetch(rti, root)->inh;
	path = makeNode(CustomPath);
	path->path.pathtype = T_CustomScan;
	path->path.parent = output_rel;
	path->path.pathtarget = output_rel->reltarget;
	path->path.parallel_safe = output_rel->consider_parallel;
	path->path.rows = 1;
	path->path.startup_cost = cpu_tuple_cost *
								  (list_length(tables) + input_rel->tuples / ROW_GROUP_ROWS_MAX) +
							  output_rel->reltarget->cost.startup;
	path->path.total_cost = path->path.startup_cost + cpu_tuple_cost +
							output_rel->reltarget->cost.per_tuple;
	path->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	path->custom_private = list_make3(counts, tables, list_make2_int(single ? rti : 0, rti));
	path->methods = &count_path_methods;
	add_path(output_rel, &path->path);
}

static void
create_upper_paths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input_rel,
				   RelOptInfo *output_rel, void *extra)
{
	if (previous_upper_hook)
		previous_upper_hook(root, stage, input_rel, output_rel, extra);
	if (stage == UPPERREL_GROUP_AGG && columnar_enable_custom_scan && input_rel != NULL)
		add_count_path(root, input_rel, output_rel);
}

/* ---- execution ---------------------------------------------------------------------------------- */

static Node *
create_count_state(CustomScan *plan)
{
	ColumnarCountState *state = palloc0(sizeof(ColumnarCountState));

	NodeSetTag(state, T_CustomScanState);
	state->custom.methods = &count_exec_methods;
	state->tables = linitial(plan->custom_private);
	return (Node *) state;
}

static void
begin_count(CustomScanState *node, EState *estate, int eflags)
{
	ColumnarCountState *state = (ColumnarCountState *) node;
	ListCell *cell;

	/* rows cannot be stored in parallel mode, which may have begun when they are counted */
	if ((eflags & EXEC_FLAG_EXPLAIN_ONLY) || IsParallelWorker())
		return;
	foreach(cell, state->tables)
	{
		Relation relation;

		if (write_buffer_is_empty(lfirst_oid(cell)))
			continue;
		relation = table_open(lfirst_oid(cell), AccessShareLock);
		write_buffer_flush(relation);
		table_close(relation, NoLock);
	}
}

static uint64
count_rows(ColumnarCountState *state)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "columnar count",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	uint64 count = 0;
	ListCell *cell;

	foreach(cell, state->tables)
	{
		/* locked already, but in a parallel worker by its leader only, and leaves of a tree by nobody */
		Relation relation = try_table_open(lfirst_oid(cell), AccessShareLock);
		uint64 rows;

		if (relation == NULL)
			continue;
		tree_scan_check_leaf(relation);
		rows = row_scan_count(relation, state->custom.ss.ps.state->es_snapshot);
		if (rows == 0)
			tree_scan_check_empty(relation, state->custom.ss.ps.state->es_snapshot);
		count += rows;
		pgstat_count_heap_scan(relation);
		table_close(relation, NoLock);
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	return count;
}

static TupleTableSlot *
execute_count(CustomScanState *node)
{
	ColumnarCountState *state = (ColumnarCountState *) node;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	ExprContext *econtext = node->ss.ps.ps_ExprContext;
	uint64 count;

	ResetExprContext(econtext);
	ExecClearTuple(slot);
	if (state->done)
		return node->ss.ps.ps_ProjInfo
				   ? ExecClearTuple(node->ss.ps.ps_ProjInfo->pi_state.resultslot)
				   : slot;
	state->done = true;

	count = count_rows(state);
	for (int i = 0; i < slot->tts_tupleDescriptor->natts; i++)
	{
		slot->tts_values[i] = Int64GetDatum((int64) count);
		slot->tts_isnull[i] = false;
	}
	ExecStoreVirtualTuple(slot);
	if (node->ss.ps.ps_ProjInfo == NULL)
		return slot;
	econtext->ecxt_scantuple = slot;
	return ExecProject(node->ss.ps.ps_ProjInfo);
}

static void
rescan_count(CustomScanState *node)
{
	((ColumnarCountState *) node)->done = false;
	ExecClearTuple(node->ss.ss_ScanTupleSlot);
}

static void
end_count(CustomScanState *node)
{
}

static void
explain_count(CustomScanState *node, List *ancestors, ExplainState *es)
{
	ColumnarCountState *state = (ColumnarCountState *) node;

	if (((CustomScan *) node->ss.ps.plan)->scan.scanrelid == 0)
		ExplainPropertyInteger("Tables", NULL, list_length(state->tables), es);
}

static const CustomExecMethods count_exec_methods = {
	.CustomName = "ColumnarCount",
	.BeginCustomScan = begin_count,
	.ExecCustomScan = execute_count,
	.EndCustomScan = end_count,
	.ReScanCustomScan = rescan_count,
	.ExplainCustomScan = explain_count,
};

static const CustomScanMethods count_methods = {
	.CustomName = "ColumnarCount",
	.CreateCustomScanState = create_count_state,
};

void
metadata_count_initialize(void)
{
	RegisterCustomScanMethods(&count_methods);
	previous_upper_hook = create_upper_paths_hook;
	create_upper_paths_hook = create_upper_paths;
}
