/*
 * deadlock.h
 *		Deadlocks over several nodes are found and ended.
 */
#ifndef STRATA_DEADLOCK_H
#define STRATA_DEADLOCK_H

#include "postgres.h"

/*
 * A task of the maintenance worker, in a transaction of its own as superuser: ends the deadlocks
 * that no node sees by itself.  Cheap when no session waits for long.  Returns the number of
 * sessions that were given an error.
 */
extern int deadlock_detect(void);

/* How often deadlock_detect() is to run, in milliseconds. */
extern int deadlock_interval(void);

#endif
