/*
 * query_form.h
 *		The normal form of a Query, in builds with assertions: two that say the same have the same one.
 */
#ifndef STRATA_QUERY_FORM_H
#define STRATA_QUERY_FORM_H

#include "nodes/parsenodes.h"

#ifdef USE_ASSERT_CHECKING
/* A tree of lists, whose parts have names; folds constants by functions, which run as the caller. */
extern Node *query_form(const Query *query);
#endif

#endif
