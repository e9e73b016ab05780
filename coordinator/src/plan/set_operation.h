/*
 * set_operation.h
 *		UNION, INTERSECT and EXCEPT of rows that lie on the workers.
 */
#ifndef STRATA_SET_OPERATION_H
#define STRATA_SET_OPERATION_H

#include "plan/dist_path.h"

/*
 * The path that puts the branches together, NULL where the workers cannot.  Each branch has a target, whose visible columns are
 * as many as those of `target`.  *complete: false for a UNION whose duplicates may be on several workers.
 */
extern DistPath *set_operation_path(PlannerInfo *root, SetOperation operation, bool all,
									List *branches, List *target, bool *complete);

/* How many rows of the path differ? */
extern double set_operation_distinct_rows(DistPath *path);

#endif
