/*
 * deparse_statement.h
 *		SQL of a whole statement, from the Query the user wrote.
 */
#ifndef STRATA_DEPARSE_STATEMENT_H
#define STRATA_DEPARSE_STATEMENT_H

#include "nodes/pathnodes.h"

/*
 * Text of an INSERT, UPDATE, DELETE or MERGE as analysed and rewritten, before
 * planning.  Parameters and expressions with one value for the whole execution
 * become $1 .. $n, appended to *params; RETURNING columns that cannot cross in
 * binary form are cast to text.  The query is modified.
 */
extern char *deparse_statement_text(PlannerInfo *root, Query *query, List **params);

/*
 * Text of an INSERT of one row whose values are $1 .. $n, with the query's ON
 * CONFLICT and RETURNING.  attributes (ints) receives the columns that $1 .. $n
 * stand for; further parameters follow them.
 */
extern char *
statement_deparse_row_insert(PlannerInfo *root, Query *query, List *attributes, List **params);

/*
 * The target list of an UPDATE of the relation, as ruleutils can print it: an entry for each assignment to a
 * part of a column, later ones of a column after earlier ones; and never empty.
 */
extern List *deparse_statement_assignments(List *tlist, Oid relation);

/*
 * A value of the column's type, or one that may be assigned to it, as the parser would assign it: that it has the column's
 * modifier already is nothing that the text can say.
 */
extern Node *deparse_statement_coerce(Node *value, Oid relation, AttrNumber attno);

/* Does the value assign to a part of its column, as SET a[1] = 1 does?  Only an assignment can say so. */
extern bool deparse_statement_assigns_part(Node *expr);

/* The query as it was before planning; NULL where it was not kept. */
extern Query *deparse_statement_original(PlannerInfo *root);

#endif
