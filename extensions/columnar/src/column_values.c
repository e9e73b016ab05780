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

#include "column_values.h"

#define FIRST_ROWS 64
#define FIRST_BYTES_PER_ROW 16

static inline bool
has_ends(const ColumnValues *values)
{
	return values->type->form == FORM_BYTES || values->type->form == FORM_NUMERIC;
}

static inline bool
has_ints(const ColumnValues *values)
{
	return values->type->form == FORM_INT || values->type->form == FORM_FLOAT;
}

static void *
resize_array(ColumnValues *values, void *array, uint64 element, uint32 capacity)
{
	return array == NULL ? MemoryContextAllocHuge(values->context, element * capacity)
						 : repalloc_huge(array, element * capacity);
}

static void
set_capacity(ColumnValues *values, uint32 capacity)
{
	if (has_ints(values))
		values->ints = resize_array(values, values->ints, sizeof(int64), capacity);
	if (has_ends(values))
		values->ends = resize_array(values, values->ends, sizeof(uint64), capacity);
	if (values->nulls != NULL)
		values->nulls = resize_array(values, values->nulls, sizeof(uint8), capacity);
	values->capacity = capacity;
}

static void
init_with_capacity(ColumnValues *values, const ColumnType *type, uint32 capacity, uint64 nbytes)
{
	memset(values, 0, sizeof(*values));
	values->type = type;
	values->context = CurrentMemoryContext;
	if (!has_ints(values))
		byte_buffer_init(&values->bytes, nbytes);
	set_capacity(values, capacity);
}

void
column_values_init(ColumnValues *values, const ColumnType *type)
{
	uint32 width = type->length > 0 ? type->length : FIRST_BYTES_PER_ROW;

	init_with_capacity(values, type, FIRST_ROWS, (uint64) FIRST_ROWS * width);
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

static inline void
append_varlena(ColumnValues *values, struct varlena *value)
{
	/* VARATT_IS_SHORT alone is true of a TOAST pointer, too */
	if (VARATT_IS_SHORT(value) && !VARATT_IS_EXTERNAL(value))
		append_bytes(values, VARDATA_SHORT(value), VARSIZE_SHORT(value) - VARHDRSZ_SHORT);
	else if (VARATT_IS_4B_U(value))
		append_bytes(values, VARDATA(value), VARSIZE(value) - VARHDRSZ);
	else
	{
		struct varlena *flat = detoast_attr(value);

		append_bytes(values, VARDATA(flat), VARSIZE(flat) - VARHDRSZ);
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
	if (has_ints(values))
		values->ints[row] = 0;
	else if (has_ends(values))
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

void
column_values_append(ColumnValues *values, Datum value, bool isnull)
{
	if (unlikely(values->nrows == values->capacity))
		set_capacity(values, values->capacity * 2);
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
	if (values->nulls != NULL)
		values->nulls[values->nrows] = 0;
	values->nrows++;
}

const char *
column_values_bytes(const ColumnValues *values, uint32 row, uint32 *length)
{
	uint64 start;

	if (values->type->form == FORM_FIXED)
	{
		bool isnull = values->nulls != NULL && values->nulls[row];

		*length = isnull ? 0 : values->type->length;
		return values->bytes.data + (uint64) row * values->type->length;
	}
	start = row == 0 ? 0 : values->ends[row - 1];
	*length = (uint32) (values->ends[row] - start);
	return values->bytes.data + start;
}

Datum
column_values_datum(const ColumnValues *values, uint32 row, bool *isnull)
{
	const char *bytes;
	uint32 length;

	*isnull = values->nulls != NULL && values->nulls[row];
	if (*isnull)
		return (Datum) 0;
	if (has_ints(values))
		return column_type_from_int(values->type, values->ints[row]);
	bytes = column_values_bytes(values, row, &length);
	return column_type_from_bytes(values->type, bytes, length);
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

	init_with_capacity(into, from->type, Max(nrows, FIRST_ROWS), Max(from->bytes.length, 1));
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
		if (has_ints(from))
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
column_values_free(ColumnValues *values)
{
	if (values->ints != NULL)
		pfree(values->ints);
	if (values->ends != NULL)
		pfree(values->ends);
	if (values->nulls != NULL)
		pfree(values->nulls);
	if (!has_ints(values))
		byte_buffer_free(&values->bytes);
	values->ints = NULL;
	values->ends = NULL;
	values->nulls = NULL;
	values->nrows = values->capacity = values->nnulls = 0;
}
