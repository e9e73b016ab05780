/*
 * hash_join.c
 *		Joins here of rows that come from the workers, by hash.
 *
 * A loop that looks through all gathered rows for each outer row costs as much as a hash table where there is one outer
 * row, as core expects of many joins, and may take minutes where there are thousands after all.  Where the join has a clause
 * for a hash table, there is no such loop.
 */
#include "postgres.h"

#include "optimizer/cost.h"
#include "optimizer/pathnode.h"
#include "optimizer/restrictinfo.h"

#include "plan/gather_plan.h"
#include "plan/hash_join.h"

static bool
has_sides(const RestrictInfo *rinfo, const RelOptInfo *left, const RelOptInfo *right)
{
	return bms_is_subset(rinfo->left_relids, left->relids) &&
		   bms_is_subset(rinfo->right_relids, right->relids);
}

/* Does the path bring all rows of the workers, whatever the outer row is? */
static bool
brings_gathered_rows(Path *path)
{
	while (IsA(path, MaterialPath) || IsA(path, ProjectionPath))
		path = IsA(path, MaterialPath) ? ((MaterialPath *) path)->subpath
									   : ((ProjectionPath *) path)->subpath;
	return gather_path_is(path) && PATH_REQ_OUTER(path) == NULL;
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
	/* joins of local tables alone are core's business */
	if (dist_paths(outerrel) == NIL && dist_paths(innerrel) == NIL && !brings_gathered_rows(inner))
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
	bool found = false;
	ListCell *lc;

	foreach(lc, joinrel->pathlist)
	{
		NestPath *loop = lfirst(lc);

		if (!IsA(loop, NestPath) || PATH_REQ_OUTER(&loop->jpath.path) != NULL ||
			loop->jpath.innerjoinpath->parent != innerrel ||
			!brings_gathered_rows(loop->jpath.innerjoinpath))
			continue;
		joinrel->pathlist = foreach_delete_current(joinrel->pathlist, lc);
		found = true;
	}
	if (found)
		add_path(joinrel, hash_join_path(root, joinrel, outerrel->cheapest_total_path,
										 innerrel->cheapest_total_path, jointype, extra, clauses));
}
