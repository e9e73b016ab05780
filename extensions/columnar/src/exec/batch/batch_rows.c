/*
 * batch_rows.c
 *		Batches of the rows of any plan.
 *
 * Rows are read one by one, and their values kept as they come: a node's slot is good for one row
 * only.  Vectors are made of them when a column is asked for; only then is a long value
 * fetched from its TOAST table.
 *
 * Memory: values lie in a context that the next batch empties.
 */
#include "exec/batch/batch_source.h"

#include "access/detoast.h"
#include "executor/executor.h"
#include "utils/datum.h"
#include "utils/memutils.h"

#include "store/codec/float_codec.h"
#include "exec/collection/vector_store_internal.h"

/* A batch ends after the row that passes so many bytes. */
#define BATCH_BYTES (4 * 1024 * 1024)

typedef struct RowsColumn
{
	ColumnType type;
	Datum *datums; /* 0 for NULL */
	bool has_nulls;
	uint64 nulls[BLOCK_WORDS];
	bool is_made;
	Vector vector;
	VectorBuffer *buffer;
	VectorStore *numerics; /* brings numerics to one scale */
} RowsColumn;

struct BatchRows
{
	VectorBatch batch;
	PlanState *plan;
	MemoryContext values;
	Size bytes; /* copied for this batch */
	bool ended;
	uint16 selection[BLOCK_ROWS]; /* whoever reads the batch may change it */
	uint16 positions[BLOCK_ROWS]; /* 0, 1, 2 ... */
	uint32 numbers[BLOCK_ROWS];	  /* the same */
	int ncolumns;
	RowsColumn columns[FLEXIBLE_ARRAY_MEMBER];
};

/* ---- columns ------------------------------------------------------------------------------- */

static void
make_bytes(BatchRows *rows, RowsColumn *column)
{
	VectorBuffer *buffer = column->buffer;

	vector_buffer_begin(buffer, &column->type, VECTOR_BYTES, true, &column->vector);
	/* the same as of a vector of datums */
	column->vector.datums = column->datums;
	column->vector.form = VECTOR_DATUM;
	for (uint32 i = 0; i < rows->batch.nrows; i++)
		if (!vector_bit(column->nulls, i))
			buffer->starts[i] = store_bytes_of(&column->vector, i, &buffer->lengths[i]);
	column->vector.datums = NULL;
	column->vector.form = VECTOR_BYTES;
}

static void
make_numerics(BatchRows *rows, RowsColumn *column)
{
	Vector *bytes = &column->vector;

	make_bytes(rows, column);
	bytes->nulls = column->has_nulls ? column->nulls : NULL;
	vector_store_reset(column->numerics);
	vector_store_append(column->numerics, &bytes, rows->positions, rows->batch.nrows);
	vector_store_gather(column->numerics, 0, rows->numbers, NULL, rows->batch.nrows, column->buffer,
						&column->vector);
	column->vector.type = &column->type;
}

static void
make_column(BatchRows *rows, RowsColumn *column)
{
	const ColumnType *type = &column->type;
	VectorBuffer *buffer = column->buffer;

	switch (type->form)
	{
		case FORM_INT:
			vector_buffer_begin(buffer, type, VECTOR_INT, true, &column->vector);
			for (uint32 i = 0; i < rows->batch.nrows; i++)
				buffer->ints[i] = column_type_to_int(type, column->datums[i]);
			break;
		case FORM_FLOAT:
			vector_buffer_begin(buffer, type, VECTOR_FLOAT, true, &column->vector);
			for (uint32 i = 0; i < rows->batch.nrows; i++)
				buffer->floats[i] = type->length == sizeof(float4)
										? float_widen_single(
											  (uint32) column_type_to_int(type, column->datums[i]))
										: DatumGetFloat8(column->datums[i]);
			break;
		case FORM_NUMERIC:
			make_numerics(rows, column);
			break;
		case FORM_FIXED:
		case FORM_BYTES:
			make_bytes(rows, column);
			break;
	}
	column->vector.nulls = column->has_nulls ? column->nulls : NULL;
}

static void
get_column(VectorBatch *batch, AttrNumber number, Vector *into)
{
	BatchRows *rows = batch->owner;
	RowsColumn *column = &rows->columns[number - 1];

	Assert(number > 0 && number <= rows->ncolumns);
	if (!column->is_made)
	{
		MemoryContext caller = MemoryContextSwitchTo(rows->values);

		make_column(rows, column);
		column->is_made = true;
		MemoryContextSwitchTo(caller);
	}
	*into = column->vector;
}

/* ---- rows ---------------------------------------------------------------------------------- */

BatchRows *
batch_rows_create(PlanState *plan)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "columnar batches of rows",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	TupleDesc descriptor = ExecGetResultType(plan);
	BatchRows *rows = palloc0(offsetof(BatchRows, columns) +
							  sizeof(RowsColumn) * (Size) descriptor->natts);

	rows->plan = plan;
	rows->values = GenerationContextCreate(context, "columnar batch's values",
										   ALLOCSET_DEFAULT_SIZES);
	rows->batch.get_column = get_column;
	rows->batch.owner = rows;
	rows->batch.selection = rows->selection;
	for (uint32 i = 0; i < BLOCK_ROWS; i++)
		rows->numbers[i] = rows->positions[i] = (uint16) i;
	rows->ncolumns = descriptor->natts;
	for (int i = 0; i < descriptor->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(descriptor, i);
		RowsColumn *column = &rows->columns[i];

		column_type_init(&column->type, attribute);
		column->datums = palloc0(sizeof(Datum) * BLOCK_ROWS);
		column->buffer = vector_buffer_create();
		if (column->type.form == FORM_NUMERIC)
			column->numerics = vector_store_create(
				1, &(VectorKey){.type = attribute->atttypid,
								.typmod = attribute->atttypmod,
								.collation = attribute->attcollation});
	}
	MemoryContextSwitchTo(caller);
	return rows;
}

void
batch_rows_rescan(BatchRows *rows)
{
	rows->ended = false;
}

/* What the datum points to, as it is: toasted values stay so. */
static Datum
copy_value(BatchRows *rows, const ColumnType *type, Datum value)
{
	const char *from = DatumGetPointer(value);
	Size size;
	char *copy;

	if (type->length == -1 && VARATT_IS_EXTERNAL_EXPANDED(from))
	{
		rows->bytes += datumGetSize(value, false, -1);
		return datumCopy(value, false, -1);
	}
	size = datumGetSize(value, false, type->length);
	copy = palloc(size);
	memcpy(copy, from, size);
	rows->bytes += size;
	return PointerGetDatum(copy);
}

/* Keeps the row in the slot as row `row` of the batch; values go to the current context. */
static void
keep_row(BatchRows *rows, uint32 row, TupleTableSlot *slot)
{
	slot_getallattrs(slot);
	for (int i = 0; i < rows->ncolumns; i++)
	{
		RowsColumn *column = &rows->columns[i];

		if (slot->tts_isnull[i])
		{
			column->datums[row] = (Datum) 0;
			column->has_nulls = true;
			column->nulls[row >> 6] |= UINT64CONST(1) << (row & 63);
		}
		else if (column->type.byval)
			column->datums[row] = slot->tts_values[i];
		else
			column->datums[row] = copy_value(rows, &column->type, slot->tts_values[i]);
	}
}

static void
begin_batch(BatchRows *rows)
{
	MemoryContextReset(rows->values);
	rows->bytes = 0;
	for (int i = 0; i < rows->ncolumns; i++)
	{
		RowsColumn *column = &rows->columns[i];

		column->is_made = false;
		column->has_nulls = false;
		memset(column->nulls, 0, sizeof(column->nulls));
	}
}

VectorBatch *
batch_rows_next(BatchRows *rows)
{
	uint32 n = 0;

	begin_batch(rows);
	while (!rows->ended && n < BLOCK_ROWS && rows->bytes < BATCH_BYTES)
	{
		TupleTableSlot *slot = ExecProcNode(rows->plan);
		MemoryContext caller;

		if (TupIsNull(slot))
		{
			rows->ended = true;
			break;
		}
		caller = MemoryContextSwitchTo(rows->values);
		keep_row(rows, n, slot);
		MemoryContextSwitchTo(caller);
		n++;
	}
	memcpy(rows->selection, rows->positions, sizeof(uint16) * n);
	rows->batch.nrows = rows->batch.nselected = n;
	if (n == 0)
	{
		/* who comes again wants the rows again */
		rows->ended = false;
		return NULL;
	}
	return &rows->batch;
}
