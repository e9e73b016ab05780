/*
 * gather_plan.c
 *		Path and plan of the custom scan that brings rows from the workers.
 *
 * The path carries a DistPath; SQL is made only for the path that wins, in
 * PlanCustomPath.  The plan holds the SQL text and not the workers: those are
 * looked up at execution, so that a cached plan follows moved shards.
 *
 * Costs.  A Gather that is scanned again reads rows that it has kept (gather_exec.c), but cost_rescan() knows no
 * custom scans, and has each scan cost what the first one did.  That is dear, and right to be: plans put a
 * Material above a Gather where rows are read again, which core prices as it is, or hash them.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/restrictinfo.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"

#include "compat.h"
#include "plan/deparse_path.h"
#include "plan/deparse_text.h"
#include "plan/gather_plan.h"
#include "plan/named_schemas.h"
#include "plan/partial_aggregate.h"
#include "plan/planner.h"
#include "plan/shippable.h"

/* Costs, in units of cpu_tuple_cost: a statement's round trip, and a row on the wire. */
#define GATHER_STARTUP_COST 10.0
#define GATHER_ROW_COST 0.03

/* Rows that workers send before anybody can tell them to stop. */
#define GATHER_READ_AHEAD_ROWS 2000.0

typedef struct GatherCustomPath
{
	CustomPath cpath; /* first: this is a Path */
	DistPath *dist;
	List *fetch;
	List *local_quals;
	PartnerKeys *keys; /* or NULL */
	GatherModifyPlanner modify_planner;
	void *modify_arg;
} GatherCustomPath;

static Plan *plan_gather(PlannerInfo *root, RelOptInfo *rel, struct CustomPath *best_path,
						 List *tlist, List *clauses, List *custom_plans);

static const CustomPathMethods gather_path_methods = {
	.CustomName = GATHER_NAME,
	.PlanCustomPath = plan_gather,
};

static CustomPath *
make_gather_path(RelOptInfo *rel, PathTarget *target)
{
	GatherCustomPath *path = (GatherCustomPath *) palloc0(sizeof(GatherCustomPath));
	CustomPath *cpath = &path->cpath;

	NodeSetTag(path, T_CustomPath);
	cpath->path.pathtype = T_CustomScan;
	cpath->path.parent = rel;
	cpath->path.pathtarget = target;
	cpath->path.parallel_safe = false;
	cpath->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	cpath->methods = &gather_path_methods;
	return cpath;
}

bool
gather_can_fetch(List *exprs)
{
	ListCell *lc;

	foreach(lc, exprs)
	{
		if (!shippable_type(exprType(lfirst(lc))))
			return false;
	}
	return true;
}

Path *
gather_path_create(PlannerInfo *root, RelOptInfo *rel, DistPath *dist, PathTarget *target,
				   List *fetch, List *local_quals, List *pathkeys)
{
	CustomPath *cpath = make_gather_path(rel, target);
	GatherCustomPath *path = (GatherCustomPath *) cpath;
	QualCost qual_cost;
	double width = Max(target->width, 8);
	Cost row_cost;

	path->dist = dist;
	path->fetch = fetch;
	path->local_quals = local_quals;
	cost_qual_eval(&qual_cost, local_quals, root);

	cpath->path.pathkeys = pathkeys;
	cpath->path.rows = clamp_row_est(rel->rows > 0 && local_quals != NIL ? rel->rows : dist->rows);
	row_cost = GATHER_ROW_COST * (1 + width / 100) + qual_cost.per_tuple +
			   target->cost.per_tuple /
				   (dist->target != NIL ? locus_worker_count(&dist->locus) + 1 : 1);

	/*
	 * The workers begin at once, and do not wait for whoever reads.  Were their work not in the start-up cost of whatever
	 * is above, add_path() would give up one percent of all of it for an early first row: by a search of a
	 * gathered set for each outer row, which is cheap as long as the estimates hold.
	 */
	cpath->path.startup_cost = GATHER_STARTUP_COST + qual_cost.startup + dist->cost +
							   Min(dist->rows, GATHER_READ_AHEAD_ROWS) * row_cost;
	cpath->path.total_cost = GATHER_STARTUP_COST + qual_cost.startup + dist->cost +
							 dist->rows * row_cost;
	return (Path *) cpath;
}

bool
gather_path_is(const Path *path)
{
	return IsA(path, CustomPath) && ((const CustomPath *) path)->methods == &gather_path_methods;
}

Path *
gather_path_create_filtered(PlannerInfo *root, RelOptInfo *rel, DistPath *dist, List *fetch,
							PartnerKeys *keys)
{
	Path *path = gather_path_create(root, rel, dist, rel->reltarget, fetch, NIL, NIL);
	GatherCustomPath *gather = (GatherCustomPath *) path;

	gather->keys = keys;
	gather->cpath.custom_paths = list_make1(keys->source);
	path->startup_cost += keys->source->total_cost;
	path->total_cost += keys->source->total_cost;
	return path;
}

Path *
gather_path_create_reference(PlannerInfo *root, RelOptInfo *rel, DistPath *dist, PathTarget *target,
							 List *pathkeys, Path *local, Cost startup_cost)
{
	Path *path = gather_path_create(root, rel, dist, target, NIL, NIL, pathkeys);
	GatherCustomPath *gather = (GatherCustomPath *) path;

	/*
	 * The target of core's path may change after this, when the stage above takes it over; and add_path() would free it were the Gather
	 * better in every way: it has a little more than one row for each.
	 */
	gather->cpath.custom_paths = list_make1(create_projection_path(
		root, rel, local,
		set_pathtarget_cost_width(root, make_pathtarget_from_tlist(dist->target))));
	path->rows = local->rows * 1.000001;
	path->startup_cost = startup_cost > 0 ? path->startup_cost + startup_cost : 0;
	path->total_cost = startup_cost > 0 ? path->total_cost + startup_cost : 0;
	return path;
}

Path *
gather_path_create_modify(PlannerInfo *root, RelOptInfo *rel, List *subpaths, double rows,
						  GatherModifyPlanner planner, void *arg)
{
	CustomPath *cpath = make_gather_path(rel, rel->reltarget);
	GatherCustomPath *path = (GatherCustomPath *) cpath;

	path->modify_planner = planner;
	path->modify_arg = arg;
	cpath->custom_paths = subpaths;
	cpath->path.rows = rows;
	cpath->path.startup_cost = GATHER_STARTUP_COST;
	cpath->path.total_cost = GATHER_STARTUP_COST;
	return (Path *) cpath;
}

static List *
plan_to_list(const GatherPlan *plan)
{
	List *numbers = NIL;

	numbers = lappend_int(numbers, plan->kind);
	numbers = lappend_int(numbers, plan->colocation_id);
	numbers = lappend_int(numbers, plan->writes);
	numbers = lappend_int(numbers, plan->can_set_tag);
	numbers = lappend_int(numbers, plan->returning);
	numbers = lappend_int(numbers, plan->param_count);
	numbers = lappend_int(numbers, plan->route_count);
	numbers = lappend_int(numbers, plan->array_route_count);
	numbers = lappend_int(numbers, plan->key_attribute);
	numbers = lappend_int(numbers, (int) plan->held_relation);
	numbers = lappend_int(numbers, plan->held_repeat);
	numbers = lappend_int(numbers, plan->held_keep);
	numbers = lappend_int(numbers, plan->keys_param);
	numbers = lappend_int(numbers, plan->reference);
	return list_concat(list_make5(makeString(plan->sql), numbers, plan->sort_columns,
								  plan->sort_operators, plan->sort_collations),
					   lcons(makeString(plan->unfiltered_sql ? plan->unfiltered_sql : ""),
							 list_make5(plan->sort_nulls_first, plan->row_columns, plan->schemas,
										plan->once_columns, plan->held_columns)));
}

void
gather_plan_from_list(List *list, GatherPlan *plan)
{
	List *numbers = lsecond(list);
	int i = 0;

	plan->sql = strVal(linitial(list));
	plan->kind = list_nth_int(numbers, i++);
	plan->colocation_id = list_nth_int(numbers, i++);
	plan->writes = list_nth_int(numbers, i++);
	plan->can_set_tag = list_nth_int(numbers, i++);
	plan->returning = list_nth_int(numbers, i++);
	plan->param_count = list_nth_int(numbers, i++);
	plan->route_count = list_nth_int(numbers, i++);
	plan->array_route_count = list_nth_int(numbers, i++);
	plan->key_attribute = list_nth_int(numbers, i++);
	plan->held_relation = (Oid) list_nth_int(numbers, i++);
	plan->held_repeat = list_nth_int(numbers, i++);
	plan->held_keep = list_nth_int(numbers, i++);
	plan->keys_param = list_nth_int(numbers, i++);
	plan->reference = list_nth_int(numbers, i++);
	plan->sort_columns = lthird(list);
	plan->sort_operators = lfourth(list);
	plan->sort_collations = list_nth(list, 4);
	plan->unfiltered_sql = strVal(list_nth(list, 5));
	plan->sort_nulls_first = list_nth(list, 6);
	plan->row_columns = list_nth(list, 7);
	plan->schemas = list_nth(list, 8);
	plan->once_columns = list_nth(list, 9);
	plan->held_columns = list_nth(list, 10);
}

/* Walker: what differs from row to row, though it may name no column of them. */
static bool
contain_value_of_row(Node *node, void *context)
{
	if (node == NULL)
		return false;
	return compat_is_merge_action(node) || compat_returned_value(node) != NULL ||
		   expression_tree_walker(node, contain_value_of_row, context);
}

/*
 * Columns that are one value for the whole execution are evaluated here anyway.
 * They must not stand in the scan's target list: setrefs would take the equal
 * expressions of custom_exprs for columns of the scan.  (Constants it never takes.)
 */
static List *
hide_constant_columns(List *scan_tlist)
{
	ListCell *lc;

	foreach(lc, scan_tlist)
	{
		TargetEntry *tle = lfirst(lc);
		Node *expr = (Node *) tle->expr;

		if (!contain_var_clause(expr) && !contain_agg_clause(expr) &&
			!contain_window_function(expr) && !contain_subplans(expr) &&
			!contain_value_of_row(expr, NULL))
			tle->expr = (Expr *) makeNullConst(exprType(expr), exprTypmod(expr),
											   exprCollation(expr));
	}
	return scan_tlist;
}

CustomScan *
gather_make_scan(const GatherPlan *plan, List *tlist, List *scan_tlist, List *quals, List *params,
				 const Locus *locus)
{
	CustomScan *scan = makeNode(CustomScan);
	GatherPlan numbered = *plan;

	numbered.param_count = list_length(params);
	numbered.route_count = locus ? list_length(locus->routes) : 0;
	numbered.array_route_count = locus ? list_length(locus->array_routes) : 0;
	if (locus)
		numbered.colocation_id = locus->colocation_id;
	numbered.schemas = named_schemas_find(plan->sql, params);

	scan->scan.plan.targetlist = tlist;
	scan->scan.plan.qual = quals;
	scan->scan.scanrelid = 0;
	scan->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	scan->custom_scan_tlist = hide_constant_columns(copyObject(scan_tlist));
	scan->custom_exprs = list_copy(params);
	if (locus)
	{
		scan->custom_exprs = list_concat(scan->custom_exprs, locus->routes);
		scan->custom_exprs = list_concat(scan->custom_exprs, locus->array_routes);
	}
	scan->custom_exprs = copyObject(scan->custom_exprs);
	scan->custom_private = plan_to_list(&numbered);
	scan->methods = GetCustomScanMethods(GATHER_NAME, false);
	return scan;
}

List *
gather_scan_tlist(List *exprs)
{
	List *tlist = NIL;
	ListCell *lc;

	foreach(lc, exprs)
	{
		if (tlist_member(lfirst(lc), tlist) == NULL)
			tlist = lappend(tlist,
							makeTargetEntry(lfirst(lc), list_length(tlist) + 1, NULL, false));
	}
	return tlist;
}

/* A copy of a target in which every entry is a visible column. */
static List *
make_visible(List *target)
{
	List *result = NIL;
	ListCell *lc;

	foreach(lc, target)
	{
		TargetEntry *tle = flatCopyTargetEntry(lfirst(lc));

		tle->resjunk = false;
		tle->resno = list_length(result) + 1;
		result = lappend(result, tle);
	}
	return result;
}

/* How the streams are merged: columns of the target that ORDER BY names. */
static void
set_merge_order(GatherPlan *plan, DistPath *dist)
{
	ListCell *lc;

	foreach(lc, dist->sort_clause)
	{
		SortGroupClause *clause = lfirst(lc);
		TargetEntry *tle = get_sortgroupclause_tle(clause, dist->target);

		plan->sort_columns = lappend_int(plan->sort_columns, tle->resno);
		plan->sort_operators = lappend_oid(plan->sort_operators, clause->sortop);
		plan->sort_collations = lappend_oid(plan->sort_collations,
											exprCollation((Node *) tle->expr));
		plan->sort_nulls_first = lappend_int(plan->sort_nulls_first, clause->nulls_first);
	}
}

void
gather_add_hidden_roots(DistPath *dist)
{
	ListCell *lc;

	foreach(lc, dist->subs)
	{
		DistSub *sub = lfirst(lc);

		planner_add_hidden_root(sub->path->root);
		gather_add_hidden_roots(sub->path);
	}
	foreach(lc, dist->semijoins)
		gather_add_hidden_roots(((DistSemiJoin *) lfirst(lc))->inner);
	foreach(lc, dist->branches)
	{
		DistPath *branch = lfirst(lc);

		if (branch->root != dist->root)
			planner_add_hidden_root(branch->root);
		gather_add_hidden_roots(branch);
	}
}

/* Tables that the path reads on workers, at this level. */
static bool
note_reads(DistPath *dist, void *context)
{
	int rti = -1;

	while ((rti = bms_next_member(dist->relids, rti)) >= 0)
	{
		RangeTblEntry *rte = planner_rt_fetch(rti, dist->root);

		if (rte->rtekind == RTE_RELATION)
			planner_note_access(rte->relid, false);
	}
	return false;
}

/* The SQL with the condition on the keys, whose place among the parameters a NULL takes: they come from the child. */
static void
add_keys(GatherPlan *plan, DistPath *dist, const PartnerKeys *keys, List *scan_tlist, List **params)
{
	DistPath *filtered = dist_path_copy(dist);
	ListCell *lc;

	filtered->quals = lappend(list_copy(dist->quals), keys->filter);
	plan->unfiltered_sql = plan->sql;
	plan->sql = deparse_text_transport(deparse_path_query(filtered, scan_tlist, params));
	foreach(lc, *params)
	{
		if (!equal(lfirst(lc), keys->keys))
			continue;
		plan->keys_param = foreach_current_index(lc) + 1;
		lfirst(lc) = makeNullConst(keys->keys->paramtype, -1, keys->keys->paramcollid);
	}
	Assert(plan->keys_param > 0);
}

static Plan *
plan_gather(PlannerInfo *root, RelOptInfo *rel, struct CustomPath *best_path, List *tlist,
			List *clauses, List *custom_plans)
{
	GatherCustomPath *path = (GatherCustomPath *) best_path;
	DistPath *dist;
	GatherPlan plan = {.kind = GATHER_SELECT};
	List *params = NIL;
	List *scan_tlist;
	CustomScan *scan;

	if (path->dist)
	{
		gather_add_hidden_roots(path->dist);
		(void) dist_path_find(path->dist, note_reads, NULL);
	}
	if (path->modify_planner)
	{
		scan = path->modify_planner(root, best_path, path->modify_arg);
		scan->custom_plans = custom_plans;
		if (tlist != NIL)
			scan->scan.plan.targetlist = tlist;
		return (Plan *) scan;
	}

	dist = path->dist;
	if (dist->target != NIL)
	{
		dist = dist_path_copy(dist);
		dist->target = make_visible(dist->target);
		/* the plan above finalizes aggregates as if they were not distinct */
		scan_tlist = (List *) partial_aggregate_undistinct((Node *) dist->target,
														   AGGSPLIT_INITIAL_SERIAL);
		plan.once_columns = dist->once_columns;
		set_merge_order(&plan, dist);
	}
	else
		scan_tlist = gather_scan_tlist(path->fetch);

	plan.sql = deparse_text_transport(deparse_path_query(dist, scan_tlist, &params));
	if (path->keys != NULL)
		add_keys(&plan, dist, path->keys, scan_tlist, &params);
	plan.writes = dist->locks != NIL;
	plan.reference = dist->locus.kind == LOCUS_REPLICATED;
	if (plan.reference || locus_is_single(&dist->locus))
		plan.sort_columns = plan.sort_operators = plan.sort_collations = plan.sort_nulls_first =
			NIL;

	scan = gather_make_scan(&plan, tlist, scan_tlist, path->local_quals, params, &dist->locus);
	scan->custom_plans = custom_plans;
	return (Plan *) scan;
}
