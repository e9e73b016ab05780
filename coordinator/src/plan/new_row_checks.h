/*
 * new_row_checks.h
 *		Policies and WITH CHECK OPTION for rows that workers change.
 */
#ifndef STRATA_NEW_ROW_CHECKS_H
#define STRATA_NEW_ROW_CHECKS_H

#include "plan/dist_path.h"

/*
 * An UPDATE's assignments (each with the number of its column), of which one also checks the new row against the policies and
 * views that the query names.  locus: of the rows, which stay where they are; original: the query before it was planned.  NIL:
 * the workers cannot check that.
 */
extern List *
new_row_checks_add(PlannerInfo *root, const Locus *locus, const Query *original, List *assignments);

/* The query's checks as those of rows that are inserted (WithCheckOption), for rows that move. */
extern List *new_row_checks_of_insert(List *options);

#endif
