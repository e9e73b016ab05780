/*
 * table_am.h
 *		The table access method `distributed`.
 */
#ifndef STRATA_TABLE_AM_H
#define STRATA_TABLE_AM_H

#include "postgres.h"

/*
 * While this is above zero, scans of shells through the access method return no
 * rows: DDL that scans or rewrites a shell runs on the workers, which have the rows.
 * Whoever raises it lowers it again in PG_FINALLY().
 */
extern int table_am_suspended;

/*
 * The shell that ALTER TABLE ... SET ACCESS METHOD is turning into a heap, else
 * InvalidOid: it needs the TOAST table that the heap will have.
 */
extern Oid table_am_converting;

/*
 * While a TRUNCATE runs, whoever runs it is told of each shell that PostgreSQL empties: the workers are to do so now.
 * Else NULL.
 */
extern void (*table_am_emptied)(Oid relation);

/* The function strata_distributed_handler(internal) RETURNS table_am_handler is in table_am.c. */

#endif
