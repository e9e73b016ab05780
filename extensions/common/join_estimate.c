/*
 * join_estimate.c
 *		How many rows a join by all columns of a unique index has.
 *
 * Core takes the columns of a join for independent of each other: of the parts that a
 * supplier offers and the suppliers that offer a part, it expects a pair to be found by
 * chance.  It knows better where a foreign key is declared, which analytical tables seldom
 * have.  A unique index says half of what a foreign key does, that a row has one partner
 * at most; that it has one is the better guess.  So where a query joins by all columns of such
 * an index, it is given to core as a foreign key, for estimates and nothing else.
 *
 * A sub-select that is restricted to the keys that a relation asks for has a group for each of
 * them; core would count the conditions on that relation twice.  It is treated the same.
 *
 * Not below semi and anti joins, where rows without a partner are what matters.
 */
#include "compat.h"

#include "join_estimate.h"

#include "optimizer/optimizer.h"
#include "optimizer/paths.h"

#include "decorrelate.h"
#include "key_range_estimate.h"

RelOptInfo *
join_estimate_find_relation(const PlannerInfo *root, const RangeTblEntry *rte)
{
	for (int i = 1; i < root->simple_rel_array_size; i++)
		if (root->simple_rte_array[i] == rte)
			return root->simple_rel_array[i];
	return NULL;
}

static bool
is_unique_for_joins(const IndexOptInfo *index)
{
	if (!index->unique || !index->immediate || index->indpred != NIL || index->indexprs != NIL)
		return false;
	return index->nkeycolumns >= 2;
}

/* What a class holds equal, without changes of its type that do nothing. */
static const Var *
get_expression(const EquivalenceMember *member)
{
	const Expr *expression = member->em_expr;

	while (IsA(expression, RelabelType))
		expression = ((const RelabelType *) expression)->arg;
	return (const Var *) expression;
}

EquivalenceMember *
join_estimate_find_member(const EquivalenceClass *ec, Index relid, AttrNumber attribute)
{
	ListCell *cell;

	foreach(cell, ec->ec_members)
	{
		EquivalenceMember *member = lfirst_node(EquivalenceMember, cell);
		const Var *var = get_expression(member);

		if (!member->em_is_child && IsA(var, Var) && var->varno == relid && var->varattno > 0 &&
			(attribute == 0 || var->varattno == attribute))
			return member;
	}
	return NULL;
}

EquivalenceClass *
join_estimate_find_class(const PlannerInfo *root, const RelOptInfo *rel, AttrNumber attribute)
{
	int i = -1;

	while ((i = bms_next_member(rel->eclass_indexes, i)) >= 0)
	{
		EquivalenceClass *ec = list_nth(root->eq_classes, i);

		if (!ec->ec_has_volatile && join_estimate_find_member(ec, rel->relid, attribute) != NULL)
			return ec;
	}
	return NULL;
}

static bool
is_known(const PlannerInfo *root, Index referencing, Index referenced)
{
	ListCell *cell;

	foreach(cell, root->fkey_list)
	{
		const ForeignKeyOptInfo *key = lfirst(cell);

		if (key->con_relid == referencing && key->ref_relid == referenced)
			return true;
	}
	return false;
}

/* Is the relation what a semi or anti join looks into? */
static bool
is_looked_into(const PlannerInfo *root, Index relid)
{
	ListCell *cell;

	foreach(cell, root->join_info_list)
	{
		const SpecialJoinInfo *join = lfirst(cell);

		if ((join->jointype == JOIN_SEMI || join->jointype == JOIN_ANTI) &&
			bms_is_member((int) relid, join->syn_righthand))
			return true;
	}
	return false;
}

static void
add_key(PlannerInfo *root, Index referenced, const int *attributes, int nattributes,
		EquivalenceClass *const *classes, Index referencing)
{
	ForeignKeyOptInfo *key = makeNode(ForeignKeyOptInfo);

	key->con_relid = referencing;
	key->ref_relid = referenced;
	key->nkeys = nattributes;
	key->nmatched_ec = nattributes;
	for (int i = 0; i < nattributes; i++)
	{
		key->eclass[i] = classes[i];
		key->fk_eclass_member[i] = join_estimate_find_member(classes[i], referencing, 0);
		key->conkey[i] = get_expression(key->fk_eclass_member[i])->varattno;
		key->confkey[i] = (AttrNumber) attributes[i];
		key->nconst_ec += classes[i]->ec_has_const;
	}
	root->fkey_list = lappend(root->fkey_list, key);
}

/* The other relations with a column equal to each of these; and what holds them equal. */
static Relids
find_partners(PlannerInfo *root, const RelOptInfo *rel, const int *attributes, int nattributes,
			  EquivalenceClass **classes)
{
	Relids partners = NULL;
	Relids result = NULL;
	int other = -1;

	for (int i = 0; i < nattributes; i++)
	{
		if (attributes[i] <= 0)
			return NULL;
		classes[i] = join_estimate_find_class(root, rel, (AttrNumber) attributes[i]);
		if (classes[i] == NULL)
			return NULL;
		partners = i == 0 ? bms_copy(classes[i]->ec_relids)
						  : bms_int_members(partners, classes[i]->ec_relids);
	}
	while ((other = bms_next_member(partners, other)) >= 0)
	{
		bool all = other != (int) rel->relid;

		for (int i = 0; all && i < nattributes; i++)
			all = join_estimate_find_member(classes[i], other, 0) != NULL;
		if (all)
			result = bms_add_member(result, other);
	}
	return result;
}

static void
add_keys_of_index(PlannerInfo *root, const IndexOptInfo *index)
{
	EquivalenceClass *classes[INDEX_MAX_KEYS];
	Relids partners = find_partners(root, index->rel, index->indexkeys, index->nkeycolumns,
									classes);
	int partner = -1;

	while ((partner = bms_next_member(partners, partner)) >= 0)
		if (!is_known(root, partner, index->rel->relid))
			add_key(root, index->rel->relid, index->indexkeys, index->nkeycolumns, classes,
					partner);
}

/* Before core looks at joins of the relation. */
static void
estimate_relation(PlannerInfo *root, const RelOptInfo *rel)
{
	ListCell *cell;

	if (is_looked_into(root, rel->relid))
		return;
	foreach(cell, rel->indexlist)
		if (is_unique_for_joins(lfirst_node(IndexOptInfo, cell)))
			add_keys_of_index(root, lfirst_node(IndexOptInfo, cell));
}

/* The columns of a grouped query that it is grouped by; 0 if there are too many. */
static int
collect_group_keys(const Query *query, int *attributes)
{
	int n = 0;
	ListCell *cell;

	foreach(cell, query->targetList)
	{
		const TargetEntry *target = lfirst_node(TargetEntry, cell);

		if (target->resjunk || target->ressortgroupref == 0)
			continue;
		if (n == INDEX_MAX_KEYS)
			return 0;
		attributes[n++] = target->resno;
	}
	return n;
}

/* The same of a sub-select that decorrelate_is_restricted(). */
static void
estimate_restricted(PlannerInfo *root, const RelOptInfo *rel, const Query *query)
{
	EquivalenceClass *classes[INDEX_MAX_KEYS];
	int attributes[INDEX_MAX_KEYS];
	int nattributes = collect_group_keys(query, attributes);
	Relids partners = find_partners(root, rel, attributes, nattributes, classes);
	const RelOptInfo *smallest = NULL;
	int partner = -1;

	if (is_looked_into(root, rel->relid))
		return;
	while ((partner = bms_next_member(partners, partner)) >= 0)
	{
		const RelOptInfo *other = root->simple_rel_array[partner];

		if (other != NULL && (smallest == NULL || other->rows < smallest->rows))
			smallest = other;
	}
	if (smallest != NULL)
		add_key(root, rel->relid, attributes, nattributes, classes, smallest->relid);
}

void
join_estimate_relation(PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte, bool has_keys)
{
	if (rel->reloptkind != RELOPT_BASEREL || IS_DUMMY_REL(rel))
		return;
	if (rel->rtekind == RTE_SUBQUERY && decorrelate_is_restricted(rte))
		estimate_restricted(root, rel, rte->subquery);
	else if (has_keys && !rte->inh && rte->tablesample == NULL)
	{
		estimate_relation(root, rel);
		key_range_estimate_relation(root, rel);
	}
}
