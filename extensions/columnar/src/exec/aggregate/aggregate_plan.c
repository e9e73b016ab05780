/*
 * aggregate_plan.c
 *		Paths for aggregation by batches: ColumnarAggregate below core's Finalize Aggregate.
 *
 *		Finalize HashAggregate
 *		  -> Gather					(or not)
 *			   -> ColumnarAggregate		groups, transition states
 *					-> ColumnarScan			batches; one per table of a partition tree; or ColumnarJoin
 *
 * The node does the first half of an aggregation that is split as core splits it for
 * parallel query, so that final functions, HAVING, projection and what does not fit
 * into memory are core's.  Both halves are made when core offers the grouped relation,
 * because it offers the partially grouped one to nobody.
 *
 * There is also the whole aggregation without Finalize: the node computes results and HAVING, in
 * one process, or in several, each for its share of the groups.
 *
 * An aggregate with DISTINCT cannot be split, so it is always computed as a whole.
 *
 * Which queries: GROUP BY (see aggregate_sets.c for grouping sets), plain aggregation, or SELECT DISTINCT over what
 * can be read by batches (see batch_path.h): one columnar table, a tree of partitions or
 * children that all are columnar, or a join; aggregates whose states can be combined,
 * without ORDER BY; keys that can be hashed by default equality; no volatile functions and
 * subqueries in them.
 *
 * The children make batches for the node; their rows are never formed.  Expressions are in
 * terms of the query's relations, the parent of a tree; which of a child's columns these
 * are stands in custom_private.
 */
#include "exec/aggregate/aggregate_path.h"

#include "access/htup_details.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_constraint.h"
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
#include "optimizer/prep.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "exec/plan/batch_path.h"
#include "exec/batch/batch_source.h"
#include "store/options/settings.h"
#include "exec/states/vector_aggregate.h"
#include "exec/keys/vector_groups.h"

/* What a kernel costs per value, and a transition function called for each row. */
#define KERNEL_COST (0.05 * cpu_operator_cost)

/* Looking a value of a DISTINCT aggregate up. */
#define DISTINCT_COST (0.5 * cpu_operator_cost)

/* Computing a result of a group from its state. */
#define RESULT_COST (0.1 * cpu_operator_cost)

/* Memory of a group besides its values. */
#define GROUP_MEMORY 64

/*
 * What memory that no cache holds adds: making a group, looking a row's group up, looking up a
 * value that is no number.
 */
#define CACHE_BYTES (2 * 1024 * 1024)
#define MAKE_GROUP_COST (4 * cpu_operator_cost)
#define FIND_GROUP_COST (0.5 * cpu_operator_cost)
#define FIND_VALUE_COST (0.5 * cpu_operator_cost)

/* A hash of a value, by which rows are put aside or shared out. */
#define HASH_VALUE_COST (0.1 * cpu_operator_cost)
#define HASH_BYTES_COST (0.5 * cpu_operator_cost)

static create_upper_paths_hook_type previous_upper_hook = NULL;

/* ---- what the node returns ---------------------------------------------------------------------- */

/* Can rows be grouped by the clause? Its equality has to be the default one of the type. */
static bool
is_possible_key(const SortGroupClause *clause, const Expr *expression)
{
	TypeCacheEntry *type = lookup_type_cache(exprType((const Node *) expression), TYPECACHE_EQ_OPR);

	return clause->hashable && clause->eqop == type->eq_opr &&
		   vector_groups_can_key(exprType((const Node *) expression),
								 exprCollation((const Node *) expression));
}

/* Can states of the aggregate be combined, and do they travel between processes? */
static bool
can_be_split(const Aggref *aggref)
{
	HeapTuple tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggref->aggfnoid));
	Form_pg_aggregate form;
	bool result;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for aggregate %u", aggref->aggfnoid);
	form = (Form_pg_aggregate) GETSTRUCT(tuple);
	result = OidIsValid(form->aggcombinefn) &&
			 (aggref->aggtranstype != INTERNALOID ||
			  (OidIsValid(form->aggserialfn) && OidIsValid(form->aggdeserialfn)));
	ReleaseSysCache(tuple);
	return result;
}

/*
 * Core sorts the arguments of a DISTINCT aggregate; the node leaves out what a group has met
 * before.  That makes a difference to sums of floats alone, of those that have kernels.
 */
static bool
is_possible_distinct(const Aggref *aggref)
{
	Node *argument;

	if (list_length(aggref->args) != 1 || list_length(aggref->aggdistinct) != 1 ||
		!vector_aggregate_has_kernel(aggref))
		return false;
	argument = (Node *) linitial_node(TargetEntry, aggref->args)->expr;
	if (!is_possible_key(linitial_node(SortGroupClause, aggref->aggdistinct), (Expr *) argument))
		return false;
	return (aggref->aggtype != FLOAT8OID && aggref->aggtype != FLOAT4OID) ||
		   (exprType(argument) != FLOAT8OID && exprType(argument) != FLOAT4OID);
}

static bool
is_possible_aggregate(const Aggref *aggref)
{
	return aggref->aggkind == AGGKIND_NORMAL && aggref->agglevelsup == 0 && !aggref->aggvariadic &&
		   aggref->aggdirectargs == NIL && can_be_split(aggref) &&
		   (aggref->aggdistinct == NIL ? aggref->aggorder == NIL : is_possible_distinct(aggref));
}

/* Only plain columns of the relations, no volatile functions, no subqueries. */
static bool
is_possible_expression(Node *expression, const RelOptInfo *input)
{
	List *vars = pull_var_clause(expression, PVC_RECURSE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS |
												 PVC_INCLUDE_PLACEHOLDERS);
	ListCell *cell;

	foreach(cell, vars)
	{
		Var *var = lfirst(cell);

		if (!IsA(var, Var) || !bms_is_member(var->varno, input->relids) || var->varattno <= 0)
			return false;
	}
	return !contain_volatile_functions(expression) && !contain_subplans(expression);
}

/* What an expression over groups is computed from. */
typedef struct TargetInputs
{
	List *keys;
	List *found; /* columns and aggregates outside of the keys */
} TargetInputs;

/* Columns within a key are not asked for: GROUP BY a % 10 does not determine a. */
static bool
find_inputs(Node *node, TargetInputs *inputs)
{
	if (node == NULL || list_member(inputs->keys, node))
		return false;
	if (IsA(node, Var) || IsA(node, Aggref) || IsA(node, PlaceHolderVar) || IsA(node, GroupingFunc))
	{
		inputs->found = lappend(inputs->found, node);
		return false;
	}
	return expression_tree_walker(node, find_inputs, inputs);
}

/*
 * The target of the partial aggregation: the keys, other columns that they determine, and
 * each aggregate's state.  NULL if one of these is not for us.
 */
static PathTarget *
make_partial_target(AggregateQuery *query)
{
	PathTarget *grouped = query->target;
	PathTarget *partial = create_empty_pathtarget();
	TargetInputs inputs = {0};
	List *others = NIL;
	ListCell *cell;
	int i = 0;

	foreach(cell, grouped->exprs)
	{
		Expr *expression = lfirst(cell);
		Index ref = get_pathtarget_sortgroupref(grouped, i++);
		SortGroupClause *clause = ref ? get_sortgroupref_clause_noerr(ref, query->clauses) : NULL;

		if (clause == NULL)
			others = lappend(others, expression);
		else if (is_possible_key(clause, expression))
			add_column_to_pathtarget(partial, expression, ref);
		else
			return NULL;
	}
	if (list_length(partial->exprs) != list_length(query->clauses))
		return NULL;
	if (query->extra->havingQual)
		others = lappend(others, query->extra->havingQual);
	inputs.keys = list_copy(partial->exprs);
	find_inputs((Node *) others, &inputs);
	add_new_columns_to_pathtarget(partial, inputs.found);

	query->results = list_copy(partial->exprs);
	foreach(cell, partial->exprs)
	{
		Node *expression = lfirst(cell);

		/* GROUPING() is for an Agg node alone to evaluate */
		if (!is_possible_expression(expression, query->input) || IsA(expression, GroupingFunc))
			return NULL;
		if (IsA(expression, Aggref))
		{
			Aggref *state = makeNode(Aggref);

			if (!is_possible_aggregate((Aggref *) expression))
				return NULL;
			query->only_whole |= ((Aggref *) expression)->aggdistinct != NIL;
			*state = *(Aggref *) expression;
			mark_partial_aggref(state, AGGSPLIT_INITIAL_SERIAL);
			lfirst(cell) = state;
		}
		else if (!vector_groups_can_key(exprType(expression), exprCollation(expression)))
			return NULL;
	}
	return set_pathtarget_cost_width(query->root, partial);
}

/* ---- plan --------------------------------------------------------------------------------------- */

static bool
add_params(Node *node, List **params)
{
	if (node == NULL)
		return false;
	if (IsA(node, Param))
		*params = list_append_unique(*params, node);
	return expression_tree_walker(node, add_params, params);
}

/* The children's columns, for the node's; see batch_source_columns(). */
static List *
map_columns(const CustomScan *scan, const List *attributes)
{
	return batch_path_map_columns(batch_source_columns(scan->custom_scan_tlist), attributes,
								  scan->custom_plans);
}

/* path->custom_private: the children's attributes; results and HAVING of a whole aggregation. */
static Plan *
make_plan(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist, List *clauses,
		  List *custom_plans)
{
	CustomScan *scan = makeNode(CustomScan);
	List *results = lsecond(path->custom_private);
	ListCell *cell;

	scan->scan.plan.targetlist = tlist;
	if (results == NIL)
		scan->custom_scan_tlist = copyObject(tlist);
	foreach(cell, results)
		scan->custom_scan_tlist = lappend(
			scan->custom_scan_tlist, makeTargetEntry(copyObject(lfirst(cell)),
													 foreach_current_index(cell) + 1, NULL, false));
	scan->scan.plan.qual = copyObject(lthird(path->custom_private));
	scan->custom_plans = custom_plans;
	scan->custom_private = list_make2(map_columns(scan, linitial(path->custom_private)),
									  list_make1_int(results != NIL));
	/* core looks here for the parameters that a node depends on, and not in custom_scan_tlist */
	add_params((Node *) scan->custom_scan_tlist, &scan->custom_exprs);
	scan->flags = path->flags;
	scan->methods = &aggregate_scan_methods;
	return &scan->scan.plan;
}

static const CustomPathMethods path_methods = {
	.CustomName = "ColumnarAggregate",
	.PlanCustomPath = make_plan,
};

/* ---- paths -------------------------------------------------------------------------------------- */

static double
estimate_groups(AggregateQuery *query, double rows)
{
	List *expressions;

	if (query->clauses == NIL)
		return 1;
	expressions = get_sortgrouplist_exprs(query->clauses, query->extra->targetList);
	return estimate_num_groups(query->root, expressions, rows, NULL, NULL);
}

/* What the node itself does with its input rows. */
static Cost
estimate_work(AggregateQuery *query, double rows)
{
	Cost per_row = 0;
	ListCell *cell;

	foreach(cell, query->partial->exprs)
	{
		Node *expression = lfirst(cell);
		QualCost cost;

		if (IsA(expression, Aggref))
		{
			Aggref *aggref = (Aggref *) expression;

			cost_qual_eval_node(&cost, (Node *) aggref->args, query->root);
			per_row += vector_aggregate_has_kernel(aggref) ? KERNEL_COST : cpu_operator_cost * 2;
			if (aggref->aggdistinct != NIL)
				per_row += DISTINCT_COST;
			per_row += cost.per_tuple / 5;
		}
		else
			per_row += 2 * KERNEL_COST;
	}
	return rows * (per_row + aggregate_key_cost(query));
}

static Size
estimate_memory(const AggregateQuery *query, double groups)
{
	return (Size) (groups * (GROUP_MEMORY + query->partial->width));
}

/* The cost of groups, in one process, beside that of the rows' values. */
static Cost
estimate_groups_work(const AggregateQuery *query, double rows, double groups)
{
	Cost per_row = FIND_GROUP_COST;
	ListCell *cell;

	if (estimate_memory(query, groups) < CACHE_BYTES)
		return 0;
	foreach(cell, query->partial->exprs)
		if (!IsA(lfirst(cell), Aggref) && get_typlen(exprType(lfirst(cell))) < 0 &&
			exprType(lfirst(cell)) != NUMERICOID)
			per_row += FIND_VALUE_COST;
	return rows * per_row + groups * MAKE_GROUP_COST;
}

/* Of hashing the keys of a row. */
static Cost
estimate_hash(const AggregateQuery *query)
{
	Cost cost = 0;
	ListCell *cell;

	foreach(cell, query->partial->exprs)
		if (!IsA(lfirst(cell), Aggref))
			cost += get_typlen(exprType(lfirst(cell))) < 0 ? HASH_BYTES_COST : HASH_VALUE_COST;
	return cost;
}

/*
 * What it costs to write the rows of groups that do not fit into memory, and to read and
 * aggregate them again, which is done until all groups had their turn.
 */
static Cost
estimate_putting_aside(const AggregateQuery *query, double rows, double groups)
{
	double share = get_hash_memory_limit() / Max((double) estimate_memory(query, groups), 1.0);
	double rounds = 0;
	double width = 0;
	ListCell *cell;

	if (share >= 1)
		return 0;
	foreach(cell, batch_source_columns(query->partial->exprs))
		width += get_typavgwidth(exprType(lfirst(cell)), exprTypmod(lfirst(cell)));
	/* each round has 16 times as many parts, of which some part stays in memory */
	for (; share < 1 && rounds < 8; share *= 16)
		rounds += 1 - share;
	return rounds * (2 * seq_page_cost * rows * width / BLCKSZ +
					 rows * (cpu_operator_cost + estimate_hash(query)));
}

/*
 * The node over its input, for the first half of the aggregation; `partial`: its share of the
 * work of each process of a parallel query.  NULL if there are no batches to read.
 */
static CustomPath *
make_partial_path(AggregateQuery *query, RelOptInfo *partial_rel, bool partial)
{
	CustomPath *path = makeNode(CustomPath);
	BatchPath *batch = batch_path_find(query->root, query->input, query->partial->exprs, partial);
	double groups;
	double share;

	if (batch == NULL)
		return NULL;
	groups = estimate_groups(query, batch->rows);
	share = aggregate_summary_share(query);
	path->path.pathtype = T_CustomScan;
	path->path.parent = partial_rel;
	path->path.pathtarget = query->partial;
	path->path.parallel_safe = query->input->consider_parallel &&
							   query->grouped->consider_parallel &&
							   batch_path_is_parallel_safe(batch);
	path->path.parallel_workers = batch->workers;
	path->path.rows = clamp_row_est(groups);
	compat_set_disabled_nodes(&path->path, batch->disabled_nodes);
	path->path.startup_cost = share * (batch->total_cost + estimate_work(query, batch->rows)) +
							  estimate_groups_work(query, batch->rows, groups);
	path->path.total_cost = path->path.startup_cost + groups * cpu_tuple_cost;
	path->custom_paths = batch->paths;
	path->custom_private = list_make3(batch->attributes, NIL, NIL);
	path->methods = &path_methods;
	return path;
}

/* Is there one value of the column for each combination of these? */
static bool
is_determined(const AggregateQuery *query, const Var *var, List *columns)
{
	RangeTblEntry *rte = planner_rt_fetch(var->varno, query->root);
	List *constraints = NIL;

	return rte->rtekind == RTE_RELATION &&
		   (!rte->inh || rte->relkind == RELKIND_PARTITIONED_TABLE) &&
		   check_functional_grouping(rte->relid, var->varno, 0, columns, &constraints);
}

/*
 * Do the keys determine all other columns of the target?  These are keys to the node: if one
 * differs within a group, Finalize has to put the parts together and show any of its values.
 * The grammar allows that where inheriting tables repeat the parent's primary key; and a
 * condition made of a key may have been simplified until it is no longer found (NOT a > 5).
 */
static bool
has_true_groups(const AggregateQuery *query)
{
	List *columns = NIL;
	ListCell *cell;

	foreach(cell, query->results)
	{
		Var *var = lfirst(cell);

		if (foreach_current_index(cell) < list_length(query->clauses))
			columns = lappend(columns, var);
		else if (!IsA(var, Aggref) && !is_determined(query, var, columns))
			return false;
	}
	return true;
}

/* What a path of core's is made of: the path below aggregation, sorts and Gather. */
static const Path *
find_source(const Path *path, bool *parallel)
{
	*parallel = false;
	for (;;)
	{
		switch (nodeTag(path))
		{
			case T_AggPath:
				path = ((const AggPath *) path)->subpath;
				break;
			case T_GroupPath:
				path = ((const GroupPath *) path)->subpath;
				break;
			case T_SortPath:
				path = ((const SortPath *) path)->subpath;
				break;
			case T_ProjectionPath:
				path = ((const ProjectionPath *) path)->subpath;
				break;
			case T_GatherPath:
				*parallel = true;
				path = ((const GatherPath *) path)->subpath;
				break;
			case T_GatherMergePath:
				*parallel = true;
				path = ((const GatherMergePath *) path)->subpath;
				break;
			default:
				return path;
		}
	}
}

/*
 * Removes core's paths for the same work by rows, of one process or of several.  They only seem to
 * cost as little where few rows are expected, and if there are more rows than that, which is
 * common above joins, it is a matter of seconds.
 */
static void
remove_outdone(AggregateQuery *query, bool parallel)
{
	List *paths = query->grouped->pathlist;
	ListCell *cell;

	foreach(cell, paths)
	{
		bool is_parallel;
		const Path *source = find_source(lfirst(cell), &is_parallel);

		if (is_parallel == parallel && source->parent == query->input &&
			batch_source_path_role(source) == BATCH_ROLE_SOURCE)
			paths = foreach_delete_current(paths, cell);
	}
	query->grouped->pathlist = paths;
}

/*
 * The node for the whole aggregation, in one process, which does without a second look-up of
 * every group.  NULL if the keys are not all.
 */
static CustomPath *
make_whole_path(AggregateQuery *query, const CustomPath *partial)
{
	CustomPath *path = makeNode(CustomPath);
	List *having = (List *) query->extra->havingQual;
	double groups = partial->path.rows;
	QualCost having_cost;

	if (!has_true_groups(query))
		return NULL;
	*path = *partial;
	path->path.parent = query->grouped;
	path->path.pathtarget = query->target;
	path->custom_private = list_make3(linitial(partial->custom_private), query->results, having);

	cost_qual_eval(&having_cost, having, query->root);
	path->path.startup_cost += having_cost.startup + path->path.pathtarget->cost.startup +
							   estimate_putting_aside(query, query->input->rows, groups);
	path->path.total_cost = path->path.startup_cost +
							groups *
								(having_cost.per_tuple + RESULT_COST * list_length(query->results));
	if (having != NIL)
		path->path.rows = clamp_row_est(
			groups * clauselist_selectivity(query->root, having, 0, JOIN_INNER, NULL));
	path->path.total_cost += path->path.rows *
							 (cpu_tuple_cost + path->path.pathtarget->cost.per_tuple);
	return path;
}

/* So many processes can read the input; 0: one alone, or it is no table. */
static int
count_workers(AggregateQuery *query, const CustomPath *whole)
{
	BatchPath *batch;
	ListCell *cell;

	if (query->clauses == NIL || !IS_SIMPLE_REL(query->input) || !whole->path.parallel_safe)
		return 0;
	foreach(cell, whole->custom_paths)
		if (!((Path *) lfirst(cell))->parallel_safe)
			return 0;
	batch = batch_path_find(query->root, query->input, query->partial->exprs, true);
	return batch ? batch->workers : 0;
}

/*
 * The whole aggregation in several processes, each of which reads all rows, for its share of the
 * groups.  Good if there are so many groups that they cost more than reading; see aggregate_share.c.
 */
static void
add_shared_paths(AggregateQuery *query, const CustomPath *whole)
{
	int workers = count_workers(query, whole);
	int shares = workers + (parallel_leader_participation ? 1 : 0);
	CustomPath *path = makeNode(CustomPath);
	CustomPath *partial;
	Cost read = 0;
	double rows;
	ListCell *cell;

	if (workers <= 0)
		return;
	foreach(cell, whole->custom_paths)
		read += ((Path *) lfirst(cell))->total_cost;
	read += query->input->rows * (estimate_hash(query) + KERNEL_COST + aggregate_key_cost(query));
	read = Min(read, whole->path.startup_cost);

	*path = *whole;
	path->path.parallel_aware = true;
	path->path.parallel_workers = workers;
	path->path.rows = clamp_row_est(whole->path.rows / shares);
	path->path.startup_cost = read + (whole->path.startup_cost - read) / shares;
	path->path.total_cost = path->path.startup_cost +
							(whole->path.total_cost - whole->path.startup_cost) / shares;
	rows = whole->path.rows;
	add_path(query->grouped, (Path *) create_gather_path(query->root, query->grouped, &path->path,
														 query->target, NULL, &rows));
	/* another one: it is freed if there is a better one */
	partial = makeNode(CustomPath);
	*partial = *path;
	add_partial_path(query->grouped, &partial->path);
}

/* The node for the whole aggregation; false without one. */
static bool
add_whole_paths(AggregateQuery *query, const CustomPath *partial)
{
	CustomPath *path;

	if (!query->only_whole && query->clauses == NIL)
		return false;
	path = make_whole_path(query, partial);
	if (path == NULL)
		return false;
	remove_outdone(query, false);
	if (query->grouped->consider_parallel && query->input->consider_parallel)
		add_shared_paths(query, path);
	/* last, as it is freed if another is better */
	add_path(query->grouped, &path->path);
	return true;
}

/* Adds core's second half. */
static void
add_final_paths(AggregateQuery *query, Path *path)
{
	PlannerInfo *root = query->root;
	AggClauseCosts costs;
	List *having = (List *) query->extra->havingQual;
	double groups = estimate_groups(query, query->input->rows);

	memset(&costs, 0, sizeof(costs));
	get_agg_clause_costs(root, AGGSPLIT_FINAL_DESERIAL, &costs);
	if (query->clauses == NIL)
	{
		add_path(query->grouped,
				 (Path *) create_agg_path(root, query->grouped, path, query->target, AGG_PLAIN,
										  AGGSPLIT_FINAL_DESERIAL, NIL, having, &costs, groups));
		return;
	}
	add_path(query->grouped, (Path *) create_agg_path(root, query->grouped, path, query->target,
													  AGG_HASHED, AGGSPLIT_FINAL_DESERIAL,
													  query->clauses, having, &costs, groups));
	if (grouping_is_sortable(query->clauses))
	{
		/* nothing to sort by if conditions make constants of all keys */
		if (query->pathkeys != NIL)
			path = (Path *) create_sort_path(root, query->grouped, path, query->pathkeys, -1.0);
		add_path(query->grouped, (Path *) create_agg_path(root, query->grouped, path, query->target,
														  AGG_SORTED, AGGSPLIT_FINAL_DESERIAL,
														  query->clauses, having, &costs, groups));
	}
}

void
aggregate_add_paths(AggregateQuery *query)
{
	RelOptInfo *partial_rel = fetch_upper_rel(query->root, UPPERREL_PARTIAL_GROUP_AGG,
											  query->grouped->relids);
	CustomPath *path;
	double rows;

	query->partial = make_partial_target(query);
	if (query->partial == NULL)
		return;
	path = make_partial_path(query, partial_rel, false);
	if (path == NULL)
		return;
	/* one of the two: their costs are so close that a sort too many would not tell */
	if (!add_whole_paths(query, path) && !query->only_whole)
		add_final_paths(query, &path->path);

	if (query->only_whole || !query->grouped->consider_parallel || !query->input->consider_parallel)
		return;
	path = make_partial_path(query, partial_rel, true);
	if (path == NULL)
		return;
	rows = path->path.rows * path->path.parallel_workers;
	remove_outdone(query, true);
	add_final_paths(query, (Path *) create_gather_path(query->root, partial_rel, &path->path,
													   query->partial, NULL, &rows));
}

/* May rows of the relation be grouped by batches, as far as it is known without the target? */
static bool
is_possible_input(const PlannerInfo *root, RelOptInfo *input)
{
	return columnar_enable_vector && columnar_enable_custom_scan && !root->parse->hasTargetSRFs &&
		   (IS_SIMPLE_REL(input) || IS_JOIN_REL(input)) && input->lateral_relids == NULL &&
		   !IS_DUMMY_REL(input);
}

static void
add_group_paths(AggregateQuery *query)
{
	const PlannerInfo *root = query->root;
	const Query *parse = root->parse;

	if (!parse->hasAggs && parse->groupClause == NIL && parse->groupingSets == NIL)
		return;
	if (parse->groupingSets != NIL)
	{
		aggregate_sets_add_paths(query);
		return;
	}
	query->clauses = compat_group_clauses(root);
	/* GROUP BY of constants alone: one group, or none if there are no rows */
	if (query->clauses == NIL && parse->groupClause != NIL)
		return;
	query->pathkeys = root->group_pathkeys;
	query->target = query->grouped->reltarget;
	aggregate_add_paths(query);
}

/* SELECT DISTINCT of rows that are not grouped: its columns are keys of groups without aggregates. */
static void
add_distinct_paths(AggregateQuery *query)
{
	PlannerInfo *root = query->root;
	const Query *parse = root->parse;
	GroupPathExtraData extra = {.targetList = root->processed_tlist};

	query->clauses = compat_distinct_clauses(root);
	if (query->clauses == NIL || parse->hasDistinctOn || parse->hasAggs ||
		parse->groupClause != NIL || parse->groupingSets != NIL || parse->hasWindowFuncs ||
		parse->havingQual != NULL)
		return;
	query->extra = &extra;
	query->pathkeys = root->distinct_pathkeys;
	query->target = root->upper_targets[UPPERREL_DISTINCT];
	aggregate_add_paths(query);
}

static void
add_upper_paths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input_rel,
				RelOptInfo *output_rel, void *extra)
{
	AggregateQuery query = {
		.root = root, .input = input_rel, .grouped = output_rel, .extra = extra};

	if (previous_upper_hook)
		previous_upper_hook(root, stage, input_rel, output_rel, extra);
	if (stage == UPPERREL_GROUP_AGG && is_possible_input(root, input_rel))
		add_group_paths(&query);
	else if (stage == UPPERREL_DISTINCT && is_possible_input(root, input_rel))
		add_distinct_paths(&query);
}

void
aggregate_initialize(void)
{
	batch_source_register(&aggregate_scan_methods, BATCH_ROLE_AGGREGATION);
	previous_upper_hook = create_upper_paths_hook;
	create_upper_paths_hook = add_upper_paths;
}
