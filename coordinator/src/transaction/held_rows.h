/*
 * held_rows.h
 *		Rows of workers that core's executor changes one by one, or shows to triggers: what their tids stand for.
 *
 * A shell has no rows, and a worker's tid would mean nothing here.  Who brings a row for core to change gives it a number, which
 * looks like a tid; what core asks of the access method about that tid is answered from what is held.
 */
#ifndef STRATA_HELD_ROWS_H
#define STRATA_HELD_ROWS_H

#include "access/xact.h"
#include "executor/tuptable.h"
#include "storage/itemptr.h"
#include "utils/rel.h"

/* Where a row is. */
typedef struct HeldPlace
{
	int worker_id;
	Oid leaf; /* the partition there */
	ItemPointerData tid;
} HeldPlace;

/* The rows that one statement holds of one table. */
typedef struct HeldRows HeldRows;

/*
 * may_repeat: the statement may bring a row several times, of which only the first change counts.  keep: core may ask for a row
 * after the next one has come, and several times.
 */
extern HeldRows *held_rows_begin(Relation relation, bool may_repeat, bool keep);

/* Hold a row; tid gets its number. */
extern void
held_rows_add(HeldRows *rows, const HeldPlace *place, TupleTableSlot *slot, ItemPointer tid);

/*
 * A new row, stored here by nobody: held for AFTER ROW triggers of the event (TRIGGER_TYPE_...) alone.  Without such triggers
 * nothing is held, and tid becomes invalid.
 */
extern void
held_rows_add_new(Relation relation, int16 event, TupleTableSlot *slot, ItemPointer tid);

/* The row of that number; false if the table has none. */
extern bool held_rows_fetch(Relation relation, const ItemPointerData *tid, TupleTableSlot *slot);

/*
 * Where a row to be changed is; NULL: nowhere, it is no such row.  *changed_by: the command that has changed it already, else
 * InvalidCommandId.
 */
extern const HeldPlace *
held_rows_place(Relation relation, const ItemPointerData *tid, CommandId *changed_by);

/* The command changes it. */
extern void held_rows_note_change(Relation relation, const ItemPointerData *tid, CommandId cid);

/* Does a statement of this depth hold any? */
extern bool held_rows_exist(int depth);

/* A statement of this depth has ended, and its triggers have been fired but for deferred ones. */
extern void held_rows_end_statement(int depth);

extern void held_rows_transaction_event(XactEvent event);
extern void
held_rows_subtransaction_event(SubXactEvent event, SubTransactionId mine, SubTransactionId parent);

#endif
