/*
 * vector_aggregate_final.h
 *		Results of aggregates from the states of a VectorAggregate, as core's Agg node
 *		computes them.
 */
#ifndef COLUMNAR_VECTOR_AGGREGATE_FINAL_H
#define COLUMNAR_VECTOR_AGGREGATE_FINAL_H

#include "exec/states/vector_aggregate.h"

typedef struct VectorFinal VectorFinal;

/*
 * `aggref`: the whole aggregate (AGGSPLIT_SIMPLE), whose transition `states` does.  ERROR if
 * the user may not execute it.  Memory: the current context.
 */
extern VectorFinal *
vector_final_create(const Aggref *aggref, VectorAggregate *states, PlanState *parent);

/* The result of a group, in the current memory context. */
extern Datum vector_final_value(VectorFinal *final, uint32 group, bool *isnull);

#endif
