/*
 * aggregate.h
 *		Aggregation by batches: the node ColumnarAggregate.
 *
 *		aggregate_plan.c	which queries get it, and its paths
 *		aggregate_exec.c	the node; aggregate_internal.h lists its files
 */
#ifndef COLUMNAR_AGGREGATE_H
#define COLUMNAR_AGGREGATE_H

#include "compat.h"

#include "nodes/extensible.h"

#include "exec/states/vector_aggregate.h"

/* Registers the node and the planner's hook; called by _PG_init(). */
extern void aggregate_initialize(void);

extern const CustomScanMethods aggregate_scan_methods;

/* What an aggregate can be computed from in the place of rows; see aggregate_summary.c. */
typedef struct AggregateSummary
{
	AggregateUse use;
	AttrNumber column; /* of the argument's Var; 0: all rows count */
	Oid collation;
} AggregateSummary;

/* False if it needs each value, or not of a column. */
extern bool aggregate_find_summary(const Aggref *aggref, AggregateSummary *summary);

#endif
