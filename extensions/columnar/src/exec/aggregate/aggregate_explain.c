/*
 * aggregate_explain.c
 *		What EXPLAIN says about a ColumnarAggregate.
 *
 *		Group Key
 *		Evaluated by Row	what has no kernel: the first such part of each expression, aggregates
 *		Times Memory Was Full	with ANALYZE, if it was
 */
#include "exec/aggregate/aggregate_internal.h"

#include "utils/ruleutils.h"

static char *
deparse(Expr *expression, CustomScanState *node, List *ancestors, ExplainState *es)
{
	ColumnarAggregateState *state = (ColumnarAggregateState *) node;
	List *context = set_deparse_context_plan(es->deparse_cxt, node->ss.ps.plan, ancestors);

	return deparse_expression(batch_source_name_columns((Node *) expression, state->columns),
							  context, compat_explain_names_tables(es), false);
}

static List *
add_scalar_part(List *texts, const VectorExpression *expression, CustomScanState *node,
				List *ancestors, ExplainState *es)
{
	Expr *part = vector_expression_scalar_part(expression);
	char *text = part ? deparse(part, node, ancestors, es) : NULL;
	ListCell *cell;

	/* several expressions may have the same one */
	foreach(cell, texts)
		if (text != NULL && strcmp(lfirst(cell), text) == 0)
			return texts;
	return text ? lappend(texts, text) : texts;
}

void
aggregate_explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
	ColumnarAggregateState *state = (ColumnarAggregateState *) node;
	List *keys = NIL;
	List *scalar = NIL;

	for (int i = 0; i < state->nkeys; i++)
		keys = lappend(keys, deparse(state->inputs[state->keys[i]].source, node, ancestors, es));
	if (keys != NIL)
		ExplainPropertyList("Group Key", keys, es);
	for (int i = 0; i < state->ninputs; i++)
		scalar = add_scalar_part(scalar, state->inputs[i].expression, node, ancestors, es);
	for (int i = 0; i < state->ntransitions; i++)
	{
		const AggregateTransition *transition = &state->transitions[i];

		if (transition->filter != NULL)
			scalar = add_scalar_part(scalar, transition->filter, node, ancestors, es);
		if (transition->aggref != NULL && !vector_aggregate_has_kernel(transition->aggref))
			scalar = lappend(scalar, deparse((Expr *) transition->aggref, node, ancestors, es));
	}
	if (scalar != NIL)
		ExplainPropertyList("Evaluated by Row", scalar, es);
	if (es->analyze && state->spills > 0)
		ExplainPropertyUInteger("Times Memory Was Full", NULL, state->spills, es);
}
