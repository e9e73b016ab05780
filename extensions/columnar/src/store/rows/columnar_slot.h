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
#include "utils/relcache.h"

/*
 * Rows that go on behind the slot's: take() appends them to the table's write buffer, up to the first that
 * the table has to refuse, and returns how many.  First member of what its owner knows of them.
 */
typedef struct SlotOffer SlotOffer;
struct SlotOffer
{
	uint32 (*take)(SlotOffer *offer, Relation relation, CommandId cid);
};

typedef struct ColumnarSlot
{
	VirtualTupleTableSlot base;
	TransactionId xmin;
	SlotOffer *offer; /* rows behind this one that may be taken with it; NULL: none */
} ColumnarSlot;

extern TupleTableSlotOps columnar_slot_ops;

/* Derives columnar_slot_ops from core's virtual slots; called by _PG_init(). */
extern void columnar_slot_initialize(void);

/* Keeps the xmin of the row in the slot; does nothing for slots of other types. */
extern void columnar_slot_set_xmin(TupleTableSlot *slot, TransactionId xmin);

/* The slot's row was appended to the table's write buffer: takes what it offers besides. */
static inline uint32
columnar_slot_take_offer(TupleTableSlot *slot, Relation relation, CommandId cid)
{
	SlotOffer *offer = slot->tts_ops == &columnar_slot_ops ? ((ColumnarSlot *) slot)->offer : NULL;

	return offer ? offer->take(offer, relation, cid) : 0;
}

static inline void
columnar_slot_set_offer(TupleTableSlot *slot, SlotOffer *offer)
{
	Assert(slot->tts_ops == &columnar_slot_ops);
	((ColumnarSlot *) slot)->offer = offer;
}

#endif
