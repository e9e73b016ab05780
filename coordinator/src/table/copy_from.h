/*
 * copy_from.h
 *		COPY FROM into a shell.
 */
#ifndef STRATA_COPY_FROM_H
#define STRATA_COPY_FROM_H

#include "nodes/parsenodes.h"
#include "parser/parse_node.h"
#include "utils/relcache.h"

/*
 * Run COPY ... FROM into a shell, with the checks of core's DoCopy(); returns the number
 * of rows.  The rows were confirmed by the workers when it returns.
 */
extern uint64 copy_from_run(ParseState *pstate, const CopyStmt *statement);

/*
 * Turn FREEZE off in a COPY into the coordinator's copy of a reference table, unless core is going to refuse it: an
 * old snapshot would find the rows here, and not on the workers.
 */
extern void copy_from_leave_freeze_out(CopyStmt *statement, Relation relation);

#endif
