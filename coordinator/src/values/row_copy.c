/*
 * row_copy.c
 *		A copy of a row that is kept beyond the statement's snapshot; see row_copy.h.
 *
 * A value may be a pointer into the TOAST table that the row was read from.  It is good as long as a snapshot holds
 * what it points to; rows that wait to be sent, or for deferred triggers, outlive that in a procedure
 * that commits, and in the next statement of a transaction.
 */
#include "postgres.h"

#include "access/detoast.h"

#include "compat.h"
#include "values/row_copy.h"

static bool
is_out_of_line(TupleTableSlot *slot, int column)
{
	return TupleDescAttr(slot->tts_tupleDescriptor, column)->attlen == -1 &&
		   !slot->tts_isnull[column] &&
		   VARATT_IS_EXTERNAL(DatumGetPointer(slot->tts_values[column]));
}

MinimalTuple
row_copy(TupleTableSlot *slot)
{
	TupleDesc desc = slot->tts_tupleDescriptor;
	TupleTableSlot *whole;
	MinimalTuple copy;
	int first = 0;

	slot_getallattrs(slot);
	while (first < desc->natts && !is_out_of_line(slot, first))
		first++;
	if (first == desc->natts)
		return ExecCopySlotMinimalTuple(slot);

	whole = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
	memcpy(whole->tts_isnull, slot->tts_isnull, desc->natts * sizeof(bool));
	for (int i = 0; i < desc->natts; i++)
	{
		Datum value = slot->tts_values[i];

		if (is_out_of_line(slot, i))
			value = PointerGetDatum(
				detoast_external_attr((struct varlena *) DatumGetPointer(value)));
		whole->tts_values[i] = value;
	}
	ExecStoreVirtualTuple(whole);
	copy = ExecCopySlotMinimalTuple(whole);
	for (int i = first; i < desc->natts; i++)
		if (whole->tts_values[i] != slot->tts_values[i])
			pfree(DatumGetPointer(whole->tts_values[i]));
	ExecDropSingleTupleTableSlot(whole);
	return copy;
}
