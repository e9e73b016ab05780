/*
 * local_extension.h
 *		Extensions that only the coordinator has: setting strata.local_extensions; and which are ours.
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

/* Our extensions on a worker, ended by NULL; and the version of ours here, which is theirs, too. */
extern const char *const local_extension_parts[];
extern char *local_extension_own_version(void);

#endif
