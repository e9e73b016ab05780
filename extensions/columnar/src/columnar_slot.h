/*
 * columnar_slot.h
 *		The slot type of columnar tables: a virtual slot that knows its row's xmin.
 *
 * The executor asks rows for their xmin (INSERT ... ON CONFLICT), users do, too; a
 * plain virtual slot refuses.  The other system columns that a heap row has are 0
 * here: a columnar row's deletion is not kept with the row.
 */
#ifndef COLUMNAR_COLUMNAR_SLOT_H
#define COLUMNAR_COLUMNAR_SLOT_H

#include "postgres.h"

#include "executor/tuptable.h"

typedef struct ColumnarSlot
{
	VirtualTupleTableSlot base;
	TransactionId xmin;
	struct BatchOffer
		*offer; /* rows behind this one that may be taken with it; see batch_offer.h */
} ColumnarSlot;

extern TupleTableSlotOps columnar_slot_ops;

/* Derives columnar_slot_ops from core's virtual slots; called by _PG_init(). */
extern void columnar_slot_initialize(void);

/* Keeps the xmin of the row in the slot; does nothing for slots of other types. */
extern void columnar_slot_set_xmin(TupleTableSlot *slot, TransactionId xmin);

/* What the slot offers besides its row; NULL: nothing. */
static inline struct BatchOffer *
columnar_slot_offer(TupleTableSlot *slot)
{
	return slot->tts_ops == &columnar_slot_ops ? ((ColumnarSlot *) slot)->offer : NULL;
}

static inline void
columnar_slot_set_offer(TupleTableSlot *slot, struct BatchOffer *offer)
{
	Assert(slot->tts_ops == &columnar_slot_ops);
	((ColumnarSlot *) slot)->offer = offer;
}

#endif
