/*
 * upper_stage.c
 *		What the stages above the joins have in common.
 */
#include "postgres.h"

#include <math.h>

#include "access/nbtree.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/tlist.h"
#include "parser/parse_oper.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "compat.h"
#include "plan/gather_plan.h"
#include "plan/reference_path.h"
#include "plan/shippable.h"
#include "plan/upper_stage.h"

List *
upper_stage_target(PathTarget *target)
{
	List *result = NIL;
	int i = 0;
	ListCell *lc;

	foreach(lc, target->exprs)
	{
		TargetEntry *tle = makeTargetEntry(lfirst(lc), i + 1, NULL, false);

		tle->ressortgroupref = get_pathtarget_sortgroupref(target, i);
		result = lappend(result, tle);
		i++;
	}
	return result;
}

bool
upper_stage_is_shippable(DistPath *path, List *target)
{
	ListCell *lc;

	foreach(lc, target)
	{
		TargetEntry *tle = lfirst(lc);

		if (!shippable_expr(path->root, &path->locus, (Node *) tle->expr, &path->outer_params))
			return false;
		if (!shippable_type(exprType((Node *) tle->expr)))
			return false;
	}
	return true;
}

/* A set operation's columns as those of its first leaf, which can be shown. */
static List *
make_leaf_columns(List *target, Index leaf)
{
	List *columns = NIL;
	ListCell *lc;

	foreach(lc, target)
	{
		TargetEntry *tle = flatCopyTargetEntry(lfirst(lc));

		if (tle->resjunk)
			continue;
		tle->expr = copyObject(tle->expr);
		((Var *) tle->expr)->varno = leaf;
		columns = lappend(columns, tle);
	}
	return columns;
}

static Index
find_first_leaf(Node *node)
{
	while (IsA(node, SetOperationStmt))
		node = ((SetOperationStmt *) node)->larg;
	return ((RangeTblRef *) node)->rtindex;
}

/*
 * Core's nodes above set operations have columns of relation 0, of which EXPLAIN can show those of Append only, by looking at its
 * first child.  So the Gather is the only child of one, which core takes out of the plan in the end.  A working column that core's
 * own node has, too, is never looked at.  The order of the rows is not told: core would look for its columns below Append.
 */
static Path *
gather_operation(PlannerInfo *root, RelOptInfo *rel, DistPath *path, PathTarget *target)
{
	PathTarget *columns = create_empty_pathtarget();
	Path *append;
	ListCell *lc;

	path = dist_path_copy(path);
	path->target = make_leaf_columns(path->target, find_first_leaf(root->parse->setOperations));
	foreach(lc, path->target)
	{
		TargetEntry *tle = lfirst(lc);

		add_column_to_pathtarget(columns, tle->expr, tle->ressortgroupref);
	}
	foreach(lc, list_copy_tail(target->exprs, list_length(path->target)))
		add_column_to_pathtarget(columns,
								 (Expr *) makeNullConst(exprType(lfirst(lc)), -1, InvalidOid), 0);
	columns->width = target->width;
	append = (Path *) compat_create_append_path(
		root, rel, list_make1(gather_path_create(root, rel, path, columns, NIL, NIL, NIL)));
	append->pathtarget = target;
	return append;
}

Path *
upper_stage_gather(PlannerInfo *root, RelOptInfo *rel, DistPath *path, PathTarget *target,
				   List *pathkeys)
{
	if (root->parse->setOperations != NULL)
		return gather_operation(root, rel, path, target);
	return gather_path_create(root, rel, path, target, NIL, NIL, pathkeys);
}

void
upper_stage_add_gather(PlannerInfo *root, RelOptInfo *rel, DistPath *path, PathTarget *target,
					   List *pathkeys)
{
	if (path->outer_params != NULL || dist_path_loses_order(path))
		return;
	if (path->locus.kind == LOCUS_REPLICATED)
		reference_path_add(root, rel, path, target, pathkeys);
	else
		add_path(rel, upper_stage_gather(root, rel, path, target, pathkeys));
}

bool
upper_stage_is_complete(DistPath *path, List *clauses, List *tlist)
{
	ListCell *lc;

	if (path->locus.kind == LOCUS_REPLICATED || locus_is_single(&path->locus))
		return true;
	foreach(lc, clauses)
	{
		if (locus_has_key(path->root, &path->locus, get_sortgroupclause_expr(lfirst(lc), tlist)))
			return true;
	}
	return false;
}

double
upper_stage_partial_groups(double rows, double groups, int workers)
{
	double per_worker = groups * (1 - pow(1 - 1 / Max(groups, 1), rows / workers));

	return clamp_row_est(Min(rows, per_worker * workers));
}

/* Are equal values the same in all that can be asked of them? 1.0 and 1.00 are not. */
static bool
equal_is_identical(Oid type, Oid collation)
{
	TypeCacheEntry *entry = lookup_type_cache(type, TYPECACHE_BTREE_OPFAMILY);
	Oid function = InvalidOid;

	if (OidIsValid(entry->btree_opf))
		function = get_opfamily_proc(entry->btree_opf, entry->btree_opintype, entry->btree_opintype,
									 BTEQUALIMAGE_PROC);
	return OidIsValid(function) &&
		   DatumGetBool(
			   OidFunctionCall1Coll(function, collation, ObjectIdGetDatum(entry->btree_opintype)));
}

List *
upper_stage_group_by_all(List *target)
{
	List *clauses = NIL;
	Index last_ref = 0;
	ListCell *lc;

	foreach(lc, target)
		last_ref = Max(last_ref, ((TargetEntry *) lfirst(lc))->ressortgroupref);
	foreach(lc, target)
	{
		TargetEntry *tle = lfirst(lc);
		SortGroupClause *clause = makeNode(SortGroupClause);

		get_sort_group_operators(exprType((Node *) tle->expr), false, false, false, &clause->sortop,
								 &clause->eqop, NULL, &clause->hashable);
		if (!OidIsValid(clause->eqop) || !clause->hashable ||
			!equal_is_identical(exprType((Node *) tle->expr), exprCollation((Node *) tle->expr)))
			return NIL;
		if (tle->ressortgroupref == 0)
			tle->ressortgroupref = ++last_ref;
		clause->tleSortGroupRef = tle->ressortgroupref;
		clauses = lappend(clauses, clause);
	}
	return clauses;
}
