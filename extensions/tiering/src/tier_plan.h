/*
 * tier_plan.h
 *		The moves that the policies of this database ask for.
 */
#ifndef STRATA_TIER_PLAN_H
#define STRATA_TIER_PLAN_H

#include "compat.h"

/* From _PG_init(): the parameters. */
extern void tier_plan_initialize(void);

#endif
