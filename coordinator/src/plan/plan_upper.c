/*
 * plan_upper.c
 *		Grouping, windows, DISTINCT, ORDER BY and LIMIT on the workers.
 *
 * A stage is complete on the workers where all rows that it brings together are
 * on one of them: one worker, replicated rows, or a group, partition or DISTINCT
 * list that holds the distribution key.  Then the DistPath goes on to the next
 * stage.  Otherwise the workers do what they can and a final step runs here:
 *
 *	GROUP BY	partial aggregates, finalized by core (plan_grouping.c)
 *	windows		with a condition like row_number() <= n: a worker's first n rows of each partition
 *	DISTINCT	duplicates within a worker; DISTINCT ON: a worker's first row of each group, as a window
 *	ORDER BY	sorted streams, merged
 *	LIMIT		the first offset + count rows of each worker
 *
 * Core has already added its own paths over the gathered input; the cheaper wins.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/planner.h"
#include "optimizer/prep.h"
#include "optimizer/tlist.h"
#include "parser/parse_oper.h"
#include "utils/fmgroids.h"
#include "utils/selfuncs.h"

#include "compat.h"
#include "plan/gather_plan.h"
#include "plan/partial_aggregate.h"
#include "plan/planner.h"
#include "plan/shippable.h"
#include "plan/upper_stage.h"
#include "server/settings.h"

/* pg_operator has no name for bigint <= bigint */
#define INT8_LESS_EQUAL 414

/* The share of rows that a condition on a window function leaves, for which core has no estimate. */
#define RANK_LIMIT_SELECTIVITY DEFAULT_INEQ_SEL

/* Do the expressions of a stage's output equal the query's own target list? */
static bool
is_final_target(PlannerInfo *root, UpperRelationKind stage)
{
	return root->upper_targets[stage] != NULL && root->upper_targets[UPPERREL_FINAL] != NULL &&
		   equal(root->upper_targets[stage]->exprs, root->upper_targets[UPPERREL_FINAL]->exprs);
}

/* The columns of the result; those of set operations are not among upper_targets. */
static PathTarget *
find_final_target(PlannerInfo *root, RelOptInfo *input_rel)
{
	return root->parse->setOperations != NULL ? ((Path *) linitial(input_rel->pathlist))->pathtarget
											  : root->upper_targets[UPPERREL_FINAL];
}

/* The condition by which workers may leave rows out before all rows of a partition have met; NULL without one. */
static OpExpr *
find_rank_limit(PlannerInfo *root, List *conditions)
{
	Index window = 0;
	ListCell *lc;

	foreach(lc, pull_var_clause((Node *) root->processed_tlist, PVC_INCLUDE_WINDOWFUNCS |
																	PVC_RECURSE_AGGREGATES |
																	PVC_RECURSE_PLACEHOLDERS))
	{
		WindowFunc *function = lfirst(lc);

		if (!IsA(function, WindowFunc))
			continue;
		if (function->winfnoid != F_ROW_NUMBER && function->winfnoid != F_RANK_ &&
			function->winfnoid != F_DENSE_RANK_)
			return NULL;
		if (window != 0 && function->winref != window)
			return NULL;
		window = function->winref;
	}
	return conditions != NIL ? linitial_node(OpExpr, conditions) : NULL;
}

/* Core's window over another input than its own. */
static Path *
replace_window_input(PlannerInfo *root, RelOptInfo *output_rel, WindowAggPath *core, Path *input)
{
	WindowAggPath *path = makeNode(WindowAggPath);
	double share = input->rows / Max(core->subpath->rows, 1);

	if (root->window_pathkeys != NIL)
		input = (Path *) create_sort_path(root, output_rel, input, root->window_pathkeys, -1.0);
	*path = *core;
	path->subpath = input;
	path->path.rows = input->rows;
	path->path.startup_cost = input->startup_cost +
							  Max(core->path.startup_cost - core->subpath->startup_cost, 0) * share;
	path->path.total_cost = input->total_cost +
							Max(core->path.total_cost - core->subpath->total_cost, 0) * share;
	return (Path *) path;
}

/*
 * WHERE row_number() <= n around partitions that lie on several workers: each worker sends the rows that are among
 * its own first n, and the window runs here.  A row that is left out has n kept ones before it, so that nobody
 * behind it is counted among the first n either; that holds for rank() and dense_rank(), too, and for one condition,
 * but for no other function of the window.
 */
static void
push_window_filter(PlannerInfo *root, RelOptInfo *output_rel, DistPath *input, List *conditions)
{
	OpExpr *limit = find_rank_limit(root, conditions);
	WindowAggPath *core = NULL;
	WindowClause *window;
	DistPath *path;
	ListCell *lc;

	foreach(lc, output_rel->pathlist)
	{
		if (core == NULL && IsA(lfirst(lc), WindowAggPath))
			core = lfirst(lc);
	}
	if (limit == NULL || core == NULL || input->locus.kind != LOCUS_HASHED ||
		input->outer_params != NULL || input->ordered || input->locks != NIL)
		return;
	window = core->winclause;
	if (!shippable_order(window->orderClause, root->processed_tlist))
		return;
	path = dist_path_copy(input);
	path->target = upper_stage_target(core->subpath->pathtarget);
	path->window_clause = list_make1(window);
	path->window_filter = list_make1(limit);
	path->has_windows = true;
	if (!upper_stage_is_shippable(path, path->target) ||
		!shippable_expr(root, &path->locus, (Node *) window, &path->outer_params) ||
		!shippable_expr(root, &path->locus, (Node *) limit, &path->outer_params) ||
		path->outer_params != NULL)
		return;
	path->cost += input->rows / locus_worker_count(&input->locus) * cpu_operator_cost * 10;
	path->rows = clamp_row_est(input->rows * RANK_LIMIT_SELECTIVITY);
	add_path(output_rel,
			 replace_window_input(root, output_rel, core,
								  gather_path_create(root, output_rel, path,
													 core->subpath->pathtarget, NIL, NIL, NIL)));
}

/* Window functions: complete where every PARTITION BY holds the key. */
static void
plan_windows(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *output_rel)
{
	List *conditions = compat_run_conditions(root->parse, root->processed_tlist);
	ListCell *lc;

	if (!is_final_target(root, UPPERREL_WINDOW))
		return;
	foreach(lc, dist_paths(input_rel))
	{
		DistPath *input = lfirst(lc);
		DistPath *path = dist_path_copy(input);
		bool complete = input->locus.kind == LOCUS_HASHED; /* copies may number rows differently */
		ListCell *lc2;

		foreach(lc2, root->parse->windowClause)
		{
			WindowClause *window = lfirst(lc2);

			complete = complete &&
					   upper_stage_is_complete(input, window->partitionClause,
											   root->processed_tlist) &&
					   shippable_order(window->orderClause, root->processed_tlist);
		}
		if (!complete)
		{
			push_window_filter(root, output_rel, input, conditions);
			continue;
		}
		path->target = root->processed_tlist;
		path->window_clause = root->parse->windowClause;
		path->window_filter = conditions;
		path->has_windows = true;
		if (!upper_stage_is_shippable(path, path->target) ||
			!shippable_expr(root, &path->locus, (Node *) path->window_clause,
							&path->outer_params) ||
			!shippable_expr(root, &path->locus, (Node *) conditions, &path->outer_params))
			continue;
		path->cost += input->rows / locus_worker_count(&input->locus) * cpu_operator_cost * 10;
		if (conditions != NIL)
			path->rows = clamp_row_est(path->rows * RANK_LIMIT_SELECTIVITY);
		dist_path_add(output_rel, path);
		upper_stage_add_gather(root, output_rel, path, root->upper_targets[UPPERREL_WINDOW], NIL);
	}
}

static bool
has_junk(List *tlist)
{
	ListCell *lc;

	foreach(lc, tlist)
	{
		if (((TargetEntry *) lfirst(lc))->resjunk)
			return true;
	}
	return false;
}

/* DISTINCT ON sorts by what ORDER BY says, and by its own columns at least. */
static List *
distinct_on_order(PlannerInfo *root, List **pathkeys)
{
	Query *parse = root->parse;

	if (list_length(parse->sortClause) > list_length(parse->distinctClause))
	{
		*pathkeys = root->sort_pathkeys;
		return parse->sortClause;
	}
	*pathkeys = root->distinct_pathkeys;
	return parse->distinctClause;
}

/*
 * DISTINCT ON as WHERE row_number() OVER (PARTITION BY ... ORDER BY ...) <= 1, which says the same and is computed by batches
 * over columnar tables, without sorting all rows.
 */
static void
keep_first_rows(DistPath *path, List *partition, List *order)
{
	WindowClause *window = makeNode(WindowClause);
	WindowFunc *number = makeNode(WindowFunc);
	ListCell *lc;

	window->partitionClause = partition;
	window->orderClause = list_copy_tail(order, list_length(partition));
	window->frameOptions = FRAMEOPTION_DEFAULTS;
	window->winref = 1;
	foreach(lc, path->window_clause)
		window->winref = Max(window->winref, ((WindowClause *) lfirst(lc))->winref + 1);
	number->winfnoid = F_ROW_NUMBER;
	number->wintype = INT8OID;
	number->winref = window->winref;
	number->location = -1;
	path->window_clause = lappend(list_copy(path->window_clause), window);
	path->window_filter = list_make1(
		make_opclause(INT8_LESS_EQUAL, BOOLOID, false, (Expr *) number,
					  (Expr *) makeConst(INT8OID, -1, InvalidOid, sizeof(int64), Int64GetDatum(1),
										 false, FLOAT8PASSBYVAL),
					  InvalidOid, InvalidOid));
	set_opfuncid(linitial_node(OpExpr, path->window_filter));
	path->has_windows = true;
	path->sort_clause = order;
}

/* DISTINCT of rows that workers have made distinct among their own. */
static Path *
finish_distinct(PlannerInfo *root, RelOptInfo *rel, Path *gather, double groups)
{
	if (root->parse->hasDistinctOn)
		return (Path *) compat_create_unique_path(root, rel, gather,
												  list_length(root->distinct_pathkeys), groups);
	return (Path *) create_agg_path(root, rel, gather, gather->pathtarget, AGG_HASHED,
									AGGSPLIT_SIMPLE, root->parse->distinctClause, NIL, NULL,
									groups);
}

static void
plan_distinct(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *output_rel)
{
	Query *parse = root->parse;
	PathTarget *target = root->upper_targets[UPPERREL_DISTINCT];
	List *pathkeys = NIL;
	List *order = parse->hasDistinctOn ? distinct_on_order(root, &pathkeys) : NIL;
	bool mergeable;
	ListCell *lc;

	if (!is_final_target(root, UPPERREL_DISTINCT) || output_rel->pathlist == NIL)
		return;
	/* a hidden column would count in the workers' DISTINCT */
	if (!parse->hasDistinctOn && has_junk(root->processed_tlist))
		return;
	mergeable = parse->hasDistinctOn ? root->distinct_pathkeys != NIL
									 : grouping_is_hashable(parse->distinctClause);

	foreach(lc, dist_paths(input_rel))
	{
		DistPath *input = lfirst(lc);
		DistPath *path = dist_path_copy(input);
		double groups = ((Path *) linitial(output_rel->pathlist))->rows;
		bool complete = upper_stage_is_complete(input, parse->distinctClause,
												root->processed_tlist);
		Path *gather;

		/* sorted rows stay sorted in Unique; and copies have their rows in different orders */
		if (input->locks != NIL || dist_path_loses_order(input) ||
			(parse->hasDistinctOn && (input->ordered || input->locus.kind == LOCUS_REPLICATED)))
			continue;
		path->target = root->processed_tlist;
		if (!parse->hasDistinctOn)
			path->distinct_clause = parse->distinctClause;
		else if (!input->has_windows) /* a window cannot look at another one */
			keep_first_rows(path, parse->distinctClause, order);
		else
			continue;
		if (!upper_stage_is_shippable(path, path->target) ||
			!shippable_order(path->sort_clause, path->target))
			continue;
		path->rows = complete ? groups
							  : upper_stage_partial_groups(input->rows, groups,
														   locus_worker_count(&input->locus));
		path->cost += input->rows / locus_worker_count(&input->locus) * cpu_operator_cost *
					  list_length(path->target);

		if (complete)
		{
			dist_path_add(output_rel, path);
			upper_stage_add_gather(root, output_rel, path, target, pathkeys);
		}
		else if (path->outer_params == NULL && path->locus.kind == LOCUS_HASHED && mergeable)
		{
			gather = gather_path_create(root, output_rel, path, target, NIL, NIL, pathkeys);
			add_path(output_rel, finish_distinct(root, output_rel, gather, groups));
		}
	}
}

static void
plan_order(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *output_rel)
{
	ListCell *lc;

	foreach(lc, dist_paths(input_rel))
	{
		DistPath *input = lfirst(lc);
		DistPath *path = dist_path_copy(input);
		Path sorted;

		if (input->distinct_clause != NIL && has_junk(root->processed_tlist))
			continue;
		/* sorted by more than this already: core does not sort again, which tells equal rows apart */
		if (dist_path_loses_order(input) &&
			pathkeys_contained_in(root->sort_pathkeys, input_rel->cheapest_total_path->pathkeys))
			continue;
		if (dist_path_loses_order(input))
			dist_path_forget_order(path);
		path->target = root->processed_tlist;
		path->sort_clause = root->parse->sortClause;
		if (!upper_stage_is_shippable(path, path->target) ||
			!shippable_order(path->sort_clause, path->target))
			continue;
		compat_cost_sort(&sorted, root, root->sort_pathkeys, path->cost,
						 input->rows / locus_worker_count(&input->locus), 32, 0.0, work_mem,
						 root->limit_tuples);
		path->cost = sorted.total_cost;
		dist_path_add(output_rel, path);
		upper_stage_add_gather(root, output_rel, path, find_final_target(root, input_rel),
							   root->sort_pathkeys);
	}
}

/* offset + count, what each worker has to send at most */
static Node *
make_limit_sum(Query *parse)
{
	if (parse->limitOffset == NULL)
		return parse->limitCount;
	return (Node *) make_opclause(
		LookupOperName(NULL, list_make2(makeString("pg_catalog"), makeString("+")), INT8OID,
					   INT8OID, false, -1),
		INT8OID, false, (Expr *) parse->limitCount, (Expr *) parse->limitOffset, InvalidOid,
		InvalidOid);
}

/* A constant to which nothing can be added without overflow. */
static bool
is_huge(Node *count)
{
	return count != NULL && IsA(count, Const) && !((Const *) count)->constisnull &&
		   DatumGetInt64(((Const *) count)->constvalue) > PG_INT64_MAX / 2;
}

/* Is all work done before the first row comes? */
static bool
has_to_read_all(const DistPath *path)
{
	return path->group_clause != NIL || path->has_aggs || path->has_windows ||
		   path->distinct_clause != NIL || path->sort_clause != NIL || path->ordered;
}

static void
push_limit(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *output_rel, DistPath *path,
		   FinalPathExtraData *extra)
{
	Query *parse = root->parse;
	Path *gather;
	OpExpr *sum;

	if (parse->limitCount == NULL || is_huge(parse->limitCount) || is_huge(parse->limitOffset) ||
		path->outer_params != NULL || path->locus.kind != LOCUS_HASHED)
		return;
	path = dist_path_copy(path);
	path->limit_count = make_limit_sum(parse);
	path->limit_option = parse->limitOption;
	if (parse->limitOffset != NULL)
	{
		sum = (OpExpr *) path->limit_count;
		set_opfuncid(sum);
	}
	if (!shippable_is_runtime_constant(root, path->limit_count))
		return;
	if (extra->limit_tuples > 0 &&
		extra->limit_tuples * locus_worker_count(&path->locus) < path->rows)
	{
		double rows = extra->limit_tuples * locus_worker_count(&path->locus);

		if (!has_to_read_all(path))
			path->cost *= rows / path->rows;
		path->rows = rows;
	}

	gather = upper_stage_gather(root, output_rel, path, find_final_target(root, input_rel),
								path->sort_clause ? root->sort_pathkeys : NIL);
	add_path(output_rel, (Path *) create_limit_path(root, output_rel, gather, parse->limitOffset,
													parse->limitCount, parse->limitOption,
													extra->offset_est, extra->count_est));
}

/* The whole SELECT: LIMIT, and the path by which a query around this one may embed it. */
static void
plan_final(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *output_rel,
		   FinalPathExtraData *extra)
{
	Query *parse = root->parse;
	ListCell *lc;

	foreach(lc, dist_paths(input_rel))
	{
		DistPath *path = dist_path_copy(lfirst(lc));

		if (parse->sortClause != NIL && path->sort_clause == NIL)
			continue;
		path->target = root->processed_tlist;
		if (!upper_stage_is_shippable(path, path->target))
			continue;

		if (limit_needed(parse))
		{
			if (path->locus.kind == LOCUS_HASHED && !locus_is_single(&path->locus))
			{
				if (!path->ordered)
					push_limit(root, input_rel, output_rel, path, extra);
				continue;
			}
			path->limit_count = parse->limitCount;
			path->limit_offset = parse->limitOffset;
			path->limit_option = parse->limitOption;
			if (!shippable_expr(root, &path->locus, path->limit_count, &path->outer_params) ||
				!shippable_expr(root, &path->locus, path->limit_offset, &path->outer_params))
				continue;
			if (extra->limit_tuples > 0)
				path->rows = Min(path->rows, extra->limit_tuples);
		}
		/* with the target list, sub-selects in it above all, evaluated by the workers */
		upper_stage_add_gather(root, output_rel, path, find_final_target(root, input_rel),
							   path->sort_clause ? root->sort_pathkeys : NIL);

		/*
		 * Inside another query its InitPlans would not be evaluated; and replicated rows come in no particular order: of those
		 * below a LIMIT each worker might choose others.
		 */
		if (root->init_plans == NIL &&
			!(path->locus.kind == LOCUS_REPLICATED && limit_needed(parse)))
			dist_path_add(output_rel, path);
	}
}

void
plan_upper(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input_rel,
		   RelOptInfo *output_rel, void *extra)
{
	if (!strata_enable_aggregate_pushdown || output_rel->fdwroutine != NULL ||
		dist_paths(input_rel) == NIL || root->parse->hasTargetSRFs)
		return;

	switch (stage)
	{
		case UPPERREL_GROUP_AGG:
			plan_grouping(root, input_rel, output_rel, extra);
			return;
		case UPPERREL_WINDOW:
			plan_windows(root, input_rel, output_rel);
			return;
		case UPPERREL_DISTINCT:
			plan_distinct(root, input_rel, output_rel);
			return;
		case UPPERREL_ORDERED:
			plan_order(root, input_rel, output_rel);
			return;
		case UPPERREL_FINAL:
			plan_final(root, input_rel, output_rel, extra);
			return;
		default:
			return;
	}
}
