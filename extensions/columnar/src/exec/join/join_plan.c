/*
 * join_plan.c
 *		Paths for hash joins by batches: ColumnarJoin in the place of core's Hash Join.
 *
 *		ColumnarJoin
 *		  -> ColumnarScan		probe side: its batches are looked up in ...
 *		  -> ColumnarScan		... the build side, which may be any other plan, too
 *
 * Which joins: of a relation that can be read by batches, as probe side, with any other, by
 * at least one equality that can be a key; see join_clause.c.  Without parameters from
 * other relations, rows to lock (their tids would have to be kept), and expressions that
 * core evaluates at a join (PlaceHolderVar).
 *
 * Each join is offered twice.  To core as a path that forms rows.  And to nodes that read
 * batches (ColumnarJoin, ColumnarAggregate) at a lower cost: see batch_path.c.
 *
 * In a parallel query each process builds a table of its own of all rows of the build side,
 * so only the probe side can be shared, and only where no build row has to be found in all
 * processes together.
 */
#include "exec/join/join_path.h"
#include "exec/batch/batch_source.h"
#include "exec/join/join_late.h"

#include "nodes/makefuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/restrictinfo.h"

#include "expression_estimate.h"
#include "join_estimate.h"
#include "key_range_estimate.h"
#include "store/options/settings.h"

static set_rel_pathlist_hook_type previous_scan_hook = NULL;
static set_join_pathlist_hook_type previous_pathlist_hook = NULL;

/* ---- the plan ----------------------------------------------------------------------------------- */

/* Which column of a side each of the node's columns is: Var or NULL. */
static List *
collect_side(const JoinQuery *query, bool outer)
{
	List *columns = NIL;
	ListCell *cell;

	foreach(cell, query->columns)
	{
		const PlannedColumn *column = lfirst(cell);

		columns = lappend(columns, outer ? column->outer : column->inner);
	}
	return columns;
}

static List *
make_expressions(const JoinCandidate *candidate)
{
	const JoinQuery *query = candidate->query;
	List *sources;
	List *expressions = NIL;
	ListCell *cell;

	sources = list_concat_copy(candidate->builds_outer ? query->inner_keys : query->outer_keys,
							   candidate->builds_outer ? query->outer_keys : query->inner_keys);
	sources = list_concat(sources, get_actual_clauses(query->conditions));
	sources = list_concat(sources, get_actual_clauses(query->filters));
	foreach(cell, sources)
		expressions = lappend(expressions, join_clause_in_columns(query, lfirst(cell)));
	return expressions;
}

/*
 * All columns of the join relation are in custom_scan_tlist: core may replace the target list by
 * another one afterwards (create_projection_plan()), made of these.
 */
static Plan *
make_plan(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist, List *clauses,
		  List *custom_plans)
{
	const JoinCandidate *candidate = (JoinCandidate *) path;
	const JoinQuery *query = candidate->query;
	CustomScan *scan = makeNode(CustomScan);
	int nprobe = list_length(candidate->probe->paths);
	List *probe_plans = list_truncate(list_copy(custom_plans), nprobe);
	List *build_plans = list_copy_tail(custom_plans, nprobe);
	List *probe_columns = collect_side(query, !candidate->builds_outer);
	List *build_columns = collect_side(query, candidate->builds_outer);
	ListCell *cell;

	scan->scan.plan.targetlist = tlist;
	foreach(cell, query->columns)
		scan->custom_scan_tlist = lappend(
			scan->custom_scan_tlist, makeTargetEntry(join_clause_column(lfirst(cell)),
													 foreach_current_index(cell) + 1, NULL, false));
	scan->custom_exprs = make_expressions(candidate);
	scan->custom_private = list_make3(
		list_make3_int(candidate->kind, list_length(query->key_clauses),
					   list_length(query->conditions)),
		batch_path_map_columns(probe_columns, candidate->probe->attributes, probe_plans),
		batch_path_map_columns(build_columns, candidate->build->attributes, build_plans));
	scan->custom_plans = list_concat(probe_plans, build_plans);
	scan->flags = path->flags;
	scan->methods = &join_scan_methods;
	return &scan->scan.plan;
}

static const CustomPathMethods path_methods = {
	.CustomName = "ColumnarJoin",
	.PlanCustomPath = make_plan,
};

/* ---- paths -------------------------------------------------------------------------------------- */

/* May each process of a parallel query do the join for its share of the probe side? */
static bool
is_shareable(JoinKind kind)
{
	return kind == JOIN_KIND_INNER || kind == JOIN_KIND_PROBE_OUTER ||
		   kind == JOIN_KIND_PROBE_SEMI || kind == JOIN_KIND_PROBE_ANTI;
}

List *
join_path_columns(const JoinQuery *query)
{
	List *vars = NIL;
	ListCell *cell;

	foreach(cell, query->columns)
	{
		const PlannedColumn *column = lfirst(cell);

		vars = lappend(vars, column->outer ? column->outer : column->inner);
	}
	return vars;
}

/* The cheapest way to read all of the relation, by rows. */
static BatchPath *
find_rows(RelOptInfo *rel, bool parallel)
{
	Path *path = rel->cheapest_total_path;

	if (path != NULL && parallel && !path->parallel_safe)
		path = get_cheapest_parallel_safe_total_inner(rel->pathlist);
	if (path == NULL || path->param_info != NULL)
		return NULL;
	return batch_path_of_collected(path);
}

/* The cheapest way to read all of the relation; `parallel`: in a worker of a parallel query. */
static BatchPath *
find_build(const JoinQuery *query, RelOptInfo *rel, List *columns, bool parallel)
{
	BatchPath *rows = find_rows(rel, parallel);
	BatchPath *batch = batch_path_find(query->root, rel, columns, false);

	if (batch == NULL || (parallel && !batch_path_is_parallel_safe(batch)))
		return rows;
	if (rows == NULL || batch->disabled_nodes < rows->disabled_nodes)
		return batch;
	return batch->disabled_nodes == rows->disabled_nodes && batch->total_cost <= rows->total_cost
			   ? batch
			   : rows;
}

Path *
join_path_of_rows(const JoinCandidate *batches)
{
	JoinCandidate *rows = palloc(sizeof(JoinCandidate));
	Path *path = &rows->custom.path;

	*rows = *batches;
	path->startup_cost += path->pathtarget->cost.startup;
	path->total_cost += path->pathtarget->cost.startup +
						path->rows * (cpu_tuple_cost + path->pathtarget->cost.per_tuple);
	return path;
}

/* To core, which frees the path if it does not keep it. */
static void
add_of_rows(RelOptInfo *joined, Path *path)
{
	if (path->parallel_workers > 0)
		add_partial_path(joined, path);
	else
		add_path(joined, path);
}

JoinCandidate *
join_path_make(const JoinQuery *query, JoinKind kind, bool builds_outer, BatchPath *probe,
			   BatchPath *build)
{
	JoinCandidate *batches = palloc0(sizeof(JoinCandidate));
	RelOptInfo *joined = query->joined;
	Path *path = &batches->custom.path;

	NodeSetTag(batches, T_CustomPath);
	batches->query = query;
	batches->kind = kind;
	batches->builds_outer = builds_outer;
	batches->probe = probe;
	batches->build = build;
	batches->custom.flags = CUSTOMPATH_SUPPORT_PROJECTION;
	batches->custom.custom_paths = list_concat_copy(probe->paths, build->paths);
	batches->custom.methods = &path_methods;
	path->pathtype = T_CustomScan;
	path->parent = joined;
	path->pathtarget = joined->reltarget;
	path->parallel_safe = joined->consider_parallel && batch_path_is_parallel_safe(probe) &&
						  batch_path_is_parallel_safe(build);
	path->parallel_workers = probe->workers;
	join_cost_set(batches);
	return batches;
}

/* Offers a path to core, and to the nodes that read batches. */
static void
offer(const JoinQuery *query, JoinKind kind, bool builds_outer, BatchPath *probe, BatchPath *build)
{
	JoinCandidate *batches = join_path_make(query, kind, builds_outer, probe, build);

	add_of_rows(query->joined, join_path_of_rows(batches));
	batch_path_offer(query->joined, &batches->custom);
}

static void
add_paths(const JoinQuery *query, JoinKind kind, bool builds_outer)
{
	RelOptInfo *probe_rel = builds_outer ? query->inner : query->outer;
	RelOptInfo *build_rel = builds_outer ? query->outer : query->inner;
	List *columns = join_path_columns(query);
	BatchPath *probe = batch_path_find(query->root, probe_rel, columns, false);
	BatchPath *build = NULL;

	if (probe != NULL)
		build = find_build(query, build_rel, columns, false);
	if (build != NULL)
		offer(query, kind, builds_outer, probe, build);

	if (!is_shareable(kind) || !query->joined->consider_parallel)
		return;
	probe = batch_path_find(query->root, probe_rel, columns, true);
	if (probe == NULL || !batch_path_is_parallel_safe(probe))
		return;
	build = find_build(query, build_rel, columns, true);
	if (build != NULL)
		offer(query, kind, builds_outer, probe, build);
}

bool
join_path_kind(JoinType type, bool builds_outer, JoinKind *kind)
{
	switch (type)
	{
		/* core calls for these with the sides exchanged, too */
		case JOIN_INNER:
			*kind = JOIN_KIND_INNER;
			return !builds_outer;
		case JOIN_LEFT:
			*kind = JOIN_KIND_PROBE_OUTER;
			return !builds_outer;
		case JOIN_RIGHT:
			*kind = JOIN_KIND_BUILD_OUTER;
			return !builds_outer;
		case JOIN_FULL:
			*kind = JOIN_KIND_FULL;
			return !builds_outer;
		case JOIN_SEMI:
			*kind = builds_outer ? JOIN_KIND_BUILD_SEMI : JOIN_KIND_PROBE_SEMI;
			return true;
		case JOIN_ANTI:
			*kind = builds_outer ? JOIN_KIND_BUILD_ANTI : JOIN_KIND_PROBE_ANTI;
			return true;
		default:
			return false;
	}
}

/* Is it a query whose joins may be ours?  Rows that are locked or changed are read again by core. */
static bool
is_possible_query(const PlannerInfo *root)
{
	return columnar_enable_vector && columnar_enable_custom_scan && enable_hashjoin &&
		   (root->parse->commandType == CMD_SELECT || root->parse->commandType == CMD_INSERT) &&
		   root->parse->rowMarks == NIL && root->rowMarks == NIL;
}

static bool
is_possible_side(RelOptInfo *rel)
{
	return rel->lateral_relids == NULL && !IS_DUMMY_REL(rel);
}

JoinQuery *
join_path_query(PlannerInfo *root, RelOptInfo *joined, RelOptInfo *outer, RelOptInfo *inner,
				JoinType type, bool inner_unique, List *clauses)
{
	JoinQuery *query = palloc0(sizeof(JoinQuery));

	query->root = root;
	query->joined = joined;
	query->outer = outer;
	query->inner = inner;
	query->type = type;
	query->inner_unique = inner_unique;
	return is_possible_side(outer) && is_possible_side(inner) &&
				   join_clause_sort_out(query, clauses)
			   ? query
			   : NULL;
}

static void
consider_join(PlannerInfo *root, RelOptInfo *joined, RelOptInfo *outer, RelOptInfo *inner,
			  JoinType type, const JoinPathExtraData *extra)
{
	JoinQuery *query;
	JoinKind kind;

	if (!join_path_kind(type, false, &kind))
		return;
	query = join_path_query(root, joined, outer, inner, type, extra->inner_unique,
							extra->restrictlist);
	if (query == NULL)
		return;
	add_paths(query, kind, false);
	if (join_path_kind(type, true, &kind))
		add_paths(query, kind, true);
}

/* What was offered, as core sees it; NULL if nothing was. */
static Path *
find_offered(RelOptInfo *joined, bool partial)
{
	CustomPath *path = batch_path_offered(joined, partial);

	return path ? join_path_of_rows((JoinCandidate *) path) : NULL;
}

/*
 * Removes nested loops that are too great a risk, which may have displaced the best ColumnarJoin.
 * A single process may be better than several that run such loops.
 */
static void
remove_loops(PlannerInfo *root, RelOptInfo *joined)
{
	Path *serial = find_offered(joined, false);
	Path *partial = find_offered(joined, true);

	if (serial == NULL)
		return;
	if (joined->partial_pathlist != NIL &&
		join_risk_remove_loops(root, joined, true,
							   partial && compat_is_cheaper(partial, serial) ? partial : serial) &&
		partial != NULL)
		add_of_rows(joined, partial);
	if (join_risk_remove_loops(root, joined, false, serial))
		add_of_rows(joined, serial);
}

static void
add_join_paths(PlannerInfo *root, RelOptInfo *joined, RelOptInfo *outer, RelOptInfo *inner,
			   JoinType type, JoinPathExtraData *extra)
{
	if (previous_pathlist_hook)
		previous_pathlist_hook(root, joined, outer, inner, type, extra);
	if (!is_possible_query(root) || compat_is_grouped_join(joined) ||
		joined->lateral_relids != NULL)
		return;
	join_risk_bound(root, joined, outer, inner, type, extra);
	consider_join(root, joined, outer, inner, type, extra);
	remove_loops(root, joined);
	join_late_replace_loops(root, joined, outer, inner, type, extra);
}

static void
estimate_joins(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	if (previous_scan_hook)
		previous_scan_hook(root, rel, rti, rte);
	join_estimate_relation(root, rel, rte, join_risk_is_columnar(root, rel));
	if (rte->rtekind == RTE_RELATION && columnar_enable_vector)
		expression_estimate_relation(root, rel);
}

void
join_initialize(void)
{
	batch_source_register(&join_scan_methods, BATCH_ROLE_SOURCE);
	join_late_initialize();
	previous_scan_hook = set_rel_pathlist_hook;
	set_rel_pathlist_hook = estimate_joins;
	previous_pathlist_hook = set_join_pathlist_hook;
	set_join_pathlist_hook = add_join_paths;
	expression_estimate_initialize();
	key_range_estimate_initialize();
}
