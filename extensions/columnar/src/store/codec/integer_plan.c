/*
 * integer_plan.c
 *		Which encoding makes a block of integers smallest: the decision, without the writing.
 *
 * One pass over the block finds its smallest and largest value and step and the
 * number of runs; these give the sizes of constant, bitmap, for and delta.  The
 * others are begun on a sample, or left as soon as they cannot win any more: the
 * common divisor is 1 after a few values, the dictionary is full, too many values
 * of the sample need patches.  A block of noise so costs little more than "for".
 *
 * Sizes are exact, including those of blocks inside of the block (rle, pfor), which
 * are planned by the same function.
 */
#include "store/codec/integer_plan.h"

#include "store/codec/bitpack.h"

#include "port/pg_bitutils.h"

/* Values that decide whether pfor is worth a closer look. */
#define SAMPLE_ROWS 128
/* Runs must be fewer than this many quarters of the values for rle to be tried. */
#define RLE_QUARTERS 3

/* What one pass over a block tells. */
typedef struct Shape
{
	int64 min;
	int64 max;
	int64 min_step; /* value - previous, wrapped to int64 */
	int64 max_step;
	uint32 nruns;
} Shape;

int
integer_plan_count_bytes(int64 number)
{
	uint64 magnitude = number < 0 ? ~(uint64) number : (uint64) number;

	return number == 0 ? 0 : bitpack_width(magnitude) / 8 + 1;
}

/* ---- looking at a block ------------------------------------------------------------------------ */

static pg_attribute_always_inline void
measure_values(const int64 *values, uint32 nvalues, Shape *shape)
{
	int64 min = values[0];
	int64 max = values[0];
	int64 min_step = PG_INT64_MAX;
	int64 max_step = PG_INT64_MIN;
	uint64 nchanges = 0;

	for (uint32 i = 0; i < nvalues; i++)
	{
		min = Min(min, values[i]);
		max = Max(max, values[i]);
	}
	for (uint32 i = 1; i < nvalues; i++)
	{
		int64 step = integer_subtract(values[i], values[i - 1]);

		min_step = Min(min_step, step);
		max_step = Max(max_step, step);
		nchanges += step != 0;
	}
	*shape = (Shape){min, max, min_step, max_step, nchanges + 1};
}

FORMAT_VECTORISED static void
measure_block(const int64 *values, uint32 nvalues, Shape *shape)
{
	/* a number of rounds known to the compiler gives better code */
	if (nvalues == BLOCK_ROWS)
		measure_values(values, BLOCK_ROWS, shape);
	else
		measure_values(values, nvalues, shape);
}

/* The plan becomes this encoding if that is smaller. */
static void
offer_plan(IntegerPlan *plan, IntegerEncoding encoding, uint64 size, int64 base, int64 step,
		   int width)
{
	if (size < plan->size)
		*plan = (IntegerPlan){encoding, size, base, step, width};
}

static void
plan_delta(const Shape *shape, const int64 *values, uint32 nvalues, IntegerPlan *plan)
{
	int width = bitpack_width(integer_subtract(shape->max_step, shape->min_step));
	uint64 size = 3 + integer_plan_count_bytes(values[0]) +
				  integer_plan_count_bytes(shape->min_step) + bitpack_size(nvalues, width);

	offer_plan(plan, INTEGER_DELTA, size, values[0], shape->min_step, width);
}

/* ---- scale ------------------------------------------------------------------------------------- */

static uint64
find_common_divisor(uint64 a, uint64 b)
{
	while (b != 0)
	{
		uint64 rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

IntegerDivisor
integer_divisor_make(uint64 value)
{
	int zeros = pg_rightmost_one_pos64(value);
	uint64 odd = value >> zeros;
	uint64 inverse = odd * 3 ^ 2; /* right in 5 bits; each of Newton's steps doubles them */

	for (int bits = 5; bits < 64; bits *= 2)
		inverse *= 2 - odd * inverse;
	return (IntegerDivisor){value, inverse, PG_UINT64_MAX / value, zeros};
}

/* The greatest common divisor of all value - min; 1 soon for most blocks. */
static uint64
find_divisor(const int64 *values, uint32 nvalues, int64 min)
{
	IntegerDivisor divisor = {0};

	for (uint32 i = 0; i < nvalues; i++)
	{
		uint64 number = integer_subtract(values[i], min);

		/* as long as there is no divisor, 0 is the largest quotient and only 0 passes */
		if (divisor.value == 0 ? number == 0
							   : integer_divisor_divide(number, &divisor) <= divisor.largest)
			continue;
		divisor = integer_divisor_make(find_common_divisor(number, divisor.value));
		if (divisor.value == 1)
			break;
	}
	return divisor.value;
}

static void
plan_scale(const Shape *shape, const int64 *values, uint32 nvalues, IntegerPlan *plan)
{
	uint64 divisor = find_divisor(values, nvalues, shape->min);
	int width;
	uint64 size;

	if (divisor <= 1)
		return;
	width = bitpack_width(integer_subtract(shape->max, shape->min) / divisor);
	size = 3 + integer_plan_count_bytes(shape->min) + integer_plan_count_bytes(divisor) +
		   bitpack_size(nvalues, width);
	offer_plan(plan, INTEGER_SCALE, size, shape->min, divisor, width);
}

/* ---- pfor -------------------------------------------------------------------------------------- */

/* How many of every stride-th value need 0, 1 ... 64 bits as distance from min, and from max. */
static void
count_widths(const Shape *shape, const int64 *values, uint32 nvalues, uint32 stride,
			 uint16 *from_min, uint16 *from_max)
{
	memset(from_min, 0, 65 * sizeof(uint16));
	memset(from_max, 0, 65 * sizeof(uint16));
	for (uint32 i = 0; i < nvalues; i += stride)
	{
		from_min[bitpack_width(integer_subtract(values[i], shape->min))]++;
		from_max[bitpack_width(integer_subtract(shape->max, values[i]))]++;
	}
}

/*
 * The width with which a block whose values need so many bits is smallest, and
 * that size in bits: *bits, unchanged when no width is better than that.
 */
static int
choose_patch_width(const uint16 *counts, uint32 nvalues, int position_width, int full_width,
				   uint64 *bits)
{
	int best = full_width;
	uint64 npatches = 0;

	for (int width = full_width - 1; width >= 0; width--)
	{
		uint64 size;

		npatches += counts[width + 1];
		size = (uint64) nvalues * width + npatches * (position_width + full_width - width);
		if (size < *bits)
		{
			*bits = size;
			best = width;
		}
	}
	return best;
}

uint32
integer_plan_collect_patches(const int64 *values, uint32 nvalues, int64 base, int width,
							 int64 *positions, int64 *tops)
{
	uint32 npatches = 0;

	for (uint32 i = 0; i < nvalues; i++)
	{
		int64 top = (int64) integer_subtract(values[i], base) >> width;

		positions[npatches] = i;
		tops[npatches] = top;
		npatches += top != 0;
	}
	return npatches;
}

/*
 * Outliers may lie above (base is the smallest value) or below the others (base
 * is so that the largest value just fits).  The sample tells whether and which.
 */
static void
plan_pfor(const Shape *shape, const int64 *values, uint32 nvalues, IntegerPlan *plan)
{
	uint16 counts[2][65];
	int64 positions[BLOCK_ROWS];
	int64 tops[BLOCK_ROWS];
	int full_width = bitpack_width(integer_subtract(shape->max, shape->min));
	int position_width = bitpack_width(nvalues - 1);
	uint32 stride = Max(nvalues / SAMPLE_ROWS, 1);
	uint32 nsample = (nvalues + stride - 1) / stride;
	uint64 bits[2] = {(uint64) nsample * full_width, (uint64) nsample * full_width};
	bool low;
	int width;
	int64 base;
	uint32 npatches;
	IntegerPlan position_plan;
	IntegerPlan top_plan;

	count_widths(shape, values, nvalues, stride, counts[0], counts[1]);
	for (int i = 0; i < 2; i++)
		choose_patch_width(counts[i], nsample, position_width, full_width, &bits[i]);
	if (Min(bits[0], bits[1]) >= (uint64) nsample * full_width)
		return;

	low = bits[1] < bits[0];
	bits[low] = plan->size * 8;
	if (stride > 1)
		count_widths(shape, values, nvalues, 1, counts[0], counts[1]);
	width = choose_patch_width(counts[low], nvalues, position_width, full_width, &bits[low]);
	if (width == full_width)
		return;

	base = low ? integer_subtract(shape->max, (int64) ((UINT64CONST(1) << width) - 1)) : shape->min;
	npatches = integer_plan_collect_patches(values, nvalues, base, width, positions, tops);
	/* all but the largest value may lie below; no patch at all cannot be */
	if (npatches == 0 || npatches >= nvalues)
		return;
	integer_plan_choose(positions, npatches, true, &position_plan);
	integer_plan_choose(tops, npatches, true, &top_plan);
	offer_plan(plan, INTEGER_PFOR,
			   4 + integer_plan_count_bytes(base) + bitpack_size(nvalues, width) +
				   position_plan.size + top_plan.size,
			   base, 0, width);
}

/* ---- rle --------------------------------------------------------------------------------------- */

uint32
integer_plan_collect_runs(const int64 *values, uint32 nvalues, int64 *run_values,
						  int64 *run_lengths)
{
	uint32 nruns = 0;
	uint32 start = 0;

	for (uint32 i = 1; i <= nvalues; i++)
	{
		if (i < nvalues && values[i] == values[start])
			continue;
		run_values[nruns] = values[start];
		run_lengths[nruns] = i - start - 1;
		nruns++;
		start = i;
	}
	return nruns;
}

static void
plan_rle(const int64 *values, uint32 nvalues, IntegerPlan *plan)
{
	int64 run_values[BLOCK_ROWS];
	int64 run_lengths[BLOCK_ROWS];
	uint32 nruns = integer_plan_collect_runs(values, nvalues, run_values, run_lengths);
	IntegerPlan value_plan;
	IntegerPlan length_plan;

	integer_plan_choose(run_values, nruns, true, &value_plan);
	integer_plan_choose(run_lengths, nruns, true, &length_plan);
	offer_plan(plan, INTEGER_RLE, 3 + value_plan.size + length_plan.size, 0, 0, 0);
}

/* ---- dictionary -------------------------------------------------------------------------------- */

void
integer_table_init(IntegerTable *table)
{
	table->nentries = 0;
	memset(table->slots, 0, sizeof(table->slots));
}

static uint64
compute_dictionary_size(uint32 nentries, uint32 nvalues, int64 base, int width)
{
	return 3 + integer_plan_count_bytes(base) + bitpack_size(nentries, width) +
		   bitpack_size(nvalues, bitpack_width(nentries - 1));
}

/* The most entries with which a dictionary is still smaller than `size`; 0 if none is. */
static uint32
find_dictionary_limit(uint32 nvalues, int64 base, int width, uint64 size)
{
	for (int code_width = 8; code_width >= 1; code_width--)
	{
		uint32 fewest = (1 << (code_width - 1)) + 1;
		uint64 without_entries = 3 + integer_plan_count_bytes(base) +
								 bitpack_size(nvalues, code_width);

		if (compute_dictionary_size(fewest, nvalues, base, width) < size)
			return Min(1 << code_width, (size - 1 - without_entries) * 8 / width);
	}
	return 0;
}

static void
plan_dictionary(const Shape *shape, const int64 *values, uint32 nvalues, IntegerPlan *plan)
{
	IntegerTable table;
	int width = bitpack_width(integer_subtract(shape->max, shape->min));
	uint32 limit = find_dictionary_limit(nvalues, shape->min, width, plan->size);

	if (limit == 0)
		return;
	integer_table_init(&table);
	for (uint32 i = 0; i < nvalues; i++)
		if (integer_table_find(&table, values[i], limit) == limit)
			return;
	offer_plan(plan, INTEGER_DICTIONARY,
			   compute_dictionary_size(table.nentries, nvalues, shape->min, width), shape->min, 0,
			   width);
}

/* ---- the plan ---------------------------------------------------------------------------------- */

/*
 * Chooses the smallest encoding.  Those that decode faster come first, and a later
 * one must be smaller, not as small.
 */
void
integer_plan_choose(const int64 *values, uint32 nvalues, bool nested, IntegerPlan *plan)
{
	Shape shape;
	int width;

	measure_block(values, nvalues, &shape);
	*plan = (IntegerPlan){.size = PG_UINT64_MAX};
	if (shape.nruns == 1)
	{
		offer_plan(plan, INTEGER_CONSTANT, 1 + integer_plan_count_bytes(values[0]), values[0], 0,
				   0);
		return;
	}

	width = bitpack_width(integer_subtract(shape.max, shape.min));
	if (shape.min == 0 && shape.max == 1)
		offer_plan(plan, INTEGER_BITMAP, 1 + bitpack_size(nvalues, 1), 0, 0, 1);
	offer_plan(plan, INTEGER_FOR,
			   2 + integer_plan_count_bytes(shape.min) + bitpack_size(nvalues, width), shape.min, 0,
			   width);
	if (width > 1)
		plan_scale(&shape, values, nvalues, plan);
	plan_delta(&shape, values, nvalues, plan);
	if (!nested)
		plan_pfor(&shape, values, nvalues, plan);
	if (!nested && (uint64) shape.nruns * 4 <= (uint64) nvalues * RLE_QUARTERS)
		plan_rle(values, nvalues, plan);
	plan_dictionary(&shape, values, nvalues, plan);
}
