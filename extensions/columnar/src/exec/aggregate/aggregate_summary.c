/*
 * aggregate_summary.c
 *		Row groups that a ColumnarAggregate without keys takes from metadata: counts, sums and
 *		extremes as the footer has them, instead of rows.
 *
 * The scan offers a row group if all of its rows are visible and pass the conditions (see prune.h).
 * It is taken if what the footer has of each column is what the rows would come to: a
 * bound only if it is a value of the column (texts are cut, and zeroes have two signs), a
 * sum only if it is there.  Row groups are taken in the order of their rows, like batches.
 */
#include "exec/aggregate/aggregate_internal.h"

#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "utils/lsyscache.h"

/* A value as a vector of one row. */
struct SummaryVector
{
	Vector vector;
	int64 ints[BLOCK_ROWS];
	double floats[BLOCK_ROWS];
	const char *starts[BLOCK_ROWS];
	uint32 lengths[BLOCK_ROWS];
};

/* ---- which aggregates ----------------------------------------------------------------------------- */

/* The column that the argument is, as the table has it; NULL if it is none. */
static const Var *
find_column(const Expr *argument)
{
	Oid type = exprType((const Node *) argument);
	Oid column;

	while (IsA(argument, RelabelType))
		argument = ((const RelabelType *) argument)->arg;
	if (!IsA(argument, Var))
		return NULL;
	column = getBaseType(((const Var *) argument)->vartype);
	type = getBaseType(type);
	return column == type || (column == VARCHAROID && type == TEXTOID) ? (const Var *) argument
																	   : NULL;
}

/* The column that a sum of integers is computed from; NULL if there is none. */
static const Var *
find_leaf(const Expr *argument)
{
	const Expr *leaf = aggregate_linear_leaf(argument);

	return leaf != NULL && IsA(leaf, Var) ? (const Var *) leaf : NULL;
}

bool
aggregate_find_summary(const Aggref *aggref, AggregateSummary *summary)
{
	const Expr *argument = aggref->args ? linitial_node(TargetEntry, aggref->args)->expr : NULL;
	const Var *var;

	if (aggref->aggfilter != NULL || aggref->aggdistinct != NIL)
		return false;
	summary->use = vector_aggregate_use(aggref);
	summary->column = 0;
	summary->collation = aggref->inputcollid;
	if (summary->use == AGGREGATE_USES_ROWS)
		return false;
	if (summary->use == AGGREGATE_USES_COUNT &&
		(argument == NULL || (IsA(argument, Const) && !((const Const *) argument)->constisnull)))
		return true;
	var = find_column(argument);
	if (var == NULL && summary->use == AGGREGATE_USES_TOTAL)
		var = find_leaf(argument);
	if (var != NULL)
		summary->column = var->varattno;
	return var != NULL && var->varattno > 0;
}

static bool
find_of_transition(const ColumnarAggregateState *state, AggregateTransition *transition)
{
	const Expr *leaf;

	if (transition->of != NULL)
		return true;
	if (transition->aggref != NULL)
		return aggregate_find_summary(transition->aggref, &transition->summary);
	leaf = state->inputs[transition->args[0]].source;
	transition->summary = (AggregateSummary){.use = AGGREGATE_USES_TOTAL};
	if (!IsA(leaf, Var) || transition->filter != NULL)
		return false;
	transition->summary.column = ((const Var *) leaf)->varattno;
	return true;
}

/* ---- row groups ----------------------------------------------------------------------------------- */

static AggregateTotal
make_total(const ChunkSummary *summary, const ColumnType *type)
{
	const ZoneMap *zone = &summary->zone;

	return (AggregateTotal){.mantissa = summary->sum,
							.scale = type->form == FORM_NUMERIC ? Max(summary->sum_scale, 0) : 0,
							.count = zone->nrows - zone->nnulls};
}

/* So many bits hold the zone's integers besides the sign; see vector_bits(). */
static int
count_bits(const ZoneMap *zone)
{
	uint64 bits = (uint64) (zone->min.number ^ (zone->min.number >> 63)) |
				  (uint64) (zone->max.number ^ (zone->max.number >> 63));

	return bits == 0 ? 0 : pg_leftmost_one_pos64(bits) + 1;
}

static bool
has_total(const AggregateTransition *transition, const ChunkSummary *summary,
		  const ColumnType *type)
{
	AggregateTotal total = make_total(summary, type);

	if (!summary->has_sum || !vector_aggregate_fits(transition->states, &total))
		return false;
	/* or a sum that is derived from it may have a value out of range */
	return transition->aggref != NULL || total.count == 0 ||
		   (summary->zone.has_bounds && count_bits(&summary->zone) <= transition->safe_bits);
}

/* Does the footer have what the transition needs? */
static bool
is_known(const AggregateTransition *transition, const AttrNumber *attributes, RowGroupReader *group)
{
	const AggregateSummary *wanted = &transition->summary;
	AttrNumber attribute = wanted->column > 0 ? attributes[wanted->column - 1] : 0;
	const ChunkSummary *summary;
	const ColumnType *type;

	if (wanted->column == 0)
		return true;
	summary = attribute > 0 ? row_group_reader_summary(group, attribute) : NULL;
	if (summary == NULL)
		return false;
	type = row_group_reader_type(group, attribute);
	if (wanted->use == AGGREGATE_USES_COUNT || wanted->use == AGGREGATE_USES_TOTAL)
		return wanted->use == AGGREGATE_USES_COUNT || has_total(transition, summary, type);
	if (summary->zone.nnulls == summary->zone.nrows)
		return true;
	/* numerics of several scales are equal and not the same */
	return type->collation == wanted->collation &&
		   (type->form != FORM_NUMERIC || summary->has_sum) &&
		   zone_map_has_value(type, &summary->zone, wanted->use == AGGREGATE_USES_MAX);
}

static void
add_bound(ColumnarAggregateState *state, AggregateTransition *transition, const ColumnType *type,
		  const ZoneBound *bound)
{
	SummaryVector *one = state->summary_vector;
	Vector *arguments[1] = {&one->vector};
	uint16 selection[1] = {0};
	VectorRows rows;

	one->vector = (Vector){.type = type,
						   .form = VECTOR_BYTES,
						   .scale = -1,
						   .bits = VECTOR_BITS_UNKNOWN,
						   .ints = one->ints,
						   .floats = one->floats,
						   .starts = one->starts,
						   .lengths = one->lengths};
	if (type->form == FORM_INT)
	{
		one->vector.form = VECTOR_INT;
		one->ints[0] = bound->number;
	}
	else if (type->form == FORM_FLOAT)
	{
		one->vector.form = VECTOR_FLOAT;
		memcpy(&one->floats[0], &bound->number, sizeof(double));
	}
	else
	{
		one->starts[0] = bound->bytes;
		one->lengths[0] = bound->length;
	}
	vector_rows_init(&rows, 1, selection, 1, NULL, 1);
	vector_aggregate_advance(transition->states, arguments, &rows);
}

static void
add_summary(ColumnarAggregateState *state, AggregateTransition *transition,
			const AttrNumber *attributes, RowGroupReader *group)
{
	const AggregateSummary *wanted = &transition->summary;
	AggregateTotal total = {.count = row_group_reader_record(group)->nrows};
	const ChunkSummary *summary;
	const ColumnType *type;

	if (wanted->column == 0)
	{
		vector_aggregate_add(transition->states, &total, 0);
		return;
	}
	summary = row_group_reader_summary(group, attributes[wanted->column - 1]);
	type = row_group_reader_type(group, attributes[wanted->column - 1]);
	if (wanted->use == AGGREGATE_USES_COUNT || wanted->use == AGGREGATE_USES_TOTAL)
	{
		total = make_total(summary, type);
		vector_aggregate_add(transition->states, &total, summary->zone.nnulls);
	}
	else if (summary->zone.nnulls < summary->zone.nrows)
		add_bound(state, transition, type,
				  wanted->use == AGGREGATE_USES_MAX ? &summary->zone.max : &summary->zone.min);
}

/* BatchTaker */
static bool
take_group(void *owner, const AttrNumber *attributes, RowGroupReader *group)
{
	ColumnarAggregateState *state = owner;
	ExprContext *econtext = state->custom.ss.ps.ps_ExprContext;
	MemoryContext caller;

	for (int i = 0; i < state->ntransitions; i++)
		if (state->transitions[i].of == NULL &&
			!is_known(&state->transitions[i], attributes, group))
			return false;
	caller = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	for (int i = 0; i < state->ntransitions; i++)
		if (state->transitions[i].of == NULL)
			add_summary(state, &state->transitions[i], attributes, group);
	MemoryContextSwitchTo(caller);
	ResetExprContext(econtext);
	return true;
}

void
aggregate_begin_summaries(ColumnarAggregateState *state)
{
	if (state->nkeys > 0 || state->ntransitions == 0)
		return;
	for (int i = 0; i < state->ntransitions; i++)
		if (!find_of_transition(state, &state->transitions[i]))
			return;
	state->summary_vector = palloc0(sizeof(SummaryVector));
	for (int i = 0; i < BLOCK_ROWS; i++)
		state->summary_vector->starts[i] = "";
	batch_reader_set_taker(&state->reader, take_group, state);
}
