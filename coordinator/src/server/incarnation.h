/*
 * incarnation.h
 *		What tells this run of the server from all others.
 */
#ifndef STRATA_INCARNATION_H
#define STRATA_INCARNATION_H

#include "postgres.h"

/* 63 random bits, drawn when the server started. */
extern uint64 incarnation_get(void);

extern void incarnation_initialize(void); /* from _PG_init: shared memory */

#endif
