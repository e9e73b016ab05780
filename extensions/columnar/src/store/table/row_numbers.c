/*
 * row_numbers.c
 *		SQL functions that tell and take row numbers: what a copy of a table that is written meanwhile needs.
 *
 * A row's number is its identity for life, compaction keeps it, and none is used again.  So the rows that have come
 * since somebody looked are those whose numbers he does not know, and those that are gone are the numbers that are not
 * there any more; no log of changes is needed.  Numbers begin anew when the table is rewritten or truncated: whoever
 * compares keeps a lock, as any reader of the table does.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

#include "store/pages/space.h"
#include "store/rows/row_range.h"
#include "store/table/introspect.h"

/* Row groups with numbers further apart are told row by row. */
#define SET_SPAN_MAX (16 * 1024 * 1024)

PG_FUNCTION_INFO_V1(columnar_row_number);
PG_FUNCTION_INFO_V1(columnar_row_tid);
PG_FUNCTION_INFO_V1(columnar_row_tids);
PG_FUNCTION_INFO_V1(columnar_visible_rows);

Datum
columnar_row_number(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64((int64) row_number_from_tid((ItemPointer) PG_GETARG_POINTER(0)));
}

static Datum
make_tid(int64 row)
{
	ItemPointer tid = palloc(sizeof(ItemPointerData));

	if (row < 0 || (uint64) row >= ROW_NUMBER_MAX)
		ereport(ERROR, (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
						errmsg("there is no row number " INT64_FORMAT, row)));
	row_number_to_tid((uint64) row, tid);
	return PointerGetDatum(tid);
}

Datum
columnar_row_tid(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(make_tid(PG_GETARG_INT64(0)));
}

static int64 *
get_numbers(ArrayType *array, int *count)
{
	if (ARR_NDIM(array) > 1 || array_contains_nulls(array))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("numbers of rows must be arrays of one dimension without nulls")));
	*count = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	return (int64 *) ARR_DATA_PTR(array);
}

/* The tids of ranges of numbers. */
Datum
columnar_row_tids(PG_FUNCTION_ARGS)
{
	int nfirsts;
	int ncounts;
	int64 *firsts = get_numbers(PG_GETARG_ARRAYTYPE_P(0), &nfirsts);
	int64 *counts = get_numbers(PG_GETARG_ARRAYTYPE_P(1), &ncounts);
	int64 total = 0;
	int filled = 0;
	Datum *tids;

	if (nfirsts != ncounts)
		ereport(ERROR, (errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
						errmsg("there must be as many counts as first numbers")));
	for (int i = 0; i < ncounts; i++)
	{
		if (counts[i] < 0 || counts[i] > (int64) (MaxAllocSize / sizeof(Datum)) - total)
			ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("too many rows")));
		total += counts[i];
	}
	tids = palloc(Max(total, 1) * sizeof(Datum));
	for (int i = 0; i < ncounts; i++)
	{
		for (int64 row = 0; row < counts[i]; row++)
		{
			CHECK_FOR_INTERRUPTS();
			tids[filled++] = make_tid(firsts[i] + row);
		}
	}
	PG_RETURN_ARRAYTYPE_P(
		construct_array(tids, filled, TIDOID, sizeof(ItemPointerData), false, TYPALIGN_SHORT));
}

/* ---- the rows that there are --------------------------------------------------------------------- */

/* Ranges of numbers, put into a result when one does not continue the last. */
typedef struct RangeList
{
	ReturnSetInfo *result;
	uint64 first;
	uint64 count;
} RangeList;

static void
put_range(RangeList *list)
{
	Datum values[2] = {Int64GetDatum((int64) list->first), Int64GetDatum((int64) list->count)};
	bool nulls[2] = {false, false};

	if (list->count > 0)
		tuplestore_putvalues(list->result->setResult, list->result->setDesc, values, nulls);
}

static void
add_rows(RangeList *list, uint64 first, uint64 count)
{
	if (list->count > 0 && first == list->first + list->count)
	{
		list->count += count;
		return;
	}
	put_range(list);
	list->first = first;
	list->count = count;
}

/* The numbers of a row group whose rows are in another order. */
typedef struct NumberSet
{
	uint32 group; /* of the scan */
	uint64 first; /* of the group's numbers */
	uint64 span;
	bool *has; /* by number - first; NULL: none of the group has come */
} NumberSet;

static void
put_numbers(NumberSet *set, RangeList *list)
{
	for (uint64 i = 0; set->has != NULL && i < set->span; i++)
	{
		if (set->has[i])
			add_rows(list, set->first + i, 1);
	}
	if (set->has != NULL)
		pfree(set->has);
	set->has = NULL;
}

/* False if the group's numbers are so far apart that a set of them would take too much memory. */
static bool
begin_numbers(NumberSet *set, const RowBatch *batch)
{
	const GroupRecord *record = row_group_reader_record(batch->reader);

	if (set->has != NULL && set->group == batch->group)
		return true;
	if (record->row_span > SET_SPAN_MAX)
		return false;
	set->group = batch->group;
	set->first = record->first_row;
	set->span = record->row_span;
	set->has = palloc0(record->row_span * sizeof(bool));
	return true;
}

static void
add_batch(RangeList *list, NumberSet *set, RowBatch *batch, uint64 since)
{
	bool ordered;

	if (set->has != NULL && set->group != batch->group)
		put_numbers(set, list);
	if (!batch->has_numbers && batch->nselected == batch->nrows && batch->first_row >= since)
	{
		add_rows(list, batch->first_row, batch->nrows);
		return;
	}
	ordered = !batch->has_numbers || !begin_numbers(set, batch);
	for (uint32 i = 0; i < batch->nselected; i++)
	{
		uint64 row = row_batch_row_number(batch, batch->selection[i]);

		if (row < since)
			continue;
		if (ordered)
			add_rows(list, row, 1);
		else
			set->has[row - set->first] = true;
	}
}

/* visible_rows(relation, since): numbers from `since` on of the rows that the statement sees, as ranges */
Datum
columnar_visible_rows(PG_FUNCTION_ARGS)
{
	Relation relation = columnar_open_to_read(PG_GETARG_OID(0));
	RowRangePruner range = {.base = {.keep_group = row_range_keeps_group},
							.first = Max(PG_GETARG_INT64(1), 0),
							.last = PG_UINT64_MAX};
	RangeList list = {.result = (ReturnSetInfo *) fcinfo->resultinfo};
	NumberSet set = {0};
	Bitmapset *no_columns = bms_make_singleton(0);
	RowScan *scan;
	RowBatch *batch;

	InitMaterializedSRF(fcinfo, 0);
	scan = row_scan_begin(relation, NULL, GetActiveSnapshot(), no_columns, &range.base, NULL);
	while ((batch = row_scan_next(scan, ForwardScanDirection)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		add_batch(&list, &set, batch, range.first);
	}
	put_numbers(&set, &list);
	put_range(&list);
	row_scan_end(scan);
	table_close(relation, AccessShareLock);
	return (Datum) 0;
}
