/*
 * standby_read.h
 *		Reads go to standbys of the workers: strata.read_from.
 */
#ifndef STRATA_STANDBY_READ_H
#define STRATA_STANDBY_READ_H

#include "access/xact.h"
#include "nodes/bitmapset.h"
#include "nodes/pg_list.h"

/* A utility command of the client begins; does it only run a query, which the executor starts then? */
extern void standby_read_begin_command(bool runs_query);

/*
 * The executor starts a query, of the client if no statement runs yet or such a command.  `alone`: it only reads, and is all that its
 * transaction does.
 */
extern void standby_read_begin_query(bool outermost, bool alone);

/*
 * Decide where what is read next on these workers comes from, and see to it that their standbys can be read.  ERROR if they
 * cannot, and may not be done without (strata.read_from = 'standby').  To be called before the gate is entered.
 */
extern void standby_read_prepare(const Bitmapset *workers);

/* What was decided. */
extern bool standby_read_is_active(void);

/* The wires (list of WorkerConnection, by the workers' ids) to read from, ready to be sent a statement. */
extern List *standby_read_ready(const Bitmapset *workers);

/* A statement has failed under this SQLSTATE: may it be sent again, to primaries if they may stand in? */
extern bool standby_read_accept_failure(int sqlstate);

extern void standby_read_transaction_event(XactEvent event);

#endif
