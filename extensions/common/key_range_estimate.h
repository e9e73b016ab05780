/*
 * key_range_estimate.h
 *		How many rows of a large table join those that a condition leaves of a dimension in the order of its key.
 */
#ifndef STRATA_KEY_RANGE_ESTIMATE_H
#define STRATA_KEY_RANGE_ESTIMATE_H

#include "postgres.h"

#include "nodes/pathnodes.h"

/* For set_rel_pathlist_hook, before core looks at joins of the dimension. */
extern void key_range_estimate_relation(PlannerInfo *root, RelOptInfo *dimension);

/* Once per library. */
extern void key_range_estimate_initialize(void);

#endif
