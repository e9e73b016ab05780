/*
 * partial_aggregate.h
 *		The aggregates of schema strata_partial, which return transition states.
 */
#ifndef STRATA_PARTIAL_AGGREGATE_H
#define STRATA_PARTIAL_AGGREGATE_H

#include "nodes/nodes.h"
#include "nodes/primnodes.h"

/* The partial twin of an aggregate, InvalidOid when it has none. */
extern Oid partial_aggregate_lookup(Oid aggregate);

/* Does every Aggref in the expression (or List) have a partial twin and no DISTINCT, ORDER BY or WITHIN GROUP? */
extern bool partial_aggregate_possible(Node *expr);

/* Has every Aggref in it the same value on all workers, whose copies of a reference table have other orders? */
extern bool partial_aggregate_same_on_copies(Node *expr);

/* Has every Aggref in it the same value whatever the order of rows? (Users' own ones are not known.) */
extern bool partial_aggregate_ignores_order(Node *expr);

/*
 * An Aggref that core marked AGGSPLIT_INITIAL_SERIAL as a call of its twin;
 * others are returned as they are.  Modifies its argument.
 */
extern Aggref *partial_aggregate_rename(Aggref *aggref);

/* A copy of the expression, or List, whose aggregates of this kind have no DISTINCT. */
extern Node *partial_aggregate_undistinct(Node *expr, AggSplit split);

#endif
