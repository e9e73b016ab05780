/*
 * index_cost.c
 *		What index and bitmap scans of a columnar table cost.
 *
 * Core charges the pages that rows are fetched from and a little per row.  In a
 * columnar table a row fetched alone costs a whole block of each column, decoded,
 * and the chunks it lies in have to be opened; rows fetched in the order of the
 * table share both.  So an index scan in another order, which core takes to be cheap as
 * the table has few pages, is the dearest way to read many rows.  An index fetch
 * decodes all columns: the executor does not say which it needs.
 *
 * Core may have dropped a bitmap scan because the index scan looked
 * cheaper, so each index path has its bitmap scan compared again.
 */
#include "exec/scan/custom_scan.h"

#include <math.h>

#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"

#include "store/rows/row_fetch.h"

typedef struct FetchFacts
{
	Oid relation;
	double tuples;
	double groups;
	int ncolumns;
} FetchFacts;

/* Of `places`, how many different ones a number of rows at random lie in. */
static double
count_places(double rows, double places)
{
	return places * (1 - exp(-rows / places));
}

/* Blocks decoded and groups opened for rows fetched at random, in random order. */
static double
count_values_random(const FetchFacts *facts, double rows)
{
	double opened = count_places(rows, facts->groups);

	if (facts->groups > FETCH_GROUPS)
		opened = Max(opened, rows * (1 - FETCH_GROUPS / facts->groups));
	return rows * BLOCK_ROWS + opened * CHUNK_OPEN_VALUES;
}

/* The same for rows at random, in the order of the table. */
static double
count_values_ordered(const FetchFacts *facts, double rows)
{
	double blocks = Max(ceil(facts->tuples / BLOCK_ROWS), 1);

	return count_places(rows, blocks) * BLOCK_ROWS +
		   count_places(rows, facts->groups) * CHUNK_OPEN_VALUES;
}

/* The same for rows that are neighbours. */
static double
count_values_clustered(const FetchFacts *facts, double rows)
{
	return ceil(rows / BLOCK_ROWS) * BLOCK_ROWS +
		   ceil(rows / facts->tuples * facts->groups) * CHUNK_OPEN_VALUES;
}

/* Between the best and the worst case as cost_index() goes, by the first column's correlation. */
static double
count_index_values(const FetchFacts *facts, const IndexPath *path)
{
	double rows = Max(path->indexselectivity * facts->tuples, 1);
	AttrNumber attribute = path->indexinfo->indexkeys[0];
	double correlation = 0;
	double best;
	double worst;

	if (path->path.pathtype == T_IndexOnlyScan)
		rows *= 1 - path->indexinfo->rel->allvisfrac;
	if (attribute > 0)
		correlation = custom_scan_correlation(facts->relation, attribute);
	worst = count_values_random(facts, rows);
	best = Min(count_values_clustered(facts, rows), worst);
	return worst + correlation * correlation * (best - worst);
}

static double
count_bitmap_values(const FetchFacts *facts, const BitmapHeapPath *path)
{
	Cost cost;
	Selectivity selectivity;

	cost_bitmap_tree_node(path->bitmapqual, &cost, &selectivity);
	return count_values_ordered(facts, Max(selectivity * facts->tuples, 1));
}

static void
charge(const FetchFacts *facts, Path *path)
{
	double values;

	if (IsA(path, IndexPath))
		values = count_index_values(facts, (IndexPath *) path);
	else if (IsA(path, BitmapHeapPath))
		values = count_bitmap_values(facts, (BitmapHeapPath *) path);
	else
		return;
	path->total_cost += values * facts->ncolumns * DECODE_COST * cpu_operator_cost /
						Max(path->parallel_workers, 1);
}

/* The bitmap scan that answers the same clauses as an index path; NULL if there is none. */
static Path *
make_bitmap_path(PlannerInfo *root, RelOptInfo *rel, Path *path)
{
	IndexPath *index = (IndexPath *) path;

	if (!IsA(path, IndexPath) || index->indexclauses == NIL || index->indexorderbys != NIL ||
		!index->indexinfo->amhasgetbitmap)
		return NULL;
	return (Path *) create_bitmap_heap_path(root, rel, path, PATH_REQ_OUTER(path), 1.0, 0);
}

void
index_cost_charge(PlannerInfo *root, RelOptInfo *rel, const ScanFacts *scan)
{
	TupleDesc descriptor = RelationGetDescr(scan->relation);
	FetchFacts facts = {.relation = RelationGetRelid(scan->relation),
						.tuples = Max(rel->tuples, 1),
						.groups = scan->groups};
	List *paths = rel->pathlist;
	List *partial_paths = rel->partial_pathlist;
	List *bitmaps = NIL;
	ListCell *cell;

	if (rel->indexlist == NIL)
		return;
	for (int i = 0; i < descriptor->natts; i++)
		facts.ncolumns += !TupleDescAttr(descriptor, i)->attisdropped;

	foreach(cell, paths)
	{
		Path *bitmap = make_bitmap_path(root, rel, lfirst(cell));

		charge(&facts, lfirst(cell));
		if (bitmap != NULL)
		{
			charge(&facts, bitmap);
			bitmaps = lappend(bitmaps, bitmap);
		}
	}
	foreach(cell, partial_paths)
		charge(&facts, lfirst(cell));

	/* the lists are ordered by cost */
	rel->pathlist = NIL;
	rel->partial_pathlist = NIL;
	foreach(cell, paths)
		add_path(rel, lfirst(cell));
	foreach(cell, bitmaps)
		add_path(rel, lfirst(cell));
	foreach(cell, partial_paths)
		add_partial_path(rel, lfirst(cell));
}
