/*
 * deparse_path.h
 *		The Query that says in SQL what a DistPath does.
 */
#ifndef STRATA_DEPARSE_PATH_H
#define STRATA_DEPARSE_PATH_H

#include "plan/dist_path.h"

/*
 * The SELECT of a path.  tlist (TargetEntry) is used when the path has no target
 * of its own.  Values that are known only at execution become parameters $1 .. $n;
 * their expressions are appended to *params, to be evaluated on the coordinator.
 */
extern Query *deparse_path_query(DistPath *path, List *tlist, List **params);

/*
 * The same, ready to cross the network, of rows of `target` that the worker locks; two more columns are the row's
 * partition and its tid there.
 */
extern Query *deparse_path_locked(DistPath *path, List *tlist, Index target,
								  LockClauseStrength strength, List **params);

/*
 * UPDATE or DELETE of the relation `target`, which must be one of path->from's own
 * items; set_list holds the new values as TargetEntry whose resno is the column.
 */
extern Query *deparse_path_modify(DistPath *path, CmdType command, Index target, List *set_list,
								  List *returning, List **params);

/* $id in the place of an expression whose value is shipped: of the same type and collation. */
extern Node *deparse_path_param(Node *expr, int id);

/* A range-table entry in the place of one that is not used, so that no other changes its number. */
extern RangeTblEntry *deparse_path_unused_rte(void);

/* The names c1, c2, ... that the columns of a sub-select have. */
extern List *deparse_path_column_names(int count);

/*
 * Add the RTE_JOIN that ruleutils wants for a JoinExpr: unnamed, all columns of both children, which
 * must have theirs already.
 */
extern void deparse_path_join_rte(Query *query, JoinExpr *join);

#endif
