/*
 * rename_plan.c
 *		Path and plan of the node that hands on rows under other expressions.
 */
#include "postgres.h"

#include "nodes/plannodes.h"
#include "optimizer/tlist.h"

#include "plan/rename_plan.h"

static Plan *
plan_rename(PlannerInfo *root, RelOptInfo *rel, struct CustomPath *path, List *tlist, List *clauses,
			List *custom_plans)
{
	CustomScan *scan = makeNode(CustomScan);

	scan->scan.plan.targetlist = tlist;
	scan->custom_plans = custom_plans;
	scan->custom_scan_tlist = copyObject(make_tlist_from_pathtarget(path->path.pathtarget));
	scan->flags = path->flags;
	scan->methods = GetCustomScanMethods(RENAME_NAME, false);
	return (Plan *) scan;
}

/* ... whose child takes states of aggregates for rows. */
static Plan *
plan_rename_final(PlannerInfo *root, RelOptInfo *rel, struct CustomPath *path, List *tlist,
				  List *clauses, List *custom_plans)
{
	Agg *agg = linitial_node(Agg, custom_plans);
	ListCell *lc;

	agg->aggsplit = AGGSPLIT_FINAL_DESERIAL;
	foreach(lc, agg->chain)
		lfirst_node(Agg, lc)->aggsplit = AGGSPLIT_FINAL_DESERIAL;
	return plan_rename(root, rel, path, tlist, clauses, custom_plans);
}

static const CustomPathMethods rename_path_methods = {
	.CustomName = RENAME_NAME,
	.PlanCustomPath = plan_rename,
};

static const CustomPathMethods rename_final_path_methods = {
	.CustomName = RENAME_NAME,
	.PlanCustomPath = plan_rename_final,
};

Path *
rename_path_create_final(RelOptInfo *rel, Path *subpath, PathTarget *target)
{
	Path *path = rename_path_create(rel, subpath, target);

	((CustomPath *) path)->methods = &rename_final_path_methods;
	return path;
}

Path *
rename_path_create(RelOptInfo *rel, Path *subpath, PathTarget *target)
{
	CustomPath *path = makeNode(CustomPath);

	path->path.pathtype = T_CustomScan;
	path->path.parent = rel;
	path->path.pathtarget = target;
	path->path.rows = subpath->rows;
	path->path.startup_cost = subpath->startup_cost;
	path->path.total_cost = subpath->total_cost;
	path->path.pathkeys = subpath->pathkeys;
	path->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	path->custom_paths = list_make1(subpath);
	path->methods = &rename_path_methods;
	return &path->path;
}
