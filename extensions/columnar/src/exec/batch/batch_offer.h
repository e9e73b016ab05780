/*
 * batch_offer.h
 *		Rows that go from a plan into a table by batches.
 *
 * INSERT ... SELECT, CREATE TABLE AS and REFRESH MATERIALIZED VIEW ask the plan for one row after
 * the other and give each to table_tuple_insert().  A node that has batches returns such a row in a
 * slot that offers the rows behind it: a columnar table takes them column by column, as far as core
 * would let them pass, and the node goes on behind those.  Every other table
 * inserts the row, and gets the next as it always did.  So core does all that is done
 * once for a statement, and what is done for a row to the first of a batch, and to the first
 * that it has to refuse.
 */
#ifndef COLUMNAR_BATCH_OFFER_H
#define COLUMNAR_BATCH_OFFER_H

#include "exec/batch/batch_source.h"

#include "commands/explain.h"

/* Installs the hook that finds the nodes which offer; called by _PG_init(). */
extern void batch_offer_initialize(void);

/* The next row of a node whose source->offer is set: in the place of its own way to return rows. */
extern TupleTableSlot *batch_offer_next(BatchSource *source);

extern void batch_offer_explain(const BatchSource *source, ExplainState *es);

#endif
