/*
 * dependent_columns.h
 *		Columns beside GROUP BY that depend on what is grouped.
 */
#ifndef STRATA_DEPENDENT_COLUMNS_H
#define STRATA_DEPENDENT_COLUMNS_H

#include "nodes/parsenodes.h"

/*
 * Columns that may stand beside GROUP BY because they depend on what is grouped: by a primary key, or
 * as columns of a sub-select that was joined by its only key (decorrelate.h).  A worker would have to prove that
 * again (and PostgreSQL drops GROUP BY columns by such proofs), so they are grouped by explicitly.
 */
extern void dependent_columns_group(Query *query);

#endif
