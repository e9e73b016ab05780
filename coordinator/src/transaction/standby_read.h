/*
 * standby_read.h
 *		Reads go to standbys of the workers: strata.read_from.
 */
#ifndef STRATA_STANDBY_READ_H
#define STRATA_STANDBY_READ_H

#include "access/xact.h"
#include "nodes/bitmapset.h"
#include "nodes/pg_list.h"

/* Does the transaction read standbys?  Decides it, if that has not been done. */
extern bool standby_read_is_active(void);

/*
 * If it does, see to it that those of these workers can be read; primaries may stand in then, for the rest of the transaction, or
 * that is an ERROR (strata.read_from = 'standby').  To be called before the gate is entered.
 */
extern void standby_read_prepare(const Bitmapset *workers);

/* After that: the wires (list of WorkerConnection, by the workers' ids) to read from, ready to be sent a statement. */
extern List *standby_read_ready(const Bitmapset *workers);

/* A statement has failed under this SQLSTATE: may it be sent again, to primaries if they may stand in? */
extern bool standby_read_accept_failure(int sqlstate);

extern void standby_read_transaction_event(XactEvent event);

#endif
