/*
 * modify_obstacle.h
 *		Why workers cannot run a statement that changes rows.
 */
#ifndef STRATA_MODIFY_OBSTACLE_H
#define STRATA_MODIFY_OBSTACLE_H

#include "nodes/pathnodes.h"

#include "cluster/metadata.h"

/* INSERT, UPDATE, DELETE or MERGE */
extern const char *modify_command_name(CmdType command);

/*
 * The error for a statement on this table that no path proves to run on the workers.  `original` is the
 * statement before it was planned, or NULL.
 */
_Noreturn extern void
modify_obstacle_report(PlannerInfo *root, const Query *original, const DistributedTable *table);

#endif
