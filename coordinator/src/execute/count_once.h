/*
 * count_once.h
 *		Counts of distinct values that several workers have sent.
 */
#ifndef STRATA_COUNT_ONCE_H
#define STRATA_COUNT_ONCE_H

#include "executor/tuptable.h"
#include "utils/sortsupport.h"

typedef struct CountOnce CountOnce;

/*
 * keys: how rows are compared, which come sorted by them; none if no two rows are equal.  columns: ints, 1-based, of
 * type bigint.  Everything is allocated in CurrentMemoryContext.
 */
extern CountOnce *
count_once_create(TupleDesc desc, SortSupport keys, int key_count, const List *columns);

/* In one of the rows that are equal a column that is above 0 in any becomes 1; it is 0 in the others. */
extern void count_once_apply(CountOnce *once, TupleTableSlot *slot);

#endif
