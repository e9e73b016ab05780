/*
 * window_plan.c
 *		Paths for window functions by batches: ColumnarWindow in the place of core's WindowAgg, or
 *		ColumnarSort below it.
 *
 *		WindowAgg					for other window clauses, in another order
 *		  -> Sort
 *			   -> ColumnarWindow			functions of one window clause
 *					-> ColumnarSort				none if there is nothing to sort by
 *						 -> ColumnarScan			or ColumnarJoin
 *
 * Core has made its paths before, a chain of WindowAgg and Sort above the scan or join; the one at
 * the bottom is replaced, the others are copied.  ColumnarWindow computes a window clause if it does
 * all of its functions: see window_find_kind(); frames begin with the partition; arguments and keys
 * have no volatile functions and subqueries; nothing can fail for rows for which core would not
 * evaluate it; and rows that wait for others, mostly those of a partition, are expected to fit into
 * memory.  Without that core's WindowAgg reads what ColumnarSort returns.
 *
 * If the query above wants the first rows of each partition, ColumnarSort leaves out what it can of the others.
 */
#include "exec/window/window.h"

#include "access/stratnum.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "optimizer/tlist.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"

#include "exec/plan/batch_path.h"
#include "exec/batch/batch_source.h"
#include "decorrelate.h"
#include "store/options/settings.h"
#include "exec/sort/sort.h"

/* A row: neighbours compared, its place; keeping a value and fetching it; a function's result. */
#define PLACE_COST (0.5 * cpu_operator_cost)
#define COLUMN_COST (0.3 * cpu_operator_cost)
#define FUNCTION_COST (0.5 * cpu_operator_cost)

/* Memory of a row besides its columns. */
#define ROW_MEMORY 24

static create_upper_paths_hook_type previous_upper_hook = NULL;

typedef struct WindowQuery
{
	PlannerInfo *root;
	RelOptInfo *input;
	RelOptInfo *windowed;
	WindowAggPath replaced;
	SortKeys keys; /* of the partition, then of the order */
	List *pathkeys;
	/* for ColumnarWindow */
	WindowFrame frame;
	List *functions; /* WindowFunc */
	List *columns;	 /* Vars of the input that it reads */
	List *filter;
	bool stops;
} WindowQuery;

typedef struct WindowPath
{
	CustomPath custom; /* first member */
	const WindowQuery *query;
	List *attributes; /* of the children, as in a BatchPath */
} WindowPath;

uint64 window_plans_made = 0;

/* ---- the plan ----------------------------------------------------------------------------------- */

static Plan *
make_plan(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist, List *clauses,
		  List *custom_plans)
{
	const WindowPath *window = (const WindowPath *) path;
	const WindowQuery *query = window->query;
	List *entries = list_concat_copy(query->columns, query->functions);
	CustomScan *scan = makeNode(CustomScan);
	ListCell *cell;

	scan->scan.plan.targetlist = tlist;
	scan->scan.plan.qual = copyObject(query->filter);
	scan->custom_exprs = copyObject(query->keys.expressions);
	foreach(cell, entries)
	{
		Expr *expression = copyObject(lfirst(cell));

		scan->custom_scan_tlist = lappend(
			scan->custom_scan_tlist,
			makeTargetEntry(expression, foreach_current_index(cell) + 1, NULL, false));
		if (IsA(expression, WindowFunc))
			scan->custom_exprs = list_concat(scan->custom_exprs,
											 copyObject(((WindowFunc *) expression)->args));
	}
	scan->custom_plans = list_copy(custom_plans);
	scan->custom_private = list_make5(
		batch_path_map_columns(query->columns, window->attributes, scan->custom_plans),
		list_make4_int(list_length(query->columns),
					   list_length(query->replaced.winclause->partitionClause), query->frame,
					   query->stops),
		query->keys.operators, query->keys.nulls, copyObject(query->functions));
	window_plans_made++;
	scan->flags = path->flags;
	scan->methods = &window_scan_methods;
	return &scan->scan.plan;
}

static const CustomPathMethods path_methods = {
	.CustomName = "ColumnarWindow",
	.PlanCustomPath = make_plan,
};

/* ---- which windows ------------------------------------------------------------------------------ */

/* The end of the frame; false if the clause has one that the node does not know. */
static bool
find_frame(const WindowClause *clause, WindowFrame *frame)
{
	int options = clause->frameOptions;

	if (!(options & FRAMEOPTION_START_UNBOUNDED_PRECEDING) || (options & FRAMEOPTION_EXCLUSION))
		return false;
	if (options & FRAMEOPTION_END_UNBOUNDED_FOLLOWING)
		*frame = WINDOW_FRAME_WHOLE;
	else if (!(options & FRAMEOPTION_END_CURRENT_ROW))
		return false;
	else if (options & FRAMEOPTION_ROWS)
		*frame = WINDOW_FRAME_ROW;
	else
		*frame = clause->orderClause == NIL ? WINDOW_FRAME_WHOLE : WINDOW_FRAME_PEERS;
	return true;
}

/* Does core leave functions, and the target list, of some rows alone, as the query above wants few? */
static bool
has_run_condition(const WindowQuery *query)
{
	return compat_window_run_condition(&query->replaced) != NIL;
}

/*
 * May arguments fail for rows for which core does not evaluate them?  Those whose value no row shows,
 * and those behind the first that the run condition removes.
 */
static bool
arguments_may_fail(const WindowQuery *query, const WindowFunc *function, WindowKind kind)
{
	switch (kind)
	{
		case WINDOW_LAG:
		case WINDOW_FIRST_VALUE:
		case WINDOW_LAST_VALUE:
		case WINDOW_NTH_VALUE:
			break;
		default:
			if (!has_run_condition(query))
				return false;
			break;
	}
	return decorrelate_may_fail((Node *) function->args);
}

/*
 * With a run condition, does it make a difference for which rows the target list is evaluated: may it
 * fail, or count its calls?  Keys were evaluated before, and functions have no results then.
 */
static bool
target_may_fail(const WindowQuery *query)
{
	ListCell *cell;

	if (!has_run_condition(query))
		return false;
	foreach(cell, query->replaced.path.pathtarget->exprs)
	{
		Node *expression = lfirst(cell);

		if (!IsA(expression, WindowFunc) && !list_member(query->keys.expressions, expression) &&
			(decorrelate_may_fail(expression) || contain_volatile_functions(expression)))
			return true;
	}
	return false;
}

/* Adds the functions of the window in an expression; false if it has something else for the node. */
static bool
add_functions(WindowQuery *query, Node *expression)
{
	List *found = pull_var_clause(expression, PVC_INCLUDE_WINDOWFUNCS | PVC_INCLUDE_PLACEHOLDERS);
	ListCell *cell;

	foreach(cell, found)
	{
		WindowFunc *function = lfirst(cell);
		WindowKind kind;
		int64 offset;

		if (!IsA(function, WindowFunc) || function->winref != query->replaced.winclause->winref)
			continue;
		if (!window_find_kind(function, &kind, &offset) ||
			contain_volatile_functions((Node *) function->args) ||
			contain_subplans((Node *) function->args) || arguments_may_fail(query, function, kind))
			return false;
		query->functions = list_append_unique(query->functions, function);
	}
	return true;
}

/*
 * Columns of expressions, of which those that are functions of the window at hand are computed by
 * the node.
 */
static bool
add_columns(WindowQuery *query, List *expressions)
{
	return sort_collect_columns(query->input, (Node *) expressions, &query->columns);
}

/* The rows that have the same values of these keys: of the average, or of the most common ones. */
static double
estimate_rows(const WindowQuery *query, List *keys)
{
	double rows = query->input->rows;
	double share = 0;
	ListCell *cell;

	if (keys == NIL)
		return rows;
	foreach(cell, keys)
	{
		Selectivity frequency;
		Selectivity bucket;

		estimate_hash_bucket_stats(query->root, lfirst(cell), 1024, &frequency, &bucket);
		share = foreach_current_index(cell) == 0 ? frequency : Min(share, frequency);
	}
	return Max(rows / Max(estimate_num_groups(query->root, keys, rows, NULL, NULL), 1),
			   rows * share);
}

/* May a row wait for so many others? */
static bool
fits_memory(const WindowQuery *query)
{
	const WindowClause *clause = query->replaced.winclause;
	double width = ROW_MEMORY;
	WindowDelay delay = WINDOW_DELAY_NONE;
	List *keys = query->keys.expressions;
	ListCell *cell;

	foreach(cell, query->functions)
	{
		WindowKind kind;
		int64 offset;

		window_find_kind(lfirst(cell), &kind, &offset);
		delay = Max(delay, window_find_delay(kind, offset, query->frame));
		width += get_typavgwidth(exprType(lfirst(cell)), -1);
	}
	if (delay == WINDOW_DELAY_NONE)
		return true;
	if (delay == WINDOW_DELAY_PARTITION)
		keys = list_copy_head(keys, list_length(clause->partitionClause));
	foreach(cell, query->columns)
		width += get_typavgwidth(exprType(lfirst(cell)), exprTypmod(lfirst(cell)));
	return estimate_rows(query, keys) * width <= work_mem * 1024.0;
}

/* Can the node do all that the WindowAgg does? */
static bool
is_possible_window(WindowQuery *query)
{
	const WindowAggPath *replaced = &query->replaced;
	List *run_condition = compat_window_run_condition(replaced);
	List *target = replaced->path.pathtarget->exprs;

	query->filter = replaced->topwindow ? list_copy(run_condition) : NIL;
	query->stops = query->filter != NIL && replaced->winclause->partitionClause == NIL;
	/* the other condition of a topmost WindowAgg comes from those below, and here is none below */
	return replaced->qual == NIL && !target_may_fail(query) &&
		   find_frame(replaced->winclause, &query->frame) &&
		   add_functions(query, (Node *) target) && add_functions(query, (Node *) query->filter) &&
		   query->functions != NIL && add_columns(query, target) &&
		   add_columns(query, query->filter) && fits_memory(query);
}

/* ---- partitions of which only the first rows are wanted ----------------------------------------------- */

/* The value of a constant integer; 0 if it is none, or NULL. */
static int64
read_integer(const Node *node)
{
	const Const *value = (const Const *) node;

	if (!IsA(value, Const) || value->constisnull)
		return 0;
	switch (value->consttype)
	{
		case INT2OID:
			return DatumGetInt16(value->constvalue);
		case INT4OID:
			return DatumGetInt32(value->constvalue);
		case INT8OID:
			return DatumGetInt64(value->constvalue);
		default:
			return 0;
	}
}

/* The largest result of the function that satisfies the condition; 0: it does not say. */
static int64
read_condition(OpExpr *condition, WindowFunc **function)
{
	Node *left = linitial(condition->args);
	Node *right = lsecond(condition->args);
	bool is_left = IsA(left, WindowFunc);
	int64 limit = read_integer(is_left ? right : left);
	int strategy = get_op_opfamily_strategy(condition->opno, INTEGER_BTREE_FAM_OID);

	*function = (WindowFunc *) (is_left ? left : right);
	if (!IsA(*function, WindowFunc) || limit <= 0)
		return 0;
	if (strategy == (is_left ? BTLessEqualStrategyNumber : BTGreaterEqualStrategyNumber))
		return limit;
	return strategy == (is_left ? BTLessStrategyNumber : BTGreaterStrategyNumber) ? limit - 1 : 0;
}

/* Do results of the first rows of a partition, or those of their peers, depend on none that come after them? */
static bool
depend_on_first(const WindowQuery *query, bool peers)
{
	ListCell *cell;

	foreach(cell, query->functions)
	{
		WindowKind kind;
		int64 offset;

		window_find_kind(lfirst(cell), &kind, &offset);
		if (window_find_delay(kind, offset, query->frame) >
			(peers ? WINDOW_DELAY_PEERS : WINDOW_DELAY_NONE))
			return false;
	}
	return true;
}

/* Which rows of each partition the filter lets through: the first by their number, or by their rank. */
static bool
find_bound(const WindowQuery *query, SortBound *bound)
{
	ListCell *cell;

	bound->partition = list_length(query->replaced.winclause->partitionClause);
	foreach(cell, query->filter)
	{
		WindowFunc *function;
		int64 most = IsA(lfirst(cell), OpExpr) ? read_condition(lfirst(cell), &function) : 0;
		WindowKind kind;
		int64 offset;

		if (most <= 0 || most > SORT_BOUND_MAX || !window_find_kind(function, &kind, &offset))
			continue;
		bound->rows = (int) most;
		bound->peers = kind != WINDOW_ROW_NUMBER;
		/* the second in a dense rank may come after any number of rows */
		if ((kind == WINDOW_ROW_NUMBER || kind == WINDOW_RANK ||
			 (kind == WINDOW_DENSE_RANK && most == 1)) &&
			depend_on_first(query, bound->peers))
			return sort_can_partition(query->root, query->replaced.winclause->partitionClause);
	}
	return false;
}

/* ---- paths -------------------------------------------------------------------------------------- */

static void
set_cost(WindowPath *window, int disabled_nodes, Cost startup, Cost total, double rows)
{
	const WindowQuery *query = window->query;
	Path *path = &window->custom.path;
	QualCost cost;
	Cost per_row = PLACE_COST + COLUMN_COST * list_length(query->columns) +
				   FUNCTION_COST * list_length(query->functions);

	cost_qual_eval(&cost, query->filter, query->root);
	path->rows = query->replaced.path.rows;
	compat_set_disabled_nodes(path, disabled_nodes);
	path->startup_cost = startup + cost.startup + path->pathtarget->cost.startup;
	path->total_cost = path->startup_cost + (total - startup) +
					   rows * (per_row + cost.per_tuple + cpu_tuple_cost +
							   path->pathtarget->cost.per_tuple);
}

/* ColumnarWindow over ColumnarSort, or over batches as they come; NULL if there are none. */
static Path *
make_window_path(const WindowQuery *query)
{
	PlannerInfo *root = query->root;
	WindowPath *window = palloc0(sizeof(WindowPath));
	Path *path = &window->custom.path;

	NodeSetTag(window, T_CustomPath);
	window->query = query;
	window->custom.flags = CUSTOMPATH_SUPPORT_PROJECTION;
	window->custom.methods = &path_methods;
	path->pathtype = T_CustomScan;
	path->parent = query->windowed;
	path->pathtarget = query->replaced.path.pathtarget;
	path->pathkeys = query->pathkeys;
	path->parallel_safe = false;
	if (query->keys.expressions != NIL)
	{
		PathTarget *target = create_empty_pathtarget();
		SortBound bound;
		Path *sort;

		add_new_columns_to_pathtarget(target, query->columns);
		sort = sort_make_path(root, query->input, &query->keys,
							  find_bound(query, &bound) ? &bound : NULL, query->columns,
							  query->pathkeys, set_pathtarget_cost_width(root, target), false);
		if (sort == NULL)
			return NULL;
		window->custom.custom_paths = list_make1(sort);
		window->attributes = list_make1(NIL);
		/* it forms no rows */
		set_cost(window, compat_disabled_nodes(sort), sort->startup_cost, sort->startup_cost,
				 sort->rows);
	}
	else
	{
		BatchPath *batch = batch_path_find(root, query->input, query->columns, false);

		if (batch == NULL)
			return NULL;
		window->custom.custom_paths = batch->paths;
		window->attributes = batch->attributes;
		set_cost(window, batch->disabled_nodes, batch->startup_cost, batch->total_cost,
				 batch->rows);
	}
	return path;
}

/* A copy of the WindowAgg with ColumnarSort below it; NULL if there are no batches. */
static Path *
make_path_of_core(const WindowQuery *query)
{
	const WindowAggPath *replaced = &query->replaced;
	List *columns = list_copy(query->columns);
	WindowAggPath *window;
	Path *sort;

	if (query->keys.expressions == NIL ||
		!sort_collect_columns(query->input, (Node *) query->input->reltarget->exprs, &columns))
		return NULL;
	sort = sort_make_path(query->root, query->input, &query->keys, NULL, columns, query->pathkeys,
						  query->input->reltarget, false);
	if (sort == NULL)
		return NULL;
	window = makeNode(WindowAggPath);
	*window = *replaced;
	window->subpath = sort;
	window->path.pathkeys = sort->pathkeys;
	window->path.parallel_safe = false;
	compat_set_disabled_nodes(&window->path, compat_disabled_nodes(&window->path) +
												 compat_disabled_nodes(sort) -
												 compat_disabled_nodes(replaced->subpath));
	window->path.startup_cost += sort->startup_cost - replaced->subpath->startup_cost;
	window->path.total_cost += sort->total_cost - replaced->subpath->total_cost;
	return &window->path;
}

/* The path with another one in the place of `old`, which is at the bottom. */
static Path *
replace_bottom(Path *path, const Path *old, Path *new)
{
	Path *copy;
	Path *below;
	Path *subpath;

	if (path == old)
		return new;
	if (IsA(path, WindowAggPath))
	{
		WindowAggPath *window = makeNode(WindowAggPath);

		*window = *(WindowAggPath *) path;
		below = window->subpath;
		subpath = window->subpath = replace_bottom(below, old, new);
		copy = &window->path;
		copy->pathkeys = subpath->pathkeys;
	}
	else if (IsA(path, SortPath))
	{
		SortPath *sort = makeNode(SortPath);

		*sort = *(SortPath *) path;
		below = sort->subpath;
		subpath = sort->subpath = replace_bottom(below, old, new);
		copy = &sort->path;
	}
	else
	{
		IncrementalSortPath *sort = makeNode(IncrementalSortPath);

		Assert(IsA(path, IncrementalSortPath));
		*sort = *(IncrementalSortPath *) path;
		below = sort->spath.subpath;
		subpath = sort->spath.subpath = replace_bottom(below, old, new);
		copy = &sort->spath.path;
	}
	copy->parallel_safe = false;
	compat_set_disabled_nodes(copy, compat_disabled_nodes(copy) + compat_disabled_nodes(subpath) -
										compat_disabled_nodes(below));
	copy->startup_cost += subpath->startup_cost - below->startup_cost;
	copy->total_cost += subpath->total_cost - below->total_cost;
	return copy;
}

/* The WindowAgg at the bottom of the chain; NULL if it is none. */
static const WindowAggPath *
find_bottom(const Path *path)
{
	const WindowAggPath *found = NULL;

	for (;;)
	{
		if (IsA(path, WindowAggPath))
		{
			found = (const WindowAggPath *) path;
			path = found->subpath;
		}
		else if (IsA(path, IncrementalSortPath))
			path = ((const IncrementalSortPath *) path)->spath.subpath;
		else if (IsA(path, SortPath))
			path = ((const SortPath *) path)->subpath;
		else
			return found;
	}
}

/* Adds paths like the chain, in which `bottom` is replaced. */
static void
add_paths(WindowQuery *query, Path *chain, const Path *bottom)
{
	const WindowClause *clause = query->replaced.winclause;
	List *clauses = list_concat_copy(clause->partitionClause, clause->orderClause);
	Path *of_core;
	Path *window = NULL;

	if (!sort_collect_keys(query->root, query->input, clauses, &query->keys, &query->columns))
		return;
	query->pathkeys = make_pathkeys_for_sortclauses(query->root, clauses,
													query->root->processed_tlist);
	of_core = make_path_of_core(query);
	if (is_possible_window(query))
		window = make_window_path(query);
	/* add_path() frees what is no longer of use, the chain among it */
	if (of_core != NULL)
		of_core = replace_bottom(chain, bottom, of_core);
	if (window != NULL)
		window = replace_bottom(chain, bottom, window);
	if (of_core != NULL)
		add_path(query->windowed, of_core);
	if (window != NULL)
		add_path(query->windowed, window);
}

/* ---- which queries ------------------------------------------------------------------------------ */

static bool
is_possible_query(const PlannerInfo *root, RelOptInfo *input)
{
	const Query *parse = root->parse;

	return columnar_enable_vector && columnar_enable_custom_scan && enable_sort &&
		   parse->commandType == CMD_SELECT && parse->rowMarks == NIL && root->rowMarks == NIL &&
		   !parse->hasTargetSRFs && (IS_SIMPLE_REL(input) || IS_JOIN_REL(input)) &&
		   input->lateral_relids == NULL && !IS_DUMMY_REL(input);
}

static void
add_upper_paths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input_rel,
				RelOptInfo *output_rel, void *extra)
{
	WindowQuery *query;
	Path *chain;
	const WindowAggPath *bottom;

	if (previous_upper_hook)
		previous_upper_hook(root, stage, input_rel, output_rel, extra);
	if (stage != UPPERREL_WINDOW || !is_possible_query(root, input_rel) ||
		output_rel->pathlist == NIL)
		return;
	/* add_path() keeps the cheapest first */
	chain = linitial(output_rel->pathlist);
	query = palloc0(sizeof(WindowQuery));
	query->root = root;
	query->input = input_rel;
	query->windowed = output_rel;
	bottom = find_bottom(chain);
	if (bottom == NULL)
		return;
	query->replaced = *bottom;
	add_paths(query, chain, &bottom->path);
}

void
window_initialize(void)
{
	batch_source_register(&window_scan_methods, BATCH_ROLE_ROWS);
	previous_upper_hook = create_upper_paths_hook;
	create_upper_paths_hook = add_upper_paths;
	window_names_initialize();
}
