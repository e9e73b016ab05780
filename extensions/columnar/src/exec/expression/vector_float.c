/*
 * vector_float.c
 *		+ - * / of float4 and float8, their casts.
 *
 * Whole blocks are computed, and with them whether any row overflowed, underflowed or
 * divided by zero as float.h defines it; if a selected row did that is not NULL, the batch is
 * left to the ExprState.  A float4 is held as a double: arithmetic rounds to float.
 */
#include "exec/expression/vector_expression_internal.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "utils/fmgroids.h"

typedef uint64 (*FloatKernel)(const double *a, const double *b, double *into);
typedef bool (*FloatCheck)(double a, double b, double result);

/* ---- operators ---------------------------------------------------------------------------------- */

#define IS_INFINITE(x) (fabs(x) == (double) INFINITY)

#define DEFINE_FLOAT(name, type, operation, failure)                                            \
	VECTOR_KERNEL static uint64 name(const double *restrict left, const double *restrict right, \
									 double *restrict into)                                     \
	{                                                                                           \
		uint64 failures = 0;                                                                    \
                                                                                                \
		for (int i = 0; i < BLOCK_ROWS; i++)                                                    \
		{                                                                                       \
			type a = (type) left[i];                                                            \
			type b = (type) right[i];                                                           \
			type result = a operation b;                                                        \
                                                                                                \
			into[i] = result;                                                                   \
			failures += (failure);                                                              \
		}                                                                                       \
		return failures;                                                                        \
	}                                                                                           \
	static bool name##_fails(double left, double right, double outcome)                         \
	{                                                                                           \
		type a = (type) left;                                                                   \
		type b = (type) right;                                                                  \
		type result = (type) outcome;                                                           \
                                                                                                \
		return (failure);                                                                       \
	}

#define OVERFLOWS (IS_INFINITE(result) & !IS_INFINITE(a) & !IS_INFINITE(b))
#define UNDERFLOWS ((result == 0) & (a != 0) & (b != 0))
#define DIVISION_FAILS                                                 \
	(((b == 0) & (a == a)) | (IS_INFINITE(result) & !IS_INFINITE(a)) | \
	 ((result == 0) & (a != 0) & !IS_INFINITE(b)))

DEFINE_FLOAT(add_doubles, double, +, OVERFLOWS)
DEFINE_FLOAT(subtract_doubles, double, -, OVERFLOWS)
DEFINE_FLOAT(multiply_doubles, double, *, OVERFLOWS | UNDERFLOWS)
DEFINE_FLOAT(divide_doubles, double, /, DIVISION_FAILS)
DEFINE_FLOAT(add_floats, float, +, OVERFLOWS)
DEFINE_FLOAT(subtract_floats, float, -, OVERFLOWS)
DEFINE_FLOAT(multiply_floats, float, *, OVERFLOWS | UNDERFLOWS)
DEFINE_FLOAT(divide_floats, float, /, DIVISION_FAILS)

typedef struct FloatOperator
{
	Oid function;
	FloatKernel compute;
	FloatCheck fails;
} FloatOperator;

#define FLOAT_OPERATOR(name, kernel)          \
	{                                         \
		F_FLOAT##name, kernel, kernel##_fails \
	}
#define DOUBLE_OPERATORS(name, kernel)                                 \
	FLOAT_OPERATOR(8##name, kernel), FLOAT_OPERATOR(48##name, kernel), \
		FLOAT_OPERATOR(84##name, kernel)

static const FloatOperator operators[] = {
	DOUBLE_OPERATORS(PL, add_doubles),		 DOUBLE_OPERATORS(MI, subtract_doubles),
	DOUBLE_OPERATORS(MUL, multiply_doubles), DOUBLE_OPERATORS(DIV, divide_doubles),
	FLOAT_OPERATOR(4PL, add_floats),		 FLOAT_OPERATOR(4MI, subtract_floats),
	FLOAT_OPERATOR(4MUL, multiply_floats),	 FLOAT_OPERATOR(4DIV, divide_floats)};

static bool
has_failure(const FloatOperator *operation, const Vector *a, const Vector *b, const double *results,
			const VectorInput *input)
{
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];

		if (operation->fails(a->floats[row], b->floats[row], results[row]) &&
			!vector_is_null(a, row) && !vector_is_null(b, row))
			return true;
	}
	return false;
}

static void
evaluate_operator(VectorExpression *node, VectorInput *input)
{
	const FloatOperator *operation = node->details;
	const Vector *a = vector_node_values(node->args[0], input);
	const Vector *b = vector_node_values(node->args[1], input);

	vector_node_begin(node, VECTOR_FLOAT);
	vector_node_merge_nulls(node, a, b);
	if (operation->compute(a->floats, b->floats, node->floats) > 0 &&
		has_failure(operation, a, b, node->floats, input))
		vector_leaf_evaluate_scalar(node, input);
}

/* ---- one argument ------------------------------------------------------------------------------- */

static void
evaluate_sign(VectorExpression *node, VectorInput *input)
{
	Oid function = *(Oid *) node->details;
	bool is_absolute = function != F_FLOAT4UM && function != F_FLOAT8UM;
	const Vector *from = vector_node_values(node->args[0], input);

	vector_node_begin(node, VECTOR_FLOAT);
	node->result.nulls = from->nulls;
	if (is_absolute)
	{
		for (int i = 0; i < BLOCK_ROWS; i++)
			node->floats[i] = fabs(from->floats[i]);
	}
	else
	{
		for (int i = 0; i < BLOCK_ROWS; i++)
			node->floats[i] = -from->floats[i];
	}
}

VECTOR_KERNEL static void
widen_ints(const int64 *restrict from, double *restrict into)
{
	for (int i = 0; i < BLOCK_ROWS; i++)
		into[i] = (double) from[i];
}

static void
evaluate_from_ints(VectorExpression *node, VectorInput *input)
{
	const Vector *from = vector_node_values(node->args[0], input);

	vector_node_begin(node, VECTOR_FLOAT);
	node->result.nulls = from->nulls;
	if (node->type.typid == FLOAT8OID)
		widen_ints(from->ints, node->floats);
	else
	{
		for (int i = 0; i < BLOCK_ROWS; i++)
			node->floats[i] = (float) from->ints[i];
	}
}

/* A float4 is held as the double it becomes. */
static void
evaluate_widened(VectorExpression *node, VectorInput *input)
{
	node->result = *vector_node_values(node->args[0], input);
	node->result.type = &node->type;
}

static void
evaluate_narrowed(VectorExpression *node, VectorInput *input)
{
	const Vector *from = vector_node_values(node->args[0], input);
	bool fails = false;

	vector_node_begin(node, VECTOR_FLOAT);
	node->result.nulls = from->nulls;
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		double wide = from->floats[row];
		float narrow = (float) wide;

		node->floats[row] = narrow;
		if (((isinf(narrow) && !isinf(wide)) || (narrow == 0 && wide != 0)) &&
			!vector_is_null(from, row))
			fails = true;
	}
	node->partial = true;
	if (fails)
		vector_leaf_evaluate_scalar(node, input);
}

typedef struct FloatFunction
{
	Oid function;
	void (*evaluate)(VectorExpression *node, VectorInput *input);
	bool can_fail;
} FloatFunction;

static const FloatFunction functions[] = {
	{F_FLOAT8UM, evaluate_sign, false},			{F_FLOAT4UM, evaluate_sign, false},
	{F_FLOAT8ABS, evaluate_sign, false},		{F_FLOAT4ABS, evaluate_sign, false},
	{F_ABS_FLOAT8, evaluate_sign, false},		{F_ABS_FLOAT4, evaluate_sign, false},
	{F_FLOAT8_INT2, evaluate_from_ints, false}, {F_FLOAT8_INT4, evaluate_from_ints, false},
	{F_FLOAT8_INT8, evaluate_from_ints, false}, {F_FLOAT4_INT2, evaluate_from_ints, false},
	{F_FLOAT4_INT4, evaluate_from_ints, false}, {F_FLOAT4_INT8, evaluate_from_ints, false},
	{F_FLOAT8_FLOAT4, evaluate_widened, false}, {F_FLOAT4_FLOAT8, evaluate_narrowed, true}};

/* ---- compiling ---------------------------------------------------------------------------------- */

static VectorExpression *
create_node(Expr *expression, VectorScope *scope, const VectorCall *call, const void *details)
{
	VectorExpression *node = vector_node_create(expression, scope, call->arguments);

	node->details = (void *) details;
	node->is_shareable = true;
	node->is_cheap = true;
	for (int i = 0; i < node->nargs; i++)
		node->is_cheap = node->is_cheap && node->args[i]->is_cheap;
	return node;
}

VectorExpression *
vector_float_compile(Expr *expression, VectorScope *scope)
{
	VectorExpression *node;
	VectorCall call;

	if (!vector_call_match(expression, &call))
		return NULL;
	for (int i = 0; i < lengthof(operators); i++)
		if (operators[i].function == call.function)
		{
			node = create_node(expression, scope, &call, &operators[i]);
			node->evaluate = evaluate_operator;
			node->can_fail = true;
			return node;
		}
	for (int i = 0; i < lengthof(functions); i++)
		if (functions[i].function == call.function)
		{
			node = create_node(expression, scope, &call, &functions[i].function);
			node->evaluate = functions[i].evaluate;
			node->can_fail = node->can_fail || functions[i].can_fail;
			return node;
		}
	return NULL;
}
