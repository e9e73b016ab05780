/*
 * join_clause.c
 *		For the planner: what a join's conditions are to a ColumnarJoin, and which columns it has.
 *
 * Keys are equalities of an expression of one side and one of the other, by an operator
 * whose equality is the one that the node's table has.  All other conditions are
 * evaluated for pairs of rows.
 *
 * Semi-joins: core may ask for columns of the inner side above the join, if they are equal to
 * others of the outer side (a.x IN (SELECT b.y ...) AND a.x = c.z: it may join b.y = c.z).  The node
 * has no inner rows then, but the equal value of the outer side, if it is known to be the same
 * and not only equal as 1.0 and 1.00 are: what the nodes above see as b.y is a.x.  Keys and
 * conditions see the real b.y as another column, whose Var is disguised by a relabelling
 * without effect, so that setrefs.c tells them apart.
 *
 * Anti-joins whose inner columns are asked for (LEFT JOIN ... WHERE b.y IS NULL) are left to core.
 */
#include "exec/join/join_path.h"

#include "access/nbtree.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/restrictinfo.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "exec/keys/vector_groups.h"

/* ---- keys --------------------------------------------------------------------------------------- */

/* Equality of two types whose values have the same words: see vector_join_table.h. */
static bool
is_cross_type_equality(Oid function)
{
	switch (function)
	{
		case F_INT24EQ:
		case F_INT28EQ:
		case F_INT42EQ:
		case F_INT48EQ:
		case F_INT82EQ:
		case F_INT84EQ:
		case F_FLOAT48EQ:
		case F_FLOAT84EQ:
			return true;
		default:
			return false;
	}
}

/* Is it the equality that the node's table has? */
static bool
is_possible_key(const OpExpr *clause)
{
	Node *left = linitial(clause->args);
	Node *right = lsecond(clause->args);
	Oid left_type = exprType(left);
	Oid right_type = exprType(right);

	/* by the collation of the comparison too: it may be none, which is an error for core to raise */
	if (!vector_groups_can_key(left_type, exprCollation(left)) ||
		!vector_groups_can_key(right_type, exprCollation(right)) ||
		!vector_groups_can_key(left_type, clause->inputcollid))
		return false;
	if (left_type != right_type)
		return is_cross_type_equality(get_opcode(clause->opno));
	return clause->opno == lookup_type_cache(left_type, TYPECACHE_EQ_OPR)->eq_opr;
}

/* Adds the clause to the keys; false if it is none. */
static bool
add_key(JoinQuery *query, RestrictInfo *rinfo)
{
	OpExpr *clause = (OpExpr *) rinfo->clause;
	Expr *left;
	Expr *right;

	if (!rinfo->can_join || !OidIsValid(rinfo->hashjoinoperator) || !IsA(clause, OpExpr) ||
		list_length(clause->args) != 2 || !is_possible_key(clause))
		return false;
	left = linitial(clause->args);
	right = lsecond(clause->args);
	if (bms_is_subset(rinfo->left_relids, query->outer->relids) &&
		bms_is_subset(rinfo->right_relids, query->inner->relids))
	{
		query->outer_keys = lappend(query->outer_keys, left);
		query->inner_keys = lappend(query->inner_keys, right);
	}
	else if (bms_is_subset(rinfo->right_relids, query->outer->relids) &&
			 bms_is_subset(rinfo->left_relids, query->inner->relids))
	{
		query->outer_keys = lappend(query->outer_keys, right);
		query->inner_keys = lappend(query->inner_keys, left);
	}
	else
		return false;
	query->key_clauses = lappend(query->key_clauses, rinfo);
	return true;
}

/* ---- conditions --------------------------------------------------------------------------------- */

static Cost
clause_cost(PlannerInfo *root, RestrictInfo *rinfo)
{
	QualCost cost;

	cost_qual_eval_node(&cost, (Node *) rinfo, root);
	return cost.per_tuple;
}

/*
 * Adds a condition in the order of evaluation: security barriers first, whose rows those
 * behind must not see, then the cheap ones.
 */
static List *
add_condition(PlannerInfo *root, List *conditions, RestrictInfo *rinfo)
{
	int position = list_length(conditions);

	while (position > 0)
	{
		RestrictInfo *before = list_nth(conditions, position - 1);

		if (before->security_level < rinfo->security_level ||
			(before->security_level == rinfo->security_level &&
			 clause_cost(root, before) <= clause_cost(root, rinfo)))
			break;
		position--;
	}
	return list_insert_nth(conditions, position, rinfo);
}

static bool
sort_out_clauses(JoinQuery *query, List *clauses)
{
	ListCell *cell;

	foreach(cell, clauses)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, cell);
		Node *clause = (Node *) rinfo->clause;
		bool is_filter = IS_OUTER_JOIN(query->type) &&
						 RINFO_IS_PUSHED_DOWN(rinfo, query->joined->relids);

		/* what does not depend on rows would have to become a node above */
		if (rinfo->pseudoconstant || contain_volatile_functions(clause) || contain_subplans(clause))
			return false;
		if (is_filter)
			query->filters = add_condition(query->root, query->filters, rinfo);
		else if (!add_key(query, rinfo))
			query->conditions = add_condition(query->root, query->conditions, rinfo);
	}
	return query->key_clauses != NIL;
}

/* ---- columns ------------------------------------------------------------------------------------ */

static bool
is_same_column(const Var *a, const Var *b)
{
	return a->varno == b->varno && a->varattno == b->varattno;
}

static Node *
strip_relabelling(Node *expression)
{
	while (IsA(expression, RelabelType))
		expression = (Node *) ((RelabelType *) expression)->arg;
	return expression;
}

/* Are equal values of the type the same in every respect? */
static bool
is_equal_identical(Oid type, Oid collation)
{
	TypeCacheEntry *entry = lookup_type_cache(type, TYPECACHE_BTREE_OPFAMILY);
	Oid function;

	if (!OidIsValid(entry->btree_opf))
		return false;
	function = get_opfamily_proc(entry->btree_opf, entry->btree_opintype, entry->btree_opintype,
								 BTEQUALIMAGE_PROC);
	return OidIsValid(function) &&
		   DatumGetBool(
			   OidFunctionCall1Coll(function, collation, ObjectIdGetDatum(entry->btree_opintype)));
}

/* The outer column that has the inner one's value in all rows of a semi-join; or NULL. */
static Var *
find_twin(const JoinQuery *query, const Var *inner)
{
	ListCell *clause;
	ListCell *outer_key;
	ListCell *inner_key;

	forthree(clause, query->key_clauses, outer_key, query->outer_keys, inner_key, query->inner_keys)
	{
		OpExpr *equality = (OpExpr *) lfirst_node(RestrictInfo, clause)->clause;
		Var *twin = (Var *) strip_relabelling(lfirst(outer_key));
		Var *own = (Var *) strip_relabelling(lfirst(inner_key));

		if (IsA(own, Var) && IsA(twin, Var) && is_same_column(own, inner) &&
			own->vartype == twin->vartype &&
			exprType(lfirst(inner_key)) == exprType(lfirst(outer_key)) &&
			is_equal_identical(exprType(lfirst(inner_key)), equality->inputcollid))
			return twin;
	}
	return NULL;
}

/*
 * Finds or makes the column that the nodes above see as the Var (`above`), or that keys and
 * conditions do.  NULL if there can be none.
 */
static PlannedColumn *
get_column(JoinQuery *query, Var *var, bool above)
{
	bool is_outer = bms_is_member(var->varno, query->outer->relids);
	PlannedColumn *column;
	bool hidden = false;
	ListCell *cell;

	if (above && !is_outer && query->type == JOIN_ANTI)
		return NULL;
	foreach(cell, query->columns)
	{
		column = lfirst(cell);
		if (!is_same_column(column->var, var))
			continue;
		if (above || is_outer || column->inner != NULL)
			return column;
		hidden = true; /* unless it is found further on */
	}
	column = palloc0(sizeof(PlannedColumn));
	column->var = var;
	column->hidden = hidden;
	if (is_outer)
		column->outer = var;
	else if (!above || query->type != JOIN_SEMI)
		column->inner = var;
	else if ((column->outer = find_twin(query, var)) == NULL)
		return NULL;
	query->columns = lappend(query->columns, column);
	return column;
}

/* Columns that the node reads: plain ones of the two relations. */
static bool
is_possible_var(const JoinQuery *query, const Var *var)
{
	return IsA(var, Var) && var->varattno > 0 && var->varlevelsup == 0 &&
		   (bms_is_member(var->varno, query->outer->relids) ||
			bms_is_member(var->varno, query->inner->relids)) &&
		   get_typlen(var->vartype) != -2;
}

static bool
add_columns(JoinQuery *query, List *expressions, bool above, bool kept)
{
	List *vars = pull_var_clause((Node *) expressions, PVC_INCLUDE_PLACEHOLDERS);
	ListCell *cell;

	foreach(cell, vars)
	{
		PlannedColumn *column;

		if (!is_possible_var(query, lfirst(cell)))
			return false;
		column = get_column(query, lfirst(cell), above);
		if (column == NULL)
			return false;
		column->kept |= kept;
	}
	list_free(vars);
	return true;
}

bool
join_clause_sort_out(JoinQuery *query, List *clauses)
{
	bool is_anti = query->type == JOIN_ANTI;

	return sort_out_clauses(query, clauses) &&
		   add_columns(query, query->joined->reltarget->exprs, true, true) &&
		   add_columns(query, query->outer_keys, false, false) &&
		   add_columns(query, query->inner_keys, false, false) &&
		   add_columns(query, get_actual_clauses(query->conditions), false, true) &&
		   add_columns(query, get_actual_clauses(query->filters), is_anti, true);
}

Expr *
join_clause_column(const PlannedColumn *column)
{
	Expr *expression = (Expr *) copyObject(column->var);
	const Var *var = column->var;

	if (column->hidden)
		expression = (Expr *) makeRelabelType(expression, var->vartype, var->vartypmod,
											  var->varcollid, COERCE_IMPLICIT_CAST);
	return expression;
}

static Node *
replace_columns(Node *node, const JoinQuery *query)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Var))
	{
		PlannedColumn *column = get_column((JoinQuery *) query, (Var *) node, false);

		return (Node *) join_clause_column(column);
	}
	return expression_tree_mutator(node, replace_columns, (void *) query);
}

Expr *
join_clause_in_columns(const JoinQuery *query, Expr *expression)
{
	return (Expr *) replace_columns((Node *) expression, query);
}
