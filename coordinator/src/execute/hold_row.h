/*
 * hold_row.h
 *		Rows of a Gather that core changes one by one.
 */
#ifndef STRATA_HOLD_ROW_H
#define STRATA_HOLD_ROW_H

#include "execute/gather.h"

/* Hold the row that has come, and put its number into the slot. */
extern void hold_row(GatherScanState *state, TupleTableSlot *slot);

#endif
