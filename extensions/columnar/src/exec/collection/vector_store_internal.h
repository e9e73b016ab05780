/*
 * vector_store_internal.h
 *		The parts of a store: columns of plain arrays, an arena for bytes, and gathering.
 *
 *		vector_store.c			life, room for rows, integers and floats
 *		vector_store_numeric.c	numerics: mantissas of one scale, and exceptions
 *		vector_store_bytes.c	text and the like: plain, or codes into a dictionary of the store
 *		vector_gather.c			rows put together into vectors
 *		vector_file.c			the columns of a small store as bytes of a file
 *
 * A column has one array with an entry per row, whose layout follows what came so far: integers
 * begin with 32 bits and get more when a value needs them, as every look-up is a cache miss
 * that narrow arrays make rarer.  Of a row that is NULL the entry is 0 (or no bytes).
 */
#ifndef COLUMNAR_VECTOR_STORE_INTERNAL_H
#define COLUMNAR_VECTOR_STORE_INTERNAL_H

#include "exec/collection/vector_store.h"

typedef enum StoreLayout
{
	STORE_INT32, /* the first three in this order: of integers, and mantissas of numerics */
	STORE_INT64,
	STORE_INT128,
	STORE_FLOAT,
	STORE_CODES,
	STORE_BYTES
} StoreLayout;

/* Start and length lie together: one cache miss for both. */
typedef struct StoreBytes
{
	const char *start; /* of no bytes: any valid address */
	uint32 length;
} StoreBytes;

/* Above so many distinct values a column has no dictionary. */
#define STORE_ENTRIES_MAX 4096

/* Distinct values of a column. */
typedef struct StoreDictionary
{
	Dictionary shown; /* gets another serial when it has grown since vectors with it were made */
	bool is_shown;
	uint32 capacity;
	uint32 *hashes; /* of the entries */
	uint32 *slots;	/* code + 1 by hash; 0: free */
	uint32 nslots;	/* a power of 2 */
} StoreDictionary;

/* What became of the entries of a dictionary that vectors had. */
typedef struct StoreMap
{
	uint64 serial; /* of that dictionary; 0: none yet */
	uint32 nentries;
	uint32 *codes;		 /* STORE_CODES: code + 1; 0: not met yet */
	const char **copies; /* STORE_BYTES: its bytes in the arena; or NULL */
} StoreMap;

typedef struct StoreColumn
{
	ColumnType type;
	bool is_plain; /* it had too many distinct values; outlives a reset */
	StoreLayout layout;
	void *values;
	uint64 *nulls; /* bitmaps: no pointer until the first bit is set */

	/* numerics, as vector.h says; -1: no mantissa yet */
	int32 scale;
	int32 padded_scale;
	uint64 *padded;
	uint64 *exceptions; /* their entry is an index of odd[] */
	StoreBytes *odd;
	uint32 nodd;
	uint32 odd_capacity;

	StoreDictionary dictionary;
	StoreMap map;
} StoreColumn;

struct VectorStore
{
	MemoryContext context;
	MemoryContext data; /* of all that a reset forgets */
	uint32 count;
	uint64 capacity; /* entries of the columns' arrays, a multiple of 64 */
	char *free;		 /* rest of the arena's last block */
	Size free_bytes;
	Size block_bytes; /* size of the arena's next block */
	Size arena_bytes;
	int ncolumns;
	StoreColumn columns[FLEXIBLE_ARRAY_MEMBER];
};

/* Bytes of an entry. */
extern Size store_layout_size(StoreLayout layout);

/* Makes room for n more rows; not more than BLOCK_ROWS. */
extern void store_reserve(VectorStore *store, uint32 n);

/*
 * Changes the layout; the first `count` entries are converted where both are of integers, else
 * undefined.
 */
extern void
store_set_layout(VectorStore *store, StoreColumn *column, StoreLayout layout, uint32 count);

/* Memory that lives until the reset, for bytes without alignment. */
extern char *store_allocate(VectorStore *store, Size size);

/* A bitmap with room for all rows, all bits cleared. */
extern uint64 *store_make_bitmap(VectorStore *store);

/* Sets a bit of a bitmap, which is made if need be. */
extern void store_set_bit(VectorStore *store, uint64 **bits, uint32 row);

/*
 * The functions below fill the entries of n new rows, which begin at store->count; NULLs are
 * marked already.
 */

/* Stores n integers with as many bits as they need. */
extern void
store_append_ints(VectorStore *store, StoreColumn *column, const int64 *values, uint32 n);
extern void store_append_numerics(VectorStore *store, StoreColumn *column, const Vector *vector,
								  const uint16 *selection, uint32 n);
extern void store_append_bytes(VectorStore *store, StoreColumn *column, const Vector *vector,
							   const uint16 *selection, uint32 n);

/* The bytes of a row that is not NULL, as VECTOR_BYTES has them; of VECTOR_DATUM, too. */
extern const char *store_bytes_of(const Vector *vector, uint32 row, uint32 *length);

/* Gives up the dictionary, for the first `count` rows. */
extern void store_drop_dictionary(VectorStore *store, StoreColumn *column, uint32 count);

/* Makes room for so many entries. */
extern void store_reserve_entries(VectorStore *store, StoreColumn *column, uint32 nentries);

/* ---- vectors that are put together (vector_gather.c) ------------------------------------------- */

/* Arrays of BLOCK_ROWS entries, zero when made; those that were never used are no pointers. */
struct VectorBuffer
{
	MemoryContext context;
	int64 *ints;
	int128 *wides;
	double *floats;
	const char **starts;
	uint32 *lengths;
	uint32 *codes;
	Datum *datums;
	uint64 *nulls;
	uint64 *exceptions;
	uint64 *padded;
	uint32 *rows;
};

/*
 * Begins a vector of this form with arrays of the buffer.  With `clear` no position has anything
 * of what was there before: ints are 0, bytes are "".
 */
extern void vector_buffer_begin(VectorBuffer *buffer, const ColumnType *type, VectorForm form,
								bool clear, Vector *into);

#endif
