/*
 * vector_store.h
 *		Rows kept column by column in memory, looked up by their numbers: the build side of a
 *		join.  And rows of vectors put into another order.
 *
 * What comes out of a store is what went in, as vector_datum() would tell it: value, display
 * scale, NULL.  The forms of vectors may differ from those that went in.
 */
#ifndef COLUMNAR_VECTOR_STORE_H
#define COLUMNAR_VECTOR_STORE_H

#include "exec/vector/vector.h"
#include "exec/keys/vector_groups.h"

/* No row: an outer join's missing side. */
#define VECTOR_NO_ROW PG_UINT32_MAX

typedef struct VectorStore VectorStore;

/* Where a vector that is put together has its arrays. */
typedef struct VectorBuffer VectorBuffer;

/* ncolumns may be 0: rows are counted then. Memory: a child of the current context. */
extern VectorStore *vector_store_create(int ncolumns, const VectorKey *columns);

/*
 * Appends the selected rows; columns[i] has the values of column i.  They get the numbers
 * that follow: 0, 1, 2 ...  Nothing of the vectors is needed afterwards.
 */
extern void vector_store_append(VectorStore *store, Vector *const *columns, const uint16 *selection,
								uint32 nselected);

extern uint32 vector_store_count(const VectorStore *store);

/* Bytes in use. */
extern Size vector_store_memory(const VectorStore *store);

/* Forgets all rows. */
extern void vector_store_reset(VectorStore *store);

/* Memory: the current context, in which all its arrays will be. */
extern VectorBuffer *vector_buffer_create(void);

/*
 * Value at position positions[i] of the result = column's value of row rows[i]; NULL for
 * VECTOR_NO_ROW.  Other positions are undefined, but may be read.  Bytes are borrowed from
 * the store; the rest lives in `buffer` until it is used again.  positions: ascending, below
 * BLOCK_ROWS; NULL: 0, 1, 2 ...
 */
extern void
vector_store_gather(VectorStore *store, int column, const uint32 *rows, const uint16 *positions,
					uint32 n, VectorBuffer *buffer, Vector *into);

/*
 * Value i of the result = value from[i] of the vector, for i below n; bytes are borrowed from the
 * vector.
 */
extern void vector_gather(const Vector *vector, const uint16 *from, uint32 n, VectorBuffer *buffer,
						  Vector *into);

/* All values NULL, for the columns of a side that has no row. */
extern void vector_make_null(const ColumnType *type, VectorBuffer *buffer, Vector *into);

#endif
