/*
 * membership.h
 *		Is this data directory one of the cluster's coordinators, or a copy of one?
 */
#ifndef STRATA_MEMBERSHIP_H
#define STRATA_MEMBERSHIP_H

#include "postgres.h"

/* Is there a mark in this data directory that a backup would not have brought? */
extern bool membership_is_marked(void);

/* Make one for the current database; durable. */
extern void membership_mark(void);

extern void membership_initialize(void); /* from _PG_init: the process of a standby */

/* Entry point of the process, which PostgreSQL calls by name. */
extern PGDLLEXPORT void membership_standby_main(Datum argument);

#endif
