/*
 * slice_path.h
 *		Replicated rows, each on one worker only.
 */
#ifndef STRATA_SLICE_PATH_H
#define STRATA_SLICE_PATH_H

#include "plan/dist_path.h"

/* strata.owns(relation, key): true on one worker for each key, which is of the type of the relation's key. */
extern Expr *slice_path_owns(Oid relation, Node *key);

/*
 * The rows of a replicated path, each on the worker that has rows of `other`, which is hashed, whose key is `key`, an expression
 * over the path; NULL where that cannot be said.
 */
extern DistPath *slice_path(DistPath *path, const DistPath *other, Node *key);

#endif
