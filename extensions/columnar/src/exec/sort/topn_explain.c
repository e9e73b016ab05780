/*
 * topn_explain.c
 *		What EXPLAIN says about a ColumnarTopN.
 *
 *		Sort Key		as core's Sort has it
 *		Limit			how many rows are wanted
 *		Evaluated by Row	the first part of a key that has no kernel
 *		Rows Kept		with ANALYZE: rows that were among the best when they came; only for these,
 *						columns besides the sort keys were decoded
 */
#include "exec/sort/topn_internal.h"

#include "nodes/nodeFuncs.h"
#include "utils/ruleutils.h"

void
topn_explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
	ColumnarTopNState *state = (ColumnarTopNState *) node;
	List *context = set_deparse_context_plan(es->deparse_cxt, node->ss.ps.plan, ancestors);
	bool prefix = compat_explain_names_tables(es);
	List *keys = NIL;
	List *scalar = NIL;
	ListCell *cell;

	foreach(cell, state->key_sources)
	{
		int i = foreach_current_index(cell);
		Expr *part = vector_expression_scalar_part(state->keys[i]);
		StringInfoData text;

		initStringInfo(&text);
		appendStringInfoString(&text, deparse_expression(lfirst(cell), context, prefix, true));
		appendStringInfoString(&text, sort_key_options(&state->key_types[i]));
		keys = lappend(keys, text.data);
		if (part != NULL)
			scalar = lappend(scalar, deparse_expression((Node *) part, context, prefix, false));
	}
	ExplainPropertyList("Sort Key", keys, es);
	ExplainPropertyUInteger("Limit", NULL, state->bound, es);
	if (scalar != NIL)
		ExplainPropertyList("Evaluated by Row", scalar, es);
	/* workers cannot tell */
	if (es->analyze && node->ss.ps.worker_instrument == NULL)
		ExplainPropertyUInteger("Rows Kept", NULL, state->stored, es);
}
