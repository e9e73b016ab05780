/*
 * reference_path.c
 *		Queries of reference tables alone: by a worker's columnar copies.
 *
 * The coordinator's copy of a reference table is a heap, which its foreign keys, row locks and look-ups want; a scan of
 * many rows is several times slower there than by batches over the columnar copy that each worker has.  So such a
 * query may go whole to one worker, if core thinks that this is cheaper than to run it here.
 *
 * It must not depend on a worker: the path has core's best one for its child, which runs if no worker can be asked
 * (execute/reference_read.c).  Hence it is added only where core's paths are known, in the stages above joins.
 */
#include "postgres.h"

#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "parser/parsetree.h"

#include "cluster/metadata.h"
#include "decorrelate.h"
#include "plan/gather_plan.h"
#include "plan/planner.h"
#include "plan/reference_path.h"
#include "server/settings.h"

/*
 * What the round trip and a second planning cost, in units of cpu_tuple_cost as all costs of Gathers: what a heap scan of some
 * ten thousand rows does.
 */
#define REFERENCE_STARTUP_COST 500.0

/* Is a table of this level columnar on the workers? */
static bool
reads_columnar(DistPath *path, void *context)
{
	int rti = -1;

	while ((rti = bms_next_member(path->relids, rti)) >= 0)
	{
		const RangeTblEntry *rte = planner_rt_fetch(rti, path->root);
		const DistributedTable *table = rte->rtekind == RTE_RELATION ? metadata_table(rte->relid)
																	 : NULL;

		if (table != NULL && table->is_columnar)
			return true;
	}
	return false;
}

/* Core's cheapest path in that order. */
static Path *
find_local_path(RelOptInfo *rel, List *pathkeys)
{
	ListCell *lc;

	foreach(lc, rel->pathlist) /* by total cost */
	{
		Path *path = lfirst(lc);

		if (!gather_path_is(path) && path->param_info == NULL &&
			pathkeys_contained_in(pathkeys, path->pathkeys))
			return path;
	}
	return NULL;
}

void
reference_path_add(PlannerInfo *root, RelOptInfo *rel, DistPath *path, PathTarget *target,
				   List *pathkeys)
{
	bool always = strata_enable_reference_pushdown == DECORRELATE_ALWAYS;
	Path *local;

	if (strata_enable_reference_pushdown == DECORRELATE_OFF ||
		root->parse->commandType != CMD_SELECT || root->parse->setOperations != NULL ||
		path->outer_params != NULL || path->locks != NIL || metadata_all_workers() == NULL ||
		(!always && !dist_path_find(path, reads_columnar, NULL)))
		return;
	local = find_local_path(rel, pathkeys);
	if (local == NULL)
		return;
	add_path(rel, gather_path_create_reference(root, rel, path, target, pathkeys, local,
											   always ? 0 : REFERENCE_STARTUP_COST));
}
