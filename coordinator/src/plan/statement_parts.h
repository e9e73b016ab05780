/*
 * statement_parts.h
 *		Tables that several parts of a statement with modifying WITH queries use.
 */
#ifndef STRATA_STATEMENT_PARTS_H
#define STRATA_STATEMENT_PARTS_H

#include "postgres.h"

#include "nodes/parsenodes.h"

/* OIDs of tables on several nodes that one part of the analysed query changes, and another one reads or fills; ERROR for what is refused. */
extern List *statement_parts_shared(Query *original);

/* Refuse the statement because of this table. */
extern void statement_parts_report(Oid relation, const char *detail);

#endif
