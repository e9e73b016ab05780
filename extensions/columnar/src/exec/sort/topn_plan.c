/*
 * topn_plan.c
 *		Paths for ORDER BY ... LIMIT by batches: ColumnarTopN in the place of core's Sort.
 *
 *		Limit
 *		  -> Gather Merge				(or not)
 *			   -> ColumnarTopN				the best rows, sorted
 *					-> ColumnarScan				batches; one per table of a partition tree; or ColumnarJoin
 *
 * Which queries: those whose rows are sorted as the scan or join has them - no aggregates, window
 * functions, DISTINCT, functions that return sets -, with a LIMIT and OFFSET that are
 * constants: the node must know how many rows are wanted, and core tells a bound at run time
 * to its own Sort only.  Not WITH TIES, which may want more rows, and no rows to lock, whose tids
 * would have to be kept.  The relation is read by batches: see batch_path.h.  Keys have no volatile
 * functions and subqueries; the target list may: it is evaluated for the rows that are returned.
 *
 * Of a table only the columns of the keys are asked for in the path: the others are decoded for few
 * blocks, which the cost says and the scan's read-ahead should not spoil.
 */
#include "exec/sort/topn.h"

#include <math.h>

#include "miscadmin.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "utils/lsyscache.h"

#include "exec/plan/batch_path.h"
#include "exec/batch/batch_source.h"
#include "store/codec/column_block.h"
#include "store/options/settings.h"
#include "exec/sort/sort.h"

/* More rows are core's to sort. */
#define BOUND_MAX 100000

/* Comparing a row's first key with the bar; the same of a key that has no kernel. */
#define FILTER_COST (0.05 * cpu_operator_cost)
#define COMPARISON_COST (1.0 * cpu_operator_cost)

/* An expression evaluated by a kernel, in parts of what the executor needs for a row. */
#define EXPRESSION_SHARE 0.2

/* Memory of a row besides its columns. */
#define ROW_MEMORY 32

static create_upper_paths_hook_type previous_upper_hook = NULL;

typedef struct TopnQuery
{
	PlannerInfo *root;
	RelOptInfo *input;
	RelOptInfo *ordered;
	double bound;
	SortKeys keys;
	List *columns; /* Vars that the node reads: of the keys, and those that it returns */
} TopnQuery;

typedef struct TopnPath
{
	CustomPath custom; /* first member */
	const TopnQuery *query;
	List *attributes; /* of the BatchPath */
	bool backward;
} TopnPath;

/* ---- the plan ----------------------------------------------------------------------------------- */

static Plan *
make_plan(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist, List *clauses,
		  List *custom_plans)
{
	const TopnPath *topn = (const TopnPath *) path;
	const TopnQuery *query = topn->query;
	CustomScan *scan = makeNode(CustomScan);
	ListCell *cell;

	scan->scan.plan.targetlist = tlist;
	foreach(cell, query->columns)
		scan->custom_scan_tlist = lappend(
			scan->custom_scan_tlist, makeTargetEntry(copyObject(lfirst(cell)),
													 foreach_current_index(cell) + 1, NULL, false));
	scan->custom_exprs = copyObject(query->keys.expressions);
	scan->custom_plans = list_copy(custom_plans);
	scan->custom_private = list_make4(
		batch_path_map_columns(query->columns, topn->attributes, scan->custom_plans),
		query->keys.operators, query->keys.nulls,
		list_make2_int((int) query->bound, topn->backward));
	scan->flags = path->flags;
	scan->methods = &topn_scan_methods;
	return &scan->scan.plan;
}

static const CustomPathMethods path_methods = {
	.CustomName = "ColumnarTopN",
	.PlanCustomPath = make_plan,
};

/* ---- cost --------------------------------------------------------------------------------------- */

/* Rows that are among the best when they come, if they come in no order. */
static double
estimate_kept(double rows, double bound)
{
	return rows <= bound ? rows : bound * (1 + log(rows / bound));
}

/* Can bounds be compared by a kernel? */
static bool
has_kernel(Oid type)
{
	return get_typbyval(type) || type == FLOAT8OID || type == NUMERICOID;
}

static void
set_cost(TopnPath *path, const BatchPath *keys_only, const BatchPath *all)
{
	const TopnQuery *query = path->query;
	Path *result = &path->custom.path;
	Node *first = linitial(query->keys.expressions);
	double rows = Max(all->rows, 1);
	double kept = estimate_kept(rows, query->bound);
	double late = Min(1, kept * BLOCK_ROWS / rows);
	QualCost of_first;
	QualCost of_keys;
	Cost cost;

	cost_qual_eval_node(&of_first, first, query->root);
	cost_qual_eval_node(&of_keys, (Node *) query->keys.expressions, query->root);
	cost = keys_only->total_cost + late * Max(all->total_cost - keys_only->total_cost, 0);
	cost += of_keys.startup;
	cost += rows * (has_kernel(exprType(first)) ? FILTER_COST : COMPARISON_COST);
	cost += rows * of_first.per_tuple * EXPRESSION_SHARE;
	cost += kept * (of_keys.per_tuple +
					COMPARISON_COST * (2 + log2(query->bound + 1) + list_length(query->columns)));
	result->rows = clamp_row_est(Min(query->bound, rows));
	compat_set_disabled_nodes(result, all->disabled_nodes);
	result->startup_cost = cost + result->pathtarget->cost.startup;
	result->total_cost = result->startup_cost +
						 result->rows * (cpu_tuple_cost + result->pathtarget->cost.per_tuple);
}

/* ---- paths -------------------------------------------------------------------------------------- */

/* The node over the relation; `partial`: over the share of each process.  NULL without batches. */
static TopnPath *
make_path(const TopnQuery *query, bool partial)
{
	PlannerInfo *root = query->root;
	BatchPath *all = batch_path_find(root, query->input, query->columns, partial);
	BatchPath *keys_only = all ? batch_path_find(root, query->input, query->keys.expressions,
												 partial)
							   : NULL;
	TopnPath *topn;
	Path *path;

	if (keys_only == NULL || list_length(keys_only->paths) != list_length(all->paths))
		return NULL;
	topn = palloc0(sizeof(TopnPath));
	NodeSetTag(topn, T_CustomPath);
	topn->query = query;
	topn->attributes = keys_only->attributes;
	topn->backward = sort_is_read_backward(
		root, query->input, keys_only->paths, keys_only->attributes,
		linitial(query->keys.expressions),
		compat_pathkey_is_descending(linitial_node(PathKey, root->sort_pathkeys)));
	topn->custom.flags = CUSTOMPATH_SUPPORT_PROJECTION;
	topn->custom.custom_paths = keys_only->paths;
	topn->custom.methods = &path_methods;
	path = &topn->custom.path;
	path->pathtype = T_CustomScan;
	path->parent = query->ordered;
	path->pathtarget = query->input->reltarget;
	path->pathkeys = root->sort_pathkeys;
	path->parallel_safe = query->input->consider_parallel && query->ordered->consider_parallel &&
						  batch_path_is_parallel_safe(keys_only);
	path->parallel_workers = keys_only->workers;
	set_cost(topn, keys_only, all);
	return topn;
}

/* Adds a path with what the query returns. */
static void
add_final_path(const TopnQuery *query, Path *path)
{
	PathTarget *target = query->root->upper_targets[UPPERREL_ORDERED];

	if (path->pathtarget != target)
		path = apply_projection_to_path(query->root, query->ordered, path, target);
	add_path(query->ordered, path);
}

static void
add_paths(const TopnQuery *query)
{
	TopnPath *path = make_path(query, false);
	double rows;

	if (path == NULL)
		return;
	add_final_path(query, &path->custom.path);

	if (!query->ordered->consider_parallel || !query->input->consider_parallel)
		return;
	path = make_path(query, true);
	if (path == NULL)
		return;
	rows = path->custom.path.rows * path->custom.path.parallel_workers;
	add_final_path(
		query, (Path *) create_gather_merge_path(query->root, query->ordered, &path->custom.path,
												 path->custom.path.pathtarget,
												 query->root->sort_pathkeys, NULL, &rows));
}

/* ---- which queries ------------------------------------------------------------------------------ */

static bool
is_constant(const Node *expression)
{
	return expression == NULL || IsA(expression, Const);
}

/* Are the rows of the relation sorted, and so many wanted of them as is known now? */
static bool
is_possible_query(const PlannerInfo *root, RelOptInfo *input)
{
	const Query *parse = root->parse;

	return columnar_enable_vector && columnar_enable_custom_scan && enable_sort &&
		   root->limit_tuples > 0 && root->limit_tuples <= BOUND_MAX &&
		   parse->limitOption == LIMIT_OPTION_COUNT && is_constant(parse->limitCount) &&
		   is_constant(parse->limitOffset) && root->sort_pathkeys != NIL &&
		   parse->commandType == CMD_SELECT && parse->rowMarks == NIL && root->rowMarks == NIL &&
		   !parse->hasAggs && parse->groupClause == NIL && parse->groupingSets == NIL &&
		   parse->havingQual == NULL && parse->distinctClause == NIL && !parse->hasWindowFuncs &&
		   !parse->hasTargetSRFs && parse->setOperations == NULL &&
		   (IS_SIMPLE_REL(input) || IS_JOIN_REL(input)) && input->lateral_relids == NULL &&
		   !IS_DUMMY_REL(input);
}

/* The rows that are wanted have to fit into memory. */
static bool
fits_memory(const TopnQuery *query)
{
	double width = ROW_MEMORY;
	ListCell *cell;

	foreach(cell, query->columns)
	{
		const Var *var = lfirst_node(Var, cell);

		width += get_typavgwidth(var->vartype, var->vartypmod);
	}
	width = Max(width, ROW_MEMORY + query->input->reltarget->width);
	return query->bound * width <= work_mem * 1024.0;
}

static void
add_upper_paths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input_rel,
				RelOptInfo *output_rel, void *extra)
{
	TopnQuery *query;

	if (previous_upper_hook)
		previous_upper_hook(root, stage, input_rel, output_rel, extra);
	if (stage != UPPERREL_ORDERED || !is_possible_query(root, input_rel))
		return;
	query = palloc0(sizeof(TopnQuery));
	query->root = root;
	query->input = input_rel;
	query->ordered = output_rel;
	query->bound = root->limit_tuples;
	if (sort_collect_keys(root, input_rel, root->parse->sortClause, &query->keys,
						  &query->columns) &&
		sort_collect_columns(input_rel, (Node *) input_rel->reltarget->exprs, &query->columns) &&
		sort_collect_columns(input_rel, (Node *) root->upper_targets[UPPERREL_ORDERED]->exprs,
							 &query->columns) &&
		fits_memory(query))
		add_paths(query);
}

void
topn_initialize(void)
{
	batch_source_register(&topn_scan_methods, BATCH_ROLE_ROWS);
	previous_upper_hook = create_upper_paths_hook;
	create_upper_paths_hook = add_upper_paths;
}
