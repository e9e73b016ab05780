/*
 * eager_aggregation.c
 *		Aggregates of the optional side of an outer join, made before the join.
 *
 *		SELECT c.name, count(o.id), sum(o.price) FROM c LEFT JOIN o ON o.c = c.id AND o.open GROUP BY c.name
 *
 * brings all rows of o here, if c's do not lie where they do.  The same is
 *
 *		SELECT c.name, coalesce(sum(g.a), 0), sum(g.b) FROM c LEFT JOIN
 *			(SELECT o.c, count(o.id) AS a, sum(o.price) AS b FROM o WHERE o.open GROUP BY o.c) AS g ON g.c = c.id
 *		GROUP BY c.name
 *
 * of which the workers make the groups of o.  A row of c counts as often as before, and takes its partners' sum along for
 * each of them.  What the aggregate's argument is for a row of c without partners, where all of o is NULL, has to be known
 * now: mostly NULL, which aggregates pass over; else CASE WHEN g.c IS NULL says it.
 *
 * The conditions: all aggregates are over columns of o alone, and can be put together from parts; o is named nowhere else but
 * in ON, there alone or in equalities by which its rows may be grouped; nothing that is evaluated for more rows than before can
 * fail.  Whether it is cheaper the caller finds out.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "parser/parse_coerce.h"
#include "parser/parse_oper.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "compat.h"
#include "decorrelate.h"
#include "plan/eager_aggregation.h"
#include "plan/planner.h"
#include "plan/query_levels.h"

/* The optional side in the range table of its groups. */
#define GROUPED_VARNO 1

typedef struct Level
{
	Query *query;
	JoinExpr *join;
	Index varno; /* of the optional side */
	List *keys;	 /* Var: what it is grouped by */
	List *quals; /* conditions of ON on it alone */
	List *rest;	 /* ... and all others */
	List *parts; /* Aggref: what the groups have beside the keys */
	bool failed;
} Level;

/* ---- which joins ----------------------------------------------------------------------------------------- */

static bool
may_be_grouped(const RangeTblEntry *rte)
{
	if (rte->lateral || rte->tablesample != NULL)
		return false;
	if (rte->rtekind == RTE_SUBQUERY)
		return planner_reads_distributed((Node *) rte->subquery) &&
			   !contain_volatile_functions((Node *) rte->subquery);
	return planner_is_distributed(rte);
}

/* The first outer join with such an optional side, not below the optional side of another one. */
static JoinExpr *
find_join(Query *query, Node *node, Index *varno)
{
	JoinExpr *join = (JoinExpr *) node;
	JoinExpr *found = NULL;
	Node *optional = NULL;
	ListCell *cell;

	if (IsA(node, FromExpr))
	{
		foreach(cell, ((FromExpr *) node)->fromlist)
		{
			found = find_join(query, lfirst(cell), varno);
			if (found != NULL)
				break;
		}
		return found;
	}
	if (!IsA(node, JoinExpr) || join->jointype == JOIN_FULL)
		return NULL;
	if (join->jointype == JOIN_LEFT)
		optional = join->rarg;
	else if (join->jointype == JOIN_RIGHT)
		optional = join->larg;
	if (optional != NULL && IsA(optional, RangeTblRef) &&
		may_be_grouped(rt_fetch(((RangeTblRef *) optional)->rtindex, query->rtable)))
	{
		*varno = ((RangeTblRef *) optional)->rtindex;
		return join;
	}
	if (optional != join->larg)
		found = find_join(query, join->larg, varno);
	if (found == NULL && optional != join->rarg)
		found = find_join(query, join->rarg, varno);
	return found;
}

static bool
find_candidate(Level *level)
{
	Query *query = level->query;

	if (query->commandType != CMD_SELECT || !query->hasAggs || query->groupingSets != NIL ||
		query->setOperations != NULL || query->hasTargetSRFs || query->rowMarks != NIL ||
		query->hasForUpdate || query->hasModifyingCTE)
		return false;
	level->join = find_join(query, (Node *) query->jointree, &level->varno);
	return level->join != NULL;
}

/* ---- what the level says of the optional side ---------------------------------------------------------------- */

typedef struct Naming
{
	Level *level;
	int depth;
} Naming;

/* Is a column of it named but in the aggregates and in ON? */
static bool
walk_named(Node *node, Naming *naming)
{
	Level *level = naming->level;
	bool found;

	if (node == NULL)
		return false;
	if (IsA(node, Var))
		return ((Var *) node)->varno == level->varno &&
			   ((Var *) node)->varlevelsup == naming->depth;
	if (IsA(node, Aggref) && ((Aggref *) node)->agglevelsup == naming->depth)
		return naming->depth > 0; /* of our level in a sub-select */
	if (node == (Node *) level->join)
		return walk_named(level->join->larg, naming) || walk_named(level->join->rarg, naming);
	if (!IsA(node, Query))
		return expression_tree_walker(node, walk_named, naming);
	naming->depth++;
	found = query_tree_walker((Query *) node, walk_named, naming, QTW_IGNORE_JOINALIASES);
	naming->depth--;
	return found;
}

static Node *
null_vars(Node *node, void *context)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Var) && ((Var *) node)->varlevelsup == 0)
		return (Node *) makeNullConst(((Var *) node)->vartype, ((Var *) node)->vartypmod,
									  ((Var *) node)->varcollid);
	return expression_tree_mutator(node, null_vars, context);
}

/* The value of an expression over columns of the optional side where all of them are NULL; false if it is not known now. */
static bool
evaluate_without(Node *expr, Const **value)
{
	Node *result = eval_const_expressions(NULL, null_vars(expr, NULL));

	*value = (Const *) result;
	return IsA(result, Const);
}

/* Does it name no column but the optional side's? */
static bool
is_of_side(Level *level, Node *node)
{
	Relids varnos = bms_del_member(pull_varnos(NULL, node), level->join->rtindex);
	int varno;

	return bms_is_empty(varnos) ||
		   (bms_get_singleton_member(varnos, &varno) && varno == (int) level->varno);
}

/* The column, without casts that change no bytes. */
static Var *
find_column(Level *level, Node *node)
{
	while (IsA(node, RelabelType))
		node = (Node *) ((RelabelType *) node)->arg;
	if (IsA(node, Var) && ((Var *) node)->varno == level->varno &&
		((Var *) node)->varlevelsup == 0 && ((Var *) node)->varattno > 0)
		return (Var *) node;
	return NULL;
}

/* Does the comparison tell nothing apart of what GROUP BY puts together? */
static bool
is_equality_of_groups(const OpExpr *comparison, const Var *column)
{
	TypeCacheEntry *entry = lookup_type_cache(column->vartype, TYPECACHE_BTREE_OPFAMILY);

	return OidIsValid(entry->btree_opf) &&
		   get_op_opfamily_strategy(comparison->opno, entry->btree_opf) == BTEqualStrategyNumber &&
		   comparison->inputcollid == column->varcollid;
}

static void
take_condition(Level *level, Node *condition)
{
	OpExpr *comparison = (OpExpr *) condition;
	Relids varnos = pull_varnos(NULL, condition);
	Var *column = NULL;
	Node *other = NULL;

	if (bms_is_member(level->varno, varnos) && is_of_side(level, condition))
	{
		level->quals = lappend(level->quals, condition);
		return;
	}
	level->rest = lappend(level->rest, condition);
	if (!bms_is_member(level->varno, varnos))
		return;
	if (IsA(condition, OpExpr) && list_length(comparison->args) == 2)
	{
		column = find_column(level, linitial(comparison->args));
		other = lsecond(comparison->args);
		if (column == NULL)
		{
			column = find_column(level, lsecond(comparison->args));
			other = linitial(comparison->args);
		}
	}
	if (column == NULL || bms_is_member(level->varno, pull_varnos(NULL, other)) ||
		!is_equality_of_groups(comparison, column))
		level->failed = true;
	else if (!list_member(level->keys, column))
		level->keys = lappend(level->keys, column);
}

static bool
take_conditions(Level *level)
{
	ListCell *cell;

	if (checkExprHasSubLink(level->join->quals) || contain_volatile_functions(level->join->quals))
		return false;
	foreach(cell, make_ands_implicit(
					  (Expr *) canonicalize_qual((Expr *) copyObject(level->join->quals), false)))
		take_condition(level, lfirst(cell));
	return !level->failed && level->keys != NIL;
}

/* ---- aggregates in two steps --------------------------------------------------------------------------------- */

static Node *
make_call(Oid function, Oid type, Node *argument)
{
	return (Node *) makeFuncExpr(function, type, list_make1(argument), InvalidOid, InvalidOid,
								 COERCE_EXPLICIT_CALL);
}

static Node *
make_bigint(int64 value)
{
	return (Node *) makeConst(INT8OID, -1, InvalidOid, sizeof(int64), Int64GetDatum(value), false,
							  FLOAT8PASSBYVAL);
}

/* A key's column, as ON sees it. */
static Var *
make_key(const Level *level, int number)
{
	const Var *key = list_nth(level->keys, number - 1);

	return makeVar(level->varno, number, key->vartype, key->vartypmod, key->varcollid, 0);
}

/* The column of the groups that has the aggregate. */
static AttrNumber
add_part(Level *level, Aggref *aggregate)
{
	AttrNumber column = list_length(level->keys);
	ListCell *cell;

	foreach(cell, level->parts)
	{
		column++;
		if (equal(lfirst(cell), aggregate))
			return column;
	}
	level->parts = lappend(level->parts, aggregate);
	return column + 1;
}

/* A part's column, as the level sees it; for a row without partners that value, if there is one. */
static Node *
make_part(Level *level, Aggref *aggregate, Node *without)
{
	Var *value = makeVar(level->varno, add_part(level, aggregate), aggregate->aggtype,
						 exprTypmod((Node *) aggregate), aggregate->aggcollid, 0);
	Var *key;
	NullTest *test;
	CaseExpr *choice;
	CaseWhen *when;

	compat_set_nulling(value, level->join->rtindex);
	if (without == NULL)
		return (Node *) value;

	key = make_key(level, 1);
	compat_set_nulling(key, level->join->rtindex);
	test = makeNode(NullTest);
	test->arg = (Expr *) key;
	test->nulltesttype = IS_NULL;
	test->location = -1;
	when = makeNode(CaseWhen);
	when->expr = (Expr *) test;
	when->result = (Expr *) without;
	when->location = -1;
	choice = makeNode(CaseExpr);
	choice->casetype = aggregate->aggtype;
	choice->casecollid = aggregate->aggcollid;
	choice->args = list_make1(when);
	choice->defresult = (Expr *) value;
	choice->location = -1;
	return (Node *) choice;
}

/* The count of a part, put together: coalesce(sum(part), 0). */
static Node *
make_count(Level *level, Aggref *count, bool with_row)
{
	CoalesceExpr *result = makeNode(CoalesceExpr);
	Node *part = make_part(level, count, with_row ? make_bigint(1) : NULL);
	Node *sum = (Node *) query_levels_aggregate(F_SUM_INT8, NUMERICOID, part, InvalidOid);

	result->coalescetype = INT8OID;
	result->args = list_make2(make_call(F_INT8_NUMERIC, INT8OID, sum), make_bigint(0));
	result->location = -1;
	return (Node *) result;
}

/* sum() of a part as numeric: of integers as they are, or widened. */
static Node *
make_sum(Level *level, Aggref *sum, Node *without)
{
	Node *part;

	if (without != NULL)
		without = coerce_to_target_type(NULL, without, exprType(without), sum->aggtype, -1,
										COERCION_IMPLICIT, COERCE_IMPLICIT_CAST, -1);
	part = make_part(level, sum, without);
	return (Node *) query_levels_aggregate(sum->aggtype == INT8OID ? F_SUM_INT8 : F_SUM_NUMERIC,
										   NUMERICOID, part, InvalidOid);
}

/* The aggregate sum() of the arguments of another one. */
static Aggref *
as_sum(const Aggref *aggregate, Oid function, Oid type)
{
	Aggref *result = copyObject((Aggref *) aggregate);

	result->aggfnoid = function;
	result->aggtype = type;
	return result;
}

/* avg() as the quotient of sum and count, which is what avg() of integers and numeric computes. */
static Node *
make_average(Level *level, Aggref *average, Aggref *sum, Node *without)
{
	Node *dividend = make_sum(level, sum, without);
	Node *divisor = make_count(level, as_sum(average, F_COUNT_ANY, INT8OID), without != NULL);
	NullIfExpr *none = makeNode(NullIfExpr);
	OpExpr *equal = (OpExpr *) make_opclause(lookup_type_cache(INT8OID, TYPECACHE_EQ_OPR)->eq_opr,
											 BOOLOID, false, (Expr *) divisor,
											 (Expr *) make_bigint(0), InvalidOid, InvalidOid);

	set_opfuncid(equal);
	memcpy(none, equal, sizeof(OpExpr));
	NodeSetTag(none, T_NullIfExpr);
	none->opresulttype = INT8OID;
	return (Node *) makeFuncExpr(
		F_NUMERIC_DIV, NUMERICOID,
		list_make2(dividend, make_call(F_NUMERIC_INT8, NUMERICOID, (Node *) none)), InvalidOid,
		InvalidOid, COERCE_EXPLICIT_CALL);
}

static bool
is_idempotent(Oid function)
{
	char *name = get_func_name(function);

	return function < FirstNormalObjectId &&
		   (strcmp(name, "min") == 0 || strcmp(name, "max") == 0 || strcmp(name, "bool_and") == 0 ||
			strcmp(name, "bool_or") == 0 || strcmp(name, "every") == 0 ||
			strcmp(name, "bit_and") == 0 || strcmp(name, "bit_or") == 0);
}

/* The aggregate over its parts; NULL if it cannot be put together. */
static Node *
combine(Level *level, Aggref *aggregate)
{
	Node *argument = aggregate->args == NIL
						 ? NULL
						 : (Node *) linitial_node(TargetEntry, aggregate->args)->expr;
	Const *chosen = NULL;
	Const *value = NULL;
	Node *without = NULL;
	bool adds = true; /* does a row without partners add anything? */

	if (aggregate->aggdistinct != NIL || aggregate->aggorder != NIL ||
		list_length(aggregate->args) > 1 || decorrelate_aggregate_may_fail(aggregate) ||
		contain_volatile_functions((Node *) aggregate) ||
		checkExprHasSubLink((Node *) aggregate->args) ||
		checkExprHasSubLink((Node *) aggregate->aggfilter) ||
		!is_of_side(level, (Node *) aggregate))
		return NULL;
	if (aggregate->aggfilter != NULL)
	{
		if (!evaluate_without((Node *) aggregate->aggfilter, &chosen))
			return NULL;
		adds = !chosen->constisnull && DatumGetBool(chosen->constvalue);
	}
	if (argument != NULL && adds)
	{
		if (!evaluate_without(argument, &value))
			return NULL;
		adds = !value->constisnull;
		without = adds ? (Node *) value : NULL;
	}

	switch (aggregate->aggfnoid)
	{
		case F_COUNT_:
		case F_COUNT_ANY:
			return make_count(level, aggregate, adds);
		case F_SUM_INT2:
		case F_SUM_INT4:
			return make_call(F_INT8_NUMERIC, INT8OID, make_sum(level, aggregate, without));
		case F_SUM_NUMERIC:
		case F_SUM_INT8:
			return make_sum(level, aggregate, without);
		case F_AVG_INT2:
			return make_average(level, aggregate, as_sum(aggregate, F_SUM_INT2, INT8OID), without);
		case F_AVG_INT4:
			return make_average(level, aggregate, as_sum(aggregate, F_SUM_INT4, INT8OID), without);
		case F_AVG_INT8:
			return make_average(level, aggregate, as_sum(aggregate, F_SUM_INT8, NUMERICOID),
								without);
		case F_AVG_NUMERIC:
			return make_average(level, aggregate, as_sum(aggregate, F_SUM_NUMERIC, NUMERICOID),
								without);
		default:
			if (!is_idempotent(aggregate->aggfnoid))
				return NULL;
			return (Node *) query_levels_aggregate(aggregate->aggfnoid, aggregate->aggtype,
												   make_part(level, aggregate, without),
												   aggregate->inputcollid);
	}
}

static Node *
combine_all(Node *node, void *context)
{
	Level *level = context;

	if (node == NULL || level->failed)
		return NULL;
	if (IsA(node, Aggref) && ((Aggref *) node)->agglevelsup == 0)
	{
		node = combine(level, (Aggref *) node);
		level->failed |= node == NULL;
		return node;
	}
	return expression_tree_mutator(node, combine_all, context);
}

/* ---- the groups ------------------------------------------------------------------------------------------ */

/* What stands one level deeper now, over the only relation there. */
static Node *
move_down(Level *level, Node *node)
{
	node = copyObject(compat_remove_nulling(node, level->join->rtindex));
	IncrementVarSublevelsUp(node, 1, 1);
	ChangeVarNodes(node, (int) level->varno, GROUPED_VARNO, 0);
	return node;
}

static bool
add_key(Query *groups, Var *key)
{
	SortGroupClause *clause = makeNode(SortGroupClause);
	TargetEntry *target = makeTargetEntry((Expr *) key, list_length(groups->targetList) + 1,
										  psprintf("k%d", list_length(groups->targetList) + 1),
										  false);

	get_sort_group_operators(key->vartype, false, false, false, &clause->sortop, &clause->eqop,
							 NULL, &clause->hashable);
	compat_forget_nulling(key);
	target->ressortgroupref = target->resno;
	clause->tleSortGroupRef = target->resno;
	groups->targetList = lappend(groups->targetList, target);
	groups->groupClause = lappend(groups->groupClause, clause);
	return OidIsValid(clause->eqop);
}

/* The optional side, grouped; NULL if that is not possible. */
static Query *
make_groups(Level *level)
{
	Query *groups = makeNode(Query);
	RangeTblEntry *side = copyObject(rt_fetch(level->varno, level->query->rtable));
	RangeTblRef *reference = makeNode(RangeTblRef);
	ListCell *cell;

	groups->commandType = CMD_SELECT;
	groups->querySource = level->query->querySource;
	groups->hasAggs = true;
	groups->hasRowSecurity = level->query->hasRowSecurity;
	groups->hasSubLinks = level->query->hasSubLinks; /* of policies */
	if (side->rtekind == RTE_SUBQUERY)
		IncrementVarSublevelsUp((Node *) side->subquery, 1, 1);
	IncrementVarSublevelsUp((Node *) side->securityQuals, 1, 1);
	ChangeVarNodes((Node *) side->securityQuals, (int) level->varno, GROUPED_VARNO, 0);
	groups->rtable = list_make1(side);
	compat_copy_permissions(groups, side, level->query);
	reference->rtindex = GROUPED_VARNO;
	groups->jointree = makeFromExpr(
		list_make1(reference),
		(Node *) make_ands_explicit((List *) move_down(level, (Node *) level->quals)));
	foreach(cell, level->keys)
	{
		if (!add_key(groups, (Var *) move_down(level, lfirst(cell))))
			return NULL;
	}
	foreach(cell, level->parts)
	{
		AttrNumber column = list_length(groups->targetList) + 1;

		groups->targetList = lappend(groups->targetList,
									 makeTargetEntry((Expr *) move_down(level, lfirst(cell)),
													 column, psprintf("a%d", column), false));
	}
	return groups;
}

/* ---- the level over them ----------------------------------------------------------------------------------- */

/* Columns of the optional side in ON as those of its groups. */
static Node *
replace_keys(Node *node, void *context)
{
	Level *level = context;
	ListCell *cell;

	if (node == NULL)
		return NULL;
	foreach(cell, IsA(node, Var) ? level->keys : NIL)
	{
		if (equal(lfirst(cell), node))
			return (Node *) make_key(level, foreach_current_index(cell) + 1);
	}
	return expression_tree_mutator(node, replace_keys, context);
}

/* Columns of joins are written out: what stands for them is not looked at any more. */
static void
forget_join_columns(Query *query)
{
	ListCell *cell;

	foreach(cell, query->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, cell);

		if (rte->rtekind == RTE_JOIN)
			rte->joinaliasvars = (List *) null_vars((Node *) rte->joinaliasvars, NULL);
	}
}

static void
write_out_joins(Query *query)
{
	query->targetList = (List *) compat_flatten_joins(query, query->targetList);
	query->havingQual = compat_flatten_joins(query, query->havingQual);
	query->jointree = (FromExpr *) compat_flatten_joins(query, query->jointree);
}

static bool
is_named_elsewhere(Level *level)
{
	Naming naming = {.level = level};
	int flags = QTW_IGNORE_JOINALIASES;
	ListCell *cell;

	foreach(cell, level->query->rtable)
	{
		if (foreach_current_index(cell) + 1 != level->varno &&
			range_table_entry_walker(lfirst_node(RangeTblEntry, cell), walk_named, &naming, flags))
			return true;
	}
	return query_tree_walker(level->query, walk_named, &naming, flags | QTW_IGNORE_RANGE_TABLE);
}

bool
eager_aggregation_may_apply(Query *level)
{
	Level candidate = {.query = level};

	return find_candidate(&candidate);
}

bool
eager_aggregation_rewrite(Query *query)
{
	Query *written;
	Level level;
	Query *groups;

	if (!eager_aggregation_may_apply(query))
		return false;
	written = copyObject(query);
	compat_flatten_groups(written);
	write_out_joins(written);
	level = (Level){.query = written};
	if (!find_candidate(&level) || is_named_elsewhere(&level) || !take_conditions(&level))
		return false;
	written->targetList = (List *) combine_all((Node *) written->targetList, &level);
	written->havingQual = combine_all(written->havingQual, &level);
	if (level.failed || level.parts == NIL)
		return false;
	groups = make_groups(&level);
	if (groups == NULL)
		return false;
	level.join->quals = (Node *) make_ands_explicit(
		(List *) replace_keys((Node *) level.rest, &level));
	lfirst(list_nth_cell(written->rtable, level.varno - 1)) = decorrelate_subquery_entry(groups,
																						 "grouped");
	forget_join_columns(written);
	*query = *written;
	return true;
}
