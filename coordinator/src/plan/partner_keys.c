/*
 * partner_keys.c
 *		A join here of a small side with rows of the workers asks them only for those with a partner.
 *
 * Sides that do not meet on the workers are gathered and joined here.  Where one is small, most rows of the other may
 * have no partner in it.  So the small side is read first, for the values that the join compares, and goes to the workers
 * as a condition:
 *
 *		Hash Join (x.k = y.k)
 *			-> Gather of x WHERE x.k = ANY (keys)
 *				-> y, as one column		read before the workers are asked (execute/partner_keys.c)
 *			-> Hash
 *				-> y
 *
 * The condition only leaves out rows that the join would: it stays a join like any other, with core's own estimate of
 * its rows.  y is read twice, under one snapshot, and has to be the same both times: tables, WITH and conditions, nothing
 * volatile.  When it turns out to be large after all, the workers are asked for all rows.
 *
 * Where the other side is itself a join, and large, a small relation of it may tell as much: what an inner join holds equal
 * is among the values of each of its relations.
 *
 * Whose rows may be left out: of an inner join either side's, of an outer join those of the side that is not preserved, of
 * a semi join either side's, of an anti join those that are looked for.
 */
#include "postgres.h"

#include <float.h>

#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/tlist.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"

#include "compat.h"
#include "decorrelate.h"
#include "plan/distinct_partners.h"
#include "plan/gather_plan.h"
#include "plan/hash_join.h"
#include "plan/partner_keys.h"
#include "plan/planner.h"
#include "plan/query_levels.h"
#include "plan/shippable.h"
#include "plan/unnest_any.h"
#include "server/settings.h"

/* More values than that are not expected to be worth their way. */
#define MOST_KEYS 10000.0

/* A side is worth filtering if it has so many rows, and so small a share of them is left. */
#define LEAST_ROWS 1000.0
#define LARGEST_SHARE 0.5

/* One of the two ways round. */
typedef struct Sides
{
	PlannerInfo *root;
	RelOptInfo *filtered;
	RelOptInfo *source;
	Path *source_path;
	bool once;	  /* does one of equal rows of the filtered side do? */
	bool carried; /* is the source a relation of the other side, not all of it? */
} Sides;

/* The best clause to filter by. */
typedef struct Choice
{
	Node *filtered; /* an expression of the side that is filtered */
	Node *source;	/* what it is compared with */
	Oid equality;	/* filtered = source */
	Oid collation;
	double keys;  /* different values of the source */
	double share; /* of the filtered side's rows, that is left */
} Choice;

/* For tests: whatever it costs. */
static bool
is_forced(void)
{
	return strata_enable_partner_keys == DECORRELATE_ALWAYS;
}

static double
largest_share(void)
{
	return is_forced() ? DBL_MAX : LARGEST_SHARE;
}

/* ---- what may be read twice ------------------------------------------------------------------------------- */

static bool
find_outer_param(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Param))
		return shippable_param_is_outer(context, (Param *) node);
	return expression_tree_walker(node, find_outer_param, context);
}

/* WITH is kept when it is read; but one that changes rows has to wait for its turn, and one that recurs may never end. */
static bool
is_kept(PlannerInfo *root, const RangeTblEntry *rte)
{
	CommonTableExpr *with;

	if (rte->rtekind != RTE_CTE || rte->self_reference)
		return false;
	with = query_levels_find_with(root, rte);
	return !with->cterecursive && castNode(Query, with->ctequery)->commandType == CMD_SELECT;
}

/* Are the rows of the relation the same when they are read once more? */
static bool
is_repeatable(PlannerInfo *root, RelOptInfo *rel)
{
	int rti = -1;

	while ((rti = bms_next_member(rel->relids, rti)) >= 0)
	{
		RangeTblEntry *rte = root->simple_rte_array[rti];

		/* outer joins are in relids, too, since 16 */
		if (rte == NULL || rte->rtekind == RTE_JOIN || is_kept(root, rte))
			continue;
		if (rte->rtekind != RTE_RELATION || decorrelate_rows_may_differ(rte))
			return false;
	}
	return root->parse->commandType == CMD_SELECT && root->rowMarks == NIL &&
		   !contain_volatile_functions((Node *) root->parse->jointree) &&
		   !find_outer_param((Node *) root->parse->jointree, root);
}

/* ---- the clause ------------------------------------------------------------------------------------------- */

/* What a class holds equal, of this relation; NULL: nothing. */
static EquivalenceMember *
find_member(const EquivalenceClass *ec, Relids relids)
{
	ListCell *lc;

	foreach(lc, ec != NULL && !ec->ec_has_volatile ? ec->ec_members : NIL)
	{
		EquivalenceMember *member = lfirst_node(EquivalenceMember, lc);

		if (!member->em_is_child && !member->em_is_const && bms_equal(member->em_relids, relids))
			return member;
	}
	return NULL;
}

/* The source's own value in place of the one that it is equal to in the other side; false: there is none. */
static bool
carry_clause(const Sides *sides, const RestrictInfo *rinfo, Choice *choice)
{
	EquivalenceMember *member = find_member(rinfo->parent_ec, sides->source->relids);

	if (member == NULL)
		return false;
	choice->source = (Node *) member->em_expr;
	choice->equality = get_opfamily_member(linitial_oid(rinfo->parent_ec->ec_opfamilies),
										   exprType(choice->filtered), exprType(choice->source),
										   BTEqualStrategyNumber);
	return true;
}

/* What the clause says of the sides; false if it cannot be sent. */
static bool
read_clause(const Sides *sides, RestrictInfo *rinfo, Choice *choice)
{
	OpExpr *op = (OpExpr *) rinfo->clause;
	bool is_left = bms_is_subset(rinfo->left_relids, sides->filtered->relids);

	choice->filtered = is_left ? get_leftop(op) : get_rightop(op);
	choice->source = is_left ? get_rightop(op) : get_leftop(op);
	choice->equality = is_left ? op->opno : get_commutator(op->opno);
	choice->collation = op->inputcollid;
	if (sides->carried && !carry_clause(sides, rinfo, choice))
		return false;
	return OidIsValid(choice->equality) && exprCollation(choice->source) == op->inputcollid &&
		   OidIsValid(get_array_type(exprType(choice->source))) &&
		   shippable_type(get_array_type(exprType(choice->source))) &&
		   !contain_subplans((Node *) op);
}

static bool
choose_clause(const Sides *sides, List *clauses, Choice *best)
{
	ListCell *lc;

	memset(best, 0, sizeof(*best));
	best->share = largest_share();
	foreach(lc, clauses)
	{
		Choice choice;

		if (!read_clause(sides, lfirst(lc), &choice))
			continue;
		choice.keys = estimate_num_groups(sides->root, list_make1(choice.source),
										  sides->source_path->rows, NULL, NULL);
		if (choice.keys > MOST_KEYS && !is_forced())
			continue;
		/* at best, if no two of the filtered rows have the same value; that is known sooner */
		if (choice.keys / sides->filtered->rows >= best->share)
			continue;
		choice.share = choice.keys / estimate_num_groups(sides->root, list_make1(choice.filtered),
														 sides->filtered->rows, NULL, NULL);
		if (choice.share < best->share)
			*best = choice;
	}
	return best->share < largest_share();
}

static PartnerKeys *
make_keys(const Sides *sides, const Choice *choice)
{
	PartnerKeys *result = palloc0(sizeof(PartnerKeys));
	PathTarget *target = create_empty_pathtarget();

	result->keys = makeNode(Param);
	result->keys->paramkind = PARAM_EXTERN;
	result->keys->paramid = PG_INT32_MAX;
	result->keys->paramtype = get_array_type(exprType(choice->source));
	result->keys->paramtypmod = -1;
	result->keys->paramcollid = choice->collation;
	result->keys->location = -1;

	result->filter = unnest_any_make(choice->equality, choice->collation, choice->filtered,
									 (Node *) result->keys);

	add_column_to_pathtarget(target, (Expr *) choice->source, 0);
	result->source = (Path *) create_projection_path(
		sides->root, sides->source, sides->source_path,
		set_pathtarget_cost_width(sides->root, target));
	return result;
}

/* ---- paths ------------------------------------------------------------------------------------------------ */

/* The rows of the side that have a partner, as the cheapest path; NULL if there is none. */
static Path *
make_filtered_gather(const Sides *sides, const Choice *choice)
{
	List *fetch = plan_scan_fetch(sides->filtered);
	PartnerKeys *keys;
	Path *best = NULL;
	ListCell *lc;

	if (!plan_join_can_fetch(sides->root, sides->filtered, fetch))
		return NULL;
	keys = make_keys(sides, choice);
	foreach(lc, dist_paths(sides->filtered))
	{
		DistPath *dist = dist_path_copy(lfirst(lc));
		DistPath *once;
		Path *gather;

		if (dist->locus.kind != LOCUS_HASHED || dist->outer_params != NULL ||
			dist->lateral != NIL || dist->locks != NIL ||
			!shippable_expr(sides->root, &dist->locus, keys->filter, NULL))
			continue;
		once = sides->once ? distinct_partners_path(sides->root, dist, fetch) : NULL;
		dist = once != NULL ? once : dist;
		dist->cost += dist->rows / locus_worker_count(&dist->locus) * cpu_operator_cost;
		dist->rows = clamp_row_est(dist->rows * choice->share);
		gather = gather_path_create_filtered(sides->root, sides->filtered, dist, fetch, keys);
		if (best == NULL || gather->total_cost < best->total_cost)
			best = gather;
	}
	return best;
}

/* The rows of the filtered side that have a partner, as a path; NULL: it does not pay, or cannot be. */
static Path *
filter_side(const Sides *sides, List *clauses, Choice *choice)
{
	RelOptInfo *filtered = sides->filtered;

	if ((!is_forced() &&
		 (filtered->rows < LEAST_ROWS || sides->source->rows > filtered->rows * LARGEST_SHARE)) ||
		dist_paths(filtered) == NIL || !is_repeatable(sides->root, sides->source) ||
		!choose_clause(sides, clauses, choice))
		return NULL;
	return make_filtered_gather(sides, choice);
}

/* The smallest relation of the source whose values the clauses compare, too, in its place. */
static bool
find_carrier(Sides *sides, List *clauses)
{
	RelOptInfo *other = sides->source;
	ListCell *lc;
	int rti = -1;

	/* outer and semi joins let rows through that hold nothing equal */
	if (sides->root->join_info_list != NIL || bms_membership(other->relids) != BMS_MULTIPLE)
		return false;
	while ((rti = bms_next_member(other->relids, rti)) >= 0)
	{
		RelOptInfo *rel = find_base_rel(sides->root, rti);
		bool compared = false;

		foreach(lc, clauses)
			compared |= find_member(lfirst_node(RestrictInfo, lc)->parent_ec, rel->relids) != NULL;
		if (compared && rel->rows < sides->source->rows)
			sides->source = rel;
	}
	sides->source_path = sides->source->cheapest_total_path;
	sides->carried = sides->source != other;
	return sides->carried;
}

/*
 * The join by hash with one side filtered by what the other has.  Core, which knows nothing of the filter, thinks that most
 * rows of that side have no partner all the same; what it takes to evaluate the clauses for all is added.
 */
static void
add_filtered_join(PlannerInfo *root, RelOptInfo *joinrel, RelOptInfo *outerrel,
				  RelOptInfo *innerrel, bool filters_outer, JoinType jointype,
				  JoinPathExtraData *extra, List *clauses)
{
	Path *outer = outerrel->cheapest_total_path;
	Path *inner = innerrel->cheapest_total_path;
	Sides sides = {root,
				   filters_outer ? outerrel : innerrel,
				   filters_outer ? innerrel : outerrel,
				   filters_outer ? inner : outer,
				   !filters_outer && (jointype == JOIN_SEMI || jointype == JOIN_ANTI),
				   false};
	QualCost quals;
	Choice choice;
	Path *filtered = filter_side(&sides, clauses, &choice);
	Path *path;

	if (filtered == NULL && find_carrier(&sides, clauses))
		filtered = filter_side(&sides, clauses, &choice);
	if (filtered == NULL)
		return;
	outer = filters_outer ? filtered : outer;
	inner = filters_outer ? inner : filtered;
	path = hash_join_path(root, joinrel, outer, inner, jointype, extra, clauses);
	cost_qual_eval(&quals, extra->restrictlist, root);
	path->total_cost += (quals.per_tuple + cpu_tuple_cost) * filtered->rows *
						Max(sides.source_path->rows / choice.keys, 1);
	if (is_forced())
		path->startup_cost = path->total_cost = 0;
	add_path(joinrel, path);
}

void
partner_keys_join(PlannerInfo *root, RelOptInfo *joinrel, RelOptInfo *outerrel,
				  RelOptInfo *innerrel, JoinType jointype, JoinPathExtraData *extra, List *clauses)
{
	bool preserves_outer = jointype == JOIN_LEFT || jointype == JOIN_ANTI;

	if (strata_enable_partner_keys == DECORRELATE_OFF)
		return;
	if (!preserves_outer)
		add_filtered_join(root, joinrel, outerrel, innerrel, true, jointype, extra, clauses);
	/* the other way round an inner join comes by itself */
	if (preserves_outer || jointype == JOIN_SEMI)
		add_filtered_join(root, joinrel, outerrel, innerrel, false, jointype, extra, clauses);
}
