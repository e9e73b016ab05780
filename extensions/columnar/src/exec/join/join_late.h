/*
 * join_late.h
 *		Nested loops that become hash joins when there are too many outer rows.
 *
 *		ColumnarLateJoin
 *		  -> the outer side				is read into memory, up to a number of rows
 *		  -> Nested Loop				if these were all of them, over
 *			   -> ColumnarLateRows		   those rows, and
 *			   -> look-ups of the inner side
 *		  -> ColumnarJoin				if not: the inner side is read once, and finds its partners among
 *			   -> ColumnarScan
 *			   -> ColumnarLateRows		   those rows and the rest of the outer side
 *
 *		join_late_plan.c	which loops, and from how many rows on
 *		join_late_exec.c	both nodes
 */
#ifndef COLUMNAR_JOIN_LATE_H
#define COLUMNAR_JOIN_LATE_H

#include "compat.h"

#include "nodes/extensible.h"
#include "nodes/pathnodes.h"

/* custom_plans of a ColumnarLateJoin; its custom_private is the number of rows up to which the loop is taken. */
typedef enum LateChild
{
	LATE_CHILD_OUTER,
	LATE_CHILD_LOOP,
	LATE_CHILD_HASH
} LateChild;

/* Registers the nodes; called by join_initialize(). */
extern void join_late_initialize(void);

/* For set_join_pathlist_hook, behind join_risk.c: the join's loops over columnar look-ups are chosen late. */
extern void
join_late_replace_loops(PlannerInfo *root, RelOptInfo *joined, RelOptInfo *outer, RelOptInfo *inner,
						JoinType type, const JoinPathExtraData *extra);

extern const CustomScanMethods join_late_scan_methods;
extern const CustomScanMethods join_late_rows_scan_methods;

#endif
