/*
 * query_levels.h
 *		The levels of a query: its own, those in FROM and WITH; not those in expressions.
 */
#ifndef STRATA_QUERY_LEVELS_H
#define STRATA_QUERY_LEVELS_H

#include "nodes/parsenodes.h"

/* Visits all, the innermost first; did one of the visits return true? */
extern bool query_levels_visit(Query *query, bool (*visit)(Query *level));

#endif
