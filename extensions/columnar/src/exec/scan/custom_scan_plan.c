/*
 * custom_scan_plan.c
 *		Paths of columnar tables: a ColumnarScan in the place of each sequential scan.
 *
 * The paths of indexes, bitmaps and tids stay, as does the sequential scan where
 * the custom scan cannot serve: a query that asks for system columns other than
 * ctid and tableoid, and WHERE CURRENT OF, which needs a tid scan.
 *
 * Where a join clause could exclude row groups (its column follows the order of
 * the rows), a path parameterized by the other relations is offered: a nested loop
 * then prunes with the outer row's values, as it would with an index.
 */
#include "exec/scan/custom_scan.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "nodes/makefuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/restrictinfo.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"

#include "store/options/settings.h"
#include "exec/scan/tree_plan.h"
#include "store/table/table_am.h"

/* A qual that costs as much (in units of cpu_operator_cost) is not evaluated ahead of need. */
#define BATCH_QUAL_COST 100

/* Parameterized paths of a relation. */
#define PARAMETERIZED_PATHS_MAX 8

static set_rel_pathlist_hook_type previous_pathlist_hook = NULL;

/* ---- the plan ----------------------------------------------------------------------------------- */

/*
 * May the qual be evaluated on all rows of a batch before the first is returned?
 * It is evaluated on rows that nobody asks for then (LIMIT).
 */
static bool
is_batch_qual(PlannerInfo *root, Node *clause)
{
	QualCost cost;

	if (contain_volatile_functions(clause) || contain_subplans(clause))
		return false;
	cost_qual_eval_node(&cost, clause, root);
	return cost.per_tuple < BATCH_QUAL_COST * cpu_operator_cost;
}

/* The part of custom_private about a partition tree. */
static List *
list_leaves(PlannerInfo *root, RelOptInfo *rel)
{
	PlannedTree *tree = tree_plan_find(rel);
	List *leaves;
	ListCell *cell;

	if (tree == NULL)
		return list_make1_int(-1);
	tree_plan_add_dependencies(root, tree);
	leaves = list_make1_int(list_length(tree->leaves));
	foreach(cell, tree->leaves)
		leaves = lappend_int(leaves, (int) lfirst_oid(cell));
	return leaves;
}

/*
 * Security barriers come first, and quals that may fail stay in the planner's order, so only
 * those before the first expensive one are evaluated in batches.
 */
static Plan *
make_plan(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *tlist, List *clauses,
		  List *custom_plans)
{
	CustomScan *scan = makeNode(CustomScan);
	List *secure = NIL;
	List *quals = NIL;
	int nbatch = 0;
	ListCell *cell;

	foreach(cell, custom_scan_order_clauses(root, rel, clauses))
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, cell);

		if (rinfo->pseudoconstant)
			continue;
		if (nbatch == list_length(quals) && is_batch_qual(root, (Node *) rinfo->clause))
			nbatch++;
		if (restriction_is_securely_promotable(rinfo, rel))
			secure = lappend_int(secure, list_length(quals));
		quals = lappend(quals, rinfo->clause);
	}
	scan->scan.plan.targetlist = tlist;
	scan->scan.scanrelid = rel->relid;
	scan->flags = path->flags;
	scan->custom_exprs = quals;
	scan->custom_private = list_concat(list_make2_int(nbatch, linitial_int(path->custom_private)),
									   list_concat(list_leaves(root, rel), secure));
	scan->methods = &custom_scan_methods;
	return &scan->scan.plan;
}

static const CustomPathMethods path_methods = {
	.CustomName = "ColumnarScan",
	.PlanCustomPath = make_plan,
};

/* ---- paths -------------------------------------------------------------------------------------- */

static CustomPath *
make_path(PlannerInfo *root, RelOptInfo *rel, const ScanFacts *facts, Relids required_outer,
		  int parallel_workers)
{
	CustomPath *path = makeNode(CustomPath);
	bool eager;

	path->path.pathtype = T_CustomScan;
	path->path.parent = rel;
	path->path.pathtarget = rel->reltarget;
	path->path.param_info = get_baserel_parampathinfo(root, rel, required_outer);
	path->path.parallel_aware = parallel_workers > 0;
	path->path.parallel_safe = rel->consider_parallel;
	path->path.parallel_workers = parallel_workers;
	path->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	if (tree_plan_find(rel) == NULL)
		path->flags |= CUSTOMPATH_SUPPORT_BACKWARD_SCAN;
	path->methods = &path_methods;
	eager = custom_scan_set_cost(root, rel, facts, &path->path);
	path->custom_private = list_make1_int(eager);
	return path;
}

/* Is the clause of use to a scan that has the other relations' values? */
static bool
is_pruning_clause(Node *clause, RelOptInfo *rel, Relation relation)
{
	AttrNumber attribute = prune_clause_attribute(clause, rel->relid, RelationGetDescr(relation));

	return attribute > 0 && custom_scan_is_clustered(RelationGetRelid(relation), attribute);
}

/* Adds the relations that a join clause needs, if they are new and the clause is of use. */
static List *
add_outer_relids(List *relids, RestrictInfo *rinfo, RelOptInfo *rel, Relation relation)
{
	Relids outer;
	ListCell *cell;

	if (!join_clause_is_movable_to(rinfo, rel) ||
		!is_pruning_clause((Node *) rinfo->clause, rel, relation))
		return relids;
	outer = bms_union(rinfo->clause_relids, rel->lateral_relids);
	outer = bms_del_member(outer, rel->relid);
	if (bms_is_empty(outer))
		return relids;
	foreach(cell, relids)
		if (bms_equal(outer, lfirst(cell)))
			return relids;
	return lappend(relids, outer);
}

/* ec_matches_callback_type: a member that is a column in the order of the rows. */
static bool
is_clustered_member(PlannerInfo *root, RelOptInfo *rel, EquivalenceClass *ec, EquivalenceMember *em,
					void *argument)
{
	Relation relation = argument;
	Node *expression = (Node *) em->em_expr;

	while (IsA(expression, RelabelType))
		expression = (Node *) ((RelabelType *) expression)->arg;
	return IsA(expression, Var) && ((Var *) expression)->varno == rel->relid &&
		   ((Var *) expression)->varattno > 0 &&
		   custom_scan_is_clustered(RelationGetRelid(relation), ((Var *) expression)->varattno);
}

static void
add_parameterized_paths(PlannerInfo *root, RelOptInfo *rel, const ScanFacts *facts)
{
	Relation relation = facts->relation;
	List *relids = NIL;
	ListCell *cell;

	foreach(cell, rel->joininfo)
		relids = add_outer_relids(relids, lfirst_node(RestrictInfo, cell), rel, relation);
	if (rel->has_eclass_joins)
	{
		List *clauses = generate_implied_equalities_for_column(root, rel, is_clustered_member,
															   relation, rel->lateral_referencers);

		foreach(cell, clauses)
			relids = add_outer_relids(relids, lfirst_node(RestrictInfo, cell), rel, relation);
	}
	foreach(cell, relids)
	{
		if (foreach_current_index(cell) >= PARAMETERIZED_PATHS_MAX)
			break;
		add_path(rel, &make_path(root, rel, facts, lfirst(cell), 0)->path);
	}
}

static List *
remove_sequential_scans(List *paths)
{
	ListCell *cell;

	foreach(cell, paths)
		if (((Path *) lfirst(cell))->pathtype == T_SeqScan)
			paths = foreach_delete_current(paths, cell);
	return paths;
}

/* The columns that the query needs of the relation; false if it asks for what the scan has not. */
static bool
collect_columns(RelOptInfo *rel, Relation relation, Bitmapset **columns)
{
	TupleDesc descriptor = RelationGetDescr(relation);
	Bitmapset *offsets = NULL;
	List *expressions = list_copy(rel->reltarget->exprs);
	int offset = -1;
	ListCell *cell;

	foreach(cell, rel->baserestrictinfo)
		expressions = lappend(expressions, lfirst_node(RestrictInfo, cell)->clause);
	foreach(cell, expressions)
		if (IsA(lfirst(cell), CurrentOfExpr))
			return false;

	pull_varattnos((Node *) expressions, rel->relid, &offsets);
	while ((offset = bms_next_member(offsets, offset)) >= 0)
	{
		AttrNumber attribute = offset + FirstLowInvalidHeapAttributeNumber;

		if (attribute < 0 && attribute != SelfItemPointerAttributeNumber &&
			attribute != TableOidAttributeNumber)
			return false;
	}
	*columns = custom_scan_add_columns(NULL, (Node *) expressions, rel->relid, descriptor);
	return true;
}

static void
add_paths(PlannerInfo *root, RelOptInfo *rel, ScanFacts *facts)
{
	Relids required_outer = rel->lateral_relids;

	if (!collect_columns(rel, facts->relation, &facts->columns))
		return;
	rel->pathlist = remove_sequential_scans(rel->pathlist);
	rel->partial_pathlist = remove_sequential_scans(rel->partial_pathlist);
	add_path(rel, &make_path(root, rel, facts, required_outer, 0)->path);
	if (columnar_enable_pruning)
		add_parameterized_paths(root, rel, facts);
	if (rel->consider_parallel && required_outer == NULL)
	{
		int workers = compute_parallel_worker(rel, rel->pages, -1, max_parallel_workers_per_gather);

		if (workers > 0)
			add_partial_path(rel, &make_path(root, rel, facts, NULL, workers)->path);
	}
}

/* The relation is a partition tree, of which core has made nothing. */
static void
add_tree_paths(PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte)
{
	Relation relation = table_open(rte->relid, NoLock);

	if (tree_plan_prepare(root, rel, relation))
	{
		ScanFacts facts;

		custom_scan_collect_facts(&facts, rel, relation);
		add_paths(root, rel, &facts);
		if (rel->pathlist == NIL)
			elog(ERROR, "no way to read partitions of relation %u", rte->relid);
	}
	table_close(relation, NoLock);
}

static PathTarget *
make_target(const RelOptInfo *rel, Relation relation, const Bitmapset *columns)
{
	PathTarget *target = create_empty_pathtarget();
	int column = -1;

	while ((column = bms_next_member(columns, column)) >= 0)
	{
		Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(relation), column - 1);

		add_column_to_pathtarget(target,
								 (Expr *) makeVar(rel->relid, column, attribute->atttypid,
												  attribute->atttypmod, attribute->attcollation, 0),
								 0);
	}
	return target;
}

CustomPath *
custom_scan_make_batch_path(PlannerInfo *root, RelOptInfo *rel, Bitmapset *columns,
							int parallel_workers)
{
	RangeTblEntry *rte = planner_rt_fetch(rel->relid, root);
	Relation relation = table_open(rte->relid, NoLock);
	PathTarget *before = rel->reltarget;
	CustomPath *path = NULL;
	ScanFacts facts;

	rel->reltarget = make_target(rel, relation, columns);
	custom_scan_collect_facts(&facts, rel, relation);
	facts.batches = true;
	if (collect_columns(rel, relation, &facts.columns))
		path = make_path(root, rel, &facts, NULL, parallel_workers);
	rel->reltarget = before;
	table_close(relation, NoLock);
	return path;
}

static void
set_pathlist(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	Relation relation;

	if (previous_pathlist_hook)
		previous_pathlist_hook(root, rel, rti, rte);

	if (tree_plan_find(rel) != NULL)
	{
		add_tree_paths(root, rel, rte);
		return;
	}
	if (rel->rtekind != RTE_RELATION || rte->inh || rte->tablesample != NULL || IS_DUMMY_REL(rel) ||
		(rte->relkind != RELKIND_RELATION && rte->relkind != RELKIND_MATVIEW))
		return;
	relation = table_open(rte->relid, NoLock);
	if (columnar_is_table(relation))
	{
		ScanFacts facts;

		custom_scan_collect_facts(&facts, rel, relation);
		index_cost_charge(root, rel, &facts);
		if (columnar_enable_custom_scan)
			add_paths(root, rel, &facts);
	}
	table_close(relation, NoLock);
}

void
custom_scan_initialize(void)
{
	if (GetCustomScanMethods(custom_scan_methods.CustomName, true) != NULL)
		ereport(
			ERROR,
			(errcode(ERRCODE_DUPLICATE_OBJECT),
			 errmsg("strata_columnar cannot be loaded together with another columnar extension"),
			 errdetail("A custom scan of the name \"%s\" is registered already.",
					   custom_scan_methods.CustomName),
			 errhint("Remove the other extension's library from shared_preload_libraries.")));
	batch_source_register(&custom_scan_methods, BATCH_ROLE_SOURCE);
	previous_pathlist_hook = set_rel_pathlist_hook;
	set_rel_pathlist_hook = set_pathlist;
}
