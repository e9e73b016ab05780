/*
 * deadlock.h
 *		Deadlocks over several nodes are found and ended.
 */
#ifndef STRATA_DEADLOCK_H
#define STRATA_DEADLOCK_H

#include "postgres.h"

/*
 * A task of the maintenance worker: ends the deadlocks that no node sees by itself.  Does nothing
 * while no session waits for long.
 */
extern void deadlock_detect(void);

/* When deadlock_detect() is to run next, in milliseconds; asked again when a session begins to wait. */
extern int deadlock_interval(void);

#endif
