/*
 * gather_retry.h
 *		When a remote statement may be sent again after a worker was lost.
 */
#ifndef STRATA_GATHER_RETRY_H
#define STRATA_GATHER_RETRY_H

#include "execute/gather.h"

typedef struct GatherRetry
{
	int64 deadline; /* until then the worker may come back; 0: nothing was lost yet */
	bool pause;		/* it is not there: wait before the next attempt */
} GatherRetry;

/* Asked before the statement is sent. */
extern bool gather_retry_is_possible(const GatherScanState *state);

/* Does the statement need all rows before it returns one?  Then all workers may be waited for first. */
extern bool gather_retry_may_wait(const GatherScanState *state);

/* An error was caught before the first row: is it one to try again after? */
extern bool gather_retry_accept(GatherRetry *retry, const GatherScanState *state);

/* The error is flushed and the scan forgotten: make the wires free. */
extern void gather_retry_begin(const GatherRetry *retry);

#endif
