/*
 * heat.h
 *		How much of each row group queries read, decaying with time.
 */
#ifndef STRATA_HEAT_H
#define STRATA_HEAT_H

#include "compat.h"

/* From _PG_init. */
extern void heat_initialize(void);

#endif
