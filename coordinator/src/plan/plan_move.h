/*
 * plan_move.h
 *		UPDATE of a distribution key.
 */
#ifndef STRATA_PLAN_MOVE_H
#define STRATA_PLAN_MOVE_H

#include "plan/dist_path.h"

/*
 * The path of an UPDATE whose rows may have to go to other workers, in the place of core's.  dist: the rows that it changes;
 * assignments: the new values, each with the number of its column.  ERROR, with the reason, where rows cannot move.
 */
extern Path *plan_move_path(PlannerInfo *root, RelOptInfo *final_rel, const DistributedTable *table,
							DistPath *dist, List *assignments);

#endif
