/*
 * pending_rows.c
 *		Rows of the transaction that no worker has been sent yet.
 */
#include "postgres.h"

#include "transaction/pending_rows.h"

static void (*flush_rows)(void) = NULL;
static void (*reset_rows)(void) = NULL;

void
pending_rows_register(void (*flush)(void), void (*reset)(void))
{
	flush_rows = flush;
	reset_rows = reset;
}

void
pending_rows_flush(void)
{
	flush_rows();
}

void
pending_rows_reset(void)
{
	reset_rows();
}
