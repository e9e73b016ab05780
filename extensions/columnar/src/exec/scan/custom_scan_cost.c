/*
 * custom_scan_cost.c
 *		What a ColumnarScan costs: pages of the columns that are read, values that are
 *		decoded, rows that come out.
 *
 * A column's part of the table is measured, not guessed from its width: a column
 * that compresses well is cheap to read.  The footers of a few row groups say it;
 * finding these takes an index look-up each, and the result is kept for the
 * session until the table's file or size has changed.
 *
 * Zone maps: a qual on a column whose values follow the order of the rows
 * (pg_statistic's correlation) excludes what its selectivity says; on others
 * nothing is expected of it.
 */
#include "exec/scan/custom_scan.h"

#include <math.h>

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "access/tupconvert.h"
#include "catalog/pg_statistic.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/restrictinfo.h"
#include "parser/parsetree.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/spccache.h"

#include "exec/scan/planned_relation.h"
#include "store/options/settings.h"
#include "store/pages/space.h"
#include "store/table/table_am.h"
#include "exec/scan/tree_plan.h"

/* Opening a row group, in units of cpu_tuple_cost: its footer is parsed, its zone maps are looked at. */
#define GROUP_COST 10.0

/* The same for a leaf of a partition tree: it is locked, its row groups are listed. */
#define LEAF_COST 200.0

/* Row groups whose records, with the bytes of inline ones, fill a page of the catalog. */
#define CATALOG_PAGE_GROUPS 8

/* Row groups whose footers are looked at to learn the columns' shares. */
#define SAMPLED_GROUPS 4

/* Smaller tables are not sampled: nothing depends on it. */
#define SAMPLED_PAGES 16

/* A column with this much correlation (-1 .. 1) counts as ordered. */
#define CLUSTERED_CORRELATION 0.95

/* ---- columns ------------------------------------------------------------------------------------ */

Bitmapset *
custom_scan_add_columns(Bitmapset *columns, Node *expression, Index varno, TupleDesc descriptor)
{
	Bitmapset *offsets = NULL;
	int offset = -1;

	pull_varattnos(expression, varno, &offsets);
	while ((offset = bms_next_member(offsets, offset)) >= 0)
	{
		AttrNumber attribute = offset + FirstLowInvalidHeapAttributeNumber;

		if (attribute > 0)
			columns = bms_add_member(columns, attribute);
		else if (attribute == InvalidAttrNumber)
		{
			for (int i = 0; i < descriptor->natts; i++)
				if (!TupleDescAttr(descriptor, i)->attisdropped)
					columns = bms_add_member(columns, i + 1);
		}
	}
	bms_free(offsets);
	return columns;
}

/* What is known of a table's columns, by its oid. */
typedef struct KnownShares
{
	Oid relation; /* key */
	Oid file;
	BlockNumber pages;
	int natts;
	double group_rows; /* rows of a row group, on average */
	double *shares;	   /* in TopMemoryContext */
} KnownShares;

static HTAB *known_shares = NULL;

/* Bytes of each column and rows of a few row groups; false if there is none. */
static bool
sample_groups(Relation relation, double *bytes, double *total, double *group_rows)
{
	int natts = RelationGetDescr(relation)->natts;
	GroupCatalog *catalog;
	SpaceState space;
	uint64 last_group = 0;
	double rows = 0;
	int ngroups = 0;

	*total = 0;
	if (!ActiveSnapshotSet())
		return false;
	space_read(relation, &space);
	catalog = group_catalog_open(relation, AccessShareLock);
	for (int i = 0; i < SAMPLED_GROUPS; i++)
	{
		uint64 row = space.next_row / (2 * SAMPLED_GROUPS) * (2 * i + 1);
		GroupEntry entry;
		RowGroupReader *reader;

		if (!group_catalog_find(catalog, row, GetActiveSnapshot(), &entry) ||
			entry.record.state == GROUP_OPEN || entry.record.nrows == 0 ||
			(ngroups > 0 && entry.record.group_id == last_group))
			continue;
		reader = row_group_reader_open(catalog, &entry.record, NULL);
		for (int attribute = 1; attribute <= natts; attribute++)
		{
			const ChunkSummary *summary = row_group_reader_summary(reader, attribute);

			if (summary != NULL)
				bytes[attribute - 1] += summary->length;
		}
		row_group_reader_close(reader);
		*total += entry.record.length;
		rows += entry.record.nrows;
		last_group = entry.record.group_id;
		ngroups++;
	}
	group_catalog_close(catalog);
	if (ngroups == 0)
		return false;
	*group_rows = rows / ngroups;
	return *total > 0;
}

/* The same from the average widths of the columns. */
static void
guess_bytes(Relation relation, double *bytes, double *total)
{
	TupleDesc descriptor = RelationGetDescr(relation);

	*total = 1;
	for (int i = 0; i < descriptor->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(descriptor, i);
		int32 width;

		if (attribute->attisdropped)
			continue;
		width = get_attavgwidth(RelationGetRelid(relation), i + 1);
		if (width <= 0)
			width = get_typavgwidth(attribute->atttypid, attribute->atttypmod);
		bytes[i] = width;
		*total += width;
	}
}

/* What is known of the table, if it has not changed much. */
static KnownShares *
find_known(Relation relation, BlockNumber pages)
{
	Oid relid = RelationGetRelid(relation);
	KnownShares *known;

	if (known_shares == NULL)
	{
		HASHCTL control = {.keysize = sizeof(Oid), .entrysize = sizeof(KnownShares)};

		known_shares = hash_create("columnar column shares", 64, &control, HASH_ELEM | HASH_BLOBS);
	}
	known = hash_search(known_shares, &relid, HASH_FIND, NULL);
	if (known != NULL && known->file == relation->rd_rel->relfilenode &&
		known->natts == RelationGetDescr(relation)->natts && pages / 2 <= known->pages &&
		known->pages / 2 <= pages)
		return known;
	return NULL;
}

static void
keep_known(Relation relation, BlockNumber pages, const ScanFacts *facts, double group_rows)
{
	Size size = sizeof(double) * Max(RelationGetDescr(relation)->natts, 1);
	double *shares = MemoryContextAlloc(TopMemoryContext, size);
	Oid relid = RelationGetRelid(relation);
	KnownShares *known;
	bool found;

	known = hash_search(known_shares, &relid, HASH_ENTER, &found);
	if (found)
		pfree(known->shares);
	known->file = relation->rd_rel->relfilenode;
	known->pages = pages;
	known->natts = RelationGetDescr(relation)->natts;
	known->group_rows = group_rows;
	known->shares = shares;
	memcpy(shares, facts->shares, size);
}

/*
 * Row groups of small batches are not among those sampled, but fill the catalog: pages of
 * row vectors are taken for them, but not more groups than were ever made.
 * `leaves`: of a partition tree; 0: it is a table.
 */
static double
estimate_groups(Relation relation, double rows, double group_rows, int leaves)
{
	double groups = Max(ceil(rows / group_rows), 1);
	SpaceState space;
	Relation catalog;

	if (leaves > 0)
		return Max(groups, leaves);
	if (!OidIsValid(relation->rd_rel->reltoastrelid))
		return groups;
	space_read(relation, &space);
	catalog = table_open(relation->rd_rel->reltoastrelid, AccessShareLock);
	groups = Max(groups, Min((double) space.next_group,
							 (double) RelationGetNumberOfBlocks(catalog) * CATALOG_PAGE_GROUPS));
	table_close(catalog, AccessShareLock);
	return groups;
}

/* The same for a partition tree, of one of its leaves. */
static bool
sample_leaf(Relation relation, Oid leaf, double *bytes, double *total, double *group_rows)
{
	Relation sampled = OidIsValid(leaf) ? try_table_open(leaf, AccessShareLock) : NULL;
	TupleConversionMap *map;
	double *of_leaf;
	bool result;

	if (sampled == NULL)
		return false;
	map = convert_tuples_by_name(RelationGetDescr(sampled), RelationGetDescr(relation));
	of_leaf = palloc0(sizeof(double) * Max(RelationGetDescr(sampled)->natts, 1));
	result = columnar_is_table(sampled) && sample_groups(sampled, of_leaf, total, group_rows);
	for (int i = 0; result && i < RelationGetDescr(relation)->natts; i++)
	{
		AttrNumber attribute = map ? map->attrMap->attnums[i] : i + 1;

		bytes[i] = attribute > 0 ? of_leaf[attribute - 1] : 0;
	}
	pfree(of_leaf);
	table_close(sampled, AccessShareLock);
	return result;
}

void
custom_scan_collect_facts(ScanFacts *facts, RelOptInfo *rel, Relation relation)
{
	int natts = RelationGetDescr(relation)->natts;
	Size size = sizeof(double) * Max(natts, 1);
	PlannedRelation *planned = planned_relation_get(rel);
	KnownShares *known;
	double group_rows = ROW_GROUP_ROWS_MAX;
	PlannedTree *tree = tree_plan_find(rel);

	facts->relation = relation;
	facts->columns = NULL;
	facts->batches = false;
	facts->share = tree ? tree->share : 1;
	facts->leaves = tree ? list_length(tree->leaves) : 0;
	if (planned->shares != NULL)
	{
		/* the same relation is asked for by core's paths and by nodes that read batches */
		facts->shares = planned->shares;
		facts->groups = planned->groups;
		return;
	}
	known = find_known(relation, rel->pages);
	facts->shares = MemoryContextAllocZero(GetMemoryChunkContext(rel), size);
	if (known != NULL)
	{
		memcpy(facts->shares, known->shares, size);
		group_rows = known->group_rows;
	}
	else
	{
		double total;
		bool sampled = rel->pages >= SAMPLED_PAGES &&
					   (tree ? sample_leaf(relation, tree->largest, facts->shares, &total,
										   &group_rows)
							 : sample_groups(relation, facts->shares, &total, &group_rows));

		if (!sampled)
			guess_bytes(relation, facts->shares, &total);
		for (int i = 0; i < natts; i++)
			facts->shares[i] /= total;
		if (sampled)
			keep_known(relation, rel->pages, facts, group_rows);
	}
	facts->groups = estimate_groups(relation, rel->tuples, group_rows, facts->leaves);
	planned->shares = facts->shares;
	planned->groups = facts->groups;
}

/* ---- what zone maps exclude --------------------------------------------------------------------- */

double
custom_scan_correlation(Oid relation, AttrNumber attribute)
{
	HeapTuple tuple = SearchSysCache3(
		STATRELATTINH, ObjectIdGetDatum(relation), Int16GetDatum(attribute),
		BoolGetDatum(get_rel_relkind(relation) == RELKIND_PARTITIONED_TABLE));
	AttStatsSlot slot;
	double result = 0;

	if (!HeapTupleIsValid(tuple))
		return 0;
	if (get_attstatsslot(&slot, tuple, STATISTIC_KIND_CORRELATION, InvalidOid,
						 ATTSTATSSLOT_NUMBERS))
	{
		if (slot.nnumbers > 0)
			result = slot.numbers[0];
		free_attstatsslot(&slot);
	}
	ReleaseSysCache(tuple);
	return result;
}

bool
custom_scan_is_clustered(Oid relation, AttrNumber attribute)
{
	return fabs(custom_scan_correlation(relation, attribute)) >= CLUSTERED_CORRELATION;
}

/* The fraction of the rows whose blocks are read. */
static double
estimate_kept(PlannerInfo *root, RelOptInfo *rel, const ScanFacts *facts, List *clauses)
{
	TupleDesc descriptor = RelationGetDescr(facts->relation);
	List **by_column;
	Bitmapset *columns = NULL;
	double kept = 1;
	int column = -1;
	ListCell *cell;

	if (!columnar_enable_pruning || clauses == NIL)
		return 1;
	by_column = palloc0(sizeof(List *) * (descriptor->natts + 1));
	foreach(cell, clauses)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, cell);
		AttrNumber attribute;

		if (rinfo->pseudoconstant || !restriction_is_securely_promotable(rinfo, rel))
			continue;
		attribute = prune_clause_attribute((Node *) rinfo->clause, rel->relid, descriptor);
		if (attribute <= 0)
			continue;
		columns = bms_add_member(columns, attribute);
		by_column[attribute] = lappend(by_column[attribute], rinfo);
	}
	while ((column = bms_next_member(columns, column)) >= 0)
	{
		/* outer relations' values are constants to the scan */
		if (custom_scan_is_clustered(RelationGetRelid(facts->relation), column))
			kept = Min(kept, clauselist_selectivity(root, by_column[column], rel->relid, JOIN_INNER,
													NULL) /
								 facts->share);
	}
	pfree(by_column);

	/* whole blocks are read */
	kept += BLOCK_ROWS / Max(rel->tuples, 1);
	return Min(kept, 1);
}

/* A condition evaluated by a kernel, in parts of what the executor needs for a row. */
#define VECTOR_QUAL_COST 0.1

/* ---- costs -------------------------------------------------------------------------------------- */

double
custom_scan_parallel_divisor(int workers)
{
	double divisor = workers;

	if (workers > 0 && parallel_leader_participation)
		divisor += Max(1.0 - 0.3 * workers, 0);
	return Max(divisor, 1);
}

/* What conditions cost: most run in kernels. */
static QualCost
add_up_quals(PlannerInfo *root, List *clauses)
{
	QualCost sum = {0};
	ListCell *cell;

	foreach(cell, clauses)
	{
		Node *clause = (Node *) lfirst_node(RestrictInfo, cell)->clause;
		bool by_kernel = columnar_enable_vector && !contain_subplans(clause) &&
						 !contain_volatile_functions(clause);
		QualCost qual;

		cost_qual_eval_node(&qual, lfirst(cell), root);
		sum.startup += qual.startup;
		sum.per_tuple += qual.per_tuple * (by_kernel ? VECTOR_QUAL_COST : 1);
	}
	return sum;
}

static double
add_up_shares(const ScanFacts *facts, const Bitmapset *columns)
{
	double sum = 0;
	int column = -1;

	while ((column = bms_next_member(columns, column)) >= 0)
		sum += facts->shares[column - 1];
	return Min(sum, 1);
}

bool
custom_scan_set_cost(PlannerInfo *root, RelOptInfo *rel, const ScanFacts *facts, Path *path)
{
	TupleDesc descriptor = RelationGetDescr(facts->relation);
	List *clauses = rel->baserestrictinfo;
	QualCost qual;
	Bitmapset *filter = NULL;
	Bitmapset *late;
	double page_cost;
	double pages;
	double scanned;
	double groups;
	double decoded;
	double survivors; /* fraction of the blocks with a row that passes the filter */
	double cpu;
	ListCell *cell;

	path->rows = rel->rows;
	if (path->param_info != NULL)
	{
		clauses = list_concat_copy(clauses, path->param_info->ppi_clauses);
		path->rows = path->param_info->ppi_rows;
	}
	qual = add_up_quals(root, clauses);
	foreach(cell, clauses)
		filter = custom_scan_add_columns(filter, (Node *) lfirst_node(RestrictInfo, cell)->clause,
										 rel->relid, descriptor);
	late = bms_difference(facts->columns, filter);

	scanned = rel->tuples * estimate_kept(root, rel, facts, clauses);
	survivors = clauses == NIL ? 1 : 1 - pow(1 - Min(path->rows / Max(scanned, 1), 1), BLOCK_ROWS);

	pages = rel->pages * Min(scanned / Max(rel->tuples, 1), 1) *
			(add_up_shares(facts, filter) + add_up_shares(facts, late) * survivors);
	groups = ceil(facts->groups * Min(scanned / Max(rel->tuples, 1), 1));
	decoded = (scanned + groups * CHUNK_OPEN_VALUES) *
			  (bms_num_members(filter) + bms_num_members(late) * survivors);
	cpu = decoded * (facts->batches ? BATCH_DECODE_COST : DECODE_COST) * cpu_operator_cost;
	cpu += scanned * qual.per_tuple;
	if (!facts->batches)
		cpu += path->rows * (cpu_tuple_cost + path->pathtarget->cost.per_tuple);
	cpu += facts->groups * GROUP_COST * cpu_tuple_cost;
	cpu += facts->leaves * LEAF_COST * cpu_tuple_cost;

	if (path->parallel_workers > 0)
	{
		double divisor = custom_scan_parallel_divisor(path->parallel_workers);

		cpu /= divisor;
		path->rows = clamp_row_est(path->rows / divisor);
	}

	get_tablespace_page_costs(rel->reltablespace, NULL, &page_cost);
	path->startup_cost = qual.startup + path->pathtarget->cost.startup;
	compat_set_disabled_nodes(path, 0);
	if (!enable_seqscan)
		compat_disable(path);
	path->total_cost = path->startup_cost + cpu + pages * page_cost;
	return survivors > 0.5;
}
