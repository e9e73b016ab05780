/*
 * reference_path.h
 *		Queries of reference tables alone: by a worker's columnar copies.
 */
#ifndef STRATA_REFERENCE_PATH_H
#define STRATA_REFERENCE_PATH_H

#include "nodes/pathnodes.h"

#include "plan/dist_path.h"

/*
 * Adds the path that has one worker answer what `path`, whose rows every worker has, says; `rel` has core's own paths
 * already.  target and pathkeys are those of gather_path_create().
 */
extern void reference_path_add(PlannerInfo *root, RelOptInfo *rel, DistPath *path,
							   PathTarget *target, List *pathkeys);

#endif
