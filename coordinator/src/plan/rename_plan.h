/*
 * rename_plan.h
 *		A node that hands on the rows of another under expressions of its own.
 *
 * The plan above finds columns by the expressions that the node below says they are.  Where what is
 * computed below is written otherwise than the query has it, this node stands between them.
 */
#ifndef STRATA_RENAME_PLAN_H
#define STRATA_RENAME_PLAN_H

#include "nodes/extensible.h"
#include "nodes/pathnodes.h"

/* Of path, plan and methods of execution (execute/rename_exec.c), by which the plan finds them. */
#define RENAME_NAME "Strata Rename"

/* The rows of subpath, whose columns are those of target, in that order. */
extern Path *rename_path_create(RelOptInfo *rel, Path *subpath, PathTarget *target);

/* The same; subpath becomes an Agg for which core has no path over states of aggregates: it finalizes them. */
extern Path *rename_path_create_final(RelOptInfo *rel, Path *subpath, PathTarget *target);

#endif
