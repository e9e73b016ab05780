/*
 * take_row.h
 *		The call by which the coordinator takes rows away that move to other workers.
 */
#ifndef STRATA_WORKER_TAKE_ROW_H
#define STRATA_WORKER_TAKE_ROW_H

#include "nodes/primnodes.h"

/* If the function is strata_worker.take_row(): the call stands in a statement of the coordinator's own, not planned yet. */
extern void take_row_allow(FuncExpr *call);

#endif
