/*
 * columnar_slot.c
 *		Virtual slots with an xmin: see columnar_slot.h.
 */
#include "store/rows/columnar_slot.h"

#include "access/sysattr.h"
#include "access/transam.h"
#include "access/xact.h"

#include "compat.h"

TupleTableSlotOps columnar_slot_ops;

static Datum
get_system_attribute(TupleTableSlot *slot, int attribute, bool *isnull)
{
	ColumnarSlot *columnar = (ColumnarSlot *) slot;

	*isnull = false;
	switch (attribute)
	{
		case MinTransactionIdAttributeNumber:
			return TransactionIdGetDatum(columnar->xmin);
		case MaxTransactionIdAttributeNumber:
			return TransactionIdGetDatum(InvalidTransactionId);
		case MinCommandIdAttributeNumber:
		case MaxCommandIdAttributeNumber:
			return CommandIdGetDatum(FirstCommandId);
		default:
			elog(ERROR, "invalid system attribute number %d", attribute);
	}
	pg_unreachable();
}

/* Was the row inserted by this transaction?  Asked since 17 where earlier versions read xmin. */
static pg_attribute_unused() bool is_of_current_transaction(TupleTableSlot *slot)
{
	return TransactionIdIsCurrentTransactionId(((ColumnarSlot *) slot)->xmin);
}

/* A copy that knows where its row is, as ANALYZE needs: it puts its sample into physical order. */
static HeapTuple
copy_heap_tuple(TupleTableSlot *slot)
{
	HeapTuple tuple = TTSOpsVirtual.copy_heap_tuple(slot);

	tuple->t_self = slot->tts_tid;
	tuple->t_tableOid = slot->tts_tableOid;
	return tuple;
}

void
columnar_slot_initialize(void)
{
	columnar_slot_ops = TTSOpsVirtual;
	columnar_slot_ops.base_slot_size = sizeof(ColumnarSlot);
	columnar_slot_ops.copy_heap_tuple = copy_heap_tuple;
	columnar_slot_ops.getsysattr = get_system_attribute;
	compat_slot_set_is_current(columnar_slot_ops, is_of_current_transaction);
}

void
columnar_slot_set_xmin(TupleTableSlot *slot, TransactionId xmin)
{
	if (slot->tts_ops == &columnar_slot_ops)
		((ColumnarSlot *) slot)->xmin = xmin;
}
