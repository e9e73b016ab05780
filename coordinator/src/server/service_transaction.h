/*
 * service_transaction.h
 *		Transactions of the tasks that run in the background.
 *
 * A task begins and ends within a transaction with an active snapshot (launcher.h).  One that does
 * several things commits each for itself, and begins anew after an error.
 */
#ifndef STRATA_SERVICE_TRANSACTION_H
#define STRATA_SERVICE_TRANSACTION_H

extern void service_transaction_begin(void);

/* Commit what the task has done so far. */
extern void service_transaction_next(void);

/* Wait for no lock longer than this, in milliseconds, until the task commits. */
extern void service_transaction_limit_waits(int timeout);

#endif
