/*
 * join.h
 *		Hash joins by batches: the node ColumnarJoin.
 *
 *		join_plan.c		which joins get it, and its paths; see join_path.h
 *		join_exec.c		the node; join_internal.h lists its files
 *
 * One side is read first and kept ("build"), the other is looked up in it ("probe").
 */
#ifndef COLUMNAR_JOIN_H
#define COLUMNAR_JOIN_H

#include "compat.h"

#include "nodes/execnodes.h"
#include "nodes/extensible.h"
#include "nodes/pathnodes.h"

typedef enum JoinKind
{
	JOIN_KIND_INNER,
	JOIN_KIND_PROBE_OUTER, /* and probe rows that have no partner, with NULLs for the other side */
	JOIN_KIND_BUILD_OUTER, /* and build rows that have no partner */
	JOIN_KIND_FULL,		   /* and both */
	JOIN_KIND_PROBE_SEMI,  /* probe rows that have a partner */
	JOIN_KIND_PROBE_ANTI,  /* probe rows that have none */
	JOIN_KIND_BUILD_SEMI,  /* build rows that have a partner */
	JOIN_KIND_BUILD_ANTI   /* build rows that have none */
} JoinKind;

/*
 * The plan.  custom_scan_tlist: the columns (Vars; or relabelled ones, see join_clause.c) of both
 * sides that the node needs; a column's number is its resno.  The column of a semi-join's inner
 * side that nodes above ask for is one of the outer side.  custom_exprs, in terms of these: the keys of the probe side, as
 * many of the build side, join conditions (ON, without the keys), other conditions (WHERE
 * above an outer join).  custom_plans: the probe side's children, then the build side's.
 * custom_private is a list of:
 */
typedef enum JoinPrivate
{
	JOIN_PRIVATE_NUMBERS, /* integers, see below */
	JOIN_PRIVATE_PROBE, /* for each child of the probe side: integers, its column by column - 1 of the node; 0: of the other side */
	JOIN_PRIVATE_BUILD	/* the same of the build side */
} JoinPrivate;

typedef enum JoinNumber
{
	JOIN_NUMBER_KIND,
	JOIN_NUMBER_KEYS,	   /* of each side */
	JOIN_NUMBER_CONDITIONS /* join conditions */
} JoinNumber;

/* Registers the node and the planner's hook; called by _PG_init(). */
extern void join_initialize(void);

extern const CustomScanMethods join_scan_methods;

#endif
