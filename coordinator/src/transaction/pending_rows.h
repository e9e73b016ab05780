/*
 * pending_rows.h
 *		Rows and changes of rows of the transaction that no worker has been sent yet.
 *
 * They must be there before anything is read on workers, before a savepoint is set or released, and at the end of a
 * statement and of the transaction.  stream/remote_insert.c and stream/row_change.c keep them.
 */
#ifndef STRATA_PENDING_ROWS_H
#define STRATA_PENDING_ROWS_H

/* Send everything and wait until the workers have confirmed it; raises their errors. */
extern void pending_rows_flush(void);

/* Forget them (abort).  Throws nothing. */
extern void pending_rows_reset(void);

/* From _PG_init: who keeps them. */
extern void pending_rows_register(void (*flush)(void), void (*reset)(void));

#endif
