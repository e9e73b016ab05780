/*
 * window.h
 *		Window functions by batches: the node ColumnarWindow.
 *
 *		window_plan.c		which queries get it, and its paths
 *		window_exec.c		the node: rows in and out
 *		window_function.c	what each function returns
 *		window_running.c	aggregates whose frame grows row by row
 *		window_explain.c	what EXPLAIN says about the node
 *		window_names.c		what it calls the results
 */
#ifndef COLUMNAR_WINDOW_H
#define COLUMNAR_WINDOW_H

#include "compat.h"

#include "nodes/extensible.h"

typedef enum WindowKind
{
	WINDOW_ROW_NUMBER,
	WINDOW_RANK,
	WINDOW_DENSE_RANK,
	WINDOW_PERCENT_RANK,
	WINDOW_CUME_DIST,
	WINDOW_NTILE,
	WINDOW_LAG, /* and lead(), with a negative offset */
	WINDOW_FIRST_VALUE,
	WINDOW_LAST_VALUE,
	WINDOW_NTH_VALUE,
	WINDOW_AGGREGATE
} WindowKind;

/* A frame begins with the partition, and ends with: */
typedef enum WindowFrame
{
	WINDOW_FRAME_ROW,	/* the current row */
	WINDOW_FRAME_PEERS, /* its last peer */
	WINDOW_FRAME_WHOLE	/* the partition */
} WindowFrame;

/*
 * The plan.  custom_scan_tlist: the columns (Vars) of the child, then the window functions.
 * custom_exprs, in terms of these columns: the keys of the partition, those of the order, the
 * functions' arguments.  custom_private is a list of:
 */
typedef enum WindowPrivate
{
	WINDOW_PRIVATE_COLUMNS,	  /* for each child: integers, its column by column - 1 of the node */
	WINDOW_PRIVATE_NUMBERS,	  /* integers, see below */
	WINDOW_PRIVATE_OPERATORS, /* OIDs, for each key */
	WINDOW_PRIVATE_NULLS,	  /* integers: do NULLs come first? */
	WINDOW_PRIVATE_FUNCTIONS  /* WindowFunc; their columns are those of the query */
} WindowPrivate;

typedef enum WindowNumber
{
	WINDOW_NUMBER_COLUMNS,
	WINDOW_NUMBER_PARTITION, /* keys of the partition */
	WINDOW_NUMBER_FRAME,
	WINDOW_NUMBER_STOP /* rows after the first that the filter removes need not be looked at */
} WindowNumber;

/* What the function is; false if it is not for the node.  *offset: see WindowFunction. */
extern bool window_find_kind(const WindowFunc *function, WindowKind *kind, int64 *offset);

/* Which rows have to be there before the first of them can be returned? */
typedef enum WindowDelay
{
	WINDOW_DELAY_NONE,
	WINDOW_DELAY_PEERS,
	WINDOW_DELAY_PARTITION
} WindowDelay;

extern WindowDelay window_find_delay(WindowKind kind, int64 offset, WindowFrame frame);

/* How many plans of the node there have been. */
extern uint64 window_plans_made;

/* Has the results named in each new plan; the last of the planner's hooks to be registered. */
extern void window_names_initialize(void);

/* Registers the node and the planner's hook; called by _PG_init(). */
extern void window_initialize(void);

extern const CustomScanMethods window_scan_methods;

#endif
