/*
 * hold_row.c
 *		Rows of a Gather that core changes one by one.
 *
 * A worker has locked the row, and sent all of its columns, its partition and its tid.  They are held (held_rows.h); what goes on
 * to core's ModifyTable is the number by which it will ask for them.
 */
#include "postgres.h"

#include "access/table.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "cluster/shard_map.h"
#include "execute/hold_row.h"
#include "transaction/held_rows.h"

typedef struct RowHolder
{
	HeldRows *rows;
	const DistributedTable *table;
	TupleTableSlot *row; /* of the table */
	int *columns;		 /* where the table's are in what comes, -1: nowhere */
	int leaf;
	int tid;
	ItemPointerData number; /* of the last row */
} RowHolder;

static RowHolder *
create_holder(GatherScanState *state)
{
	EState *estate = state->css.ss.ps.state;
	MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);
	Relation relation = table_open(state->plan.held_relation, NoLock);
	RowHolder *holder = palloc0(sizeof(RowHolder));
	int natts = RelationGetNumberOfAttributes(relation);
	const List *columns = state->plan.held_columns;

	holder->rows = held_rows_begin(relation, state->plan.held_repeat, state->plan.held_keep);
	holder->table = metadata_table(state->plan.held_relation);
	holder->row = ExecInitExtraTupleSlot(estate, CreateTupleDescCopy(RelationGetDescr(relation)),
										 &TTSOpsVirtual);
	holder->columns = palloc(natts * sizeof(int));
	for (int i = 0; i < natts; i++)
		holder->columns[i] = list_nth_int(columns, i) - 1;
	holder->leaf = list_nth_int(columns, natts) - 1;
	holder->tid = list_nth_int(columns, natts + 1) - 1;
	table_close(relation, NoLock);
	MemoryContextSwitchTo(old);
	return holder;
}

void
hold_row(GatherScanState *state, TupleTableSlot *slot)
{
	RowHolder *holder = state->holder;
	TupleTableSlot *row;
	HeldPlace place = {0};
	int key;

	if (holder == NULL)
		holder = state->holder = create_holder(state);
	row = holder->row;
	ExecClearTuple(row);
	for (int i = 0; i < row->tts_tupleDescriptor->natts; i++)
	{
		int column = holder->columns[i];

		row->tts_isnull[i] = column < 0 || slot->tts_isnull[column];
		row->tts_values[i] = column < 0 ? (Datum) 0 : slot->tts_values[column];
	}
	ExecStoreVirtualTuple(row);
	key = holder->table->key_attribute - 1;
	place.worker_id = shard_map_worker(holder->table->colocation, row->tts_values[key],
									   row->tts_isnull[key]);
	place.leaf = DatumGetObjectId(slot->tts_values[holder->leaf]);
	ItemPointerCopy((ItemPointer) DatumGetPointer(slot->tts_values[holder->tid]), &place.tid);
	held_rows_add(holder->rows, &place, row, &holder->number);
	slot->tts_values[holder->tid] = PointerGetDatum(&holder->number);
}
