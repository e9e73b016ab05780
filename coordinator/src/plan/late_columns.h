/*
 * late_columns.h
 *		Columns that depend on a key among the groups, fetched for the groups in place of grouped by.
 */
#ifndef STRATA_LATE_COLUMNS_H
#define STRATA_LATE_COLUMNS_H

#include "nodes/parsenodes.h"

/* Might this level of a query (query_levels.h) have such columns? */
extern bool late_columns_may_apply(Query *level);

/*
 * Rewrites the level in place: give it a copy if the original is needed.  False if nothing changed.
 * The result is for the planner.
 */
extern bool late_columns_rewrite(Query *level);

#endif
