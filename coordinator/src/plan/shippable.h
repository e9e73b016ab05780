/*
 * shippable.h
 *		Which expressions mean the same when a worker evaluates them.
 */
#ifndef STRATA_SHIPPABLE_H
#define STRATA_SHIPPABLE_H

#include "plan/dist_path.h"

/*
 * May `expr` (a node or List) be evaluated by the workers where rows lie as
 * `locus` says?  Ids of PARAM_EXEC parameters of outer queries found inside are
 * added to *outer_params (NULL: such parameters are refused).
 */
extern bool shippable_expr(PlannerInfo *root, const Locus *locus, Node *expr, Relids *outer_params);

/* The same of what is computed once for each row that a statement writes: it may be random. */
extern bool shippable_new_value(PlannerInfo *root, const Locus *locus, Node *expr);

/*
 * Would a worker that evaluates this node look at a value of an object identifier type, or make one?  Each node has OIDs
 * of its own, and the name that one prints depends on what else there is.  Such values are only passed along and grouped by.
 */
extern bool shippable_looks_at_names(Node *node);

/* Do rows that workers sort by these SortGroupClauses have the coordinator's order? */
extern bool shippable_order(List *clauses, List *tlist);

/* Has the expression one value for the whole execution: no columns, nothing volatile, no outer parameter? */
extern bool shippable_is_runtime_constant(PlannerInfo *root, Node *expr);

/*
 * Is it such an expression whose value is not known before execution (now(), a
 * setting), so that it is evaluated on the coordinator and shipped as a parameter?
 */
extern bool shippable_is_shipped_value(PlannerInfo *root, Node *expr);

/*
 * May workers be asked for this system column of one of their rows?  Not of a reference
 * table: each copy has its own, and only this server's leads to a row here.
 */
extern bool shippable_system_column(PlannerInfo *root, Var *var);

/* Is it a reference table with partitions or children, of which ONLY and tableoid can tell? */
extern bool shippable_has_tree(Oid relation);

/* Does a PARAM_EXEC parameter come from an outer query (not from an InitPlan)? */
extern bool shippable_param_is_outer(PlannerInfo *root, Param *param);

/* Do workers have this type of rows?  Those of views and local tables are on the coordinator only. */
extern bool shippable_row_type(Oid type);

/* Can values of the type cross between nodes as a column of a result? */
extern bool shippable_type(Oid type);

/*
 * The DistPath of a SubPlan's query, to be embedded in an expression that
 * shippable_expr() has found fit.  Which one does not matter: all of them are the
 * same query over a worker's rows.  NULL when there is none.
 */
extern DistPath *shippable_subplan_path(PlannerInfo *root, SubPlan *subplan);

#endif
