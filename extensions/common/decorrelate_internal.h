/*
 * decorrelate_internal.h
 *		The parts of the decorrelation.
 *
 *		decorrelate.c			 walks the levels of a query, finds sub-selects, attaches joins
 *		decorrelate_subselect.c	 which sub-selects can be joined; splits off the correlation
 *		decorrelate_grouping.c	 the grouped query and the value for the sub-select's place
 *		decorrelate_membership.c IN, NOT IN and ALL as EXISTS
 *		decorrelate_restriction.c conditions of the outer query that hold for the keys as well
 *		decorrelate_source.c	 relations of the outer query that have such conditions
 *		decorrelate_safety.c	 which expressions cannot fail
 */
#ifndef STRATA_DECORRELATE_INTERNAL_H
#define STRATA_DECORRELATE_INTERNAL_H

#include "decorrelate.h"

#include "nodes/pathnodes.h"

/* A condition `outer = key` of a sub-select. */
typedef struct DecorrelateCondition
{
	OpExpr *comparison; /* as in the sub-select: its outer Vars are of level 1 */
	int outer_argument; /* which argument is the outer one: 0 or 1 */
	int key;			/* index into the keys */
} DecorrelateCondition;

/* A sub-select whose correlated conditions were taken out. */
typedef struct DecorrelateSplit
{
	Query *query;	  /* the rest: a copy, without any reference to the outer query */
	List *keys;		  /* expressions of it, distinct, of types that can be grouped */
	List *conditions; /* of DecorrelateCondition, at least one */
	List *gates;	  /* conditions on the outer row alone, Vars of level 1 */
} DecorrelateSplit;

/* The grouped sub-select, to be joined to the outer query as the range-table entry `varno`. */
typedef struct DecorrelateJoin
{
	Query *query;
	Node *condition; /* of the join; Vars of level 0 */
	Node *value;	 /* takes the sub-select's place */
} DecorrelateJoin;

/* The outer query, whose rows look up keys. */
typedef struct DecorrelateOuter
{
	Query *query;
	List *conditions; /* true for all rows that come out or find a group */
	Relids nullable;  /* entries that outer joins fill with NULL */
	bool is_late;	  /* may conditions be used that core may evaluate after the join? */
} DecorrelateOuter;

/* decorrelate_subselect.c: first, the conjuncts of a condition, which may be NULL, and the reverse */
extern List *decorrelate_conjuncts(Node *quals);
extern Node *decorrelate_conjunction(List *conjuncts);
extern SubLink *decorrelate_exists(Query *query, int location);
extern bool decorrelate_reads_judged(Query *subselect, DecorrelateJudge judge, bool judges_with);

/* Does a part of a WITH of the statement? */
extern bool decorrelate_with_reads_judged(Query *query, DecorrelateJudge judge);
extern bool decorrelate_is_movable(Query *subselect);
extern bool decorrelate_limit_leaves_a_row(Query *subselect);
extern bool decorrelate_is_simple_exists(Query *subselect);
extern bool decorrelate_is_one_row(Query *subselect);
extern bool decorrelate_core_pulls_up(Query *subselect);
extern bool decorrelate_rows_may_fail(Query *subselect);
extern bool decorrelate_hoist_conditions(Query *subselect);
extern List *decorrelate_alternatives(Query *subselect);
extern bool decorrelate_split(Query *subselect, DecorrelateSplit *split);

/* decorrelate_grouping.c */
extern bool decorrelate_group_scalar(DecorrelateSplit *split, bool exists, Index varno, Index join,
									 DecorrelateJoin *result);
extern bool
decorrelate_group_exists(DecorrelateSplit *split, Index varno, Index join, DecorrelateJoin *result);
extern bool decorrelate_flatten_groups(Node *node, void *context);

/* decorrelate_membership.c */
extern Node *decorrelate_membership(Query *query, SubLink *link, bool negated, bool in_where);
extern Node *decorrelate_replace_outputs(Node *testexpr, List *outputs);

/* The entries of the range table that outer joins fill with NULL. */
extern Relids decorrelate_nullable(Query *query);

/* decorrelate_restriction.c */
extern bool
decorrelate_restrict(Query *query, FromExpr *anchor, Index varno, DecorrelateJoin *join);

/* decorrelate_source.c; gates: conditions on the outer row in the ON of the join */
extern void
decorrelate_outer_init(DecorrelateOuter *outer, Query *query, List *gates, bool is_late);
/* No more than FROM and WHERE, over tables that give the same rows whenever they are read? */
extern bool decorrelate_is_plain(Query *query);
/* Can the entry tell which keys are asked for? */
extern bool decorrelate_is_source(const DecorrelateOuter *outer, Index varno);
extern Index decorrelate_only_source(Node *expression);
extern double decorrelate_source_rows(const DecorrelateOuter *outer, Index varno);
/* Copies of conditions `expression of the entry = expression of another source`. */
extern List *decorrelate_source_equalities(const DecorrelateOuter *outer, Index varno);
/*
 * Is less than the whole relation asked for?  The conditions on it, beside those that a derived
 * table has inside.
 */
extern bool
decorrelate_source_restricts(const DecorrelateOuter *outer, Index varno, List **conditions);
extern bool decorrelate_source_filters(const DecorrelateOuter *outer, Index varno);
/* tests: `expression = expression of the entry`; all of them for one row that fulfils the conditions. */
extern SubLink *decorrelate_source_membership(const DecorrelateOuter *outer, Index varno,
											  List *conditions, List *tests);

#endif
