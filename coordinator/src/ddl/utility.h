/*
 * utility.h
 *		Utility commands (everything but SELECT, INSERT, UPDATE, DELETE, MERGE).
 */
#ifndef STRATA_UTILITY_H
#define STRATA_UTILITY_H

#include "postgres.h"

#include "access/xact.h"

extern void utility_initialize(void); /* from _PG_init: ProcessUtility and object access hooks */

/* Called at the ends of transactions, in the order of transaction_end.c. */
extern void utility_transaction_event(XactEvent event);

#endif
