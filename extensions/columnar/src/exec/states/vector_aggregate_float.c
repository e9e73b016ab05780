/*
 * vector_aggregate_float.c
 *		sum, avg, variance, correlation and regression of floats.
 *
 * Floating-point addition is not associative, so every group's values are added in the order
 * of the rows, by the same operations as core's, and the results are the same bits.  For that
 * reason there are no variants for newer processors here either: the compiler might fuse a
 * multiplication and an addition, which rounds once less.
 *
 * An addition that overflows raises core's error.  Without groups this is found after the
 * batch: a sum that overflowed never becomes finite again.
 */
#include "compat.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/float.h"

#include "exec/states/vector_aggregate_internal.h"

/* ---- sum --------------------------------------------------------------------------------------- */

/* Sums begin with -0, to which any number can be added without change: -0 + -0 is -0. */
typedef struct FloatSum
{
	VectorAggregate base;
	double *sums; /* of float4: such a value */
	GroupMarks marks;
} FloatSum;

static void
grow_sums(VectorAggregate *aggregate, uint32 old_capacity)
{
	FloatSum *sum = (FloatSum *) aggregate;

	sum->sums = aggregate_grow_array(aggregate, sum->sums, old_capacity, sizeof(double));
	sum->marks.marked = aggregate_grow_array(aggregate, sum->marks.marked, old_capacity,
											 sizeof(bool));
	for (uint32 group = old_capacity; group < aggregate->capacity; group++)
		sum->sums[group] = -0.0;
}

static inline double
add_checked(double sum, double value, bool single)
{
	double result = single ? (double) ((float4) sum + (float4) value) : sum + value;

	if (unlikely(isinf(result)) && !isinf(sum) && !isinf(value))
		float_overflow_error();
	return result;
}

static double
add_rows_checked(double sum, const double *values, const VectorRows *rows, bool single)
{
	for (uint32 i = 0; i < rows->nselected; i++)
		sum = add_checked(sum, values[rows->selection[i]], single);
	return sum;
}

static double
add_rows(double sum, const double *values, const VectorRows *rows, bool single)
{
	double result = sum;

	if (single)
	{
		float4 narrow = (float4) sum;

		for (uint32 i = 0; i < rows->nselected; i++)
			narrow += (float4) values[rows->selection[i]];
		result = narrow;
	}
	else
	{
		for (uint32 i = 0; i < rows->nselected; i++)
			result += values[rows->selection[i]];
	}
	return isfinite(result) ? result : add_rows_checked(sum, values, rows, single);
}

static void
add_to_groups(double *sums, const double *values, const VectorRows *rows, bool single)
{
	for (uint32 i = 0; i < rows->nselected; i++)
	{
		double *to = &sums[rows->groups[i]];

		*to = add_checked(*to, values[rows->selection[i]], single);
	}
}

static void
advance_sums(VectorAggregate *aggregate, Vector *const *arguments, VectorRows *rows)
{
	FloatSum *sum = (FloatSum *) aggregate;
	bool single = aggregate->variant == FLOAT_SINGLE;
	RowsBuffer present;
	Vector made;
	double values[BLOCK_ROWS];
	const Vector *vector;

	rows = rows_without(rows, arguments[0]->nulls, &present);
	if (rows->nselected == 0)
		return;
	vector = vector_as_floats(arguments[0], rows, &made, values);
	group_marks_add(&sum->marks, rows);
	if (rows->groups == NULL)
		sum->sums[0] = add_rows(sum->sums[0], vector->floats, rows, single);
	else if (single)
		add_to_groups(sum->sums, vector->floats, rows, true);
	else
		add_to_groups(sum->sums, vector->floats, rows, false);
}

static Datum
get_sum(VectorAggregate *aggregate, uint32 group, bool *isnull)
{
	FloatSum *sum = (FloatSum *) aggregate;

	*isnull = !sum->marks.marked[group];
	if (*isnull)
		return (Datum) 0;
	if (aggregate->variant == FLOAT_SINGLE)
		return Float4GetDatum((float4) sum->sums[group]);
	return Float8GetDatum(sum->sums[group]);
}

static void
reset_sums(VectorAggregate *aggregate)
{
	FloatSum *sum = (FloatSum *) aggregate;

	sum->sums = NULL;
	memset(&sum->marks, 0, sizeof(sum->marks));
}

const AggregateKernel float_sum_kernel = {sizeof(FloatSum), NULL,	 grow_sums,
										  advance_sums,		get_sum, reset_sums};

/* ---- avg, variance, stddev ------------------------------------------------------------------------ */

/* The state of float8_accum(). */
typedef struct Moments
{
	double n;
	double sx;
	double sxx;
} Moments;

typedef struct FloatMoments
{
	VectorAggregate base;
	Moments *moments;
} FloatMoments;

static void
grow_moments(VectorAggregate *aggregate, uint32 old_capacity)
{
	FloatMoments *floats = (FloatMoments *) aggregate;

	floats->moments = aggregate_grow_array(aggregate, floats->moments, old_capacity,
										   sizeof(Moments));
}

/* The algorithm of Youngs and Cramer, as float8_accum() has it. */
static inline void
add_moment(Moments *moments, double value)
{
	double n = moments->n + 1.0;
	double sx = moments->sx + value;
	double sxx = moments->sxx;

	if (moments->n > 0.0)
	{
		double difference = value * n - sx;

		sxx += difference * difference / (n * moments->n);
		if (unlikely(isinf(sx) || isinf(sxx)))
		{
			if (!isinf(moments->sx) && !isinf(value))
				float_overflow_error();
			sxx = get_float8_nan();
		}
	}
	else if (unlikely(isnan(value) || isinf(value)))
		sxx = get_float8_nan();
	moments->n = n;
	moments->sx = sx;
	moments->sxx = sxx;
}

static void
advance_moments(VectorAggregate *aggregate, Vector *const *arguments, VectorRows *rows)
{
	Moments *moments = ((FloatMoments *) aggregate)->moments;
	RowsBuffer present;
	Vector made;
	double values[BLOCK_ROWS];
	const double *floats;

	rows = rows_without(rows, arguments[0]->nulls, &present);
	if (rows->nselected == 0)
		return;
	floats = vector_as_floats(arguments[0], rows, &made, values)->floats;
	if (rows->groups == NULL)
	{
		Moments first = moments[0];

		for (uint32 i = 0; i < rows->nselected; i++)
			add_moment(&first, floats[rows->selection[i]]);
		moments[0] = first;
		return;
	}
	for (uint32 i = 0; i < rows->nselected; i++)
		add_moment(&moments[rows->groups[i]], floats[rows->selection[i]]);
}

static Datum
make_float_array(const double *values, int nvalues)
{
	Datum elements[6];

	Assert(nvalues <= lengthof(elements));
	for (int i = 0; i < nvalues; i++)
		elements[i] = Float8GetDatum(values[i]);
	return PointerGetDatum(construct_array(elements, nvalues, FLOAT8OID, sizeof(float8),
										   FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

static Datum
get_moments(VectorAggregate *aggregate, uint32 group, bool *isnull)
{
	*isnull = false;
	return make_float_array((double *) &((FloatMoments *) aggregate)->moments[group], 3);
}

static void
reset_moments(VectorAggregate *aggregate)
{
	((FloatMoments *) aggregate)->moments = NULL;
}

const AggregateKernel float_moments_kernel = {sizeof(FloatMoments), NULL,		 grow_moments,
											  advance_moments,		get_moments, reset_moments};

/* ---- regr_*, corr, covar_* -------------------------------------------------------------------------- */

/* The state of float8_regr_accum(). */
typedef struct Regression
{
	double n;
	double sx;
	double sxx;
	double sy;
	double syy;
	double sxy;
} Regression;

typedef struct FloatRegression
{
	VectorAggregate base;
	Regression *regressions;
} FloatRegression;

static void
grow_regressions(VectorAggregate *aggregate, uint32 old_capacity)
{
	FloatRegression *floats = (FloatRegression *) aggregate;

	floats->regressions = aggregate_grow_array(aggregate, floats->regressions, old_capacity,
											   sizeof(Regression));
}

/* Sums became infinite: an error when the inputs were not, else what depends on them is NaN. */
static inline void
check_infinite(const Regression *before, Regression *after, double x, double y)
{
	bool x_finite = !isinf(before->sx) && !isinf(x);
	bool y_finite = !isinf(before->sy) && !isinf(y);

	if (((isinf(after->sx) || isinf(after->sxx)) && x_finite) ||
		((isinf(after->sy) || isinf(after->syy)) && y_finite) ||
		(isinf(after->sxy) && x_finite && y_finite))
		float_overflow_error();
	if (isinf(after->sxx))
		after->sxx = get_float8_nan();
	if (isinf(after->syy))
		after->syy = get_float8_nan();
	if (isinf(after->sxy))
		after->sxy = get_float8_nan();
}

/* The algorithm of Youngs and Cramer, as float8_regr_accum() has it. */
static inline void
add_pair(Regression *state, double y, double x)
{
	Regression after = *state;

	after.n += 1.0;
	after.sx += x;
	after.sy += y;
	if (state->n > 0.0)
	{
		double dx = x * after.n - after.sx;
		double dy = y * after.n - after.sy;
		double scale = 1.0 / (after.n * state->n);

		after.sxx += dx * dx * scale;
		after.syy += dy * dy * scale;
		after.sxy += dx * dy * scale;
		if (unlikely(isinf(after.sx) || isinf(after.sxx) || isinf(after.sy) || isinf(after.syy) ||
					 isinf(after.sxy)))
			check_infinite(state, &after, x, y);
	}
	else
	{
		if (isnan(x) || isinf(x))
			after.sxx = after.sxy = get_float8_nan();
		if (isnan(y) || isinf(y))
			after.syy = after.sxy = get_float8_nan();
	}
	*state = after;
}

static void
advance_regressions(VectorAggregate *aggregate, Vector *const *arguments, VectorRows *rows)
{
	Regression *regressions = ((FloatRegression *) aggregate)->regressions;
	RowsBuffer present[2];
	Vector made[2];
	double values[2][BLOCK_ROWS];
	const double *ys;
	const double *xs;

	rows = rows_without(rows, arguments[0]->nulls, &present[0]);
	rows = rows_without(rows, arguments[1]->nulls, &present[1]);
	if (rows->nselected == 0)
		return;
	ys = vector_as_floats(arguments[0], rows, &made[0], values[0])->floats;
	xs = vector_as_floats(arguments[1], rows, &made[1], values[1])->floats;
	if (rows->groups == NULL)
	{
		Regression first = regressions[0];

		for (uint32 i = 0; i < rows->nselected; i++)
			add_pair(&first, ys[rows->selection[i]], xs[rows->selection[i]]);
		regressions[0] = first;
		return;
	}
	for (uint32 i = 0; i < rows->nselected; i++)
		add_pair(&regressions[rows->groups[i]], ys[rows->selection[i]], xs[rows->selection[i]]);
}

static Datum
get_regression(VectorAggregate *aggregate, uint32 group, bool *isnull)
{
	*isnull = false;
	return make_float_array((double *) &((FloatRegression *) aggregate)->regressions[group], 6);
}

static void
reset_regressions(VectorAggregate *aggregate)
{
	((FloatRegression *) aggregate)->regressions = NULL;
}

const AggregateKernel float_regression_kernel = {sizeof(FloatRegression), NULL,
												 grow_regressions,		  advance_regressions,
												 get_regression,		  reset_regressions};
