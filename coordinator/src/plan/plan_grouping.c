/*
 * plan_grouping.c
 *		GROUP BY and aggregates on the workers.
 *
 * Whole where all rows of a group are on one worker.  Else the workers make partial aggregates
 * (partial_aggregate.h), which core's Agg finalizes here.
 *
 * DISTINCT aggregates have no partial form of their own, with two exceptions.  Where the distribution
 * key is among the arguments, what the workers count is disjoint, and is put together as if it were not distinct.
 * Else, for count(DISTINCT x), the workers group by x, too: their groups come sorted and merged, so that
 * the same x of several workers is met in a row and counts once (GatherPlan.once_columns).
 * Core believes that a node which finalizes aggregates has no DISTINCT in them.  Therefore they are
 * written without it below a node that gives them back their names (rename_plan.h).
 *
 * Of grouping sets the workers make what they can (grouping_sets.h).
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "access/nbtree.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_constraint.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/planner.h"
#include "optimizer/prep.h"
#include "optimizer/tlist.h"
#include "parser/parse_oper.h"
#include "parser/parsetree.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "compat.h"
#include "plan/gather_plan.h"
#include "plan/grouping_sets.h"
#include "plan/partial_aggregate.h"
#include "plan/planner.h"
#include "plan/rename_plan.h"
#include "plan/shippable.h"
#include "plan/upper_stage.h"

typedef struct Groups
{
	PlannerInfo *root;
	List *exprs;   /* what is grouped by */
	List *columns; /* that are in these expressions */
} Groups;

static bool walk_unnamed_groups(Node *node, Groups *groups);

/* Of conditions within conditions of the same kind the parser makes one list. */
static bool
walk_conditions(BoolExpr *expr, Groups *groups)
{
	ListCell *lc;

	foreach(lc, expr->args)
	{
		BoolExpr *part = lfirst(lc);

		if (IsA(part, BoolExpr) && part->boolop == expr->boolop
				? walk_conditions(part, groups)
				: walk_unnamed_groups((Node *) part, groups))
			return true;
	}
	return false;
}

/* In a sub-select the parser knows only grouped columns. */
static bool
walk_sub_select(SubPlan *subplan, const Groups *groups)
{
	Groups below = {.root = groups->root, .columns = groups->columns};
	ListCell *lc;

	foreach(lc, groups->exprs)
	{
		if (IsA(lfirst(lc), Var))
			below.exprs = lappend(below.exprs, lfirst(lc));
	}
	return walk_unnamed_groups((Node *) subplan->args, &below);
}

/*
 * Walker: columns of grouped expressions, where they are neither in such an expression nor in an aggregate, and no primary key
 * lets them stand there.
 */
static bool
walk_unnamed_groups(Node *node, Groups *groups)
{
	List *keys = NIL;

	if (node == NULL || IsA(node, Aggref) || list_member(groups->exprs, node))
		return false;
	if (IsA(node, Var) && list_member(groups->columns, node))
	{
		Index rti = ((Var *) node)->varno;
		RangeTblEntry *rte = planner_rt_fetch(rti, groups->root);

		return rte->rtekind != RTE_RELATION ||
			   !check_functional_grouping(rte->relid, rti, 0, groups->exprs, &keys);
	}
	if (IsA(node, BoolExpr))
		return walk_conditions((BoolExpr *) node, groups);
	if (IsA(node, SubPlan) && walk_sub_select((SubPlan *) node, groups))
		return true;
	return expression_tree_walker(node, walk_unnamed_groups, groups);
}

/*
 * Can SQL say what is asked of the groups?  The parser knows a grouped expression by its form, and not in sub-selects.  But where
 * it is a view's column, the planner has put it there, or given a use of it another form: NOT (a > 2) is a <= 2.
 */
static bool
names_groups(PlannerInfo *root, List *exprs, List *having)
{
	Groups groups = {.root = root};

	groups.exprs = get_sortgrouplist_exprs(root->parse->groupClause, root->processed_tlist);
	groups.columns = pull_vars_of_level((Node *) groups.exprs, 0);
	return !walk_unnamed_groups((Node *) exprs, &groups) &&
		   !walk_unnamed_groups((Node *) make_ands_explicit(having), &groups);
}

/*
 * The stage's columns, all of GROUP BY among them: below windows core leaves out, or does not mark, what it has found to be
 * redundant there, but SQL must name it, and without any there is one group.
 */
static PathTarget *
make_grouping_target(PlannerInfo *root)
{
	PathTarget *target = copy_pathtarget(root->upper_targets[UPPERREL_GROUP_AGG]);
	int columns = list_length(target->exprs);
	ListCell *cell;

	if (target->sortgrouprefs == NULL)
		target->sortgrouprefs = palloc0(columns * sizeof(Index));
	foreach(cell, root->parse->groupClause)
	{
		Index ref = lfirst_node(SortGroupClause, cell)->tleSortGroupRef;
		Expr *expr = get_sortgroupref_tle(ref, root->processed_tlist)->expr;
		int place = 0;

		while (place < columns && target->sortgrouprefs[place] != ref)
			place++;
		if (place < columns)
			continue;
		for (place = 0; place < columns; place++)
		{
			if (target->sortgrouprefs[place] == 0 && equal(list_nth(target->exprs, place), expr))
				break;
		}
		if (place < columns)
			target->sortgrouprefs[place] = ref;
		else
			add_column_to_pathtarget(target, expr, ref);
	}
	return target;
}

/* Grouping that is complete on the workers. */
static void
push_full_grouping(PlannerInfo *root, RelOptInfo *output_rel, DistPath *input, Node *having)
{
	DistPath *path = dist_path_copy(input);
	PathTarget *target = make_grouping_target(root);
	List *keys = NIL;
	Path *local = linitial(output_rel->pathlist);
	ListCell *lc;

	if (partial_aggregate_ignores_order((Node *) target->exprs) &&
		partial_aggregate_ignores_order(having))
		dist_path_forget_order(path);
	path->ordered = false; /* groups have none */
	path->target = upper_stage_target(target);
	path->group_clause = root->parse->groupClause; /* all of it: SQL must name what it selects */
	path->grouping_sets = root->parse->groupingSets;
	path->having = (List *) having;
	path->has_aggs = root->parse->hasAggs;
	if (!names_groups(root, target->exprs, path->having) ||
		!upper_stage_is_shippable(path, path->target) ||
		!shippable_expr(root, &path->locus, having, &path->outer_params))
		return;

	if (path->grouping_sets != NIL)
		keys = grouping_sets_keys(root, input);
	else
	{
		foreach(lc, get_sortgrouplist_exprs(path->group_clause, path->target))
		{
			if (locus_has_key(root, &input->locus, lfirst(lc)))
				keys = lappend(keys, lfirst(lc));
		}
	}
	path->locus.keys = keys;
	path->rows = local->rows;
	path->cost = input->cost + input->rows / locus_worker_count(&input->locus) * cpu_operator_cost *
								   (1 + list_length(path->target));
	dist_path_add(output_rel, path);
	upper_stage_add_gather(root, output_rel, path, target, NIL);
}

/*
 * The target of the workers' partial aggregation: grouping columns, and the
 * aggregates (marked partial) and columns that the final step needs.  As core's
 * make_partial_grouping_target(), which is not exported.
 */
static PathTarget *
make_partial_target(PlannerInfo *root, PathTarget *grouping_target, List *having)
{
	PathTarget *target = create_empty_pathtarget();
	List *group_clause = root->parse->groupClause;
	List *others = NIL;
	int i = 0;
	ListCell *lc;

	foreach(lc, grouping_sets_input(root, grouping_target->exprs))
	{
		Index ref = get_pathtarget_sortgroupref(grouping_target, i++);

		if (ref != 0 && get_sortgroupref_clause_noerr(ref, group_clause) != NULL)
			add_column_to_pathtarget(target, lfirst(lc), ref);
		else
			others = lappend(others, lfirst(lc));
	}
	others = list_concat(others, grouping_sets_input(root, having));
	foreach(lc, pull_var_clause((Node *) others, PVC_INCLUDE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS |
													 PVC_INCLUDE_PLACEHOLDERS))
	{
		if (!IsA(lfirst(lc), GroupingFunc)) /* what the final step itself knows */
			add_new_column_to_pathtarget(target, lfirst(lc));
	}
	foreach(lc, target->exprs)
	{
		if (IsA(lfirst(lc), Aggref))
		{
			Aggref *partial = makeNode(Aggref);

			*partial = *(Aggref *) lfirst(lc);
			mark_partial_aggref(partial, AGGSPLIT_INITIAL_SERIAL);
			lfirst(lc) = partial;
		}
	}
	return target;
}

/* What DISTINCT aggregates ask of partial grouping. */
typedef struct DistinctAggregates
{
	bool any;
	bool by_key; /* the distribution key is among an aggregate's arguments */
	Expr *value; /* x of count(DISTINCT x), by which workers group, too; NULL: of none */
	SortGroupClause *clause; /* how it is compared */
} DistinctAggregates;

static bool
has_key_argument(PlannerInfo *root, DistPath *input, Aggref *aggref)
{
	ListCell *lc;

	foreach(lc, aggref->args)
	{
		if (locus_has_key(root, &input->locus, (Node *) ((TargetEntry *) lfirst(lc))->expr))
			return true;
	}
	return false;
}

/* The aggregates of a list of expressions. */
static List *
list_aggregates(List *exprs)
{
	List *result = NIL;
	ListCell *lc;

	foreach(lc, pull_var_clause((Node *) exprs, PVC_INCLUDE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS |
													PVC_INCLUDE_PLACEHOLDERS))
	{
		if (IsA(lfirst(lc), Aggref))
			result = lappend(result, lfirst(lc));
	}
	return result;
}

/* Can all aggregates be made of what several workers say? */
static bool
classify_aggregates(PlannerInfo *root, DistPath *input, List *exprs, DistinctAggregates *distinct)
{
	ListCell *lc;

	foreach(lc, list_aggregates(exprs))
	{
		Aggref *aggref = lfirst(lc);
		Expr *value;

		if (!partial_aggregate_possible(
				partial_aggregate_undistinct((Node *) aggref, AGGSPLIT_SIMPLE)))
			return false;
		if (aggref->aggdistinct == NIL)
			continue;
		distinct->any = true;
		if (has_key_argument(root, input, aggref))
		{
			/* PostgreSQL sorts what a DISTINCT aggregate gets */
			if (!partial_aggregate_ignores_order((Node *) aggref))
				return false;
			distinct->by_key = true;
			continue;
		}
		value = linitial_node(TargetEntry, aggref->args)->expr;
		if (aggref->aggfnoid != F_COUNT_ANY ||
			(distinct->value != NULL && !equal(distinct->value, value)))
			return false;
		distinct->value = value;
		distinct->clause = linitial(aggref->aggdistinct);
	}
	return distinct->value == NULL || (!distinct->by_key && OidIsValid(distinct->clause->sortop) &&
									   grouping_is_sortable(root->parse->groupClause));
}

/* A target whose aggregates are written without DISTINCT. */
static PathTarget *
undistinct_target(PathTarget *target, AggSplit split)
{
	PathTarget *result = copy_pathtarget(target);

	result->exprs = (List *) partial_aggregate_undistinct((Node *) target->exprs, split);
	return result;
}

/*
 * How many groups partial aggregation is expected to leave.  Core multiplies the distinct values of all columns: that
 * many there are if no column tells anything of another.  The column with the most has as many alone.  We take
 * the geometric mean, for to believe too many is worse than too few: raw rows come here then, to be grouped by
 * one process, where workers would have sent a part of them.
 */
static double
expect_groups(PlannerInfo *root, List *columns, double rows)
{
	double most = estimate_num_groups(root, columns, rows, NULL, NULL);
	double fewest = 1;
	ListCell *lc;

	if (list_length(columns) < 2)
		return most;
	foreach(lc, columns)
		fewest = Max(fewest, estimate_num_groups(root, list_make1(lfirst(lc)), rows, NULL, NULL));
	return sqrt(Min(fewest, most) * most);
}

/* How many groups are all columns of all grouping sets expected to make? */
static double
estimate_finest_groups(PlannerInfo *root, DistPath *input)
{
	if (root->parse->groupClause == NIL)
		return 1;
	return expect_groups(root,
						 grouping_sets_input(root, get_sortgrouplist_exprs(root->parse->groupClause,
																		   root->processed_tlist)),
						 input->rows);
}

/* Which columns of the partial target are counts of distinct values? */
static List *
find_once_columns(PathTarget *target)
{
	List *columns = NIL;
	int column = 0;
	ListCell *lc;

	foreach(lc, target->exprs)
	{
		Aggref *aggref = lfirst(lc);

		column++;
		if (IsA(aggref, Aggref) && aggref->aggdistinct != NIL)
			columns = lappend_int(columns, column);
	}
	return columns;
}

/* Have the workers group by the distinct value, too, and sort so that equal ones of several workers meet. */
static PathTarget *
group_by_value(DistPath *path, PathTarget *target, const DistinctAggregates *distinct)
{
	List *once = find_once_columns(target);
	SortGroupClause *clause = copyObject(distinct->clause);
	Index last_ref = 0;
	int i = 0;
	ListCell *lc;

	target = undistinct_target(target, AGGSPLIT_INITIAL_SERIAL);
	clause->tleSortGroupRef = 0;
	foreach(lc, target->exprs)
	{
		Index ref = get_pathtarget_sortgroupref(target, i++);

		last_ref = Max(last_ref, ref);
		if (ref != 0 && equal(lfirst(lc), distinct->value))
			clause->tleSortGroupRef = ref;
	}
	if (clause->tleSortGroupRef == 0)
	{
		clause->tleSortGroupRef = last_ref + 1;
		add_column_to_pathtarget(target, distinct->value, clause->tleSortGroupRef);
		path->group_clause = lappend(list_copy(path->group_clause), clause);
	}
	path->sort_clause = path->group_clause;
	path->once_columns = once;
	return target;
}

/* What the workers are to group: a path whose target is set; NULL where that cannot be. */
static DistPath *
make_partial_path(PlannerInfo *root, DistPath *input, PathTarget *target,
				  const DistinctAggregates *distinct)
{
	DistPath *path = dist_path_copy(input);
	double groups;
	int workers = locus_worker_count(&input->locus);

	dist_path_forget_order(path);
	path->group_clause =
		root->parse->groupClause; /* also what is redundant: without any there is one group */
	path->has_aggs = root->parse->hasAggs;
	if (distinct->value != NULL)
	{
		target = group_by_value(path, target, distinct);
		groups = expect_groups(
			root, get_sortgrouplist_exprs(path->group_clause, upper_stage_target(target)),
			input->rows);
	}
	else
		groups = estimate_finest_groups(root, input);
	path->target = upper_stage_target(target);
	if (!upper_stage_is_shippable(path, path->target) || path->outer_params != NULL ||
		!shippable_order(path->sort_clause, path->target))
		return NULL;
	path->rows = upper_stage_partial_groups(input->rows, groups, workers);
	path->cost = input->cost +
				 input->rows / workers * cpu_operator_cost * (1 + list_length(path->target));
	if (path->sort_clause != NIL)
	{
		Path sorted;

		compat_cost_sort(&sorted, root, NIL, path->cost, path->rows / workers, 32, 0.0, work_mem,
						 -1.0);
		path->cost = sorted.total_cost;
	}
	return path;
}

static void
add_finalize_path(PlannerInfo *root, RelOptInfo *output_rel, Path *input, PathTarget *target,
				  AggStrategy strategy, List *having, const DistinctAggregates *distinct,
				  double groups)
{
	List *group_clause = root->parse->groupClause;
	AggClauseCosts costs;
	Path *path;

	memset(&costs, 0, sizeof(costs));
	get_agg_clause_costs(root, AGGSPLIT_FINAL_DESERIAL, &costs);
	path = (Path *) create_agg_path(
		root, output_rel, input,
		distinct->any ? undistinct_target(target, AGGSPLIT_SIMPLE) : target, strategy,
		AGGSPLIT_FINAL_DESERIAL, group_clause,
		distinct->any ? (List *) partial_aggregate_undistinct((Node *) having, AGGSPLIT_SIMPLE)
					  : having,
		&costs, groups);
	if (distinct->any)
		path = rename_path_create(output_rel, path, target);
	add_path(output_rel, path);
}

/* GROUPING() of a sub-select has one of its own: the final step would not know it among the columns of the workers. */
static bool
asks_for_sub_select(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, GroupingFunc))
		return contain_subplans((Node *) ((GroupingFunc *) node)->args);
	return expression_tree_walker(node, asks_for_sub_select, context);
}

/* Partial aggregates on the workers, Finalize Aggregate here; false where that cannot be. */
static bool
push_partial_grouping(PlannerInfo *root, RelOptInfo *output_rel, DistPath *input,
					  GroupPathExtraData *extra)
{
	List *group_clause = root->parse->groupClause;
	List *having = (List *) extra->havingQual;
	PathTarget *grouping_target = make_grouping_target(root);
	List *exprs = list_concat_copy(grouping_target->exprs, having);
	PathTarget *target;
	DistinctAggregates distinct = {0};
	DistPath *path;
	Path *gather;
	double groups = ((Path *) linitial(output_rel->pathlist))->rows;

	if (input->outer_params != NULL || input->locus.kind != LOCUS_HASHED || input->locks != NIL ||
		asks_for_sub_select((Node *) exprs, NULL) ||
		!classify_aggregates(root, input, exprs, &distinct))
		return false;
	if (input->ordered && !partial_aggregate_ignores_order((Node *) exprs))
		return false;
	if (distinct.any && (contain_subplans((Node *) having) || root->parse->groupingSets != NIL))
		return false;

	target = make_partial_target(root, grouping_target, having);
	path = make_partial_path(root, input, target, &distinct);
	if (path == NULL)
		return false;
	groups = Min(groups, path->rows);
	target = undistinct_target(make_pathtarget_from_tlist(path->target), AGGSPLIT_INITIAL_SERIAL);
	target = set_pathtarget_cost_width(root, target);
	gather = gather_path_create(root, output_rel, path, target, NIL, NIL,
								path->sort_clause != NIL ? compat_group_pathkeys(root) : NIL);

	if (root->parse->groupingSets != NIL)
		grouping_sets_finish(root, output_rel, gather, true);
	else if (group_clause == NIL)
		add_finalize_path(root, output_rel, gather, grouping_target, AGG_PLAIN, having, &distinct,
						  1);
	else if (distinct.value != NULL)
		add_finalize_path(root, output_rel, gather, grouping_target, AGG_SORTED, having, &distinct,
						  groups);
	else
	{
		/* for core, DISTINCT forbids to hash */
		if (extra->flags & GROUPING_CAN_USE_HASH ||
			(distinct.any && grouping_is_hashable(group_clause)))
			add_finalize_path(root, output_rel, gather, grouping_target, AGG_HASHED, having,
							  &distinct, groups);
		if (extra->flags & GROUPING_CAN_USE_SORT)
		{
			gather = (Path *) create_sort_path(root, output_rel, gather,
											   compat_group_pathkeys(root), -1.0);
			add_finalize_path(root, output_rel, gather, grouping_target, AGG_SORTED, having,
							  &distinct, groups);
		}
	}
	return true;
}

/* Is the aggregate the same for rows without their duplicates? */
static bool
ignores_duplicates(const Aggref *aggref)
{
	HeapTuple tuple;
	bool takes_one_row;

	if (aggref->aggdistinct != NIL)
		return true;
	tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggref->aggfnoid));
	takes_one_row = HeapTupleIsValid(tuple) &&
					OidIsValid(((Form_pg_aggregate) GETSTRUCT(tuple))->aggsortop); /* min, max */
	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return takes_one_row;
}

/*
 * Aggregates that all ignore duplicates: the workers send each row once, core does the rest.  For what cannot be made of
 * partial aggregates: sum(DISTINCT x), several distinct columns.
 */
static void
push_distinct_rows(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *output_rel,
				   DistPath *input, GroupPathExtraData *extra)
{
	PathTarget *target = root->upper_targets[UPPERREL_GROUP_AGG];
	List *having = (List *) extra->havingQual;
	DistPath *path = dist_path_copy(input);
	int workers = locus_worker_count(&input->locus);
	double groups = ((Path *) linitial(output_rel->pathlist))->rows;
	AggClauseCosts costs;
	Path *rows;
	ListCell *lc;

	if (input->outer_params != NULL || input->locus.kind != LOCUS_HASHED || input->locks != NIL ||
		input->ordered || input->group_clause != NIL || !root->parse->hasAggs ||
		(root->parse->groupClause != NIL && !grouping_is_sortable(root->parse->groupClause)))
		return;
	foreach(lc, list_aggregates(list_concat_copy(target->exprs, having)))
	{
		if (!ignores_duplicates(lfirst(lc)))
			return;
	}
	path->target = upper_stage_target(input_rel->reltarget);
	path->group_clause = upper_stage_group_by_all(path->target);
	if (path->group_clause == NIL || !upper_stage_is_shippable(path, path->target) ||
		path->outer_params != NULL)
		return;
	path->rows = upper_stage_partial_groups(
		input->rows,
		estimate_num_groups(root, input_rel->reltarget->exprs, input->rows, NULL, NULL), workers);
	path->cost += input->rows / workers * cpu_operator_cost * list_length(path->target);

	rows = gather_path_create(root, output_rel, path, input_rel->reltarget, NIL, NIL, NIL);
	if (root->parse->groupingSets != NIL)
	{
		grouping_sets_finish(root, output_rel, rows, false);
		return;
	}
	if (root->group_pathkeys != NIL) /* with those of aggregates that want their input sorted */
		rows = (Path *) create_sort_path(root, output_rel, rows, root->group_pathkeys, -1.0);
	memset(&costs, 0, sizeof(costs));
	get_agg_clause_costs(root, AGGSPLIT_SIMPLE, &costs);
	add_path(output_rel, (Path *) create_agg_path(
							 root, output_rel, rows, target,
							 root->parse->groupClause == NIL ? AGG_PLAIN : AGG_SORTED,
							 AGGSPLIT_SIMPLE, compat_group_clauses(root), having, &costs, groups));
}

void
plan_grouping(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *output_rel,
			  GroupPathExtraData *extra)
{
	bool sets = root->parse->groupingSets != NIL;
	ListCell *lc;

	if (output_rel->pathlist == NIL || (sets && !grouping_sets_possible(root)))
		return;
	foreach(lc, dist_paths(input_rel))
	{
		DistPath *input = lfirst(lc);

		if (input->locks != NIL)
			continue;
		/* copies of a reference table have their rows in different orders */
		if (input->locus.kind == LOCUS_REPLICATED &&
			!(partial_aggregate_same_on_copies((Node *) root->processed_tlist) &&
			  partial_aggregate_same_on_copies(extra->havingQual)))
			continue;
		if (sets ? grouping_sets_complete(root, input)
				 : upper_stage_is_complete(input, root->parse->groupClause, root->processed_tlist))
			push_full_grouping(root, output_rel, input, extra->havingQual);
		else if (!push_partial_grouping(root, output_rel, input, extra))
			push_distinct_rows(root, input_rel, output_rel, input, extra);
	}
}
