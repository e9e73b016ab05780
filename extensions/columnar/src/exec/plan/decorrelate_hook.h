/*
 * decorrelate_hook.h
 *		Correlated sub-selects over columnar tables are planned as joins, where that is cheaper.
 */
#ifndef COLUMNAR_DECORRELATE_HOOK_H
#define COLUMNAR_DECORRELATE_HOOK_H

/* Defines strata_columnar.enable_decorrelation and installs the planner hook. */
extern void decorrelate_hook_initialize(void);

#endif
