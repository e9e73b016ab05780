/*
 * vector_aggregate_rows.c
 *		Which rows an aggregate takes, and count(), which needs nothing else.
 *
 * A kernel's loops know no NULLs: rows with NULL (which all aggregates with a kernel skip) are
 * taken out of the selection before, and so are the exceptions of numeric vectors, which
 * go a slower way one by one.
 */
#include "compat.h"

#include "utils/memutils.h"

#include "exec/states/vector_aggregate_internal.h"

#include "store/codec/numeric_codec.h"

void *
aggregate_grow_array(const VectorAggregate *aggregate, void *array, uint32 old_capacity,
					 Size element)
{
	Size old_size = array != NULL ? old_capacity * element : 0;
	Size size = aggregate->capacity * element;
	char *larger = MemoryContextAllocHuge(aggregate->states, size);

	if (array != NULL)
	{
		memcpy(larger, array, old_size);
		pfree(array);
	}
	memset(larger + old_size, 0, size - old_size);
	return larger;
}

/* ---- rows ---------------------------------------------------------------------------------- */

static bool
has_bits(const uint64 *bits, uint32 nrows)
{
	uint64 any = 0;

	for (uint32 word = 0; word < nrows / 64; word++)
		any |= bits[word];
	if (nrows % 64 != 0)
		any |= bits[nrows / 64] & (~UINT64CONST(0) >> (64 - nrows % 64));
	return any != 0;
}

/* The positions of a word's bits, in a batch of which all rows are selected. */
static uint32
list_bits(uint64 word, uint32 first, uint16 *selection)
{
	uint32 n = 0;

	if (word == ~UINT64CONST(0))
	{
		for (uint32 i = 0; i < 64; i++)
			selection[i] = (uint16) (first + i);
		return 64;
	}
	for (; word != 0; word &= word - 1)
		selection[n++] = (uint16) (first + __builtin_ctzll(word));
	return n;
}

static uint32
choose_of_all(const VectorRows *rows, const uint64 *bits, uint64 flip, RowsBuffer *into)
{
	uint32 n = 0;

	for (uint32 first = 0; first < rows->nrows; first += 64)
	{
		uint64 word = bits[first / 64] ^ flip;

		if (rows->nrows - first < 64)
			word &= ~UINT64CONST(0) >> (64 - (rows->nrows - first));
		n += list_bits(word, first, into->selection + n);
	}
	if (rows->groups != NULL)
	{
		for (uint32 i = 0; i < n; i++)
			into->groups[i] = rows->groups[into->selection[i]];
	}
	return n;
}

static uint32
choose_of_selected(const VectorRows *rows, const uint64 *bits, uint64 flip, RowsBuffer *into)
{
	uint32 n = 0;

	for (uint32 i = 0; i < rows->nselected; i++)
	{
		uint32 row = rows->selection[i];

		into->selection[n] = (uint16) row;
		if (rows->groups != NULL)
			into->groups[n] = rows->groups[i];
		n += ((bits[row / 64] ^ flip) >> (row % 64)) & 1;
	}
	return n;
}

VectorRows *
rows_choose(VectorRows *rows, const uint64 *bits, bool keep, RowsBuffer *into)
{
	uint64 flip = keep ? 0 : ~UINT64CONST(0);
	uint32 n;

	if (!keep && !has_bits(bits, rows->nrows))
		return rows;
	if (rows_are_all(rows))
		n = choose_of_all(rows, bits, flip, into);
	else
		n = choose_of_selected(rows, bits, flip, into);
	if (n == rows->nselected)
		return rows;
	vector_rows_init(&into->rows, rows->nrows, into->selection, n,
					 rows->groups != NULL ? into->groups : NULL, rows->ngroups);
	return &into->rows;
}

/* Neighbours are often of one group: several counters keep an addition from waiting for the last. */
static void
count_rows(VectorRows *rows)
{
	uint32 copies[4][VECTOR_FEW_GROUPS];
	const uint32 *groups = rows->groups;
	uint32 i = 0;

	for (int copy = 0; copy < 4; copy++)
		memset(copies[copy], 0, sizeof(uint32) * rows->ngroups);
	for (; i + 4 <= rows->nselected; i += 4)
	{
		copies[0][groups[i]]++;
		copies[1][groups[i + 1]]++;
		copies[2][groups[i + 2]]++;
		copies[3][groups[i + 3]]++;
	}
	for (; i < rows->nselected; i++)
		copies[0][groups[i]]++;
	for (uint32 group = 0; group < rows->ngroups; group++)
		rows->counts[group] = copies[0][group] + copies[1][group] + copies[2][group] +
							  copies[3][group];
}

const uint32 *
rows_counts(VectorRows *rows)
{
	Assert(rows_have_few_groups(rows));
	if (!rows->counted)
	{
		if (rows->groups != NULL)
			count_rows(rows);
		else
		{
			memset(rows->counts, 0, sizeof(rows->counts));
			rows->counts[0] = rows->nselected;
		}
		rows->counted = true;
	}
	return rows->counts;
}

void
group_marks_add(GroupMarks *marks, VectorRows *rows)
{
	bool *marked = marks->marked;
	uint32 nmarked = marks->nmarked;

	/* soon every group had a value */
	if (nmarked == rows->ngroups || rows->nselected == 0)
		return;
	if (rows_have_few_groups(rows))
	{
		const uint32 *counts = rows_counts(rows);

		for (uint32 group = 0; group < rows->ngroups; group++)
		{
			nmarked += counts[group] > 0 && !marked[group];
			marked[group] |= counts[group] > 0;
		}
	}
	else
	{
		for (uint32 i = 0; i < rows->nselected; i++)
		{
			uint32 group = rows_group(rows, i);

			nmarked += !marked[group];
			marked[group] = true;
		}
	}
	marks->nmarked = nmarked;
}

/* ---- vectors ------------------------------------------------------------------------------- */

Vector *
vector_as_ints(Vector *vector, const VectorRows *rows, Vector *made, int64 *values)
{
	if (vector->form == VECTOR_INT)
		return vector;
	Assert(vector->form == VECTOR_DATUM);
	for (uint32 i = 0; i < rows->nselected; i++)
	{
		uint32 row = rows->selection[i];

		values[row] = column_type_to_int(vector->type, vector->datums[row]);
	}
	*made = *vector;
	made->form = VECTOR_INT;
	/* the rows between are undefined, so that vector_bits() must not look */
	made->bits = 8 * vector->type->length - 1;
	made->ints = values;
	return made;
}

Vector *
vector_as_floats(Vector *vector, const VectorRows *rows, Vector *made, double *values)
{
	if (vector->form == VECTOR_FLOAT)
		return vector;
	Assert(vector->form == VECTOR_DATUM);
	for (uint32 i = 0; i < rows->nselected; i++)
	{
		uint32 row = rows->selection[i];
		Datum datum = vector->datums[row];

		values[row] = vector->type->length == sizeof(float4) ? DatumGetFloat4(datum)
															 : DatumGetFloat8(datum);
	}
	*made = *vector;
	made->form = VECTOR_FLOAT;
	made->floats = values;
	return made;
}

bool
vector_scaled(const Vector *vector, uint32 row, int128 *mantissa, int32 *scale)
{
	const char *bytes;
	uint32 length;

	if (vector->form == VECTOR_DATUM)
	{
		struct varlena *value = PG_DETOAST_DATUM_PACKED(vector->datums[row]);

		bytes = VARDATA_ANY(value);
		length = VARSIZE_ANY_EXHDR(value);
	}
	else if ((vector->form == VECTOR_INT || vector->form == VECTOR_WIDE) &&
			 !vector_bit(vector->exceptions, row))
	{
		*mantissa = vector_shown(vector, row, scale);
		*scale = Max(*scale, 0);
		return true;
	}
	else
		bytes = vector_bytes(vector, row, &length);
	return numeric_to_scaled(bytes, length, mantissa, scale);
}

/* ---- count(*), count(x), regr_count(y, x) ---------------------------------------------------- */

typedef struct CountAggregate
{
	VectorAggregate base;
	int64 *counts;
} CountAggregate;

static void
grow_counts(VectorAggregate *aggregate, uint32 old_capacity)
{
	CountAggregate *count = (CountAggregate *) aggregate;

	count->counts = aggregate_grow_array(aggregate, count->counts, old_capacity, sizeof(int64));
}

static void
advance_counts(VectorAggregate *aggregate, Vector *const *arguments, VectorRows *rows)
{
	CountAggregate *count = (CountAggregate *) aggregate;
	int narguments = list_length(aggregate->aggref->args);
	RowsBuffer buffers[2];

	Assert(narguments <= lengthof(buffers));
	for (int i = 0; i < narguments; i++)
		rows = rows_without(rows, arguments[i]->nulls, &buffers[i]);

	if (rows->groups == NULL)
		count->counts[0] += rows->nselected;
	else if (rows_have_few_groups(rows))
	{
		const uint32 *counts = rows_counts(rows);

		for (uint32 group = 0; group < rows->ngroups; group++)
			count->counts[group] += counts[group];
	}
	else
	{
		for (uint32 i = 0; i < rows->nselected; i++)
			count->counts[rows->groups[i]]++;
	}
}

static Datum
get_count(VectorAggregate *aggregate, uint32 group, bool *isnull)
{
	*isnull = false;
	return Int64GetDatum(((CountAggregate *) aggregate)->counts[group]);
}

static void
reset_counts(VectorAggregate *aggregate)
{
	((CountAggregate *) aggregate)->counts = NULL;
}

static void
add_count(VectorAggregate *aggregate, const AggregateTotal *total, uint64 nnulls)
{
	((CountAggregate *) aggregate)->counts[0] += total->count;
}

const AggregateKernel count_kernel = {
	sizeof(CountAggregate), NULL, grow_counts, advance_counts, get_count,
	reset_counts,			NULL, NULL,		   add_count};
