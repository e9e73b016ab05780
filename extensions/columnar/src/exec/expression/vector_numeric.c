/*
 * vector_numeric.c
 *		numeric: + - *, signs, casts and round(), on mantissas.
 *
 * The result's scale is numeric's: the larger one of a sum, the sum of a product.  Where
 * the numbers of bits of the arguments prove that int64 is enough, whole blocks are
 * computed; else the selected rows in 128 bits.  What has no mantissa, or passes 128 bits,
 * is computed by numeric's own function and stays an exception.
 *
 * Rows of an argument that are shown with fewer digits ("padded", see vector.h) are padded in the
 * result, or where these would be of several kinds, exceptions.
 */
#include "exec/expression/vector_expression_internal.h"

#include "catalog/pg_type.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/numeric.h"

#include "store/codec/numeric_codec.h"

/* Products of more digits after the point are rounded by numeric_mul(). */
#define SCALE_MAX 1000

typedef enum NumericOperation
{
	NUMERIC_PLUS,
	NUMERIC_MINUS,
	NUMERIC_TIMES,
	NUMERIC_NEGATION,
	NUMERIC_MAGNITUDE,
	NUMERIC_SAME,
	NUMERIC_FROM_INT,
	NUMERIC_TO_INT,
	NUMERIC_TO_FLOAT,
	NUMERIC_TO_TYPMOD,
	NUMERIC_ROUND
} NumericOperation;

typedef struct NumericFunction
{
	Oid function;
	NumericOperation operation;
	PGFunction scalar; /* of operators: for exceptions */
} NumericFunction;

static const NumericFunction functions[] = {{F_NUMERIC_ADD, NUMERIC_PLUS, numeric_add},
											{F_NUMERIC_SUB, NUMERIC_MINUS, numeric_sub},
											{F_NUMERIC_MUL, NUMERIC_TIMES, numeric_mul},
											{F_NUMERIC_UMINUS, NUMERIC_NEGATION, numeric_uminus},
											{F_NUMERIC_ABS, NUMERIC_MAGNITUDE, numeric_abs},
											{F_ABS_NUMERIC, NUMERIC_MAGNITUDE, numeric_abs},
											{F_NUMERIC_UPLUS, NUMERIC_SAME, numeric_uplus},
											{F_NUMERIC_INT2, NUMERIC_FROM_INT, NULL},
											{F_NUMERIC_INT4, NUMERIC_FROM_INT, NULL},
											{F_NUMERIC_INT8, NUMERIC_FROM_INT, NULL},
											{F_INT2_NUMERIC, NUMERIC_TO_INT, NULL},
											{F_INT4_NUMERIC, NUMERIC_TO_INT, NULL},
											{F_INT8_NUMERIC, NUMERIC_TO_INT, NULL},
											{F_FLOAT8_NUMERIC, NUMERIC_TO_FLOAT, NULL},
											{F_NUMERIC_NUMERIC_INT4, NUMERIC_TO_TYPMOD, NULL},
											{F_ROUND_NUMERIC_INT4, NUMERIC_ROUND, NULL}};

/* What a node knows. */
typedef struct NumericNode
{
	const NumericFunction *function;
	int32 scale;  /* NUMERIC_TO_TYPMOD and _ROUND: the result's */
	int128 limit; /* NUMERIC_TO_TYPMOD: mantissas are smaller; else 0 */
} NumericNode;

/* ---- numerics in bytes -------------------------------------------------------------------------- */

struct VectorScaled
{
	Vector vector;
	int64 ints[BLOCK_ROWS];
	const char *starts[BLOCK_ROWS];
	uint32 lengths[BLOCK_ROWS];
	uint64 exceptions[BLOCK_WORDS];
};

static void
scale_row(VectorScaled *scaled, const Vector *from, uint32 row)
{
	int128 mantissa;
	int32 scale;

	scaled->starts[row] = vector_bytes(from, row, &scaled->lengths[row]);
	if (numeric_to_scaled(scaled->starts[row], scaled->lengths[row], &mantissa, &scale) &&
		(scaled->vector.scale < 0 || scale == scaled->vector.scale) && mantissa == (int64) mantissa)
	{
		scaled->vector.scale = scale;
		scaled->ints[row] = (int64) mantissa;
		return;
	}
	vector_set_bit(scaled->exceptions, row);
	scaled->vector.exceptions = scaled->exceptions;
}

Vector *
vector_numeric_scale(VectorExpression *node, int argument, Vector *vector, VectorInput *input)
{
	VectorScaled *scaled = node->scaled[argument];

	if (vector->form == VECTOR_INT || vector->form == VECTOR_WIDE)
		return vector;
	if (scaled == NULL)
		scaled = node->scaled[argument] = MemoryContextAllocZero(node->scope->context,
																 sizeof(VectorScaled));
	scaled->vector = *vector;
	scaled->vector.form = VECTOR_INT;
	scaled->vector.scale = -1;
	scaled->vector.bits = VECTOR_BITS_UNKNOWN;
	scaled->vector.constant = false;
	scaled->vector.ints = scaled->ints;
	scaled->vector.starts = scaled->starts;
	scaled->vector.lengths = scaled->lengths;
	memset(scaled->exceptions, 0, sizeof(scaled->exceptions));
	for (uint32 i = 0; i < input->nselected; i++)
		if (!vector_is_null(vector, input->selection[i]))
			scale_row(scaled, vector, input->selection[i]);
	scaled->vector.scale = Max(scaled->vector.scale, 0);
	node->partial = true;
	return &scaled->vector;
}

/* ---- exceptions --------------------------------------------------------------------------------- */

static void
set_exception(VectorExpression *node, uint32 row, Datum value)
{
	struct varlena *datum = (struct varlena *) DatumGetPointer(value);

	node->starts[row] = VARDATA_ANY(datum);
	node->lengths[row] = VARSIZE_ANY_EXHDR(datum);
	vector_set_bit(node->exceptions, row);
}

/* Makes room for exceptions in the result. */
static void
use_exceptions(VectorExpression *node)
{
	Vector *result = &node->result;

	if (result->exceptions != NULL)
		return;
	vector_node_use_exceptions(node);
	result->starts = node->starts;
	result->lengths = node->lengths;
	result->exceptions = vector_node_clear_exceptions(node);
}

/* One row by numeric's function. */
static void
compute_exception(VectorExpression *node, VectorInput *input, const Vector *a, const Vector *b,
				  uint32 row)
{
	const NumericNode *numeric = node->details;
	MemoryContext caller;
	bool a_null;
	bool b_null = false;
	Datum left;
	Datum right = (Datum) 0;

	use_exceptions(node);
	caller = MemoryContextSwitchTo(vector_node_memory(node, input));
	left = vector_datum(a, row, &a_null);
	if (b != NULL)
		right = vector_datum(b, row, &b_null);
	if (!a_null && !b_null)
		set_exception(node, row,
					  b != NULL ? DirectFunctionCall2(numeric->function->scalar, left, right)
								: DirectFunctionCall1(numeric->function->scalar, left));
	MemoryContextSwitchTo(caller);
}

/* The selected rows with a bit. */
static void
compute_marked(VectorExpression *node, VectorInput *input, const Vector *a, const Vector *b,
			   const uint64 *marks)
{
	if (marks == NULL)
		return;
	for (uint32 i = 0; i < input->nselected; i++)
		if (vector_bit(marks, input->selection[i]))
			compute_exception(node, input, a, b, input->selection[i]);
	node->partial = true;
}

/* The selected rows that are exceptions of an argument. */
static void
compute_exceptions(VectorExpression *node, VectorInput *input, const Vector *a, const Vector *b)
{
	compute_marked(node, input, a, b, a->exceptions);
	if (b != NULL)
		compute_marked(node, input, a, b, b->exceptions);
}

/*
 * How many digits the selected rows show that an argument pads.  If both do, the rows of one
 * become exceptions.
 */
static void
compute_padded(VectorExpression *node, VectorInput *input, const Vector *a, const Vector *b)
{
	NumericOperation operation = ((NumericNode *) node->details)->function->operation;
	const Vector *from = a->padded != NULL ? a : b;
	const Vector *other = from == a ? b : a;
	int32 scale;

	if (from->padded == NULL)
		return;
	if (other->padded != NULL)
		compute_marked(node, input, a, b, other->padded);
	scale = operation == NUMERIC_TIMES ? from->padded_scale + other->scale
									   : Max(from->padded_scale, other->scale);
	if (scale < node->result.scale)
	{
		node->result.padded = from->padded;
		node->result.padded_scale = scale;
	}
}

/* ---- + - * -------------------------------------------------------------------------------------- */

VECTOR_KERNEL static void
add_scaled(const int64 *restrict a, int64 a_factor, const int64 *restrict b, int64 b_factor,
		   int64 *restrict into)
{
	for (int i = 0; i < BLOCK_ROWS; i++)
		into[i] = a[i] * a_factor + b[i] * b_factor;
}

/* Bits of 10 ^ digits, generously. */
static int
count_power_bits(int32 digits)
{
	return digits == 0 ? 0 : (digits * 10 + 2) / 3 + 1;
}

/* Computes the whole block in 64 bits, if it cannot overflow. */
static bool
compute_block(VectorExpression *node, NumericOperation operation, Vector *a, Vector *b,
			  const VectorInput *input)
{
	int a_bits = vector_bits(a, input->batch->nrows);
	int b_bits = vector_bits(b, input->batch->nrows);
	int32 scale = node->result.scale;
	int bits = a_bits + b_bits + 1;

	if (operation != NUMERIC_TIMES)
		bits = Max(a_bits + count_power_bits(scale - a->scale),
				   b_bits + count_power_bits(scale - b->scale)) +
			   1;
	if (bits > 63)
		return false;
	if (operation == NUMERIC_TIMES)
		vector_multiply_blocks(a->ints, b->ints, node->ints);
	else if (a->scale != b->scale)
	{
		int64 b_factor = numeric_powers_of_ten[scale - b->scale];

		add_scaled(a->ints, numeric_powers_of_ten[scale - a->scale], b->ints,
				   operation == NUMERIC_MINUS ? -b_factor : b_factor, node->ints);
	}
	else if (operation == NUMERIC_PLUS)
		vector_add_blocks(a->ints, b->ints, node->ints);
	else
		vector_subtract_blocks(a->ints, b->ints, node->ints);
	node->result.bits = bits;
	return true;
}

/* One row in 128 bits; false if that is not enough. */
static inline bool
compute_wide(NumericOperation operation, int128 a, int128 a_factor, int128 b, int128 b_factor,
			 int128 *result)
{
	if (operation == NUMERIC_TIMES)
		return !__builtin_mul_overflow(a, b, result);
	if (a_factor != 1 && __builtin_mul_overflow(a, a_factor, &a))
		return false;
	if (b_factor != 1 && __builtin_mul_overflow(b, b_factor, &b))
		return false;
	return operation == NUMERIC_PLUS ? !__builtin_add_overflow(a, b, result)
									 : !__builtin_sub_overflow(a, b, result);
}

/* The selected rows in 64 bits; false if one does not fit. */
static bool
compute_narrow_rows(VectorExpression *node, NumericOperation operation, const Vector *a,
					const Vector *b, const VectorInput *input)
{
	int64 a_factor = numeric_powers_of_ten[node->result.scale - a->scale];
	int64 b_factor = numeric_powers_of_ten[node->result.scale - b->scale];

	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		int64 left = a->ints[row];
		int64 right = b->ints[row];
		int64 result;

		if (operation == NUMERIC_TIMES)
		{
			if (__builtin_mul_overflow(left, right, &result))
				return false;
		}
		else if (__builtin_mul_overflow(left, a_factor, &left) ||
				 __builtin_mul_overflow(right, b_factor, &right) ||
				 (operation == NUMERIC_PLUS ? __builtin_add_overflow(left, right, &result)
											: __builtin_sub_overflow(left, right, &result)))
			return false;
		node->ints[row] = result;
	}
	return true;
}

/* What came out small is better held small. */
static void
narrow_rows(VectorExpression *node, const VectorInput *input)
{
	vector_node_ints(node);
	for (uint32 i = 0; i < input->nselected; i++)
		node->ints[input->selection[i]] = (int64) node->wides[input->selection[i]];
	node->result.form = VECTOR_INT;
	node->result.ints = node->ints;
	node->result.wides = NULL;
}

/* The selected rows in 128 bits. */
static void
compute_wide_rows(VectorExpression *node, VectorInput *input, const Vector *a, const Vector *b)
{
	NumericOperation operation = ((NumericNode *) node->details)->function->operation;
	int32 scale = node->result.scale;
	const uint64 *nulls = node->result.nulls;
	int128 a_factor = 1;
	int128 b_factor = 1;
	bool fits = true;
	bool far = operation != NUMERIC_TIMES && (!vector_power_of_ten(scale - a->scale, &a_factor) ||
											  !vector_power_of_ten(scale - b->scale, &b_factor));

	vector_node_begin(node, VECTOR_WIDE)->scale = scale;
	node->result.nulls = nulls;
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];

		if (vector_bit(nulls, row))
			continue;
		if (far || !compute_wide(operation, vector_mantissa(a, row), a_factor,
								 vector_mantissa(b, row), b_factor, &node->wides[row]))
			compute_exception(node, input, a, b, row);
		else
			fits = fits && node->wides[row] == (int64) node->wides[row];
	}
	if (fits)
		narrow_rows(node, input);
}

/* More digits than are worth having: row by row. */
static void
compute_all_exceptions(VectorExpression *node, VectorInput *input, const Vector *a, const Vector *b)
{
	node->result.scale = 0;
	for (uint32 i = 0; i < input->nselected; i++)
		compute_exception(node, input, a, b, input->selection[i]);
}

static void
evaluate_binary(VectorExpression *node, VectorInput *input)
{
	NumericOperation operation = ((NumericNode *) node->details)->function->operation;
	Vector *a = vector_numeric_scale(node, 0, vector_node_values(node->args[0], input), input);
	Vector *b = vector_numeric_scale(node, 1, vector_node_values(node->args[1], input), input);
	bool is_narrow = a->form == VECTOR_INT && b->form == VECTOR_INT &&
					 abs(a->scale - b->scale) < VECTOR_POWERS_OF_TEN;
	int32 scale = operation == NUMERIC_TIMES ? a->scale + b->scale : Max(a->scale, b->scale);

	vector_node_begin(node, VECTOR_INT)->scale = scale;
	vector_node_merge_nulls(node, a, b);
	if (scale > SCALE_MAX)
	{
		compute_all_exceptions(node, input, a, b);
		node->partial = true;
		return;
	}
	/* the factors of a product are not used, but must be there */
	if (is_narrow && operation == NUMERIC_TIMES && Max(a->scale, b->scale) >= VECTOR_POWERS_OF_TEN)
		is_narrow = false;

	if (is_narrow && !vector_input_is_sparse(input) && compute_block(node, operation, a, b, input))
		node->result.constant = a->constant && b->constant && a->exceptions == NULL &&
								b->exceptions == NULL;
	else
	{
		node->partial = true;
		if (!is_narrow || !vector_input_is_sparse(input) ||
			!compute_narrow_rows(node, operation, a, b, input))
			compute_wide_rows(node, input, a, b);
	}
	compute_exceptions(node, input, a, b);
	compute_padded(node, input, a, b);
}

/* ---- signs -------------------------------------------------------------------------------------- */

static void
evaluate_sign(VectorExpression *node, VectorInput *input)
{
	NumericOperation operation = ((NumericNode *) node->details)->function->operation;
	Vector *from = vector_numeric_scale(node, 0, vector_node_values(node->args[0], input), input);

	vector_node_begin(node, from->form)->scale = from->scale;
	node->result.nulls = from->nulls;
	node->result.padded = from->padded;
	node->result.padded_scale = from->padded_scale;
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		int128 mantissa = vector_mantissa(from, row);

		if (operation == NUMERIC_NEGATION || (operation == NUMERIC_MAGNITUDE && mantissa < 0))
			mantissa = (int128) (0 - (uint128) mantissa);
		if (from->form == VECTOR_WIDE)
			node->wides[row] = mantissa;
		else if (mantissa == (int64) mantissa)
			node->ints[row] = (int64) mantissa;
		else if (!vector_is_null(from, row))
			compute_exception(node, input, from, NULL, row);
	}
	node->partial = true;
	compute_exceptions(node, input, from, NULL);
}

/* ---- casts -------------------------------------------------------------------------------------- */

static void
evaluate_from_int(VectorExpression *node, VectorInput *input)
{
	node->result = *vector_node_values(node->args[0], input);
	node->result.type = &node->type;
	node->result.scale = 0;
}

/* mantissa / 10 ^ digits, halves away from zero. */
static inline int64
round_mantissa(int64 mantissa, int64 divisor)
{
	int64 quotient = mantissa / divisor;
	int64 rest = mantissa % divisor;

	if (rest >= divisor - rest && rest > 0)
		return quotient + 1;
	if (-rest >= divisor + rest && rest < 0)
		return quotient - 1;
	return quotient;
}

/*
 * Brings the selected rows to another scale, into the node's ints; false if one that is not
 * NULL has no value there, or is not smaller than the limit (unless that is 0).
 */
static bool
rescale_rows(VectorExpression *node, const Vector *from, int32 scale, int128 limit,
			 const VectorInput *input)
{
	int32 digits = scale - from->scale;
	int64 factor;

	if (from->form != VECTOR_INT || from->exceptions != NULL || abs(digits) >= VECTOR_POWERS_OF_TEN)
		return false;
	factor = numeric_powers_of_ten[abs(digits)];
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];
		int64 result = from->ints[row];

		if (digits < 0)
			result = round_mantissa(result, factor);
		else if (digits > 0 && __builtin_mul_overflow(result, factor, &result))
		{
			if (!vector_is_null(from, row))
				return false;
			result = 0;
		}
		if (limit != 0 && (result >= limit || result <= -limit) && !vector_is_null(from, row))
			return false;
		node->ints[row] = result;
	}
	return true;
}

/* numeric(p, s), round(x, s): what is no matter of 64 bits is left to the ExprState. */
static void
evaluate_rescaled(VectorExpression *node, VectorInput *input)
{
	const NumericNode *numeric = node->details;
	Vector *from = vector_numeric_scale(node, 0, vector_node_values(node->args[0], input), input);

	vector_node_begin(node, VECTOR_INT)->scale = numeric->scale;
	node->result.nulls = from->nulls;
	node->partial = true;
	if (!rescale_rows(node, from, numeric->scale, numeric->limit, input))
		vector_leaf_evaluate_scalar(node, input);
}

static void
evaluate_to_int(VectorExpression *node, VectorInput *input)
{
	Vector *from = vector_numeric_scale(node, 0, vector_node_values(node->args[0], input), input);
	int bits = node->type.length * 8 - 1;

	vector_node_begin(node, VECTOR_INT);
	node->result.nulls = from->nulls;
	node->partial = true;
	if (!rescale_rows(node, from, 0, 0, input) ||
		!vector_are_between(node->ints, from->nulls, input, -((int64) 1 << (bits - 1)) * 2,
							((int64) 1 << (bits - 1)) - 1 + ((int64) 1 << (bits - 1))))
		vector_leaf_evaluate_scalar(node, input);
}

/*
 * The quotient of two integers that a double holds exactly is rounded once, and so is
 * what numeric_float8() reads from the digits.
 */
static void
evaluate_to_float(VectorExpression *node, VectorInput *input)
{
	static const int64 exact = INT64CONST(1) << 53;
	Vector *from = vector_numeric_scale(node, 0, vector_node_values(node->args[0], input), input);
	double divisor;

	vector_node_begin(node, VECTOR_FLOAT);
	node->result.nulls = from->nulls;
	node->partial = true;
	if (from->form != VECTOR_INT || from->exceptions != NULL || from->scale > 15 ||
		!vector_are_between(from->ints, from->nulls, input, -exact, exact))
	{
		vector_leaf_evaluate_scalar(node, input);
		return;
	}
	divisor = (double) numeric_powers_of_ten[from->scale];
	for (uint32 i = 0; i < input->nselected; i++)
		node->floats[input->selection[i]] = (double) from->ints[input->selection[i]] / divisor;
}

/* ---- compiling ---------------------------------------------------------------------------------- */

/* The constant second argument; false if it is none, or NULL. */
static bool
get_constant(const VectorCall *call, int32 *value)
{
	const Const *constant = lsecond(call->arguments);

	if (!IsA(constant, Const) || constant->constisnull)
		return false;
	*value = DatumGetInt32(constant->constvalue);
	return true;
}

/* Scale and limit of numeric(p, s); false if it is none that the kernel knows. */
static bool
read_typmod(int32 typmod, NumericNode *numeric)
{
	int32 precision = ((typmod - VARHDRSZ) >> 16) & 0xffff;

	if (typmod < (int32) VARHDRSZ)
		return false;
	/* 11 bits with a sign */
	numeric->scale = (((typmod - VARHDRSZ) & 0x7ff) ^ 1024) - 1024;
	return numeric->scale >= 0 && vector_power_of_ten(precision, &numeric->limit);
}

static bool
prepare_node(const VectorCall *call, NumericNode *numeric)
{
	int32 value;

	switch (numeric->function->operation)
	{
		case NUMERIC_TO_TYPMOD:
			return get_constant(call, &value) && read_typmod(value, numeric);
		case NUMERIC_ROUND:
			if (!get_constant(call, &value) || value < 0 || value > SCALE_MAX)
				return false;
			numeric->scale = value;
			return true;
		default:
			return true;
	}
}

static void
set_evaluate(VectorExpression *node, NumericOperation operation)
{
	switch (operation)
	{
		case NUMERIC_PLUS:
		case NUMERIC_MINUS:
		case NUMERIC_TIMES:
			node->evaluate = evaluate_binary;
			break;
		case NUMERIC_NEGATION:
		case NUMERIC_MAGNITUDE:
		case NUMERIC_SAME:
			node->evaluate = evaluate_sign;
			break;
		case NUMERIC_FROM_INT:
			node->evaluate = evaluate_from_int;
			break;
		case NUMERIC_TO_INT:
			node->evaluate = evaluate_to_int;
			break;
		case NUMERIC_TO_FLOAT:
			node->evaluate = evaluate_to_float;
			break;
		case NUMERIC_TO_TYPMOD:
		case NUMERIC_ROUND:
			node->evaluate = evaluate_rescaled;
			break;
	}
}

VectorExpression *
vector_numeric_compile(Expr *expression, VectorScope *scope)
{
	NumericNode numeric = {0};
	VectorExpression *node;
	VectorCall call;

	if (!vector_call_match(expression, &call))
		return NULL;
	for (int i = 0; i < lengthof(functions); i++)
		if (functions[i].function == call.function)
			numeric.function = &functions[i];
	if (numeric.function == NULL || !prepare_node(&call, &numeric))
		return NULL;

	node = vector_node_create(expression, scope, call.arguments);
	node->details = palloc(sizeof(NumericNode));
	memcpy(node->details, &numeric, sizeof(NumericNode));
	set_evaluate(node, numeric.function->operation);
	/* exceptions may pass the limits of numeric */
	node->can_fail = node->can_fail || numeric.function->operation != NUMERIC_FROM_INT;
	node->is_shareable = numeric.function->operation <= NUMERIC_TO_FLOAT;
	node->is_cheap = true;
	for (int i = 0; i < node->nargs; i++)
		node->is_cheap = node->is_cheap && node->args[i]->is_cheap;
	return node;
}
