/*
 * pending_rows.c
 *		Rows and changes of rows of the transaction that no worker has been sent yet.
 */
#include "postgres.h"

#include "transaction/pending_rows.h"

#define MAX_KEEPERS 2

/* In the order of their registration. */
static struct
{
	void (*flush)(void);
	void (*reset)(void);
} keepers[MAX_KEEPERS];
static int keeper_count = 0;

void
pending_rows_register(void (*flush)(void), void (*reset)(void))
{
	Assert(keeper_count < MAX_KEEPERS);
	keepers[keeper_count].flush = flush;
	keepers[keeper_count++].reset = reset;
}

void
pending_rows_flush(void)
{
	for (int i = 0; i < keeper_count; i++)
		keepers[i].flush();
}

void
pending_rows_reset(void)
{
	for (int i = 0; i < keeper_count; i++)
		keepers[i].reset();
}
