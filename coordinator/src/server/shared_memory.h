/*
 * shared_memory.h
 *		The extension's parts of shared memory, requested and made by one pair of hooks.
 */
#ifndef STRATA_SHARED_MEMORY_H
#define STRATA_SHARED_MEMORY_H

#include "postgres.h"

/*
 * From _PG_init: request() is called when sizes and lock tranches are asked for, create() when
 * the memory is there, with AddinShmemInitLock held; also in processes that only attach.
 * ERROR unless the library is loaded at the start of the server.
 */
extern void shared_memory_register(void (*request)(void), void (*create)(void));

#endif
