/*
 * dropped_names.h
 *		Names of distributed tables that this session has dropped.
 */
#ifndef STRATA_DROPPED_NAMES_H
#define STRATA_DROPPED_NAMES_H

#include "utils/relcache.h"

/* A distributed or reference table is being dropped. */
extern void dropped_names_note(Oid relation);

/* A table has got its name: NOTICE if it is a local one in place of a dropped one of ours. */
extern void dropped_names_check(Oid relation);

#endif
