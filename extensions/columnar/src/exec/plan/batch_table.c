/*
 * batch_table.c
 *		For the planner: tables, partition trees and UNION ALLs that are read by batches.
 *
 * Paths are made when somebody asks for them, as ColumnarScans that decode batches are not among the
 * paths that core knows; and remembered, because a table takes part in many joins.
 *
 * A member of a UNION ALL may compute its columns, and may be a sub-select with conditions, joins or
 * groups.  Its columns are those of its plan's target list then: where the plan has batches,
 * vectors are made of them (batch_projection.c), else its rows are collected.
 */
#include "exec/plan/batch_table.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/appendinfo.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/memutils.h"

#include "exec/scan/custom_scan.h"
#include "exec/scan/planned_relation.h"
#include "exec/scan/tree_plan.h"
#include "store/table/table_am.h"

/* One table, or sub-select, of a tree. */
typedef struct TableLeaf
{
	RelOptInfo *rel;
	Bitmapset *columns; /* attribute numbers that are asked for */
	List *attributes;	/* as in BatchPath, without the first; NIL: it is the top */
	List *targets;		/* what it computes; NIL: it does not */
	bool by_rows;		/* of its cheapest path, whatever that is */
} TableLeaf;

/* What is asked of a tree. */
typedef struct TableTree
{
	PlannerInfo *root;
	const Bitmapset *wanted; /* attribute numbers of the top */
	bool is_union;
	bool partial;
	List *leaves;
} TableTree;

/* Attribute numbers of a relation in expressions. */
static Bitmapset *
collect_attributes(List *expressions, Index varno)
{
	Bitmapset *offsets = NULL;
	Bitmapset *attributes = NULL;
	int offset = -1;

	pull_varattnos((Node *) expressions, varno, &offsets);
	while ((offset = bms_next_member(offsets, offset)) >= 0)
	{
		AttrNumber attribute = offset + FirstLowInvalidHeapAttributeNumber;

		if (attribute > 0)
			attributes = bms_add_member(attributes, attribute);
	}
	bms_free(offsets);
	return attributes;
}

/* ---- members ------------------------------------------------------------------------------------ */

/* The top's columns as the member has them, by attribute - 1, NULL for what nobody wants and is no column. */
static List *
translate_columns(const TableTree *tree, AppendRelInfo *member, const List *of_parent)
{
	List *columns = NIL;
	ListCell *cell;

	if (of_parent == NIL)
		return member->translated_vars;
	foreach(cell, of_parent)
	{
		Node *above = lfirst(cell);

		if (above != NULL && IsA(above, Var))
			above = list_nth(member->translated_vars, ((Var *) above)->varattno - 1);
		else if (above != NULL && bms_is_member(foreach_current_index(cell) + 1, tree->wanted))
			above = adjust_appendrel_attrs(tree->root, above, 1, &member);
		columns = lappend(columns, above);
	}
	return columns;
}

static inline bool
is_column(const Node *node)
{
	return node != NULL && IsA(node, Var) && ((const Var *) node)->varattno > 0;
}

/* Can it be evaluated over a batch at once, before anybody looks at its rows? */
static bool
is_computable(Node *expression)
{
	Bitmapset *offsets = NULL;
	Relids relids = pull_varnos(NULL, expression);
	int varno = -1;
	int first;

	if (contain_volatile_functions(expression) || contain_subplans(expression) ||
		expression_returns_set(expression))
		return false;
	/* system columns, and whole rows */
	while ((varno = bms_next_member(relids, varno)) >= 0)
		pull_varattnos(expression, varno, &offsets);
	first = bms_next_member(offsets, -1);
	return first < 0 || first + FirstLowInvalidHeapAttributeNumber > 0;
}

/* What the leaf reads and computes for the columns wanted; false if it cannot. */
static bool
set_columns(const TableTree *tree, TableLeaf *leaf, const List *columns)
{
	bool computes = false;
	int attribute = -1;
	ListCell *cell;

	while ((attribute = bms_next_member(tree->wanted, attribute)) >= 0)
	{
		Node *column = list_nth(columns, attribute - 1);

		if (column == NULL || !(is_column(column) || is_computable(column)))
			return false;
		computes |= !is_column(column);
	}
	foreach(cell, columns)
	{
		Node *column = lfirst(cell);
		int number = is_column(column) ? ((Var *) column)->varattno : 0;

		if (bms_is_member(foreach_current_index(cell) + 1, tree->wanted))
		{
			if (computes)
			{
				leaf->targets = lappend(leaf->targets, column);
				number = -list_length(leaf->targets);
			}
			leaf->columns = bms_join(leaf->columns,
									 collect_attributes(list_make1(column), leaf->rel->relid));
		}
		else if (computes)
			number = 0;
		leaf->attributes = lappend_int(leaf->attributes, number);
	}
	return true;
}

/* The same of a sub-select, whose plan has all of its columns. */
static bool
set_subselect_columns(const TableTree *tree, TableLeaf *leaf, const List *columns)
{
	Query *query = planner_rt_fetch(leaf->rel->relid, tree->root)->subquery;
	ListCell *cell;

	if (query->hasTargetSRFs || leaf->rel->lateral_relids != NULL)
		return false;
	foreach(cell, columns)
	{
		Node *column = lfirst(cell);
		int number = is_column(column) ? ((Var *) column)->varattno : 0;

		if (number == 0 && bms_is_member(foreach_current_index(cell) + 1, tree->wanted))
			return false;
		leaf->attributes = lappend_int(leaf->attributes, -number);
	}
	foreach(cell, query->targetList)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, cell);

		/* of a GROUP BY's junk the plan's target list need not tell the number */
		if (contain_volatile_functions((Node *) entry->expr) ||
			contain_subplans((Node *) entry->expr))
			return false;
		if (!entry->resjunk)
			leaf->targets = lappend(leaf->targets, makeVarFromTargetEntry(leaf->rel->relid, entry));
	}
	return true;
}

/* The cheapest path that needs no other relation; NULL if there is none. */
static Path *
find_cheapest(const RelOptInfo *rel, bool partial)
{
	Path *cheapest = rel->cheapest_total_path;

	if (partial)
		cheapest = rel->partial_pathlist ? linitial(rel->partial_pathlist) : NULL;
	return cheapest == NULL || cheapest->param_info != NULL ? NULL : cheapest;
}

/* The same of what is no columnar table, whose rows are read. */
static bool
set_rows_columns(const TableTree *tree, TableLeaf *leaf, const List *columns)
{
	Path *path = find_cheapest(leaf->rel, tree->partial);
	ListCell *cell;

	if (path == NULL || leaf->rel->lateral_relids != NULL)
		return false;
	leaf->by_rows = true;
	foreach(cell, columns)
	{
		int number = 0;
		ListCell *computed;

		foreach(computed, path->pathtarget->exprs)
			if (lfirst(cell) != NULL && equal(lfirst(computed), lfirst(cell)))
				number = -(foreach_current_index(computed) + 1);
		if (number == 0 && bms_is_member(foreach_current_index(cell) + 1, tree->wanted))
			return false;
		leaf->attributes = lappend_int(leaf->attributes, number);
	}
	return true;
}

/* Do the relation's conditions run in a ColumnarScan alone? */
static bool
is_possible_leaf(PlannerInfo *root, RelOptInfo *rel)
{
	RangeTblEntry *rte = planner_rt_fetch(rel->relid, root);
	Relation relation;
	bool result;
	ListCell *cell;

	if (rel->rtekind != RTE_RELATION || rte->tablesample != NULL || rel->lateral_relids != NULL ||
		(rte->relkind != RELKIND_RELATION && rte->relkind != RELKIND_MATVIEW &&
		 tree_plan_find(rel) == NULL))
		return false;
	/* a condition without columns becomes a node above the scan */
	foreach(cell, rel->baserestrictinfo)
		if (lfirst_node(RestrictInfo, cell)->pseudoconstant)
			return false;
	if (tree_plan_find(rel) != NULL)
		return true;
	relation = table_open(rte->relid, NoLock);
	result = columnar_is_table(relation);
	table_close(relation, NoLock);
	return result;
}

static bool
set_member_columns(const TableTree *tree, TableLeaf *leaf, const List *columns)
{
	if (leaf->rel->rtekind == RTE_SUBQUERY)
		return set_subselect_columns(tree, leaf, columns);
	if (is_possible_leaf(tree->root, leaf->rel))
		return set_columns(tree, leaf, columns);
	return tree->is_union && set_rows_columns(tree, leaf, columns);
}

/* Adds what is below a parent; false if one of them is not for us. */
static bool
add_leaves(TableTree *tree, RelOptInfo *parent, const List *of_parent)
{
	ListCell *cell;

	foreach(cell, tree->root->append_rel_list)
	{
		AppendRelInfo *member = lfirst_node(AppendRelInfo, cell);
		RelOptInfo *child;
		List *columns;
		TableLeaf *leaf;

		if (member->parent_relid != parent->relid)
			continue;
		child = tree->root->simple_rel_array[member->child_relid];
		if (child == NULL || IS_DUMMY_REL(child))
			continue;
		columns = translate_columns(tree, member, of_parent);
		if (planner_rt_fetch(child->relid, tree->root)->inh)
		{
			if (!add_leaves(tree, child, columns))
				return false;
			continue;
		}
		leaf = palloc0(sizeof(TableLeaf));
		leaf->rel = child;
		if (!set_member_columns(tree, leaf, columns))
			return false;
		tree->leaves = lappend(tree->leaves, leaf);
	}
	return true;
}

/* The tables and sub-selects of a relation; NIL if it is not for us. */
static List *
collect_leaves(PlannerInfo *root, RelOptInfo *rel, Bitmapset *wanted, bool partial)
{
	TableTree tree = {.root = root,
					  .wanted = wanted,
					  .is_union = rel->rtekind == RTE_SUBQUERY,
					  .partial = partial};
	TableLeaf *leaf;

	if (planner_rt_fetch(rel->relid, root)->inh && tree_plan_find(rel) == NULL)
		return add_leaves(&tree, rel, NIL) ? tree.leaves : NIL;
	if (!is_possible_leaf(root, rel))
		return NIL;
	leaf = palloc0(sizeof(TableLeaf));
	leaf->rel = rel;
	leaf->columns = wanted;
	return list_make1(leaf);
}

/* ---- paths -------------------------------------------------------------------------------------- */

static int
choose_workers(RelOptInfo *rel, const List *leaves)
{
	double pages = 0;
	ListCell *cell;

	if (!rel->consider_parallel)
		return 0;
	foreach(cell, leaves)
		pages += ((TableLeaf *) lfirst(cell))->rel->pages;
	return compute_parallel_worker(rel, pages, -1, max_parallel_workers_per_gather);
}

static PathTarget *
make_target(PlannerInfo *root, const TableLeaf *leaf)
{
	PathTarget *target = create_empty_pathtarget();
	ListCell *cell;

	foreach(cell, leaf->targets)
		add_column_to_pathtarget(target, lfirst(cell), 0);
	return set_pathtarget_cost_width(root, target);
}

static Path *
read_table(PlannerInfo *root, const TableLeaf *leaf, int workers)
{
	CustomPath *scan = custom_scan_make_batch_path(root, leaf->rel, leaf->columns, workers);

	if (scan != NULL && leaf->targets != NIL)
		scan->path.pathtarget = make_target(root, leaf);
	return (Path *) scan;
}

/*
 * With all columns of the sub-select core has nothing to do for its SubqueryScan, and leaves it away: what reads
 * it reads the sub-select's own plan.
 */
static Path *
read_subselect(PlannerInfo *root, const TableLeaf *leaf, bool partial)
{
	Path *cheapest = find_cheapest(leaf->rel, partial);
	SubqueryScanPath *path;

	if (cheapest == NULL || !IsA(cheapest, SubqueryScanPath))
		return NULL;
	path = makeNode(SubqueryScanPath);
	memcpy(path, cheapest, sizeof(SubqueryScanPath));
	path->path.pathtarget = make_target(root, leaf);
	return &path->path;
}

static Path *
read_leaf(PlannerInfo *root, const TableLeaf *leaf, int workers)
{
	if (leaf->by_rows)
		return find_cheapest(leaf->rel, workers > 0);
	if (leaf->rel->rtekind == RTE_SUBQUERY)
		return read_subselect(root, leaf, workers > 0);
	return read_table(root, leaf, workers);
}

/* A relation of the range table; NULL if it is not for us. */
static BatchPath *
make_of_table(PlannerInfo *root, RelOptInfo *rel, Bitmapset *columns, bool partial)
{
	BatchPath *batch = palloc0(sizeof(BatchPath));
	List *leaves = collect_leaves(root, rel, columns, partial);
	bool any_batches = false;
	ListCell *cell;

	if (leaves == NIL)
		return NULL;
	if (partial && (batch->workers = choose_workers(rel, leaves)) <= 0)
		return NULL;
	foreach(cell, leaves)
	{
		TableLeaf *leaf = lfirst(cell);
		Path *path = read_leaf(root, leaf, batch->workers);

		if (path == NULL)
			return NULL;
		batch->paths = lappend(batch->paths, path);
		batch->attributes = lappend(
			batch->attributes, leaf->attributes ? lcons_int(rel->relid, leaf->attributes) : NIL);
		batch->rows += path->rows;
		batch->disabled_nodes += compat_disabled_nodes(path);
		batch->total_cost += path->total_cost;
		if (batch_path_role(path) == BATCH_ROLE_SOURCE)
			any_batches = true;
		else
			batch->total_cost += path->rows * BATCH_COLLECT_COST;
	}
	batch->startup_cost = ((Path *) linitial(batch->paths))->startup_cost;
	return any_batches ? batch : NULL;
}

BatchPath *
batch_table_find(PlannerInfo *root, RelOptInfo *rel, List *expressions, bool partial)
{
	PlannedRelation *planned;
	MemoryContext caller;
	Bitmapset *columns;

	if ((rel->rtekind != RTE_RELATION && rel->rtekind != RTE_SUBQUERY) ||
		rel->lateral_relids != NULL || IS_DUMMY_REL(rel))
		return NULL;
	planned = planned_relation_get(rel);
	columns = collect_attributes(expressions, rel->relid);
	if (planned->is_read[partial] && bms_equal(columns, planned->columns[partial]))
		return planned->tables[partial];

	/* GEQO's memory goes away before the table's RelOptInfo does */
	caller = MemoryContextSwitchTo(GetMemoryChunkContext(rel));
	planned->columns[partial] = bms_copy(columns);
	planned->tables[partial] = make_of_table(root, rel, planned->columns[partial], partial);
	planned->is_read[partial] = true;
	MemoryContextSwitchTo(caller);
	return planned->tables[partial];
}
