/*
 * join_late_plan.c
 *		For the planner: which nested loops become hash joins when there are too many outer rows.
 *
 * A look-up in a columnar table costs some ten times that in a heap, so a loop that was planned for ten outer
 * rows and gets a hundred thousand takes minutes.  join_risk.c takes no such loop where the outer side
 * is a join of which the estimate says little.  But that of a single table can be as wrong, by two conditions that are
 * not independent of each other, and there the loop is right more often than not.  So both ways are in the
 * plan, and the outer rows themselves choose.  They are kept until they are more than those whose
 * look-ups cost as much as the hash join: at worst the join takes twice as long as the better way.
 *
 * Not where the outer side has one row at most by a unique index, nor where the query wants the first rows early.
 */
#include "exec/join/join_late.h"

#include <math.h>

#include "access/htup_details.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/paths.h"

#include "exec/join/join_path.h"
#include "store/options/settings.h"

/* Rows that are kept at most, whatever they would cost. */
#define ROWS_MAX 1000000

/* What a row in memory takes besides its columns. */
#define ROW_MEMORY (SizeofMinimalTupleHeader + 24)

typedef struct LatePath
{
	CustomPath custom; /* first member; its paths are as in LateChild */
	int limit;		   /* outer rows up to which the loop is taken */
} LatePath;

/* ---- plans -------------------------------------------------------------------------------------- */

/* All columns of the path, by their place in its target. */
static CustomScan *
make_scan(CustomPath *path, List *tlist, List *children, const CustomScanMethods *methods)
{
	CustomScan *scan = makeNode(CustomScan);
	ListCell *cell;

	foreach(cell, path->path.pathtarget->exprs)
		scan->custom_scan_tlist = lappend(
			scan->custom_scan_tlist, makeTargetEntry(copyObject(lfirst(cell)),
													 foreach_current_index(cell) + 1, NULL, false));
	scan->scan.plan.targetlist = tlist;
	scan->custom_plans = children;
	scan->flags = path->flags;
	scan->methods = methods;
	return scan;
}

static Plan *
make_plan(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist, List *clauses,
		  List *children)
{
	CustomScan *scan = make_scan(path, tlist, children, &join_late_scan_methods);

	scan->custom_private = list_make1_int(((LatePath *) path)->limit);
	return &scan->scan.plan;
}

static Plan *
make_rows_plan(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist, List *clauses,
			   List *children)
{
	return &make_scan(path, tlist, children, &join_late_rows_scan_methods)->scan.plan;
}

static const CustomPathMethods path_methods = {
	.CustomName = "ColumnarLateJoin",
	.PlanCustomPath = make_plan,
};

static const CustomPathMethods rows_path_methods = {
	.CustomName = "ColumnarLateRows",
	.PlanCustomPath = make_rows_plan,
};

/* ---- paths -------------------------------------------------------------------------------------- */

static void
init_path(CustomPath *path, const Path *like, List *children, const CustomPathMethods *methods)
{
	path->path.pathtype = T_CustomScan;
	path->path.parent = like->parent;
	path->path.pathtarget = like->pathtarget;
	path->path.parallel_safe = like->parallel_safe;
	path->path.rows = like->rows;
	compat_set_disabled_nodes(&path->path, compat_disabled_nodes(like));
	path->path.startup_cost = like->startup_cost;
	path->path.total_cost = like->total_cost;
	path->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	path->custom_paths = children;
	path->methods = methods;
}

/* In the place of the outer side, which the node above has read in part. */
static Path *
make_rows_path(const Path *outer)
{
	CustomPath *path = makeNode(CustomPath);

	init_path(path, outer, NIL, &rows_path_methods);
	return &path->path;
}

/* The ColumnarJoin that keeps the outer side and reads the inner one; NULL if there is none. */
static JoinCandidate *
make_hash_path(PlannerInfo *root, RelOptInfo *joined, RelOptInfo *outer, RelOptInfo *inner,
			   JoinType type, const JoinPathExtraData *extra, Path *rows)
{
	/* a semi-join's sides cannot be exchanged, and others keep the inner one */
	bool builds_outer = type == JOIN_SEMI || type == JOIN_ANTI;
	JoinType ours = type == JOIN_LEFT ? JOIN_RIGHT : type;
	JoinQuery *query;
	JoinKind kind;
	BatchPath *probe;

	if (!join_path_kind(ours, builds_outer, &kind))
		return NULL;
	query = join_path_query(root, joined, builds_outer ? outer : inner,
							builds_outer ? inner : outer, ours, builds_outer && extra->inner_unique,
							extra->restrictlist);
	if (query == NULL)
		return NULL;
	probe = batch_path_find(root, inner, join_path_columns(query), false);
	if (probe == NULL)
		return NULL;
	return join_path_make(query, kind, builds_outer, probe, batch_path_of_collected(rows));
}

/* Has the side one row at most, whatever the statistics say? */
static bool
is_one_row(PlannerInfo *root, const Path *path)
{
	while (IsA(path, AppendPath) && list_length(((const AppendPath *) path)->subpaths) == 1)
		path = linitial(((const AppendPath *) path)->subpaths);
	return IS_SIMPLE_REL(path->parent) &&
		   relation_has_unique_index_for(root, path->parent, NIL, NIL, NIL);
}

static bool
has_columns_only(const PathTarget *target)
{
	ListCell *cell;

	foreach(cell, target->exprs)
		if (!IsA(lfirst(cell), Var))
			return false;
	return true;
}

static bool
is_possible_loop(PlannerInfo *root, const Path *path, const RelOptInfo *outer,
				 const RelOptInfo *inner, JoinType type)
{
	const JoinPath *join = (const JoinPath *) path;

	return IsA(path, NestPath) && join->jointype == type && join_risk_is_loop(root, path) &&
		   join->outerjoinpath->parent == outer && join->innerjoinpath->parent == inner &&
		   has_columns_only(join->outerjoinpath->pathtarget) &&
		   !is_one_row(root, join->outerjoinpath);
}

/* So many look-ups cost what the hash join does; 0 if they would not fit into memory. */
static int
find_limit(const Path *loop, const Path *outer, const Path *hash)
{
	Cost each = (loop->total_cost - outer->total_cost) / Max(outer->rows, 1);
	Cost once = hash->total_cost - outer->total_cost;
	double memory = work_mem * 1024.0 / (outer->pathtarget->width + ROW_MEMORY);
	double limit = Max(each > 0 ? once / each : ROWS_MAX, outer->rows);

	return outer->rows > memory ? 0 : (int) Min(Min(ceil(limit), memory), ROWS_MAX);
}

/* The loop, chosen late; NULL if there is no other way. */
static Path *
make_late_path(PlannerInfo *root, NestPath *loop, JoinType type, const JoinPathExtraData *extra)
{
	Path *outer = loop->jpath.outerjoinpath;
	Path *inner = loop->jpath.innerjoinpath;
	Path *rows = make_rows_path(outer);
	JoinCandidate *hash = make_hash_path(root, loop->jpath.path.parent, outer->parent,
										 inner->parent, type, extra, rows);
	NestPath *over_rows;
	LatePath *late;
	Path *path;

	if (hash == NULL)
		return NULL;
	over_rows = makeNode(NestPath);
	*over_rows = *loop;
	over_rows->jpath.outerjoinpath = rows;
	late = palloc0(sizeof(LatePath));
	NodeSetTag(late, T_CustomPath);
	late->limit = find_limit(&loop->jpath.path, outer, &hash->custom.path);
	if (late->limit == 0)
		return NULL;
	init_path(&late->custom, &loop->jpath.path,
			  list_make3(outer, over_rows, join_path_of_rows(hash)), &path_methods);
	path = &late->custom.path;
	path->parallel_safe = path->parallel_safe && hash->custom.path.parallel_safe;
	path->startup_cost = Max(path->startup_cost, outer->total_cost);
	path->total_cost += outer->rows * cpu_tuple_cost;
	return path;
}

void
join_late_replace_loops(PlannerInfo *root, RelOptInfo *joined, RelOptInfo *outer, RelOptInfo *inner,
						JoinType type, const JoinPathExtraData *extra)
{
	ListCell *cell;

	if (!columnar_enable_late_join || joined->consider_startup ||
		(type != JOIN_INNER && type != JOIN_LEFT && type != JOIN_SEMI && type != JOIN_ANTI))
		return;
	foreach(cell, joined->pathlist)
	{
		Path *late;

		if (!is_possible_loop(root, lfirst(cell), outer, inner, type))
			continue;
		late = make_late_path(root, lfirst(cell), type, extra);
		if (late != NULL)
			lfirst(cell) = late; /* it costs the same: the list's order stays */
	}
}
