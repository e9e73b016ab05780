/*
 * deparse_set.h
 *		The Query of a set operation.
 */
#ifndef STRATA_DEPARSE_SET_H
#define STRATA_DEPARSE_SET_H

#include "nodes/parsenodes.h"

#include "plan/dist_path.h"

/* Of a path with branches; queries: of its branches, from left to right, in the place of nested ones those of theirs. */
extern Query *deparse_set_query(const DistPath *path, List *queries);

#endif
