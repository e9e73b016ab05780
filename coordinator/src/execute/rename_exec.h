/*
 * rename_exec.h
 *		Execution of the node that hands on rows under other expressions (plan/rename_plan.h).
 */
#ifndef STRATA_RENAME_EXEC_H
#define STRATA_RENAME_EXEC_H

extern void rename_initialize(void); /* registers the custom scan methods */

#endif
