/*
 * sort_plan.c
 *		Paths for ORDER BY by batches: ColumnarSort in the place of core's Sort.
 *
 *		Gather Merge				(or not)
 *		  -> ColumnarSort				all rows, sorted
 *			   -> ColumnarScan				batches; one per table of a partition tree; or ColumnarJoin
 *
 *		ColumnarSort
 *		  -> ColumnarAggregate			rows, of which batches are made
 *
 *		Unique						DISTINCT ON
 *		  -> ColumnarSort				... of each partition the first row
 *
 * Which queries: those whose rows are sorted as the scan or join has them, or the groups as ColumnarAggregate
 * has them - no window functions, DISTINCT, functions that return sets - and all are wanted: with a LIMIT that
 * is a constant it is ColumnarTopN's, with another one, or of groups, core's.  No rows to lock, whose tids would
 * have to be kept.  Keys have no volatile functions and subqueries; the target list may: it is evaluated
 * for the rows that are returned.
 *
 * Where only the first rows of each partition are wanted, the others are left out while they are read: see sort_first.c.
 *
 * window_plan.c makes such paths, too.
 */
#include "exec/sort/sort.h"

#include <math.h>

#include "access/stratnum.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/pg_locale.h"
#include "utils/selfuncs.h"
#include "utils/typcache.h"

#include "exec/plan/batch_path.h"
#include "exec/batch/batch_source.h"
#include "exec/keys/vector_groups.h"
#include "exec/scan/custom_scan.h"
#include "store/options/settings.h"

/* A kernel's work on a value; an expression evaluated by kernels, in parts of what core expects. */
#define KERNEL_COST (0.05 * cpu_operator_cost)
#define EXPRESSION_SHARE 0.2

/* Sorting a row by a number; comparing bytes, and text by a collation. */
#define WORD_COST (0.5 * cpu_operator_cost)
#define BYTES_COST (0.3 * cpu_operator_cost)
#define COMPARISON_COST (1.2 * cpu_operator_cost)

/* Keeping a value and fetching it again; of text and the like. */
#define NUMBER_COST (0.4 * cpu_operator_cost)
#define TEXT_COST (1.5 * cpu_operator_cost)

/* The group of a row, and comparing it with the bar of its group. */
#define BOUND_COST (1.0 * cpu_operator_cost)

/* If more of the rows are wanted, it is not worth while to look for the others. */
#define BOUNDED_SHARE 0.5

/* So much correlation with the order of the rows tells from which end to read. */
#define TURN_CORRELATION 0.3

/* Choosing a row from sorted runs in files. */
#define MERGE_COST (3 * cpu_operator_cost)

/* Memory of a row besides its columns. */
#define ROW_MEMORY 44

static create_upper_paths_hook_type previous_upper_hook = NULL;

typedef struct SortPathOfBatches
{
	CustomPath custom; /* first member */
	const SortKeys *keys;
	SortBound bound;
	double wanted;	  /* rows, if they are bounded */
	List *columns;	  /* that the node reads: Vars, or expressions that the aggregation returns */
	List *attributes; /* of the BatchPath */
	bool aggregated;
	bool backward;
} SortPathOfBatches;

/* ---- the plan ----------------------------------------------------------------------------------- */

/* Which columns of a plan's rows these expressions are. */
static List *
find_entries(const List *expressions, const Plan *plan)
{
	List *numbers = NIL;
	ListCell *cell;

	foreach(cell, expressions)
	{
		const TargetEntry *entry = tlist_member(lfirst(cell), plan->targetlist);

		if (entry == NULL)
			elog(ERROR, "an aggregation does not return what is to be sorted");
		numbers = lappend_int(numbers, entry->resno);
	}
	return numbers;
}

static Plan *
make_plan(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist, List *clauses,
		  List *custom_plans)
{
	const SortPathOfBatches *sort = (const SortPathOfBatches *) path;
	CustomScan *scan = makeNode(CustomScan);
	ListCell *cell;

	scan->scan.plan.targetlist = tlist;
	foreach(cell, sort->columns)
		scan->custom_scan_tlist = lappend(
			scan->custom_scan_tlist, makeTargetEntry(copyObject(lfirst(cell)),
													 foreach_current_index(cell) + 1, NULL, false));
	scan->custom_exprs = copyObject(sort->keys->expressions);
	scan->custom_plans = list_copy(custom_plans);
	scan->custom_private = list_make4(
		sort->aggregated
			? list_make1(find_entries(sort->columns, (Plan *) linitial(custom_plans)))
			: batch_path_map_columns(sort->columns, sort->attributes, scan->custom_plans),
		sort->keys->operators, sort->keys->nulls,
		list_make4_int(sort->bound.partition, sort->bound.rows, sort->bound.peers, sort->backward));
	scan->flags = path->flags;
	scan->methods = &sort_scan_methods;
	return &scan->scan.plan;
}

static const CustomPathMethods path_methods = {
	.CustomName = "ColumnarSort",
	.PlanCustomPath = make_plan,
};

/* ---- cost --------------------------------------------------------------------------------------- */

/* Comparing two values that no number stands for; 0: a number does. */
static Cost
comparison_cost(Node *key)
{
	Oid type = exprType(key);
	Oid collation = exprCollation(key);

	if (get_typbyval(type) || type == FLOAT8OID || type == NUMERICOID)
		return 0;
	return !OidIsValid(collation) || compat_collation_is_c(collation) ? BYTES_COST
																	  : COMPARISON_COST;
}

/* Sorting so many rows; only the first key without numbers is compared often. */
static Cost
estimate_keys(PlannerInfo *root, const SortKeys *keys, double rows)
{
	Cost startup = 0;
	Cost per_row = 0;
	Cost comparison = 0;
	ListCell *cell;

	foreach(cell, keys->expressions)
	{
		QualCost cost;

		cost_qual_eval_node(&cost, lfirst(cell), root);
		startup += cost.startup;
		per_row += WORD_COST + cost.per_tuple * EXPRESSION_SHARE;
		comparison = Max(comparison, comparison_cost(lfirst(cell)));
	}
	return startup + rows * (per_row + comparison * log2(rows));
}

/* Keeping columns of so many rows, in memory or in files. */
static Cost
estimate_columns(const List *columns, double rows)
{
	double width = ROW_MEMORY;
	Cost cost = 0;
	double runs;
	ListCell *cell;

	foreach(cell, columns)
	{
		Node *column = lfirst(cell);
		Oid type = exprType(column);

		width += get_typavgwidth(type, exprTypmod(column));
		cost += rows * (get_typlen(type) > 0 || type == NUMERICOID ? NUMBER_COST : TEXT_COST);
	}
	runs = rows * width / (work_mem * 1024.0);
	if (runs > 1)
		cost += cost + 2 * seq_page_cost * rows * width / BLCKSZ +
				rows * MERGE_COST * (1 + log2(runs));
	return cost;
}

/* Rows that are wanted. */
static double
estimate_bounded(PlannerInfo *root, const SortKeys *keys, const SortBound *bound, double rows)
{
	List *partition = list_copy_head(keys->expressions, bound->partition);
	double partitions = 1;

	if (partition != NIL)
		partitions = estimate_num_groups(root, partition, rows, NULL, NULL);
	return Min(rows, partitions * bound->rows);
}

static void
set_cost(SortPathOfBatches *sort, PlannerInfo *root, const BatchPath *batch)
{
	Path *path = &sort->custom.path;
	double rows = Max(batch->rows, 2);
	double kept = rows; /* until better ones came, if they come in no order */
	Cost cost = batch->total_cost;

	if (sort->bound.rows > 0)
	{
		cost += rows * BOUND_COST * list_length(sort->keys->expressions);
		rows = Max(sort->wanted, 2);
		kept = Min(kept, rows * (1 + log(kept / rows)));
	}
	cost += estimate_columns(sort->columns, kept);
	cost += estimate_keys(root, sort->keys, rows);
	path->rows = clamp_row_est(sort->bound.rows > 0 ? rows : batch->rows);
	compat_set_disabled_nodes(path, batch->disabled_nodes);
	path->startup_cost = cost + path->pathtarget->cost.startup;
	path->total_cost = path->startup_cost +
					   path->rows * (cpu_tuple_cost + path->pathtarget->cost.per_tuple);
}

/* ---- paths -------------------------------------------------------------------------------------- */

bool
sort_collect_columns(const RelOptInfo *input, Node *expression, List **columns)
{
	List *vars = pull_var_clause(expression, PVC_RECURSE_WINDOWFUNCS | PVC_INCLUDE_PLACEHOLDERS);
	ListCell *cell;

	foreach(cell, vars)
	{
		Var *var = lfirst(cell);

		if (!IsA(var, Var) || !bms_is_member(var->varno, input->relids) || var->varattno <= 0 ||
			get_typlen(var->vartype) == -2)
			return false;
		*columns = list_append_unique(*columns, var);
	}
	return true;
}

bool
sort_collect_keys(const PlannerInfo *root, const RelOptInfo *input, List *clauses, SortKeys *keys,
				  List **columns)
{
	ListCell *cell;

	foreach(cell, clauses)
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, cell);
		Node *key = get_sortgroupclause_expr(clause, root->processed_tlist);

		if (contain_volatile_functions(key) || contain_subplans(key) ||
			!sort_collect_columns(input, key, columns))
			return false;
		keys->expressions = lappend(keys->expressions, key);
		keys->operators = lappend_oid(keys->operators, clause->sortop);
		keys->nulls = lappend_int(keys->nulls, clause->nulls_first);
	}
	return true;
}

bool
sort_can_partition(const PlannerInfo *root, List *clauses)
{
	ListCell *cell;

	foreach(cell, clauses)
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, cell);
		Node *key = get_sortgroupclause_expr(clause, root->processed_tlist);

		if (!vector_groups_can_key(exprType(key), exprCollation(key)) ||
			clause->eqop != lookup_type_cache(exprType(key), TYPECACHE_EQ_OPR)->eq_opr)
			return false;
	}
	return true;
}

/* The column of a child that the key is; 0: none. */
static AttrNumber
find_attribute(const Var *var, const List *attributes)
{
	return attributes == NIL ? var->varattno : list_nth_int(attributes, var->varattno);
}

bool
sort_is_read_backward(PlannerInfo *root, const RelOptInfo *input, const List *paths,
					  const List *attributes, const Node *key, bool descending)
{
	ListCell *path;
	ListCell *of_path;
	double sum = 0;
	double tuples = 0;

	if (!IsA(key, Var) || !IS_SIMPLE_REL(input))
		return false;
	forboth(path, paths, of_path, attributes)
	{
		const RelOptInfo *rel = ((const Path *) lfirst(path))->parent;
		Oid relation = planner_rt_fetch(rel->relid, root)->relid;

		sum += rel->tuples * custom_scan_correlation(
								 relation, find_attribute((const Var *) key, lfirst(of_path)));
		tuples += rel->tuples;
	}
	return (descending ? -sum : sum) < -TURN_CORRELATION * Max(tuples, 1);
}

/* Are the first rows of a partition found sooner from the end? */
static bool
is_bound_met_backward(PlannerInfo *root, const RelOptInfo *input, const BatchPath *batch,
					  const SortKeys *keys, const SortBound *bound)
{
	Oid family;
	Oid type;
	CompatStrategy strategy;

	return bound->partition < list_length(keys->expressions) &&
		   get_ordering_op_properties(list_nth_oid(keys->operators, bound->partition), &family,
									  &type, &strategy) &&
		   sort_is_read_backward(root, input, batch->paths, batch->attributes,
								 list_nth(keys->expressions, bound->partition),
								 strategy == BTGreaterStrategyNumber);
}

/* A path that sorts what can be read by batches. */
static SortPathOfBatches *
make_path(PlannerInfo *root, RelOptInfo *input, const BatchPath *batch, const SortKeys *keys,
		  const SortBound *bound, List *columns, List *pathkeys, PathTarget *target)
{
	SortPathOfBatches *sort = palloc0(sizeof(SortPathOfBatches));
	Path *path;

	NodeSetTag(sort, T_CustomPath);
	sort->keys = keys;
	sort->columns = columns;
	sort->attributes = batch->attributes;
	if (bound != NULL)
		sort->wanted = estimate_bounded(root, keys, bound, batch->rows);
	if (bound != NULL && sort->wanted <= batch->rows * BOUNDED_SHARE)
	{
		sort->bound = *bound;
		sort->backward = is_bound_met_backward(root, input, batch, keys, bound);
	}
	sort->custom.flags = CUSTOMPATH_SUPPORT_PROJECTION;
	sort->custom.custom_paths = batch->paths;
	sort->custom.methods = &path_methods;
	path = &sort->custom.path;
	path->pathtype = T_CustomScan;
	path->parent = input;
	path->pathtarget = target;
	path->pathkeys = pathkeys;
	path->parallel_safe = input->consider_parallel && batch_path_is_parallel_safe(batch);
	path->parallel_workers = batch->workers;
	set_cost(sort, root, batch);
	return sort;
}

Path *
sort_make_path(PlannerInfo *root, RelOptInfo *input, const SortKeys *keys, const SortBound *bound,
			   List *columns, List *pathkeys, PathTarget *target, bool partial)
{
	const BatchPath *batch = batch_path_find(root, input, columns, partial);

	if (batch == NULL)
		return NULL;
	return &make_path(root, input, batch, keys, bound, columns, pathkeys, target)->custom.path;
}

/* Adds a path with what the query returns. */
static void
add_final_path(PlannerInfo *root, RelOptInfo *ordered, Path *path)
{
	PathTarget *target = root->upper_targets[UPPERREL_ORDERED];

	if (path->pathtarget != target)
		path = apply_projection_to_path(root, ordered, path, target);
	add_path(ordered, path);
}

static void
add_paths(PlannerInfo *root, RelOptInfo *input, RelOptInfo *ordered, const SortKeys *keys,
		  List *columns)
{
	Path *path = sort_make_path(root, input, keys, NULL, columns, root->sort_pathkeys,
								input->reltarget, false);
	double rows;

	if (path == NULL)
		return;
	path->parent = ordered;
	path->parallel_safe &= ordered->consider_parallel;
	add_final_path(root, ordered, path);

	if (!ordered->consider_parallel || !input->consider_parallel)
		return;
	path = sort_make_path(root, input, keys, NULL, columns, root->sort_pathkeys, input->reltarget,
						  true);
	if (path == NULL)
		return;
	path->parent = ordered;
	rows = path->rows * path->parallel_workers;
	add_final_path(root, ordered,
				   (Path *) create_gather_merge_path(root, ordered, path, path->pathtarget,
													 root->sort_pathkeys, NULL, &rows));
}

/* ---- DISTINCT ON ----------------------------------------------------------------------------------- */

/* Unique over the first row of each partition. */
static void
add_path_of_first(PlannerInfo *root, RelOptInfo *input, RelOptInfo *distinct)
{
	const Query *parse = root->parse;
	bool is_ordered = list_length(parse->sortClause) >= list_length(parse->distinctClause);
	List *clauses = is_ordered ? parse->sortClause : parse->distinctClause;
	SortBound bound = {.partition = list_length(parse->distinctClause), .rows = 1};
	SortKeys *keys = palloc0(sizeof(SortKeys));
	List *columns = NIL;
	List *pathkeys;
	Path *path;

	if (root->distinct_pathkeys == NIL || !sort_can_partition(root, parse->distinctClause) ||
		!sort_collect_keys(root, input, clauses, keys, &columns) ||
		!sort_collect_columns(input, (Node *) input->reltarget->exprs, &columns))
		return;
	pathkeys = make_pathkeys_for_sortclauses(root, clauses, root->processed_tlist);
	path = sort_make_path(root, input, keys, &bound, columns, pathkeys, input->reltarget, false);
	if (path == NULL || !pathkeys_contained_in(root->distinct_pathkeys, pathkeys))
		return;
	path->parallel_safe = false;
	add_path(distinct, (Path *) create_upper_unique_path(
						   root, distinct, path, list_length(root->distinct_pathkeys), path->rows));
}

/* ---- groups ------------------------------------------------------------------------------------- */

/* The cheapest path that aggregates by batches in one process. */
static Path *
find_aggregation(const RelOptInfo *grouped)
{
	Path *cheapest = NULL;
	ListCell *cell;

	foreach(cell, grouped->pathlist)
	{
		Path *path = lfirst(cell);

		if (batch_source_path_role(path) == BATCH_ROLE_AGGREGATION && path->param_info == NULL &&
			(cheapest == NULL || compat_is_cheaper(path, cheapest)))
			cheapest = path;
	}
	return cheapest;
}

/* The keys, each of which is a column that the aggregation returns; NULL if one is none. */
static SortKeys *
collect_group_keys(const PlannerInfo *root, const List *columns)
{
	SortKeys *keys = palloc0(sizeof(SortKeys));
	ListCell *cell;

	foreach(cell, root->parse->sortClause)
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, cell);
		Node *key = get_sortgroupclause_expr(clause, root->processed_tlist);

		if (!list_member(columns, key))
			return NULL;
		keys->expressions = lappend(keys->expressions, key);
		keys->operators = lappend_oid(keys->operators, clause->sortop);
		keys->nulls = lappend_int(keys->nulls, clause->nulls_first);
	}
	return keys;
}

static void
add_path_of_groups(PlannerInfo *root, RelOptInfo *grouped, RelOptInfo *ordered)
{
	Path *aggregation = find_aggregation(grouped);
	SortPathOfBatches *sort;
	const SortKeys *keys;
	List *columns;
	ListCell *cell;

	if (aggregation == NULL)
		return;
	columns = aggregation->pathtarget->exprs;
	if (contain_volatile_functions((Node *) columns) || contain_subplans((Node *) columns))
		return;
	foreach(cell, columns)
		if (get_typlen(exprType(lfirst(cell))) == -2)
			return;
	keys = collect_group_keys(root, columns);
	if (keys == NULL)
		return;
	sort = make_path(root, grouped, batch_path_of_collected(aggregation), keys, NULL, columns,
					 root->sort_pathkeys, aggregation->pathtarget);
	sort->aggregated = true;
	sort->custom.path.parent = ordered;
	sort->custom.path.parallel_safe &= ordered->consider_parallel;
	add_final_path(root, ordered, &sort->custom.path);
}

/* ---- which queries ------------------------------------------------------------------------------ */

/* May rows be sorted here? */
static bool
is_possible_query(const PlannerInfo *root)
{
	const Query *parse = root->parse;

	return columnar_enable_vector && columnar_enable_custom_scan && enable_sort &&
		   parse->commandType == CMD_SELECT && parse->rowMarks == NIL && root->rowMarks == NIL &&
		   parse->groupingSets == NIL && !parse->hasWindowFuncs && !parse->hasTargetSRFs &&
		   parse->setOperations == NULL;
}

/* Are all wanted? */
static bool
wants_all(const PlannerInfo *root)
{
	return root->parse->limitCount == NULL && root->sort_pathkeys != NIL &&
		   root->parse->distinctClause == NIL;
}

/* Are they those of a relation? */
static bool
is_of_relation(const PlannerInfo *root, RelOptInfo *input)
{
	const Query *parse = root->parse;

	return !parse->hasAggs && parse->groupClause == NIL && parse->havingQual == NULL &&
		   (IS_SIMPLE_REL(input) || IS_JOIN_REL(input)) && input->lateral_relids == NULL &&
		   !IS_DUMMY_REL(input);
}

static void
add_upper_paths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input_rel,
				RelOptInfo *output_rel, void *extra)
{
	SortKeys *keys;
	List *columns = NIL;

	if (previous_upper_hook)
		previous_upper_hook(root, stage, input_rel, output_rel, extra);
	if (!is_possible_query(root))
		return;
	if (stage == UPPERREL_DISTINCT && root->parse->hasDistinctOn && is_of_relation(root, input_rel))
		add_path_of_first(root, input_rel, output_rel);
	if (stage != UPPERREL_ORDERED || !wants_all(root))
		return;
	if (root->parse->groupClause != NIL && IS_UPPER_REL(input_rel))
		add_path_of_groups(root, input_rel, output_rel);
	if (!is_of_relation(root, input_rel))
		return;
	keys = palloc0(sizeof(SortKeys));
	if (sort_collect_keys(root, input_rel, root->parse->sortClause, keys, &columns) &&
		sort_collect_columns(input_rel, (Node *) input_rel->reltarget->exprs, &columns) &&
		sort_collect_columns(input_rel, (Node *) root->upper_targets[UPPERREL_ORDERED]->exprs,
							 &columns))
		add_paths(root, input_rel, output_rel, keys, columns);
}

void
sort_initialize(void)
{
	batch_source_register(&sort_scan_methods, BATCH_ROLE_SOURCE);
	previous_upper_hook = create_upper_paths_hook;
	create_upper_paths_hook = add_upper_paths;
}
