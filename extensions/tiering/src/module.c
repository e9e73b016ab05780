/*
 * module.c
 *		The library's entry.
 */
#include "compat.h"

#include "fmgr.h"
#include "utils/guc.h"

#include "heat.h"
#include "tier_plan.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	heat_initialize();
	tier_plan_initialize();
	MarkGUCPrefixReserved("strata_tiering");
}
