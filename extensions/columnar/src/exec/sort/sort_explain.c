/*
 * sort_explain.c
 *		What EXPLAIN says about a ColumnarSort.
 *
 *		Sort Key		as core's Sort has it
 *		Partition Key	if only the first rows of each partition are wanted: what these have in common, and
 *		Rows per Partition	how many, and
 *		With Peers		whether those that are equal to the last of them, too
 *		Evaluated by Row	the first part of a key that has no kernel
 *		Sort Memory		with ANALYZE: what rows and their order took at most
 *		Sort Runs		with ANALYZE: how many times sorted rows were written to files
 */
#include "exec/sort/sort_internal.h"

#include "nodes/nodeFuncs.h"
#include "utils/ruleutils.h"

static void
explain_bound(const SortBound *bound, List *keys, ExplainState *es)
{
	if (bound->partition > 0)
		ExplainPropertyList("Partition Key", list_copy_head(keys, bound->partition), es);
	ExplainPropertyInteger("Rows per Partition", NULL, bound->rows, es);
	if (bound->peers)
		ExplainPropertyBool("With Peers", true, es);
}

static void
explain_keys(CustomScanState *node, List *ancestors, ExplainState *es)
{
	ColumnarSortState *state = (ColumnarSortState *) node;
	List *context = set_deparse_context_plan(es->deparse_cxt, node->ss.ps.plan, ancestors);
	bool prefix = compat_explain_names_tables(es);
	List *keys = NIL;
	List *names = NIL;
	List *scalar = NIL;
	ListCell *cell;

	foreach(cell, state->key_sources)
	{
		int i = foreach_current_index(cell);
		Expr *part = vector_expression_scalar_part(state->expressions[i]);
		char *key = deparse_expression(lfirst(cell), context, prefix, true);

		keys = lappend(keys, psprintf("%s%s", key, sort_key_options(&state->key_types[i])));
		names = lappend(names, key);
		if (part != NULL)
			scalar = lappend(scalar, deparse_expression((Node *) part, context, prefix, false));
	}
	ExplainPropertyList("Sort Key", keys, es);
	if (state->first != NULL)
		explain_bound(sort_first_bound(state->first), names, es);
	if (scalar != NIL)
		ExplainPropertyList("Evaluated by Row", scalar, es);
}

void
sort_explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
	ColumnarSortState *state = (ColumnarSortState *) node;

	explain_keys(node, ancestors, es);
	/* workers cannot tell */
	if (!es->analyze || node->ss.ps.worker_instrument != NULL)
		return;
	ExplainPropertyUInteger("Sort Memory", "kB", (state->memory + 1023) / 1024, es);
	if (state->nruns > 0)
		ExplainPropertyInteger("Sort Runs", NULL, state->nruns, es);
}
