/*
 * topn.h
 *		ORDER BY ... LIMIT by batches: the node ColumnarTopN.
 *
 *		topn_plan.c		which queries get it, and its paths
 *		topn_exec.c		the node
 *		topn_rank.c		the best rows so far, by their sort keys
 *		topn_filter.c	which rows of a batch can be among these
 *		topn_explain.c	what EXPLAIN says about the node
 */
#ifndef COLUMNAR_TOPN_H
#define COLUMNAR_TOPN_H

#include "compat.h"

#include "nodes/extensible.h"

/*
 * The plan.  custom_scan_tlist: the columns (Vars) that the node reads; a column's number is its
 * resno.  custom_exprs: the sort keys, in terms of these.  custom_private is a list of:
 */
typedef enum TopnPrivate
{
	TOPN_PRIVATE_COLUMNS,	/* for each child: integers, its column by column - 1 of the node */
	TOPN_PRIVATE_OPERATORS, /* OIDs, for each key */
	TOPN_PRIVATE_NULLS,		/* integers: do NULLs come first? */
	TOPN_PRIVATE_NUMBERS	/* integers, see below */
} TopnPrivate;

typedef enum TopnNumber
{
	TOPN_NUMBER_BOUND,	 /* so many rows are wanted */
	TOPN_NUMBER_BACKWARD /* children, and their rows, are better read from the end */
} TopnNumber;

/* Registers the node and the planner's hook; called by _PG_init(). */
extern void topn_initialize(void);

extern const CustomScanMethods topn_scan_methods;

#endif
