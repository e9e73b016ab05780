/*
 * vector_aggregate_sum.c
 *		sum, avg, variance and stddev of integers, numerics and money.
 *
 * All of these are a count and a sum of integers, some with a sum of squares.  Sums are kept
 * in 64 bits as long as the sizes of the values that were added (vector_bits()) prove that
 * none has overflowed, and are moved to 128 bits when that proof ends.
 *
 * Numerics are sums of mantissas, one set of sums for each scale that appears ("level"):
 * nothing is rescaled, and the levels tell how many values had the largest display scale,
 * which core's state holds.  Padded values (see vector.h) are added to the sum of their mantissas'
 * level, and counted in that of the scale they are shown with.  What has no mantissa or does not
 * fit (NaN, infinities, numbers of more than 38 digits or so, too many scales) goes to a state of
 * core's transition function, and both are combined by core's functions when the state is asked
 * for (vector_aggregate_sum_state.c).
 *
 * Limits: a sum in 64 bits is at most SumLevel.bound; one in 128 bits at most 2^126, so
 * that both together fit an int128.
 */
#include "compat.h"

#include "catalog/pg_type.h"
#include "common/int.h"
#include "port/pg_bitutils.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"

#include "exec/states/vector_aggregate_sum.h"

/* Values of more bits are added in 128 bits: moving the sums every other batch is dearer. */
#define NARROW_BITS 44

/* |sum| in 128 bits of values that come as int128 */
#define WIDE_LIMIT ((int128) 1 << 126)

/* Squares are added in 128 bits while their sum is known to be below 2^127. */
#define SQUARES_LIMIT ((uint128) 1 << 127)

/* ---- levels -------------------------------------------------------------------------------- */

/* Is the state internal to core: are there NULL values that make one? */
static bool
has_internal_state(const SumAggregate *sum)
{
	return sum->base.variant >= SUM_INT128;
}

static void *
make_array(const SumAggregate *sum, Size element)
{
	return aggregate_grow_array(&sum->base, NULL, 0, element);
}

/* The level of a scale; NULL if it would be one too many. */
static SumLevel *
find_level(SumAggregate *sum, int32 scale)
{
	SumLevel *level;

	for (int i = 0; i < sum->nlevels; i++)
	{
		if (sum->levels[i].scale == scale)
			return &sum->levels[i];
	}
	if (sum->nlevels == LEVELS_MAX)
		return NULL;
	level = &sum->levels[sum->nlevels++];
	memset(level, 0, sizeof(SumLevel));
	level->scale = scale;
	level->narrow = make_array(sum, sizeof(NarrowSum));
	if (sum_has_squares(sum))
		level->squares = make_array(sum, sizeof(int128));
	return level;
}

static void
grow_sums(VectorAggregate *aggregate, uint32 old_capacity)
{
	SumAggregate *sum = (SumAggregate *) aggregate;

	for (int i = 0; i < sum->nlevels; i++)
	{
		SumLevel *level = &sum->levels[i];

		level->narrow = aggregate_grow_array(aggregate, level->narrow, old_capacity,
											 sizeof(NarrowSum));
		if (level->wide != NULL)
			level->wide = aggregate_grow_array(aggregate, level->wide, old_capacity,
											   sizeof(int128));
		if (level->squares != NULL)
			level->squares = aggregate_grow_array(aggregate, level->squares, old_capacity,
												  sizeof(int128));
	}
	if (sum->seen != NULL)
		sum->seen = aggregate_grow_array(aggregate, sum->seen, old_capacity, sizeof(bool));
}

static void
reset_sums(VectorAggregate *aggregate)
{
	SumAggregate *sum = (SumAggregate *) aggregate;

	sum->nlevels = 0;
	sum->seen = NULL;
}

static int128 *
get_wide(SumAggregate *sum, SumLevel *level)
{
	if (level->wide == NULL)
		level->wide = make_array(sum, sizeof(int128));
	return level->wide;
}

/* Moves the sums to 128 bits. */
static void
widen_sums(SumAggregate *sum, SumLevel *level)
{
	int128 *wide = get_wide(sum, level);

	for (uint32 group = 0; group < sum->base.ngroups; group++)
	{
		wide[group] += level->narrow[group].sum;
		level->narrow[group].sum = 0;
	}
	level->bound = 0;
}

/* ---- sums of int64 --------------------------------------------------------------------------- */

VECTOR_KERNEL static int64
add_block(const int64 *values)
{
	int64 total = 0;

	for (uint32 row = 0; row < BLOCK_ROWS; row++)
		total += values[row];
	return total;
}

static int64
add_rows(const int64 *values, const VectorRows *rows)
{
	const uint16 *selection = rows->selection;
	uint32 nselected = rows->nselected;
	int64 totals[4] = {0};
	uint32 i = 0;

	if (nselected == BLOCK_ROWS)
		return add_block(values);
	if (rows_are_all(rows))
	{
		for (; i < nselected; i++)
			totals[i & 1] += values[i];
		return totals[0] + totals[1];
	}
	for (; i + 4 <= nselected; i += 4)
	{
		for (int j = 0; j < 4; j++)
			totals[j] += values[selection[i + j]];
	}
	for (; i < nselected; i++)
		totals[0] += values[selection[i]];
	return totals[0] + totals[1] + totals[2] + totals[3];
}

/*
 * With few groups, neighbours are often of one: four sums for each keep an addition from
 * waiting for the one before.  (`all`: a constant, so that there are two loops.)
 */
static inline void
add_to_copies(int64 copies[4][VECTOR_FEW_GROUPS], const int64 *values, const VectorRows *rows,
			  bool all)
{
	const uint16 *selection = rows->selection;
	const uint32 *groups = rows->groups;
	uint32 nselected = rows->nselected;
	uint32 i = 0;

	for (; i + 4 <= nselected; i += 4)
	{
		copies[0][groups[i]] += values[all ? i : selection[i]];
		copies[1][groups[i + 1]] += values[all ? i + 1 : selection[i + 1]];
		copies[2][groups[i + 2]] += values[all ? i + 2 : selection[i + 2]];
		copies[3][groups[i + 3]] += values[all ? i + 3 : selection[i + 3]];
	}
	for (; i < nselected; i++)
		copies[0][groups[i]] += values[all ? i : selection[i]];
}

static void
add_few_groups(NarrowSum *narrow, const int64 *values, VectorRows *rows)
{
	int64 copies[4][VECTOR_FEW_GROUPS];
	const uint32 *counts = rows_counts(rows);

	for (int copy = 0; copy < 4; copy++)
		memset(copies[copy], 0, sizeof(int64) * rows->ngroups);
	if (rows_are_all(rows))
		add_to_copies(copies, values, rows, true);
	else
		add_to_copies(copies, values, rows, false);
	for (uint32 group = 0; group < rows->ngroups; group++)
	{
		narrow[group].sum += copies[0][group] + copies[1][group] + copies[2][group] +
							 copies[3][group];
		narrow[group].count += counts[group];
	}
}

static void
add_narrow(NarrowSum *narrow, const Vector *vector, VectorRows *rows)
{
	const int64 *values = vector->ints;

	if (rows->groups == NULL)
	{
		narrow[0].sum += vector->constant ? values[rows->selection[0]] * rows->nselected
										  : add_rows(values, rows);
		narrow[0].count += rows->nselected;
	}
	else if (rows_have_few_groups(rows) && vector->constant)
	{
		const uint32 *counts = rows_counts(rows);
		int64 value = values[rows->selection[0]];

		for (uint32 group = 0; group < rows->ngroups; group++)
		{
			narrow[group].sum += value * counts[group];
			narrow[group].count += counts[group];
		}
	}
	else if (rows_have_few_groups(rows))
		add_few_groups(narrow, values, rows);
	else
	{
		for (uint32 i = 0; i < rows->nselected; i++)
		{
			NarrowSum *to = &narrow[rows->groups[i]];

			to->sum += values[rows->selection[i]];
			to->count++;
		}
	}
}

/* The same in 128 bits: 2^63 values of 63 bits are none too many. */
static void
add_wide(SumAggregate *sum, SumLevel *level, const int64 *values, const VectorRows *rows)
{
	int128 *wide = get_wide(sum, level);

	if (rows->groups == NULL)
	{
		int128 total = 0;

		for (uint32 i = 0; i < rows->nselected; i++)
			total += values[rows->selection[i]];
		wide[0] += total;
		level->narrow[0].count += rows->nselected;
		return;
	}
	for (uint32 i = 0; i < rows->nselected; i++)
	{
		uint32 group = rows->groups[i];

		wide[group] += values[rows->selection[i]];
		level->narrow[group].count++;
	}
}

static void
add_squares(SumLevel *level, const int64 *values, const VectorRows *rows)
{
	for (uint32 i = 0; i < rows->nselected; i++)
	{
		int64 value = values[rows->selection[i]];

		level->squares[rows_group(rows, i)] += (int128) value * value;
	}
}

/* May the squares of so many values of so many bits be added?  Then they are reckoned with. */
static bool
reserve_squares(SumLevel *level, int bits, uint32 nvalues)
{
	uint128 most;

	if (2 * bits > 110)
		return false;
	most = (uint128) nvalues << (2 * bits);
	if (level->squares_bound + most >= SQUARES_LIMIT)
		return false;
	level->squares_bound += most;
	return true;
}

/* ---- values that need core's state ------------------------------------------------------------ */

static void
advance_core(SumAggregate *sum, const Vector *vector, uint32 row, uint32 group)
{
	VectorAggregate *base = &sum->base;
	NullableDatum value;
	MemoryContext old;

	if (base->scalar == NULL)
	{
		base->scalar = scalar_states_create(base);
		scalar_states_resize(base->scalar, base->ngroups);
	}
	old = MemoryContextSwitchTo(scalar_states_row_context(base->scalar));
	value.value = vector_datum(vector, row, &value.isnull);
	scalar_states_advance(base->scalar, group, &value);
	MemoryContextReset(scalar_states_row_context(base->scalar));
	MemoryContextSwitchTo(old);
}

/* Adds one value of a level; false if it may not fit. */
static bool
add_mantissa(SumAggregate *sum, SumLevel *level, int128 mantissa, uint32 group)
{
	int128 *wide = get_wide(sum, level);
	int128 total;

	if (level->squares != NULL)
	{
		int bits = 0;

		if (mantissa < PG_INT64_MIN || mantissa > PG_INT64_MAX)
			return false;
		while (bits < 63 && (mantissa >= (int128) 1 << bits || mantissa < -((int128) 1 << bits)))
			bits++;
		if (!reserve_squares(level, bits, 1))
			return false;
	}
	if (__builtin_add_overflow(wide[group], mantissa, &total) || total > WIDE_LIMIT ||
		total < -WIDE_LIMIT)
		return false;
	wide[group] = total;
	level->narrow[group].count++;
	if (level->squares != NULL)
		level->squares[group] += mantissa * mantissa;
	return true;
}

/* Adds rows one by one, whatever their values are. */
static void
add_singly(SumAggregate *sum, const Vector *vector, const VectorRows *rows)
{
	MemoryContext old = CurrentMemoryContext;
	MemoryContext own = NULL;

	/* what is toasted leaves something behind */
	if (vector->form == VECTOR_DATUM)
	{
		own = AllocSetContextCreate(old, "values of an aggregate", ALLOCSET_SMALL_SIZES);
		MemoryContextSwitchTo(own);
	}
	for (uint32 i = 0; i < rows->nselected; i++)
	{
		uint32 row = rows->selection[i];
		uint32 group = rows_group(rows, i);
		SumLevel *level = NULL;
		int128 mantissa;
		int32 scale;

		if (vector_scaled(vector, row, &mantissa, &scale))
			level = find_level(sum, scale);
		if (level == NULL || !add_mantissa(sum, level, mantissa, group))
			advance_core(sum, vector, row, group);
	}
	MemoryContextSwitchTo(old);
	if (own != NULL)
		MemoryContextDelete(own);
}

/* The same of int128 mantissas, for sums alone. */
static void
add_mantissas(SumAggregate *sum, SumLevel *level, const Vector *vector, const VectorRows *rows)
{
	int128 *wide = get_wide(sum, level);

	for (uint32 i = 0; i < rows->nselected; i++)
	{
		uint32 row = rows->selection[i];
		uint32 group = rows_group(rows, i);
		int128 total;

		if (unlikely(__builtin_add_overflow(wide[group], vector->wides[row], &total) ||
					 total > WIDE_LIMIT || total < -WIDE_LIMIT))
		{
			advance_core(sum, vector, row, group);
			continue;
		}
		wide[group] = total;
		level->narrow[group].count++;
	}
}

/* ---- money ----------------------------------------------------------------------------------- */

/* Sums that may overflow: core's function says what happens then. */
static void
add_money_singly(SumLevel *level, const int64 *values, const VectorRows *rows)
{
	for (uint32 i = 0; i < rows->nselected; i++)
	{
		NarrowSum *to = &level->narrow[rows_group(rows, i)];
		int64 value = values[rows->selection[i]];
		int64 total;

		if (unlikely(pg_add_s64_overflow(to->sum, value, &total)))
			total = DatumGetInt64(
				DirectFunctionCall2(cash_pl, Int64GetDatum(to->sum), Int64GetDatum(value)));
		to->sum = total;
		to->count++;
	}
	/* nothing is known of the sums any more */
	level->bound = PG_INT64_MAX;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* How many of the rows have a bit, by group. */
static void
count_bits(const uint64 *bits, const VectorRows *rows, uint32 *counts)
{
	uint32 copies[4][VECTOR_FEW_GROUPS];
	uint32 i = 0;

	for (int copy = 0; copy < 4; copy++)
		memset(copies[copy], 0, sizeof(uint32) * rows->ngroups);
	for (; i + 4 <= rows->nselected; i += 4)
	{
		for (int copy = 0; copy < 4; copy++)
			copies[copy][rows->groups[i + copy]] += vector_bit(bits, rows->selection[i + copy]);
	}
	for (; i < rows->nselected; i++)
		copies[0][rows->groups[i]] += vector_bit(bits, rows->selection[i]);
	for (uint32 group = 0; group < rows->ngroups; group++)
		counts[group] = copies[0][group] + copies[1][group] + copies[2][group] + copies[3][group];
}

/* Values that were counted in one level are of another. */
static void
recount_padded(SumLevel *from, SumLevel *to, const uint64 *padded, const VectorRows *rows)
{
	if (rows->groups == NULL)
	{
		int64 count = 0;

		if (rows->nselected == BLOCK_ROWS)
			count = pg_popcount((const char *) padded, sizeof(uint64) * BLOCK_WORDS);
		else
		{
			for (uint32 i = 0; i < rows->nselected; i++)
				count += vector_bit(padded, rows->selection[i]);
		}
		from->narrow[0].count -= count;
		to->narrow[0].count += count;
		return;
	}
	if (rows_have_few_groups(rows))
	{
		uint32 counts[VECTOR_FEW_GROUPS];

		count_bits(padded, rows, counts);
		for (uint32 group = 0; group < rows->ngroups; group++)
		{
			from->narrow[group].count -= counts[group];
			to->narrow[group].count += counts[group];
		}
		return;
	}
	for (uint32 i = 0; i < rows->nselected; i++)
	{
		uint32 group = rows->groups[i];
		int64 count = vector_bit(padded, rows->selection[i]);

		from->narrow[group].count -= count;
		to->narrow[group].count += count;
	}
}

/* False if they were not added: their squares may not fit. */
static bool
add_ints(SumAggregate *sum, SumLevel *level, Vector *vector, VectorRows *rows)
{
	int bits = vector_bits(vector, rows->nrows);
	uint64 most;

	if (level->squares != NULL)
	{
		if (!reserve_squares(level, bits, rows->nselected))
			return false;
		add_squares(level, vector->ints, rows);
	}
	if (bits > NARROW_BITS)
	{
		if (sum->base.variant == SUM_MONEY)
			add_money_singly(level, vector->ints, rows);
		else
			add_wide(sum, level, vector->ints, rows);
		return true;
	}
	most = (uint64) rows->nselected << bits;
	if (level->bound + most > PG_INT64_MAX)
	{
		if (sum->base.variant == SUM_MONEY)
		{
			add_money_singly(level, vector->ints, rows);
			return true;
		}
		widen_sums(sum, level);
	}
	level->bound += most;
	add_narrow(level->narrow, vector, rows);
	return true;
}

/* Values that have one form and are no exceptions. */
static void
add_vector(SumAggregate *sum, Vector *vector, VectorRows *rows)
{
	SumLevel *level = NULL;
	SumLevel *padded = NULL;

	if (vector->form == VECTOR_INT || (vector->form == VECTOR_WIDE && !sum_has_squares(sum)))
		level = find_level(sum, Max(vector->scale, 0));
	if (level != NULL && vector->padded != NULL)
	{
		padded = find_level(sum, vector->padded_scale);
		if (padded == NULL || vector->form == VECTOR_WIDE)
			level = NULL;
	}

	if (level != NULL && vector->form == VECTOR_WIDE)
		add_mantissas(sum, level, vector, rows);
	else if (level == NULL || !add_ints(sum, level, vector, rows))
		add_singly(sum, vector, rows);
	else if (padded != NULL)
		recount_padded(level, padded, vector->padded, rows);
}

/* Rows with NULL make a state where the transition function is not strict. */
static void
see_nulls(SumAggregate *sum, const Vector *vector, VectorRows *rows)
{
	RowsBuffer buffer;

	if (!has_internal_state(sum))
		return;
	rows = rows_choose(rows, vector->nulls, true, &buffer);
	if (rows->nselected == 0)
		return;
	if (sum->seen == NULL)
		sum->seen = make_array(sum, sizeof(bool));
	for (uint32 i = 0; i < rows->nselected; i++)
		sum->seen[rows_group(rows, i)] = true;
}

static void
advance_sums(VectorAggregate *aggregate, Vector *const *arguments, VectorRows *rows)
{
	SumAggregate *sum = (SumAggregate *) aggregate;
	Vector *vector = arguments[0];
	bool is_numeric = vector->type->typid == NUMERICOID;
	RowsBuffer present;
	RowsBuffer scaled;
	Vector made;
	int64 values[BLOCK_ROWS];

	if (vector->nulls != NULL)
	{
		VectorRows *all = rows;

		rows = rows_without(rows, vector->nulls, &present);
		if (rows != all)
			see_nulls(sum, vector, all);
	}
	if (rows->nselected == 0)
		return;

	if (!is_numeric)
		vector = vector_as_ints(vector, rows, &made, values);
	else if (vector->exceptions != NULL &&
			 (vector->form == VECTOR_INT || vector->form == VECTOR_WIDE))
	{
		VectorRows *all = rows;

		rows = rows_without(rows, vector->exceptions, &scaled);
		if (rows != all)
		{
			RowsBuffer exceptions;

			add_singly(sum, vector, rows_choose(all, vector->exceptions, true, &exceptions));
		}
		if (rows->nselected == 0)
			return;
	}

	add_vector(sum, vector, rows);
}

/* ---- totals ---------------------------------------------------------------------------------- */

/* Is there a level for it, and room in the sum? */
static bool
fits_total(const VectorAggregate *aggregate, const AggregateTotal *total)
{
	const SumAggregate *sum = (const SumAggregate *) aggregate;
	const SumLevel *level = NULL;
	int128 wide;

	for (int i = 0; i < sum->nlevels; i++)
		if (sum->levels[i].scale == total->scale)
			level = &sum->levels[i];
	if (level == NULL && sum->nlevels == LEVELS_MAX)
		return false;
	wide = level != NULL && level->wide != NULL ? level->wide[0] : 0;
	return !__builtin_add_overflow(wide, total->mantissa, &wide) && wide <= WIDE_LIMIT &&
		   wide >= -WIDE_LIMIT;
}

static void
add_total(VectorAggregate *aggregate, const AggregateTotal *total, uint64 nnulls)
{
	SumAggregate *sum = (SumAggregate *) aggregate;

	if (nnulls > 0 && has_internal_state(sum))
	{
		if (sum->seen == NULL)
			sum->seen = make_array(sum, sizeof(bool));
		sum->seen[0] = true;
	}
	if (total->count > 0)
	{
		SumLevel *level = find_level(sum, total->scale);

		get_wide(sum, level)[0] += total->mantissa;
		level->narrow[0].count += total->count;
	}
}

const AggregateKernel sum_kernel = {
	sizeof(SumAggregate), NULL,		 grow_sums,	 advance_sums, sum_state,
	reset_sums,			  sum_total, fits_total, add_total};

/* ---- linear sums ------------------------------------------------------------------------------- */

VectorAggregate *
vector_aggregate_create_sum(PlanState *parent)
{
	return vector_aggregate_create_of(NULL, &sum_kernel, SUM_INT128, parent);
}

bool
vector_aggregate_derive(VectorAggregate *aggregate, const VectorAggregate *of, int64 factor,
						int64 offset)
{
	SumAggregate *sum = (SumAggregate *) aggregate;

	if (aggregate->kernel != &sum_kernel ||
		(aggregate->variant != SUM_INT64 && aggregate->variant != SUM_AVERAGE &&
		 aggregate->variant != SUM_INT128))
		return false;
	sum->of = (const SumAggregate *) of;
	sum->factor = factor;
	sum->offset = offset;
	return true;
}
