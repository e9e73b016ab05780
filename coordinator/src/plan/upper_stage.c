/*
 * upper_stage.c
 *		What the stages above the joins have in common.
 */
#include "postgres.h"

#include <math.h>

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/tlist.h"

#include "plan/gather_plan.h"
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

void
upper_stage_add_gather(PlannerInfo *root, RelOptInfo *rel, DistPath *path, PathTarget *target,
					   List *pathkeys)
{
	if (path->locus.kind == LOCUS_HASHED && path->outer_params == NULL &&
		!dist_path_loses_order(path))
		add_path(rel, gather_path_create(root, rel, path, target, NIL, NIL, pathkeys));
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
