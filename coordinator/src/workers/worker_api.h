/*
 * worker_api.h
 *		Workers by name, for SQL functions.
 */
#ifndef STRATA_WORKER_API_H
#define STRATA_WORKER_API_H

/* Id of the worker; ERROR when there is none of this name. */
extern int worker_api_find(const char *name);

#endif
