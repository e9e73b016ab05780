/*
 * caller.h
 *		As whom the statements of a coordinator run here, and what they may touch.
 */
#ifndef STRATA_WORKER_CALLER_H
#define STRATA_WORKER_CALLER_H

/* Installs the hooks. */
extern void caller_initialize(void);

#endif
