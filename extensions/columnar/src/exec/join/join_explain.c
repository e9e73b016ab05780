/*
 * join_explain.c
 *		What EXPLAIN says about a ColumnarJoin.
 *
 *		Join			what comes out, and which side was kept in memory
 *		Hash Cond		the keys: probe side = build side
 *		Join Filter		other conditions for partners
 *		Filter			conditions for what an outer join made
 *		Evaluated by Row	the first part of an expression that has no kernel
 *		Build			rows and memory of the build side, with ANALYZE
 */
#include "exec/join/join_internal.h"

#include "nodes/makefuncs.h"
#include "utils/ruleutils.h"

#include "exec/batch/batch_offer.h"

typedef struct ExplainedJoin
{
	ColumnarJoinState *state;
	List *context; /* for deparsing */
	ExplainState *es;
} ExplainedJoin;

static char *
deparse(const ExplainedJoin *join, Node *expression)
{
	return deparse_expression(expression, join->context, true, false);
}

static const char *
describe_kind(JoinKind kind)
{
	switch (kind)
	{
		case JOIN_KIND_INNER:
			return "Inner";
		case JOIN_KIND_PROBE_OUTER:
			return "Left";
		case JOIN_KIND_BUILD_OUTER:
			return "Right";
		case JOIN_KIND_FULL:
			return "Full";
		case JOIN_KIND_PROBE_SEMI:
			return "Semi";
		case JOIN_KIND_PROBE_ANTI:
			return "Anti";
		case JOIN_KIND_BUILD_SEMI:
			return "Right Semi";
		case JOIN_KIND_BUILD_ANTI:
			return "Right Anti";
	}
	pg_unreachable();
}

static void
show_keys(const ExplainedJoin *join)
{
	StringInfoData text;
	ListCell *probe;
	ListCell *build;

	initStringInfo(&text);
	forboth(probe, join->state->probe.key_sources, build, join->state->build.key_sources)
	{
		if (text.len > 0)
			appendStringInfoString(&text, " AND ");
		appendStringInfo(&text, "(%s = %s)", deparse(join, lfirst(probe)),
						 deparse(join, lfirst(build)));
	}
	if (join->state->nkeys > 1)
		ExplainPropertyText("Hash Cond", psprintf("(%s)", text.data), join->es);
	else
		ExplainPropertyText("Hash Cond", text.data, join->es);
}

static void
show_conditions(const ExplainedJoin *join, const char *label, List *conditions, uint64 removed)
{
	if (conditions == NIL)
		return;
	ExplainPropertyText(label, deparse(join, (Node *) make_ands_explicit(conditions)), join->es);
	if (join->es->analyze && removed > 0)
		ExplainPropertyUInteger(psprintf("Rows Removed by %s", label), NULL, removed, join->es);
}

static List *
add_scalar_part(const ExplainedJoin *join, List *texts, const VectorExpression *expression)
{
	Expr *part = expression ? vector_expression_scalar_part(expression) : NULL;

	return part ? lappend(texts, deparse(join, (Node *) part)) : texts;
}

static void
show_scalar_parts(const ExplainedJoin *join)
{
	const ColumnarJoinState *state = join->state;
	List *texts = NIL;

	for (int i = 0; i < state->nkeys; i++)
	{
		texts = add_scalar_part(join, texts, state->probe.keys[i]);
		texts = add_scalar_part(join, texts, state->build.keys[i]);
	}
	texts = add_scalar_part(join, texts, state->conditions);
	texts = add_scalar_part(join, texts, state->filters);
	if (texts != NIL)
		ExplainPropertyList("Evaluated by Row", texts, join->es);
}

static void
show_build(const ExplainedJoin *join)
{
	const ColumnarJoinState *state = join->state;

	ExplainPropertyUInteger("Build Rows", NULL, state->build_rows, join->es);
	ExplainPropertyUInteger("Build Memory", "kB", (state->build_memory + 1023) / 1024, join->es);
	if (state->nsplits > 0)
		ExplainPropertyUInteger("Times Memory Was Full", NULL, state->nsplits, join->es);
}

void
join_explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
	ColumnarJoinState *state = (ColumnarJoinState *) node;
	CustomScan *plan = (CustomScan *) node->ss.ps.plan;
	List *numbers = list_nth(plan->custom_private, JOIN_PRIVATE_NUMBERS);
	int nconditions = list_nth_int(numbers, JOIN_NUMBER_CONDITIONS);
	List *others = list_copy_tail(plan->custom_exprs, 2 * state->nkeys);
	ExplainedJoin join = {
		.state = state,
		.context = set_deparse_context_plan(es->deparse_cxt, node->ss.ps.plan, ancestors),
		.es = es};

	ExplainPropertyText("Join", describe_kind(state->kind), es);
	show_keys(&join);
	show_conditions(&join, "Join Filter", list_copy_head(others, nconditions),
					state->removed_candidates);
	show_conditions(&join, "Filter", list_copy_tail(others, nconditions), state->removed_rows);
	show_scalar_parts(&join);
	batch_offer_explain(&state->source, es);
	if (es->analyze)
		show_build(&join);
}
