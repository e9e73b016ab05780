/*
 * plan_scan.c
 *		Base relations: where their rows are and how they come here.
 *
 * A distributed table's own paths (sequential and index scans of the empty
 * shell) are replaced by a Gather.  Reference tables keep core's paths: the
 * coordinator's copy is read locally unless the table is joined to rows that lie
 * on workers.  A derived table lies where its query's final path says.
 *
 * WHERE clauses go to the workers if they are shippable and may be evaluated
 * before the clauses of row security: clauses of a higher security level go only
 * if they are leakproof.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/sysattr.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/restrictinfo.h"
#include "parser/parsetree.h"
#include "partitioning/partdesc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "compat.h"
#include "plan/gather_plan.h"
#include "plan/plan_row_change.h"
#include "plan/planner.h"
#include "plan/shippable.h"
#include "plan/shippable_object.h"

/* The junk column by which a row mark that does not lock finds its row again; NULL without one. */
static TargetEntry *
find_mark_column(PlannerInfo *root, const PlanRowMark *mark)
{
	char *name = psprintf("ctid%u", mark->rowmarkId);
	ListCell *lc;

	foreach(lc, root->processed_tlist)
	{
		TargetEntry *tle = lfirst(lc);

		if (tle->resjunk && tle->resname != NULL && strcmp(tle->resname, name) == 0)
			return tle;
	}
	return NULL;
}

static void
remove_junk_column(PlannerInfo *root, TargetEntry *column)
{
	ListCell *lc;

	root->processed_tlist = list_delete_ptr(list_copy(root->processed_tlist), column);
	foreach(lc, root->processed_tlist)
		((TargetEntry *) lfirst(lc))->resno = foreach_current_index(lc) + 1;
}

/*
 * Rows that a statement reads beside those that it changes or locks: core would note
 * their ctid, to fetch them once more when such a row has changed meanwhile.  That of a
 * row on a worker leads nowhere here, and a worker's copy of a reference table has
 * others than this server's.  So reference tables bring the row itself along, as
 * foreign tables do, and distributed ones nothing: a Gather cannot be rechecked.  Nor is anything rechecked here of a
 * statement that changes a distributed table.
 *
 * Called before core collects the columns that scans have to bring.
 */
static void
replace_row_mark(PlannerInfo *root, Index rti, bool remove)
{
	ListCell *lc;

	foreach(lc, root->rowMarks)
	{
		PlanRowMark *mark = lfirst(lc);
		TargetEntry *column;

		if (mark->rti != rti || mark->markType != ROW_MARK_REFERENCE)
			continue;
		column = find_mark_column(root, mark);
		if (column == NULL)
			continue;
		if (remove)
		{
			remove_junk_column(root, column);
			root->rowMarks = foreach_delete_current(root->rowMarks, lc);
			continue;
		}
		mark->markType = ROW_MARK_COPY;
		mark->allMarkTypes = 1 << ROW_MARK_COPY;
		column->expr = (Expr *) makeWholeRowVar(planner_rt_fetch(rti, root), rti, 0, false);
		column->resname = psprintf("wholerow%u", mark->rowmarkId);
	}
}

typedef struct CtidContext
{
	Index rti;
	Index level; /* below the level of rti */
} CtidContext;

/* Does the statement itself name the ctid of rti's rows? */
static bool
walk_ctid(Node *node, CtidContext *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var))
	{
		Var *var = (Var *) node;

		return var->varattno == SelfItemPointerAttributeNumber && var->varno == context->rti &&
			   var->varlevelsup == context->level;
	}
	if (IsA(node, TargetEntry))
	{
		TargetEntry *tle = (TargetEntry *) node;

		/* added by the planner, for rows that it changes or locks; ORDER BY's have no name */
		if (tle->resjunk && tle->resname != NULL && IsA(tle->expr, Var))
			return false;
	}
	if (IsA(node, Query))
	{
		bool found;

		context->level++;
		found = query_tree_walker((Query *) node, walk_ctid, context, 0);
		context->level--;
		return found;
	}
	return expression_tree_walker(node, walk_ctid, context);
}

/*
 * A ctid is a row's place in one leaf on one worker: rows of other leaves have the same, and a
 * statement that looks for it would find all of them.  So it is neither shown nor looked for.
 */
void
plan_scan_check_ctid(PlannerInfo *root, Index rti)
{
	CtidContext context = {.rti = rti};

	if (query_tree_walker(root->parse, walk_ctid, &context, 0))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot use ctid of distributed table \"%s\"",
						get_rel_name(planner_rt_fetch(rti, root)->relid)),
				 errdetail("A ctid is a row's place on one worker, where other rows of the table "
						   "may be on another."),
				 errhint("Name rows by a key. Clients that use ctid by themselves, such as "
						 "postgres_fdw for an UPDATE or DELETE that it cannot send whole, need "
						 "statements by key, too.")));
}

const DistributedTable *
plan_scan_changed_table(const Query *query)
{
	const DistributedTable *table = query->resultRelation > 0
										? metadata_table(
											  rt_fetch(query->resultRelation, query->rtable)->relid)
										: NULL;

	return table != NULL && table->kind == TABLE_DISTRIBUTED ? table : NULL;
}

void
plan_scan_relation_info(PlannerInfo *root, RelOptInfo *rel)
{
	const RangeTblEntry *rte = planner_rt_fetch(rel->relid, root);
	const DistributedTable *table = metadata_table(rte->relid);
	bool remove;

	if (table == NULL)
		return;
	/* else core would make a Parallel Seq Scan of the shell */
	if (table->kind == TABLE_DISTRIBUTED)
	{
		rel->rel_parallel_workers = 0;
		plan_scan_check_ctid(root, rel->relid);
	}

	/* else the rows of a tree are this server's own: core finds them by ctid and tableoid */
	remove = table->kind == TABLE_DISTRIBUTED || plan_scan_changed_table(root->parse) != NULL;
	if (remove || (!rte->inh && rel->reloptkind == RELOPT_BASEREL))
		replace_row_mark(root, rel->relid, remove);
}

static Node *
make_from_ref(Index rti)
{
	RangeTblRef *ref = makeNode(RangeTblRef);

	ref->rtindex = rti;
	return (Node *) ref;
}

static DistPath *
make_base_path(PlannerInfo *root, RelOptInfo *rel, Index rti)
{
	DistPath *path = palloc0(sizeof(DistPath));

	path->root = root;
	path->relids = bms_copy(rel->relids);
	path->from = list_make1(make_from_ref(rti));
	path->rows = rel->rows;
	return path;
}

/* FOR UPDATE and its like: the lock is taken by the worker's scan; core's LockRows must not see it. */
static void
take_row_mark(PlannerInfo *root, DistPath *path, Index rti)
{
	ListCell *lc;

	foreach(lc, root->rowMarks)
	{
		PlanRowMark *mark = lfirst(lc);
		DistLock *lock;

		if (mark->rti != rti)
			continue;
		if (mark->markType <= ROW_MARK_KEYSHARE)
		{
			lock = palloc0(sizeof(DistLock));
			lock->rti = rti;
			lock->strength = mark->strength;
			lock->wait_policy = mark->waitPolicy;
			path->locks = list_make1(lock);
			root->rowMarks = foreach_delete_current(root->rowMarks, lc);
		}
	}
}

static bool
has_row_mark(PlannerInfo *root, Index rti)
{
	ListCell *lc;

	foreach(lc, root->rowMarks)
	{
		PlanRowMark *mark = lfirst(lc);

		if (mark->rti == rti && mark->markType <= ROW_MARK_KEYSHARE)
			return true;
	}
	return false;
}

/* Expressions that a scan must bring: its columns that are used above and by the clauses evaluated here. */
static List *
collect_fetch(RelOptInfo *rel, List *local_quals)
{
	List *exprs = list_concat_copy(rel->reltarget->exprs, local_quals);
	List *columns = NIL;
	ListCell *lc;

	exprs = pull_var_clause((Node *) exprs, PVC_RECURSE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS |
												PVC_RECURSE_PLACEHOLDERS);
	foreach(lc, exprs)
	{
		if (((Var *) lfirst(lc))->varno == rel->relid)
			columns = lappend(columns, lfirst(lc));
	}
	return columns;
}

List *
plan_scan_fetch(RelOptInfo *rel)
{
	return rel->reloptkind == RELOPT_BASEREL ? collect_fetch(rel, NIL) : rel->reltarget->exprs;
}

/* A Gather of one relation; what its target takes from a row of another one (LATERAL) comes as a parameter. */
static void
add_scan_gather(PlannerInfo *root, RelOptInfo *rel, DistPath *path, List *local_quals)
{
	ParamPathInfo *outer = get_baserel_parampathinfo(root, rel, rel->lateral_relids);
	Path *gather;

	if (plan_row_change_is_target(root, path))
	{
		add_path(rel, plan_row_change_scan(root, rel, path, collect_fetch(rel, local_quals),
										   local_quals));
		return;
	}

	/* core gives clauses with the other relation to the scan, where that is known */
	if (outer != NULL)
		local_quals = list_concat_copy(local_quals,
									   extract_actual_clauses(outer->ppi_clauses, false));
	gather = gather_path_create(root, rel, path, rel->reltarget, collect_fetch(rel, local_quals),
								local_quals, NIL);
	gather->param_info = outer;
	if (outer != NULL)
		gather->rows = outer->ppi_rows;
	add_path(rel, gather);
}

/* A worker's cost of the scan, all workers working at once. */
static Cost
estimate_scan_cost(RelOptInfo *rel, const Locus *locus, double tuples)
{
	double share = tuples / locus_worker_count(locus);

	/* with the key known, the worker reads one shard and has an index more often than not */
	if (locus_is_single(locus))
		share = Min(share, rel->rows * 10 + 10);
	return share * (cpu_tuple_cost + rel->baserestrictcost.per_tuple) +
		   rel->baserestrictcost.startup;
}

/* TABLESAMPLE runs on the workers or not at all. */
static void
check_sample(PlannerInfo *root, RangeTblEntry *rte)
{
	TableSampleClause *sample = rte->tablesample;

	if (sample != NULL && (!shippable_expr(root, NULL, (Node *) sample->args, NULL) ||
						   !shippable_expr(root, NULL, (Node *) sample->repeatable, NULL) ||
						   contain_var_clause((Node *) sample->args)))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("TABLESAMPLE of distributed table \"%s\" depends on other rows",
							   get_rel_name(rte->relid)),
						errhint("Use arguments that have one value for the whole statement.")));
}

static void
plan_distributed_table(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte,
					   const DistributedTable *table)
{
	DistPath *path = make_base_path(root, rel, rti);
	DistPath *gathered;
	List *local_quals = NIL;
	List *outer_quals = NIL;
	List *clauses = NIL;
	Oid key_type;
	int32 key_typmod;
	Oid key_collation;
	ListCell *lc;

	get_atttypetypmodcoll(rte->relid, table->key_attribute, &key_type, &key_typmod, &key_collation);
	path->locus.kind = LOCUS_HASHED;
	check_sample(root, rte);
	path->locus.colocation_id = table->colocation->id;
	path->locus.keys = list_make1(
		makeVar(rti, table->key_attribute, key_type, key_typmod, key_collation, 0));
	take_row_mark(root, path, rti);

	foreach(lc, rel->baserestrictinfo)
	{
		RestrictInfo *rinfo = lfirst(lc);
		Relids outer_params = NULL;

		clauses = lappend(clauses, rinfo->clause);
		if (rinfo->security_level > rel->baserestrict_min_security && !rinfo->leakproof)
			local_quals = lappend(local_quals, rinfo->clause);
		else if (!shippable_expr(root, &path->locus, (Node *) rinfo->clause, &outer_params))
			local_quals = lappend(local_quals, rinfo->clause);
		else if (outer_params != NULL)
		{
			outer_quals = lappend(outer_quals, rinfo->clause);
			path->outer_params = bms_add_members(path->outer_params, outer_params);
		}
		else
			path->quals = lappend(path->quals, rinfo->clause);
	}
	locus_restrict(root, &path->locus, list_concat_copy(path->quals, outer_quals));
	path->cost = estimate_scan_cost(rel, &path->locus, rel->tuples);

	/*
	 * Gathered, the clauses that depend on an outer row are evaluated here, over
	 * rows that are kept: sending the statement again for each outer row would be
	 * a cliff.
	 */
	gathered = dist_path_copy(path);
	gathered->locus.outer_routes = NIL;
	gathered->outer_params = NULL;
	if (outer_quals != NIL)
		gathered->rows = clamp_row_est(rel->tuples);
	local_quals = list_concat(local_quals, outer_quals);
	if (!IS_DUMMY_REL(rel))
	{
		rel->pathlist = NIL;
		rel->partial_pathlist = NIL;
		add_scan_gather(root, rel, gathered, local_quals);
	}

	/* what the workers cannot evaluate keeps everything above it here */
	if (list_length(local_quals) == list_length(outer_quals))
	{
		path->quals = list_concat_copy(path->quals, outer_quals);
		dist_path_add(rel, path);
	}
}

/* All clauses of a relation in path->quals; false if one is not shippable. */
static bool
take_all_quals(PlannerInfo *root, RelOptInfo *rel, DistPath *path)
{
	ListCell *lc;

	foreach(lc, rel->baserestrictinfo)
	{
		RestrictInfo *rinfo = lfirst(lc);

		if (rinfo->security_level > rel->baserestrict_min_security && !rinfo->leakproof)
			return false;
		if (!shippable_expr(root, &path->locus, (Node *) rinfo->clause, &path->outer_params))
			return false;
		path->quals = lappend(path->quals, rinfo->clause);
	}
	return true;
}

/*
 * Is a partition of a table of the query being detached CONCURRENTLY?  New queries here do without its rows, while the
 * workers have it until that is done.
 */
static bool
is_being_detached(PlannerInfo *root)
{
	ListCell *lc;

	foreach(lc, root->parse->rtable)
	{
		RangeTblEntry *rte = lfirst(lc);
		Relation relation;
		bool detached;

		if (rte->rtekind != RTE_RELATION || rte->relkind != RELKIND_PARTITIONED_TABLE)
			continue;
		relation = table_open(rte->relid, NoLock);
		detached = RelationGetPartitionDesc(relation, true)->detached_exist;
		table_close(relation, NoLock);
		if (detached)
			return true;
	}
	return false;
}

static void
plan_reference_table(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	DistPath *path;

	/* its rows are changed and locked on the coordinator's copy, which the plan finds by their ctid */
	if (bms_is_member(rti, root->all_result_relids) || has_row_mark(root, rti) ||
		(rte->inh && is_being_detached(root)))
		return;
	path = make_base_path(root, rel, rti);
	path->locus.kind = LOCUS_REPLICATED;
	if (!take_all_quals(root, rel, path))
		return;
	path->cost = rel->tuples * (cpu_tuple_cost + rel->baserestrictcost.per_tuple);
	dist_path_add(rel, path);
}

/* VALUES, functions of constants, and the one row of a SELECT without FROM: the same wherever they are evaluated. */
static void
plan_computed_rows(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	DistPath *path = make_base_path(root, rel, rti);
	ListCell *lc;

	path->locus.kind = LOCUS_REPLICATED;
	if (rte->rtekind == RTE_VALUES)
	{
		if (contain_volatile_functions((Node *) rte->values_lists) ||
			!shippable_expr(root, &path->locus, (Node *) rte->values_lists, NULL))
			return;
	}
	foreach(lc, rte->functions)
	{
		RangeTblFunction *function = lfirst(lc);
		FuncExpr *call = (FuncExpr *) function->funcexpr;

		if (!IsA(call, FuncExpr) || function->funccolnames != NIL ||
			func_volatile(call->funcid) != PROVOLATILE_IMMUTABLE ||
			!shippable_object(ProcedureRelationId, call->funcid) ||
			!shippable_expr(root, &path->locus, (Node *) call->args, NULL))
			return;
	}
	if (!take_all_quals(root, rel, path))
		return;
	path->cost = rel->rows * cpu_tuple_cost;
	dist_path_add(rel, path);
}

/* Columns of a derived table that carry the keys of its query. */
static List *
map_keys(DistPath *sub, Index rti)
{
	List *keys = NIL;
	ListCell *lc;

	foreach(lc, sub->target)
	{
		TargetEntry *tle = lfirst(lc);

		if (!tle->resjunk && locus_has_key(sub->root, &sub->locus, (Node *) tle->expr))
			keys = lappend(keys, makeVarFromTargetEntry(rti, tle));
	}
	return keys;
}

static void
plan_derived_table(PlannerInfo *root, RelOptInfo *rel, Index rti)
{
	ListCell *lc;

	foreach(lc, dist_paths(fetch_upper_rel(rel->subroot, UPPERREL_FINAL, NULL)))
	{
		DistPath *sub = lfirst(lc);
		DistPath *path;
		DistSub *entry;

		if (sub->locks != NIL)
			continue;
		path = make_base_path(root, rel, rti);
		path->locus = sub->locus;
		path->locus.keys = map_keys(sub, rti);
		path->outer_params = bms_copy(sub->outer_params);
		path->lateral = rel->subplan_params;
		path->ordered = sub->sort_clause != NIL || sub->ordered;
		entry = palloc(sizeof(DistSub));
		entry->rti = rti;
		entry->path = sub;
		path->subs = list_make1(entry);
		path->cost = sub->cost + rel->rows * cpu_operator_cost / locus_worker_count(&sub->locus);
		if (!take_all_quals(root, rel, path))
			continue;
		locus_restrict(root, &path->locus, path->quals);
		dist_path_add(rel, path);

		/* sorted rows come by core's scan of the sub-select, whose Gather merges them */
		if (path->locus.kind == LOCUS_HASHED && path->outer_params == NULL &&
			!dist_path_loses_order(path) && gather_can_fetch(collect_fetch(rel, NIL)))
			add_path(rel, gather_path_create(root, rel, path, rel->reltarget,
											 collect_fetch(rel, NIL), NIL, NIL));
	}
}

void
plan_scan(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	const DistributedTable *table;

	/* a table that core proves to be empty, as policies may say, is that on the workers, too, with what it is joined to */
	if (IS_DUMMY_REL(rel) && (rte->rtekind != RTE_RELATION || rte->tablesample != NULL ||
							  rti == root->parse->resultRelation || has_row_mark(root, rti)))
		return;

	switch (rte->rtekind)
	{
		case RTE_RELATION:
			if (rte->relkind != RELKIND_RELATION && rte->relkind != RELKIND_PARTITIONED_TABLE)
				return;
			table = metadata_table(rte->relid);
			if (table == NULL)
				return;
			if (table->kind == TABLE_DISTRIBUTED)
				plan_distributed_table(root, rel, rti, rte, table);
			else if (rel->reloptkind == RELOPT_BASEREL && rel->lateral_relids == NULL &&
					 rte->tablesample == NULL)
				plan_reference_table(root, rel, rti, rte);
			return;
		case RTE_SUBQUERY:
			/* a flattened UNION ALL has no root of its own */
			if (rte->inh)
				plan_append(root, rel, rti, rte);
			else if (rel->subroot != NULL &&
					 (rel->lateral_relids == NULL || rel->subplan_params != NIL) &&
					 !rte->security_barrier)
				plan_derived_table(root, rel, rti);
			return;
		case RTE_VALUES:
		case RTE_FUNCTION:
		case RTE_RESULT:
			if (rel->reloptkind == RELOPT_BASEREL && rel->lateral_relids == NULL && !rte->lateral)
				plan_computed_rows(root, rel, rti, rte);
			return;
		default:
			return;
	}
}
