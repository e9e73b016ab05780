/*
 * query_levels.h
 *		What writes a query in other forms: its levels (its own, those in FROM and WITH; not those in expressions), and what they
 *		are made of.
 */
#ifndef STRATA_QUERY_LEVELS_H
#define STRATA_QUERY_LEVELS_H

#include "nodes/parsenodes.h"
#include "nodes/pathnodes.h"

/* A plain aggregate as the parser makes it. */
extern Aggref *query_levels_aggregate(Oid function, Oid type, Node *argument, Oid collation);

/* The part of WITH that an entry (RTE_CTE) of this level's range table reads. */
extern CommonTableExpr *query_levels_find_with(PlannerInfo *root, const RangeTblEntry *rte);

/* Visits all, the innermost first; did one of the visits return true? */
extern bool query_levels_visit(Query *query, bool (*visit)(Query *level));

#endif
