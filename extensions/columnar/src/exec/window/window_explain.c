/*
 * window_explain.c
 *		What EXPLAIN says about a ColumnarWindow.
 *
 *		Partition Key, Order Key	of the window
 *		Window Function		each of those that the node computes
 *		Frame End			what the functions that have a frame look at, from the partition's start
 *		Evaluated by Row	the first part of a key or argument that has no kernel
 *		Window Memory		with ANALYZE: what rows that waited for others took at most
 */
#include "exec/window/window_internal.h"

#include "nodes/nodeFuncs.h"
#include "utils/ruleutils.h"

static void
explain_keys(const ColumnarWindowState *state, List *context, bool prefix, ExplainState *es)
{
	List *partition = NIL;
	List *order = NIL;
	ListCell *cell;

	foreach(cell, state->key_sources)
	{
		int i = foreach_current_index(cell);
		char *key = deparse_expression(lfirst(cell), context, prefix, true);

		if (i < state->npartition)
			partition = lappend(partition, key);
		else
			order = lappend(order, psprintf("%s%s", key, sort_key_options(&state->key_types[i])));
	}
	if (partition != NIL)
		ExplainPropertyList("Partition Key", partition, es);
	if (order != NIL)
		ExplainPropertyList("Order Key", order, es);
}

static void
explain_scalar_parts(const ColumnarWindowState *state, List *context, bool prefix, ExplainState *es)
{
	List *parts = NIL;
	List *texts = NIL;
	ListCell *cell;

	for (int i = 0; i < state->nkeys; i++)
		parts = lappend(parts, vector_expression_scalar_part(state->key_expressions[i]));
	for (int i = 0; i < state->nfunctions; i++)
		for (int argument = 0; argument < state->functions[i].narguments; argument++)
			parts = lappend(parts,
							vector_expression_scalar_part(state->functions[i].arguments[argument]));
	foreach(cell, parts)
		if (lfirst(cell) != NULL)
			texts = lappend(texts, deparse_expression(lfirst(cell), context, prefix, false));
	if (texts != NIL)
		ExplainPropertyList("Evaluated by Row", texts, es);
}

void
window_explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
	static const char *const ends[] = {"Current Row", "Peers", "Partition"};
	ColumnarWindowState *state = (ColumnarWindowState *) node;
	List *context = set_deparse_context_plan(es->deparse_cxt, node->ss.ps.plan, ancestors);
	bool prefix = compat_explain_names_tables(es);
	List *functions = NIL;

	explain_keys(state, context, prefix, es);
	for (int i = 0; i < state->nfunctions; i++)
		functions = lappend(functions, window_name(state, i, context, prefix));
	ExplainPropertyList("Window Function", functions, es);
	ExplainPropertyText("Frame End", ends[state->frame], es);
	explain_scalar_parts(state, context, prefix, es);
	/* workers cannot tell */
	if (es->analyze && node->ss.ps.worker_instrument == NULL)
		ExplainPropertyUInteger("Window Memory", "kB", (state->memory + 1023) / 1024, es);
}
