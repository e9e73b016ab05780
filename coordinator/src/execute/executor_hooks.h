/*
 * executor_hooks.h
 *		What the executor must do differently for statements that write shells.
 */
#ifndef STRATA_EXECUTOR_HOOKS_H
#define STRATA_EXECUTOR_HOOKS_H

#include "nodes/execnodes.h"

/* The client's statement is an EXECUTE, with or without CREATE TABLE AS. */
extern bool executor_runs_prepared;

/*
 * Prepare a result relation for local inserts: no index is opened for a shell, and
 * triggers that the workers' own constraints stand for are removed.  ERROR when a
 * shell has triggers that cannot run.
 */
extern void executor_prepare_result_relation(ResultRelInfo *result);

extern void executor_hooks_initialize(void);

#endif
