/*
 * recluster.c
 *		columnar_recluster(): all rows of a table sorted by its order_by option.
 *
 * Row groups are sorted when they are written, one by one; only this sorts across
 * them, after which each group covers a narrow range and minima and maxima skip
 * the others.  It is a DELETE of all rows and an INSERT of them in order, without the
 * cost of either: rows get new numbers and index entries, and everybody else sees
 * the old row groups until it commits.
 *
 * Writers wait (ExclusiveLock), because a row that somebody is about to change would
 * get another number; readers go on.
 */
#include "compat.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/xact.h"
#include "commands/tablecmds.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/tuplesort.h"
#include "utils/typcache.h"

#include "store/table/compaction.h"
#include "store/table/introspect.h"
#include "store/table/recluster.h"
#include "store/options/options.h"
#include "store/rows/row_scan.h"
#include "store/rows/row_state.h"
#include "store/rows/write_buffer.h"

PG_FUNCTION_INFO_V1(columnar_recluster);

/* A sort of whole rows by the table's order_by. */
static Tuplesortstate *
begin_sort(Relation relation, const TableOptions *options)
{
	int nkeys = options->norder;
	AttrNumber *attributes = palloc(sizeof(AttrNumber) * nkeys);
	Oid *operators = palloc(sizeof(Oid) * nkeys);
	Oid *collations = palloc(sizeof(Oid) * nkeys);
	bool *nulls_first = palloc(sizeof(bool) * nkeys);

	for (int i = 0; i < nkeys; i++)
	{
		const OrderColumn *column = &options->order[i];
		Form_pg_attribute form = TupleDescAttr(RelationGetDescr(relation), column->attribute - 1);
		TypeCacheEntry *type = lookup_type_cache(form->atttypid,
												 TYPECACHE_LT_OPR | TYPECACHE_GT_OPR);

		attributes[i] = column->attribute;
		operators[i] = column->descending ? type->gt_opr : type->lt_opr;
		collations[i] = form->attcollation;
		nulls_first[i] = column->nulls_first;
	}
	return tuplesort_begin_heap(RelationGetDescr(relation), nkeys, attributes, operators,
								collations, nulls_first, maintenance_work_mem, NULL,
								TUPLESORT_NONE);
}

void
recluster_read_rows(Relation relation, Tuplesortstate *sort, ReclusterPut put)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(relation), &TTSOpsVirtual);
	MemoryContext values = AllocSetContextCreate(CurrentMemoryContext, "row",
												 ALLOCSET_DEFAULT_SIZES);
	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
	RowScan *scan = row_scan_begin(relation, NULL, snapshot, NULL, NULL, NULL);
	RowBatch *batch;

	while ((batch = row_scan_next(scan, ForwardScanDirection)) != NULL)
	{
		for (uint32 i = 0; i < batch->nselected; i++)
		{
			MemoryContext caller = MemoryContextSwitchTo(values);

			row_batch_store(batch, batch->selection[i], NULL, slot);
			MemoryContextSwitchTo(caller);
			put(sort, slot);
			MemoryContextReset(values);
		}
	}
	row_scan_end(scan);
	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(slot);
	MemoryContextDelete(values);
}

typedef struct VectorList
{
	Relation relation;
	ItemPointerData *tids;
	uint32 count;
	uint32 capacity;
} VectorList;

static bool
collect_vector(void *argument, HeapTuple tuple, Buffer buffer, int32 unit, const char *bytes,
			   uint32 length)
{
	VectorList *list = argument;
	RowVector vector;

	row_state_read_vector(&vector, list->relation, (uint32) unit, bytes, length);
	if (vector.action == VECTOR_LOCK ||
		HeapTupleSatisfiesVacuum(tuple, FirstNormalTransactionId, buffer) == HEAPTUPLE_DEAD ||
		!(tuple->t_data->t_infomask & HEAP_XMAX_INVALID))
		return true;
	if (list->count == list->capacity)
	{
		list->capacity *= 2;
		list->tids = repalloc_huge(list->tids, sizeof(ItemPointerData) * list->capacity);
	}
	list->tids[list->count++] = tuple->t_self;
	return true;
}

void
recluster_delete_groups(Relation relation)
{
	GroupCatalog *catalog = group_catalog_open(relation, RowExclusiveLock);
	VectorList vectors = {.capacity = 256};
	uint32 ntuples;
	GroupTuple *tuples = compaction_list(catalog, FirstNormalTransactionId, &ntuples);

	for (uint32 i = 0; i < ntuples; i++)
	{
		const GroupRecord *record = &tuples[i].entry.record;

		if (tuples[i].status != HEAPTUPLE_LIVE &&
			!(tuples[i].status == HEAPTUPLE_INSERT_IN_PROGRESS &&
			  TransactionIdIsCurrentTransactionId(tuples[i].entry.xmin)))
			continue;
		if (!group_catalog_delete(catalog, &tuples[i].entry.tid))
			elog(ERROR, "a row group of \"%s\" was deleted in spite of the lock",
				 RelationGetRelationName(relation));
		if (record->state == GROUP_INLINE)
			group_catalog_delete_parts(catalog, record);
	}
	vectors.tids = palloc(sizeof(ItemPointerData) * vectors.capacity);
	group_catalog_all_vectors(catalog, collect_vector, &vectors);
	for (uint32 i = 0; i < vectors.count; i++)
		group_catalog_delete(catalog, &vectors.tids[i]);
	group_catalog_close(catalog);
}

/* Insert the sorted rows with their index entries; returns how many. */
static int64
write_rows(Relation relation, Tuplesortstate *sort)
{
	TupleTableSlot *sorted = MakeSingleTupleTableSlot(RelationGetDescr(relation),
													  &TTSOpsMinimalTuple);
	EState *estate = CreateExecutorState();
	ResultRelInfo *target = makeNode(ResultRelInfo);
	TupleTableSlot *slot = table_slot_create(relation, NULL);
	CommandId cid = GetCurrentCommandId(true);
	int64 count = 0;

	InitResultRelInfo(target, relation, 1, NULL, 0);
	ExecOpenIndices(target, false);
	while (tuplesort_gettupleslot(sort, true, false, sorted, NULL))
	{
		uint64 row;

		CHECK_FOR_INTERRUPTS();
		ExecCopySlot(slot, sorted);
		row = write_buffer_append(relation, slot, cid, true);
		row_number_to_tid(row, &slot->tts_tid);
		slot->tts_tableOid = RelationGetRelid(relation);
		if (target->ri_NumIndices > 0)
		{
			list_free(compat_insert_index_entries(target, slot, estate));
			ResetPerTupleExprContext(estate);
		}
		count++;
	}
	ExecCloseIndices(target);
	ExecDropSingleTupleTableSlot(slot);
	ExecDropSingleTupleTableSlot(sorted);
	FreeExecutorState(estate);
	return count;
}

Datum
columnar_recluster(PG_FUNCTION_ARGS)
{
	Relation relation = columnar_open_own_table(PG_GETARG_OID(0), ExclusiveLock);
	TableOptions *options = options_of_table(relation);
	Tuplesortstate *sort;
	int64 count;

	PreventCommandIfReadOnly("columnar_recluster()");
	/* triggers that wait for the end of the transaction look for their rows by number */
	CheckTableNotInUse(relation, "recluster");
	if (options->norder == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("columnar table \"%s\" has no order", RelationGetRelationName(relation)),
				 errhint("Set one with strata_columnar.alter_columnar_table_set(table, order_by => "
						 "'column, ...').")));

	write_buffer_flush(relation);
	sort = begin_sort(relation, options);
	recluster_read_rows(relation, sort, tuplesort_puttupleslot);
	tuplesort_performsort(sort);
	recluster_delete_groups(relation);
	CommandCounterIncrement(); /* unique checks must see that the old rows are gone */
	count = write_rows(relation, sort);
	tuplesort_end(sort);
	write_buffer_flush(relation);
	CommandCounterIncrement();
	table_close(relation, NoLock);
	PG_RETURN_INT64(count);
}
