/*
 * decorrelate.h
 *		Turns correlated sub-selects of a Query into joins, before it is planned.
 *
 * PostgreSQL runs a correlated sub-select that it cannot pull up once per outer row.  Where an
 * index finds the few rows of each run that is the best plan; over tables without indexes, or on
 * other nodes, it is quadratic.  decorrelate_query() rewrites the tree; which of both forms is
 * cheaper only planning both can tell, which is the caller's business.
 *
 * What becomes what (o: the outer row, t: the sub-select's tables):
 *
 *	 (SELECT f(agg(t.x)) FROM t WHERE t.k = o.k ...)
 *		LEFT JOIN (SELECT t.k, agg(t.x) FROM t WHERE ... GROUP BY t.k) s ON s.k = o.k,
 *		and f(s.agg) where the sub-select stood, with coalesce(s.agg, 0) for counts.  f is
 *		evaluated there and not in the join, so that it gives for no match, and fails, as before.
 *		HAVING h: CASE WHEN h THEN f END.  Where f is strict, core makes it an inner join.
 *	 EXISTS (the same, HAVING h)	h IS TRUE
 *	 EXISTS (... WHERE t.k = o.k [GROUP BY ... HAVING ...]) where core cannot pull it up
 *		LEFT JOIN (SELECT t.k ... GROUP BY t.k) s ON s.k = o.k, and s.k IS NOT NULL; core makes
 *		a top-level one an inner or an anti join.
 *	 EXISTS (... WHERE a OR b), correlated by different equalities in a and b
 *		EXISTS (... WHERE a) OR EXISTS (... WHERE b)
 *	 EXISTS with correlated conditions in the ON of inner joins
 *		the same with these conditions in WHERE, from where core pulls it up
 *	 x IN (SELECT t.y FROM t WHERE correlated) as a condition
 *		EXISTS (SELECT FROM t WHERE correlated AND x = t.y), which core pulls up
 *	 x NOT IN (SELECT ...), x <> ALL (SELECT ...) as a condition, when neither side can be NULL
 *		NOT EXISTS (...), which core pulls up as an anti join; of a sub-select of tables without
 *		correlation also when they can: AND (x IS NOT NULL OR NOT EXISTS (SELECT ...)) AND
 *		NOT EXISTS (SELECT ... WHERE y IS NULL)
 *	 x op ANY/ALL (SELECT agg ...)
 *		x op (SELECT agg ...), as there is exactly one row
 *
 * The sub-select may correlate by `outer expression = inner expression` with the equality of a
 * default btree or hash operator class and one collation, and by conditions on the outer row
 * alone, which join the ON clause.  All else is left alone: other correlated conditions, references
 * to queries further out, volatile functions, set operations, LIMIT that counts, window functions,
 * set-returning functions, TABLESAMPLE, row marks and row security in either query, outer
 * references in places where ON cannot have them.  Also left alone are sub-selects in ON of outer
 * joins, and in grouped expressions unless they correlate with grouping expressions.
 *
 * A grouped sub-select may be restricted to the keys that the outer query can ask for; see
 * decorrelate_restriction.c.
 *
 * Errors.  A join evaluates expressions for rows that the sub-select never saw.  The rule:
 * - aggregates, their arguments, FILTER, HAVING of sub-selects with GROUP BY, columns that a
 *	 correlated IN compares with, and the arms of OR must be unable to fail
 *	 (decorrelate_may_fail()), else the sub-select is left alone;
 * - the select expression and HAVING over the aggregates may fail: they are evaluated where the
 *	 sub-select stood, and wrapped so that they depend on the outer row and cannot move into s;
 * - WHERE and ON conditions of the sub-select may fail, as they may in core's own pull-ups and in
 *	 its hashed sub-plans, which evaluate them over all rows - but not if the sub-select stands
 *	 below AND, OR, CASE, COALESCE or an aggregate inside an expression, where it may be guarded, if
 *	 it is a correlated IN, or has correlated sub-selects of its own;
 * - conditions' outer sides may fail only in WHERE and ON, where core pulls up the same.
 */
#ifndef STRATA_DECORRELATE_H
#define STRATA_DECORRELATE_H

#include "compat.h"

#include "nodes/parsenodes.h"
#include "optimizer/planner.h"
#include "utils/guc.h"

/*
 * Should a sub-select that reads this relation (RTE_RELATION) become a join?  One yes in its tables
 * and derived tables is enough; or that it reads WITH, if there is a yes in any part of one.
 */
typedef bool (*DecorrelateJudge)(RangeTblEntry *rte);

/*
 * Has the query, at any level, a sub-select that reads such a relation?  Without sub-selects in
 * expressions this looks at a flag per level.
 */
extern bool decorrelate_may_apply(Query *query, DecorrelateJudge judge);

/*
 * Rewrites the query, as it came from the rewriter, in place: give it a copy if the original is
 * needed.  False if nothing changed; with `restricts`, if no sub-select could be restricted to keys
 * that are asked for, see decorrelate_restriction.c.  The result is for the planner and not for ruleutils.c: its
 * new joins have no columns.
 */
extern bool decorrelate_query(Query *query, DecorrelateJudge judge, bool restricts);

/*
 * May the evaluation of the expression (or list of expressions) raise an error for some values of
 * its Vars and aggregates?  Sub-selects may.
 */
extern bool decorrelate_may_fail(Node *node);

/* The same of an aggregate; or does it depend on the order of its rows? */
extern bool decorrelate_aggregate_may_fail(Aggref *aggregate);

/* Settings that say whether it is done: "off", "on" (where it is cheaper) or, for tests, "always" (where it is possible). */
typedef enum DecorrelateMode
{
	DECORRELATE_OFF,
	DECORRELATE_ON,
	DECORRELATE_ALWAYS
} DecorrelateMode;

extern const struct config_enum_entry decorrelate_modes[];

/*
 * For planner_hook, whose arguments it has: the cheapest plan, as `planner` makes it of each form of the query: as written (first, and the original itself), with joins, and with joins
 * restricted to the keys that are asked for.
 */
extern PlannedStmt *decorrelate_plan(COMPAT_PLAN_ARGUMENTS(query), DecorrelateMode mode,
									 DecorrelateJudge judge, planner_hook_type planner);

/* The cheaper one of two plans of the same statement. */
extern PlannedStmt *decorrelate_choose(PlannedStmt *best, PlannedStmt *other, int cursor_options);

/* The query as an entry of another one's range table, under this name. */
extern RangeTblEntry *decorrelate_subquery_entry(Query *query, const char *name);

/* Might the relation (RTE_RELATION) have other rows when it is read again: a sample, or a foreign table, also as a partition? */
extern bool decorrelate_rows_may_differ(const RangeTblEntry *rte);

/* Is the entry of a rewritten query a sub-select that is restricted to keys that are asked for? */
extern bool decorrelate_is_restricted(const RangeTblEntry *rte);

#endif
