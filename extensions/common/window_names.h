/*
 * window_names.h
 *		What EXPLAIN calls window functions that one of our nodes computes, on PostgreSQL 18 and later.
 *
 * ruleutils.c prints a window function with the name of its window, which it looks for among the WindowAggs of the plan; a
 * custom scan that computes window functions has none, and EXPLAIN fails, also for a node above that refers to the result.
 * So each function in the scan's custom_scan_tlist gets a stand-in, which prints as the function without its window.
 *
 * Only when the plan is made: until then setrefs.c finds by the functions which columns of the scan other nodes mean.  The
 * executor takes no more than types from this list.
 */
#ifndef STRATA_WINDOW_NAMES_H
#define STRATA_WINDOW_NAMES_H

#include "nodes/extensible.h"

/* Give names to the results of all scans of the plan that have these methods; nothing before 18. */
extern void window_names_give(PlannedStmt *plan, const CustomScanMethods *methods);

/* The same function as an aggregate over the rows of a group. */
extern Aggref *window_names_make_aggref(const WindowFunc *function);

#endif
