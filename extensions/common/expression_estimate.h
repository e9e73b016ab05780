/*
 * expression_estimate.h
 *		How many values an expression of one column has.
 */
#ifndef STRATA_EXPRESSION_ESTIMATE_H
#define STRATA_EXPRESSION_ESTIMATE_H

#include "postgres.h"

#include "nodes/pathnodes.h"

/*
 * For set_rel_pathlist_hook: tells core, as statistics of an index, how many values there are of the expressions of the relation's
 * columns by which the query groups, partitions and makes rows distinct.
 */
extern void expression_estimate_relation(PlannerInfo *root, RelOptInfo *rel);

/* Once per library. */
extern void expression_estimate_initialize(void);

#endif
