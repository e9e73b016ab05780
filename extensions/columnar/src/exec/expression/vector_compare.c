/*
 * vector_compare.c
 *		=, <>, <, <=, >, >= and IS DISTINCT FROM.
 *
 * Operators are known by their functions.  Whatever is held as integers and compared with
 * one value becomes a test for a range: low <= x <= high, in one unsigned comparison.  So do
 * dates compared with a timestamp and numerics with one of another scale, as what is asked
 * of x * factor can be asked of x, exactly.
 *
 * Kernels compare without regard to NULLs; these are put in afterwards.
 */
#include "exec/expression/vector_expression_internal.h"

#include "catalog/pg_type.h"
#include "datatype/timestamp.h"
#include "nodes/nodeFuncs.h"
#include "utils/date.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/pg_locale.h"
#include "utils/timestamp.h"

/* ---- operators ---------------------------------------------------------------------------------- */

typedef struct CompareFunction
{
	Oid function;
	VectorFamily family;
	VectorOrder order;
} CompareFunction;

#define SIX_FUNCTIONS(name, family)                                         \
	{F_##name##EQ, family, ORDER_EQ}, {F_##name##NE, family, ORDER_NE},     \
		{F_##name##LT, family, ORDER_LT}, {F_##name##LE, family, ORDER_LE}, \
		{F_##name##GT, family, ORDER_GT},                                   \
	{                                                                       \
		F_##name##GE, family, ORDER_GE                                      \
	}

#define SIX_MIXED_FUNCTIONS(left, right, family)                                              \
	{F_##left##_EQ_##right, family, ORDER_EQ}, {F_##left##_NE_##right, family, ORDER_NE},     \
		{F_##left##_LT_##right, family, ORDER_LT}, {F_##left##_LE_##right, family, ORDER_LE}, \
		{F_##left##_GT_##right, family, ORDER_GT},                                            \
	{                                                                                         \
		F_##left##_GE_##right, family, ORDER_GE                                               \
	}

static const CompareFunction functions[] = {
	SIX_FUNCTIONS(INT2, COMPARE_INT),
	SIX_FUNCTIONS(INT4, COMPARE_INT),
	SIX_FUNCTIONS(INT8, COMPARE_INT),
	SIX_FUNCTIONS(INT24, COMPARE_INT),
	SIX_FUNCTIONS(INT42, COMPARE_INT),
	SIX_FUNCTIONS(INT28, COMPARE_INT),
	SIX_FUNCTIONS(INT82, COMPARE_INT),
	SIX_FUNCTIONS(INT48, COMPARE_INT),
	SIX_FUNCTIONS(INT84, COMPARE_INT),
	SIX_FUNCTIONS(OID, COMPARE_INT),
	SIX_FUNCTIONS(BOOL, COMPARE_INT),
	SIX_FUNCTIONS(CHAR, COMPARE_INT),
	SIX_FUNCTIONS(DATE_, COMPARE_INT),
	SIX_FUNCTIONS(TIME_, COMPARE_INT),
	SIX_FUNCTIONS(TIMESTAMP_, COMPARE_INT),
	SIX_FUNCTIONS(TIMESTAMPTZ_, COMPARE_INT),
	SIX_FUNCTIONS(CASH_, COMPARE_INT),
	{F_ENUM_EQ, COMPARE_INT, ORDER_EQ},
	{F_ENUM_NE, COMPARE_INT, ORDER_NE},
	SIX_FUNCTIONS(FLOAT4, COMPARE_FLOAT),
	SIX_FUNCTIONS(FLOAT8, COMPARE_FLOAT),
	SIX_FUNCTIONS(FLOAT48, COMPARE_FLOAT),
	SIX_FUNCTIONS(FLOAT84, COMPARE_FLOAT),
	SIX_FUNCTIONS(NUMERIC_, COMPARE_NUMERIC),
	{F_TEXTEQ, COMPARE_TEXT, ORDER_EQ},
	{F_TEXTNE, COMPARE_TEXT, ORDER_NE},
	{F_TEXT_LT, COMPARE_TEXT, ORDER_LT},
	{F_TEXT_LE, COMPARE_TEXT, ORDER_LE},
	{F_TEXT_GT, COMPARE_TEXT, ORDER_GT},
	{F_TEXT_GE, COMPARE_TEXT, ORDER_GE},
	SIX_FUNCTIONS(BPCHAR, COMPARE_TRIMMED),
	SIX_FUNCTIONS(BYTEA, COMPARE_BYTES),
	SIX_FUNCTIONS(UUID_, COMPARE_BYTES),
	SIX_MIXED_FUNCTIONS(DATE, TIMESTAMP, COMPARE_DATE_TIMESTAMP),
	SIX_MIXED_FUNCTIONS(TIMESTAMP, DATE, COMPARE_TIMESTAMP_DATE),
	SIX_MIXED_FUNCTIONS(DATE, TIMESTAMPTZ, COMPARE_DATE_TIMESTAMPTZ),
	SIX_MIXED_FUNCTIONS(TIMESTAMPTZ, DATE, COMPARE_TIMESTAMPTZ_DATE),
	SIX_MIXED_FUNCTIONS(TIMESTAMP, TIMESTAMPTZ, COMPARE_TIMESTAMP_TIMESTAMPTZ),
	SIX_MIXED_FUNCTIONS(TIMESTAMPTZ, TIMESTAMP, COMPARE_TIMESTAMPTZ_TIMESTAMP)};

bool
vector_compare_find(Oid function, VectorFamily *family, VectorOrder *order)
{
	for (int i = 0; i < lengthof(functions); i++)
		if (functions[i].function == function)
		{
			*family = functions[i].family;
			*order = functions[i].order;
			return true;
		}
	return false;
}

bool
vector_compare_has_kernel(VectorFamily family, VectorOrder order, Oid collation)
{
	if (family != COMPARE_TEXT && family != COMPARE_TRIMMED)
		return true;
	/* without a collation core raises an error */
	if (!OidIsValid(collation) || !get_collation_isdeterministic(collation))
		return false;
	return order == ORDER_EQ || order == ORDER_NE || compat_collation_is_c(collation);
}

/* ---- kernels ------------------------------------------------------------------------------------ */

/* truth = condition, or its opposite if `flip` is 1; for whole blocks and for selected rows. */
#define DEFINE_COMPARE(name, type, condition)                                                 \
	VECTOR_KERNEL static void name(const type *restrict left, const type *restrict right,     \
								   uint8 flip, uint8 *restrict truth)                         \
	{                                                                                         \
		for (int i = 0; i < BLOCK_ROWS; i++)                                                  \
		{                                                                                     \
			type a = left[i];                                                                 \
			type b = right[i];                                                                \
                                                                                              \
			truth[i] = (uint8) ((uint8) (condition) ^ flip) << 1;                             \
		}                                                                                     \
	}                                                                                         \
	static void name##_of_rows(const type *left, const type *right, uint8 flip, uint8 *truth, \
							   const VectorInput *input)                                      \
	{                                                                                         \
		for (uint32 i = 0; i < input->nselected; i++)                                         \
		{                                                                                     \
			uint32 row = input->selection[i];                                                 \
			type a = left[row];                                                               \
			type b = right[row];                                                              \
                                                                                              \
			truth[row] = (uint8) ((uint8) (condition) ^ flip) << 1;                           \
		}                                                                                     \
	}

DEFINE_COMPARE(are_ints_equal, int64, a == b)
DEFINE_COMPARE(are_ints_less, int64, a < b)
DEFINE_COMPARE(are_ints_less_or_equal, int64, a <= b)

/* NaN is larger than all others, and equal to itself */
DEFINE_COMPARE(are_floats_equal, double, (a == b) | ((a != a) & (b != b)))
DEFINE_COMPARE(are_floats_less, double, (a == a) & ((b != b) | (a < b)))
DEFINE_COMPARE(are_floats_less_or_equal, double, (b != b) | (a <= b))

#define RUN_COMPARE(name) \
	(sparse ? name##_of_rows(left, right, flip, truth, input) : name(left, right, flip, truth))

bool
vector_compare_ints(const int64 *left, const int64 *right, VectorOrder order,
					const VectorInput *input, uint8 *truth)
{
	bool sparse = vector_input_is_sparse(input);
	uint8 flip = order == ORDER_NE || order == ORDER_GT || order == ORDER_GE;

	if (order == ORDER_EQ || order == ORDER_NE)
		RUN_COMPARE(are_ints_equal);
	else if (order == ORDER_LT || order == ORDER_GE)
		RUN_COMPARE(are_ints_less);
	else
		RUN_COMPARE(are_ints_less_or_equal);
	return !sparse;
}

static bool
compare_floats(const double *left, const double *right, VectorOrder order, const VectorInput *input,
			   uint8 *truth)
{
	bool sparse = vector_input_is_sparse(input);
	uint8 flip = order == ORDER_NE || order == ORDER_GT || order == ORDER_GE;

	if (order == ORDER_EQ || order == ORDER_NE)
		RUN_COMPARE(are_floats_equal);
	else if (order == ORDER_LT || order == ORDER_GE)
		RUN_COMPARE(are_floats_less);
	else
		RUN_COMPARE(are_floats_less_or_equal);
	return !sparse;
}

/* Is low <= value <= low + span? */
VECTOR_KERNEL static void
test_range(const int64 *restrict values, uint64 low, uint64 span, uint8 flip, uint8 *restrict truth)
{
	for (int i = 0; i < BLOCK_ROWS; i++)
		truth[i] = (uint8) ((uint8) ((uint64) values[i] - low <= span) ^ flip) << 1;
}

bool
vector_compare_bound(const int64 *values, VectorOrder order, int128 floor, bool exact,
					 const VectorInput *input, uint8 *truth)
{
	uint8 flip = order == ORDER_NE || order == ORDER_GT || order == ORDER_GE;
	int128 low = PG_INT64_MIN;
	int128 high;
	uint64 span;

	/* the range for =, < and <=; the others are their opposites */
	if (order == ORDER_EQ || order == ORDER_NE)
	{
		low = Max(floor, low);
		high = exact ? floor : (int128) PG_INT64_MIN - 1;
	}
	else if (order == ORDER_LT || order == ORDER_GE)
		high = exact ? floor - 1 : floor;
	else
		high = floor;
	high = Min(high, (int128) PG_INT64_MAX);
	if (low > high)
	{
		memset(truth, flip ? TRUTH_TRUE : TRUTH_FALSE, BLOCK_ROWS);
		return true;
	}

	span = (uint64) (high - low);
	if (!vector_input_is_sparse(input))
	{
		test_range(values, (uint64) (int64) low, span, flip, truth);
		return true;
	}
	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint32 row = input->selection[i];

		truth[row] = (uint8) ((uint8) ((uint64) values[row] - (uint64) (int64) low <= span) ^ flip)
					 << 1;
	}
	return false;
}

/* ---- dates and timestamps ----------------------------------------------------------------------- */

/* What a date is as a timestamp; dates past the last one are between it and infinity. */
static inline int64
widen_date(int64 date)
{
	if (DATE_IS_NOBEGIN(date))
		return DT_NOBEGIN;
	if (DATE_IS_NOEND(date))
		return DT_NOEND;
	if (date >= TIMESTAMP_END_JULIAN - POSTGRES_EPOCH_JDATE)
		return END_TIMESTAMP;
	return date * USECS_PER_DAY;
}

/* date op timestamp */
static bool
compare_date_timestamp(VectorExpression *node, const Vector *date, const Vector *timestamp,
					   VectorOrder order, const VectorInput *input, uint8 *truth)
{
	int64 *widened;

	if (timestamp->constant)
	{
		int64 bound = timestamp->ints[0];
		int64 day = bound / USECS_PER_DAY;

		if (TIMESTAMP_IS_NOBEGIN(bound))
			return vector_compare_bound(date->ints, order, DATEVAL_NOBEGIN, true, input, truth);
		if (TIMESTAMP_IS_NOEND(bound))
			return vector_compare_bound(date->ints, order, DATEVAL_NOEND, true, input, truth);
		if (day * USECS_PER_DAY > bound)
			day--;
		return vector_compare_bound(date->ints, order, day, day * USECS_PER_DAY == bound, input,
									truth);
	}
	widened = vector_node_ints(node);
	for (uint32 i = 0; i < BLOCK_ROWS; i++)
		widened[i] = widen_date(date->ints[i]);
	return vector_compare_ints(widened, timestamp->ints, order, input, truth);
}

/* Is the local time so far from the ends of the range that it is a timestamptz in every zone? */
static bool
is_amid(Oid type, int64 local)
{
	if (type == DATEOID)
		return DATE_NOT_FINITE(local) || (local > DATETIME_MIN_JULIAN - POSTGRES_EPOCH_JDATE + 7 &&
										  local < TIMESTAMP_END_JULIAN - POSTGRES_EPOCH_JDATE - 7);
	return TIMESTAMP_NOT_FINITE(local) ||
		   (local > MIN_TIMESTAMP + 7 * USECS_PER_DAY && local < END_TIMESTAMP - 7 * USECS_PER_DAY);
}

/*
 * A local time (date or timestamp) op timestamptz: one local time is converted in the
 * session's zone; many are left to the ExprState.
 */
static bool
compare_local(VectorExpression *node, const Vector *local, const Vector *timestamptz,
			  VectorOrder order, VectorInput *input, uint8 *truth)
{
	Oid type = local->type->typid;
	Datum converted;

	if (!local->constant || !is_amid(type, local->ints[0]))
	{
		vector_leaf_decide_scalar(node, input, truth);
		return false;
	}
	converted = OidFunctionCall1(type == DATEOID ? F_TIMESTAMPTZ_DATE : F_TIMESTAMPTZ_TIMESTAMP,
								 column_type_from_int(local->type, local->ints[0]));
	return vector_compare_bound(timestamptz->ints, vector_order_swap(order),
								DatumGetTimestampTz(converted), true, input, truth);
}

/* ---- nodes -------------------------------------------------------------------------------------- */

typedef struct Compare
{
	VectorFamily family;
	VectorOrder order;
	bool is_distinct; /* IS DISTINCT FROM: the order is = */
} Compare;

static bool
compare_integers(Vector *left, Vector *right, VectorOrder order, const VectorInput *input,
				 uint8 *truth)
{
	if (right->constant)
		return vector_compare_bound(left->ints, order, right->ints[0], true, input, truth);
	if (left->constant)
		return vector_compare_bound(right->ints, vector_order_swap(order), left->ints[0], true,
									input, truth);
	return vector_compare_ints(left->ints, right->ints, order, input, truth);
}

static bool
compare_values(VectorExpression *node, Vector *left, Vector *right, VectorInput *input,
			   uint8 *truth)
{
	const Compare *compare = node->details;
	VectorOrder order = compare->order;

	switch (compare->family)
	{
		case COMPARE_INT:
			return compare_integers(left, right, order, input, truth);
		case COMPARE_FLOAT:
			return compare_floats(left->floats, right->floats, order, input, truth);
		case COMPARE_NUMERIC:
			return vector_compare_numerics(node, left, right, order, input, truth);
		case COMPARE_TEXT:
		case COMPARE_TRIMMED:
		case COMPARE_BYTES:
			return vector_compare_bytes(left, right, compare->family, order, input, truth);
		case COMPARE_DATE_TIMESTAMP:
			return compare_date_timestamp(node, left, right, order, input, truth);
		case COMPARE_TIMESTAMP_DATE:
			return compare_date_timestamp(node, right, left, vector_order_swap(order), input,
										  truth);
		case COMPARE_DATE_TIMESTAMPTZ:
		case COMPARE_TIMESTAMP_TIMESTAMPTZ:
			return compare_local(node, left, right, order, input, truth);
		case COMPARE_TIMESTAMPTZ_DATE:
		case COMPARE_TIMESTAMPTZ_TIMESTAMP:
			return compare_local(node, right, left, vector_order_swap(order), input, truth);
	}
	pg_unreachable();
}

/* From "equal", NULLs disregarded, to IS DISTINCT FROM. */
static void
mark_distinct(uint8 *truth, const Vector *left, const Vector *right)
{
	for (uint32 row = 0; row < BLOCK_ROWS; row++)
	{
		bool left_null = vector_is_null(left, row);
		bool right_null = vector_is_null(right, row);

		if (left_null || right_null)
			truth[row] = left_null != right_null ? TRUTH_TRUE : TRUTH_FALSE;
		else
			truth[row] = TRUTH_TRUE - truth[row];
	}
}

static void
decide_compare(VectorExpression *node, VectorInput *input, uint8 *truth)
{
	const Compare *compare = node->details;
	Vector *left = vector_node_values(node->args[0], input);
	Vector *right = vector_node_values(node->args[1], input);

	node->partial = !compare_values(node, left, right, input, truth) || node->partial;
	if (compare->is_distinct)
		mark_distinct(truth, left, right);
	else
	{
		vector_truth_mark_nulls(truth, left->nulls);
		vector_truth_mark_nulls(truth, right->nulls);
	}
}

static bool
is_of_local_time(VectorFamily family)
{
	return family == COMPARE_DATE_TIMESTAMPTZ || family == COMPARE_TIMESTAMPTZ_DATE ||
		   family == COMPARE_TIMESTAMP_TIMESTAMPTZ || family == COMPARE_TIMESTAMPTZ_TIMESTAMP;
}

VectorExpression *
vector_compare_compile(Expr *expression, VectorScope *scope)
{
	VectorExpression *node;
	VectorFamily family;
	VectorOrder order;
	VectorCall call;
	Compare *compare;
	bool is_distinct = IsA(expression, DistinctExpr);

	if (is_distinct)
	{
		DistinctExpr *distinct = (DistinctExpr *) expression;

		set_opfuncid((OpExpr *) distinct);
		call.function = distinct->opfuncid;
		call.collation = distinct->inputcollid;
		call.arguments = distinct->args;
	}
	else if (!vector_call_match(expression, &call))
		return NULL;
	if (!vector_compare_find(call.function, &family, &order) ||
		!vector_compare_has_kernel(family, order, call.collation))
		return NULL;
	/* many local times go to the ExprState, which knows nothing of our NULLs */
	if (is_distinct && is_of_local_time(family))
		return NULL;

	node = vector_node_create(expression, scope, call.arguments);
	compare = palloc(sizeof(Compare));
	compare->family = family;
	compare->order = order;
	compare->is_distinct = is_distinct;
	node->details = compare;
	node->decide = decide_compare;
	node->can_fail = node->can_fail || is_of_local_time(family);
	node->is_cheap = node->args[0]->is_cheap && node->args[1]->is_cheap &&
					 (family == COMPARE_INT || family == COMPARE_FLOAT ||
					  family == COMPARE_NUMERIC || family == COMPARE_DATE_TIMESTAMP ||
					  family == COMPARE_TIMESTAMP_DATE);
	return node;
}
