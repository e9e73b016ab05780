/*
 * aggregate_summary_plan.c
 *		For the planner: how much of its input an aggregation without keys reads, and how much of
 *		it metadata answer (see aggregate_summary.c).
 *
 * Row groups with deleted rows are read; how many these are is counted, as one deleted row
 * spoils a group.  Of conditions, those that zone maps decide for most row groups leave the ones
 * at the ends of a range to be read.
 */
#include "exec/aggregate/aggregate_path.h"

#include <math.h>

#include "access/table.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/snapmgr.h"

#include "exec/scan/custom_scan.h"
#include "store/rows/row_version.h"
#include "store/options/settings.h"
#include "store/table/table_am.h"
#include "exec/scan/tree_plan.h"

/* Row groups at the ends of a range of values. */
#define RANGE_ENDS 2

/* With so many deleted rows for each row group hardly one is left without. */
#define DELETED_ENOUGH 5

/* What looking at the metadata costs, in parts of reading. */
#define METADATA_SHARE 0.005

static bool
are_known(const List *aggregates)
{
	ListCell *cell;

	foreach(cell, aggregates)
	{
		AggregateSummary summary;

		if (!IsA(lfirst(cell), Aggref) || !aggregate_find_summary(lfirst(cell), &summary))
			return false;
	}
	return aggregates != NIL;
}

/* Do zone maps decide the conditions for most row groups? */
static bool
are_decided(const RelOptInfo *rel, Relation relation)
{
	ListCell *cell;

	foreach(cell, rel->baserestrictinfo)
	{
		Node *clause = (Node *) lfirst_node(RestrictInfo, cell)->clause;
		AttrNumber attribute = prune_clause_attribute(clause, rel->relid,
													  RelationGetDescr(relation));

		if (attribute <= 0 || !custom_scan_is_clustered(RelationGetRelid(relation), attribute))
			return false;
	}
	return true;
}

/* The part of the row groups that have deleted rows, if these are anywhere. */
static double
estimate_deleted(Relation relation, double groups)
{
	GroupCatalog *catalog;
	double deleted = 0;

	if (!ActiveSnapshotSet())
		return 0;
	catalog = group_catalog_open(relation, AccessShareLock);
	deleted = deleted_rows_probe(catalog, GetActiveSnapshot(),
								 (uint64) ceil(groups * DELETED_ENOUGH));
	group_catalog_close(catalog);
	return 1 - exp(-deleted / groups);
}

double
aggregate_summary_share(const AggregateQuery *query)
{
	RelOptInfo *rel = query->input;
	double groups = ceil(Max(rel->tuples, 1) / ROW_GROUP_ROWS_MAX);
	double share = 1;
	Relation relation;

	if (!columnar_enable_pruning || query->clauses != NIL || !IS_SIMPLE_REL(rel) ||
		rel->rtekind != RTE_RELATION || !are_known(query->partial->exprs))
		return 1;
	relation = table_open(planner_rt_fetch(rel->relid, query->root)->relid, NoLock);
	if (are_decided(rel, relation))
	{
		share = METADATA_SHARE;
		if (rel->baserestrictinfo != NIL)
			share += RANGE_ENDS * ROW_GROUP_ROWS_MAX / Max(rel->rows, 1);
		if (columnar_is_table(relation))
			share += estimate_deleted(relation, groups);
	}
	table_close(relation, NoLock);
	return Min(share, 1);
}
