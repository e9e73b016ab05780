/*
 * custom_scan_explain.c
 *		What EXPLAIN says about a ColumnarScan.
 *
 * The filter is printed as core prints those of its own scans.  What was read is
 * the sum over all loops and processes; "Rows Removed by Filter" is per loop, as
 * everywhere.
 */
#include "exec/scan/custom_scan.h"

#include "nodes/makefuncs.h"
#include "utils/ruleutils.h"

#include "exec/batch/batch_offer.h"
#include "exec/scan/tree_scan.h"

/* An ANDed list of quals; `prefix`: columns with their table's name. */
static void
show_quals(const char *label, List *quals, bool prefix, CustomScanState *node, List *ancestors,
		   ExplainState *es)
{
	List *context;

	if (quals == NIL)
		return;
	context = set_deparse_context_plan(es->deparse_cxt, node->ss.ps.plan, ancestors);
	ExplainPropertyText(
		label, deparse_expression((Node *) make_ands_explicit(quals), context, prefix, false), es);
}

static void
show_rows_removed(CustomScanState *node, ExplainState *es)
{
	CompatInstrumentation *instrument = node->ss.ps.instrument;
	double removed;

	if (!es->analyze || instrument == NULL)
		return;
	removed = instrument->nloops > 0 ? instrument->nfiltered1 / instrument->nloops : 0;
	if (instrument->nfiltered1 > 0 || es->format != EXPLAIN_FORMAT_TEXT)
		ExplainPropertyFloat("Rows Removed by Filter", NULL, removed, 0, es);
}

/* The columns that are decoded: of the filter and of the output. */
static void
show_columns(ColumnarScanState *state, ExplainState *es)
{
	CustomScan *plan = (CustomScan *) state->source.custom.ss.ps.plan;
	TupleDesc descriptor = RelationGetDescr(state->source.custom.ss.ss_currentRelation);
	Bitmapset *columns;
	List *names = NIL;
	int column = -1;

	columns = custom_scan_add_columns(NULL, (Node *) plan->custom_exprs, plan->scan.scanrelid,
									  descriptor);
	columns = custom_scan_add_columns(columns, (Node *) plan->scan.plan.targetlist,
									  plan->scan.scanrelid, descriptor);
	while ((column = bms_next_member(columns, column)) >= 0)
		names = lappend(names, NameStr(TupleDescAttr(descriptor, column - 1)->attname));
	if (names != NIL)
		ExplainPropertyList("Columns", names, es);
}

/* Of a partition tree: how many leaves are read, and how many of the plan's parameters leave out. */
static void
show_leaves(ColumnarScanState *state, ExplainState *es)
{
	int planned;
	int left;
	bool is_known = tree_scan_leaves(state->tree, &planned, &left);

	ExplainPropertyInteger("Leaves", NULL, is_known ? left : planned, es);
	if (is_known && left < planned)
		ExplainPropertyInteger("Leaves Removed", NULL, planned - left, es);
}

static void
show_counters(ColumnarScanState *state, ExplainState *es)
{
	ScanCounters counters = custom_scan_counters(state);
	const ScanCounters *workers = &state->workers;
	uint64 removed;

	/* a scan that is not shared runs whole in each worker, which cannot tell the leader */
	if (state->source.custom.ss.ps.worker_instrument != NULL &&
		!state->source.custom.ss.ps.plan->parallel_aware)
		return;

	if (state->pruner != NULL)
	{
		ExplainPropertyUInteger("Row Groups", NULL, counters.prune.groups + workers->prune.groups,
								es);
		ExplainPropertyUInteger("Row Groups Removed", NULL,
								counters.prune.groups_pruned + workers->prune.groups_pruned, es);
		if (state->offers_groups)
			ExplainPropertyUInteger("Row Groups From Metadata", NULL,
									counters.prune.groups_taken + workers->prune.groups_taken, es);
		ExplainPropertyUInteger("Blocks", NULL, counters.prune.blocks + workers->prune.blocks, es);
		ExplainPropertyUInteger("Blocks Removed", NULL,
								counters.prune.blocks_pruned + workers->prune.blocks_pruned, es);
	}
	removed = counters.removed_by_keys + workers->removed_by_keys;
	if (removed > 0)
		ExplainPropertyUInteger("Rows Removed by Key Filters", NULL, removed, es);
	ExplainPropertyUInteger("Bytes Read", NULL, counters.bytes_read + workers->bytes_read, es);
	ExplainPropertyUInteger("Pages Read", NULL, counters.pages_read + workers->pages_read, es);
}

void
custom_scan_explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
	ColumnarScanState *state = (ColumnarScanState *) node;
	CustomScan *plan = (CustomScan *) node->ss.ps.plan;

	if (state->tree != NULL)
		show_leaves(state, es);
	if (es->verbose)
		show_columns(state, es);
	show_quals("Filter", plan->custom_exprs, es->verbose, node, ancestors, es);
	if (plan->custom_exprs != NIL)
		show_rows_removed(node, es);
	if (state->pruner != NULL)
		show_quals("Pruning", pruner_clauses(state->pruner), es->verbose, node, ancestors, es);
	batch_offer_explain(&state->source, es);
	if (es->analyze)
		show_counters(state, es);
}
