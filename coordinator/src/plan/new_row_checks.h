/*
 * new_row_checks.h
 *		Policies and WITH CHECK OPTION for rows that workers change.
 */
#ifndef STRATA_NEW_ROW_CHECKS_H
#define STRATA_NEW_ROW_CHECKS_H

#include "plan/dist_path.h"

/*
 * Puts the checks of an UPDATE's new rows against the policies and views that the query names into its assignments (each with
 * the number of its column) and its RETURNING list, which may be NIL.  locus: of the rows, which stay where they are; original:
 * the query before it was planned.  False: the workers cannot check that.
 */
extern bool new_row_checks_add(PlannerInfo *root, const Locus *locus, const Query *original,
							   List **assignments, List **returning);

/* The query's checks as those of rows that are inserted (WithCheckOption), for rows that move. */
extern List *new_row_checks_of_insert(List *options);

#endif
