/*
 * plan_row_change.h
 *		UPDATE and DELETE whose rows come here to be changed one by one.
 */
#ifndef STRATA_PLAN_ROW_CHANGE_H
#define STRATA_PLAN_ROW_CHANGE_H

#include "nodes/pathnodes.h"

#include "cluster/metadata.h"
#include "plan/dist_path.h"

/* Core's ModifyTable over the rows of a path that brings all of the statement's together. */
extern Path *plan_row_change_path(PlannerInfo *root, RelOptInfo *final_rel,
								  const DistributedTable *table, DistPath *dist);

#endif
