/*
 * bytes_codec.c
 *		Blocks of byte strings: raw with lengths, codes of a dictionary, symbols.
 *
 * A block begins with its encoding (a byte; BYTES_SPARSE may be set), then
 *
 *		raw			[lengths] n, n bytes: the values, one after the other
 *		dictionary	codes: numbers of entries of the chunk's dictionary
 *		fsst		[lengths] n, n bytes: the symbols of all values, as of one string
 *		constant	n, n bytes: the value of all rows
 *
 * with n a varint, and lengths and codes blocks of integer_codec.  Values of a
 * type with a fixed length have no lengths.  If such a block has NULLs, it is
 * sparse: in place of lengths stand 0 and 1, a row of 0 has no bytes and is shown
 * with the value before it, so that every row has bytes of the type's length.
 * Elsewhere a NULL is an empty string, and it takes the code before it.
 *
 * The symbols of a block are those of its values joined, which are as long as the
 * lengths say: one call decompresses a block, symbols may cover the end of one
 * value and the start of the next, and lengths of the compressed forms are not
 * needed.
 */
#include "store/codec/bytes_model.h"
#include "store/codec/integer_codec.h"
#include "store/value/varint.h"

#include "utils/memutils.h"

/* Set in a block's first byte: a type of fixed length, and rows without bytes. */
#define BYTES_SPARSE 0x80

/* ---- encoding ------------------------------------------------------------------------------ */

/* The bytes of a block's rows joined, and what tells where each begins. */
typedef struct JoinedRows
{
	const char *bytes;
	uint64 length;
	char *copy;		  /* where the bytes had to be put together; else NULL */
	bool has_lengths; /* lengths are stored, or presence if it is sparse */
	bool is_sparse;
	int64 lengths[BLOCK_ROWS];
} JoinedRows;

/* Is every row that is not NULL equal to the first of them?  *row is that one. */
static bool
is_constant(const ColumnValues *values, uint32 first, uint32 nrows, uint32 *row)
{
	const char *bytes = NULL;
	uint32 length = 0;

	*row = first;
	for (uint32 i = first; i < first + nrows; i++)
	{
		uint32 other_length;
		const char *other;

		if (bytes_model_is_null(values, i))
			continue;
		other = column_values_bytes(values, i, &other_length);
		if (bytes == NULL)
		{
			*row = i;
			bytes = other;
			length = other_length;
		}
		else if (length != other_length || memcmp(bytes, other, length) != 0)
			return false;
	}
	return true;
}

/* Rows of a fixed length with NULLs between them. */
static void
join_sparse_rows(JoinedRows *joined, const ColumnValues *values, uint32 first, uint32 nrows)
{
	uint32 length = values->type->length;

	joined->copy = palloc((Size) nrows * length);
	joined->bytes = joined->copy;
	joined->length = 0;
	joined->has_lengths = true;
	joined->is_sparse = true;
	for (uint32 i = 0; i < nrows; i++)
	{
		joined->lengths[i] = !bytes_model_is_null(values, first + i);
		if (joined->lengths[i])
		{
			memcpy(joined->copy + joined->length, column_values_bytes(values, first + i, &length),
				   length);
			joined->length += length;
		}
	}
}

static void
join_rows(JoinedRows *joined, const ColumnValues *values, uint32 first, uint32 nrows)
{
	uint32 length;

	joined->bytes = column_values_bytes(values, first, &length);
	joined->length = 0;
	joined->copy = NULL;
	joined->has_lengths = values->type->form != FORM_FIXED;
	joined->is_sparse = false;
	for (uint32 i = 0; i < nrows; i++)
	{
		if (!joined->has_lengths && bytes_model_is_null(values, first + i))
		{
			join_sparse_rows(joined, values, first, nrows);
			return;
		}
		column_values_bytes(values, first + i, &length);
		joined->lengths[i] = length;
		joined->length += length;
	}
}

/* Appends the symbols of the joined rows; false, and nothing, where they save too little. */
static bool
write_symbols(const FsstTable *table, const JoinedRows *joined, uint32 nrows, ByteBuffer *into)
{
	ByteBuffer codes;
	bool saves;

	if (joined->length == 0 || joined->length > BYTES_FSST_MAX)
		return false;
	byte_buffer_init(&codes, joined->length * 2);
	fsst_compress(table, joined->bytes, (uint32) joined->length, &codes);
	saves = codes.length <= joined->length * BYTES_FSST_RATIO;
	if (saves)
	{
		byte_buffer_put_u8(into, BYTES_FSST | (joined->is_sparse ? BYTES_SPARSE : 0));
		if (joined->has_lengths)
			integer_encode(joined->lengths, nrows, into);
		varint_put(into, codes.length);
		byte_buffer_append(into, codes.data, codes.length);
	}
	byte_buffer_free(&codes);
	return saves;
}

static void
write_raw(const JoinedRows *joined, uint32 nrows, ByteBuffer *into)
{
	byte_buffer_put_u8(into, BYTES_RAW | (joined->is_sparse ? BYTES_SPARSE : 0));
	if (joined->has_lengths)
		integer_encode(joined->lengths, nrows, into);
	varint_put(into, joined->length);
	byte_buffer_append(into, joined->bytes, joined->length);
}

static void
write_codes(const uint32 *codes, uint32 nrows, ByteBuffer *into)
{
	int64 block[BLOCK_ROWS];

	for (uint32 i = 0; i < nrows; i++)
		block[i] = codes[i];
	byte_buffer_put_u8(into, BYTES_DICTIONARY);
	integer_encode(block, nrows, into);
}

/* The model, if any, is one that was trained on these very values. */
BytesEncoding
bytes_encode(const BytesModel *model, const ColumnValues *values, uint32 first, uint32 nrows,
			 ByteBuffer *into)
{
	BytesEncoding encoding = BYTES_RAW;
	uint32 row;
	JoinedRows joined;

	/* with a dictionary all blocks are codes, constant ones too, for whoever computes on codes */
	if (model != NULL && bytes_model_is_dictionary(model))
	{
		write_codes(model->codes + first, nrows, into);
		return BYTES_DICTIONARY;
	}
	if (is_constant(values, first, nrows, &row))
	{
		uint32 length;
		const char *bytes = column_values_bytes(values, row, &length);

		/* even where all are NULL, so that there is something of the type's length to show */
		if (values->type->form == FORM_FIXED)
			length = values->type->length;
		byte_buffer_put_u8(into, BYTES_CONSTANT);
		varint_put(into, length);
		byte_buffer_append(into, bytes, length);
		return BYTES_CONSTANT;
	}

	join_rows(&joined, values, first, nrows);
	if (model != NULL && write_symbols(model->symbols, &joined, nrows, into))
		encoding = BYTES_FSST;
	else
		write_raw(&joined, nrows, into);
	if (joined.copy != NULL)
		pfree(joined.copy);
	return encoding;
}

/* ---- decoding ------------------------------------------------------------------------------ */

/* A value's type has a fixed length: is this one of it? */
static inline bool
has_type_length(const ColumnBlock *block, uint64 length)
{
	return block->type->form != FORM_FIXED || length == (uint64) block->type->length;
}

static void
decode_constant(ByteCursor *cursor, uint32 nrows, ColumnBlock *block)
{
	uint64 length = varint_get_limited(cursor, MaxAllocSize, "the length of a value");
	const char *bytes = byte_cursor_bytes(cursor, length);

	if (!has_type_length(block, length))
		format_damaged("a value has " UINT64_FORMAT " bytes, but its type %d", length,
					   block->type->length);
	for (uint32 i = 0; i < nrows; i++)
	{
		block->starts[i] = bytes;
		block->lengths[i] = (uint32) length;
	}
	block->constant = true;
}

/* The codes in 32 bits; returns the largest. */
FORMAT_VECTORISED static uint64
narrow_codes(const int64 *restrict codes, uint32 nrows, uint32 *restrict into)
{
	uint64 any = 0;
	uint32 largest = 0;

	/* a constant number of rounds lets gcc -O2 use vector instructions */
	if (nrows == BLOCK_ROWS)
		for (uint32 i = 0; i < BLOCK_ROWS; i++)
		{
			any |= (uint64) codes[i];
			into[i] = (uint32) codes[i];
			largest = Max(largest, (uint32) codes[i]);
		}
	else
		for (uint32 i = 0; i < nrows; i++)
		{
			any |= (uint64) codes[i];
			into[i] = (uint32) codes[i];
			largest = Max(largest, (uint32) codes[i]);
		}
	return any > PG_UINT32_MAX ? any : largest;
}

static void
decode_codes(BytesModel *model, ByteCursor *cursor, uint32 nrows, ColumnBlock *block)
{
	int64 codes[BLOCK_ROWS];
	uint64 largest;

	if (model == NULL || !bytes_model_is_dictionary(model))
		format_damaged("a block has codes, but there is no dictionary");
	if (block->type->form == FORM_FIXED &&
		!(model->has_one_length && has_type_length(block, model->dictionary.lengths[0])))
		format_damaged("a dictionary has values that are not as long as the type");

	integer_decode(cursor, nrows, codes, &block->constant);
	largest = narrow_codes(codes, nrows, block->codes);
	if (largest >= model->dictionary.nentries)
		format_damaged("a code is " UINT64_FORMAT ", but the dictionary has %u entries", largest,
					   model->dictionary.nentries);
	block->dictionary = &model->dictionary;
}

/*
 * Reads the lengths (presence) that a block of several values begins with, or makes them
 * where the type tells them; returns the number of bytes of all rows.
 */
static uint64
read_lengths(ByteCursor *cursor, uint32 nrows, const ColumnBlock *block, bool sparse,
			 int64 *lengths)
{
	bool fixed = block->type->form == FORM_FIXED;
	uint64 sum = 0;

	if (sparse && !fixed)
		format_damaged("a block of values of varying length is sparse");
	if (fixed && !sparse)
		return (uint64) nrows * block->type->length;

	integer_decode(cursor, nrows, lengths, NULL);
	for (uint32 i = 0; i < nrows; i++)
		sum += bytes_model_check_length(lengths[i]);
	if (!sparse)
		return sum;

	for (uint32 i = 0; i < nrows; i++)
	{
		if (lengths[i] > 1)
			format_damaged("a row is present " INT64_FORMAT " times", lengths[i]);
	}
	if (sum == 0)
		format_damaged("a sparse block has no row");
	return sum * block->type->length;
}

/* Points the rows to their places in the joined bytes. */
static void
place_rows(const char *bytes, uint32 nrows, bool sparse, const int64 *lengths, ColumnBlock *block)
{
	uint32 fixed = block->type->length;

	if (block->type->form != FORM_FIXED)
	{
		for (uint32 i = 0; i < nrows; i++)
		{
			block->starts[i] = bytes;
			block->lengths[i] = (uint32) lengths[i];
			bytes += lengths[i];
		}
		return;
	}
	if (sparse)
	{
		const char *next = bytes;

		for (uint32 i = 0; i < nrows; i++)
		{
			if (lengths[i])
			{
				bytes = next;
				next += fixed;
			}
			block->starts[i] = bytes;
			block->lengths[i] = fixed;
		}
		return;
	}
	for (uint32 i = 0; i < nrows; i++)
	{
		block->starts[i] = bytes + (uint64) i * fixed;
		block->lengths[i] = fixed;
	}
}

static void
decode_rows(BytesModel *model, ByteCursor *cursor, uint32 nrows, uint8 kind, ByteBuffer *arena,
			ColumnBlock *block)
{
	bool sparse = (kind & BYTES_SPARSE) != 0;
	bool fsst = (kind & ~BYTES_SPARSE) == BYTES_FSST;
	int64 lengths[BLOCK_ROWS];
	uint64 raw_length = read_lengths(cursor, nrows, block, sparse, lengths);
	uint64 stored = varint_get(cursor);
	const char *bytes = byte_cursor_bytes(cursor, stored);

	if (fsst)
	{
		if (model == NULL || model->kind != MODEL_FSST)
			format_damaged("a block has symbols, but there is no symbol table");
		bytes_model_unpack(model->symbols, bytes, stored, raw_length, arena);
		bytes = arena->data;
	}
	else if (stored != raw_length)
		format_damaged("a block has " UINT64_FORMAT " bytes for values of " UINT64_FORMAT, stored,
					   raw_length);
	place_rows(bytes, nrows, sparse, lengths, block);
}

/* Leaves the block's null bitmap alone. */
void
bytes_decode(BytesModel *model, ByteCursor *cursor, uint32 nrows, ByteBuffer *arena,
			 ColumnBlock *block)
{
	uint8 kind = byte_cursor_u8(cursor);
	BlockForm form = kind == BYTES_DICTIONARY ? BLOCK_CODES : BLOCK_BYTES;

	if (nrows > BLOCK_ROWS)
		format_damaged("a block has %u rows", nrows);
	column_block_use(block, form);
	block->form = form;
	block->nrows = nrows;
	block->scale = -1;
	block->constant = false;
	block->has_exceptions = false;
	block->dictionary = NULL;

	switch (kind)
	{
		case BYTES_DICTIONARY:
			decode_codes(model, cursor, nrows, block);
			return;
		case BYTES_CONSTANT:
			decode_constant(cursor, nrows, block);
			return;
		case BYTES_RAW:
		case BYTES_FSST:
		case BYTES_RAW | BYTES_SPARSE:
		case BYTES_FSST | BYTES_SPARSE:
			decode_rows(model, cursor, nrows, kind, arena, block);
			return;
	}
	format_damaged("a block of byte strings has the unknown encoding %u", kind);
}
