/*
 * constraint_mode.h
 *		SET CONSTRAINTS reaches the workers, also those that join the transaction later.
 */
#ifndef STRATA_CONSTRAINT_MODE_H
#define STRATA_CONSTRAINT_MODE_H

#include "postgres.h"

#include "access/xact.h"

#include "lib/stringinfo.h"
#include "nodes/parsenodes.h"

/* SET CONSTRAINTS, which has been executed here: now on the workers. */
extern void constraint_mode_set(const ConstraintsSetStmt *statement);

/*
 * Append the commands of one nesting level for a worker that joins the transaction; returns their
 * number.
 */
extern int constraint_mode_append(StringInfo message, int level);

/* Called at the ends of transactions, in the order of transaction_end.c. */
extern void constraint_mode_transaction_event(XactEvent event);
extern void constraint_mode_subtransaction_event(SubXactEvent event);

#endif
