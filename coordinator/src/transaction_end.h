/*
 * transaction_end.h
 *		What happens at the ends of transactions and subtransactions, in order.
 */
#ifndef STRATA_TRANSACTION_END_H
#define STRATA_TRANSACTION_END_H

extern void transaction_end_initialize(void); /* from _PG_init */

#endif
