/*
 * coordinator_mark.h
 *		Is this data directory one of the cluster's coordinators, or a copy of one?
 */
#ifndef STRATA_COORDINATOR_MARK_H
#define STRATA_COORDINATOR_MARK_H

#include "postgres.h"

/* Is there a mark for the current database that a copy would not have brought? */
extern bool coordinator_mark_exists(void);

/* Is there a mark that this server was, or is, a standby fed by its primary? */
extern bool coordinator_mark_was_standby(void);

/* Make one for the current database; durable. */
extern void coordinator_mark_make(void);

extern void coordinator_mark_initialize(void); /* from _PG_init: the process of a standby */

/* Entry point of the process, which PostgreSQL calls by name. */
extern PGDLLEXPORT void coordinator_mark_standby_main(Datum argument);

#endif
