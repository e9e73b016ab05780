/*
 * batch_path.c
 *		For the planner: what a node that works on batches can read.
 *
 * A table's path is made when somebody asks for it (batch_table.c); a join's is offered by join_plan.c
 * as joins are found, and remembered, because the cheapest one that returns batches need not be among the
 * paths that add_path() keeps.
 */
#include "exec/plan/batch_path.h"

#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"

#include "exec/plan/batch_table.h"
#include "exec/scan/planned_relation.h"

/* ---- joins -------------------------------------------------------------------------------------- */

/* The same as batch_path_find() of a path that is read by batches or rows; in all processes. */
static BatchPath *
read_rows_of(Path *path)
{
	BatchPath *batch = palloc0(sizeof(BatchPath));

	batch->paths = list_make1(path);
	batch->attributes = list_make1(NIL);
	batch->workers = path->parallel_workers;
	batch->rows = path->rows;
	batch->disabled_nodes = compat_disabled_nodes(path);
	batch->startup_cost = path->startup_cost;
	batch->total_cost = path->total_cost;
	return batch;
}

void
batch_path_offer(RelOptInfo *rel, CustomPath *path)
{
	PlannedRelation *planned = planned_relation_get(rel);
	bool partial = path->path.parallel_workers > 0;

	if (planned->joins[partial] == NULL ||
		compat_is_cheaper(&path->path, &planned->joins[partial]->path))
		planned->joins[partial] = path;
}

CustomPath *
batch_path_offered(RelOptInfo *rel, bool partial)
{
	PlannedRelation *planned = planned_relation_find(rel);

	return planned ? planned->joins[partial] : NULL;
}

BatchPath *
batch_path_of_collected(Path *path)
{
	BatchPath *batch = read_rows_of(path);

	batch->workers = 0;
	batch->total_cost += batch->rows * BATCH_COLLECT_COST;
	return batch;
}

BatchRole
batch_path_role(const Path *path)
{
	while (IsA(path, SubqueryScanPath) || IsA(path, ProjectionPath))
		path = IsA(path, SubqueryScanPath) ? ((const SubqueryScanPath *) path)->subpath
										   : ((const ProjectionPath *) path)->subpath;
	return batch_source_path_role(path);
}

/*
 * The rows of a sub-select that aggregates by batches, collected to batches: so that what is
 * above it need not go on by rows.
 */
static BatchPath *
find_aggregation(RelOptInfo *rel, List *expressions, bool partial)
{
	Path *path = rel->cheapest_total_path;
	BatchPath *batch;
	ListCell *cell;

	if (partial)
		path = rel->partial_pathlist ? linitial(rel->partial_pathlist) : NULL;
	if (path == NULL || path->param_info != NULL || batch_path_role(path) != BATCH_ROLE_AGGREGATION)
		return NULL;
	foreach(cell,
			pull_var_clause((Node *) expressions, PVC_RECURSE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS |
													  PVC_RECURSE_PLACEHOLDERS))
		if (!list_member(path->pathtarget->exprs, lfirst(cell)))
			return NULL;
	batch = batch_path_of_collected(path);
	batch->workers = partial ? path->parallel_workers : 0;
	return batch;
}

BatchPath *
batch_path_find(PlannerInfo *root, RelOptInfo *rel, List *expressions, bool partial)
{
	CustomPath *join;

	if (IS_SIMPLE_REL(rel) && rel->rtekind == RTE_SUBQUERY &&
		!planner_rt_fetch(rel->relid, root)->inh)
		return IS_DUMMY_REL(rel) ? NULL : find_aggregation(rel, expressions, partial);
	if (IS_SIMPLE_REL(rel))
		return batch_table_find(root, rel, expressions, partial);
	if (!IS_JOIN_REL(rel) || IS_DUMMY_REL(rel))
		return NULL;
	join = batch_path_offered(rel, partial);
	return join ? read_rows_of(&join->path) : NULL;
}

bool
batch_path_is_parallel_safe(const BatchPath *batch)
{
	ListCell *cell;

	foreach(cell, batch->paths)
		if (!((Path *) lfirst(cell))->parallel_safe)
			return false;
	return true;
}

/* ---- columns of a plan -------------------------------------------------------------------------- */

static bool
has_batches(const Plan *plan)
{
	return batch_source_plan_role(plan) == BATCH_ROLE_SOURCE;
}

/* The plan that setrefs.c will put in the place of this one, which does nothing. */
static Plan *
skip_removable(Plan *plan)
{
	for (;;)
	{
		if (IsA(plan, SubqueryScan))
			plan = ((SubqueryScan *) plan)->subplan;
		else if (IsA(plan, Append) && list_length(((Append *) plan)->appendplans) == 1)
			plan = linitial(((Append *) plan)->appendplans);
		else if (IsA(plan, MergeAppend) && list_length(((MergeAppend *) plan)->mergeplans) == 1)
			plan = linitial(((MergeAppend *) plan)->mergeplans);
		else
			return plan;
	}
}

/*
 * The rows of a plan that is read by rows.  If core removes it later, and what is then read has
 * batches, the reader would find other columns than those of the plan's target list.
 */
static Plan *
keep_rows(Plan *plan)
{
	const Plan *left = skip_removable(plan);
	Result *result;

	if (left == plan || !has_batches(left))
		return plan;
	result = makeNode(Result);
	result->plan.targetlist = copyObject(plan->targetlist);
	result->plan.lefttree = plan;
	compat_set_disabled_nodes(&result->plan, compat_disabled_nodes(plan));
	result->plan.startup_cost = plan->startup_cost;
	result->plan.total_cost = plan->total_cost;
	result->plan.plan_rows = plan->plan_rows;
	result->plan.plan_width = plan->plan_width;
	result->plan.parallel_safe = plan->parallel_safe;
	return &result->plan;
}

/* The number of a column in a target list; 0: none. */
static int
find_entry(const List *tlist, const Var *var)
{
	ListCell *cell;

	foreach(cell, tlist)
	{
		const TargetEntry *entry = lfirst_node(TargetEntry, cell);
		const Var *own = (const Var *) entry->expr;

		if (IsA(own, Var) && own->varno == var->varno && own->varattno == var->varattno)
			return entry->resno;
	}
	return 0;
}

static int
find_column(const Var *var, const List *attributes, const Plan *plan)
{
	const CustomScan *scan = (const CustomScan *) plan;

	if (attributes != NIL)
		return var->varno == linitial_int(attributes) ? list_nth_int(attributes, var->varattno) : 0;
	if (!has_batches(plan))
		return find_entry(plan->targetlist, var);
	/* a join or sort, of which these are the columns; or a table's scan */
	if (scan->scan.scanrelid == 0)
		return find_entry(scan->custom_scan_tlist, var);
	return var->varno == scan->scan.scanrelid ? var->varattno : 0;
}

List *
batch_path_map_columns(const List *columns, const List *attributes, List *plans)
{
	List *result = NIL;
	ListCell *plan;
	ListCell *of_plan;
	ListCell *column;

	forboth(plan, plans, of_plan, attributes)
	{
		List *numbers = NIL;

		if (lfirst(of_plan) == NIL)
			lfirst(plan) = keep_rows(lfirst(plan));
		foreach(column, columns)
			numbers = lappend_int(
				numbers,
				lfirst(column) ? find_column(lfirst(column), lfirst(of_plan), lfirst(plan)) : 0);
		result = lappend(result, numbers);
	}
	return result;
}
