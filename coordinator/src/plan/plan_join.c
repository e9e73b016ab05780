/*
 * plan_join.c
 *		Joins whose sides meet on the workers.
 *
 * The hook is called for every pair of sides and both orders; a joined DistPath
 * does not depend on the order in which it was put together (the workers plan
 * their own), so the first one per kind of locus stands for all.
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/restrictinfo.h"

#include "compat.h"
#include "plan/distinct_partners.h"
#include "plan/gather_plan.h"
#include "plan/hash_join.h"
#include "plan/partner_keys.h"
#include "plan/plan_row_change.h"
#include "plan/planner.h"
#include "plan/shippable.h"
#include "plan/slice_path.h"
#include "server/settings.h"

/* The alternative that can already do all that this one could; NULL when there is none. */
static DistPath *
find_known(RelOptInfo *joinrel, const Locus *locus)
{
	ListCell *lc;

	foreach(lc, dist_paths(joinrel))
	{
		DistPath *path = lfirst(lc);
		const Locus *known = &path->locus;

		if (known->kind == locus->kind && known->colocation_id == locus->colocation_id &&
			(known->keys != NIL || locus->keys == NIL) &&
			(locus_is_single(known) || !locus_is_single(locus)))
			return path;
	}
	return NULL;
}

/* FROM items as one item, for the side of an outer join. */
static Node *
make_single_item(List *from)
{
	Node *item = linitial(from);

	for (int i = 1; i < list_length(from); i++)
	{
		JoinExpr *join = makeNode(JoinExpr);

		join->jointype = JOIN_INNER;
		join->larg = item;
		join->rarg = list_nth(from, i);
		item = (Node *) join;
	}
	return item;
}

/* Split the join's clauses into its own (ON) and those applied above it (WHERE). */
static void
split_clauses(List *restrictlist, RelOptInfo *joinrel, JoinType jointype, List **on, List **where)
{
	ListCell *lc;

	*on = *where = NIL;
	foreach(lc, restrictlist)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);

		if (IS_OUTER_JOIN(jointype) && RINFO_IS_PUSHED_DOWN(rinfo, joinrel->relids))
			*where = lappend(*where, rinfo->clause);
		else
			*on = lappend(*on, rinfo->clause);
	}
}

/* Put the two sides together as SQL; false where this level of SQL cannot say it. */
static bool
combine_sides(DistPath *path, DistPath *outer, DistPath *inner, JoinType jointype, List *on,
			  List *where)
{
	JoinExpr *join;
	DistSemiJoin *semijoin;

	path->subs = list_concat_copy(outer->subs, inner->subs);
	path->locks = list_concat_copy(outer->locks, inner->locks);
	path->semijoins = outer->semijoins;
	path->aliases = list_concat_copy(outer->aliases, inner->aliases);
	path->quals = list_concat_copy(outer->quals, where);
	path->nulled = outer->nulled;
	path->relids = bms_union(outer->relids, inner->relids);

	switch (jointype)
	{
		case JOIN_INNER:
			path->from = list_concat_copy(outer->from, inner->from);
			path->quals = list_concat(list_concat(path->quals, inner->quals), on);
			path->semijoins = list_concat_copy(outer->semijoins, inner->semijoins);
			path->nulled = bms_union(outer->nulled, inner->nulled);
			return true;

		case JOIN_LEFT:
		case JOIN_FULL:
			/* the nullable side's WHERE moves into ON; EXISTS and nulled columns have no place there */
			if (inner->semijoins != NIL || inner->nulled != NULL)
				return false;
			if (jointype == JOIN_FULL && (outer->quals != NIL || inner->quals != NIL ||
										  outer->semijoins != NIL || outer->nulled != NULL))
				return false;
			join = makeNode(JoinExpr);
			join->jointype = jointype;
			join->larg = make_single_item(outer->from);
			join->rarg = make_single_item(inner->from);
			join->quals = (Node *) list_concat_copy(on, inner->quals);
			path->from = list_make1(join);
			return true;

		case JOIN_SEMI:
		case JOIN_ANTI:
			if (inner->locks != NIL)
				return false;
			semijoin = palloc(sizeof(DistSemiJoin));
			semijoin->inner = inner;
			semijoin->clauses = on;
			semijoin->anti = jointype == JOIN_ANTI;
			path->from = outer->from;
			path->subs = outer->subs;
			path->aliases = outer->aliases;
			path->relids = bms_copy(outer->relids);
			path->semijoins = list_concat_copy(outer->semijoins, list_make1(semijoin));
			if (jointype == JOIN_ANTI)
				path->nulled = bms_union(bms_union(outer->nulled, inner->relids), inner->nulled);
			return true;

		default:
			return false;
	}
}

/* An expression of the outer side that is known equal to a column of the inner one. */
static Expr *
find_equal_outer(PlannerInfo *root, Var *var, Relids outer_relids)
{
	ListCell *lc;

	foreach(lc, root->eq_classes)
	{
		EquivalenceClass *ec = lfirst(lc);
		EquivalenceMember *outer = NULL;
		bool found = false;
		ListCell *lc2;

		if (ec->ec_has_volatile)
			continue;
		foreach(lc2, ec->ec_members)
		{
			EquivalenceMember *em = lfirst(lc2);

			if (em->em_is_child)
				continue;
			found = found || equal(em->em_expr, var);
			if (!em->em_is_const && bms_is_subset(em->em_relids, outer_relids) &&
				exprType((Node *) em->em_expr) == var->vartype)
				outer = em;
		}
		if (found && outer != NULL)
			return outer->em_expr;
	}
	return NULL;
}

/* Is the whole row asked for only to be rechecked (plan_scan.c)? */
static bool
is_copied_by_mark(PlannerInfo *root, Var *var)
{
	ListCell *lc;

	foreach(lc, root->rowMarks)
	{
		PlanRowMark *mark = lfirst(lc);

		if (var->varattno == 0 && mark->rti == var->varno && mark->markType == ROW_MARK_COPY)
			return true;
	}
	return false;
}

/* Columns that a semi join hides but that are used above it; false when one has no equal. */
static bool
add_aliases(PlannerInfo *root, RelOptInfo *joinrel, DistPath *path, DistPath *outer,
			DistPath *inner)
{
	ListCell *lc;

	foreach(lc, joinrel->reltarget->exprs)
	{
		Var *var = lfirst(lc);
		DistAlias *alias;

		if (!bms_is_member(var->varno, inner->relids))
			continue;
		alias = palloc(sizeof(DistAlias));
		alias->var = var;
		alias->expr = find_equal_outer(root, var, outer->relids);
		/* a Gather is not rechecked, so that nobody looks at the row */
		if (alias->expr == NULL && is_copied_by_mark(root, var))
			alias->expr = (Expr *) makeNullConst(var->vartype, var->vartypmod, var->varcollid);
		if (alias->expr == NULL)
			return false;
		path->aliases = lappend(list_copy(path->aliases), alias);
	}
	return true;
}

/* Have some of these relations policies, or parts that may have some (UNION ALL)? */
static bool
has_policies(PlannerInfo *root, Relids relids)
{
	int rti = -1;

	while ((rti = bms_next_member(relids, rti)) >= 0)
	{
		RangeTblEntry *rte = root->simple_rte_array[rti];

		/* outer joins are in relids, too, since 16 */
		if (rte != NULL && rte->rtekind != RTE_JOIN &&
			(rte->securityQuals != NIL || (rte->inh && rte->rtekind != RTE_RELATION)))
			return true;
	}
	return false;
}

/* Could evaluating a clause too early tell something about rows that policies hide? */
static bool
can_leak(PlannerInfo *root, List *restrictlist)
{
	ListCell *lc;

	if (root->qual_security_level == 0)
		return false;
	foreach(lc, restrictlist)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);

		if (has_policies(root, rinfo->clause_relids) && contain_leaked_vars((Node *) rinfo->clause))
			return true;
	}
	return false;
}

/* May workers be asked for the system columns among these? */
static bool
can_fetch_system_columns(PlannerInfo *root, List *exprs)
{
	ListCell *lc;

	foreach(lc, exprs)
	{
		Var *var = lfirst(lc);

		if (var->varattno < 0 && !shippable_system_column(root, var))
			return false;
	}
	return true;
}

/* Values that an outer join nulls although they are not columns. */
static bool
brings_nulled_values(RelOptInfo *joinrel)
{
	ListCell *lc;

	foreach(lc, joinrel->reltarget->exprs)
	{
		if (!IsA(lfirst(lc), Var))
			return true;
	}
	return false;
}

bool
plan_join_can_fetch(PlannerInfo *root, RelOptInfo *rel, List *fetch)
{
	return (rel->reloptkind == RELOPT_BASEREL || !brings_nulled_values(rel)) &&
		   gather_can_fetch(fetch) && can_fetch_system_columns(root, fetch);
}

static void
add_gather(PlannerInfo *root, RelOptInfo *joinrel, DistPath *path)
{
	List *fetch = joinrel->reltarget->exprs;
	Path *gather;

	if (path->locus.kind != LOCUS_HASHED || path->outer_params != NULL ||
		!plan_join_can_fetch(root, joinrel, fetch))
		return;
	if (plan_row_change_is_target(root, path))
		gather = plan_row_change_scan(root, joinrel, path, fetch, NIL);
	else
		gather = gather_path_create(root, joinrel, path, joinrel->reltarget, fetch, NIL, NIL);
	if (gather != NULL)
		add_path(joinrel, gather);
}

static DistPath *
without_order(DistPath *path)
{
	if (!path->ordered)
		return path;
	path = dist_path_copy(path);
	dist_path_forget_order(path);
	return path;
}

/*
 * Where do the rows of a join with a LATERAL sub-select lie?  False when it does not find its own rows where those of the
 * outer side are.
 */
static bool
locate_lateral(PlannerInfo *root, DistPath *outer, DistPath *inner, JoinType jointype,
			   Locus *result)
{
	bool routed = false; /* one worker has all that one outer row needs */
	bool meets = false;	 /* ... and that is the outer row's own */
	List *keys = NIL;
	ListCell *lc;

	if (outer->lateral != NIL || (jointype != JOIN_INNER && jointype != JOIN_LEFT))
		return false;
	foreach(lc, inner->lateral)
	{
		PlannerParamItem *item = lfirst(lc);
		Var *var = (Var *) item->item;

		if (!IsA(var, Var) || !bms_is_member(var->varno, outer->relids) ||
			bms_is_member(var->varno, outer->nulled))
			return false;
		if (!list_member_int(inner->locus.outer_routes, item->paramId))
			continue;
		routed = true;
		keys = lappend(keys, var);
		meets = meets || (outer->locus.kind == LOCUS_HASHED &&
						  outer->locus.colocation_id == inner->locus.colocation_id &&
						  locus_has_key(root, &outer->locus, (Node *) var));
	}
	if (meets || inner->locus.kind == LOCUS_REPLICATED)
	{
		*result = outer->locus;
		return true;
	}
	if (outer->locus.kind != LOCUS_REPLICATED || jointype != JOIN_INNER ||
		(routed && !dist_path_is_empty_elsewhere(inner)))
		return false;
	*result = inner->locus;
	result->keys = list_concat_copy(inner->locus.keys, keys);
	foreach(lc, inner->lateral)
		result->outer_routes = list_difference_int(
			result->outer_routes, list_make1_int(((PlannerParamItem *) lfirst(lc))->paramId));
	return true;
}

/* The outer parameters of a join: a LATERAL sub-select's come from within. */
static Relids
join_outer_params(DistPath *outer, DistPath *inner)
{
	Relids result = bms_union(outer->outer_params, inner->outer_params);
	ListCell *lc;

	foreach(lc, inner->lateral)
		result = bms_del_member(result, ((PlannerParamItem *) lfirst(lc))->paramId);
	return bms_is_empty(result) ? NULL : result; /* before 17 an empty set is no null pointer */
}

static void
join_paths(PlannerInfo *root, RelOptInfo *joinrel, DistPath *outer, DistPath *inner,
		   JoinType jointype, List *restrictlist)
{
	DistPath *path = palloc0(sizeof(DistPath));
	List *on;
	List *where;
	DistPath *known;
	int workers;

	split_clauses(restrictlist, joinrel, jointype, &on, &where);
	if (inner->lateral != NIL || outer->lateral != NIL
			? !locate_lateral(root, outer, inner, jointype, &path->locus)
			: !locus_join(root, &outer->locus, &inner->locus, jointype, on, &path->locus))
		return;
	workers = locus_worker_count(&path->locus);
	path->cost = outer->cost +
				 inner->cost * (inner->lateral != NIL ? Max(outer->rows / workers, 1) : 1) +
				 (outer->rows + inner->rows) / workers * cpu_operator_cost *
					 Max(list_length(on), 1) +
				 joinrel->rows / workers * cpu_tuple_cost;

	/* The SQL is the same in whatever order it was put together: the workers take the best one. */
	known = find_known(joinrel, &path->locus);
	if (known != NULL)
	{
		if (path->cost < known->cost)
		{
			known->cost = path->cost;
			add_gather(root, joinrel, known);
		}
		return;
	}

	path->root = root;
	path->outer_params = join_outer_params(outer, inner);
	if (!shippable_expr(root, &path->locus, (Node *) on, &path->outer_params) ||
		!shippable_expr(root, &path->locus, (Node *) where, &path->outer_params))
		return;
	/* in which order a join meets rows is the planner's choice, in PostgreSQL, too */
	outer = without_order(outer);
	inner = without_order(inner);
	if (!combine_sides(path, outer, inner, jointype, on, where))
		return;
	if (jointype == JOIN_SEMI && !add_aliases(root, joinrel, path, outer, inner))
		return;

	path->rows = joinrel->rows;
	dist_path_add(joinrel, path);
	add_gather(root, joinrel, path);
}

/* The expression of the outer side by which a join with a hashed inner side is by its key; NULL if it is not. */
static Node *
find_outer_key(PlannerInfo *root, DistPath *outer, DistPath *inner, List *restrictlist)
{
	ListCell *lc;

	foreach(lc, inner->lateral)
	{
		PlannerParamItem *item = lfirst(lc);

		if (list_member_int(inner->locus.outer_routes, item->paramId) && IsA(item->item, Var) &&
			bms_is_member(((Var *) item->item)->varno, outer->relids))
			return item->item;
	}
	foreach(lc, restrictlist)
	{
		OpExpr *op = (OpExpr *) lfirst_node(RestrictInfo, lc)->clause;

		if (!IsA(op, OpExpr) || list_length(op->args) != 2)
			continue;
		for (int side = 0; side < 2; side++)
		{
			Node *key = list_nth(op->args, side);

			if (locus_has_key(root, &inner->locus, list_nth(op->args, 1 - side)) &&
				contain_var_clause(key) && bms_is_subset(pull_varnos(root, key), outer->relids))
				return key;
		}
	}
	return NULL;
}

/* Join with each worker's slice of replicated rows, where the join has to meet each of them once. */
static void
join_slices(PlannerInfo *root, RelOptInfo *joinrel, DistPath *outer, DistPath *inner,
			JoinType jointype, List *restrictlist)
{
	Node *key;
	DistPath *slice;

	if (outer->locus.kind != LOCUS_REPLICATED || inner->locus.kind != LOCUS_HASHED ||
		(jointype == JOIN_INNER ? inner->lateral == NIL : jointype == JOIN_FULL) ||
		(key = find_outer_key(root, outer, inner, restrictlist)) == NULL ||
		(slice = slice_path(outer, inner, key)) == NULL)
		return;
	join_paths(root, joinrel, slice, inner, jointype, restrictlist);
}

void
plan_join(PlannerInfo *root, RelOptInfo *joinrel, RelOptInfo *outerrel, RelOptInfo *innerrel,
		  JoinType jointype, JoinPathExtraData *extra)
{
	List *clauses;
	ListCell *lc;
	ListCell *lc2;

	if (!strata_enable_join_pushdown || joinrel->fdwroutine != NULL ||
		compat_is_grouped_join(joinrel) || joinrel->lateral_relids != NULL ||
		IS_OTHER_REL(joinrel) || can_leak(root, extra->restrictlist))
		return;
	clauses = hash_join_clauses(joinrel, outerrel, innerrel, jointype, extra->restrictlist);
	if (clauses != NIL)
	{
		partner_keys_join(root, joinrel, outerrel, innerrel, jointype, extra, clauses);
		distinct_partners_join(root, joinrel, outerrel, innerrel, jointype, extra, clauses);
		hash_join_replace_loops(root, joinrel, outerrel, innerrel, jointype, extra, clauses);
	}
	if (jointype != JOIN_INNER && jointype != JOIN_LEFT && jointype != JOIN_FULL &&
		jointype != JOIN_SEMI && jointype != JOIN_ANTI)
		return;

	/* a MERGE is sent as it is written, and its join brings rows to no node here */
	if (brings_nulled_values(joinrel) &&
		(root->parse->commandType != CMD_MERGE || plan_scan_changed_table(root->parse) == NULL))
		return;

	foreach(lc, dist_paths(outerrel))
	{
		foreach(lc2, dist_paths(innerrel))
		{
			/* first, so that no LATERAL sub-select runs on each worker for all outer rows */
			join_slices(root, joinrel, lfirst(lc), lfirst(lc2), jointype, extra->restrictlist);
			join_paths(root, joinrel, lfirst(lc), lfirst(lc2), jointype, extra->restrictlist);
		}
	}
}
