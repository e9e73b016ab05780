/*
 * module.c
 *		The library's entry.
 */
#include "compat.h"

#include "fmgr.h"
#include "utils/guc.h"

#include "heat.h"
#include "tier_plan.h"

COMPAT_MODULE_MAGIC("strata_tiering");

extern PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	heat_initialize();
	tier_plan_initialize();
	MarkGUCPrefixReserved("strata_tiering");
}
