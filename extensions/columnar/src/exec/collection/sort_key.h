/*
 * sort_key.h
 *		The values of a sort key, and their order: what ColumnarTopN, ColumnarSort and
 *		ColumnarWindow have in common.
 *
 * The order is that of core's Sort with the same operator.  Values are kept in arrays, an entry
 * for each row that is compared.
 */
#ifndef COLUMNAR_SORT_KEY_H
#define COLUMNAR_SORT_KEY_H

#include "exec/vector/vector.h"
#include "exec/keys/vector_groups.h"

#include "port/pg_bswap.h"
#include "utils/sortsupport.h"

/* What a plan says of a key. */
typedef struct SortKeySource
{
	VectorKey value;
	Oid sort_operator; /* "less" or "greater" of a btree operator family */
	bool nulls_first;
} SortKeySource;

/* How values are kept and compared. */
typedef enum SortForm
{
	SORT_WORD,	/* integers and floats: by their words */
	SORT_BYTES, /* by memcmp() of bytes, whose first eight are a word */
	SORT_DATUM	/* all others: by the operator's support function */
} SortForm;

typedef struct SortBytes
{
	const char *start;
	uint32 length;
} SortBytes;

/* A key, with the values of all entries. */
typedef struct SortKey
{
	ColumnType type;
	SortForm form;
	bool is_default; /* the order is the type's own, or its reverse */
	bool descending;
	bool nulls_first;
	SortSupportData support;
	bool *nulls;
	int64 *words; /* in the order of the key, be it descending; 0 for NULLs */
	SortBytes *bytes;
	Datum *datums;
} SortKey;

/* An array of a plan's keys: the expressions, and of each its operator's OID and whether NULLs come first. */
extern SortKeySource *
sort_key_sources(const List *expressions, const List *operators, const List *nulls_first);

/* Support functions are looked up in the current memory context. */
extern void sort_key_init(SortKey *key, const SortKeySource *source);

/* Makes room for so many entries; those that there are, are kept. */
extern void sort_key_reserve(SortKey *key, MemoryContext context, uint32 capacity);

/* Puts the row's value into an entry, which refers to the vector, or to the current context. */
extern void sort_key_take(SortKey *key, uint32 entry, const Vector *vector, uint32 row);

/* Copies what an entry refers to into the current context; so many bytes. */
extern Size sort_key_copy(SortKey *key, uint32 entry);

/* Puts the value of one entry into another. */
extern void sort_key_move(SortKey *key, uint32 to, uint32 from);

/* The order of two entries. */
extern int sort_key_compare(SortKey *key, uint32 a, uint32 b);

/* What ORDER BY would say after the expression, for EXPLAIN. */
extern char *sort_key_options(const SortKeySource *source);

/* The order of a float as the order of an integer; -0 = 0, NaN is the largest. */
static inline int64
sort_float_word(double value)
{
	double positive = value + 0.0;
	int64 bits;

	memcpy(&bits, &positive, sizeof(bits));
	bits ^= (bits >> 63) & INT64CONST(0x7fffffffffffffff);
	return value != value ? PG_INT64_MAX : bits;
}

/* The first bytes as a number of the same order, which may be equal for different bytes. */
static inline int64
sort_bytes_word(const char *bytes, uint32 length)
{
	uint64 prefix = 0;

	memcpy(&prefix, bytes, Min(length, sizeof(prefix)));
	return (int64) (pg_ntoh64(prefix) ^ (UINT64CONST(1) << 63));
}

/* The order of bytes. */
static inline int
sort_bytes_compare(const char *a, uint32 alength, const char *b, uint32 blength)
{
	int order = memcmp(a, b, Min(alength, blength));

	return order != 0 ? order : (alength > blength) - (alength < blength);
}

#endif
