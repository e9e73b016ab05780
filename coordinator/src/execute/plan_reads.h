/*
 * plan_reads.h
 *		What a statement's plan reads, and where.
 */
#ifndef STRATA_PLAN_READS_H
#define STRATA_PLAN_READS_H

#include "execute/gather.h"

typedef struct PlanReads
{
	List *gathers;	 /* of GatherScanState */
	bool local;		 /* rows of the coordinator */
	bool repeatedly; /* something may be read more than once */
} PlanReads;

extern PlanReads plan_reads_collect(PlanState *state);

/* Does the plan call functions that are not core's own?  They may read. */
extern bool plan_reads_functions(const PlannedStmt *plan);

extern bool plan_reads_writes(const PlannedStmt *plan);

#endif
