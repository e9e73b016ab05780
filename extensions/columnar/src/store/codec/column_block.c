/*
 * column_block.c
 *		The arrays of a decoded block, and datums made from them.
 *
 * Arrays are made when a form is first decoded and kept until the block is
 * freed: a scan allocates once per column, not once per block.
 */
#include "compat.h"

#include "utils/memutils.h"

#include "store/codec/column_block.h"

#include "store/codec/float_codec.h"
#include "store/codec/numeric_codec.h"

void
column_block_init(ColumnBlock *block, const ColumnType *type)
{
	memset(block, 0, sizeof(*block));
	block->type = type;
	block->scale = -1;
	block->context = CurrentMemoryContext;
}

static void *
make_array(ColumnBlock *block, void *array, Size element)
{
	return array != NULL ? array : MemoryContextAllocZero(block->context, element * BLOCK_ROWS);
}

void
column_block_use(ColumnBlock *block, BlockForm form)
{
	switch (form)
	{
		case BLOCK_INT:
			block->ints = make_array(block, block->ints, sizeof(int64));
			break;
		case BLOCK_WIDE:
			block->wides = make_array(block, block->wides, sizeof(int128));
			break;
		case BLOCK_FLOAT:
			block->floats = make_array(block, block->floats, sizeof(double));
			break;
		case BLOCK_BYTES:
			block->starts = make_array(block, block->starts, sizeof(char *));
			block->lengths = make_array(block, block->lengths, sizeof(uint32));
			break;
		case BLOCK_CODES:
			block->codes = make_array(block, block->codes, sizeof(uint32));
			break;
	}
}

/* The datum of a dictionary entry; made once, beside the dictionary. */
static Datum
find_entry_datum(const ColumnBlock *block, uint32 code)
{
	Dictionary *dictionary = block->dictionary;

	Assert(code < dictionary->nentries);
	if (dictionary->datums[code] == (Datum) 0)
	{
		MemoryContext old = MemoryContextSwitchTo(GetMemoryChunkContext(dictionary->datums));

		dictionary->datums[code] = column_type_from_bytes(block->type, dictionary->starts[code],
														  dictionary->lengths[code]);
		MemoryContextSwitchTo(old);
	}
	return dictionary->datums[code];
}

static bool
is_exception(const ColumnBlock *block, uint32 row)
{
	return block->has_exceptions && (block->exceptions[row >> 6] >> (row & 63)) & 1;
}

Datum
column_block_datum(ColumnBlock *block, uint32 row, bool *isnull)
{
	Assert(row < block->nrows);
	*isnull = column_block_is_null(block, row);
	if (*isnull)
		return (Datum) 0;
	if (is_exception(block, row))
		return column_type_from_bytes(block->type, block->starts[row], block->lengths[row]);

	switch (block->form)
	{
		case BLOCK_INT:
			if (block->scale >= 0)
				return numeric_from_scaled(block->ints[row], block->scale);
			return column_type_from_int(block->type, block->ints[row]);
		case BLOCK_WIDE:
			return numeric_from_scaled(block->wides[row], block->scale);
		case BLOCK_FLOAT:
			if (block->type->length == sizeof(float4))
				return column_type_from_int(block->type,
											(int64) float_narrow_single(block->floats[row]));
			return Float8GetDatum(block->floats[row]);
		case BLOCK_BYTES:
			return column_type_from_bytes(block->type, block->starts[row], block->lengths[row]);
		case BLOCK_CODES:
			return find_entry_datum(block, block->codes[row]);
	}
	pg_unreachable();
}

void
column_block_free(ColumnBlock *block)
{
	void *arrays[] = {block->ints,	 block->wides,	 block->floats,
					  block->starts, block->lengths, block->codes};

	for (int i = 0; i < lengthof(arrays); i++)
	{
		if (arrays[i] != NULL)
			pfree(arrays[i]);
	}
	block->ints = NULL;
	block->wides = NULL;
	block->floats = NULL;
	block->starts = NULL;
	block->lengths = NULL;
	block->codes = NULL;
	block->nrows = 0;
}

uint64
dictionary_next_serial(void)
{
	static uint64 serial = 0;

	return ++serial;
}
