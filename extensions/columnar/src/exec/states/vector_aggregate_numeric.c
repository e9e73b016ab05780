/*
 * vector_aggregate_numeric.c
 *		min and max of numeric.
 *
 * A group holds a mantissa and its scale, as long as there is one, else the numeric itself
 * (NaN, infinities, more than 38 digits).  Mantissas of one scale compare as integers; the
 * others are brought to one scale if that fits, or made numerics again and compared by core.
 *
 * Of equal values with different display scales (1.0 and 1.00) core keeps the later one.
 */
#include "compat.h"

#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/numeric.h"

#include "exec/states/vector_aggregate_internal.h"

#include "store/codec/numeric_codec.h"

/* NumericState.scale */
#define STATE_EMPTY (-1)
#define STATE_DATUM (-2)

typedef struct NumericState
{
	int128 mantissa;
	Datum datum;
	int32 scale;
} NumericState;

typedef struct NumericExtreme
{
	VectorAggregate base;
	NumericState *states;
} NumericExtreme;

static inline bool
is_max(const VectorAggregate *aggregate)
{
	return (aggregate->variant & EXTREME_MAX) != 0;
}

static void
grow_states(VectorAggregate *aggregate, uint32 old_capacity)
{
	NumericExtreme *extreme = (NumericExtreme *) aggregate;

	extreme->states = aggregate_grow_array(aggregate, extreme->states, old_capacity,
										   sizeof(NumericState));
	for (uint32 group = old_capacity; group < aggregate->capacity; group++)
		extreme->states[group].scale = STATE_EMPTY;
}

/* ---- comparison ------------------------------------------------------------------------------ */

/* mantissa * 10^more; false if that passes int128. */
static bool
raise_scale(int128 *mantissa, int32 more)
{
	if (*mantissa == 0)
		return true;
	for (; more > 0; more--)
	{
		if (__builtin_mul_overflow(*mantissa, (int128) 10, mantissa))
			return false;
	}
	return true;
}

static Datum
get_datum(const NumericState *state)
{
	return state->scale == STATE_DATUM ? state->datum
									   : numeric_from_scaled(state->mantissa, state->scale);
}

static void
free_datum(const NumericState *state, Datum datum)
{
	if (state->scale != STATE_DATUM)
		pfree(DatumGetPointer(datum));
}

/* As numeric_cmp(). */
static int
compare_states(const NumericState *a, const NumericState *b)
{
	Datum x_datum;
	Datum y_datum;
	int order;

	if (a->scale >= 0 && b->scale >= 0)
	{
		int128 x = a->mantissa;
		int128 y = b->mantissa;

		if (raise_scale(&x, b->scale - a->scale) && raise_scale(&y, a->scale - b->scale))
			return (x > y) - (x < y);
	}
	x_datum = get_datum(a);
	y_datum = get_datum(b);
	order = DatumGetInt32(DirectFunctionCall2(numeric_cmp, x_datum, y_datum));
	free_datum(a, x_datum);
	free_datum(b, y_datum);
	return order;
}

/* The value takes the place of the state where core's function would return it. */
static void
add_state(NumericExtreme *extreme, NumericState *state, const NumericState *value)
{
	if (state->scale != STATE_EMPTY)
	{
		int order = compare_states(state, value);

		if (order != 0 && is_max(&extreme->base) == (order > 0))
			return;
	}
	if (state->scale == STATE_DATUM)
		pfree(DatumGetPointer(state->datum));
	/* lest an error leaves the freed one */
	state->scale = STATE_EMPTY;
	state->mantissa = value->mantissa;
	if (value->scale == STATE_DATUM)
	{
		MemoryContext old = MemoryContextSwitchTo(extreme->base.states);

		state->datum = NumericGetDatum(DatumGetNumericCopy(value->datum));
		MemoryContextSwitchTo(old);
	}
	state->scale = value->scale;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Rows of any form, one by one. */
static void
add_singly(NumericExtreme *extreme, const Vector *vector, const VectorRows *rows)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "values of an aggregate",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);

	for (uint32 i = 0; i < rows->nselected; i++)
	{
		NumericState value = {0};
		bool isnull;

		if (!vector_scaled(vector, rows->selection[i], &value.mantissa, &value.scale))
		{
			value.scale = STATE_DATUM;
			value.datum = vector_datum(vector, rows->selection[i], &isnull);
		}
		add_state(extreme, &extreme->states[rows_group(rows, i)], &value);
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

/* The extreme of the rows' mantissas. */
static int128
choose_of_rows(const Vector *vector, const VectorRows *rows, bool max)
{
	int128 best;

	if (vector->form == VECTOR_INT)
		return int_fold_rows(max ? FOLD_MAX : FOLD_MIN, vector->ints, rows);
	best = vector->wides[rows->selection[0]];
	for (uint32 i = 1; i < rows->nselected; i++)
	{
		int128 value = vector->wides[rows->selection[i]];

		if (max ? value > best : value < best)
			best = value;
	}
	return best;
}

/* Adds a mantissa to a group's state. */
static inline void
add_mantissa(NumericExtreme *extreme, uint32 group, int128 mantissa, int32 scale, bool max)
{
	NumericState *state = &extreme->states[group];

	if (likely(state->scale == scale))
	{
		if (max ? mantissa > state->mantissa : mantissa < state->mantissa)
			state->mantissa = mantissa;
	}
	else
	{
		NumericState value = {mantissa, (Datum) 0, scale};

		add_state(extreme, state, &value);
	}
}

static inline void
add_mantissas(NumericExtreme *extreme, const Vector *vector, const VectorRows *rows, bool max)
{
	int32 scale = vector->scale;

	if (rows->groups == NULL)
		add_mantissa(extreme, 0, choose_of_rows(vector, rows, max), scale, max);
	else if (vector->form == VECTOR_INT)
	{
		for (uint32 i = 0; i < rows->nselected; i++)
			add_mantissa(extreme, rows->groups[i], vector->ints[rows->selection[i]], scale, max);
	}
	else
	{
		for (uint32 i = 0; i < rows->nselected; i++)
			add_mantissa(extreme, rows->groups[i], vector->wides[rows->selection[i]], scale, max);
	}
}

static void
advance_states(VectorAggregate *aggregate, Vector *const *arguments, VectorRows *rows)
{
	NumericExtreme *extreme = (NumericExtreme *) aggregate;
	const Vector *vector = arguments[0];
	RowsBuffer present;
	RowsBuffer buffer;

	rows = rows_without(rows, vector->nulls, &present);
	if (rows->nselected == 0)
		return;
	/* with several scales among them, the order of the rows may have a say */
	if ((vector->form != VECTOR_INT && vector->form != VECTOR_WIDE) || vector->scale < 0 ||
		rows_without(rows, vector->exceptions, &buffer) != rows ||
		rows_without(rows, vector->padded, &buffer) != rows)
		add_singly(extreme, vector, rows);
	else if (is_max(aggregate))
		add_mantissas(extreme, vector, rows, true);
	else
		add_mantissas(extreme, vector, rows, false);
}

static Datum
get_state(VectorAggregate *aggregate, uint32 group, bool *isnull)
{
	const NumericState *state = &((NumericExtreme *) aggregate)->states[group];

	*isnull = state->scale == STATE_EMPTY;
	if (*isnull)
		return (Datum) 0;
	if (state->scale == STATE_DATUM)
		return NumericGetDatum(DatumGetNumericCopy(state->datum));
	return get_datum(state);
}

static void
reset_states(VectorAggregate *aggregate)
{
	((NumericExtreme *) aggregate)->states = NULL;
}

const AggregateKernel numeric_extreme_kernel = {sizeof(NumericExtreme), NULL,	   grow_states,
												advance_states,			get_state, reset_states};
