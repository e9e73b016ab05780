/*
 * deparse_returning.h
 *		RETURNING of a statement for workers.
 */
#ifndef STRATA_DEPARSE_RETURNING_H
#define STRATA_DEPARSE_RETURNING_H

#include "postgres.h"

#include "nodes/pg_list.h"

/* The list in terms that SQL has; target: the table's range-table index. */
extern List *deparse_returning(List *returning, Index target);

#endif
