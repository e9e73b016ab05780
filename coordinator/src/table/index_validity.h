/*
 * index_validity.h
 *		Which indexes of shells count as valid.
 */
#ifndef STRATA_INDEX_VALIDITY_H
#define STRATA_INDEX_VALIDITY_H

#include "postgres.h"

#include "access/xact.h"

#include "nodes/pg_list.h"

/* Say in the catalog whether the index may be used.  ERROR if it was dropped meanwhile. */
extern void index_validity_set(Oid index, bool valid);

/* PostgreSQL builds this invalid index of a shell, after which it would call it valid. */
extern void index_validity_note_rebuilt(Oid index);

/* What was noted is invalid again. */
extern void index_validity_restore(void);

/* Called at the ends of transactions, in the order of transaction_end.c. */
extern void index_validity_transaction_event(XactEvent event);

#endif
