/*
 * distinct_partners.c
 *		What a semi or anti join here looks for comes once from each worker.
 *
 *		SELECT ... FROM customer WHERE NOT EXISTS (SELECT FROM orders WHERE orders.customer = customer.id)
 *
 * asks which customers have orders, not how many.  The workers send each of them once, by GROUP BY of the columns that
 * the join compares, where equal means the same in all that can be asked of them.
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "utils/selfuncs.h"

#include "plan/distinct_partners.h"
#include "plan/gather_plan.h"
#include "plan/hash_join.h"
#include "plan/planner.h"
#include "plan/upper_stage.h"

DistPath *
distinct_partners_path(PlannerInfo *root, DistPath *dist, List *fetch)
{
	int workers = locus_worker_count(&dist->locus);
	DistPath *path;
	ListCell *lc;

	if (dist->target != NIL || dist->ordered || dist->locks != NIL || dist->lateral != NIL ||
		dist->outer_params != NULL || dist->locus.kind != LOCUS_HASHED || fetch == NIL)
		return NULL;
	path = dist_path_copy(dist);
	foreach(lc, gather_scan_tlist(fetch))
		path->target = lappend(path->target, lfirst(lc));
	path->group_clause = upper_stage_group_by_all(path->target);
	if (path->group_clause == NIL || !upper_stage_is_shippable(path, path->target) ||
		path->outer_params != NULL)
		return NULL;
	path->rows = upper_stage_partial_groups(
		dist->rows, estimate_num_groups(root, fetch, dist->rows, NULL, NULL), workers);
	path->cost += dist->rows / workers * cpu_operator_cost * list_length(path->target);
	return path;
}

void
distinct_partners_join(PlannerInfo *root, RelOptInfo *joinrel, RelOptInfo *outerrel,
					   RelOptInfo *innerrel, JoinType jointype, JoinPathExtraData *extra,
					   List *clauses)
{
	List *fetch = plan_scan_fetch(innerrel);
	ListCell *lc;

	if ((jointype != JOIN_SEMI && jointype != JOIN_ANTI) || root->rowMarks != NIL ||
		!plan_join_can_fetch(root, innerrel, fetch))
		return;
	foreach(lc, dist_paths(innerrel))
	{
		DistPath *dist = distinct_partners_path(root, lfirst(lc), fetch);
		Path *inner;

		if (dist == NULL)
			continue;
		inner = gather_path_create(root, innerrel, dist, innerrel->reltarget, NIL, NIL, NIL);
		inner->rows = dist->rows;
		add_path(joinrel, hash_join_path(root, joinrel, outerrel->cheapest_total_path, inner,
										 jointype, extra, clauses));
	}
}
