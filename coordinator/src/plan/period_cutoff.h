/*
 * period_cutoff.h
 *		Rows before a table's cut-off do not exist: for any statement, from one moment on.
 */
#ifndef STRATA_PERIOD_CUTOFF_H
#define STRATA_PERIOD_CUTOFF_H

#include "postgres.h"

#include "executor/execdesc.h"
#include "nodes/parsenodes.h"

#include "cluster/metadata.h"

/* Before planning: the query, with the cut-offs of all its tables among its conditions. */
extern void period_cutoff_apply(Query *query);

/* The condition as SQL, "" when the table has no cut-off. */
extern char *period_cutoff_condition(const DistributedTable *table);

#endif
