/*
 * plan_set.c
 *		Set operations whose branches lie on the workers.
 *
 * Core knows them in two forms.  A UNION ALL of columns of the same types is flattened: an append relation, whose children are
 * relations or sub-selects of the same level.  It becomes one relation of the level on the workers, too, a derived table, and so
 * joins and groups as any other.  All others are a tree over sub-selects, each with a planner root of its own, and
 * the hook is called for each node of the tree, and each leaf: what the workers cannot put together they make distinct, at least,
 * where nobody counts.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/tlist.h"

#include "plan/gather_plan.h"
#include "plan/planner.h"
#include "plan/set_operation.h"
#include "plan/shippable.h"
#include "plan/upper_stage.h"
#include "server/settings.h"

/* The relation as a derived table of the query that `sub` is; its locus is the sub-select's own. */
static DistPath *
make_derived_table(PlannerInfo *root, RelOptInfo *rel, Index rti, DistPath *sub)
{
	DistPath *path = palloc0(sizeof(DistPath));
	RangeTblRef *ref = makeNode(RangeTblRef);
	DistSub *entry = palloc(sizeof(DistSub));

	ref->rtindex = rti;
	entry->rti = rti;
	entry->path = sub;
	path->root = root;
	path->locus = sub->locus;
	path->locus.keys = NIL;
	path->outer_params = bms_copy(sub->outer_params);
	path->relids = bms_copy(rel->relids);
	path->from = list_make1(ref);
	path->subs = list_make1(entry);
	path->rows = rel->rows;
	path->cost = sub->cost;
	return path;
}

/* ---------------------------------------------------------------- append relations */

/* The columns of the relation that somebody reads; false where one is a whole row. */
static bool
find_read_columns(RelOptInfo *rel, List **columns)
{
	ListCell *lc;

	*columns = NIL;
	foreach(lc, pull_var_clause((Node *) rel->reltarget->exprs, PVC_RECURSE_PLACEHOLDERS))
	{
		Var *var = lfirst(lc);

		if (var->varno != rel->relid)
			continue;
		if (var->varattno <= 0)
			return false;
		*columns = list_append_unique(*columns, var);
	}
	return true;
}

static Var *
find_column(List *columns, AttrNumber number)
{
	ListCell *lc;

	foreach(lc, columns)
	{
		if (((Var *) lfirst(lc))->varattno == number)
			return lfirst(lc);
	}
	return NULL;
}

/* A column of an append relation; expr: NULL where nobody reads it, for a NULL of any type. */
static TargetEntry *
make_column(Node *expr, AttrNumber number)
{
	expr = expr != NULL ? copyObject(expr) : (Node *) makeNullConst(INT4OID, -1, InvalidOid);
	return makeTargetEntry((Expr *) expr, number, NULL, false);
}

/* What a child brings; NULL where it is not on the workers. */
static DistPath *
make_child_branch(PlannerInfo *root, RelOptInfo *child, AppendRelInfo *info, List *target)
{
	DistPath *branch;
	ListCell *lc;
	ListCell *lc2;

	if (dist_paths(child) == NIL)
		return NULL;
	branch = dist_path_copy(linitial(dist_paths(child)));
	branch->target = NIL;
	branch->outer_params = bms_copy(branch->outer_params);
	forboth(lc, info->translated_vars, lc2, target)
	{
		Node *expr = lfirst(lc);
		Node *column = (Node *) ((TargetEntry *) lfirst(lc2))->expr;
		bool read = IsA(column, Var);

		if (expr == NULL ||
			(read &&
			 (exprType(expr) != exprType(column) || exprCollation(expr) != exprCollation(column) ||
			  !shippable_expr(root, &branch->locus, expr, &branch->outer_params))))
			return NULL;
		branch->target = lappend(branch->target,
								 make_column(read ? expr : NULL, list_length(branch->target) + 1));
	}
	return branch;
}

/* The columns of the relation: a Var where somebody reads one, else NULL. */
static List *
make_append_target(RangeTblEntry *rte, List *columns)
{
	List *target = NIL;
	ListCell *lc;

	foreach(lc, rte->subquery->targetList)
	{
		TargetEntry *tle = lfirst(lc);

		if (!tle->resjunk)
			target = lappend(target,
							 make_column((Node *) find_column(columns, tle->resno), tle->resno));
	}
	return target;
}

/* All children of the relation, NIL where one is not on the workers. */
static List *
make_child_branches(PlannerInfo *root, Index rti, List *target)
{
	List *branches = NIL;
	ListCell *lc;

	foreach(lc, root->append_rel_list)
	{
		AppendRelInfo *info = lfirst(lc);
		RelOptInfo *child;
		DistPath *branch;

		if (info->parent_relid != rti)
			continue;
		child = find_base_rel(root, info->child_relid);
		if (IS_DUMMY_REL(child))
			continue;
		branch = make_child_branch(root, child, info, target);
		if (branch == NULL)
			return NIL;
		branches = lappend(branches, branch);
	}
	return branches;
}

void
plan_append(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	DistPath *path;
	DistPath *operation;
	List *columns;
	List *target;
	List *branches;
	bool complete;

	if (rel->lateral_relids != NULL || rte->security_barrier || rte->subquery == NULL ||
		!find_read_columns(rel, &columns))
		return;
	target = make_append_target(rte, columns);
	branches = make_child_branches(root, rti, target);
	if (target == NIL || branches == NIL)
		return;
	operation = set_operation_path(root, SETOP_UNION, true, branches, target, &complete);
	if (operation == NULL)
		return;
	path = make_derived_table(root, rel, rti,
							  list_length(branches) == 1 ? linitial(branches) : operation);
	path->locus = operation->locus;
	dist_path_add(rel, path);
	if (path->locus.kind == LOCUS_HASHED && path->outer_params == NULL && gather_can_fetch(columns))
		add_path(rel, gather_path_create(root, rel, path, rel->reltarget, columns, NIL, NIL));
}

/* ---------------------------------------------------------------- trees of operations */

/* The leaves of a tree, as range-table indexes. */
static Relids
find_leaves(Node *node)
{
	if (IsA(node, RangeTblRef))
		return bms_make_singleton(((RangeTblRef *) node)->rtindex);
	return bms_join(find_leaves(((SetOperationStmt *) node)->larg),
					find_leaves(((SetOperationStmt *) node)->rarg));
}

/* The topmost operation over these leaves; NULL where there is none. */
static SetOperationStmt *
find_operation(Node *node, Relids leaves)
{
	SetOperationStmt *operation = (SetOperationStmt *) node;
	SetOperationStmt *found;

	if (!IsA(node, SetOperationStmt))
		return NULL;
	if (bms_equal(find_leaves(node), leaves))
		return operation;
	found = find_operation(operation->larg, leaves);
	return found != NULL ? found : find_operation(operation->rarg, leaves);
}

/* An operation's columns as core has them: of relation 0. */
static List *
make_operation_target(const SetOperationStmt *operation)
{
	List *target = NIL;
	ListCell *type;
	ListCell *typmod;
	ListCell *collation;

	forthree(type, operation->colTypes, typmod, operation->colTypmods, collation,
			 operation->colCollations)
	{
		AttrNumber number = list_length(target) + 1;
		TargetEntry *tle = makeTargetEntry((Expr *) makeVar(0, number, lfirst_oid(type),
															lfirst_int(typmod),
															lfirst_oid(collation), 0),
										   number, NULL, false);

		tle->ressortgroupref = number;
		target = lappend(target, tle);
	}
	return target;
}

static DistPath *
make_operation_path(PlannerInfo *root, SetOperationStmt *operation, bool *complete);

/* What a leaf's own query brings; NULL where it is not on the workers. */
static DistPath *
find_leaf_path(PlannerInfo *root, Index leaf)
{
	List *paths = dist_paths(
		fetch_upper_rel(find_base_rel(root, leaf)->subroot, UPPERREL_FINAL, NULL));

	return paths != NIL ? linitial(paths) : NULL;
}

/* The branches of an operation, with those of equal UNIONs below it; false where one is not on the workers. */
static bool
collect_branches(PlannerInfo *root, const SetOperationStmt *operation, Node *node, List **branches)
{
	SetOperationStmt *inner = (SetOperationStmt *) node;
	DistPath *branch;
	bool complete = true;

	if (node == (Node *) operation ||
		(IsA(node, SetOperationStmt) && operation->op == SETOP_UNION && inner->op == SETOP_UNION &&
		 inner->all == operation->all && equal(inner->colTypes, operation->colTypes) &&
		 equal(inner->colCollations, operation->colCollations)))
		return collect_branches(root, operation, inner->larg, branches) &&
			   collect_branches(root, operation, inner->rarg, branches);
	branch = IsA(node, RangeTblRef) ? find_leaf_path(root, ((RangeTblRef *) node)->rtindex)
									: make_operation_path(root, inner, &complete);
	if (branch == NULL || !complete)
		return false;
	*branches = lappend(*branches, branch);
	return true;
}

static DistPath *
make_operation_path(PlannerInfo *root, SetOperationStmt *operation, bool *complete)
{
	List *branches = NIL;

	if (operation->colTypes == NIL ||
		!collect_branches(root, operation, (Node *) operation, &branches))
		return NULL;
	return set_operation_path(root, operation->op, operation->all, branches,
							  make_operation_target(operation), complete);
}

/* SortGroupClauses by which an operation compares its columns, 1 to n. */
static List *
make_column_clauses(const SetOperationStmt *operation)
{
	List *clauses = copyObject(operation->groupClauses);
	ListCell *lc;

	foreach(lc, clauses)
		lfirst_node(SortGroupClause, lc)->tleSortGroupRef = foreach_current_index(lc) + 1;
	return clauses;
}

/* DISTINCT of rows that workers have made distinct among their own; NULL where core would have to sort. */
static Path *
finish_union(PlannerInfo *root, RelOptInfo *rel, const SetOperationStmt *operation, Path *rows)
{
	List *clauses = make_column_clauses(operation);

	if (!grouping_is_hashable(clauses))
		return NULL;
	return (Path *) create_agg_path(root, rel, rows, rel->reltarget, AGG_HASHED, AGGSPLIT_SIMPLE,
									clauses, NIL, NULL, rows->rows);
}

/* The operation that the leaf is a direct part of. */
static SetOperationStmt *
find_parent(Node *node, Index leaf)
{
	SetOperationStmt *operation = (SetOperationStmt *) node;
	SetOperationStmt *found = NULL;
	Node *parts[2];

	if (!IsA(node, SetOperationStmt))
		return NULL;
	parts[0] = operation->larg;
	parts[1] = operation->rarg;
	for (int i = 0; i < 2 && found == NULL; i++)
	{
		if (IsA(parts[i], RangeTblRef) && ((RangeTblRef *) parts[i])->rtindex == leaf)
			found = operation;
		else
			found = find_parent(parts[i], leaf);
	}
	return found;
}

/* A leaf's columns, as its operation compares them; NIL where it compares something else. */
static List *
make_leaf_target(const DistPath *leaf, Index rti, const SetOperationStmt *parent)
{
	List *target = NIL;
	ListCell *lc;

	foreach(lc, leaf->target)
	{
		TargetEntry *tle = lfirst(lc);
		int column = list_length(target);
		TargetEntry *result;

		if (tle->resjunk)
			continue;
		if (exprType((Node *) tle->expr) != list_nth_oid(parent->colTypes, column) ||
			exprCollation((Node *) tle->expr) != list_nth_oid(parent->colCollations, column))
			return NIL;
		result = makeTargetEntry((Expr *) makeVarFromTargetEntry(rti, tle), column + 1, NULL,
								 false);
		result->ressortgroupref = column + 1;
		target = lappend(target, result);
	}
	return target;
}

/* A branch of an operation that does not count duplicates: each worker sends a row once. */
static void
plan_leaf(PlannerInfo *root, RelOptInfo *rel)
{
	SetOperationStmt *parent = find_parent(root->parse->setOperations, rel->relid);
	DistPath *leaf;
	DistPath *path;
	int workers;

	if (parent == NULL || parent->all || rel->subroot == NULL)
		return;
	leaf = find_leaf_path(root, rel->relid);
	if (leaf == NULL || leaf->locks != NIL || leaf->locus.kind != LOCUS_HASHED ||
		leaf->outer_params != NULL)
		return;
	path = make_derived_table(root, rel, rel->relid, leaf);
	path->target = make_leaf_target(leaf, rel->relid, parent);
	if (path->target == NIL)
		return;
	path->distinct_clause = make_column_clauses(parent);
	workers = locus_worker_count(&leaf->locus);
	path->rows = upper_stage_partial_groups(leaf->rows, set_operation_distinct_rows(leaf), workers);
	path->cost += leaf->rows / workers * cpu_operator_cost * list_length(path->target);
	add_path(rel, gather_path_create(root, rel, path, rel->reltarget, NIL, NIL, NIL));
}

void
plan_set_operation(PlannerInfo *root, RelOptInfo *rel)
{
	SetOperationStmt *operation;
	DistPath *path;
	Path *rows;
	PathTarget *wanted;
	bool complete;

	if (!strata_enable_aggregate_pushdown || root->hasRecursion || rel->fdwroutine != NULL ||
		rel->pathlist == NIL)
		return;
	if (!IS_UPPER_REL(rel))
	{
		plan_leaf(root, rel);
		return;
	}
	operation = find_operation(root->parse->setOperations, rel->relids);
	if (operation == NULL)
		return;
	path = make_operation_path(root, operation, &complete);
	if (path == NULL)
		return;
	if (complete)
		dist_path_add(rel, path);
	if (path->locus.kind != LOCUS_HASHED || path->outer_params != NULL)
		return;

	/* an operation around this one may have put a projection on what there is already */
	wanted = ((Path *) linitial(rel->pathlist))->pathtarget;
	rows = upper_stage_gather(root, rel, path, rel->reltarget, NIL);
	if (!complete)
		rows = finish_union(root, rel, operation, rows);
	if (rows != NULL && !equal(wanted->exprs, rel->reltarget->exprs))
		rows = (Path *) create_projection_path(root, rel, rows, wanted);
	if (rows != NULL)
		add_path(rel, rows);
}
