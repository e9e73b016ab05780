/*
 * vector_file.c
 *		Rows of vectors in a temporary file: what does not fit into memory.
 *
 * Rows are gathered in a small store; when it is full its columns are written as they are, a
 * block, and the store emptied.  Reading a block fills the store again, whose columns then are
 * those of the batch.  Rows that never filled a block are not written at all.
 *
 * A block, in the machine's own representation:
 *
 *		number of rows (uint32)
 *		for each column: a ColumnHeader; bitmaps of NULLs, padded rows and exceptions, if it
 *			has them; its entries (STORE_BYTES: their lengths); then of the dictionary's entries,
 *			or of exceptions, the lengths; then the bytes of all of these
 *
 * Memory: the file and its store live in a context of their own.
 */
#include "exec/collection/vector_file.h"

#include "storage/buffile.h"
#include "utils/memutils.h"

#include "exec/collection/vector_store_internal.h"

/* A block is written when it has so many bytes besides its rows. */
#define BLOCK_BYTES_MAX (256 * 1024)

/* A dictionary with more entries than one for so many rows is not worth it. */
#define ROWS_PER_ENTRY 4

typedef struct ColumnHeader
{
	StoreLayout layout;
	bool has_nulls;
	bool has_padded;
	bool has_exceptions;
	int32 scale;
	int32 padded_scale;
	uint32 npieces; /* entries of the dictionary, or exceptions */
	uint64 nbytes;
} ColumnHeader;

typedef struct FileColumn
{
	bool is_made;
	Vector vector;
	VectorBuffer *buffer;
} FileColumn;

struct VectorFile
{
	VectorBatch batch;
	MemoryContext context;
	VectorStore *store;
	BufFile *file; /* NULL: all rows are in the store */
	uint64 count;
	uint64 nread;
	bool is_reading;
	uint16 selection[BLOCK_ROWS];
	uint32 numbers[BLOCK_ROWS]; /* 0, 1, 2 ... */
	FileColumn columns[FLEXIBLE_ARRAY_MEMBER];
};

/* ---- writing ------------------------------------------------------------------------------- */

static void
write_bytes(VectorFile *file, const void *bytes, Size length)
{
	BufFileWrite(file->file, (void *) bytes, length);
}

/* Pieces that follow each other in memory are written at once. */
static void
write_pieces(VectorFile *file, const StoreBytes *pieces, uint32 n)
{
	const char *start = NULL;
	Size length = 0;

	for (uint32 i = 0; i < n; i++)
		write_bytes(file, &pieces[i].length, sizeof(uint32));
	for (uint32 i = 0; i < n; i++)
	{
		if (pieces[i].length == 0)
			continue;
		if (pieces[i].start != start + length)
		{
			write_bytes(file, start, length);
			start = pieces[i].start;
			length = 0;
		}
		length += pieces[i].length;
	}
	write_bytes(file, start, length);
}

/* The entries of the dictionary, or exceptions; returns how many. */
static uint32
collect_pieces(const StoreColumn *column, StoreBytes *pieces)
{
	const Dictionary *dictionary = &column->dictionary.shown;

	if (column->layout == STORE_BYTES)
		return 0;
	if (column->layout != STORE_CODES)
	{
		if (column->nodd > 0)
			memcpy(pieces, column->odd, sizeof(StoreBytes) * column->nodd);
		return column->nodd;
	}
	for (uint32 i = 0; i < dictionary->nentries; i++)
		pieces[i] = (StoreBytes){.start = dictionary->starts[i], .length = dictionary->lengths[i]};
	return dictionary->nentries;
}

static uint64
sum_lengths(const StoreBytes *pieces, uint32 n)
{
	uint64 sum = 0;

	for (uint32 i = 0; i < n; i++)
		sum += pieces[i].length;
	return sum;
}

static void
write_bitmap(VectorFile *file, const uint64 *bits)
{
	if (bits != NULL)
		write_bytes(file, bits, sizeof(uint64) * ((file->store->count + 63) / 64));
}

static void
write_column(VectorFile *file, StoreColumn *column)
{
	uint32 nrows = file->store->count;
	StoreBytes pieces[BLOCK_ROWS];
	ColumnHeader header;

	if (column->layout == STORE_CODES && column->dictionary.shown.nentries * ROWS_PER_ENTRY > nrows)
		store_drop_dictionary(file->store, column, nrows);

	memset(&header, 0, sizeof(header));
	header.layout = column->layout;
	header.has_nulls = column->nulls != NULL;
	header.has_padded = column->padded != NULL;
	header.has_exceptions = column->exceptions != NULL;
	header.scale = column->scale;
	header.padded_scale = column->padded_scale;
	header.npieces = collect_pieces(column, pieces);
	header.nbytes = column->layout == STORE_BYTES ? sum_lengths(column->values, nrows)
												  : sum_lengths(pieces, header.npieces);
	write_bytes(file, &header, sizeof(header));
	write_bitmap(file, column->nulls);
	write_bitmap(file, column->padded);
	write_bitmap(file, column->exceptions);
	if (column->layout == STORE_BYTES)
		write_pieces(file, column->values, nrows);
	else
	{
		write_bytes(file, column->values, store_layout_size(column->layout) * nrows);
		write_pieces(file, pieces, header.npieces);
	}
}

/* Writes the rows in the store as a block. */
static void
write_block(VectorFile *file)
{
	if (file->store->count == 0)
		return;
	if (file->file == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(file->context);

		file->file = BufFileCreateTemp(false);
		MemoryContextSwitchTo(caller);
	}
	write_bytes(file, &file->store->count, sizeof(uint32));
	for (int i = 0; i < file->store->ncolumns; i++)
		write_column(file, &file->store->columns[i]);
	vector_store_reset(file->store);
}

void
vector_file_write(VectorFile *file, Vector *const *columns, const uint16 *selection,
				  uint32 nselected)
{
	VectorStore *store = file->store;

	Assert(!file->is_reading);
	for (uint32 done = 0; done < nselected;)
	{
		uint32 n = Min(nselected - done, BLOCK_ROWS - store->count);

		vector_store_append(store, columns, selection + done, n);
		done += n;
		if (store->count == BLOCK_ROWS || store->arena_bytes > BLOCK_BYTES_MAX)
			write_block(file);
	}
	file->count += nselected;
}

/* ---- reading ------------------------------------------------------------------------------- */

static void
read_bytes(VectorFile *file, void *into, Size length)
{
	Size nread = BufFileRead(file->file, into, length);

	if (nread != length)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not read from a temporary file"),
						errdetail("Read %zu of %zu bytes.", nread, length)));
}

static void
read_bitmap(VectorFile *file, bool exists, uint32 nrows, uint64 **bits)
{
	if (!exists)
		return;
	*bits = store_make_bitmap(file->store);
	read_bytes(file, *bits, sizeof(uint64) * ((nrows + 63) / 64));
}

/* What write_pieces() wrote. */
static void
read_pieces(VectorFile *file, uint32 n, uint64 nbytes, StoreBytes *pieces)
{
	char *bytes = store_allocate(file->store, nbytes);
	uint32 lengths[BLOCK_ROWS];

	read_bytes(file, lengths, sizeof(uint32) * n);
	read_bytes(file, bytes, nbytes);
	for (uint32 i = 0; i < n; i++)
	{
		pieces[i] = (StoreBytes){.start = bytes, .length = lengths[i]};
		bytes += lengths[i];
	}
}

/* What collect_pieces() collected. */
static void
keep_pieces(VectorFile *file, StoreColumn *column, const StoreBytes *pieces, uint32 n)
{
	Dictionary *dictionary = &column->dictionary.shown;

	if (column->layout != STORE_CODES)
	{
		column->odd = MemoryContextAlloc(file->store->data, sizeof(StoreBytes) * n);
		memcpy(column->odd, pieces, sizeof(StoreBytes) * n);
		column->nodd = column->odd_capacity = n;
		return;
	}
	store_reserve_entries(file->store, column, n);
	for (uint32 i = 0; i < n; i++)
	{
		dictionary->starts[i] = pieces[i].start;
		dictionary->lengths[i] = pieces[i].length;
	}
	dictionary->nentries = n;
}

static void
read_column(VectorFile *file, StoreColumn *column, uint32 nrows)
{
	StoreBytes pieces[BLOCK_ROWS];
	ColumnHeader header;

	read_bytes(file, &header, sizeof(header));
	if (header.layout != column->layout)
		store_set_layout(file->store, column, header.layout, 0);
	column->scale = header.scale;
	column->padded_scale = header.padded_scale;
	read_bitmap(file, header.has_nulls, nrows, &column->nulls);
	read_bitmap(file, header.has_padded, nrows, &column->padded);
	read_bitmap(file, header.has_exceptions, nrows, &column->exceptions);
	if (column->layout == STORE_BYTES)
	{
		read_pieces(file, nrows, header.nbytes, column->values);
		return;
	}
	read_bytes(file, column->values, store_layout_size(column->layout) * nrows);
	if (header.npieces > 0)
	{
		read_pieces(file, header.npieces, header.nbytes, pieces);
		keep_pieces(file, column, pieces, header.npieces);
	}
}

static void
read_block(VectorFile *file)
{
	uint32 nrows;

	vector_store_reset(file->store);
	read_bytes(file, &nrows, sizeof(nrows));
	store_reserve(file->store, nrows);
	for (int i = 0; i < file->store->ncolumns; i++)
		read_column(file, &file->store->columns[i], nrows);
	file->store->count = nrows;
}

static void
get_column(VectorBatch *batch, AttrNumber number, Vector *into)
{
	VectorFile *file = batch->owner;
	FileColumn *column = &file->columns[number - 1];

	Assert(number > 0 && number <= file->store->ncolumns);
	if (!column->is_made)
		vector_store_gather(file->store, number - 1, file->numbers, NULL, batch->nrows,
							column->buffer, &column->vector);
	column->is_made = true;
	*into = column->vector;
}

/* The next read begins at the first row. */
static void
rewind_file(VectorFile *file)
{
	file->nread = 0;
	if (file->is_reading && file->file != NULL && BufFileSeek(file->file, 0, 0, SEEK_SET) != 0)
		ereport(ERROR,
				(errcode_for_file_access(), errmsg("could not rewind a temporary file: %m")));
}

VectorBatch *
vector_file_read(VectorFile *file)
{
	uint32 nrows;

	if (!file->is_reading)
	{
		if (file->file != NULL)
			write_block(file);
		file->is_reading = true;
		rewind_file(file);
	}
	if (file->nread == file->count)
		return NULL;
	if (file->file != NULL)
		read_block(file);
	nrows = file->store->count;
	file->nread += nrows;
	file->batch.nrows = file->batch.nselected = nrows;
	for (uint32 i = 0; i < nrows; i++)
		file->selection[i] = (uint16) i;
	for (int i = 0; i < file->store->ncolumns; i++)
		file->columns[i].is_made = false;
	return &file->batch;
}

/* ---- life ---------------------------------------------------------------------------------- */

VectorFile *
vector_file_create(int ncolumns, const VectorKey *columns)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "vector file",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	VectorFile *file = palloc0(offsetof(VectorFile, columns) +
							   sizeof(FileColumn) * (Size) ncolumns);

	file->context = context;
	file->store = vector_store_create(ncolumns, columns);
	file->batch.selection = file->selection;
	file->batch.get_column = get_column;
	file->batch.owner = file;
	for (uint32 i = 0; i < BLOCK_ROWS; i++)
		file->numbers[i] = i;
	for (int i = 0; i < ncolumns; i++)
		file->columns[i].buffer = vector_buffer_create();
	MemoryContextSwitchTo(caller);
	return file;
}

uint64
vector_file_count(const VectorFile *file)
{
	return file->count;
}

void
vector_file_close(VectorFile *file)
{
	if (file->file != NULL)
		BufFileClose(file->file);
	MemoryContextDelete(file->context);
}
