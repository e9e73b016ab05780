/*
 * explicit_cast.h
 *		Casts that ruleutils would leave out and parsing would not bring back.
 */
#ifndef STRATA_EXPLICIT_CAST_H
#define STRATA_EXPLICIT_CAST_H

#include "nodes/parsenodes.h"
#include "nodes/primnodes.h"

/* The query, ready for pg_get_querydef(): every cast that its meaning needs is printed. */
extern Query *explicit_cast_query(Query *query);

/* The same for an expression of its own. */
extern Node *explicit_cast_expression(Node *expression);

/* Is there SQL for this node, if it is a cast? */
extern bool explicit_cast_is_possible(Node *node);

/* A constant record, of which there is no literal, as ROW(...) of its columns; NULL for NULL. */
extern RowExpr *explicit_cast_row(const Const *record);

#endif
