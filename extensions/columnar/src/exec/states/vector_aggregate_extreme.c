/*
 * vector_aggregate_extreme.c
 *		min and max of integers, dates, times, money and floats; bool_and, bool_or; bit_and,
 *		bit_or, bit_xor of integers.
 *
 * All but the floats fold int64 values with an operation that has a neutral element, which
 * is what a group begins with.  With many values and few groups most comparisons change
 * nothing, so that the state is written only where they do.
 *
 * Floats have two values that are equal and not the same, 0 and -0: core's functions return
 * the later one.  NaN is larger than all others.
 */
#include "compat.h"

#include <math.h>

#include "utils/float.h"
#include "utils/lsyscache.h"

#include "exec/states/vector_aggregate_internal.h"

/* ---- integers ------------------------------------------------------------------------------------ */

typedef struct IntFolding
{
	VectorAggregate base;
	int16 length; /* of the state's type */
	int64 *values;
	GroupMarks marks;
} IntFolding;

/* Loops over the rows, with the operation known to the compiler. */
#define DEFINE_FOLD(name, neutral, operation)                                                  \
	static const int64 neutral_of_##name = neutral;                                            \
                                                                                               \
	static inline int64 combine_##name(int64 a, int64 b)                                       \
	{                                                                                          \
		return operation;                                                                      \
	}                                                                                          \
                                                                                               \
	VECTOR_KERNEL static int64 fold_block_##name(const int64 *values)                          \
	{                                                                                          \
		int64 result = neutral;                                                                \
                                                                                               \
		for (uint32 row = 0; row < BLOCK_ROWS; row++)                                          \
			result = combine_##name(result, values[row]);                                      \
		return result;                                                                         \
	}                                                                                          \
                                                                                               \
	static int64 fold_rows_##name(const int64 *values, const VectorRows *rows)                 \
	{                                                                                          \
		int64 result = neutral;                                                                \
		int64 other = neutral;                                                                 \
		uint32 i = 0;                                                                          \
                                                                                               \
		if (rows->nselected == BLOCK_ROWS)                                                     \
			return fold_block_##name(values);                                                  \
		for (; i + 2 <= rows->nselected; i += 2)                                               \
		{                                                                                      \
			result = combine_##name(result, values[rows->selection[i]]);                       \
			other = combine_##name(other, values[rows->selection[i + 1]]);                     \
		}                                                                                      \
		if (i < rows->nselected)                                                               \
			result = combine_##name(result, values[rows->selection[i]]);                       \
		return combine_##name(result, other);                                                  \
	}                                                                                          \
                                                                                               \
	static void fold_groups_##name(int64 *states, const int64 *values, const VectorRows *rows) \
	{                                                                                          \
		for (uint32 i = 0; i < rows->nselected; i++)                                           \
		{                                                                                      \
			int64 *state = &states[rows->groups[i]];                                           \
			int64 folded = combine_##name(*state, values[rows->selection[i]]);                 \
                                                                                               \
			if (folded != *state)                                                              \
				*state = folded;                                                               \
		}                                                                                      \
	}

/* clang-format off */
DEFINE_FOLD(min, PG_INT64_MAX, Min(a, b))
DEFINE_FOLD(max, PG_INT64_MIN, Max(a, b))
DEFINE_FOLD(and, -1, a & b)
DEFINE_FOLD(or, 0, a | b)
DEFINE_FOLD(xor, 0, a ^ b)
/* clang-format on */

/* By IntFold. */
static const struct
{
	const int64 *neutral;
	int64 (*combine)(int64 a, int64 b);
	int64 (*rows)(const int64 *values, const VectorRows *rows);
	void (*groups)(int64 *states, const int64 *values, const VectorRows *rows);
} folds[] = {
	{&neutral_of_min, combine_min, fold_rows_min, fold_groups_min},
	{&neutral_of_max, combine_max, fold_rows_max, fold_groups_max},
	{&neutral_of_and, combine_and, fold_rows_and, fold_groups_and},
	{&neutral_of_or, combine_or, fold_rows_or, fold_groups_or},
	{&neutral_of_xor, combine_xor, fold_rows_xor, fold_groups_xor},
};

int64
int_fold_rows(IntFold fold, const int64 *values, const VectorRows *rows)
{
	return folds[fold].rows(values, rows);
}

static void
create_folding(VectorAggregate *aggregate)
{
	((IntFolding *) aggregate)->length = get_typlen(aggregate->aggref->aggtranstype);
}

static void
grow_folding(VectorAggregate *aggregate, uint32 old_capacity)
{
	IntFolding *folding = (IntFolding *) aggregate;
	int64 neutral = *folds[aggregate->variant].neutral;

	folding->values = aggregate_grow_array(aggregate, folding->values, old_capacity, sizeof(int64));
	folding->marks.marked = aggregate_grow_array(aggregate, folding->marks.marked, old_capacity,
												 sizeof(bool));
	for (uint32 group = old_capacity; group < aggregate->capacity; group++)
		folding->values[group] = neutral;
}

static void
advance_folding(VectorAggregate *aggregate, Vector *const *arguments, VectorRows *rows)
{
	IntFolding *folding = (IntFolding *) aggregate;
	RowsBuffer present;
	Vector made;
	int64 made_values[BLOCK_ROWS];
	const int64 *values;

	rows = rows_without(rows, arguments[0]->nulls, &present);
	if (rows->nselected == 0)
		return;
	values = vector_as_ints(arguments[0], rows, &made, made_values)->ints;
	group_marks_add(&folding->marks, rows);
	if (rows->groups == NULL)
		folding->values[0] = folds[aggregate->variant].combine(
			folding->values[0], folds[aggregate->variant].rows(values, rows));
	else
		folds[aggregate->variant].groups(folding->values, values, rows);
}

static Datum
get_folded(VectorAggregate *aggregate, uint32 group, bool *isnull)
{
	IntFolding *folding = (IntFolding *) aggregate;
	int64 value = folding->values[group];

	*isnull = !folding->marks.marked[group];
	if (*isnull)
		return (Datum) 0;
	switch (folding->length)
	{
		case 1:
			return BoolGetDatum(value != 0);
		case 2:
			return Int16GetDatum((int16) value);
		case 4:
			return Int32GetDatum((int32) value);
		default:
			return Int64GetDatum(value);
	}
}

static void
reset_folding(VectorAggregate *aggregate)
{
	IntFolding *folding = (IntFolding *) aggregate;

	folding->values = NULL;
	memset(&folding->marks, 0, sizeof(folding->marks));
}

const AggregateKernel int_fold_kernel = {sizeof(IntFolding), create_folding, grow_folding,
										 advance_folding,	 get_folded,	 reset_folding};

/* ---- floats ---------------------------------------------------------------------------------------- */

typedef struct FloatExtreme
{
	VectorAggregate base;
	double *values;
	GroupMarks marks;
} FloatExtreme;

static inline bool
is_max(const VectorAggregate *aggregate)
{
	return (aggregate->variant & FLOAT_MAX) != 0;
}

/* A group begins with what every value replaces. */
static void
grow_floats(VectorAggregate *aggregate, uint32 old_capacity)
{
	FloatExtreme *extreme = (FloatExtreme *) aggregate;
	double first = is_max(aggregate) ? -get_float8_infinity() : get_float8_nan();

	extreme->values = aggregate_grow_array(aggregate, extreme->values, old_capacity,
										   sizeof(double));
	extreme->marks.marked = aggregate_grow_array(aggregate, extreme->marks.marked, old_capacity,
												 sizeof(bool));
	for (uint32 group = old_capacity; group < aggregate->capacity; group++)
		extreme->values[group] = first;
}

/* As float8larger() and float8smaller(). */
static inline double
choose_float(double state, double value, bool max)
{
	if (max)
		return float8_gt(state, value) ? state : value;
	return float8_lt(state, value) ? state : value;
}

static double
choose_of_rows(double state, const double *values, const VectorRows *rows, bool max)
{
	for (uint32 i = 0; i < rows->nselected; i++)
		state = choose_float(state, values[rows->selection[i]], max);
	return state;
}

#define LANES 8

/* (`max`: a constant.) */
static inline bool
choose_of_lanes(const double *values, bool max, double *result)
{
	double best[LANES];
	uint64 nans[LANES] = {0};

	for (int lane = 0; lane < LANES; lane++)
		best[lane] = values[lane];
	for (uint32 row = 0; row < BLOCK_ROWS; row += LANES)
	{
		for (int lane = 0; lane < LANES; lane++)
		{
			double value = values[row + lane];
			bool better = max ? value > best[lane] : value < best[lane];

			nans[lane] |= value != value;
			best[lane] = better ? value : best[lane];
		}
	}
	for (int lane = 1; lane < LANES; lane++)
	{
		nans[0] |= nans[lane];
		best[0] = max ? Max(best[0], best[lane]) : Min(best[0], best[lane]);
	}
	*result = best[0];
	return nans[0] == 0 && best[0] != 0;
}

/*
 * The extreme of a block; false if NaN or the order of the values has a say: a result of
 * zero may have either sign.
 */
VECTOR_KERNEL static bool
choose_of_block(const double *values, bool max, double *result)
{
	return max ? choose_of_lanes(values, true, result) : choose_of_lanes(values, false, result);
}

static void
advance_floats(VectorAggregate *aggregate, Vector *const *arguments, VectorRows *rows)
{
	FloatExtreme *extreme = (FloatExtreme *) aggregate;
	bool max = is_max(aggregate);
	RowsBuffer present;
	Vector made;
	double made_values[BLOCK_ROWS];
	const double *values;
	double best;

	rows = rows_without(rows, arguments[0]->nulls, &present);
	if (rows->nselected == 0)
		return;
	values = vector_as_floats(arguments[0], rows, &made, made_values)->floats;
	group_marks_add(&extreme->marks, rows);
	if (rows->groups != NULL)
	{
		for (uint32 i = 0; i < rows->nselected; i++)
		{
			double *state = &extreme->values[rows->groups[i]];

			*state = choose_float(*state, values[rows->selection[i]], max);
		}
	}
	else if (rows->nselected == BLOCK_ROWS && choose_of_block(values, max, &best))
		extreme->values[0] = choose_float(extreme->values[0], best, max);
	else
		extreme->values[0] = choose_of_rows(extreme->values[0], values, rows, max);
}

static Datum
get_float(VectorAggregate *aggregate, uint32 group, bool *isnull)
{
	FloatExtreme *extreme = (FloatExtreme *) aggregate;

	*isnull = !extreme->marks.marked[group];
	if (*isnull)
		return (Datum) 0;
	if (aggregate->variant & FLOAT_SINGLE)
		return Float4GetDatum((float4) extreme->values[group]);
	return Float8GetDatum(extreme->values[group]);
}

static void
reset_floats(VectorAggregate *aggregate)
{
	FloatExtreme *extreme = (FloatExtreme *) aggregate;

	extreme->values = NULL;
	memset(&extreme->marks, 0, sizeof(extreme->marks));
}

const AggregateKernel float_extreme_kernel = {sizeof(FloatExtreme), NULL,	   grow_floats,
											  advance_floats,		get_float, reset_floats};
