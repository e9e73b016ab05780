/*
 * vector_hash.h
 *		A hash of the keys of rows, by which rows are dealt out to parts.
 *
 * Rows with equal keys have the same hash, in every process of the server and whatever the form
 * of the vectors; equality is that of vector_groups.h.  It is independent of the hashes by which
 * groups are looked up: the rows of one part are spread over a hash table as all rows are.
 */
#ifndef COLUMNAR_VECTOR_HASH_H
#define COLUMNAR_VECTOR_HASH_H

#include "exec/keys/vector_groups.h"

typedef struct VectorHash VectorHash;

/* Of keys that vector_groups_can_key() allows. Memory: a child of the current context. */
extern VectorHash *vector_hash_create(int nkeys, const VectorKey *keys);

/* hashes[i] = hash of row selection[i].  May leave garbage in the current context. */
extern void vector_hash_rows(VectorHash *hash, Vector *const *keys, const uint16 *selection,
							 uint32 nselected, uint64 *hashes);

#endif
