/*
 * serializable.h
 *		A SERIALIZABLE transaction uses one node only.
 */
#ifndef STRATA_SERIALIZABLE_H
#define STRATA_SERIALIZABLE_H

#include "postgres.h"

#include "access/xact.h"

#include "wire/connection.h"
#include "nodes/plannodes.h"

/* A statement is about to be sent: ERROR if it takes a SERIALIZABLE transaction to a second node. */
extern void serializable_check_join(const WorkerConnection *conn);

/* The same for rows of the coordinator that a plan, or a command, reads or writes. */
extern void serializable_check_plan(const PlannedStmt *plan);
extern void serializable_check_relation(Oid relation, bool changes);

/* Called at the ends of transactions, in the order of transaction_end.c. */
extern void serializable_transaction_event(XactEvent event);

#endif
