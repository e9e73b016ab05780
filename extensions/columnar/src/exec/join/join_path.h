/*
 * join_path.h
 *		For the planner: a join that may be a ColumnarJoin, and its paths.
 *
 *		join_plan.c		which joins, their paths, the plan
 *		join_clause.c	what a join's conditions are to the node, and which columns it has
 *		join_cost.c		what a path costs
 *		join_risk.c		which nested loops are too great a risk
 *		join_late_plan.c	which of the others are chosen late: see join_late.h
 */
#ifndef COLUMNAR_JOIN_PATH_H
#define COLUMNAR_JOIN_PATH_H

#include "exec/plan/batch_path.h"
#include "exec/join/join.h"

/*
 * A column of the node.  Its values are those of `outer` or `inner`, whichever there is, of
 * the child; which may be another column than the one it stands for, see join_clause.c.
 */
typedef struct PlannedColumn
{
	Var *var;	 /* what it is to the nodes above and to conditions */
	bool hidden; /* not to the nodes above: another column stands for the Var there */
	bool kept;	 /* asked for above, or by a condition, and not by keys alone */
	Var *outer;
	Var *inner;
} PlannedColumn;

/* A join of two relations, with the sides as core has them.  Lives as long as its paths. */
typedef struct JoinQuery
{
	PlannerInfo *root;
	RelOptInfo *joined;
	RelOptInfo *outer;
	RelOptInfo *inner;
	JoinType type;
	bool inner_unique; /* known to be */
	List *key_clauses; /* RestrictInfo */
	List *outer_keys;  /* Expr */
	List *inner_keys;
	List *conditions; /* RestrictInfo: of ON, or of an inner join */
	List *filters;	  /* RestrictInfo: of WHERE, above an outer join */
	List *columns;	  /* PlannedColumn */
} JoinQuery;

typedef struct JoinCandidate
{
	CustomPath custom; /* first member */
	const JoinQuery *query;
	JoinKind kind;
	bool builds_outer; /* the build side is core's outer one */
	BatchPath *probe;
	BatchPath *build;
} JoinCandidate;

/* What the node does, if it keeps the inner or the outer side; false: it does not do that. */
extern bool join_path_kind(JoinType type, bool builds_outer, JoinKind *kind);

/* A path of batches, with its cost; nobody knows of it yet. */
extern JoinCandidate *join_path_make(const JoinQuery *query, JoinKind kind, bool builds_outer,
									 BatchPath *probe, BatchPath *build);

/* The same as core sees it, with the cost of rows. */
extern Path *join_path_of_rows(const JoinCandidate *batches);

/* The columns that the join reads of its sides. */
extern List *join_path_columns(const JoinQuery *query);

/* NULL: the node cannot do the join. */
extern JoinQuery *
join_path_query(PlannerInfo *root, RelOptInfo *joined, RelOptInfo *outer, RelOptInfo *inner,
				JoinType type, bool inner_unique, List *clauses);

/* Fills in all behind `inner_unique`; false if the node cannot do the join. */
extern bool join_clause_sort_out(JoinQuery *query, List *clauses);

/* An expression of the join in terms of the node's columns. */
extern Expr *join_clause_in_columns(const JoinQuery *query, Expr *expression);

/* What such an expression has in the place of the column, and the node in its custom_scan_tlist. */
extern Expr *join_clause_column(const PlannedColumn *column);

/* Is it a columnar table? */
extern bool join_risk_is_columnar(PlannerInfo *root, const RelOptInfo *rel);

/* Is it a nested loop that reads a columnar inner side again and again? */
extern bool join_risk_is_loop(PlannerInfo *root, const Path *path);

/* Sets rows and costs, without making tuples of the node's batches. */
extern void join_cost_set(JoinCandidate *path);

/* Takes note of how many rows a join has at most.  To be called for each pair of relations. */
extern void join_risk_bound(PlannerInfo *root, RelOptInfo *joined, RelOptInfo *outer,
							RelOptInfo *inner, JoinType type, const JoinPathExtraData *extra);

/*
 * Of a join relation's serial or partial paths, removes nested loops that are cheaper than the
 * ColumnarJoin (which forms rows) only if their outer rows are not underestimated.  Was there one?
 */
extern bool
join_risk_remove_loops(PlannerInfo *root, RelOptInfo *joined, bool partial, const Path *join);

#endif
