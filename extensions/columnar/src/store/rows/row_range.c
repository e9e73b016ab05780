/*
 * row_range.c
 *		Scans of a range of row numbers.
 */
#include "postgres.h"

#include "store/rows/row_range.h"

bool
row_range_keeps_group(RowPruner *pruner, RowGroupReader *reader)
{
	const RowRangePruner *range = (const RowRangePruner *) pruner;
	const GroupRecord *record = row_group_reader_record(reader);

	return record->first_row <= range->last && record->first_row + record->row_span > range->first;
}

bool
row_range_keeps_block(RowPruner *pruner, RowGroupReader *reader, uint32 block)
{
	const RowRangePruner *range = (const RowRangePruner *) pruner;
	uint64 lowest;
	uint64 highest;

	row_group_reader_number_bounds(reader, block, &lowest, &highest);
	return lowest <= range->last && highest >= range->first;
}
