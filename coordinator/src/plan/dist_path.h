/*
 * dist_path.h
 *		DistPath: a subtree of the plan that the workers could run, and where its rows are.
 *
 * Core believes that every member of a RelOptInfo's pathlist yields complete
 * rows.  The alternatives that still lie on the workers therefore live beside
 * it, as a List of DistPath in rel->fdw_private; only Gather(DistPath) enters
 * pathlist (gather_plan.h).  Everything here is allocated in the planner's current
 * context (GEQO's transient one for its join relations) and never copied.
 *
 * A DistPath describes one level of SQL: FROM, WHERE, then GROUP BY, HAVING,
 * windows, DISTINCT, ORDER BY and LIMIT, in the order in which SQL and the
 * planner apply them.  Range-table indexes are those of root->parse; nothing is
 * renumbered.  deparse_path.c makes a Query of it.
 */
#ifndef STRATA_DIST_PATH_H
#define STRATA_DIST_PATH_H

#include "postgres.h"

#include "nodes/pathnodes.h"

#include "cluster/metadata.h"

typedef enum LocusKind
{
	LOCUS_REPLICATED, /* every worker has all rows */
	LOCUS_HASHED	  /* each row is on one worker of a colocation group */
} LocusKind;

typedef struct Locus
{
	LocusKind kind;
	int colocation_id; /* LOCUS_HASHED only */

	/*
	 * Expressions of this level known equal to the distribution key; NIL: rows
	 * lie anywhere in the group ("scattered").
	 */
	List *keys;

	/*
	 * The rows are only on the worker that holds one of these values: constants
	 * and parameters (scalars), and arrays of them.  Each entry restricts further.
	 */
	List *routes;		/* scalar expressions: one worker */
	List *array_routes; /* array expressions: a set of workers */

	/*
	 * Ids of the PARAM_EXEC parameters of an outer query that the key equals:
	 * for one outer row, everything is on one worker.
	 */
	List *outer_routes;
} Locus;

typedef struct DistSub
{
	Index rti;			   /* an RTE_SUBQUERY of this level */
	struct DistPath *path; /* the final path of its own planner root */
} DistSub;

typedef struct DistSemiJoin
{
	struct DistPath *inner;
	List *clauses; /* join clauses */
	bool anti;
} DistSemiJoin;

/*
 * A column of the inner side of a semi join, which SQL's EXISTS hides: the planner
 * may use it above the join in place of a column it equals.
 */
typedef struct DistAlias
{
	Var *var;
	Expr *expr; /* equal, of the outer side */
} DistAlias;

typedef struct DistLock
{
	Index rti;
	LockClauseStrength strength;
	LockWaitPolicy wait_policy;
} DistLock;

typedef struct DistPath
{
	PlannerInfo *root;
	Locus locus;
	Relids relids; /* base relations whose columns can be used */
	Relids nulled; /* ... and those that an anti join replaced by NULLs */

	/* rows that a set operation puts together, in place of FROM and all up to DISTINCT (set_operation.h) */
	List *branches; /* DistPath, whose targets have the columns of this one's */
	SetOperation set_operation;
	bool set_all;

	List *from;		 /* RangeTblRef and JoinExpr (rtindex 0 until rebuilt) */
	List *quals;	 /* WHERE, implicitly ANDed */
	List *subs;		 /* DistSub */
	List *semijoins; /* DistSemiJoin, WHERE [NOT] EXISTS */
	List *aliases;	 /* DistAlias: columns that semi joins hide */
	List *locks;	 /* DistLock: FOR UPDATE and its like */
	Relids
		outer_params; /* PARAM_EXEC ids of outer queries used inside: can be embedded, not gathered */

	List *
		lateral; /* PlannerParamItem: what a LATERAL sub-select, alone so far, takes from its neighbours */

	/* upper stages; target is NIL before the first of them */
	List *target; /* TargetEntry, ressortgroupref as in root->parse */
	List *group_clause;
	List *grouping_sets; /* lists of ressortgrouprefs; NIL: one group of group_clause */
	List *having;
	List *window_clause;
	List
		*window_filter; /* operators over window functions; what comes later sees only these rows */
	List *distinct_clause;
	List *sort_clause;
	Node *limit_count;
	Node *limit_offset;
	LimitOption limit_option;
	List *
		once_columns; /* ints: counts of target, of which rows that sort_clause calls equal have 1 together */
	bool has_aggs;
	bool has_windows;

	/*
	 * A sub-select in FROM, the only item there, sorts its rows: what looks at their order
	 * (a result, LIMIT, array_agg()) has to get that one, as PostgreSQL gives it.
	 */
	bool ordered;

	double rows; /* over all workers */
	Cost cost;	 /* of one worker, all working at once */
} DistPath;

/* The alternatives of a relation; NIL for relations of a foreign data wrapper. */
extern List *dist_paths(RelOptInfo *rel);
extern void dist_path_add(RelOptInfo *rel, DistPath *path);

/* A flat copy whose lists may be replaced, not modified in place. */
extern DistPath *dist_path_copy(const DistPath *path);

/* Do the rows have an order that goes when several workers' streams come together? */
extern bool dist_path_loses_order(const DistPath *path);

/* Is this so of the path, or of one inside of it: a derived table, a semi join, a branch? */
extern bool
dist_path_find(DistPath *path, bool (*test)(DistPath *path, void *context), void *context);

/* The path has no order any more, and its sub-selects no sorting that nobody will see. */
extern void dist_path_forget_order(DistPath *path);

/*
 * Has a path no rows on workers other than that to which its routes lead?  There the table that has the key is empty; what
 * would have rows nevertheless are a group of nothing, and the outer side of an outer join.
 */
extern bool dist_path_is_empty_elsewhere(DistPath *path);

/* Is the relation one of these FROM items itself, not inside a join? */
extern bool from_list_has(const List *from, Index rti);

/* The routes that lead to one worker on both sides. */
extern List *locus_common_routes(const Locus *a, const Locus *b);

/* Is there at most one worker (for one outer row, where outer_routes say so)? */
extern bool locus_is_single(const Locus *locus);

/* Do both lie on one and the same worker, decided by equal route values? */
extern bool locus_same_worker(const Locus *a, const Locus *b);

/* How many workers take part, for costs. */
extern int locus_worker_count(const Locus *locus);

/* Is expr one of the locus' keys, by equality or equivalence class? */
extern bool locus_has_key(PlannerInfo *root, const Locus *locus, Node *expr);

/* Integers of any width, equal ones of which have the same hash. */
extern bool locus_is_of_integers(const Locus *locus);

/*
 * Where do the rows of a join lie?  False when the sides do not meet on the
 * workers.  clauses: the join's own (bare expressions); jointype is INNER,
 * LEFT, FULL, SEMI or ANTI.
 */
extern bool locus_join(PlannerInfo *root, const Locus *outer, const Locus *inner, JoinType jointype,
					   List *clauses, Locus *result);

/*
 * Restrict a locus by WHERE clauses: `key = constant`, `key = ANY (array)`.
 */
extern void locus_restrict(PlannerInfo *root, Locus *locus, List *clauses);

#endif
