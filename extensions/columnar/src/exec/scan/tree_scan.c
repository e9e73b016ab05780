/*
 * tree_scan.c
 *		Leaf after leaf of a partition tree, for ColumnarScan.
 *
 * The node's relation is the table at the top, and everything of the node is in terms of its
 * columns; a leaf with other attribute numbers is translated by its reader.
 *
 * Locks: partitioned tables below the top are locked when the leaves are listed, and a leaf
 * when it is opened, until the end of the transaction.  Under a lock on its parent a leaf
 * is not dropped or detached, but it may have become a heap, or have been rewritten, meanwhile.
 * DETACH CONCURRENTLY waits for the lock on the table at the top.
 *
 * Memory: lists live in the scan's context, or in one of their own that is reset with each
 * list; what belongs to a leaf in the row scan's.
 */
#include "exec/scan/tree_scan.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/parallel.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tupconvert.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "partitioning/partdesc.h"
#include "pgstat.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"

#include "exec/scan/partition_tree.h"
#include "store/pages/space.h"
#include "store/table/table_am.h"
#include "exec/scan/tree_guard.h"
#include "store/rows/write_buffer.h"

/* Of a leaf, in dynamic shared memory. */
typedef struct TreeLeafShared
{
	Oid relation;
	pg_atomic_uint32 finished; /* a process has come to its end: no row groups are left to take */
	RowScanShared scan;
} TreeLeafShared;

typedef struct TreeShared
{
	pg_atomic_uint32 next_leaf;
	uint32 nleaves;
	TreeLeafShared leaves[FLEXIBLE_ARRAY_MEMBER];
} TreeShared;

struct TreeScan
{
	MemoryContext context; /* of the list of leaves */
	PartitionDirectory directory;
	int nplanned;
	Oid *planned; /* ascending */
	bool depends; /* on PARAM_EXEC: what is left is known when rows are asked for */
	bool is_listed;
	int nleaves;
	Oid *leaves;
	int next;				/* without others: the leaf to take */
	int joined;				/* with others: from here down all leaves were looked at again */
	int current;			/* the leaf that is open */
	AttrNumber *attributes; /* of that leaf, by attribute - 1 of the top; NULL: the same */
	TreeShared *shared;
	ScanCounters counters;
};

/* ---- which leaves ------------------------------------------------------------------------------- */

static int
compare_oids(const void *left, const void *right)
{
	Oid a = *(const Oid *) left;
	Oid b = *(const Oid *) right;

	return a < b ? -1 : a > b;
}

static void
read_plan(TreeScan *tree, const CustomScan *plan)
{
	tree->nplanned = list_nth_int(plan->custom_private, SCAN_LEAVES);
	tree->planned = palloc(sizeof(Oid) * Max(tree->nplanned, 1));
	for (int i = 0; i < tree->nplanned; i++)
		tree->planned[i] = (Oid) list_nth_int(plan->custom_private, SCAN_FIRST_LEAF + i);
	qsort(tree->planned, tree->nplanned, sizeof(Oid), compare_oids);
}

/* Lists the leaves that are left.  A partition that was attached since the planning is not among them. */
static void
list_leaves(ColumnarScanState *state, bool with_params)
{
	TreeScan *tree = state->tree;
	CustomScan *plan = (CustomScan *) state->source.custom.ss.ps.plan;
	MemoryContext caller;
	List *leaves;
	ListCell *cell;

	MemoryContextReset(tree->context);
	caller = MemoryContextSwitchTo(tree->context);
	leaves = partition_tree_prune(state->source.custom.ss.ss_currentRelation, tree->directory,
								  plan->scan.scanrelid, plan->custom_exprs,
								  &state->source.custom.ss.ps, with_params);
	tree->leaves = palloc(sizeof(Oid) * Max(list_length(leaves), 1));
	tree->nleaves = 0;
	foreach(cell, leaves)
	{
		Oid leaf = lfirst_oid(cell);

		if (bsearch(&leaf, tree->planned, tree->nplanned, sizeof(Oid), compare_oids) != NULL)
			tree->leaves[tree->nleaves++] = leaf;
	}
	MemoryContextSwitchTo(caller);
	tree->is_listed = true;
}

bool
tree_scan_has_leaf(const TreeScan *tree, Oid leaf)
{
	if (!tree->is_listed)
		return bsearch(&leaf, tree->planned, tree->nplanned, sizeof(Oid), compare_oids) != NULL;
	for (int i = 0; i < tree->nleaves; i++)
		if (tree->leaves[i] == leaf)
			return true;
	return false;
}

bool
tree_scan_leaves(const TreeScan *tree, int *planned, int *left)
{
	*planned = tree->nplanned;
	*left = tree->nleaves;
	return tree->is_listed;
}

/* ---- one leaf ----------------------------------------------------------------------------------- */

void
tree_scan_check_leaf(Relation leaf)
{
	if (!columnar_is_table(leaf))
		ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
						errmsg("partition \"%s\" was changed while the query was planned",
							   RelationGetRelationName(leaf)),
						errdetail("It is not a columnar table any more."),
						errhint("The query might succeed if retried.")));
}

/* Had the table another file, as the snapshot sees it?  Not if the snapshot does not see it at all. */
static bool
had_other_file(Relation relation, Snapshot snapshot)
{
	Relation classes = table_open(RelationRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple tuple;
	bool result;

	ScanKeyInit(&key, Anum_pg_class_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(RelationGetRelid(relation)));
	scan = systable_beginscan(classes, ClassOidIndexId, true, snapshot, 1, &key);
	tuple = systable_getnext(scan);
	result = HeapTupleIsValid(tuple) &&
			 ((Form_pg_class) GETSTRUCT(tuple))->relfilenode != relation->rd_rel->relfilenode;
	systable_endscan(scan);
	table_close(classes, AccessShareLock);
	return result;
}

/*
 * A table that is rewritten (ALTER TABLE) looks empty to older snapshots.  Core's scans have locked it
 * before the snapshot was taken; a leaf is locked later, so it has to be noticed.  A transaction that
 * keeps its snapshot takes its chance with core, too.
 */
void
tree_scan_check_empty(Relation leaf, Snapshot snapshot)
{
	SpaceState space;

	if (IsolationUsesXactSnapshot())
		return;
	space_read(leaf, &space);
	if (space.next_row > 0 && had_other_file(leaf, snapshot))
		ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
						errmsg("partition \"%s\" was rewritten while the query was running",
							   RelationGetRelationName(leaf)),
						errhint("The query might succeed if retried.")));
}

/* False if the leaf is gone: it was detached and dropped since, as an older snapshot may find it. */
static bool
open_leaf(ColumnarScanState *state, int number)
{
	TreeScan *tree = state->tree;
	Relation top = state->source.custom.ss.ss_currentRelation;
	Oid oid = tree->shared ? tree->shared->leaves[number].relation : tree->leaves[number];
	TupleConversionMap *map;

	state->relation = try_table_open(oid, AccessShareLock);
	tree->current = number;
	if (state->relation == NULL)
		return false;
	tree_scan_check_leaf(state->relation);
	map = convert_tuples_by_name(RelationGetDescr(state->relation), RelationGetDescr(top));
	state->scan = row_scan_begin(state->relation, NULL,
								 state->source.custom.ss.ps.state->es_snapshot, state->ahead,
								 state->pruner ? pruner_callbacks(state->pruner) : NULL,
								 tree->shared ? &tree->shared->leaves[number].scan : NULL);
	tree->attributes = NULL;
	if (map != NULL)
	{
		int natts = RelationGetDescr(top)->natts;

		tree->attributes = palloc(sizeof(AttrNumber) * natts);
		memcpy(tree->attributes, map->attrMap->attnums, sizeof(AttrNumber) * natts);
		free_conversion_map(map);
		row_scan_set_attributes(state->scan, tree->attributes, natts);
	}
	if (row_scan_counters(state->scan)->groups == 0)
		tree_scan_check_empty(state->relation, state->source.custom.ss.ps.state->es_snapshot);
	pgstat_count_heap_scan(state->relation);
	return true;
}

void
tree_scan_close(ColumnarScanState *state)
{
	TreeScan *tree = state->tree;

	if (state->scan != NULL)
	{
		const RowScanCounters *counters = row_scan_counters(state->scan);

		tree->counters.bytes_read += counters->bytes_read;
		tree->counters.pages_read += counters->pages_read;
		row_scan_end(state->scan);
		state->scan = NULL;
	}
	if (tree->attributes != NULL)
		pfree(tree->attributes);
	tree->attributes = NULL;
	if (state->relation != NULL)
		table_close(state->relation, NoLock);
	state->relation = NULL;
}

const ScanCounters *
tree_scan_counters(const TreeScan *tree)
{
	return &tree->counters;
}

/* ---- leaf after leaf ---------------------------------------------------------------------------- */

static bool
is_finished(const TreeScan *tree, int leaf, ScanDirection direction)
{
	if (ScanDirectionIsBackward(direction))
		leaf = (int) tree->shared->nleaves - 1 - leaf;
	return pg_atomic_read_u32(&tree->shared->leaves[leaf].finished) != 0;
}

/* The next leaf to read with others, counted in the direction of the scan, or -1. */
static int
take_shared_leaf(TreeScan *tree, ScanDirection direction)
{
	TreeShared *shared = tree->shared;
	uint32 next = pg_atomic_read_u32(&shared->next_leaf);

	if (next < shared->nleaves)
		next = pg_atomic_fetch_add_u32(&shared->next_leaf, 1);
	if (next < shared->nleaves)
		return (int) next;
	/* those behind are the likeliest to be still read */
	while (--tree->joined >= 0)
		if (!is_finished(tree, tree->joined, direction))
			return tree->joined;
	tree->joined = 0;
	return -1;
}

static int
count_leaves(const TreeScan *tree)
{
	return tree->shared ? (int) tree->shared->nleaves : tree->nleaves;
}

/* The next leaf to read, counted in the direction of the scan, or -1. */
static int
take_leaf(ColumnarScanState *state)
{
	TreeScan *tree = state->tree;

	if (tree->shared != NULL)
		return take_shared_leaf(tree, state->direction);
	if (!tree->is_listed)
		list_leaves(state, true);
	return tree->next < tree->nleaves ? tree->next++ : -1;
}

/* The leaf that is open, or could not be opened, needs nobody else. */
static void
set_finished(TreeScan *tree)
{
	if (tree->shared != NULL)
		pg_atomic_write_u32(&tree->shared->leaves[tree->current].finished, 1);
}

bool
tree_scan_open_next(ColumnarScanState *state)
{
	int leaf;

	if (state->relation != NULL)
	{
		set_finished(state->tree);
		tree_scan_close(state);
	}
	while ((leaf = take_leaf(state)) >= 0)
	{
		CHECK_FOR_INTERRUPTS();
		if (ScanDirectionIsBackward(state->direction))
			leaf = count_leaves(state->tree) - 1 - leaf;
		if (open_leaf(state, leaf))
			return true;
		set_finished(state->tree);
	}
	return false;
}

static void
begin_anew(ColumnarScanState *state)
{
	TreeScan *tree = state->tree;

	tree_scan_close(state);
	tree->next = 0;
	tree->joined = tree->shared ? (int) tree->shared->nleaves : 0;
}

void
tree_scan_rescan(ColumnarScanState *state)
{
	TreeScan *tree = state->tree;

	begin_anew(state);
	if (tree->depends && tree->shared == NULL)
		tree->is_listed = false;
}

/* Rows cannot be stored in parallel mode, which may have begun when the leaf is opened. */
static void
flush_buffers(const TreeScan *tree)
{
	for (int i = 0; i < tree->nplanned; i++)
	{
		Relation leaf;

		if (write_buffer_is_empty(tree->planned[i]))
			continue;
		leaf = try_table_open(tree->planned[i], AccessShareLock);
		if (leaf == NULL)
			continue;
		write_buffer_flush(leaf);
		table_close(leaf, NoLock);
	}
}

TreeScan *
tree_scan_begin(ColumnarScanState *state, int eflags)
{
	CustomScan *plan = (CustomScan *) state->source.custom.ss.ps.plan;
	EState *estate = state->source.custom.ss.ps.state;
	TreeScan *tree;

	if (list_nth_int(plan->custom_private, SCAN_LEAVES) < 0)
		return NULL;
	tree = palloc0(sizeof(TreeScan));
	tree->context = AllocSetContextCreate(CurrentMemoryContext, "columnar partition tree scan",
										  ALLOCSET_SMALL_SIZES);
	read_plan(tree, plan);
	if (estate->es_partition_directory == NULL)
		estate->es_partition_directory = CreatePartitionDirectory(estate->es_query_cxt, false);
	tree->directory = estate->es_partition_directory;
	tree->depends = partition_tree_has_params(plan->custom_exprs);
	state->tree = tree;
	state->relation = NULL;

	if (!(eflags & EXEC_FLAG_EXPLAIN_ONLY) && !IsParallelWorker())
	{
		flush_buffers(tree);
		tree_guard_add(tree, estate->es_query_cxt);
	}
	/* a worker gets the leader's list, if they share the scan */
	if (!IsParallelWorker() && (!tree->depends || (eflags & EXEC_FLAG_EXPLAIN_ONLY)))
		list_leaves(state, false);
	return tree;
}

/* ---- several processes -------------------------------------------------------------------------- */

Size
tree_scan_shared_size(const TreeScan *tree)
{
	return offsetof(TreeShared, leaves) + sizeof(TreeLeafShared) * tree->nplanned;
}

/* Writes the list of leaves, none of them taken. */
static void
fill_shared(ColumnarScanState *state, TreeShared *shared)
{
	TreeScan *tree = state->tree;

	if (tree->depends || !tree->is_listed)
		list_leaves(state, true);
	pg_atomic_init_u32(&shared->next_leaf, 0);
	shared->nleaves = (uint32) tree->nleaves;
	for (int i = 0; i < tree->nleaves; i++)
	{
		shared->leaves[i].relation = tree->leaves[i];
		pg_atomic_init_u32(&shared->leaves[i].finished, 0);
		pg_atomic_init_u64(&shared->leaves[i].scan.next_group, 0);
	}
	tree->shared = shared;
	begin_anew(state);
}

void
tree_scan_share(ColumnarScanState *state, void *shared)
{
	fill_shared(state, shared);
}

void
tree_scan_reshare(ColumnarScanState *state)
{
	fill_shared(state, state->tree->shared);
}

void
tree_scan_join(ColumnarScanState *state, void *shared)
{
	state->tree->shared = shared;
	begin_anew(state);
}

void
tree_scan_unshare(ColumnarScanState *state)
{
	/* perhaps in an error's clean-up, so nothing is closed here */
	if (state->scan != NULL)
		row_scan_set_shared(state->scan, NULL);
	state->tree->shared = NULL;
	state->tree->next = state->tree->nleaves;
}
