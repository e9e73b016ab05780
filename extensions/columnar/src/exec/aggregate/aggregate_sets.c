/*
 * aggregate_sets.c
 *		GROUPING SETS, ROLLUP and CUBE: an Append of one aggregation by batches for each set.
 *
 * Each reads its input anew, which costs less than to form rows for core's Agg node and to sort
 * or hash them there.  In the target of a set the keys that it does not group by are NULL,
 * and GROUPING() is a constant.
 */
#include "exec/aggregate/aggregate_path.h"

#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/tlist.h"
#include "rewrite/rewriteManip.h"

/* More scans of the input than these are too many. */
#define SETS_MAX 32

typedef struct GroupedSet
{
	PlannerInfo *root;
	List *refs;		/* integers: its keys */
	List *all_refs; /* the keys of all sets, and what they are */
	List *all_keys;
} GroupedSet;

static Const *
make_grouping(const GroupingFunc *grouping, const List *refs)
{
	int32 result = 0;
	ListCell *cell;

	foreach(cell, grouping->refs)
		result = result << 1 | !list_member_int(refs, lfirst_int(cell));
	return makeConst(INT4OID, -1, InvalidOid, sizeof(int32), Int32GetDatum(result), false, true);
}

/* What an expression over groups is in the groups of the set. */
static Node *
fit_expression(Node *node, GroupedSet *set)
{
	ListCell *key;
	ListCell *ref;

	if (node == NULL || IsA(node, Aggref))
		return node;
	if (IsA(node, GroupingFunc))
		return (Node *) make_grouping((GroupingFunc *) node, set->refs);
	forboth(key, set->all_keys, ref, set->all_refs)
	{
		if (!equal(lfirst(key), node))
			continue;
		if (list_member_int(set->refs, lfirst_int(ref)))
			return compat_forget_grouping(set->root, node);
		return (Node *) makeNullConst(exprType(node), exprTypmod(node), exprCollation(node));
	}
	return expression_tree_mutator(node, fit_expression, set);
}

/* The grouped target for the set: its own keys alone have references. */
static PathTarget *
fit_target(const PathTarget *target, GroupedSet *set)
{
	PathTarget *fitted = create_empty_pathtarget();
	ListCell *cell;
	int i = 0;

	foreach(cell, target->exprs)
	{
		Index ref = get_pathtarget_sortgroupref(target, i++);

		add_column_to_pathtarget(fitted, (Expr *) fit_expression(lfirst(cell), set),
								 list_member_int(set->refs, (int) ref) ? ref : 0);
	}
	return fitted;
}

static List *
choose_clauses(List *clauses, const List *refs)
{
	List *chosen = NIL;
	ListCell *cell;

	foreach(cell, clauses)
		if (list_member_int(refs, (int) lfirst_node(SortGroupClause, cell)->tleSortGroupRef))
			chosen = lappend(chosen, lfirst(cell));
	return chosen;
}

/* The cheapest path for the groups of a set; NULL if there is none by batches. */
static Path *
make_path(const AggregateQuery *query, GroupedSet *set)
{
	AggregateQuery part = *query;
	GroupPathExtraData extra = *query->extra;
	RelOptInfo *grouped = makeNode(RelOptInfo);
	Path *best = NULL;
	ListCell *cell;

	*grouped = *query->grouped;
	grouped->pathlist = NIL;
	grouped->partial_pathlist = NIL;
	grouped->reltarget = set_pathtarget_cost_width(query->root,
												   fit_target(query->grouped->reltarget, set));
	extra.havingQual = fit_expression(query->extra->havingQual, set);
	part.grouped = grouped;
	part.extra = &extra;
	part.target = grouped->reltarget;
	part.clauses = choose_clauses(query->root->parse->groupClause, set->refs);
	part.pathkeys = grouping_is_sortable(part.clauses)
						? make_pathkeys_for_sortclauses(
							  query->root, part.clauses,
							  (List *) compat_forget_grouping(
								  query->root, (Node *) query->root->processed_tlist))
						: NIL;
	aggregate_add_paths(&part);
	foreach(cell, grouped->pathlist)
	{
		Path *path = lfirst(cell);

		if (best == NULL || compat_is_cheaper(path, best))
			best = path;
	}
	return best;
}

/*
 * May the input be in the plan several times, and does it return the same rows then?  Not the plan of a
 * sub-select: setrefs.c renumbers its relations in place, once for each time.
 */
static bool
can_be_repeated(const AggregateQuery *query)
{
	const Query *parse = query->root->parse;
	int relid = -1;
	ListCell *cell;

	while ((relid = bms_next_member(query->input->relids, relid)) >= 0)
	{
		const RelOptInfo *rel = query->root->simple_rel_array[relid];

		if (rel != NULL && rel->subroot != NULL)
			return false;
	}
	foreach(cell, parse->rtable)
		if (lfirst_node(RangeTblEntry, cell)->tablesample != NULL)
			return false;
	return !contain_volatile_functions((Node *) parse);
}

void
aggregate_sets_add_paths(AggregateQuery *query)
{
	PlannerInfo *root = query->root;
	const Query *parse = root->parse;
	GroupedSet set = {.root = query->root};
	List *paths = NIL;
	ListCell *cell;

	/* the planner has expanded them to lists of references */
	if (list_length(parse->groupingSets) > SETS_MAX)
		return;
	if (list_length(parse->groupingSets) > 1 && !can_be_repeated(query))
		return;
	foreach(cell, parse->groupClause)
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, cell);

		set.all_refs = lappend_int(set.all_refs, (int) clause->tleSortGroupRef);
		set.all_keys = lappend(set.all_keys,
							   get_sortgroupclause_expr(clause, root->processed_tlist));
	}
	foreach(cell, parse->groupingSets)
	{
		Path *path;

		set.refs = lfirst(cell);
		path = make_path(query, &set);
		if (path == NULL)
			return;
		paths = lappend(paths, path);
	}
	if (paths != NIL)
		add_path(query->grouped, (Path *) compat_create_append_path(root, query->grouped, paths));
}
