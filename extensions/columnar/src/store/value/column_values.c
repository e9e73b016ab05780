/*
 * column_values.c
 *		Gathering the values of one column, on the way of every row that is written.
 *
 * Appending must cost little next to COPY's parsing: a value by reference is
 * copied once, from where it lies, behind the values before it; only compressed,
 * external and expanded ones take a detour through a flat copy.
 *
 * Memory: all arrays lie in the context of column_values_init() and double when
 * full; they may pass 1 GB.  An append that fails (detoasting, memory) leaves the
 * values as they were.
 */
#include "compat.h"

#include "access/detoast.h"
#include "catalog/pg_type.h"
#include "utils/memutils.h"

#include "store/value/column_values.h"
#include "store/value/numeric_scaled.h"

#define FIRST_ROWS 64
#define FIRST_BYTES_PER_ROW 16

static void
set_capacity(ColumnValues *values, uint32 capacity)
{
	if (values->ints != NULL)
		values->ints = repalloc_huge(values->ints, sizeof(int64) * capacity);
	if (values->ends != NULL)
		values->ends = repalloc_huge(values->ends, sizeof(uint64) * capacity);
	if (values->nulls != NULL)
		values->nulls = repalloc_huge(values->nulls, sizeof(uint8) * capacity);
	values->capacity = capacity;
}

/* As ints, or as bytes. */
static void
init_with_capacity(ColumnValues *values, const ColumnType *type, bool as_ints, uint32 capacity,
				   uint64 nbytes)
{
	memset(values, 0, sizeof(*values));
	values->type = type;
	values->context = CurrentMemoryContext;
	values->scale = -1;
	values->capacity = capacity;
	if (as_ints)
		values->ints = MemoryContextAllocHuge(values->context, sizeof(int64) * capacity);
	else
		byte_buffer_init(&values->bytes, nbytes);
	if (!as_ints && type->form != FORM_FIXED)
		values->ends = MemoryContextAllocHuge(values->context, sizeof(uint64) * capacity);
}

void
column_values_init(ColumnValues *values, const ColumnType *type)
{
	uint32 width = type->length > 0 ? type->length : FIRST_BYTES_PER_ROW;
	bool as_ints = type->form == FORM_INT || type->form == FORM_FLOAT || type->form == FORM_NUMERIC;

	init_with_capacity(values, type, as_ints, FIRST_ROWS, (uint64) FIRST_ROWS * width);
}

void
column_values_reserve(ColumnValues *values, uint32 nrows)
{
	uint32 capacity = values->capacity;

	while (capacity - values->nrows < nrows)
		capacity *= 2;
	if (capacity > values->capacity)
		set_capacity(values, capacity);
}

/* Room for `more` bytes behind those that are there. */
static inline char *
reserve_bytes(ColumnValues *values, uint64 more)
{
	if (unlikely(values->bytes.capacity - values->bytes.length < more))
	{
		MemoryContext old = MemoryContextSwitchTo(values->context);

		byte_buffer_reserve(&values->bytes, more);
		MemoryContextSwitchTo(old);
	}
	return values->bytes.data + values->bytes.length;
}

static inline void
append_bytes(ColumnValues *values, const char *bytes, uint64 length)
{
	memcpy(reserve_bytes(values, length), bytes, length);
	values->bytes.length += length;
	values->ends[values->nrows] = values->bytes.length;
}

/* Holds numerics that were mantissas as bytes from now on. */
static void
give_up_scale(ColumnValues *values)
{
	ColumnValues bytes = *values;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "columnar numerics",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(values->context);

	byte_buffer_init(&bytes.bytes, (uint64) values->capacity * FIRST_BYTES_PER_ROW);
	bytes.ends = palloc_extended(sizeof(uint64) * values->capacity, MCXT_ALLOC_HUGE);
	bytes.ints = NULL;
	MemoryContextSwitchTo(context);
	for (bytes.nrows = 0; bytes.nrows < values->nrows; bytes.nrows++)
	{
		bool isnull;
		const void *value = DatumGetPointer(column_values_datum(values, bytes.nrows, &isnull));

		if (isnull)
			bytes.ends[bytes.nrows] = bytes.bytes.length;
		else
			append_bytes(&bytes, VARDATA(value), VARSIZE(value) - VARHDRSZ);
		if (bytes.nrows % BLOCK_ROWS == BLOCK_ROWS - 1)
			MemoryContextReset(context);
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	pfree(values->ints);
	*values = bytes;
}

/* Can a mantissa of this scale be held beside those that are there? */
static inline bool
takes_scale(ColumnValues *values, int32 scale)
{
	if (values->scale < 0)
		values->scale = scale;
	return values->scale == scale;
}

static inline void
append_numeric(ColumnValues *values, const char *bytes, uint32 length)
{
	int128 mantissa;
	int32 scale;

	if (values->ints != NULL)
	{
		if (numeric_to_scaled_exactly(bytes, length, &mantissa, &scale) &&
			mantissa == (int64) mantissa && takes_scale(values, scale))
		{
			values->ints[values->nrows] = (int64) mantissa;
			return;
		}
		give_up_scale(values);
	}
	append_bytes(values, bytes, length);
}

/* What follows a varlena header. */
static inline void
append_payload(ColumnValues *values, const char *bytes, uint32 length)
{
	if (values->type->form == FORM_NUMERIC)
		append_numeric(values, bytes, length);
	else
		append_bytes(values, bytes, length);
}

static inline void
append_varlena(ColumnValues *values, struct varlena *value)
{
	/* VARATT_IS_SHORT alone is true of a TOAST pointer, too */
	if (VARATT_IS_SHORT(value) && !VARATT_IS_EXTERNAL(value))
		append_payload(values, VARDATA_SHORT(value), VARSIZE_SHORT(value) - VARHDRSZ_SHORT);
	else if (VARATT_IS_4B_U(value))
		append_payload(values, VARDATA(value), VARSIZE(value) - VARHDRSZ);
	else
	{
		struct varlena *flat = detoast_attr(value);

		append_payload(values, VARDATA(flat), VARSIZE(flat) - VARHDRSZ);
		pfree(flat);
	}
}

static inline void
append_fixed(ColumnValues *values, const char *value)
{
	uint32 width = values->type->length;
	char *into = reserve_bytes(values, width);

	/* what lies behind a name's end takes no part in comparisons, so it must not in ours */
	if (values->type->typid == NAMEOID)
		strncpy(into, value, width);
	else
		memcpy(into, value, width);
	values->bytes.length += width;
}

static void
append_null(ColumnValues *values)
{
	uint32 row = values->nrows;

	if (values->nulls == NULL)
		values->nulls = MemoryContextAllocZero(values->context, values->capacity);
	if (values->ints != NULL)
		values->ints[row] = 0;
	else if (values->ends != NULL)
		values->ends[row] = values->bytes.length;
	else
	{
		memset(reserve_bytes(values, values->type->length), 0, values->type->length);
		values->bytes.length += values->type->length;
	}
	values->nulls[row] = 1;
	values->nnulls++;
	values->nrows++;
}

/* Counts a value that was put behind the others and is not NULL. */
static inline void
count_value(ColumnValues *values)
{
	if (values->nulls != NULL)
		values->nulls[values->nrows] = 0;
	values->nrows++;
}

void
column_values_append(ColumnValues *values, Datum value, bool isnull)
{
	if (unlikely(values->nrows == values->capacity))
		column_values_reserve(values, 1);
	if (isnull)
	{
		append_null(values);
		return;
	}
	switch (values->type->form)
	{
		case FORM_INT:
		case FORM_FLOAT:
			values->ints[values->nrows] = column_type_to_int(values->type, value);
			break;
		case FORM_FIXED:
			append_fixed(values, DatumGetPointer(value));
			break;
		case FORM_NUMERIC:
		case FORM_BYTES:
			if (values->type->length == -2)
				append_bytes(values, DatumGetCString(value), strlen(DatumGetCString(value)));
			else
				append_varlena(values, (struct varlena *) DatumGetPointer(value));
			break;
	}
	count_value(values);
}

void
column_values_append_bytes(ColumnValues *values, const char *bytes, uint32 length)
{
	if (unlikely(values->nrows == values->capacity))
		column_values_reserve(values, 1);
	if (values->type->form == FORM_FIXED)
		append_fixed(values, bytes);
	else
		append_payload(values, bytes, length);
	count_value(values);
}

void
column_values_append_scaled(ColumnValues *values, int64 mantissa, int32 scale)
{
	if (unlikely(values->nrows == values->capacity))
		column_values_reserve(values, 1);
	if (values->ints != NULL && !takes_scale(values, scale))
		give_up_scale(values);
	if (values->ints != NULL)
		values->ints[values->nrows] = mantissa;
	else
	{
		void *value = DatumGetPointer(numeric_from_scaled(mantissa, scale));

		append_bytes(values, VARDATA(value), VARSIZE(value) - VARHDRSZ);
		pfree(value);
	}
	count_value(values);
}

Datum
column_values_datum(const ColumnValues *values, uint32 row, bool *isnull)
{
	const char *bytes;
	uint32 length;

	*isnull = values->nulls != NULL && values->nulls[row];
	if (*isnull)
		return (Datum) 0;
	if (column_values_are_scaled(values))
		return numeric_from_scaled(values->ints[row], values->scale);
	if (values->ints != NULL)
		return column_type_from_int(values->type, values->ints[row]);
	bytes = column_values_bytes(values, row, &length);
	return column_type_from_bytes(values->type, bytes, length);
}

const int64 *
column_values_fill_nulls(const ColumnValues *values, uint32 first, uint32 nrows, int64 *filled)
{
	const int64 *ints = values->ints + first;
	const uint8 *nulls = values->nulls != NULL ? values->nulls + first : NULL;
	uint32 row = 0;
	int64 previous;

	if (nulls == NULL || memchr(nulls, 1, nrows) == NULL)
		return ints;
	while (nulls[row])
		row++;
	previous = ints[row];
	for (row = 0; row < nrows; row++)
	{
		if (!nulls[row])
			previous = ints[row];
		filled[row] = previous;
	}
	return filled;
}

/* What is used, not what is reserved: the caller closes a row group by it, always at the same row. */
uint64
column_values_size(const ColumnValues *values)
{
	uint64 size = values->bytes.length;

	if (values->type->form != FORM_FIXED)
		size += (uint64) values->nrows * sizeof(int64);
	if (values->nulls != NULL)
		size += values->nrows;
	return size;
}

void
column_values_select(ColumnValues *into, const ColumnValues *from, const uint32 *order,
					 uint32 nrows)
{
	bool is_fixed = from->type->form == FORM_FIXED;

	init_with_capacity(into, from->type, from->ints != NULL, Max(nrows, FIRST_ROWS),
					   Max(from->bytes.length, 1));
	into->scale = from->scale;
	if (from->nulls != NULL)
		into->nulls = MemoryContextAllocZero(into->context, into->capacity);

	for (uint32 i = 0; i < nrows; i++)
	{
		uint32 row = order[i];

		if (into->nulls != NULL)
		{
			into->nulls[i] = from->nulls[row];
			into->nnulls += from->nulls[row];
		}
		if (from->ints != NULL)
			into->ints[i] = from->ints[row];
		else
		{
			uint32 length;
			const char *bytes = column_values_bytes(from, row, &length);

			if (is_fixed)
				length = from->type->length;
			memcpy(reserve_bytes(into, length), bytes, length);
			into->bytes.length += length;
			if (!is_fixed)
				into->ends[i] = into->bytes.length;
		}
		into->nrows++;
	}
}

void
column_values_reset(ColumnValues *values)
{
	if (values->type->form == FORM_NUMERIC && values->ints == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(values->context);

		column_values_free(values);
		column_values_init(values, values->type);
		MemoryContextSwitchTo(caller);
		return;
	}
	if (values->nulls != NULL)
		pfree(values->nulls);
	values->nulls = NULL;
	values->nrows = values->nnulls = 0;
	values->scale = -1;
	values->bytes.length = 0;
}

void
column_values_free(ColumnValues *values)
{
	if (values->ints != NULL)
		pfree(values->ints);
	if (values->ends != NULL)
		pfree(values->ends);
	if (values->nulls != NULL)
		pfree(values->nulls);
	byte_buffer_free(&values->bytes);
	values->ints = NULL;
	values->ends = NULL;
	values->nulls = NULL;
	values->nrows = values->capacity = values->nnulls = 0;
}
