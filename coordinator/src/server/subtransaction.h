/*
 * subtransaction.h
 *		What may fail without the transaction that it belongs to.
 */
#ifndef STRATA_SUBTRANSACTION_H
#define STRATA_SUBTRANSACTION_H

#include "postgres.h"

/*
 * Call work(argument) in a subtransaction.  NULL, or the error that it ended with, when all that it did is
 * rolled back.  A cancelled statement is an error like any other: whoever must not go on throws it again.
 * Both the error and what `work` allocates are in the caller's CurrentMemoryContext.
 */
extern ErrorData *subtransaction_try(void (*work)(void *argument), void *argument);

#endif
