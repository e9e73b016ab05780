/*
 * key_range_estimate.c
 *		How many rows of a large table join those that a condition leaves of a dimension in the order of its key.
 *
 *		SELECT ... FROM sales JOIN days ON days.id = sales.day WHERE days.year = 2001
 *
 * Days of two centuries, sales of five years: core expects that a sale is of the year 2001 as seldom as a day is.  But the
 * days lie in order, their keys as well as their years, which ANALYZE has found out (as a correlation with the order of
 * rows).  So the year is a range of keys, which the statistics of days say, and those of sales say how many of them
 * are in that range.
 *
 * What core is told is the selectivity of the clause, which it keeps with it: of inner joins alone.  Keys and columns of types
 * that are numbers or moments, which can be interpolated.
 *
 * GROUP BY days.year likewise has as many groups as there are years with sales.  Of a column by which the query groups core is
 * given statistics with fewer different values.
 */
#include "compat.h"

#include "key_range_estimate.h"

#include <math.h>

#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/sysattr.h"
#include "catalog/pg_statistic.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/plancat.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "join_estimate.h"
#include "value_number.h"

/* Columns with so much correlation follow the order of the rows. */
#define LEAST_CORRELATION 0.98

/* A smaller share of the rows is not believed: statistics are of a sample. */
#define LEAST_SHARE 0.0001

/* A part of the dimension's rows in their order, from 0 to 1. */
typedef struct Part
{
	double from;
	double to;
} Part;

static get_relation_stats_hook_type previous_hook = NULL;

/* ---- statistics ------------------------------------------------------------------------------------------ */

/* Is it a type of whole numbers or moments? */
static bool
has_numbers(Oid type)
{
	double number;

	return type != FLOAT4OID && type != FLOAT8OID && value_number_get(type, (Datum) 0, &number);
}

/* The column's statistics, not as this hook gives them; false without any.  To be released. */
static bool
look_at(PlannerInfo *root, const Var *column, VariableStatData *found)
{
	RangeTblEntry *rte = planner_rt_fetch(column->varno, root);

	memset(found, 0, sizeof(*found));
	found->var = (Node *) column;
	found->rel = find_base_rel(root, column->varno);
	found->vartype = found->atttype = column->vartype;
	found->atttypmod = column->vartypmod;
	found->isunique = has_unique_index(found->rel, column->varattno);
	if (previous_hook && previous_hook(root, rte, column->varattno, found))
		return HeapTupleIsValid(found->statsTuple);
	found->statsTuple = SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(rte->relid),
										Int16GetDatum(column->varattno), BoolGetDatum(rte->inh));
	found->freefunc = ReleaseSysCache;
	return HeapTupleIsValid(found->statsTuple);
}

/* Does the column follow the order of the rows: 1, or -1 against it; 0: neither. */
static int
find_direction(PlannerInfo *root, const Var *column)
{
	VariableStatData found;
	AttStatsSlot slot;
	int direction = 0;

	if (!look_at(root, column, &found))
		return 0;
	if (get_attstatsslot(&slot, found.statsTuple, STATISTIC_KIND_CORRELATION, InvalidOid,
						 ATTSTATSSLOT_NUMBERS))
	{
		if (slot.nnumbers == 1 && slot.numbers[0] >= LEAST_CORRELATION)
			direction = 1;
		else if (slot.nnumbers == 1 && slot.numbers[0] <= -LEAST_CORRELATION)
			direction = -1;
		free_attstatsslot(&slot);
	}
	ReleaseVariableStats(found);
	return direction;
}

/* The keys at the part's ends, by the histogram of the key; false without one. */
static bool
find_keys(PlannerInfo *root, const Var *key, const Part *part, double *low, double *high)
{
	VariableStatData found;
	AttStatsSlot slot;
	bool result = false;

	if (!look_at(root, key, &found))
		return false;
	if (get_attstatsslot(&slot, found.statsTuple, STATISTIC_KIND_HISTOGRAM, InvalidOid,
						 ATTSTATSSLOT_VALUES))
	{
		double ends[2] = {part->from, part->to};

		result = slot.nvalues >= 2;
		for (int i = 0; result && i < 2; i++)
		{
			double place = ends[i] * (slot.nvalues - 1);
			int bin = Min((int) place, slot.nvalues - 2);
			double left;
			double right;

			(void) value_number_get(key->vartype, slot.values[bin], &left);
			(void) value_number_get(key->vartype, slot.values[bin + 1], &right);
			ends[i] = left + (right - left) * (place - bin);
		}
		*low = ends[0];
		*high = ends[1];
		free_attstatsslot(&slot);
	}
	ReleaseVariableStats(found);
	return result;
}

/* The share of the relation's rows for which `column op value` holds. */
static double
find_share(PlannerInfo *root, const Var *column, Oid family, int strategy, Oid type, Datum value)
{
	Oid operator= get_opfamily_member(family, column->vartype, type, strategy);
	Const *constant = makeConst(type, -1, InvalidOid, get_typlen(type), value, false,
								get_typbyval(type));

	if (!OidIsValid(operator))
		return -1;
	return clause_selectivity(root,
							  (Node *) make_opclause(operator, BOOLOID, false, (Expr *) column,
													 (Expr *) constant, InvalidOid, InvalidOid),
							  column->varno, JOIN_INNER, NULL);
}

/* ---- which part of the dimension --------------------------------------------------------------------------- */

/* Narrows the part to the rows that compare so with the value. */
static void
narrow(PlannerInfo *root, const Var *column, Oid family, int strategy, const Const *constant,
	   Part *part)
{
	double before = find_share(root, column, family, BTLessStrategyNumber, constant->consttype,
							   constant->constvalue);
	double until = find_share(root, column, family, BTLessEqualStrategyNumber, constant->consttype,
							  constant->constvalue);

	if (before < 0 || until < 0)
		return;
	if (strategy == BTLessStrategyNumber)
		part->to = Min(part->to, before);
	else if (strategy <= BTEqualStrategyNumber)
		part->to = Min(part->to, until);
	if (strategy == BTGreaterStrategyNumber)
		part->from = Max(part->from, until);
	else if (strategy >= BTEqualStrategyNumber)
		part->from = Max(part->from, before);
}

/* Narrows it to the rows between the smallest and the greatest element of a list. */
static void
narrow_to_list(PlannerInfo *root, const Var *column, Oid family, const Const *list, Part *part)
{
	ArrayType *array = DatumGetArrayTypeP(list->constvalue);
	Oid type = ARR_ELEMTYPE(array);
	Part hull = {1, 0};
	int16 length;
	bool by_value;
	char alignment;
	Datum *values;
	bool *nulls;
	int count;

	get_typlenbyvalalign(type, &length, &by_value, &alignment);
	deconstruct_array(array, type, length, by_value, alignment, &values, &nulls, &count);
	for (int i = 0; i < count; i++)
	{
		Part one = {0, 1};

		if (nulls[i])
			continue;
		narrow(root, column, family, BTEqualStrategyNumber,
			   makeConst(type, -1, InvalidOid, length, values[i], false, by_value), &one);
		hull.from = Min(hull.from, one.from);
		hull.to = Max(hull.to, one.to);
	}
	part->from = Max(part->from, hull.from);
	part->to = Min(part->to, hull.to);
}

/* A column of the relation that is compared with a constant: false if the condition is something else. */
static bool
read_condition(PlannerInfo *root, const RelOptInfo *rel, Node *condition, const Var **column,
			   Oid *operator, Const ** constant)
{
	List *args;
	Node *left;
	Node *right;

	if (IsA(condition, OpExpr))
	{
		args = ((OpExpr *) condition)->args;
		*operator=((OpExpr *) condition)->opno;
	}
	else if (IsA(condition, ScalarArrayOpExpr) && ((ScalarArrayOpExpr *) condition)->useOr)
	{
		args = ((ScalarArrayOpExpr *) condition)->args;
		*operator=((ScalarArrayOpExpr *) condition)->opno;
	}
	else
		return false;
	if (list_length(args) != 2)
		return false;
	left = linitial(args);
	right = lsecond(args);
	if (IsA(condition, OpExpr) && !IsA(left, Var))
	{
		Node *other = left;

		left = right;
		right = other;
		*operator= get_commutator(*operator);
	}
	if (!IsA(left, Var) || ((Var *) left)->varno != (int) rel->relid ||
		((Var *) left)->varattno <= 0 || !OidIsValid(*operator))
		return false;
	right = estimate_expression_value(root, right);
	*column = (const Var *) left;
	*constant = (Const *) right;
	return IsA(right, Const) && !((Const *) right)->constisnull &&
		   has_numbers(((Var *) left)->vartype);
}

/* The part that the relation's conditions leave, in the key's direction. */
static Part
find_part(PlannerInfo *root, const RelOptInfo *rel, int key_direction)
{
	Part result = {0, 1};
	ListCell *cell;

	foreach(cell, rel->baserestrictinfo)
	{
		Node *condition = (Node *) lfirst_node(RestrictInfo, cell)->clause;
		const Var *column;
		Const *constant;
		Part part = {0, 1};
		Oid operator;
		Oid family;
		int direction;
		int strategy;

		if (!read_condition(root, rel, condition, &column, &operator, & constant))
			continue;
		family = lookup_type_cache(column->vartype, TYPECACHE_BTREE_OPFAMILY)->btree_opf;
		strategy = get_op_opfamily_strategy(operator, family);
		direction = strategy != 0 ? find_direction(root, column) : 0;
		if (direction == 0)
			continue;
		if (IsA(condition, OpExpr))
			narrow(root, column, family, strategy, constant, &part);
		else if (strategy == BTEqualStrategyNumber)
			narrow_to_list(root, column, family, constant, &part);
		if (direction != key_direction)
			part = (Part){1 - part.to, 1 - part.from};
		result.from = Max(result.from, part.from);
		result.to = Min(result.to, part.to);
	}
	return result;
}

/* ---- joins --------------------------------------------------------------------------------------------------- */

/* Core knows the join by a foreign key, whose rows have partners anywhere: no longer. */
static void
forget_key(PlannerInfo *root, Index referencing, Index referenced, AttrNumber attribute)
{
	ListCell *cell;

	foreach(cell, root->fkey_list)
	{
		const ForeignKeyOptInfo *key = lfirst(cell);

		if (key->con_relid == referencing && key->ref_relid == referenced && key->nkeys == 1 &&
			key->confkey[0] == attribute)
			root->fkey_list = foreach_delete_current(root->fkey_list, cell);
	}
}

/* Tells core that so many of the pairs of rows are equal: `a = b` and `b = a` are apart. */
static void
set_selectivity(PlannerInfo *root, const EquivalenceClass *ec, RelOptInfo *one, RelOptInfo *other,
				Selectivity selectivity)
{
	Relids both = bms_union(one->relids, other->relids);
	List *clauses = list_concat_copy(compat_join_equalities(root, both, one->relids, other),
									 compat_join_equalities(root, both, other->relids, one));
	ListCell *cell;

	foreach(cell, clauses)
	{
		RestrictInfo *clause = lfirst_node(RestrictInfo, cell);

		if (clause->parent_ec == ec)
			clause->norm_selec = selectivity;
	}
}

/* Rows of the partner have a key between these, and `rest` of those keys are of rows that the other conditions leave. */
static void
estimate_partner(PlannerInfo *root, RelOptInfo *dimension, const Var *key,
				 const EquivalenceClass *ec, const Var *partner, double low, double high,
				 double rest)
{
	RelOptInfo *other = find_base_rel(root, partner->varno);
	Oid family = linitial_oid(ec->ec_opfamilies);
	Oid type = key->vartype;
	VariableStatData found;
	double share;

	if (other->reloptkind != RELOPT_BASEREL || other->rtekind != RTE_RELATION ||
		!look_at(root, partner, &found))
		return;
	ReleaseVariableStats(found);
	share = find_share(root, partner, family, BTLessEqualStrategyNumber, type,
					   value_number_make(type, ceil(high))) -
			find_share(root, partner, family, BTLessStrategyNumber, type,
					   value_number_make(type, floor(low)));
	set_selectivity(root, ec, dimension, other, Max(share, LEAST_SHARE) * rest / dimension->rows);
	forget_key(root, partner->varno, dimension->relid, key->varattno);
}

/* Joins by a key of the dimension that follows the order of its rows. */
static void
estimate_key(PlannerInfo *root, RelOptInfo *dimension, const EquivalenceClass *ec, const Var *key)
{
	int direction = find_direction(root, key);
	Part part;
	double share = dimension->rows / Max(dimension->tuples, 1);
	double low;
	double high;
	ListCell *cell;

	if (direction == 0)
		return;
	part = find_part(root, dimension, direction);
	if ((part.from <= 0 && part.to >= 1) || part.from >= part.to ||
		!find_keys(root, key, &part, &low, &high))
		return;
	foreach(cell, ec->ec_members)
	{
		const EquivalenceMember *member = lfirst_node(EquivalenceMember, cell);
		const Var *partner = (const Var *) member->em_expr;

		if (!member->em_is_child && IsA(partner, Var) && partner->varno != (int) dimension->relid &&
			partner->varattno > 0)
			estimate_partner(root, dimension, key, ec, partner, low, high,
							 Min(share / (part.to - part.from), 1));
	}
}

/* The class by which the index is a key that others are equal to, and its column; NULL: it is none. */
static const EquivalenceClass *
find_key(PlannerInfo *root, const RelOptInfo *dimension, const IndexOptInfo *index, const Var **key)
{
	const EquivalenceClass *ec;

	if (!index->unique || !index->immediate || index->nkeycolumns != 1 || index->indpred != NIL ||
		index->indexkeys[0] <= 0)
		return NULL;
	ec = join_estimate_find_class(root, dimension, index->indexkeys[0]);
	if (ec == NULL || ec->ec_has_const)
		return NULL;
	*key =
		(const Var *) join_estimate_find_member(ec, dimension->relid, index->indexkeys[0])->em_expr;
	return IsA(*key, Var) && has_numbers((*key)->vartype) ? ec : NULL;
}

void
key_range_estimate_relation(PlannerInfo *root, RelOptInfo *dimension)
{
	ListCell *cell;

	if (dimension->baserestrictinfo == NIL || !dimension->has_eclass_joins)
		return;
	foreach(cell, dimension->indexlist)
	{
		const Var *key;
		const EquivalenceClass *ec = find_key(root, dimension, lfirst_node(IndexOptInfo, cell),
											  &key);

		if (ec != NULL)
			estimate_key(root, dimension, ec, key);
	}
}

/* ---- groups ---------------------------------------------------------------------------------------------------- */

/* Does the query group by the column, or make rows distinct, without conditions on it? */
static bool
is_grouped(const PlannerInfo *root, const RelOptInfo *rel, AttrNumber attribute)
{
	List *clauses = root->parse->groupClause ? root->parse->groupClause
											 : root->parse->distinctClause;
	Bitmapset *restricted = NULL;
	ListCell *cell;

	foreach(cell, clauses)
	{
		const Var *grouped = (const Var *) get_sortgroupclause_expr(lfirst(cell),
																	root->parse->targetList);

		if (IsA(grouped, Var) && grouped->varno == (int) rel->relid &&
			grouped->varattno == attribute)
			break;
	}
	if (cell == NULL)
		return false;
	foreach(cell, rel->baserestrictinfo)
		pull_varattnos((Node *) lfirst_node(RestrictInfo, cell)->clause, rel->relid, &restricted);
	return !bms_is_member(attribute - FirstLowInvalidHeapAttributeNumber, restricted);
}

/* The share of the dimension's keys that a table which is joined by one of them has. */
static double
find_joined_share(PlannerInfo *root, RelOptInfo *dimension, const EquivalenceClass *ec)
{
	double result = 1;
	ListCell *cell;

	foreach(cell, ec->ec_members)
	{
		const EquivalenceMember *member = lfirst_node(EquivalenceMember, cell);
		const Var *partner = (const Var *) member->em_expr;
		VariableStatData found;
		bool is_default;
		double values;

		if (member->em_is_child || !IsA(partner, Var) || partner->varno == (int) dimension->relid ||
			partner->varattno <= 0 ||
			find_base_rel(root, partner->varno)->rtekind != RTE_RELATION ||
			!look_at(root, partner, &found))
			continue;
		values = get_variable_numdistinct(&found, &is_default);
		ReleaseVariableStats(found);
		if (!is_default)
			result = Min(result, values / Max(dimension->tuples, 1));
	}
	return result;
}

/* The share of the dimension's rows, in their order, that the query can meet. */
static double
find_met_share(PlannerInfo *root, RelOptInfo *dimension)
{
	double result = 1;
	ListCell *cell;

	foreach(cell, dimension->indexlist)
	{
		const Var *key;
		const EquivalenceClass *ec = find_key(root, dimension, lfirst_node(IndexOptInfo, cell),
											  &key);
		int direction = ec != NULL ? find_direction(root, key) : 0;
		Part part;

		if (direction == 0)
			continue;
		part = find_part(root, dimension, direction);
		result = Min(result, find_joined_share(root, dimension, ec));
		result = Min(result, Max(part.to - part.from, 0));
	}
	return result;
}

/* Statistics of a column with so large a share of its values; NULL: as they are. */
static HeapTuple
lower_distinct(PlannerInfo *root, RelOptInfo *rel, const RangeTblEntry *rte, AttrNumber attribute)
{
	HeapTuple tuple = SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(rte->relid),
									  Int16GetDatum(attribute), BoolGetDatum(rte->inh));
	HeapTuple result = NULL;
	Form_pg_statistic statistics;
	double values;
	double share;

	if (!HeapTupleIsValid(tuple))
		return NULL;
	statistics = (Form_pg_statistic) GETSTRUCT(tuple);
	values = statistics->stadistinct < 0 ? -statistics->stadistinct * rel->tuples
										 : statistics->stadistinct;
	share = find_met_share(root, rel);
	if (values > 0 && share < 1)
	{
		result = heap_copytuple(tuple);
		((Form_pg_statistic) GETSTRUCT(result))->stadistinct = (float4) ceil(
			Max(values * share, 1));
	}
	ReleaseSysCache(tuple);
	return result;
}

/* get_relation_stats_hook */
static bool
find_statistics(PlannerInfo *root, RangeTblEntry *rte, AttrNumber attribute, VariableStatData *data)
{
	RelOptInfo *rel;
	Var *column;

	if (previous_hook && previous_hook(root, rte, attribute, data))
		return true;
	if (rte->rtekind != RTE_RELATION || attribute <= 0 || !root->ec_merging_done)
		return false;
	rel = join_estimate_find_relation(root, rte);
	if (rel == NULL || rel->reloptkind != RELOPT_BASEREL || !rel->has_eclass_joins ||
		!is_grouped(root, rel, attribute))
		return false;
	column = makeVar(rel->relid, attribute, get_atttype(rte->relid, attribute), -1, InvalidOid, 0);
	if (find_direction(root, column) == 0)
		return false;
	data->statsTuple = lower_distinct(root, rel, rte, attribute);
	data->freefunc = heap_freetuple;
	return data->statsTuple != NULL;
}

void
key_range_estimate_initialize(void)
{
	previous_hook = get_relation_stats_hook;
	get_relation_stats_hook = find_statistics;
}
