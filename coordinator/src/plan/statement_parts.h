/*
 * statement_parts.h
 *		Tables that several parts of a statement with modifying WITH queries use.
 */
#ifndef STRATA_STATEMENT_PARTS_H
#define STRATA_STATEMENT_PARTS_H

#include "postgres.h"

#include "nodes/parsenodes.h"

/* Does a part of the analysed query read or fill a table on several nodes that another one changes?  ERROR for what is refused. */
extern bool statement_parts_share(Query *original);

/* Refuse the statement because of this table. */
extern void statement_parts_report(Oid relation, const char *detail);

#endif
