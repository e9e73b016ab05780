/*
 * join_risk.c
 *		For the planner: which nested loops are too great a risk.
 *
 * A nested loop costs as much as its outer side has rows, a hash join hardly depends on it.
 * How many rows a join returns is a guess, mostly too low, and the more so the more
 * relations it joins, as columns are taken for independent of each other.  With an index of a
 * heap an inner row costs a microsecond or so, and a wrong guess is bearable.  A scan or an
 * index look-up of a columnar table costs some ten times that.  So a loop with a columnar inner
 * side has to be so much cheaper than the best ColumnarJoin that it still would be if each join
 * below it returned RISK times the rows expected.
 *
 * Estimates of tables are trusted: joins of two tables are left to core, and to join_late_plan.c.  And a join with a
 * relation that is unique for it (a foreign key and its primary key) returns no more rows than
 * there were, so look-ups of a few rows by their keys stay what they are.  So do loops that
 * return the first rows much earlier, if the query wants no more than these.
 */
#include "exec/join/join_path.h"

#include <math.h>

#include "access/table.h"
#include "catalog/pg_class.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/pathnode.h"
#include "parser/parsetree.h"

#include "exec/batch/batch_source.h"
#include "exec/scan/planned_relation.h"
#include "store/table/table_am.h"

/* Per join on the outer side, and for all of them together; or of one that returns nothing, it is said. */
#define RISK 10.0
#define RISK_MAX 1000.0

/*
 * Core takes the first condition of an anti join for all of them, so "there is no other row with this
 * key" is expected to be true of no row.  Where it expects less than a part of the rows, so many.
 */
#define ANTI_SHARE 0.1

/* A loop that has its first row so much earlier is left alone: a part of the other's cost. */
#define EARLY_SHARE 0.1

/* Rows that there are at most, if the estimates of tables are right. */
static double
find_rows_max(RelOptInfo *rel)
{
	PlannedRelation *planned;

	if (!IS_JOIN_REL(rel))
		return Max(rel->rows, 1);
	planned = planned_relation_find(rel);
	return planned && planned->rows_max > 0 ? planned->rows_max : HUGE_VAL;
}

/* Rows of a relation, if core's estimate of it says nothing. */
static double
find_rows_likely(RelOptInfo *rel)
{
	PlannedRelation *planned = planned_relation_find(rel);

	return planned ? planned->rows_likely : 0;
}

/* What is likely of a side is likely of the join, in the ratio that core expects. */
static double
estimate_rows_likely(RelOptInfo *joined, RelOptInfo *outer, RelOptInfo *inner, JoinType type)
{
	double likely = Max(find_rows_likely(outer) / Max(outer->rows, 1),
						find_rows_likely(inner) / Max(inner->rows, 1)) *
					joined->rows;

	if (type == JOIN_ANTI && joined->rows < ANTI_SHARE * outer->rows)
		likely = Max(likely, ANTI_SHARE * Max(outer->rows, find_rows_likely(outer)));
	return likely;
}

/* Is the column of a partition, by its number there, compared for equality with another relation? */
static bool
is_compared(const RelOptInfo *parent, const AppendRelInfo *translation, int attribute,
			List *clauses)
{
	ListCell *cell;

	foreach(cell, clauses)
	{
		const RestrictInfo *clause = lfirst_node(RestrictInfo, cell);
		const Var *column;

		if (!clause->can_join || clause->mergeopfamilies == NIL)
			continue;
		column = (const Var *) (bms_is_member((int) parent->relid, clause->left_relids)
									? get_leftop(clause->clause)
									: get_rightop(clause->clause));
		if (!IsA(column, Var) || column->varno != parent->relid || column->varattno <= 0)
			continue;
		column = list_nth(translation->translated_vars, column->varattno - 1);
		if (column != NULL && IsA(column, Var) && column->varattno == attribute)
			return true;
	}
	return false;
}

/* Does a unique index of partitions say that a row has one partner at most?  Core looks at partitioned tables' since 16. */
static bool
partitions_are_unique(PlannerInfo *root, const RelOptInfo *parent, List *clauses)
{
	int first = parent->reloptkind == RELOPT_BASEREL && parent->nparts > 0
					? bms_next_member(parent->live_parts, -1)
					: -1;
	const RelOptInfo *partition = first >= 0 ? parent->part_rels[first] : NULL;
	ListCell *cell;

	foreach(cell, partition != NULL ? partition->indexlist : NIL)
	{
		const IndexOptInfo *index = lfirst_node(IndexOptInfo, cell);
		bool compared = index->unique && index->immediate && index->indpred == NIL;

		for (int i = 0; compared && i < index->nkeycolumns; i++)
			compared = index->indexkeys[i] > 0 &&
					   is_compared(parent, root->append_rel_array[partition->relid],
								   index->indexkeys[i], clauses);
		if (compared)
			return true;
	}
	return false;
}

void
join_risk_bound(PlannerInfo *root, RelOptInfo *joined, RelOptInfo *outer, RelOptInfo *inner,
				JoinType type, const JoinPathExtraData *extra)
{
	PlannedRelation *planned = planned_relation_get(joined);
	double rows = find_rows_max(outer);

	if (!extra->inner_unique && !partitions_are_unique(root, inner, extra->restrictlist) &&
		type != JOIN_SEMI && type != JOIN_ANTI)
		rows *= find_rows_max(inner);
	if (type == JOIN_FULL || type == JOIN_RIGHT)
		rows += find_rows_max(inner);
	planned->rows_max = planned->rows_max > 0 ? Min(planned->rows_max, rows) : rows;
	planned->rows_likely = Max(planned->rows_likely,
							   estimate_rows_likely(joined, outer, inner, type));
}

/* Times the rows that are expected, which there may be. */
static double
find_risk(RelOptInfo *outer)
{
	int members = bms_num_members(outer->relids);
	double rows = Max(outer->rows, 1);
	double risk = rows > 1 ? pow(RISK, members - 1) : RISK_MAX;

	risk = Min(risk, RISK_MAX);
	risk = Max(risk, find_rows_likely(outer) / rows);
	risk = Min(risk, find_rows_max(outer) / rows);
	return members > 1 ? Max(risk, 1) : 1;
}

bool
join_risk_is_columnar(PlannerInfo *root, const RelOptInfo *rel)
{
	RangeTblEntry *rte;
	Relation relation;
	bool result;

	if (!IS_SIMPLE_REL(rel) || rel->rtekind != RTE_RELATION)
		return false;
	rte = planner_rt_fetch(rel->relid, root);
	if (rte->relkind != RELKIND_RELATION && rte->relkind != RELKIND_MATVIEW)
		return false;
	relation = table_open(rte->relid, NoLock);
	result = columnar_is_table(relation);
	table_close(relation, NoLock);
	return result;
}

/* Are the path's rows read of columnar tables?  Of partitions one is as good as all. */
static bool
reads_columnar(PlannerInfo *root, const Path *path)
{
	List *partitions = NIL;

	if (IsA(path, MaterialPath))
		path = ((const MaterialPath *) path)->subpath;
	else if (IsA(path, MemoizePath))
		path = ((const MemoizePath *) path)->subpath;
	if (IsA(path, AppendPath))
		partitions = ((const AppendPath *) path)->subpaths;
	else if (IsA(path, MergeAppendPath))
		partitions = ((const MergeAppendPath *) path)->subpaths;
	if (partitions != NIL)
		return reads_columnar(root, linitial(partitions));
	return batch_source_path_role(path) == BATCH_ROLE_SOURCE ||
		   join_risk_is_columnar(root, path->parent);
}

bool
join_risk_is_loop(PlannerInfo *root, const Path *path)
{
	return IsA(path, NestPath) && path->param_info == NULL &&
		   reads_columnar(root, ((const JoinPath *) path)->innerjoinpath);
}

/* What the loop would cost if its outer side had as many rows as it may have. */
static Cost
find_cost_at_risk(const Path *path)
{
	const Path *outer = ((const JoinPath *) path)->outerjoinpath;

	return path->total_cost +
		   (find_risk(outer->parent) - 1) * (path->total_cost - outer->total_cost);
}

bool
join_risk_remove_loops(PlannerInfo *root, RelOptInfo *joined, bool partial, const Path *join)
{
	List *paths = partial ? joined->partial_pathlist : joined->pathlist;
	int before = list_length(paths);
	ListCell *cell;

	foreach(cell, paths)
	{
		const Path *path = lfirst(cell);

		if (joined->consider_startup && path->startup_cost < EARLY_SHARE * join->startup_cost)
			continue;
		if (compat_disabled_nodes(join) > compat_disabled_nodes(path))
			continue;
		if (join_risk_is_loop(root, path) && find_cost_at_risk(path) > join->total_cost)
			paths = foreach_delete_current(paths, cell);
	}
	if (partial)
		joined->partial_pathlist = paths;
	else
		joined->pathlist = paths;
	return list_length(paths) < before;
}
