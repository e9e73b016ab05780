/*
 * row_range.h
 *		Scans of a range of row numbers.
 */
#ifndef COLUMNAR_ROW_RANGE_H
#define COLUMNAR_ROW_RANGE_H

#include "store/rows/row_scan.h"

/* Leaves out what has no row numbers from `first` to `last`, inclusive: row groups by keep_group, blocks by keep_block. */
typedef struct RowRangePruner
{
	RowPruner base;
	uint64 first;
	uint64 last;
} RowRangePruner;

/* For base.keep_group and base.keep_block.  The latter reads the numbers' bounds of groups that store numbers. */
extern bool row_range_keeps_group(RowPruner *pruner, RowGroupReader *reader);
extern bool row_range_keeps_block(RowPruner *pruner, RowGroupReader *reader, uint32 block);

#endif
