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
 * Not below semi and anti joins, where rows without a partner are what matters.
 */
#include "join.h"

#include "optimizer/optimizer.h"

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

/* The column of the relation among what a class holds equal; NULL if it is not. */
static EquivalenceMember *
find_member(const EquivalenceClass *ec, Index relid, AttrNumber attribute)
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

static EquivalenceClass *
find_class(const PlannerInfo *root, const RelOptInfo *rel, AttrNumber attribute)
{
	int i = -1;

	while ((i = bms_next_member(rel->eclass_indexes, i)) >= 0)
	{
		EquivalenceClass *ec = list_nth(root->eq_classes, i);

		if (!ec->ec_has_volatile && find_member(ec, rel->relid, attribute) != NULL)
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
add_key(PlannerInfo *root, const IndexOptInfo *index, EquivalenceClass *const *classes,
		Index referencing)
{
	ForeignKeyOptInfo *key = makeNode(ForeignKeyOptInfo);

	key->con_relid = referencing;
	key->ref_relid = index->rel->relid;
	key->nkeys = index->nkeycolumns;
	key->nmatched_ec = index->nkeycolumns;
	for (int i = 0; i < index->nkeycolumns; i++)
	{
		key->eclass[i] = classes[i];
		key->fk_eclass_member[i] = find_member(classes[i], referencing, 0);
		key->conkey[i] = get_expression(key->fk_eclass_member[i])->varattno;
		key->confkey[i] = (AttrNumber) index->indexkeys[i];
		key->nconst_ec += classes[i]->ec_has_const;
	}
	root->fkey_list = lappend(root->fkey_list, key);
}

static void
add_keys_of_index(PlannerInfo *root, const IndexOptInfo *index)
{
	EquivalenceClass *classes[INDEX_MAX_KEYS];
	Relids others = NULL;
	int other = -1;

	for (int i = 0; i < index->nkeycolumns; i++)
	{
		if (index->indexkeys[i] <= 0)
			return;
		classes[i] = find_class(root, index->rel, (AttrNumber) index->indexkeys[i]);
		if (classes[i] == NULL)
			return;
		others = i == 0 ? bms_copy(classes[i]->ec_relids)
						: bms_int_members(others, classes[i]->ec_relids);
	}
	while ((other = bms_next_member(others, other)) >= 0)
	{
		bool all = other != index->rel->relid && !is_known(root, other, index->rel->relid);

		for (int i = 0; all && i < index->nkeycolumns; i++)
			all = find_member(classes[i], other, 0) != NULL;
		if (all)
			add_key(root, index, classes, other);
	}
}

void
join_estimate_relation(PlannerInfo *root, const RelOptInfo *rel)
{
	ListCell *cell;

	if (rel->reloptkind != RELOPT_BASEREL || is_looked_into(root, rel->relid))
		return;
	foreach(cell, rel->indexlist)
		if (is_unique_for_joins(lfirst_node(IndexOptInfo, cell)))
			add_keys_of_index(root, lfirst_node(IndexOptInfo, cell));
}
