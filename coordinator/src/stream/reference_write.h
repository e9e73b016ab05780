/*
 * reference_write.h
 *		Changes of reference tables on their way to the workers' copies.
 *
 * The SQL function is strata.replicate_reference_row(), symbol
 * strata_replicate_reference_row: an AFTER INSERT OR UPDATE OR DELETE FOR EACH ROW
 * trigger of each reference table on the coordinator.
 */
#ifndef STRATA_REFERENCE_WRITE_H
#define STRATA_REFERENCE_WRITE_H

#include "postgres.h"

#include "access/xact.h"

#include "commands/trigger.h"
#include "cluster/metadata.h"

/* Send the collected changes and wait for the workers; cheap when there are none. */
extern void reference_write_flush(void);

/* The reference table of a trigger; ERROR unless the trigger is one of those that keep its copies in step. */
extern const DistributedTable *reference_write_trigger_table(const TriggerData *trigger);

/* Called at the ends of transactions, in the order of transaction_end.c. */
extern void reference_write_transaction_event(XactEvent event);
extern void reference_write_subtransaction_event(SubXactEvent event);

#endif
