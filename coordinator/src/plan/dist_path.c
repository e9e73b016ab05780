/*
 * dist_path.c
 *		Where rows lie: the algebra of loci, and the lists of DistPaths.
 *
 * All functions are pure: they look at expressions and metadata and decide; the
 * planner hooks (plan_scan.c, plan_join.c, plan_upper.c) carry the decisions out.
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/paths.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "compat.h"
#include "cluster/shard_map.h"
#include "plan/dist_path.h"
#include "plan/shippable.h"

List *
dist_paths(RelOptInfo *rel)
{
	if (rel == NULL || rel->fdwroutine != NULL)
		return NIL;
	return (List *) rel->fdw_private;
}

void
dist_path_add(RelOptInfo *rel, DistPath *path)
{
	Assert(rel->fdwroutine == NULL);
	rel->fdw_private = lappend((List *) rel->fdw_private, path);
}

DistPath *
dist_path_copy(const DistPath *path)
{
	DistPath *copy = palloc(sizeof(DistPath));

	*copy = *path;
	return copy;
}

bool
dist_path_loses_order(const DistPath *path)
{
	return path->ordered && path->locus.kind == LOCUS_HASHED && !locus_is_single(&path->locus);
}

bool
dist_path_find(DistPath *path, bool (*test)(DistPath *path, void *context), void *context)
{
	ListCell *lc;

	if (test(path, context))
		return true;
	foreach(lc, path->subs)
	{
		if (dist_path_find(((DistSub *) lfirst(lc))->path, test, context))
			return true;
	}
	foreach(lc, path->semijoins)
	{
		if (dist_path_find(((DistSemiJoin *) lfirst(lc))->inner, test, context))
			return true;
	}
	foreach(lc, path->branches)
	{
		if (dist_path_find(lfirst(lc), test, context))
			return true;
	}
	return false;
}

/* The sub-selects of a FROM without the sorting that nobody will see; shares what stays as it is. */
static List *
unsort_subs(List *subs)
{
	List *result = NIL;
	ListCell *lc;

	foreach(lc, subs)
	{
		DistSub *sub = palloc(sizeof(DistSub));

		*sub = *(DistSub *) lfirst(lc);
		sub->path = dist_path_copy(sub->path);
		if (sub->path->limit_count == NULL && sub->path->limit_offset == NULL)
		{
			sub->path->sort_clause = NIL;
			dist_path_forget_order(sub->path);
		}
		result = lappend(result, sub);
	}
	return result;
}

void
dist_path_forget_order(DistPath *path)
{
	if (!path->ordered)
		return;
	path->ordered = false;
	if (!path->has_windows) /* these may have numbered the rows */
		path->subs = unsort_subs(path->subs);
}

bool
dist_path_is_empty_elsewhere(DistPath *path)
{
	ListCell *lc;

	if ((path->has_aggs && path->group_clause == NIL) || list_member_ptr(path->grouping_sets, NIL))
		return false;
	foreach(lc, path->from)
	{
		if (!IsA(lfirst(lc), RangeTblRef))
			return false;
	}
	foreach(lc, path->subs)
	{
		if (!dist_path_is_empty_elsewhere(((DistSub *) lfirst(lc))->path))
			return false;
	}
	foreach(lc, path->branches)
	{
		if (!dist_path_is_empty_elsewhere(lfirst(lc)))
			return false;
	}
	return true;
}

bool
from_list_has(const List *from, Index rti)
{
	ListCell *lc;

	foreach(lc, from)
	{
		if (IsA(lfirst(lc), RangeTblRef) && ((RangeTblRef *) lfirst(lc))->rtindex == rti)
			return true;
	}
	return false;
}

bool
locus_is_single(const Locus *locus)
{
	return locus->kind == LOCUS_HASHED && (locus->routes != NIL || locus->outer_routes != NIL);
}

/* The worker of a route that is a constant already now, or -1. */
static int
constant_route_worker(const Locus *locus, Expr *route)
{
	Const *value = (Const *) route;

	if (!IsA(route, Const))
		return -1;
	return shard_map_worker_for_type(metadata_colocation(locus->colocation_id), value->consttype,
									 value->constvalue, value->constisnull);
}

bool
locus_same_worker(const Locus *a, const Locus *b)
{
	ListCell *lc;
	ListCell *lc2;

	if (a->kind != LOCUS_HASHED || b->kind != LOCUS_HASHED)
		return false;

	foreach(lc, a->routes)
	{
		foreach(lc2, b->routes)
		{
			int worker = constant_route_worker(a, lfirst(lc));

			if (a->colocation_id == b->colocation_id && equal(lfirst(lc), lfirst(lc2)))
				return true;
			if (worker >= 0 && worker == constant_route_worker(b, lfirst(lc2)))
				return true;
		}
	}
	if (a->colocation_id == b->colocation_id)
	{
		foreach(lc, a->outer_routes)
		{
			if (list_member_int(b->outer_routes, lfirst_int(lc)))
				return true;
		}
	}
	return false;
}

int
locus_worker_count(const Locus *locus)
{
	if (locus->kind == LOCUS_REPLICATED || locus_is_single(locus))
		return 1;
	return Max(bms_num_members(metadata_colocation(locus->colocation_id)->workers), 1);
}

/*
 * Look through casts that change neither bytes nor the meaning of equality: both
 * types have the same hash operator family (varchar and text, a domain and its base
 * type, cidr and inet).  Other binary-compatible casts may (text to citext), as may a
 * change of collation.
 */
static Node *
strip_relabels(Node *expr)
{
	while (expr && IsA(expr, RelabelType))
	{
		RelabelType *relabel = (RelabelType *) expr;
		Oid source = getBaseType(exprType((Node *) relabel->arg));
		Oid result = getBaseType(relabel->resulttype);

		if (relabel->resultcollid != exprCollation((Node *) relabel->arg))
			break;
		if (source != result && lookup_type_cache(source, TYPECACHE_HASH_OPFAMILY)->hash_opf !=
									lookup_type_cache(result, TYPECACHE_HASH_OPFAMILY)->hash_opf)
			break;
		expr = (Node *) relabel->arg;
	}
	return expr;
}

/* equal(), or members of one equivalence class; binary-compatible casts are looked through. */
static bool
have_same_value(PlannerInfo *root, Node *a, Node *b)
{
	ListCell *lc;
	Node *bare_a = strip_relabels(a);
	Node *bare_b = strip_relabels(b);

	if (equal(bare_a, bare_b))
		return true;

	foreach(lc, root->eq_classes)
	{
		EquivalenceClass *ec = lfirst(lc);
		bool found_a = false;
		bool found_b = false;
		ListCell *lc2;

		if (ec->ec_has_volatile)
			continue;
		foreach(lc2, ec->ec_members)
		{
			EquivalenceMember *em = lfirst(lc2);
			Node *member;

			if (em->em_is_child)
				continue;
			member = strip_relabels((Node *) em->em_expr);
			found_a = found_a || equal(bare_a, member);
			found_b = found_b || equal(bare_b, member);
		}
		if (found_a && found_b)
			return true;
	}
	return false;
}

/* Look through casts to wider integers, which have the same hash. */
static Node *
strip_widening(Node *expr)
{
	const FuncExpr *cast = (const FuncExpr *) expr;

	if (expr != NULL && IsA(expr, FuncExpr) &&
		(cast->funcid == F_INT8_INT4 || cast->funcid == F_INT8_INT2 || cast->funcid == F_INT4_INT2))
		return linitial(cast->args);
	return expr;
}

bool
locus_is_of_integers(const Locus *locus)
{
	return metadata_colocation(locus->colocation_id)->key_opfamily ==
		   lookup_type_cache(INT8OID, TYPECACHE_HASH_OPFAMILY)->hash_opf;
}

bool
locus_has_key(PlannerInfo *root, const Locus *locus, Node *expr)
{
	ListCell *lc;

	if (locus->kind != LOCUS_HASHED)
		return false;
	if (locus_is_of_integers(locus))
		expr = strip_widening(expr);
	foreach(lc, locus->keys)
	{
		if (have_same_value(root, lfirst(lc), expr))
			return true;
	}
	return false;
}

/*
 * Does the clause say left = right by the equality that the key's hash
 * operator family knows, under a collation that equals as the key's does?
 */
static bool
is_key_equality(const Colocation *colocation, Oid opno, Oid collation)
{
	if (!op_in_opfamily(opno, colocation->key_opfamily))
		return false;
	return collation == colocation->key_collation || !OidIsValid(collation) ||
		   (get_collation_isdeterministic(collation) &&
			(!OidIsValid(colocation->key_collation) ||
			 get_collation_isdeterministic(colocation->key_collation)));
}

/* Is there a join clause outer key = inner key, written out (outer joins have no equivalence class)? */
static bool
clauses_match_keys(const Locus *outer, const Locus *inner, List *clauses)
{
	const Colocation *colocation = metadata_colocation(outer->colocation_id);
	ListCell *lc;

	foreach(lc, clauses)
	{
		OpExpr *op = lfirst(lc);
		Node *left;
		Node *right;
		ListCell *lc2;
		ListCell *lc3;

		if (!IsA(op, OpExpr) || list_length(op->args) != 2 ||
			!is_key_equality(colocation, op->opno, op->inputcollid))
			continue;
		left = strip_relabels(linitial(op->args));
		right = strip_relabels(lsecond(op->args));
		foreach(lc2, outer->keys)
		{
			foreach(lc3, inner->keys)
			{
				Node *a = strip_relabels(lfirst(lc2));
				Node *b = strip_relabels(lfirst(lc3));

				if ((equal(left, a) && equal(right, b)) || (equal(left, b) && equal(right, a)))
					return true;
			}
		}
	}
	return false;
}

static bool
keys_meet(PlannerInfo *root, const Locus *outer, const Locus *inner, JoinType jointype,
		  List *clauses)
{
	ListCell *lc;

	if (outer->colocation_id != inner->colocation_id)
		return false;
	if (clauses_match_keys(outer, inner, clauses))
		return true;
	if (jointype == JOIN_INNER || jointype == JOIN_SEMI)
	{
		foreach(lc, inner->keys)
		{
			if (locus_has_key(root, outer, lfirst(lc)))
				return true;
		}
	}
	return false;
}

List *
locus_common_routes(const Locus *a, const Locus *b)
{
	List *routes = NIL;
	ListCell *lc;
	ListCell *lc2;

	foreach(lc, a->routes)
	{
		int worker = constant_route_worker(a, lfirst(lc));

		foreach(lc2, b->routes)
		{
			if ((a->colocation_id == b->colocation_id && equal(lfirst(lc), lfirst(lc2))) ||
				(worker >= 0 && worker == constant_route_worker(b, lfirst(lc2))))
			{
				routes = lappend(routes, lfirst(lc));
				break;
			}
		}
	}
	return routes;
}

bool
locus_join(PlannerInfo *root, const Locus *outer, const Locus *inner, JoinType jointype,
		   List *clauses, Locus *result)
{
	bool meet;

	if (outer->kind == LOCUS_REPLICATED && inner->kind == LOCUS_REPLICATED)
	{
		*result = *outer;
		return true;
	}

	/* On one worker a replicated side is complete: any join will do. */
	if (outer->kind == LOCUS_REPLICATED)
	{
		*result = *inner;
		if (jointype == JOIN_INNER)
			return true;
		result->keys = NIL;
		return locus_is_single(inner);
	}
	if (inner->kind == LOCUS_REPLICATED)
	{
		*result = *outer;
		if (jointype == JOIN_FULL)
		{
			result->keys = NIL;
			return locus_is_single(outer);
		}
		return true;
	}

	meet = keys_meet(root, outer, inner, jointype, clauses);
	if (!meet && !locus_same_worker(outer, inner))
		return false;

	*result = *outer;
	switch (jointype)
	{
		case JOIN_INNER:
			if (meet)
				result->keys = list_concat_copy(outer->keys, inner->keys);
			else if (outer->colocation_id != inner->colocation_id)
				result->keys = NIL;
			if (outer->colocation_id == inner->colocation_id)
			{
				result->routes = list_concat_copy(outer->routes, inner->routes);
				result->array_routes = list_concat_copy(outer->array_routes, inner->array_routes);
				result->outer_routes = list_concat_copy(outer->outer_routes, inner->outer_routes);
			}
			return true;
		case JOIN_LEFT:
		case JOIN_SEMI:
		case JOIN_ANTI:
			return true;
		case JOIN_FULL:
			/* rows of either side survive: only what holds for both restricts */
			result->keys = NIL;
			result->array_routes = NIL;
			result->routes = locus_common_routes(outer, inner);
			result->outer_routes = list_intersection_int(outer->outer_routes, inner->outer_routes);
			return true;
		default:
			return false;
	}
}

/* Adds `value` as a route if the workers can be told from it at execution; false if not. */
static bool
add_route(PlannerInfo *root, Locus *locus, const Colocation *colocation, Node *value, bool is_array)
{
	Oid type = exprType(value);

	value = strip_relabels(value);
	if (is_array)
		type = get_element_type(type);
	else if (IsA(value, Param) && ((Param *) value)->paramkind == PARAM_EXEC &&
			 shippable_param_is_outer(root, (Param *) value))
	{
		locus->outer_routes = lappend_int(list_copy(locus->outer_routes),
										  ((Param *) value)->paramid);
		return true;
	}
	if (!OidIsValid(type) || !shard_map_type_hashable(colocation, getBaseType(type)) ||
		!shippable_is_runtime_constant(root, value))
		return false;
	if (is_array)
		locus->array_routes = lappend(list_copy(locus->array_routes), value);
	else
		locus->routes = lappend(list_copy(locus->routes), value);
	return true;
}

void
locus_restrict(PlannerInfo *root, Locus *locus, List *clauses)
{
	const Colocation *colocation;
	ListCell *lc;

	if (locus->kind != LOCUS_HASHED || locus->keys == NIL)
		return;
	colocation = metadata_colocation(locus->colocation_id);

	foreach(lc, clauses)
	{
		Node *clause = lfirst(lc);

		if (IsA(clause, OpExpr) && list_length(((OpExpr *) clause)->args) == 2)
		{
			OpExpr *op = (OpExpr *) clause;

			if (!is_key_equality(colocation, op->opno, op->inputcollid))
				continue;
			/* a constant equals the key, too: try both sides */
			if (locus_has_key(root, locus, linitial(op->args)) &&
				add_route(root, locus, colocation, lsecond(op->args), false))
				continue;
			if (locus_has_key(root, locus, lsecond(op->args)))
				(void) add_route(root, locus, colocation, linitial(op->args), false);
		}
		else if (IsA(clause, ScalarArrayOpExpr))
		{
			ScalarArrayOpExpr *op = (ScalarArrayOpExpr *) clause;

			if (op->useOr && is_key_equality(colocation, op->opno, op->inputcollid) &&
				locus_has_key(root, locus, linitial(op->args)))
				(void) add_route(root, locus, colocation, lsecond(op->args), true);
		}
	}
}
