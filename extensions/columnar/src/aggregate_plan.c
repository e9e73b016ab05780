/*
 * aggregate_plan.c
 *		Paths for aggregation by batches: ColumnarAggregate below core's Finalize Aggregate.
 *
 *		Finalize HashAggregate
 *		  -> Gather					(or not)
 *			   -> ColumnarAggregate		groups, transition states
 *					-> ColumnarScan			batches; one per table of a partition tree
 *
 * The node does the first half of an aggregation that is split as core splits it for
 * parallel query, so that final functions, HAVING, projection and what does not fit
 * into memory are core's.  Both halves are made when core offers the grouped relation,
 * because it offers the partially grouped one to nobody.
 *
 * Where the groups fit into memory there is also the whole aggregation in one process,
 * without Finalize: the node computes results and HAVING.
 *
 * Which queries: GROUP BY (no grouping sets) or plain aggregation over one columnar
 * table, or a tree of partitions or children that all are columnar; aggregates that can
 * be split, without DISTINCT and ORDER BY; keys that can be hashed by default equality;
 * no volatile functions and subqueries in them.
 *
 * The children are ColumnarScans that decode batches for the node; their rows are never
 * formed.  Expressions are in terms of the query's relation, the parent of a tree; which
 * of a child's columns these are stands in custom_private.
 */
#include "aggregate.h"

#include "access/table.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_constraint.h"
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
#include "utils/typcache.h"

#include "custom_scan.h"
#include "settings.h"
#include "table_am.h"
#include "vector_aggregate.h"
#include "vector_groups.h"

/* What a kernel costs per value, and a transition function called for each row. */
#define KERNEL_COST (0.1 * cpu_operator_cost)

/* Computing a result of a group from its state. */
#define RESULT_COST (0.1 * cpu_operator_cost)

/* Memory of a group besides its values. */
#define GROUP_MEMORY 64

static create_upper_paths_hook_type previous_upper_hook = NULL;

/* One columnar table below the node. */
typedef struct AggregateLeaf
{
	RelOptInfo *rel;
	Bitmapset *columns; /* attribute numbers that the node asks for */
	List *
		attributes; /* integers: attribute of the leaf by attribute - 1 of the query's relation; NIL: the same */
} AggregateLeaf;

typedef struct AggregateQuery
{
	PlannerInfo *root;
	RelOptInfo *input;
	RelOptInfo *grouped;
	GroupPathExtraData *extra;
	PathTarget *partial; /* what the node returns: keys, states */
	List *results;		 /* the same with results in the place of states */
	List *clauses;		 /* GROUP BY, without redundant ones */
	List *leaves;		 /* AggregateLeaf */
	double pages;
} AggregateQuery;

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

static bool
is_possible_aggregate(const Aggref *aggref)
{
	return aggref->aggkind == AGGKIND_NORMAL && aggref->aggdistinct == NIL &&
		   aggref->aggorder == NIL && aggref->agglevelsup == 0 && !aggref->aggvariadic &&
		   aggref->aggdirectargs == NIL;
}

/* Only plain columns of the relation, no volatile functions, no subqueries. */
static bool
is_possible_expression(Node *expression, const RelOptInfo *input)
{
	List *vars = pull_var_clause(expression, PVC_RECURSE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS |
												 PVC_INCLUDE_PLACEHOLDERS);
	ListCell *cell;

	foreach(cell, vars)
	{
		Var *var = lfirst(cell);

		if (!IsA(var, Var) || var->varno != input->relid || var->varattno <= 0)
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
	PathTarget *grouped = query->grouped->reltarget;
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
			*state = *(Aggref *) expression;
			mark_partial_aggref(state, AGGSPLIT_INITIAL_SERIAL);
			lfirst(cell) = state;
		}
		else if (!vector_groups_can_key(exprType(expression), exprCollation(expression)))
			return NULL;
	}
	return set_pathtarget_cost_width(query->root, partial);
}

/* ---- tables ------------------------------------------------------------------------------------- */

static Bitmapset *
collect_attributes(const PathTarget *target, Index varno)
{
	Bitmapset *offsets = NULL;
	Bitmapset *attributes = NULL;
	int offset = -1;

	pull_varattnos((Node *) target->exprs, varno, &offsets);
	while ((offset = bms_next_member(offsets, offset)) >= 0)
		attributes = bms_add_member(attributes, offset + FirstLowInvalidHeapAttributeNumber);
	return attributes;
}

/* Translates attribute numbers of a parent into those of its child; false if one is no plain column there. */
static bool
translate_leaf(AggregateLeaf *leaf, const AppendRelInfo *member, const Bitmapset *wanted,
			   const List *of_parent)
{
	int attribute = -1;
	int natts = list_length(of_parent) ? list_length(of_parent)
									   : list_length(member->translated_vars);

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
		(rte->relkind != RELKIND_RELATION && rte->relkind != RELKIND_MATVIEW))
		return false;
	/* a condition without columns becomes a node above the scan */
	foreach(cell, rel->baserestrictinfo)
		if (lfirst_node(RestrictInfo, cell)->pseudoconstant)
			return false;
	relation = table_open(rte->relid, NoLock);
	result = columnar_is_table(relation);
	table_close(relation, NoLock);
	return result;
}

/* Adds the tables of a tree; false if one of them is not for us. */
static bool
add_leaves(AggregateQuery *query, RelOptInfo *rel, const Bitmapset *wanted, List *of_parent)
{
	ListCell *cell;

	foreach(cell, query->root->append_rel_list)
	{
		AppendRelInfo *member = lfirst_node(AppendRelInfo, cell);
		RelOptInfo *child;
		AggregateLeaf *leaf;

		if (member->parent_relid != rel->relid)
			continue;
		child = query->root->simple_rel_array[member->child_relid];
		if (child == NULL || IS_DUMMY_REL(child))
			continue;
		leaf = palloc0(sizeof(AggregateLeaf));
		leaf->rel = child;
		if (!translate_leaf(leaf, member, wanted, of_parent))
			return false;
		if (planner_rt_fetch(child->relid, query->root)->inh)
		{
			if (!add_leaves(query, child, wanted, leaf->attributes))
				return false;
			continue;
		}
		if (!is_possible_leaf(query->root, child))
			return false;
		query->leaves = lappend(query->leaves, leaf);
		query->pages += child->pages;
	}
	return true;
}

static bool
collect_leaves(AggregateQuery *query)
{
	RelOptInfo *input = query->input;
	Bitmapset *wanted = collect_attributes(query->partial, input->relid);

	if (planner_rt_fetch(input->relid, query->root)->inh)
		return add_leaves(query, input, wanted, NIL) && query->leaves != NIL;
	if (is_possible_leaf(query->root, input))
	{
		AggregateLeaf *leaf = palloc0(sizeof(AggregateLeaf));

		leaf->rel = input;
		leaf->columns = wanted;
		query->leaves = list_make1(leaf);
		query->pages = input->pages;
		return true;
	}
	return false;
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

/* path->custom_private: the leaves' lists of attributes; results and HAVING of a whole aggregation. */
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
	scan->custom_private = list_make2(linitial(path->custom_private),
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
		}
		else
		{
			cost_qual_eval_node(&cost, expression, query->root);
			per_row += 2 * KERNEL_COST;
		}
		per_row += cost.per_tuple / 5;
	}
	return rows * per_row;
}

/*
 * The node over the leaves' scans, for the first half of the aggregation; with workers
 * its share of the work of each process.
 */
static CustomPath *
make_partial_path(AggregateQuery *query, RelOptInfo *partial_rel, int workers)
{
	CustomPath *path = makeNode(CustomPath);
	List *attributes = NIL;
	double rows = 0;
	double groups;
	Cost cost = 0;
	ListCell *cell;

	foreach(cell, query->leaves)
	{
		AggregateLeaf *leaf = lfirst(cell);
		CustomPath *scan = custom_scan_make_batch_path(query->root, leaf->rel, leaf->columns,
													   workers);

		if (scan == NULL)
			return NULL;
		path->custom_paths = lappend(path->custom_paths, scan);
		attributes = lappend(attributes, leaf->attributes);
		rows += scan->path.rows;
		cost += scan->path.total_cost;
	}
	groups = estimate_groups(query, rows);
	cost += estimate_work(query, rows);

	path->path.pathtype = T_CustomScan;
	path->path.parent = partial_rel;
	path->path.pathtarget = query->partial;
	path->path.parallel_safe = query->input->consider_parallel && query->grouped->consider_parallel;
	path->path.parallel_workers = workers;
	path->path.rows = clamp_row_est(groups);
	path->path.startup_cost = cost;
	path->path.total_cost = cost + groups * cpu_tuple_cost;
	path->custom_private = list_make3(attributes, NIL, NIL);
	path->methods = &path_methods;
	return path;
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
	RangeTblEntry *rte = planner_rt_fetch(query->input->relid, query->root);
	List *columns = NIL;
	List *constraints = NIL;
	bool others = false;
	ListCell *cell;

	foreach(cell, query->results)
	{
		Node *expression = lfirst(cell);

		if (foreach_current_index(cell) >= list_length(query->clauses))
			others |= !IsA(expression, Aggref);
		else if (IsA(expression, Var))
			columns = lappend(columns, expression);
	}
	if (!others)
		return true;
	return (!rte->inh || rte->relkind == RELKIND_PARTITIONED_TABLE) &&
		   check_functional_grouping(rte->relid, query->input->relid, 0, columns, &constraints);
}

/*
 * The node for the whole aggregation, in one process: without a second look-up of every group.
 * False without one: only if the groups are likely to fit into memory, as it reads its input again if they do not.
 */
static bool
add_whole_path(AggregateQuery *query, const CustomPath *partial)
{
	CustomPath *path = makeNode(CustomPath);
	List *having = (List *) query->extra->havingQual;
	double groups = partial->path.rows;
	QualCost having_cost;

	if (query->clauses == NIL || !has_true_groups(query) ||
		groups * (GROUP_MEMORY + query->partial->width) > get_hash_memory_limit())
		return false;
	*path = *partial;
	path->path.parent = query->grouped;
	path->path.pathtarget = query->grouped->reltarget;
	path->custom_private = list_make3(linitial(partial->custom_private), query->results, having);

	cost_qual_eval(&having_cost, having, query->root);
	path->path.startup_cost += having_cost.startup + path->path.pathtarget->cost.startup;
	path->path.total_cost = path->path.startup_cost +
							groups *
								(having_cost.per_tuple + RESULT_COST * list_length(query->results));
	if (having != NIL)
		path->path.rows = clamp_row_est(
			groups * clauselist_selectivity(query->root, having, 0, JOIN_INNER, NULL));
	path->path.total_cost += path->path.rows *
							 (cpu_tuple_cost + path->path.pathtarget->cost.per_tuple);
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
				 (Path *) create_agg_path(root, query->grouped, path, query->grouped->reltarget,
										  AGG_PLAIN, AGGSPLIT_FINAL_DESERIAL, NIL, having, &costs,
										  groups));
		return;
	}
	add_path(query->grouped, (Path *) create_agg_path(
								 root, query->grouped, path, query->grouped->reltarget, AGG_HASHED,
								 AGGSPLIT_FINAL_DESERIAL, query->clauses, having, &costs, groups));
	if (grouping_is_sortable(query->clauses))
	{
		/* nothing to sort by if conditions make constants of all keys */
		if (root->group_pathkeys != NIL)
			path = (Path *) create_sort_path(root, query->grouped, path, root->group_pathkeys,
											 -1.0);
		add_path(query->grouped,
				 (Path *) create_agg_path(root, query->grouped, path, query->grouped->reltarget,
										  AGG_SORTED, AGGSPLIT_FINAL_DESERIAL, query->clauses,
										  having, &costs, groups));
	}
}

static void
add_paths(AggregateQuery *query)
{
	RelOptInfo *partial_rel = fetch_upper_rel(query->root, UPPERREL_PARTIAL_GROUP_AGG,
											  query->grouped->relids);
	CustomPath *path = make_partial_path(query, partial_rel, 0);
	int workers;

	if (path == NULL)
		return;
	/* one of the two: their costs are so close that a sort too many would not tell */
	if (!add_whole_path(query, path))
		add_final_paths(query, &path->path);

	if (!query->grouped->consider_parallel || !query->input->consider_parallel)
		return;
	workers = compute_parallel_worker(query->input, query->pages, -1,
									  max_parallel_workers_per_gather);
	if (workers <= 0)
		return;
	path = make_partial_path(query, partial_rel, workers);
	if (path != NULL)
	{
		double rows = path->path.rows * workers;

		add_final_paths(query, (Path *) create_gather_path(query->root, partial_rel, &path->path,
														   query->partial, NULL, &rows));
	}
}

/* May the query be aggregated by batches, as far as it is known without its target? */
static bool
is_possible_query(const PlannerInfo *root, RelOptInfo *input)
{
	const Query *parse = root->parse;

	return columnar_enable_vector && columnar_enable_custom_scan &&
		   (parse->hasAggs || parse->groupClause != NIL) && parse->groupingSets == NIL &&
		   !parse->hasTargetSRFs && !root->hasNonPartialAggs && !root->hasNonSerialAggs &&
		   input->reloptkind == RELOPT_BASEREL && input->rtekind == RTE_RELATION &&
		   input->lateral_relids == NULL && !IS_DUMMY_REL(input);
}

static void
add_upper_paths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input_rel,
				RelOptInfo *output_rel, void *extra)
{
	AggregateQuery query = {
		.root = root, .input = input_rel, .grouped = output_rel, .extra = extra};

	if (previous_upper_hook)
		previous_upper_hook(root, stage, input_rel, output_rel, extra);
	if (stage != UPPERREL_GROUP_AGG || !is_possible_query(root, input_rel))
		return;
	query.clauses = compat_group_clauses(root);
	/* GROUP BY of constants alone: one group, or none if there are no rows */
	if (query.clauses == NIL && root->parse->groupClause != NIL)
		return;
	query.partial = make_partial_target(&query);
	if (query.partial != NULL && collect_leaves(&query))
		add_paths(&query);
}

void
aggregate_initialize(void)
{
	RegisterCustomScanMethods(&aggregate_scan_methods);
	previous_upper_hook = create_upper_paths_hook;
	create_upper_paths_hook = add_upper_paths;
}
