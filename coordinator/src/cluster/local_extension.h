/*
 * local_extension.h
 *		Extensions that only the coordinator has: setting strata.local_extensions.
 */
#ifndef STRATA_LOCAL_EXTENSION_H
#define STRATA_LOCAL_EXTENSION_H

#include "postgres.h"

/* Defines the setting; from _PG_init. */
extern void local_extension_initialize(void);

/* Is the object a member of such an extension? */
extern bool local_extension_has(Oid classid, Oid objectid);

/* Is the extension created, altered and dropped on this server alone? */
extern bool local_extension_stays(const char *name);

#endif
