/*
 * scan_keys.h
 *		The key filters of a ColumnarScan: see key_filter.h.
 */
#ifndef COLUMNAR_SCAN_KEYS_H
#define COLUMNAR_SCAN_KEYS_H

#include "exec/batch/key_filter.h"

typedef struct AskedKey
{
	AttrNumber column;
	KeyFilter *filter;
	const KeyRate *next; /* see key_filter_is_worth() */
} AskedKey;

/* Of a scan; zeroes: none. */
typedef struct AskedKeys
{
	int nkeys;
	int capacity;
	AskedKey *keys;
} AskedKeys;

/* Memory: the current context. */
extern void
scan_keys_add(AskedKeys *keys, AttrNumber column, KeyFilter *filter, const KeyRate *next);
extern void scan_keys_forget(AskedKeys *keys);

/*
 * Narrows the batch to the rows with all keys; returns how many it leaves out.  Columns are decoded in the
 * current context, what else is needed comes from `scratch`.
 */
extern uint32 scan_keys_apply(AskedKeys *keys, VectorBatch *batch, MemoryContext scratch);

#endif
