/*
 * unnest_any.h
 *		x = ANY (SELECT unnest(array)) as x = ANY (array).
 */
#ifndef STRATA_UNNEST_ANY_H
#define STRATA_UNNEST_ANY_H

#include "postgres.h"

#include "nodes/parsenodes.h"

/* value = ANY (array), for an equality, or another operator, of the value and an element. */
extern Node *unnest_any_make(Oid operator, Oid collation, Node *value, Node *array);

/* Rewrites the conditions of all levels of the query in place. */
extern void unnest_any_rewrite(Query *query);

#endif
