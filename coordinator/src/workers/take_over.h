/*
 * take_over.h
 *		Which coordinator has the workers.
 */
#ifndef STRATA_TAKE_OVER_H
#define STRATA_TAKE_OVER_H

#include "postgres.h"

#include "access/xact.h"

/* A task of the maintenance worker. */
extern int take_over_interval_ms(void);
extern void take_over_run(void);

/* Called at the ends of transactions, in the order of transaction_end.c. */
extern void take_over_transaction_event(XactEvent event);

#endif
