/*
 * batch_table.h
 *		For the planner: tables, partition trees and UNION ALLs that are read by batches.
 */
#ifndef COLUMNAR_BATCH_TABLE_H
#define COLUMNAR_BATCH_TABLE_H

#include "exec/plan/batch_path.h"

/* batch_path_find() of a relation of the range table that is no sub-select by itself. */
extern BatchPath *
batch_table_find(PlannerInfo *root, RelOptInfo *rel, List *expressions, bool partial);

#endif
