/*
 * batch_path.c
 *		For the planner: what a node that works on batches can read.
 *
 * A table's path is made when somebody asks for it, as ColumnarScans that decode batches are
 * not among the paths that core knows; a join's is offered by join_plan.c as joins are found.
 *
 * Both are remembered: joins, because the cheapest one that returns batches need not be among the
 * paths that add_path() keeps; tables, because a table takes part in many joins.
 */
#include "exec/plan/batch_path.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "parser/parsetree.h"
#include "utils/memutils.h"

#include "exec/batch/batch_source.h"
#include "exec/scan/custom_scan.h"
#include "exec/scan/planned_relation.h"
#include "store/table/table_am.h"
#include "exec/scan/tree_plan.h"

/* Copying a row into a batch. */
#define COLLECT_COST (0.25 * cpu_tuple_cost)

/* ---- tables ------------------------------------------------------------------------------------- */

/* One columnar table of a tree. */
typedef struct TableLeaf
{
	RelOptInfo *rel;
	Bitmapset *columns; /* attribute numbers that are asked for */
	List *attributes;	/* by attribute - 1 of the top; NIL: it is the top */
} TableLeaf;

/* Attribute numbers of a relation in expressions. */
static Bitmapset *
collect_attributes(List *expressions, Index varno)
{
	Bitmapset *offsets = NULL;
	Bitmapset *attributes = NULL;
	int offset = -1;

	pull_varattnos((Node *) expressions, varno, &offsets);
	while ((offset = bms_next_member(offsets, offset)) >= 0)
	{
		AttrNumber attribute = offset + FirstLowInvalidHeapAttributeNumber;

		if (attribute > 0)
			attributes = bms_add_member(attributes, attribute);
	}
	bms_free(offsets);
	return attributes;
}

/* Translates attribute numbers of a parent into those of its child; false if one is no plain column there. */
static bool
translate_leaf(TableLeaf *leaf, const AppendRelInfo *member, const Bitmapset *wanted,
			   const List *of_parent)
{
	int attribute = -1;
	int natts = of_parent ? list_length(of_parent) : list_length(member->translated_vars);

	for (int i = 0; i < natts; i++)
	{
		int above = of_parent ? list_nth_int(of_parent, i) : i + 1;
		Var *var = above > 0 ? list_nth(member->translated_vars, above - 1) : NULL;

		leaf->attributes = lappend_int(leaf->attributes, var && IsA(var, Var) ? var->varattno : 0);
	}
	while ((attribute = bms_next_member(wanted, attribute)) >= 0)
	{
		int own = list_nth_int(leaf->attributes, attribute - 1);

		if (own <= 0)
			return false;
		leaf->columns = bms_add_member(leaf->columns, own);
	}
	return true;
}

/* Do the relation's conditions run in a ColumnarScan alone? */
static bool
is_possible_leaf(PlannerInfo *root, RelOptInfo *rel)
{
	RangeTblEntry *rte = planner_rt_fetch(rel->relid, root);
	Relation relation;
	bool result;
	ListCell *cell;

	if (rel->rtekind != RTE_RELATION || rte->tablesample != NULL || rel->lateral_relids != NULL ||
		(rte->relkind != RELKIND_RELATION && rte->relkind != RELKIND_MATVIEW &&
		 tree_plan_find(rel) == NULL))
		return false;
	/* a condition without columns becomes a node above the scan */
	foreach(cell, rel->baserestrictinfo)
		if (lfirst_node(RestrictInfo, cell)->pseudoconstant)
			return false;
	if (tree_plan_find(rel) != NULL)
		return true;
	relation = table_open(rte->relid, NoLock);
	result = columnar_is_table(relation);
	table_close(relation, NoLock);
	return result;
}

/* Adds the tables below a parent; false if one of them is not for us. */
static bool
add_leaves(PlannerInfo *root, RelOptInfo *parent, const Bitmapset *wanted, List *of_parent,
		   List **leaves)
{
	ListCell *cell;

	foreach(cell, root->append_rel_list)
	{
		AppendRelInfo *member = lfirst_node(AppendRelInfo, cell);
		RelOptInfo *child;
		TableLeaf *leaf;

		if (member->parent_relid != parent->relid)
			continue;
		child = root->simple_rel_array[member->child_relid];
		if (child == NULL || IS_DUMMY_REL(child))
			continue;
		leaf = palloc0(sizeof(TableLeaf));
		leaf->rel = child;
		if (!translate_leaf(leaf, member, wanted, of_parent))
			return false;
		if (planner_rt_fetch(child->relid, root)->inh)
		{
			if (!add_leaves(root, child, wanted, leaf->attributes, leaves))
				return false;
			continue;
		}
		if (!is_possible_leaf(root, child))
			return false;
		*leaves = lappend(*leaves, leaf);
	}
	return true;
}

/* The tables of a relation; NIL if it is not for us. */
static List *
collect_leaves(PlannerInfo *root, RelOptInfo *rel, Bitmapset *wanted)
{
	TableLeaf *leaf;
	List *leaves = NIL;

	if (planner_rt_fetch(rel->relid, root)->inh && tree_plan_find(rel) == NULL)
		return add_leaves(root, rel, wanted, NIL, &leaves) ? leaves : NIL;
	if (!is_possible_leaf(root, rel))
		return NIL;
	leaf = palloc0(sizeof(TableLeaf));
	leaf->rel = rel;
	leaf->columns = wanted;
	return list_make1(leaf);
}

static int
choose_workers(RelOptInfo *rel, const List *leaves)
{
	double pages = 0;
	ListCell *cell;

	if (!rel->consider_parallel)
		return 0;
	foreach(cell, leaves)
		pages += ((TableLeaf *) lfirst(cell))->rel->pages;
	return compute_parallel_worker(rel, pages, -1, max_parallel_workers_per_gather);
}

/* A relation of the range table; NULL if it is not for us. */
static BatchPath *
make_of_table(PlannerInfo *root, RelOptInfo *rel, Bitmapset *columns, bool partial)
{
	BatchPath *batch = palloc0(sizeof(BatchPath));
	List *leaves = collect_leaves(root, rel, columns);
	ListCell *cell;

	if (leaves == NIL)
		return NULL;
	if (partial && (batch->workers = choose_workers(rel, leaves)) <= 0)
		return NULL;
	foreach(cell, leaves)
	{
		TableLeaf *leaf = lfirst(cell);
		CustomPath *scan = custom_scan_make_batch_path(root, leaf->rel, leaf->columns,
													   batch->workers);

		if (scan == NULL)
			return NULL;
		batch->paths = lappend(batch->paths, scan);
		batch->attributes = lappend(
			batch->attributes, leaf->attributes ? lcons_int(rel->relid, leaf->attributes) : NIL);
		batch->rows += scan->path.rows;
		batch->disabled_nodes += compat_disabled_nodes(&scan->path);
		batch->total_cost += scan->path.total_cost;
	}
	batch->startup_cost = ((Path *) linitial(batch->paths))->startup_cost;
	return batch;
}

static BatchPath *
find_table(PlannerInfo *root, RelOptInfo *rel, List *expressions, bool partial)
{
	PlannedRelation *planned;
	MemoryContext caller;
	Bitmapset *columns;

	if (rel->rtekind != RTE_RELATION || rel->lateral_relids != NULL || IS_DUMMY_REL(rel))
		return NULL;
	planned = planned_relation_get(rel);
	columns = collect_attributes(expressions, rel->relid);
	if (planned->is_read[partial] && bms_equal(columns, planned->columns[partial]))
		return planned->tables[partial];

	/* GEQO's memory goes away before the table's RelOptInfo does */
	caller = MemoryContextSwitchTo(GetMemoryChunkContext(rel));
	planned->columns[partial] = bms_copy(columns);
	planned->tables[partial] = make_of_table(root, rel, planned->columns[partial], partial);
	planned->is_read[partial] = true;
	MemoryContextSwitchTo(caller);
	return planned->tables[partial];
}

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
	batch->total_cost += batch->rows * COLLECT_COST;
	return batch;
}

/* Does the path aggregate by batches, with nothing above that computes? */
static bool
is_aggregation(const Path *path)
{
	while (IsA(path, SubqueryScanPath) || IsA(path, ProjectionPath))
		path = IsA(path, SubqueryScanPath) ? ((const SubqueryScanPath *) path)->subpath
										   : ((const ProjectionPath *) path)->subpath;
	return batch_source_path_role(path) == BATCH_ROLE_AGGREGATION;
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
	if (path == NULL || path->param_info != NULL || !is_aggregation(path))
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

	if (IS_SIMPLE_REL(rel) && rel->rtekind == RTE_SUBQUERY)
		return IS_DUMMY_REL(rel) ? NULL : find_aggregation(rel, expressions, partial);
	if (IS_SIMPLE_REL(rel))
		return find_table(root, rel, expressions, partial);
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

	if (!has_batches(plan))
		return find_entry(plan->targetlist, var);
	/* a join or sort, of which these are the columns; or a table's scan */
	if (scan->scan.scanrelid == 0)
		return find_entry(scan->custom_scan_tlist, var);
	if (attributes == NIL)
		return var->varno == scan->scan.scanrelid ? var->varattno : 0;
	return var->varno == linitial_int(attributes) ? list_nth_int(attributes, var->varattno) : 0;
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

		lfirst(plan) = keep_rows(lfirst(plan));
		foreach(column, columns)
			numbers = lappend_int(
				numbers,
				lfirst(column) ? find_column(lfirst(column), lfirst(of_plan), lfirst(plan)) : 0);
		result = lappend(result, numbers);
	}
	return result;
}
