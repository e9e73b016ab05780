/*
 * local_keys.h
 *		UPDATE, DELETE and MERGE that join a distributed table to local ones: the rows that they ask for.
 */
#ifndef STRATA_LOCAL_KEYS_H
#define STRATA_LOCAL_KEYS_H

#include "nodes/parsenodes.h"

/* Adds conditions to a statement that is not yet planned; none if there is nothing to gain. */
extern void local_keys_add(Query *query);

#endif
