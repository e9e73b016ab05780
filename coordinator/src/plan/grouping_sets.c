/*
 * grouping_sets.c
 *		GROUPING SETS, ROLLUP and CUBE: which of them workers can make, and how partial ones are finished.
 *
 * Where each set holds the distribution key, the workers make all of them.  Else they group by all columns of all sets,
 * which is the finest set of ROLLUP and CUBE anyhow, and core's own node makes the sets of what they send.  That workers
 * made the sets themselves, and their results were merged by columns and GROUPING(), would send more rows where one set
 * holds all columns; and equal sets have the same GROUPING().
 *
 * Core has no plan that finalizes aggregates by sets, though its executor can: the node's plan is told so when it is made
 * (rename_plan.h).
 *
 * A set makes columns NULL that are not in it, also those that the planner knows equal to one that stays: what is known of
 * columns below the sets does not hold above them.  Since 18 core's columns say themselves on which side they are: what the
 * workers send to be finished has those of the input, whole groups have those of the output.
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/tlist.h"

#include "compat.h"
#include "plan/grouping_sets.h"
#include "plan/rename_plan.h"
#include "plan/upper_stage.h"

/* Does the expression name a column outside of aggregates that is not grouped by? */
static bool
walk_ungrouped(Node *node, List *grouped)
{
	if (node == NULL || IsA(node, Aggref) || IsA(node, GroupingFunc) || list_member(grouped, node))
		return false;
	return IsA(node, Var) || expression_tree_walker(node, walk_ungrouped, grouped);
}

bool
grouping_sets_possible(PlannerInfo *root)
{
	Query *parse = root->parse;
	List *grouped = get_sortgrouplist_exprs(parse->groupClause, root->processed_tlist);
	ListCell *lc;

	/* what is the same in all rows is computed here, and would not be made NULL */
	foreach(lc, grouped)
	{
		if (!contain_var_clause(lfirst(lc)))
			return false;
	}

	/* nor columns that depend on a grouped primary key, which workers would have to prove again */
	return !walk_ungrouped((Node *) root->processed_tlist, grouped) &&
		   !walk_ungrouped(parse->havingQual, grouped);
}

List *
grouping_sets_input(PlannerInfo *root, List *exprs)
{
	if (root->parse->groupingSets == NIL)
		return exprs;
	return (List *) compat_forget_grouping(root, (Node *) exprs);
}

/* The SortGroupClauses of a set. */
static List *
set_clauses(PlannerInfo *root, List *set)
{
	List *clauses = NIL;
	ListCell *lc;

	foreach(lc, set)
		clauses = lappend(clauses,
						  get_sortgroupref_clause(lfirst_int(lc), root->parse->groupClause));
	return clauses;
}

bool
grouping_sets_complete(PlannerInfo *root, DistPath *input)
{
	List *columns = grouping_sets_input(root, root->processed_tlist);
	ListCell *lc;

	foreach(lc, root->parse->groupingSets)
	{
		if (!upper_stage_is_complete(input, set_clauses(root, lfirst(lc)), columns))
			return false;
	}
	return true;
}

List *
grouping_sets_keys(PlannerInfo *root, DistPath *input)
{
	List *keys = NIL;
	ListCell *lc;
	ListCell *lc2;

	foreach(lc, root->parse->groupClause)
	{
		SortGroupClause *clause = lfirst(lc);
		Node *expr = get_sortgroupclause_expr(clause, root->processed_tlist);

		if (!locus_has_key(root, &input->locus, compat_forget_grouping(root, expr)))
			continue;
		foreach(lc2, root->parse->groupingSets)
		{
			if (!list_member_int(lfirst(lc2), clause->tleSortGroupRef))
				return NIL; /* known equal to the others, and NULL in rows of any worker */
		}
		keys = lappend(keys, expr);
	}
	return keys;
}

List *
grouping_sets_clause(List *sets)
{
	List *content = NIL;
	ListCell *lc;

	if (sets == NIL)
		return NIL;
	foreach(lc, sets)
	{
		List *set = lfirst(lc);

		content = lappend(content,
						  makeGroupingSet(set == NIL ? GROUPING_SET_EMPTY : GROUPING_SET_SIMPLE,
										  list_copy(set), -1));
	}
	return list_make1(makeGroupingSet(GROUPING_SET_SETS, content, -1));
}

/* Core's node over another input than its own. */
static Path *
replace_input(PlannerInfo *root, RelOptInfo *output_rel, GroupingSetsPath *core, Path *input)
{
	GroupingSetsPath *path = makeNode(GroupingSetsPath);
	double share = input->rows / Max(core->subpath->rows, 1);
	Cost output = core->path.rows * cpu_tuple_cost;
	Cost work = core->path.total_cost - core->subpath->total_cost - output;
	Cost wait = core->path.startup_cost - core->subpath->startup_cost;

	if (root->group_pathkeys != NIL &&
		pathkeys_contained_in(root->group_pathkeys, core->subpath->pathkeys))
		input = (Path *) create_sort_path(root, output_rel, input, root->group_pathkeys, -1.0);
	*path = *core;
	path->subpath = input;
	path->path.startup_cost = input->startup_cost + Max(wait, 0) * share;
	path->path.total_cost = input->total_cost + Max(work, 0) * share + output;
	path->path.startup_cost = Min(path->path.startup_cost, path->path.total_cost);
	return (Path *) path;
}

void
grouping_sets_finish(PlannerInfo *root, RelOptInfo *output_rel, Path *input, bool partial)
{
	List *paths = NIL;
	ListCell *lc;

	foreach(lc, output_rel->pathlist)
	{
		if (IsA(lfirst(lc), GroupingSetsPath))
			paths = lappend(paths, replace_input(root, output_rel, lfirst(lc), input));
	}
	foreach(lc, paths)
	{
		Path *path = lfirst(lc);

		if (partial)
			path = rename_path_create_final(output_rel, path, output_rel->reltarget);
		add_path(output_rel, path);
	}
}
