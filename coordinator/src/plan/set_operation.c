/*
 * set_operation.c
 *		UNION, INTERSECT and EXCEPT of rows that lie on the workers.
 *
 * UNION ALL asks nothing but that the branches are on the same workers: of one colocation group, so that they stay there.  The
 * others bring equal rows together.  Those are on one worker where one and the same column is the distribution key of each
 * branch, of the same type and collation in all of them; NULL keys are on one worker, too.
 *
 * Replicated rows are everywhere, so that they may be on the right of EXCEPT, on either side of INTERSECT, but in a UNION only with
 * their like.
 *
 * A branch may be single, that is, be read on the one worker to which a route leads.  The operation need not be; on other workers
 * the branch is empty then, by the same condition, or nothing is pushed.
 */
#include "postgres.h"

#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"

#include "plan/set_operation.h"

/* Rows that lie somewhere: of a branch, or of several together. */
typedef struct Side
{
	Locus locus;	 /* without its keys */
	Bitmapset *keys; /* numbers of the columns that are the distribution key */
} Side;

static List *
visible_columns(DistPath *path)
{
	List *columns = NIL;
	ListCell *lc;

	foreach(lc, path->target)
	{
		if (!((TargetEntry *) lfirst(lc))->resjunk)
			columns = lappend(columns, lfirst(lc));
	}
	return columns;
}

/* Does the branch have the operation's columns, and is it no more than its rows, in any order? */
static bool
can_be_branch(DistPath *branch, List *target)
{
	List *columns = visible_columns(branch);
	ListCell *lc;
	ListCell *lc2;

	if (branch->locks != NIL || branch->lateral != NIL || branch->ordered ||
		branch->sort_clause != NIL || list_length(columns) != list_length(target) ||
		(branch->branches != NIL && (branch->limit_count != NULL || branch->limit_offset != NULL)))
		return false;
	forboth(lc, columns, lc2, target)
	{
		Const *value = (Const *) ((TargetEntry *) lfirst(lc))->expr;

		/* a COLLATE in one branch decides for all, but the text has lost it where the column was like that */
		if (exprCollation((Node *) value) !=
			exprCollation((Node *) ((TargetEntry *) lfirst(lc2))->expr))
			return false;

		/* deparse_path.c gives such a NULL another type */
		if (IsA(value, Const) && value->constisnull &&
			getBaseType(value->consttype) != value->consttype)
			return false;
	}
	return true;
}

static Side
make_side(DistPath *branch, List *target)
{
	Side side = {.locus = branch->locus};
	ListCell *lc;
	ListCell *lc2;

	forboth(lc, visible_columns(branch), lc2, target)
	{
		Node *expr = (Node *) ((TargetEntry *) lfirst(lc))->expr;
		Node *column = (Node *) ((TargetEntry *) lfirst(lc2))->expr;

		if (exprType(expr) == exprType(column) && exprCollation(expr) == exprCollation(column) &&
			locus_has_key(branch->root, &branch->locus, expr))
			side.keys = bms_add_member(side.keys, foreach_current_index(lc));
	}
	side.locus.keys = NIL;
	return side;
}

/* Both sides, in `left`; false where the operation does not find on a worker what it has to bring together. */
static bool
combine_sides(SetOperation operation, bool all, Side *left, const Side *right, bool *complete)
{
	Bitmapset *keys = bms_intersect(left->keys, right->keys);
	bool same = locus_same_worker(&left->locus, &right->locus);

	if (left->locus.kind == LOCUS_REPLICATED && right->locus.kind == LOCUS_REPLICATED)
		return true;
	if (right->locus.kind == LOCUS_REPLICATED)
		return operation != SETOP_UNION &&
			   (!bms_is_empty(left->keys) || locus_is_single(&left->locus));
	if (left->locus.kind == LOCUS_REPLICATED)
	{
		*left = *right;
		return operation == SETOP_INTERSECT &&
			   (!bms_is_empty(left->keys) || locus_is_single(&left->locus));
	}
	if (!same && left->locus.colocation_id != right->locus.colocation_id)
		return false;
	if (!same && bms_is_empty(keys) && !(operation == SETOP_UNION && all))
	{
		if (operation != SETOP_UNION)
			return false;
		*complete = false;
	}
	if (operation != SETOP_UNION) /* the rows are the left side's */
		return true;
	left->keys = left->locus.colocation_id == right->locus.colocation_id ? keys : NULL;
	left->locus.outer_routes = left->locus.colocation_id == right->locus.colocation_id
								   ? list_intersection_int(left->locus.outer_routes,
														   right->locus.outer_routes)
								   : NIL;
	left->locus.routes = locus_common_routes(&left->locus, &right->locus);
	left->locus.array_routes = NIL;
	return true;
}

double
set_operation_distinct_rows(DistPath *path)
{
	List *exprs = get_tlist_exprs(path->target, false);

	if (path->branches != NIL || path->has_aggs || path->group_clause != NIL ||
		path->distinct_clause != NIL || path->limit_count != NULL)
		return path->rows;
	return estimate_num_groups(path->root, exprs, path->rows, NULL, NULL);
}

static double
estimate_rows(SetOperation operation, bool all, List *branches)
{
	double rows = -1;
	ListCell *lc;

	foreach(lc, branches)
	{
		DistPath *branch = lfirst(lc);
		double mine = all ? branch->rows : set_operation_distinct_rows(branch);

		if (rows < 0)
			rows = mine;
		else if (operation == SETOP_UNION)
			rows += mine;
		else if (operation == SETOP_INTERSECT)
			rows = Min(rows, mine);
	}
	return clamp_row_est(rows);
}

DistPath *
set_operation_path(PlannerInfo *root, SetOperation operation, bool all, List *branches,
				   List *target, bool *complete)
{
	DistPath *path = palloc0(sizeof(DistPath));
	Side all_sides = {0};
	ListCell *lc;

	*complete = true;
	path->root = root;
	foreach(lc, branches)
	{
		DistPath *branch = lfirst(lc);
		Side side;

		if (!can_be_branch(branch, target))
			return NULL;
		side = make_side(branch, target);
		if (foreach_current_index(lc) == 0)
			all_sides = side;
		else if (!combine_sides(operation, all, &all_sides, &side, complete))
			return NULL;
		path->cost += branch->cost + branch->rows / locus_worker_count(&branch->locus) *
										 cpu_operator_cost * (all ? 1 : list_length(target));
		path->outer_params = bms_add_members(path->outer_params, branch->outer_params);
	}
	path->locus = all_sides.locus;
	foreach(lc, target)
	{
		if (bms_is_member(foreach_current_index(lc), all_sides.keys))
			path->locus.keys = lappend(path->locus.keys, ((TargetEntry *) lfirst(lc))->expr);
	}
	foreach(lc, branches)
	{
		DistPath *branch = lfirst(lc);

		if (locus_is_single(&branch->locus) && !locus_same_worker(&branch->locus, &path->locus) &&
			!dist_path_is_empty_elsewhere(branch))
			return NULL;
	}
	path->branches = branches;
	path->set_operation = operation;
	path->set_all = all;
	path->target = target;
	path->rows = estimate_rows(operation, all, branches);
	return path;
}
