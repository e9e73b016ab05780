/*
 * hll_extension.h
 *		The functions of the extension postgresql-hll, where it is installed.
 *
 *		hll_extension.c			which functions are the extension's
 *		hll_set.c				a set of hashes, explicit or as registers
 *		vector_hll.c			kernels of its hash functions
 *		vector_aggregate_hll.c	kernels of hll_add_agg() and hll_union_agg()
 */
#ifndef COLUMNAR_HLL_EXTENSION_H
#define COLUMNAR_HLL_EXTENSION_H

#include "compat.h"

typedef enum HllFunction
{
	HLL_NO_FUNCTION, /* none of these */
	HLL_HASH_BOOLEAN,
	HLL_HASH_SMALLINT,
	HLL_HASH_INTEGER,
	HLL_HASH_BIGINT,
	HLL_HASH_BYTEA,
	HLL_HASH_TEXT,
	HLL_HASH_ANY,
	HLL_HASHVAL_OF_BIGINT,
	HLL_HASHVAL_OF_INTEGER,
	HLL_ADD_TRANS0, /* hll_add_agg() with so many parameters */
	HLL_ADD_TRANS1,
	HLL_ADD_TRANS2,
	HLL_ADD_TRANS3,
	HLL_ADD_TRANS4,
	HLL_UNION_TRANS,
	HLL_SERIALIZE,
	HLL_PACK,
	HLL_NFUNCTIONS
} HllFunction;

/* Which of the extension's functions it is, in the current database. */
extern HllFunction hll_function_find(Oid oid);

/* The function's oid; invalid if the extension does not have it. */
extern Oid hll_function_oid(HllFunction function);

#endif
