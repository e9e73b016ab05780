/*
 * plan_row_change.h
 *		UPDATE, DELETE and MERGE whose rows come here to be changed one by one.
 */
#ifndef STRATA_PLAN_ROW_CHANGE_H
#define STRATA_PLAN_ROW_CHANGE_H

#include "nodes/pathnodes.h"

#include "cluster/metadata.h"
#include "plan/dist_path.h"

/* Core's ModifyTable over the rows of a path that brings all of the statement's together. */
extern Path *plan_row_change_path(PlannerInfo *root, RelOptInfo *final_rel,
								  const DistributedTable *table, DistPath *dist);

/* What the statement does to rows, as events of triggers (TRIGGER_TYPE_...). */
extern int16 plan_row_change_events(const Query *parse);

/* Does the coordinator fire triggers for rows of the statement's table, which is distributed, at one of these events? */
extern bool plan_row_change_fires(Query *parse, int16 events);

/* Does the path read a distributed table that the statement, which is no INSERT, changes? */
extern bool plan_row_change_is_target(PlannerInfo *root, const DistPath *dist);

/*
 * Scan of that table, or a join with it, for core's plan above: ctid is the number of a held row.  fetch: the expressions that
 * core needs; quals (bare clauses) are evaluated here.  NULL: its rows cannot be locked, they are an outer join's.
 */
extern Path *
plan_row_change_scan(PlannerInfo *root, RelOptInfo *rel, DistPath *dist, List *fetch, List *quals);

#endif
