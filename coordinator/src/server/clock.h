/*
 * clock.h
 *		Time for deadlines.
 */
#ifndef STRATA_CLOCK_H
#define STRATA_CLOCK_H

#include "postgres.h"

#include "portability/instr_time.h"

/* Milliseconds on a clock that never jumps. */
static inline int64
clock_now(void)
{
	instr_time now;

	INSTR_TIME_SET_CURRENT(now);
	return (int64) INSTR_TIME_GET_MILLISEC(now);
}

#endif
