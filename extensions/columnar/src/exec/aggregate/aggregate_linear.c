/*
 * aggregate_linear.c
 *		Sums and averages of integers computed from those of other ones: sum(x), avg(x) and
 *		sum(2 * x - 7) are made of the sum of x and the number of its values.
 *
 * One transition adds x up for all aggregates of that kind, with the same FILTER.  That
 * is right if 2 * x - 7 is in the range of its type for all rows, or core would raise an error:
 * a batch whose values are too large for a proof evaluates the argument as it is written,
 * which raises it, or else is the proof.
 */
#include "exec/aggregate/aggregate_internal.h"

#include "catalog/pg_type.h"
#include "common/int.h"
#include "nodes/nodeFuncs.h"
#include "utils/fmgroids.h"

/* factor * leaf + offset */
typedef struct LinearForm
{
	Expr *leaf;
	int64 factor;
	int64 offset;
	/* the values are within, if the leaf's take so many bits besides the sign */
	int bits;
	int64 low;
	int64 high;
} LinearForm;

typedef enum LinearStep
{
	STEP_NONE,
	STEP_PLUS,
	STEP_MINUS,
	STEP_TIMES,
	STEP_CAST
} LinearStep;

static bool find_form(Expr *expression, LinearForm *form);

static LinearStep
find_step(Oid function)
{
	switch (function)
	{
		case F_INT2PL:
		case F_INT4PL:
		case F_INT8PL:
		case F_INT24PL:
		case F_INT42PL:
		case F_INT28PL:
		case F_INT82PL:
		case F_INT48PL:
		case F_INT84PL:
			return STEP_PLUS;
		case F_INT2MI:
		case F_INT4MI:
		case F_INT8MI:
		case F_INT24MI:
		case F_INT42MI:
		case F_INT28MI:
		case F_INT82MI:
		case F_INT48MI:
		case F_INT84MI:
			return STEP_MINUS;
		case F_INT2MUL:
		case F_INT4MUL:
		case F_INT8MUL:
		case F_INT24MUL:
		case F_INT42MUL:
		case F_INT28MUL:
		case F_INT82MUL:
		case F_INT48MUL:
		case F_INT84MUL:
			return STEP_TIMES;
		case F_INT4_INT2:
		case F_INT8_INT2:
		case F_INT8_INT4:
			return STEP_CAST;
		default:
			return STEP_NONE;
	}
}

static bool
get_constant(const Expr *expression, int64 *value)
{
	const Const *constant = (const Const *) expression;

	if (!IsA(expression, Const) || constant->constisnull)
		return false;
	switch (constant->consttype)
	{
		case INT2OID:
			*value = DatumGetInt16(constant->constvalue);
			return true;
		case INT4OID:
			*value = DatumGetInt32(constant->constvalue);
			return true;
		case INT8OID:
			*value = DatumGetInt64(constant->constvalue);
			return true;
		default:
			return false;
	}
}

/* The bits of the type's values besides the sign; 0: it is no integer. */
static int
count_type_bits(Oid type)
{
	switch (type)
	{
		case INT2OID:
			return 15;
		case INT4OID:
			return 31;
		case INT8OID:
			return 63;
		default:
			return 0;
	}
}

static void
find_range(int bits, int64 *low, int64 *high)
{
	*high = bits < 63 ? (INT64CONST(1) << bits) - 1 : PG_INT64_MAX;
	*low = -*high - 1;
}

/* False if a number does not fit. */
static bool
multiply(LinearForm *form, int64 factor)
{
	int64 low = form->low;

	if (factor < 0)
	{
		form->low = form->high;
		form->high = low;
	}
	return !pg_mul_s64_overflow(form->factor, factor, &form->factor) &&
		   !pg_mul_s64_overflow(form->offset, factor, &form->offset) &&
		   !pg_mul_s64_overflow(form->low, factor, &form->low) &&
		   !pg_mul_s64_overflow(form->high, factor, &form->high);
}

static bool
add(LinearForm *form, int64 offset)
{
	return !pg_add_s64_overflow(form->offset, offset, &form->offset) &&
		   !pg_add_s64_overflow(form->low, offset, &form->low) &&
		   !pg_add_s64_overflow(form->high, offset, &form->high);
}

/* The step from what an operator's argument is to its result. */
static bool
take_step(LinearForm *form, LinearStep step, bool is_left, int64 constant)
{
	switch (step)
	{
		case STEP_PLUS:
			return add(form, constant);
		case STEP_MINUS:
			/* (-2^63 has no negative) */
			if (is_left)
				return constant != PG_INT64_MIN && add(form, -constant);
			return multiply(form, -1) && add(form, constant);
		case STEP_TIMES:
			return multiply(form, constant);
		default:
			return false;
	}
}

static bool
find_operator(OpExpr *expression, LinearStep step, LinearForm *form)
{
	Expr *left = linitial(expression->args);
	Expr *right = lsecond(expression->args);
	int64 constant;
	bool is_left = get_constant(right, &constant);

	if (!is_left && !get_constant(left, &constant))
		return false;
	return find_form(is_left ? left : right, form) && take_step(form, step, is_left, constant);
}

/* Fills the form; false if it has none, or values that are out of their types' ranges. */
static bool
find_form(Expr *expression, LinearForm *form)
{
	int bits = count_type_bits(exprType((Node *) expression));
	int64 low;
	int64 high;
	bool found = bits > 0;

	if (IsA(expression, OpExpr) && list_length(((OpExpr *) expression)->args) == 2 &&
		find_step(((OpExpr *) expression)->opfuncid) != STEP_NONE)
		found = find_operator((OpExpr *) expression, find_step(((OpExpr *) expression)->opfuncid),
							  form);
	else if (IsA(expression, FuncExpr) && find_step(((FuncExpr *) expression)->funcid) == STEP_CAST)
		found = find_form(linitial(((FuncExpr *) expression)->args), form);
	else
	{
		form->leaf = expression;
		form->factor = 1;
		form->offset = 0;
		find_range(Min(form->bits, bits), &form->low, &form->high);
	}
	find_range(bits, &low, &high);
	return found && form->low >= low && form->high <= high;
}

const Expr *
aggregate_linear_leaf(const Expr *argument)
{
	LinearForm form = {.bits = 0};

	return find_form((Expr *) argument, &form) ? form.leaf : NULL;
}

/* The largest values for which the form is proved to be right. */
static int
find_safe_bits(Expr *argument)
{
	LinearForm form;
	int bits = -1;

	for (form.bits = 0; form.bits <= 63; form.bits++)
	{
		if (!find_form(argument, &form))
			break;
		bits = form.bits;
	}
	return bits;
}

/* The transition that adds the leaf's values up, for aggregates with this filter. */
static AggregateTransition *
find_base(ColumnarAggregateState *state, Expr *leaf, Expr *condition)
{
	AggregateTransition *base;

	for (int i = 0; i < state->ntransitions; i++)
	{
		base = &state->transitions[i];
		if (base->aggref == NULL && equal(base->condition, condition) &&
			equal(state->inputs[base->args[0]].source, leaf))
			return base;
	}
	base = &state->transitions[state->ntransitions++];
	base->condition = condition;
	base->args = palloc(sizeof(int));
	base->args[base->nargs++] = aggregate_find_input(state, leaf, condition == NULL);
	if (condition != NULL)
		base->filter = vector_expression_compile(condition, &state->scope);
	base->states = vector_aggregate_create_sum(&state->custom.ss.ps);
	base->safe_bits = 63;
	return base;
}

bool
aggregate_make_linear(ColumnarAggregateState *state, AggregateTransition *transition)
{
	const Aggref *aggref = transition->aggref;
	LinearForm form = {.bits = 0};
	Expr *argument;

	if (aggref->aggdistinct != NIL || list_length(aggref->args) != 1)
		return false;
	argument = linitial_node(TargetEntry, aggref->args)->expr;
	if (!find_form(argument, &form) ||
		!vector_aggregate_derive(transition->states, NULL, form.factor, form.offset))
		return false;
	transition->of = find_base(state, form.leaf, aggref->aggfilter);
	vector_aggregate_derive(transition->states, transition->of->states, form.factor, form.offset);
	transition->safe_bits = find_safe_bits(argument);
	transition->of->safe_bits = Min(transition->of->safe_bits, transition->safe_bits);
	/* evaluated only where that is in doubt */
	transition->args = palloc(sizeof(int));
	transition->args[transition->nargs++] = aggregate_find_input(state, argument, false);
	return true;
}

void
aggregate_check_linear(ColumnarAggregateState *state, const AggregateTransition *base,
					   VectorInput *input)
{
	Vector *values = state->inputs[base->args[0]].values;
	int bits = 63;

	if (base->safe_bits == 63)
		return;
	if (values->form == VECTOR_INT)
		bits = vector_bits(values, input->batch->nrows);
	if (bits <= base->safe_bits)
		return;
	for (int i = 0; i < state->ntransitions; i++)
	{
		const AggregateTransition *derived = &state->transitions[i];

		if (derived->of == base && bits > derived->safe_bits)
			vector_expression_evaluate(state->inputs[derived->args[0]].expression, input);
	}
}
