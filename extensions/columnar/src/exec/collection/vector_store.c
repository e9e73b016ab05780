/*
 * vector_store.c
 *		Rows kept column by column in memory: life, room for rows, integers and floats.
 *
 * Arrays double when they are full, which for large ones costs the kernel's page tables and no
 * copy.  What is counted as memory is what is used, as the rest of them was never touched.
 *
 * Memory: all of the rows lies in the context `data`, which a reset empties.
 */
#include "exec/collection/vector_store_internal.h"

#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "store/codec/float_codec.h"

#define CAPACITY_MIN 128

#define ARENA_BLOCK_MIN ((Size) 1024)
#define ARENA_BLOCK_MAX ((Size) 256 * 1024)

#define STORE_ROWS_MAX (VECTOR_NO_ROW - BLOCK_ROWS)

/* ---- life ---------------------------------------------------------------------------------- */

static StoreLayout
choose_layout(const StoreColumn *column)
{
	switch (column->type.form)
	{
		case FORM_INT:
		case FORM_NUMERIC:
			return STORE_INT32;
		case FORM_FLOAT:
			return STORE_FLOAT;
		case FORM_FIXED:
		case FORM_BYTES:
			return column->is_plain ? STORE_BYTES : STORE_CODES;
	}
	pg_unreachable();
}

/* The rows' memory is empty. */
static void
begin_rows(VectorStore *store)
{
	store->count = 0;
	store->capacity = 0;
	store->free = NULL;
	store->free_bytes = 0;
	store->block_bytes = ARENA_BLOCK_MIN;
	store->arena_bytes = 0;
	for (int i = 0; i < store->ncolumns; i++)
	{
		StoreColumn *column = &store->columns[i];
		StoreColumn empty = {.type = column->type, .is_plain = column->is_plain, .scale = -1};

		empty.layout = choose_layout(&empty);
		*column = empty;
	}
}

VectorStore *
vector_store_create(int ncolumns, const VectorKey *columns)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "vector store",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	VectorStore *store = palloc0(offsetof(VectorStore, columns) +
								 sizeof(StoreColumn) * (Size) ncolumns);

	store->context = context;
	store->data = AllocSetContextCreate(context, "vector store's rows", ALLOCSET_DEFAULT_SIZES);
	store->ncolumns = ncolumns;
	for (int i = 0; i < ncolumns; i++)
		vector_key_type(&columns[i], &store->columns[i].type);
	begin_rows(store);
	MemoryContextSwitchTo(old);
	return store;
}

void
vector_store_reset(VectorStore *store)
{
	MemoryContextReset(store->data);
	begin_rows(store);
}

uint32
vector_store_count(const VectorStore *store)
{
	return store->count;
}

Size
vector_store_memory(const VectorStore *store)
{
	Size bytes = store->arena_bytes;

	for (int i = 0; i < store->ncolumns; i++)
	{
		const StoreColumn *column = &store->columns[i];
		int nbitmaps = (column->nulls != NULL) + (column->padded != NULL) +
					   (column->exceptions != NULL);

		bytes += store_layout_size(column->layout) * store->count;
		bytes += (Size) store->count * nbitmaps / 8;
		bytes += sizeof(StoreBytes) * column->odd_capacity;
		bytes += (sizeof(char *) + sizeof(Datum) + 2 * sizeof(uint32)) *
				 column->dictionary.capacity;
		bytes += sizeof(uint32) * column->dictionary.nslots;
		bytes += (column->map.codes != NULL ? sizeof(uint32) : 0) * (Size) column->map.nentries;
		bytes += (column->map.copies != NULL ? sizeof(char *) : 0) * (Size) column->map.nentries;
	}
	return bytes;
}

/* ---- room ---------------------------------------------------------------------------------- */

Size
store_layout_size(StoreLayout layout)
{
	static const Size sizes[] = {
		[STORE_INT32] = sizeof(int32),	 [STORE_INT64] = sizeof(int64),
		[STORE_INT128] = sizeof(int128), [STORE_FLOAT] = sizeof(double),
		[STORE_CODES] = sizeof(uint32),	 [STORE_BYTES] = sizeof(StoreBytes)};

	return sizes[layout];
}

static Size
count_bitmap_bytes(uint64 capacity)
{
	return sizeof(uint64) * (capacity / 64);
}

static void *
grow_array(const VectorStore *store, void *array, Size size)
{
	return array == NULL ? MemoryContextAllocHuge(store->data, size) : repalloc_huge(array, size);
}

static void
grow_bitmap(uint64 **bits, uint64 old_capacity, uint64 capacity)
{
	Size old_size = count_bitmap_bytes(old_capacity);
	Size size = count_bitmap_bytes(capacity);

	if (*bits == NULL)
		return;
	*bits = repalloc_huge(*bits, size);
	memset((char *) *bits + old_size, 0, size - old_size);
}

void
store_reserve(VectorStore *store, uint32 n)
{
	uint64 capacity = Max(store->capacity, CAPACITY_MIN);

	if (store->count > STORE_ROWS_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("too many rows in memory")));
	if ((uint64) store->count + n <= store->capacity)
		return;
	while (capacity < (uint64) store->count + n)
		capacity *= 2;
	for (int i = 0; i < store->ncolumns; i++)
	{
		StoreColumn *column = &store->columns[i];

		column->values = grow_array(store, column->values,
									store_layout_size(column->layout) * capacity);
		grow_bitmap(&column->nulls, store->capacity, capacity);
		grow_bitmap(&column->padded, store->capacity, capacity);
		grow_bitmap(&column->exceptions, store->capacity, capacity);
	}
	store->capacity = capacity;
}

char *
store_allocate(VectorStore *store, Size size)
{
	char *result;

	if (size > store->free_bytes || store->free == NULL)
	{
		/* much at once has a block to itself */
		if (size > store->block_bytes / 8)
		{
			store->arena_bytes += size;
			return MemoryContextAllocHuge(store->data, size);
		}
		store->free = MemoryContextAlloc(store->data, store->block_bytes);
		store->free_bytes = store->block_bytes;
		store->arena_bytes += store->block_bytes;
		store->block_bytes = Min(2 * store->block_bytes, ARENA_BLOCK_MAX);
	}
	result = store->free;
	store->free += size;
	store->free_bytes -= size;
	return result;
}

uint64 *
store_make_bitmap(VectorStore *store)
{
	return MemoryContextAllocExtended(store->data, count_bitmap_bytes(store->capacity),
									  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
}

void
store_set_bit(VectorStore *store, uint64 **bits, uint32 row)
{
	if (*bits == NULL)
		*bits = store_make_bitmap(store);
	(*bits)[row >> 6] |= UINT64CONST(1) << (row & 63);
}

void
store_set_layout(VectorStore *store, StoreColumn *column, StoreLayout layout, uint32 count)
{
	void *old = column->values;
	void *values = MemoryContextAllocHuge(store->data, store_layout_size(layout) * store->capacity);

	if (column->layout == STORE_INT32 && layout == STORE_INT64)
	{
		for (uint32 i = 0; i < count; i++)
			((int64 *) values)[i] = ((int32 *) old)[i];
	}
	else if (column->layout == STORE_INT32 && layout == STORE_INT128)
	{
		for (uint32 i = 0; i < count; i++)
			((int128 *) values)[i] = ((int32 *) old)[i];
	}
	else if (column->layout == STORE_INT64 && layout == STORE_INT128)
	{
		for (uint32 i = 0; i < count; i++)
			((int128 *) values)[i] = ((int64 *) old)[i];
	}
	column->layout = layout;
	column->values = values;
	if (old != NULL)
		pfree(old);
}

/* ---- integers and floats ------------------------------------------------------------------- */

/* False if some have more bits. */
VECTOR_KERNEL static bool
narrow_ints(const int64 *restrict values, uint32 n, int32 *restrict into)
{
	uint64 excess = 0;

	for (uint32 i = 0; i < n; i++)
	{
		into[i] = (int32) values[i];
		excess |= (uint64) (values[i] ^ (int32) values[i]);
	}
	return excess == 0;
}

void
store_append_ints(VectorStore *store, StoreColumn *column, const int64 *values, uint32 n)
{
	if (column->layout == STORE_INT32)
	{
		if (narrow_ints(values, n, (int32 *) column->values + store->count))
			return;
		store_set_layout(store, column, STORE_INT64, store->count);
	}
	if (column->layout == STORE_INT64)
		memcpy((int64 *) column->values + store->count, values, sizeof(int64) * n);
	else
	{
		for (uint32 i = 0; i < n; i++)
			((int128 *) column->values)[store->count + i] = values[i];
	}
}

static void
append_integers(VectorStore *store, StoreColumn *column, const Vector *vector,
				const uint16 *selection, uint32 n)
{
	int64 values[BLOCK_ROWS];

	if (vector->form == VECTOR_DATUM)
	{
		for (uint32 i = 0; i < n; i++)
			values[i] = vector_is_null(vector, selection[i])
							? 0
							: column_type_to_int(&column->type, vector->datums[selection[i]]);
	}
	else
	{
		for (uint32 i = 0; i < n; i++)
			values[i] = vector->ints[selection[i]];
		for (uint32 i = 0; vector->nulls != NULL && i < n; i++)
			values[i] = vector_bit(vector->nulls, selection[i]) ? 0 : values[i];
	}
	store_append_ints(store, column, values, n);
}

static double
get_datum_float(const ColumnType *type, Datum value)
{
	return type->length == sizeof(float4)
			   ? float_widen_single((uint32) column_type_to_int(type, value))
			   : DatumGetFloat8(value);
}

static void
append_floats(VectorStore *store, StoreColumn *column, const Vector *vector,
			  const uint16 *selection, uint32 n)
{
	double *into = (double *) column->values + store->count;

	if (vector->form == VECTOR_FLOAT && vector->nulls == NULL)
	{
		for (uint32 i = 0; i < n; i++)
			into[i] = vector->floats[selection[i]];
		return;
	}
	for (uint32 i = 0; i < n; i++)
	{
		uint32 row = selection[i];

		if (vector_is_null(vector, row))
			into[i] = 0;
		else if (vector->form == VECTOR_DATUM)
			into[i] = get_datum_float(&column->type, vector->datums[row]);
		else
			into[i] = vector->floats[row];
	}
}

/* ---- rows ---------------------------------------------------------------------------------- */

static void
append_nulls(VectorStore *store, StoreColumn *column, const Vector *vector, const uint16 *selection,
			 uint32 n)
{
	if (vector->nulls == NULL)
		return;
	for (uint32 i = 0; i < n; i++)
		if (vector_bit(vector->nulls, selection[i]))
			store_set_bit(store, &column->nulls, store->count + i);
}

void
vector_store_append(VectorStore *store, Vector *const *columns, const uint16 *selection,
					uint32 nselected)
{
	Assert(nselected <= BLOCK_ROWS);
	store_reserve(store, nselected);
	for (int i = 0; i < store->ncolumns; i++)
	{
		StoreColumn *column = &store->columns[i];

		append_nulls(store, column, columns[i], selection, nselected);
		switch (column->type.form)
		{
			case FORM_INT:
				append_integers(store, column, columns[i], selection, nselected);
				break;
			case FORM_FLOAT:
				append_floats(store, column, columns[i], selection, nselected);
				break;
			case FORM_NUMERIC:
				store_append_numerics(store, column, columns[i], selection, nselected);
				break;
			case FORM_FIXED:
			case FORM_BYTES:
				store_append_bytes(store, column, columns[i], selection, nselected);
				break;
		}
	}
	store->count += nselected;
}
