/*
 * statement_text.h
 *		Can a statement that changes rows be sent to the workers as it was written?
 *
 * original: the Query as it was before planning, or NULL.
 */
#ifndef STRATA_STATEMENT_TEXT_H
#define STRATA_STATEMENT_TEXT_H

#include "nodes/pathnodes.h"

/* Does the text say all that the plan knows? */
extern bool statement_text_is_complete(PlannerInfo *root, Query *original);

/* The same for a part of it that has no sub-selects. */
extern bool statement_text_names_all(Node *node);

/* Can workers read it? */
extern bool statement_text_is_readable(PlannerInfo *root, Query *original);

/* WITH queries that run on the coordinator, on their own, have no place in the text. */
extern void statement_text_strip_ctes(PlannerInfo *root, Query *original);

#endif
