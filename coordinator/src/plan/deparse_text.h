/*
 * deparse_text.h
 *		Text of a Query for the workers.
 */
#ifndef STRATA_DEPARSE_TEXT_H
#define STRATA_DEPARSE_TEXT_H

#include "nodes/parsenodes.h"

/* Text of a query, all names qualified. */
extern char *deparse_text(Query *query);

/*
 * Text of a query whose result crosses the network: columns that cannot cross in
 * binary form (row_format.h) are cast to text.
 */
extern char *deparse_text_transport(Query *query);

/* Cast to text the visible columns of tlist that cannot cross in binary form. */
extern List *deparse_text_transport_tlist(List *tlist);

#endif
