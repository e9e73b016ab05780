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
#include "topn_internal.h"

#include "nodes/nodeFuncs.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"
#include "utils/typcache.h"

/* Appends what ORDER BY would say after the expression; as core's EXPLAIN does. */
static void
append_options(StringInfo text, const Node *expression, const TopnKey *key)
{
	TypeCacheEntry *type = lookup_type_cache(key->value.type, TYPECACHE_LT_OPR | TYPECACHE_GT_OPR);
	bool reverse = false;

	if (OidIsValid(key->value.collation) &&
		key->value.collation != get_typcollation(key->value.type))
		appendStringInfo(text, " COLLATE %s",
						 quote_identifier(get_collation_name(key->value.collation)));
	if (key->sort_operator == type->gt_opr)
	{
		appendStringInfoString(text, " DESC");
		reverse = true;
	}
	else if (key->sort_operator != type->lt_opr)
	{
		appendStringInfo(text, " USING %s", get_opname(key->sort_operator));
		get_equality_op_for_ordering_op(key->sort_operator, &reverse);
	}
	if (key->nulls_first != reverse)
		appendStringInfoString(text, key->nulls_first ? " NULLS FIRST" : " NULLS LAST");
}

void
topn_explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
	ColumnarTopNState *state = (ColumnarTopNState *) node;
	List *context = set_deparse_context_plan(es->deparse_cxt, node->ss.ps.plan, ancestors);
	bool prefix = es->verbose || list_length(es->rtable) > 1;
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
		append_options(&text, lfirst(cell), &state->key_types[i]);
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
