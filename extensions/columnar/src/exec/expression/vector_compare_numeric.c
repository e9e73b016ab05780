/*
 * vector_compare_numeric.c
 *		Comparisons of numerics: by their mantissas, whatever the scales.
 *
 * Values without a mantissa (NaN, infinities, other scales than their column's) are
 * compared by numeric's own function.
 */
#include "exec/expression/vector_expression_internal.h"

#include "utils/fmgrprotos.h"
#include "utils/memutils.h"

/* Larger than any mantissa of 64 bits. */
#define BEYOND_INT64 ((int128) 1 << 100)

static inline int
compare_wides(int128 a, int128 b)
{
	return a < b ? -1 : a > b;
}

/* The order of a * 10 ^ digits and b. */
static int
compare_rescaled(int128 a, int32 digits, int128 b)
{
	int128 power;
	int128 rescaled;

	if (a == 0)
		return compare_wides(a, b);
	if (!vector_power_of_ten(digits, &power) || __builtin_mul_overflow(a, power, &rescaled))
		return a < 0 ? -1 : 1;
	return compare_wides(rescaled, b);
}

/* Mantissas of `scale` against one value. */
static bool
compare_constant(const int64 *mantissas, int32 scale, const Vector *constant, VectorOrder order,
				 const VectorInput *input, uint8 *truth)
{
	int128 bound = vector_mantissa(constant, 0);
	int32 digits = scale - constant->scale;
	bool exact = true;
	int128 power;
	int128 floor;

	if (digits >= 0)
	{
		if (bound == 0)
			floor = 0;
		else if (!vector_power_of_ten(digits, &power) ||
				 __builtin_mul_overflow(bound, power, &floor))
			floor = bound < 0 ? -BEYOND_INT64 : BEYOND_INT64;
	}
	else if (vector_power_of_ten(-digits, &power))
	{
		floor = bound / power;
		exact = floor * power == bound;
		if (!exact && bound < 0)
			floor--;
	}
	else
	{
		floor = bound < 0 ? -1 : 0;
		exact = bound == 0;
	}
	return vector_compare_bound(mantissas, order, floor, exact, input, truth);
}

VECTOR_KERNEL static void
multiply_block(const int64 *restrict from, int64 factor, int64 *restrict into)
{
	for (int i = 0; i < BLOCK_ROWS; i++)
		into[i] = from[i] * factor;
}

/* The mantissas times 10 ^ digits, in the node's ints; NULL if they may pass 64 bits. */
static const int64 *
rescale_ints(VectorExpression *node, Vector *vector, int32 digits, const VectorInput *input)
{
	/* 10 ^ digits < 2 ^ (10 / 3 * digits + 1) */
	if (digits >= VECTOR_POWERS_OF_TEN ||
		vector_bits(vector, input->batch->nrows) + (digits * 10 + 2) / 3 + 1 > 63)
		return NULL;
	multiply_block(vector->ints, numeric_powers_of_ten[digits], vector_node_ints(node));
	return node->ints;
}

/* All forms and scales, row by row. */
static bool
compare_rows(const Vector *left, const Vector *right, VectorOrder order, const VectorInput *input,
			 uint8 *truth)
{
	int32 digits = left->scale - right->scale;

	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		int128 a = vector_mantissa(left, row);
		int128 b = vector_mantissa(right, row);
		int outcome = digits <= 0 ? compare_rescaled(a, -digits, b)
								  : -compare_rescaled(b, digits, a);

		truth[row] = vector_order_holds(order, outcome) ? TRUTH_TRUE : TRUTH_FALSE;
	}
	return false;
}

static bool
compare_mantissas(VectorExpression *node, Vector *left, Vector *right, VectorOrder order,
				  const VectorInput *input, uint8 *truth)
{
	const int64 *left_ints = left->ints;
	const int64 *right_ints = right->ints;

	if (left->form == VECTOR_INT && right->constant)
		return compare_constant(left->ints, left->scale, right, order, input, truth);
	if (right->form == VECTOR_INT && left->constant)
		return compare_constant(right->ints, right->scale, left, vector_order_swap(order), input,
								truth);
	if (left->form != VECTOR_INT || right->form != VECTOR_INT)
		return compare_rows(left, right, order, input, truth);

	if (left->scale < right->scale)
		left_ints = rescale_ints(node, left, right->scale - left->scale, input);
	else if (left->scale > right->scale)
		right_ints = rescale_ints(node, right, left->scale - right->scale, input);
	if (left_ints == NULL || right_ints == NULL)
		return compare_rows(left, right, order, input, truth);
	return vector_compare_ints(left_ints, right_ints, order, input, truth);
}

static void
compare_exceptions(const Vector *left, const Vector *right, VectorOrder order,
				   const VectorInput *input, uint8 *truth)
{
	MemoryContext context = NULL;
	MemoryContext caller = CurrentMemoryContext;

	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		bool left_null;
		bool right_null;
		Datum a;
		Datum b;

		if (!vector_bit(left->exceptions, row) && !vector_bit(right->exceptions, row))
			continue;
		if (context == NULL)
			context = AllocSetContextCreate(caller, "columnar numerics", ALLOCSET_DEFAULT_SIZES);
		MemoryContextSwitchTo(context);
		a = vector_datum(left, row, &left_null);
		b = vector_datum(right, row, &right_null);
		if (!left_null && !right_null)
		{
			int outcome = DatumGetInt32(DirectFunctionCall2(numeric_cmp, a, b));

			truth[row] = vector_order_holds(order, outcome) ? TRUTH_TRUE : TRUTH_FALSE;
		}
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(caller);
	if (context != NULL)
		MemoryContextDelete(context);
}

bool
vector_compare_numerics(VectorExpression *node, Vector *left, Vector *right, VectorOrder order,
						VectorInput *input, uint8 *truth)
{
	bool complete = left->form == VECTOR_INT || left->form == VECTOR_WIDE;

	complete = complete && (right->form == VECTOR_INT || right->form == VECTOR_WIDE);
	left = vector_numeric_scale(node, 0, left, input);
	right = vector_numeric_scale(node, 1, right, input);
	complete = compare_mantissas(node, left, right, order, input, truth) && complete;
	if (left->exceptions == NULL && right->exceptions == NULL)
		return complete;
	compare_exceptions(left, right, order, input, truth);
	return false;
}
