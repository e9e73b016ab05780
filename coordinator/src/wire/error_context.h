/*
 * error_context.h
 *		What of a worker's error is for the client, and what for this server's log.
 */
#ifndef STRATA_ERROR_CONTEXT_H
#define STRATA_ERROR_CONTEXT_H

#include "postgres.h"

/*
 * Sets DETAIL and CONTEXT of the error that is being built.  The client gets the worker's name and what the
 * worker said; the log here also what it was sent (`sql`), with all values.  `detail` and `context` are the
 * worker's, or NULL.
 */
extern int error_context_set(const char *worker_name, const char *detail, const char *context,
							 const char *sql);

#endif
