/*
 * hash_join.c
 *		Joins here of rows that come from the workers, by hash.
 *
 * A loop that looks through all rows of one side for each of the other costs as much as a hash table where there is one outer
 * row, as core expects of many joins, and may take minutes where there are thousands after all.  Where a side is gathered,
 * or made of what is, be it kept by WITH, and the join has a clause for a hash table, there is no such loop.
 */
#include "postgres.h"

#include "optimizer/cost.h"
#include "optimizer/pathnode.h"
#include "optimizer/restrictinfo.h"

#include "plan/hash_join.h"
#include "plan/planner.h"
#include "plan/query_levels.h"

static bool
has_sides(const RestrictInfo *rinfo, const RelOptInfo *left, const RelOptInfo *right)
{
	return bms_is_subset(rinfo->left_relids, left->relids) &&
		   bms_is_subset(rinfo->right_relids, right->relids);
}

/* Is it, or a part of it, made of rows of the workers? */
static bool
is_gathered(PlannerInfo *root, const RelOptInfo *rel)
{
	int rti = -1;

	while ((rti = bms_next_member(rel->relids, rti)) >= 0)
	{
		const RangeTblEntry *rte = root->simple_rte_array[rti];

		if (rte == NULL)
			continue;
		if (planner_is_distributed(rte) ||
			(rte->rtekind == RTE_SUBQUERY && planner_reads_distributed((Node *) rte->subquery)) ||
			(rte->rtekind == RTE_CTE && !rte->self_reference &&
			 planner_reads_distributed(query_levels_find_with(root, rte)->ctequery)))
			return true;
	}
	return false;
}

List *
hash_join_clauses(RelOptInfo *joinrel, RelOptInfo *outerrel, RelOptInfo *innerrel,
				  JoinType jointype, List *restrictlist)
{
	Path *outer = outerrel->cheapest_total_path;
	Path *inner = innerrel->cheapest_total_path;
	List *result = NIL;
	ListCell *lc;

	if (!enable_hashjoin || outer == NULL || inner == NULL || PATH_REQ_OUTER(outer) != NULL ||
		PATH_REQ_OUTER(inner) != NULL ||
		(jointype != JOIN_INNER && jointype != JOIN_LEFT && jointype != JOIN_RIGHT &&
		 jointype != JOIN_SEMI && jointype != JOIN_ANTI))
		return NIL;
	foreach(lc, restrictlist)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);

		if (!rinfo->can_join || !OidIsValid(rinfo->hashjoinoperator) ||
			(IS_OUTER_JOIN(jointype) && RINFO_IS_PUSHED_DOWN(rinfo, joinrel->relids)))
			continue;
		if (has_sides(rinfo, outerrel, innerrel) || has_sides(rinfo, innerrel, outerrel))
			result = lappend(result, rinfo);
	}
	return result;
}

Path *
hash_join_path(PlannerInfo *root, RelOptInfo *joinrel, Path *outer, Path *inner, JoinType jointype,
			   JoinPathExtraData *extra, List *clauses)
{
	JoinCostWorkspace workspace;

	initial_cost_hashjoin(root, &workspace, jointype, clauses, outer, inner, extra, false);
	return (Path *) create_hashjoin_path(root, joinrel, jointype, &workspace, extra, outer, inner,
										 false, extra->restrictlist, NULL, clauses);
}

void
hash_join_replace_loops(PlannerInfo *root, RelOptInfo *joinrel, RelOptInfo *outerrel,
						RelOptInfo *innerrel, JoinType jointype, JoinPathExtraData *extra,
						List *clauses)
{
	Path *outer = outerrel->cheapest_total_path;
	Path *inner = innerrel->cheapest_total_path;
	List *loops = NIL;
	ListCell *lc;

	foreach(lc, joinrel->pathlist)
	{
		NestPath *loop = lfirst(lc);

		if (IsA(loop, NestPath) && PATH_REQ_OUTER(&loop->jpath.path) == NULL &&
			loop->jpath.innerjoinpath->parent == innerrel &&
			PATH_REQ_OUTER(loop->jpath.innerjoinpath) == NULL)
			loops = lappend(loops, loop);
	}
	/* joins of local tables alone are core's business */
	if (loops == NIL || !(is_gathered(root, innerrel) || is_gathered(root, outerrel)))
		return;
	joinrel->pathlist = list_difference_ptr(joinrel->pathlist, loops);
	add_path(joinrel, hash_join_path(root, joinrel, outer, inner, jointype, extra, clauses));
	if (jointype == JOIN_INNER)
	{
		JoinPathExtraData turned = *extra;

		turned.inner_unique = false; /* that was said of the other side */
		add_path(joinrel, hash_join_path(root, joinrel, inner, outer, jointype, &turned, clauses));
	}
}
