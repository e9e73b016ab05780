/*
 * number_order.h
 *		Where a row number is in its row group, for groups whose stored numbers have
 *		gaps or no order: what the session keeps of the groups it looks rows up in.
 *
 * A group's numbers are read once and kept as an order that is searched in no time: readers
 * of groups come and go (an index scan has few open at a time), the order stays.  It
 * takes 8 bytes per row at most; the group least recently used makes room.
 */
#ifndef COLUMNAR_NUMBER_ORDER_H
#define COLUMNAR_NUMBER_ORDER_H

#include "store/catalog/row_group_cache.h"

typedef struct NumberOrder NumberOrder;

/*
 * Counts a look-up in the group.  Its order; if there is none, *lookups says how often the group was
 * looked up so far: whoever finds that enough reads the numbers and calls number_order_keep().
 * Valid until the next call.
 */
extern const NumberOrder *number_order_find(const RowGroupKey *key, uint32 *lookups);

/* Is a group's order a mere array by number, quicker to make than to sort? */
extern bool number_order_is_map(uint32 nrows, uint64 span);

/* Keeps the numbers of a group, by position: differences to the first, below span. */
extern const NumberOrder *
number_order_keep(const RowGroupKey *key, const int64 *numbers, uint32 nrows, uint64 span);

/* The position of a number below span; false if the group does not have it. */
extern bool number_order_search(const NumberOrder *order, uint64 number, uint32 *position);

/* Forgets the groups of a file. */
extern void number_order_forget(CompatFileLocator file);

#endif
