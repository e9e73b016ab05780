/*
 * row_change.h
 *		Changes of single rows on their way to the workers that have them.
 *
 * The rows are locked there (transaction/held_rows.h says where).  They are flushed with the transaction's other pending
 * rows (transaction/pending_rows.h).
 */
#ifndef STRATA_ROW_CHANGE_H
#define STRATA_ROW_CHANGE_H

#include "executor/tuptable.h"
#include "transaction/held_rows.h"

/* Change the row from `old` to `new`, slots of the table; it moves if it belongs to another shard then. */
extern void row_change_update(Relation relation, const HeldPlace *place, TupleTableSlot *old,
							  TupleTableSlot *new);
extern void row_change_delete(Relation relation, const HeldPlace *place);

/* Send them and wait until the workers have confirmed them; raises their errors. */
extern void row_change_flush(void);

/* A statement has run, and its triggers are to be fired: the same, if it has changed rows. */
extern void row_change_end_statement(void);

/* Forget them (abort). */
extern void row_change_reset(void);

#endif
