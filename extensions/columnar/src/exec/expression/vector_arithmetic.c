/*
 * vector_arithmetic.c
 *		+ - * / % of int2, int4 and int8, their casts, and dates plus and minus days.
 *
 * All are int64 here.  Whole blocks are computed without checks if the number of bits of
 * the arguments says that nothing can overflow; else the selected rows with checks.  Where
 * a row that is not NULL overflows or divides by zero, the batch is left to the ExprState,
 * which raises the error.
 */
#include "exec/expression/vector_expression_internal.h"

#include "catalog/pg_type.h"
#include "datatype/timestamp.h"
#include "utils/date.h"
#include "utils/fmgroids.h"

typedef enum ArithmeticOperation
{
	OPERATION_ADD,
	OPERATION_SUBTRACT,
	OPERATION_MULTIPLY,
	OPERATION_DIVIDE,
	OPERATION_MODULO,
	OPERATION_NEGATE,
	OPERATION_ABSOLUTE,
	OPERATION_CAST,
	OPERATION_IS_NOT_ZERO,
	OPERATION_DATE_ADD,
	OPERATION_DATE_SUBTRACT,
	OPERATION_DATE_DIFFERENCE
} ArithmeticOperation;

typedef struct Arithmetic
{
	Oid function;
	ArithmeticOperation operation;
} Arithmetic;

#define NINE_FUNCTIONS(name, operation)                                                     \
	{F_INT2##name, operation}, {F_INT4##name, operation}, {F_INT8##name, operation},        \
		{F_INT24##name, operation}, {F_INT42##name, operation}, {F_INT28##name, operation}, \
		{F_INT82##name, operation}, {F_INT48##name, operation},                             \
	{                                                                                       \
		F_INT84##name, operation                                                            \
	}

#define THREE_FUNCTIONS(name, operation)                  \
	{F_INT2##name, operation}, {F_INT4##name, operation}, \
	{                                                     \
		F_INT8##name, operation                           \
	}

static const Arithmetic functions[] = {NINE_FUNCTIONS(PL, OPERATION_ADD),
									   NINE_FUNCTIONS(MI, OPERATION_SUBTRACT),
									   NINE_FUNCTIONS(MUL, OPERATION_MULTIPLY),
									   NINE_FUNCTIONS(DIV, OPERATION_DIVIDE),
									   THREE_FUNCTIONS(MOD, OPERATION_MODULO),
									   {F_MOD_INT2_INT2, OPERATION_MODULO},
									   {F_MOD_INT4_INT4, OPERATION_MODULO},
									   {F_MOD_INT8_INT8, OPERATION_MODULO},
									   THREE_FUNCTIONS(UM, OPERATION_NEGATE),
									   THREE_FUNCTIONS(UP, OPERATION_CAST),
									   THREE_FUNCTIONS(ABS, OPERATION_ABSOLUTE),
									   {F_ABS_INT2, OPERATION_ABSOLUTE},
									   {F_ABS_INT4, OPERATION_ABSOLUTE},
									   {F_ABS_INT8, OPERATION_ABSOLUTE},
									   {F_INT2_INT4, OPERATION_CAST},
									   {F_INT2_INT8, OPERATION_CAST},
									   {F_INT4_INT2, OPERATION_CAST},
									   {F_INT4_INT8, OPERATION_CAST},
									   {F_INT8_INT2, OPERATION_CAST},
									   {F_INT8_INT4, OPERATION_CAST},
									   {F_INT8_OID, OPERATION_CAST},
									   {F_INT4_BOOL, OPERATION_CAST},
									   {F_BOOL_INT4, OPERATION_IS_NOT_ZERO},
									   {F_DATE_PLI, OPERATION_DATE_ADD},
									   {F_DATE_MII, OPERATION_DATE_SUBTRACT},
									   {F_DATE_MI, OPERATION_DATE_DIFFERENCE}};

/* ---- ranges ------------------------------------------------------------------------------------- */

VECTOR_KERNEL static uint64
count_outside(const int64 *restrict values, uint64 low, uint64 span)
{
	uint64 outside = 0;

	for (int i = 0; i < BLOCK_ROWS; i++)
		outside += (uint64) values[i] - low > span;
	return outside;
}

bool
vector_are_between(const int64 *values, const uint64 *nulls, const VectorInput *input, int64 low,
				   int64 high)
{
	uint64 span = (uint64) high - (uint64) low;

	if (!vector_input_is_sparse(input) && count_outside(values, (uint64) low, span) == 0)
		return true;
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];

		if ((uint64) values[row] - (uint64) low > span && !vector_bit(nulls, row))
			return false;
	}
	return true;
}

/* The smallest value of the node's type; the largest is -1 - smallest. */
static int64
get_smallest(const VectorExpression *node)
{
	switch (node->type.length)
	{
		case 2:
			return PG_INT16_MIN;
		case 4:
			return PG_INT32_MIN;
		default:
			return PG_INT64_MIN;
	}
}

/* ---- whole blocks ------------------------------------------------------------------------------- */

VECTOR_KERNEL void
vector_add_blocks(const int64 *restrict a, const int64 *restrict b, int64 *restrict into)
{
	for (int i = 0; i < BLOCK_ROWS; i++)
		into[i] = a[i] + b[i];
}

VECTOR_KERNEL void
vector_subtract_blocks(const int64 *restrict a, const int64 *restrict b, int64 *restrict into)
{
	for (int i = 0; i < BLOCK_ROWS; i++)
		into[i] = a[i] - b[i];
}

VECTOR_KERNEL void
vector_multiply_blocks(const int64 *restrict a, const int64 *restrict b, int64 *restrict into)
{
	for (int i = 0; i < BLOCK_ROWS; i++)
		into[i] = a[i] * b[i];
}

/* How many bits the results have at most, besides the sign. */
static int
find_result_bits(ArithmeticOperation operation, Vector *a, Vector *b, const VectorInput *input)
{
	int left = vector_bits(a, input->batch->nrows);
	int right = vector_bits(b, input->batch->nrows);

	return operation == OPERATION_MULTIPLY ? left + right + 1 : Max(left, right) + 1;
}

/* Computes all rows, if that cannot overflow 64 bits. */
static bool
compute_block(VectorExpression *node, ArithmeticOperation operation, Vector *a, Vector *b,
			  const VectorInput *input)
{
	int bits = find_result_bits(operation, a, b, input);

	if (bits > 63)
		return false;
	if (operation == OPERATION_ADD)
		vector_add_blocks(a->ints, b->ints, node->ints);
	else if (operation == OPERATION_SUBTRACT)
		vector_subtract_blocks(a->ints, b->ints, node->ints);
	else
		vector_multiply_blocks(a->ints, b->ints, node->ints);
	node->result.bits = bits;
	return true;
}

/* ---- rows --------------------------------------------------------------------------------------- */

/* One row; false if it overflows 64 bits or divides by zero. */
static inline bool
compute_row(ArithmeticOperation operation, int64 a, int64 b, int64 *result)
{
	switch (operation)
	{
		case OPERATION_ADD:
			return !__builtin_add_overflow(a, b, result);
		case OPERATION_SUBTRACT:
			return !__builtin_sub_overflow(a, b, result);
		case OPERATION_MULTIPLY:
			return !__builtin_mul_overflow(a, b, result);
		case OPERATION_DIVIDE:
			if (b == 0 || b == -1)
				return b == -1 && !__builtin_sub_overflow(INT64CONST(0), a, result);
			*result = a / b;
			return true;
		case OPERATION_MODULO:
			if (b == 0 || b == -1)
			{
				*result = 0;
				return b == -1;
			}
			*result = a % b;
			return true;
		default:
			return false;
	}
}

/* The selected rows; false if one that is not NULL fails or has no value of the node's type. */
static inline bool
compute_rows(VectorExpression *node, ArithmeticOperation operation, const Vector *a,
			 const Vector *b, const VectorInput *input)
{
	int64 low = get_smallest(node);
	uint64 span = (uint64) (-1 - low) - (uint64) low;

	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		int64 result = 0;

		if ((!compute_row(operation, a->ints[row], b->ints[row], &result) ||
			 (uint64) result - (uint64) low > span) &&
			!vector_is_null(a, row) && !vector_is_null(b, row))
			return false;
		node->ints[row] = result;
	}
	return true;
}

static bool
compute_selected(VectorExpression *node, ArithmeticOperation operation, const Vector *a,
				 const Vector *b, const VectorInput *input)
{
	node->partial = true;
	switch (operation)
	{
		case OPERATION_ADD:
			return compute_rows(node, OPERATION_ADD, a, b, input);
		case OPERATION_SUBTRACT:
			return compute_rows(node, OPERATION_SUBTRACT, a, b, input);
		case OPERATION_MULTIPLY:
			return compute_rows(node, OPERATION_MULTIPLY, a, b, input);
		case OPERATION_DIVIDE:
			return compute_rows(node, OPERATION_DIVIDE, a, b, input);
		default:
			return compute_rows(node, OPERATION_MODULO, a, b, input);
	}
}

/* ---- operators of integers ---------------------------------------------------------------------- */

static void
evaluate_binary(VectorExpression *node, VectorInput *input)
{
	const Arithmetic *arithmetic = node->details;
	ArithmeticOperation operation = arithmetic->operation;
	Vector *a = vector_node_values(node->args[0], input);
	Vector *b = vector_node_values(node->args[1], input);
	int64 low = get_smallest(node);
	bool done = false;

	vector_node_begin(node, VECTOR_INT);
	vector_node_merge_nulls(node, a, b);
	if (operation <= OPERATION_MULTIPLY && !vector_input_is_sparse(input))
	{
		done = compute_block(node, operation, a, b, input);
		if (done && node->result.bits > node->type.length * 8 - 1 &&
			!vector_are_between(node->ints, node->result.nulls, input, low, -1 - low))
		{
			vector_leaf_evaluate_scalar(node, input);
			return;
		}
	}
	if (!done && !compute_selected(node, operation, a, b, input))
	{
		vector_leaf_evaluate_scalar(node, input);
		return;
	}
	node->result.constant = a->constant && b->constant && done;
}

/* ---- operators of one argument ------------------------------------------------------------------ */

VECTOR_KERNEL static void
negate_block(const int64 *restrict from, int64 *restrict into)
{
	for (int i = 0; i < BLOCK_ROWS; i++)
		into[i] = (int64) (0 - (uint64) from[i]);
}

VECTOR_KERNEL static void
make_absolute(const int64 *restrict from, int64 *restrict into)
{
	for (int i = 0; i < BLOCK_ROWS; i++)
	{
		int64 sign = from[i] >> 63;

		into[i] = (int64) ((uint64) (from[i] ^ sign) - (uint64) sign);
	}
}

static void
evaluate_unary(VectorExpression *node, VectorInput *input)
{
	const Arithmetic *arithmetic = node->details;
	Vector *from = vector_node_values(node->args[0], input);
	int64 low = get_smallest(node);
	/* a value and its negation both fit */
	int64 lowest = arithmetic->operation == OPERATION_CAST ? low : low + 1;

	if (arithmetic->operation == OPERATION_IS_NOT_ZERO)
	{
		vector_node_begin(node, VECTOR_INT);
		for (int i = 0; i < BLOCK_ROWS; i++)
			node->ints[i] = from->ints[i] != 0;
		node->result.nulls = from->nulls;
		return;
	}
	if ((arithmetic->operation != OPERATION_CAST ||
		 node->type.length < node->args[0]->type.length) &&
		!vector_are_between(from->ints, from->nulls, input, lowest, -1 - low))
	{
		vector_leaf_evaluate_scalar(node, input);
		return;
	}
	if (arithmetic->operation == OPERATION_CAST)
	{
		node->result = *from;
		node->result.type = &node->type;
		return;
	}
	vector_node_begin(node, VECTOR_INT);
	node->result.nulls = from->nulls;
	if (arithmetic->operation == OPERATION_NEGATE)
		negate_block(from->ints, node->ints);
	else
		make_absolute(from->ints, node->ints);
}

/* ---- dates -------------------------------------------------------------------------------------- */

static bool
are_dates_finite(const Vector *dates, const VectorInput *input)
{
	return vector_are_between(dates->ints, dates->nulls, input, DATEVAL_NOBEGIN + 1,
							  DATEVAL_NOEND - 1);
}

/* Infinite dates, and what would be no date, are left to the ExprState. */
static void
evaluate_date(VectorExpression *node, VectorInput *input)
{
	const Arithmetic *arithmetic = node->details;
	const Vector *a = vector_node_values(node->args[0], input);
	const Vector *b = vector_node_values(node->args[1], input);
	bool is_difference = arithmetic->operation == OPERATION_DATE_DIFFERENCE;

	vector_node_begin(node, VECTOR_INT);
	vector_node_merge_nulls(node, a, b);
	if (arithmetic->operation == OPERATION_DATE_ADD)
		vector_add_blocks(a->ints, b->ints, node->ints);
	else
		vector_subtract_blocks(a->ints, b->ints, node->ints);
	if (!are_dates_finite(a, input) || (is_difference && !are_dates_finite(b, input)) ||
		(!is_difference && !vector_are_between(node->ints, node->result.nulls, input,
											   DATETIME_MIN_JULIAN - POSTGRES_EPOCH_JDATE,
											   DATE_END_JULIAN - POSTGRES_EPOCH_JDATE - 1)))
		vector_leaf_evaluate_scalar(node, input);
}

/* ---- compiling ---------------------------------------------------------------------------------- */

/* Can no value of the argument's type fail? */
static bool
is_widening(const VectorExpression *node, ArithmeticOperation operation)
{
	return operation == OPERATION_IS_NOT_ZERO ||
		   (operation == OPERATION_CAST && node->type.length >= node->args[0]->type.length);
}

VectorExpression *
vector_arithmetic_compile(Expr *expression, VectorScope *scope)
{
	const Arithmetic *arithmetic = NULL;
	VectorExpression *node;
	VectorCall call;

	if (!vector_call_match(expression, &call))
		return NULL;
	for (int i = 0; i < lengthof(functions) && arithmetic == NULL; i++)
		if (functions[i].function == call.function)
			arithmetic = &functions[i];
	if (arithmetic == NULL)
		return NULL;

	node = vector_node_create(expression, scope, call.arguments);
	node->details = (void *) arithmetic;
	if (arithmetic->operation <= OPERATION_MODULO)
		node->evaluate = evaluate_binary;
	else if (arithmetic->operation >= OPERATION_DATE_ADD)
		node->evaluate = evaluate_date;
	else
		node->evaluate = evaluate_unary;
	node->can_fail = node->can_fail || !is_widening(node, arithmetic->operation);
	node->is_shareable = true;
	node->is_cheap = true;
	for (int i = 0; i < node->nargs; i++)
		node->is_cheap = node->is_cheap && node->args[i]->is_cheap;
	return node;
}
