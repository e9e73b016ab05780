/*
 * statement_reads.h
 *		What a statement's plan reads, and where.
 */
#ifndef STRATA_STATEMENT_READS_H
#define STRATA_STATEMENT_READS_H

#include "execute/gather.h"

typedef struct StatementReads
{
	List *gathers;	 /* of GatherScanState */
	bool local;		 /* rows of the coordinator */
	bool repeatedly; /* something may be read more than once */
} StatementReads;

extern StatementReads statement_reads_collect(PlanState *state);

/* Does the plan call functions that are not core's own?  They may read. */
extern bool statement_reads_functions(const PlannedStmt *plan);

extern bool statement_reads_writes(const PlannedStmt *plan);

#endif
