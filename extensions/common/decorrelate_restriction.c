/*
 * decorrelate_restriction.c
 *		Restricts a grouped sub-select to the keys that the outer query can ask for.
 *
 * A sub-select that became a join is grouped for all its keys, though the outer query may need few
 * of them.  Conditions of the outer query on the relation that the keys are looked up for hold for
 * the keys as well (known as magic sets, or sideways information passing):
 *
 *		FROM part JOIN lineitem ON p_partkey = l_partkey
 *			LEFT JOIN (SELECT l_partkey AS key1, avg(l_quantity) FROM lineitem GROUP BY key1) s
 *			ON s.key1 = p_partkey
 *		WHERE p_brand = 'Brand#23'
 *
 * needs only those rows of the inner lineitem where
 *
 *		l_partkey IN (SELECT p_partkey FROM part WHERE p_brand = 'Brand#23')
 *
 * Conditions on the looked up column alone are repeated as they are, with the key in its place.
 * The relation may also be one whose column the outer query holds equal to the looked up one; and
 * one that has no conditions of its own, but is joined to a smaller one that has some.  All rows of
 * a group have the same key, so groups are there in full or not at all.
 *
 * Rows of the outer query that do not fulfil the conditions now find no group.  They come to
 * nothing, but before that they may meet other expressions, which could fail for NULL where they
 * would not for the group's values.  Hence two kinds of conditions:
 * - plain ones on the table of the looked up column, if no outer join can fill it with NULL: core
 *	 filters by them when it reads the table, before it joins anything;
 * - all others ("late"), where the join may come first.  They are used if such a row does not
 *	 survive the join, as WHERE is strict in the sub-select's value; or if only conditions that
 *	 cannot fail see the value, in the same WHERE.
 *
 * Whether it pays only planning can tell: here is seen that there are conditions, and no more.
 */
#include "compat.h"

#include "decorrelate_internal.h"

#include "access/stratnum.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteManip.h"
#include "utils/lsyscache.h"

/* A key is looked up with a value of a relation of the outer query. */
typedef struct Lookup
{
	int key;	  /* its number among the grouped query's targets */
	OpExpr *test; /* expression of the grouped query = expression of the outer one */
	Index varno;  /* the relation */
} Lookup;

/* ---- late conditions -------------------------------------------------------------------------------- */

static bool
refers_to(Node *node, Index varno)
{
	return bms_is_member((int) varno, pull_varnos(NULL, node));
}

/* May a row find no group although there is one, if conditions of WHERE or ON will drop it? */
static bool
tolerates_missing_groups(Query *query, FromExpr *anchor, Index varno)
{
	ListCell *cell;

	if (bms_is_member((int) varno, find_nonnullable_rels(anchor->quals)))
		return true;
	if (refers_to((Node *) query->targetList, varno) || refers_to(query->havingQual, varno))
		return false;
	foreach(cell, decorrelate_conjuncts(anchor->quals))
		if (refers_to(lfirst(cell), varno) && decorrelate_may_fail(lfirst(cell)))
			return false;
	return true;
}

/* ---- lookups ---------------------------------------------------------------------------------------- */

/* Adds the lookup `key = value` if its relation can be read for the keys. */
static List *
add_lookup(List *lookups, const DecorrelateOuter *outer, int key, OpExpr *test)
{
	Index varno = decorrelate_only_source(lsecond(test->args));
	Lookup *lookup;
	ListCell *cell;

	if (varno == 0 || !decorrelate_is_source(outer, varno) || decorrelate_may_fail((Node *) test))
		return lookups;
	foreach(cell, lookups)
	{
		lookup = lfirst(cell);
		if (lookup->key == key && equal(lsecond(lookup->test->args), lsecond(test->args)))
			return lookups;
	}
	lookup = palloc(sizeof(Lookup));
	lookup->key = key;
	lookup->test = test;
	lookup->varno = varno;
	return lappend(lookups, lookup);
}

/* The number of the grouped query's column; 0 if the expression is none. */
static int
find_key(Node *node, Index varno)
{
	return IsA(node, Var) && ((Var *) node)->varno == varno ? ((Var *) node)->varattno : 0;
}

/*
 * A condition of the join as a comparison of the key's expression with the outer one; NULL if it is
 * on the outer row alone.
 */
static OpExpr *
make_test(Node *condition, Index varno, const Query *grouped, int *key)
{
	OpExpr *test;

	if (!refers_to(condition, varno))
		return NULL;
	test = copyObject(castNode(OpExpr, condition));
	*key = find_key(linitial(test->args), varno);
	if (*key == 0)
	{
		if (!OidIsValid(get_commutator(test->opno)))
			return NULL;
		CommuteOpExpr(test);
		*key = find_key(linitial(test->args), varno);
	}
	linitial(test->args) = copyObject(
		list_nth_node(TargetEntry, grouped->targetList, *key - 1)->expr);
	return test;
}

static List *
collect_lookups(const DecorrelateOuter *outer, Index varno, const DecorrelateJoin *join)
{
	List *lookups = NIL;
	int key;
	ListCell *cell;

	foreach(cell, decorrelate_conjuncts(join->condition))
	{
		OpExpr *test = make_test(lfirst(cell), varno, join->query, &key);

		if (test != NULL)
			lookups = add_lookup(lookups, outer, key, test);
	}
	return lookups;
}

/* From `a = b` and `b = c`, `a = c`; NULL if there is no such operator. */
static OpExpr *
make_transitive(OpExpr *first, OpExpr *second)
{
	Oid left;
	Oid right;
	Oid unused;
	ListCell *cell;

	if (first->inputcollid != second->inputcollid)
		return NULL;
	op_input_types(first->opno, &left, &unused);
	op_input_types(second->opno, &unused, &right);
	foreach(cell, get_mergejoin_opfamilies(first->opno))
	{
		Oid opno = get_opfamily_member(lfirst_oid(cell), left, right, BTEqualStrategyNumber);

		if (OidIsValid(opno) && op_in_opfamily(second->opno, lfirst_oid(cell)))
			return (OpExpr *) make_opclause(opno, BOOLOID, false, linitial(first->args),
											lsecond(second->args), InvalidOid, first->inputcollid);
	}
	return NULL;
}

/* Adds lookups with what the outer query holds equal to the value of one. */
static List *
add_equal_lookups(List *lookups, const DecorrelateOuter *outer)
{
	/* the list grows */
	for (int i = 0; i < list_length(lookups); i++)
	{
		Lookup *lookup = list_nth(lookups, i);
		ListCell *cell;

		foreach(cell, decorrelate_source_equalities(outer, lookup->varno))
		{
			OpExpr *equality = lfirst(cell);
			OpExpr *test;

			if (!equal(linitial(equality->args), lsecond(lookup->test->args)))
				continue;
			test = make_transitive(lookup->test, equality);
			if (test != NULL)
				lookups = add_lookup(lookups, outer, lookup->key, test);
		}
	}
	return lookups;
}

/* ---- conditions on looked up values alone ----------------------------------------------------------- */

/* Does the operator say the same of all values that the test holds equal? */
static bool
is_congruent(Oid opno, Oid collation, const OpExpr *test)
{
	ListCell *cell;

	if (collation != test->inputcollid)
		return false;
	foreach(cell, compat_op_interpretations(opno))
	{
		CompatOpInterpretation *interpretation = lfirst(cell);

		if (op_in_opfamily(test->opno, interpretation->opfamily_id))
			return true;
	}
	return false;
}

/* The argument list `value, constant` with the key in the place of the value; NIL if it is another. */
static List *
transfer_arguments(List *args, const OpExpr *test)
{
	Node *key = linitial(test->args);
	Node *value = lsecond(test->args);

	if (list_length(args) != 2 || exprType(key) != exprType(value) ||
		exprCollation(key) != exprCollation(value))
		return NIL;
	if (equal(linitial(args), value) && !contain_var_clause(lsecond(args)))
		return list_make2(copyObject(key), copyObject(lsecond(args)));
	if (equal(lsecond(args), value) && !contain_var_clause(linitial(args)))
		return list_make2(copyObject(linitial(args)), copyObject(key));
	return NIL;
}

/* The comparison of the value, with the key in its place; NULL if it is none. */
static Node *
transfer_comparison(Node *condition, const OpExpr *test)
{
	List **args;
	Oid opno;
	Oid collation;

	condition = copyObject(condition);
	if (IsA(condition, OpExpr))
	{
		args = &((OpExpr *) condition)->args;
		opno = ((OpExpr *) condition)->opno;
		collation = ((OpExpr *) condition)->inputcollid;
	}
	else if (IsA(condition, ScalarArrayOpExpr))
	{
		args = &((ScalarArrayOpExpr *) condition)->args;
		opno = ((ScalarArrayOpExpr *) condition)->opno;
		collation = ((ScalarArrayOpExpr *) condition)->inputcollid;
	}
	else
		return NULL;
	if (!is_congruent(opno, collation, test))
		return NULL;
	*args = transfer_arguments(*args, test);
	return *args != NIL ? condition : NULL;
}

/* A condition on the value alone as one on the key; NULL if it is on something else, too. */
static Node *
transfer_condition(Node *condition, const OpExpr *test)
{
	SubLink *link;

	if (!IsA(condition, SubLink))
		return transfer_comparison(condition, test);
	if (((SubLink *) condition)->subLinkType != ANY_SUBLINK)
		return NULL;
	link = copyObject((SubLink *) condition);
	link->testexpr = transfer_comparison(link->testexpr, test);
	return link->testexpr != NULL ? (Node *) link : NULL;
}

/* The conditions as ones on keys; NIL if one of them cannot be. */
static List *
transfer_conditions(List *conditions, List *tests)
{
	List *result = NIL;
	ListCell *condition;
	ListCell *test;

	foreach(condition, conditions)
	{
		Node *transferred = NULL;

		foreach(test, tests)
		{
			transferred = transfer_condition(lfirst(condition), lfirst(test));
			if (transferred != NULL)
				break;
		}
		if (transferred == NULL)
			return NIL;
		result = lappend(result, transferred);
	}
	return result;
}

/* ---- the restriction -------------------------------------------------------------------------------- */

/* The smallest relation not in `tried` that tells of a key not in `restricted`; 0 if there is none. */
static Index
choose_source(const DecorrelateOuter *outer, List *lookups, const Bitmapset *tried,
			  const Bitmapset *restricted)
{
	Index best = 0;
	double best_rows = 0;
	ListCell *cell;

	foreach(cell, lookups)
	{
		Lookup *lookup = lfirst(cell);
		double rows = decorrelate_source_rows(outer, lookup->varno);

		if (bms_is_member((int) lookup->varno, tried) || bms_is_member(lookup->key, restricted) ||
			(best != 0 && rows >= best_rows))
			continue;
		best = lookup->varno;
		best_rows = rows;
	}
	return best;
}

/* Conditions of the grouped query by what is known of one relation; the keys they are on join the set. */
static List *
restrict_by_source(const DecorrelateOuter *outer, List *lookups, Index varno,
				   Bitmapset **restricted)
{
	List *tests = NIL;
	List *conditions;
	List *result;
	ListCell *cell;

	if (!decorrelate_source_restricts(outer, varno, &conditions))
		return NIL;
	foreach(cell, lookups)
	{
		Lookup *lookup = lfirst(cell);

		if (lookup->varno != varno)
			continue;
		tests = lappend(tests, lookup->test);
		*restricted = bms_add_member(*restricted, lookup->key);
	}
	result = decorrelate_source_filters(outer, varno) ? NIL
													  : transfer_conditions(conditions, tests);
	if (result == NIL)
		result = list_make1(decorrelate_source_membership(outer, varno, conditions, tests));
	return result;
}

/*
 * Adds conditions to the grouped query that was joined as entry `varno` on top of the anchor; false
 * if the outer query says nothing about the keys.
 */
bool
decorrelate_restrict(Query *query, FromExpr *anchor, Index varno, DecorrelateJoin *join)
{
	FromExpr *from = join->query->jointree;
	DecorrelateOuter outer;
	List *gates = NIL;
	List *lookups;
	List *added = NIL;
	Bitmapset *tried = NULL;
	Bitmapset *restricted = NULL;
	Index source;
	ListCell *cell;

	foreach(cell, decorrelate_conjuncts(join->condition))
		if (!refers_to(lfirst(cell), varno))
			gates = lappend(gates, lfirst(cell));
	decorrelate_outer_init(&outer, query, gates, tolerates_missing_groups(query, anchor, varno));
	lookups = collect_lookups(&outer, varno, join);
	if (outer.is_late)
		lookups = add_equal_lookups(lookups, &outer);
	while ((source = choose_source(&outer, lookups, tried, restricted)) != 0)
	{
		tried = bms_add_member(tried, (int) source);
		added = list_concat(added, restrict_by_source(&outer, lookups, source, &restricted));
	}
	if (added == NIL)
		return false;
	from->quals = decorrelate_conjunction(list_concat(decorrelate_conjuncts(from->quals), added));
	join->query->hasSubLinks = join->query->hasSubLinks || checkExprHasSubLink(from->quals);
	return true;
}
