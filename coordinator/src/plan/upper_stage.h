/*
 * upper_stage.h
 *		What the stages above the joins have in common.
 */
#ifndef STRATA_UPPER_STAGE_H
#define STRATA_UPPER_STAGE_H

#include "nodes/pathnodes.h"

#include "plan/dist_path.h"

/* A PathTarget as target list; sort-group references are kept. */
extern List *upper_stage_target(PathTarget *target);

/* Columns and aggregates here become columns and aggregates of the next stage: are they all known there? */
extern bool upper_stage_is_shippable(DistPath *path, List *target);

/* A Gather over the path, of which the stage above sees `target`. */
extern Path *upper_stage_gather(PlannerInfo *root, RelOptInfo *rel, DistPath *path,
								PathTarget *target, List *pathkeys);

/* A Gather over the path, if the workers' rows are all that the stage yields. */
extern void upper_stage_add_gather(PlannerInfo *root, RelOptInfo *rel, DistPath *path,
								   PathTarget *target, List *pathkeys);

/* Is everything that these target entries bring together on one worker? */
extern bool upper_stage_is_complete(DistPath *path, List *clauses, List *tlist);

/*
 * Groups that the workers return together: how many of `groups` are met by the
 * rows of one worker, times workers (Cardenas' formula).
 */
extern double upper_stage_partial_groups(double rows, double groups, int workers);

/* SELECT DISTINCT of a target: its columns as a clause of GROUP BY; NIL if that would lose rows that differ. */
extern List *upper_stage_group_by_all(List *target);

#endif
