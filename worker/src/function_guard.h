/*
 * function_guard.h
 *		Functions of ordinary roles run as their owners while a worker gets its objects.
 */
#ifndef STRATA_WORKER_FUNCTION_GUARD_H
#define STRATA_WORKER_FUNCTION_GUARD_H

extern void function_guard_initialize(void);

/* Begin or end to guard; what was before.  It ends with the transaction anyway. */
extern bool function_guard_switch(bool enable);

extern bool function_guard_is_up(void);

#endif
