/*
 * retry.h
 *		When a background process tries again what failed on a worker, and what it has complained of.
 */
#ifndef STRATA_RETRY_H
#define STRATA_RETRY_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "nodes/bitmapset.h"
#include "nodes/pg_list.h"
#include "utils/elog.h"

/* The first distance; each further one is twice as long. */
#define RETRY_FIRST_MS 200

/* What is remembered of a worker: the first member of what its user remembers besides. */
typedef struct Retry
{
	int worker_id;
	int distance_ms;				 /* the last one; 0: nothing failed */
	TimestampTz next;				 /* not before, unless nothing failed */
	char complaint[NAMEDATALEN * 4]; /* the error that was told last */
} Retry;

/* The list's entry of the worker, `size` bytes in TopMemoryContext; a new one is zero. */
extern void *retry_find(List **list, int worker_id, Size size);

/* Only these workers are left. */
extern void retry_forget_others(List **list, const Bitmapset *workers);

/* Later each time, up to this distance. */
extern void retry_postpone(Retry *retry, int longest_ms);

/* Has the error not been told yet?  Then it is from now on. */
extern bool retry_is_new_complaint(Retry *retry, const ErrorData *error);

#endif
