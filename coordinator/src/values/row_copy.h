/*
 * row_copy.h
 *		A copy of a row that is kept beyond the statement's snapshot.
 */
#ifndef STRATA_ROW_COPY_H
#define STRATA_ROW_COPY_H

#include "postgres.h"

#include "executor/tuptable.h"

/* In the current memory context; every value is whole, also those that the row has out of line. */
extern MinimalTuple row_copy(TupleTableSlot *slot);

#endif
