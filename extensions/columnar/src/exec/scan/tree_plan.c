/*
 * tree_plan.c
 *		When the planner takes a partition tree of columnar tables for one relation.
 *
 * Core makes a relation of each leaf: it locks and opens it, reads its size, looks for its
 * statistics and makes its paths, and the executor has a node for each.  That is a tenth of a millisecond
 * or so per leaf and query, which is more than reading it takes where leaves are many.
 * A tree of many leaves is left as it is instead, and ColumnarScan reads all of its leaves.
 *
 * How: core expands a relation whose range table entry has `inh` set, after all base relations are
 * made.  When the relation is made, the hook for relations clears `inh`, and core takes it for a
 * table.  An entry of relkind `p` without inh is an empty relation to core, so relkind is changed,
 * too.  When core asks for the relation's paths, both are set back: nothing in the planner
 * looks for members from there on, and column statistics of the whole tree are found under `inh`.
 * Before, get_relation_stats_hook finds them.
 *
 * Not taken: what EvalPlanQual may look at and targets of data modification (row marks), members
 * of a UNION ALL, samples, system columns but tableoid; trees where an index could serve the query,
 * as one relation has no index paths; and trees of which few leaves remain.
 *
 * Privileges and row security are those of the table at the top in either way.
 */
#include "exec/scan/tree_plan.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_statistic.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/plancat.h"
#include "optimizer/prep.h"
#include "optimizer/restrictinfo.h"
#include "parser/parsetree.h"
#include "partitioning/partdesc.h"
#include "storage/bufmgr.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/selfuncs.h"
#include "utils/syscache.h"

#include "exec/scan/partition_tree.h"
#include "exec/scan/planned_relation.h"
#include "join_estimate.h"
#include "store/options/settings.h"
#include "store/table/table_am.h"

/* So many leaves are opened to learn their sizes, if nothing is known of them. */
#define MEASURED_LEAVES 32

static CompatRelationHook previous_relation_hook = NULL;
static get_relation_stats_hook_type previous_stats_hook = NULL;

PlannedTree *
tree_plan_find(RelOptInfo *rel)
{
	PlannedRelation *planned = planned_relation_find(rel);

	return planned ? planned->tree : NULL;
}

/* ---- which queries ------------------------------------------------------------------------------ */

typedef struct ColumnSearch
{
	Index varno;
	int level;
} ColumnSearch;

/* Does the query ask for another system column than tableoid?  Core finds rows by ctid quickly. */
static bool
find_system_column(Node *node, ColumnSearch *search)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var))
	{
		const Var *var = (const Var *) node;

		return var->varno == search->varno && var->varlevelsup == search->level &&
			   var->varattno < 0 && var->varattno != TableOidAttributeNumber;
	}
	if (IsA(node, Query))
	{
		bool found;

		search->level++;
		found = query_tree_walker((Query *) node, find_system_column, search, 0);
		search->level--;
		return found;
	}
	return expression_tree_walker(node, find_system_column, search);
}

/*
 * The conditions of the join tree, as lists of ANDed ones.  `restricting`: those that every row has to
 * pass, as core will find, or fewer; else those of outer joins, too.
 */
static List *
collect_conditions(Node *node, bool restricting, List *conditions)
{
	if (IsA(node, FromExpr))
	{
		FromExpr *from = (FromExpr *) node;
		ListCell *cell;

		foreach(cell, from->fromlist)
			conditions = collect_conditions(lfirst(cell), restricting, conditions);
		return list_concat(conditions, (List *) from->quals);
	}
	if (IsA(node, JoinExpr) && (!restricting || ((JoinExpr *) node)->jointype == JOIN_INNER))
	{
		JoinExpr *join = (JoinExpr *) node;

		conditions = collect_conditions(join->larg, restricting, conditions);
		conditions = collect_conditions(join->rarg, restricting, conditions);
		return list_concat(conditions, (List *) join->quals);
	}
	return conditions;
}

/* The attributes that conditions are about, or the order of a query that returns but a few rows. */
static Bitmapset *
collect_sought(const Query *query, Index varno)
{
	List *expressions = collect_conditions((Node *) query->jointree, false, NIL);
	Bitmapset *offsets = NULL;
	Bitmapset *attributes = NULL;
	int offset = -1;
	ListCell *cell;

	foreach(cell, query->targetList)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, cell);

		if (query->limitCount != NULL && entry->ressortgroupref != 0)
			expressions = lappend(expressions, entry->expr);
	}
	pull_varattnos((Node *) expressions, varno, &offsets);
	while ((offset = bms_next_member(offsets, offset)) >= 0)
		attributes = bms_add_member(attributes,
									Max(offset + FirstLowInvalidHeapAttributeNumber, 0));
	return attributes;
}

/*
 * Could an index be of use?  The first column of a range partitioning finds leaves, and within
 * these zone maps do what an index does.
 */
static bool
may_use_index(const PartitionTree *tree, const Query *query, Index varno)
{
	Bitmapset *sought;

	if (!tree->has_indexes)
		return false;
	sought = bms_del_members(collect_sought(query, varno), tree->by_range);
	if (bms_is_empty(sought))
		return false;
	return !tree->knows_indexes || bms_is_member(0, tree->indexed) ||
		   bms_overlap(sought, tree->indexed);
}

/*
 * Will enough leaves be left, as far as it can be seen before core has sorted the conditions?
 * An older snapshot may still have one that is being detached, which the tree has not.
 */
static bool
are_leaves_many(PlannerInfo *root, Relation relation, Index varno)
{
	List *conditions = collect_conditions((Node *) root->parse->jointree, true, NIL);
	List *leaves = partition_tree_prune(relation, root->glob->partition_directory, varno,
										conditions, NULL, false);
	const PartitionTree *tree = partition_tree_get(relation);
	bool result = tree->is_columnar && list_length(leaves) >= columnar_tree_scan_leaves;
	ListCell *cell;

	foreach(cell, leaves)
		result = result && partition_tree_leaf(tree, lfirst_oid(cell)) != NULL;
	list_free(leaves);
	return result;
}

static bool
is_possible_entry(PlannerInfo *root, const RelOptInfo *rel, const RangeTblEntry *rte)
{
	return columnar_enable_custom_scan && columnar_enable_tree_scan && rte->inh &&
		   rte->relkind == RELKIND_PARTITIONED_TABLE && rte->tablesample == NULL &&
		   rel->reloptkind == RELOPT_BASEREL && root->glob->partition_directory != NULL &&
		   !bms_is_member((int) rel->relid, root->all_result_relids) &&
		   root->parse->resultRelation != (int) rel->relid &&
		   get_plan_rowmark(root->rowMarks, rel->relid) == NULL;
}

/* ---- taking a tree ------------------------------------------------------------------------------ */

/* amcostestimate_function of an index of the tree, which has no scans, and so no costs. */
static void
estimate_no_index(PlannerInfo *root, IndexPath *path, double loop_count, Cost *startup_cost,
				  Cost *total_cost, Selectivity *selectivity, double *correlation, double *pages)
{
	*startup_cost = *total_cost = disable_cost;
	*selectivity = 1;
	*correlation = 0;
	*pages = 0;
}

/*
 * Since 16 core knows the indexes of a tree, for proofs.  It takes them for a table's here: it would ask
 * what they cost, and look into them for the ends of a column's range, but not into hypothetical ones.
 */
static void
disarm_indexes(RelOptInfo *rel)
{
	ListCell *cell;

	foreach(cell, rel->indexlist)
	{
		IndexOptInfo *index = lfirst_node(IndexOptInfo, cell);

		if (index->amcostestimate == NULL)
			index->amcostestimate = (void *) estimate_no_index;
		index->hypothetical = true;
	}
}

/* The widths of columns, of the whole tree; core asks for those of a table. */
static void
set_widths(RelOptInfo *rel, Oid relation)
{
	for (AttrNumber attribute = 1; attribute <= rel->max_attr; attribute++)
	{
		HeapTuple tuple = SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(relation),
										  Int16GetDatum(attribute), BoolGetDatum(true));

		if (!HeapTupleIsValid(tuple))
			continue;
		rel->attr_widths[attribute - rel->min_attr] =
			((Form_pg_statistic) GETSTRUCT(tuple))->stawidth;
		ReleaseSysCache(tuple);
	}
}

static void
take_tree(RelOptInfo *rel, RangeTblEntry *rte, const PartitionTree *tree)
{
	PlannedRelation *planned = planned_relation_get(rel);
	MemoryContext caller = MemoryContextSwitchTo(GetMemoryChunkContext(rel));
	double pages = 0;
	double tuples = 0;
	double largest = 0;

	planned->tree = palloc0(sizeof(PlannedTree));
	planned->tree->by_range = bms_copy(tree->by_range);
	planned->tree->nparents = tree->nparents;
	planned->tree->parents = palloc(sizeof(Oid) * Max(tree->nparents, 1));
	memcpy(planned->tree->parents, tree->parents, sizeof(Oid) * tree->nparents);
	for (int i = 0; i < tree->nleaves; i++)
	{
		pages += tree->leaves[i].pages;
		tuples += Max(tree->leaves[i].tuples, 0);
		if (tree->leaves[i].tuples > largest)
		{
			largest = tree->leaves[i].tuples;
			planned->tree->sample = tree->leaves[i].relation;
		}
	}
	/* for the first estimates: they are made again when the conditions are known */
	rel->pages = (BlockNumber) Min(Max(pages, 1), MaxBlockNumber);
	rel->tuples = Max(tuples, tree->nleaves);
	rte->inh = false;
	rte->relkind = RELKIND_RELATION;
	set_widths(rel, rte->relid);
	disarm_indexes(rel);
	MemoryContextSwitchTo(caller);
}

/* Called when the relation is made. */
static void
look_at_relation(COMPAT_RELATION_ARGUMENTS)
{
	RangeTblEntry *rte = planner_rt_fetch(rel->relid, root);
	ColumnSearch search = {.varno = rel->relid};

	if (previous_relation_hook)
		previous_relation_hook(COMPAT_PASS_RELATION);
	if (rel->part_scheme != NULL && rel->nparts > 0 && is_possible_entry(root, rel, rte) &&
		!query_tree_walker(root->parse, find_system_column, &search, 0))
	{
		Relation relation = table_open(rte->relid, NoLock);
		const PartitionTree *tree = partition_tree_get(relation);

		if (tree->is_columnar && tree->nleaves >= columnar_tree_scan_leaves &&
			!may_use_index(tree, root->parse, rel->relid) &&
			are_leaves_many(root, relation, rel->relid))
			take_tree(rel, rte, partition_tree_get(relation));
		table_close(relation, NoLock);
	}
}

/* ---- statistics --------------------------------------------------------------------------------- */

/* May the user read the column?  As core asks before it shows values to functions. */
static bool
may_read(const RelOptInfo *rel, const RangeTblEntry *rte, AttrNumber attribute)
{
	Oid user = OidIsValid(rel->userid) ? rel->userid : GetUserId();

	return rte->securityQuals == NIL &&
		   (pg_class_aclcheck(rte->relid, user, ACL_SELECT) == ACLCHECK_OK ||
			pg_attribute_aclcheck(rte->relid, attribute, user, ACL_SELECT) == ACLCHECK_OK);
}

/* Of a column of the tree; NULL if there are none. */
static HeapTuple
look_up_statistics(const PlannedTree *tree, Oid relation, AttrNumber attribute)
{
	HeapTuple tuple = SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(relation),
									  Int16GetDatum(attribute), BoolGetDatum(true));
	AttrNumber of_leaf;

	/* autovacuum never analyses a partitioned table: a leaf says more than nothing */
	if (HeapTupleIsValid(tuple) || !OidIsValid(tree->sample) || attribute <= 0 ||
		bms_is_member(attribute, tree->by_range))
		return tuple;
	of_leaf = get_attnum(tree->sample, get_attname(relation, attribute, false));
	return SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(tree->sample), Int16GetDatum(of_leaf),
						   BoolGetDatum(false));
}

/*
 * get_relation_stats_hook: of the tree, whose entry looks like a table's at first.
 * `data` is only written: nothing is promised of what is in it.
 */
static bool
find_statistics(PlannerInfo *root, RangeTblEntry *rte, AttrNumber attribute, VariableStatData *data)
{
	RelOptInfo *rel;
	PlannedTree *tree;

	if (previous_stats_hook && previous_stats_hook(root, rte, attribute, data))
		return true;
	/* the entry's own relkind was changed, the catalog's was not */
	if (rte->rtekind != RTE_RELATION || get_rel_relkind(rte->relid) != RELKIND_PARTITIONED_TABLE)
		return false;
	rel = join_estimate_find_relation(root, rte);
	tree = rel ? tree_plan_find(rel) : NULL;
	if (tree == NULL)
		return false;
	data->statsTuple = look_up_statistics(tree, rte->relid, attribute);
	data->freefunc = ReleaseSysCache;
	data->acl_ok = !HeapTupleIsValid(data->statsTuple) || may_read(rel, rte, attribute);
	return true;
}

/* ---- sizes -------------------------------------------------------------------------------------- */

typedef struct TreeSizes
{
	double pages;
	double tuples;
	int unknown; /* leaves that nothing is known of */
	double largest_pages;
	Oid largest;
} TreeSizes;

static void
add_leaf_size(TreeSizes *sizes, Oid relation, double pages, double tuples)
{
	sizes->pages += pages;
	sizes->tuples += tuples;
	if (!OidIsValid(sizes->largest) || pages > sizes->largest_pages)
	{
		sizes->largest = relation;
		sizes->largest_pages = pages;
	}
}

/* Adds what there is now.  The lock is not kept: the leaf need not be among those that are read. */
static void
measure_leaf(TreeSizes *sizes, Oid leaf)
{
	Relation relation = try_table_open(leaf, AccessShareLock);
	BlockNumber pages;
	double tuples;
	double visible;

	if (relation == NULL)
		return;
	if (columnar_is_table(relation))
	{
		table_relation_estimate_size(relation, NULL, &pages, &tuples, &visible);
		add_leaf_size(sizes, leaf, pages, tuples);
	}
	table_close(relation, AccessShareLock);
}

/*
 * Leaves that are likely to be read: as they are if they are some of the tree and few, else as they were
 * when last analysed.
 */
static TreeSizes
measure_leaves(const PartitionTree *tree, const List *leaves)
{
	TreeSizes sizes = {0};
	bool are_few = list_length(leaves) <= MEASURED_LEAVES && list_length(leaves) < tree->nleaves;
	List *unknown = NIL;
	int step;
	ListCell *cell;

	foreach(cell, leaves)
	{
		const TreeLeaf *leaf = partition_tree_leaf(tree, lfirst_oid(cell));

		if (leaf == NULL || leaf->tuples < 0 || are_few)
			unknown = lappend_oid(unknown, lfirst_oid(cell));
		else
			add_leaf_size(&sizes, leaf->relation, leaf->pages, leaf->tuples);
	}
	step = list_length(unknown) / MEASURED_LEAVES + 1;
	if (unknown != NIL)
	{
		TreeSizes measured = {0};
		int count = 0;

		for (int i = 0; i < list_length(unknown); i += step, count++)
			measure_leaf(&measured, list_nth_oid(unknown, i));
		sizes.pages += measured.pages / count * list_length(unknown);
		sizes.tuples += measured.tuples / count * list_length(unknown);
		if (!OidIsValid(sizes.largest) || measured.largest_pages > sizes.largest_pages)
			sizes.largest = measured.largest;
	}
	list_free(unknown);
	return sizes;
}

/* Rows of all leaves; those that nothing is known of are taken to be like the ones that were measured. */
static double
estimate_all(const PartitionTree *tree, const TreeSizes *sizes, int nleaves)
{
	double tuples = 0;

	for (int i = 0; i < tree->nleaves; i++)
		tuples += tree->leaves[i].tuples >= 0 ? tree->leaves[i].tuples
											  : sizes->tuples / Max(nleaves, 1);
	return Max(tuples, sizes->tuples);
}

/* Those that the present values of stable functions leave, too; they may have others when the plan runs. */
static List *
list_likely_leaves(PlannerInfo *root, RelOptInfo *rel, Relation relation)
{
	List *clauses = extract_actual_clauses(rel->baserestrictinfo, false);
	ListCell *cell;

	foreach(cell, clauses)
		lfirst(cell) = estimate_expression_value(root, lfirst(cell));
	return partition_tree_prune(relation, root->glob->partition_directory, rel->relid, clauses,
								NULL, false);
}

/*
 * Column statistics are those of the whole tree: so are selectivities, and rows come of them
 * and of all rows.  Not more than the leaves have.
 */
static void
set_size(PlannerInfo *root, RelOptInfo *rel, Relation relation)
{
	PlannedTree *planned = tree_plan_find(rel);
	List *leaves = list_likely_leaves(root, rel, relation);
	const PartitionTree *tree;
	TreeSizes sizes;
	double all;

	if (leaves == NIL)
		leaves = planned->leaves;
	/* not before: the catalogs are looked at above */
	tree = partition_tree_get(relation);
	sizes = measure_leaves(tree, leaves);
	all = estimate_all(tree, &sizes, list_length(leaves));

	planned->largest = sizes.largest;
	planned->share = all > 0 ? Min(Max(sizes.tuples, 1) / Max(all, 1), 1) : 1;
	rel->pages = (BlockNumber) Min(sizes.pages, MaxBlockNumber);
	rel->tuples = all;
	set_baserel_size_estimates(root, rel);
	rel->tuples = sizes.tuples;
	rel->rows = clamp_row_est(Min(rel->rows, sizes.tuples));
}

bool
tree_plan_prepare(PlannerInfo *root, RelOptInfo *rel, Relation relation)
{
	PlannedTree *planned = tree_plan_find(rel);
	RangeTblEntry *rte = planner_rt_fetch(rel->relid, root);
	MemoryContext caller;

	rte->inh = true;
	rte->relkind = RELKIND_PARTITIONED_TABLE;
	if (IS_DUMMY_REL(rel))
		return false;

	caller = MemoryContextSwitchTo(GetMemoryChunkContext(rel));
	planned->leaves = partition_tree_prune(relation, root->glob->partition_directory, rel->relid,
										   extract_actual_clauses(rel->baserestrictinfo, false),
										   NULL, false);
	if (planned->leaves == NIL)
		mark_dummy_rel(rel);
	else
	{
		set_size(root, rel, relation);
		rel->pathlist = NIL;
		rel->partial_pathlist = NIL;
	}
	MemoryContextSwitchTo(caller);
	return planned->leaves != NIL;
}

/* ---- plan --------------------------------------------------------------------------------------- */

void
tree_plan_add_dependencies(PlannerInfo *root, const PlannedTree *tree)
{
	for (int i = 0; i < tree->nparents; i++)
		root->glob->relationOids = lappend_oid(root->glob->relationOids, tree->parents[i]);
	root->glob->relationOids = list_concat(root->glob->relationOids, tree->leaves);
}

void
tree_plan_initialize(void)
{
	partition_tree_initialize();
	previous_relation_hook = compat_relation_hook;
	compat_relation_hook = look_at_relation;
	previous_stats_hook = get_relation_stats_hook;
	get_relation_stats_hook = find_statistics;
}
