/*
 * membership.h
 *		Is this data directory one of the cluster's coordinators, or a copy of one?
 */
#ifndef STRATA_MEMBERSHIP_H
#define STRATA_MEMBERSHIP_H

#include "postgres.h"

/* Is there a mark for the current database that a copy would not have brought? */
extern bool membership_is_marked(void);

/* Is there a mark that this server was, or is, a standby fed by its primary? */
extern bool membership_was_standby(void);

/* Make one for the current database; durable. */
extern void membership_mark(void);

extern void membership_initialize(void); /* from _PG_init: the process of a standby */

/* Entry point of the process, which PostgreSQL calls by name. */
extern PGDLLEXPORT void membership_standby_main(Datum argument);

#endif
