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

/* Registers the node and the planner's hook; called by _PG_init(). */
extern void aggregate_initialize(void);

extern const CustomScanMethods aggregate_scan_methods;

#endif
