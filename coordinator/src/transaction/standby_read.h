/*
 * standby_read.h
 *		Reads that go to standbys of the workers (strata.read_from), or come from a standby of the coordinator.
 */
#ifndef STRATA_STANDBY_READ_H
#define STRATA_STANDBY_READ_H

#include "access/xact.h"
#include "nodes/bitmapset.h"
#include "nodes/pg_list.h"

/* Does the transaction read standbys?  Decides it, if that has not been done. */
extern bool standby_read_is_active(void);

/* Must who is read be asked before and after?  Some standby has part in it. */
extern bool standby_read_is_checked(void);

/*
 * If so, see to it that these workers, or their standbys, can be read; primaries may stand in for these then, for the rest of the
 * transaction, or that is an ERROR (strata.read_from = 'standby').  To be called before the gate is entered.
 */
extern void standby_read_prepare(const Bitmapset *workers);

/* After that: the wires (list of WorkerConnection, by the workers' ids) to read from, ready to be sent a statement. */
extern List *standby_read_ready(const Bitmapset *workers);

/* A statement has failed under this SQLSTATE: may it be sent again, to primaries if they may stand in? */
extern bool standby_read_accept_failure(int sqlstate);

/* The same for wires to primaries. */
extern void standby_read_prepare_primaries(List *wires);

/*
 * To be called when a statement of the user has read, and before a transaction ends, as procedures end some.  On a standby of the
 * coordinator: ERROR (40001) if one of the servers that were read has a newer schema, so that rows may have been missing.
 */
extern void standby_read_end_statement(void);

extern void standby_read_transaction_event(XactEvent event);

#endif
