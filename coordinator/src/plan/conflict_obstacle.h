/*
 * conflict_obstacle.h
 *		Why workers cannot run an INSERT ... ON CONFLICT, which ends there.
 */
#ifndef STRATA_CONFLICT_OBSTACLE_H
#define STRATA_CONFLICT_OBSTACLE_H

#include "nodes/pathnodes.h"

#include "cluster/metadata.h"

/* The error for such a statement on this table.  `original` is the statement before it was planned, or NULL. */
_Noreturn extern void
conflict_obstacle_report(PlannerInfo *root, const Query *original, const DistributedTable *table);

#endif
