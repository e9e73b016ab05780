/*
 * vector_file.h
 *		Rows of vectors in a temporary file: what does not fit into memory.
 *
 * What is read is what was written, in the same order, as vector_datum() would tell it.
 */
#ifndef COLUMNAR_VECTOR_FILE_H
#define COLUMNAR_VECTOR_FILE_H

#include "exec/vector/vector.h"
#include "exec/keys/vector_groups.h"

typedef struct VectorFile VectorFile;

/*
 * Memory: a child of the current context.  The file is made when a buffer is full, and goes with
 * the query at the latest.
 */
extern VectorFile *vector_file_create(int ncolumns, const VectorKey *columns);

/* Appends the selected rows; columns[i] has the values of column i. */
extern void vector_file_write(VectorFile *file, Vector *const *columns, const uint16 *selection,
							  uint32 nselected);

extern uint64 vector_file_count(const VectorFile *file);

/*
 * The next rows, all selected, column i as the batch's column i + 1; NULL at the end.  Valid
 * until the next call.  The first call ends writing.
 */
extern VectorBatch *vector_file_read(VectorFile *file);

extern void vector_file_close(VectorFile *file);

#endif
