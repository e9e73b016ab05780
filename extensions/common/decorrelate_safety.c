/*
 * decorrelate_safety.c
 *		Expressions that cannot fail, and aggregates that cannot.
 *
 * Decorrelation evaluates some expressions for rows that the query did not ask for; an error there
 * would be an error that the query did not have.  What is not known to be harmless may fail.
 *
 * Harmless are: leakproof functions, which by definition raise no error that depends on their
 * arguments; comparisons of built-in scalar types; and the built-in functions and aggregates of
 * the lists below.  Of the latter some end with an error at the end of the range of numeric or
 * double precision (10^131072, 10^308), which is disregarded; the integer types, whose ends real
 * data do reach, are not among them.
 */
#include "decorrelate_internal.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "compat.h"

static bool
is_harmless_function(Oid function)
{
	switch (function)
	{
		case F_NUMERIC_ADD:
		case F_NUMERIC_SUB:
		case F_NUMERIC_MUL:
		case F_NUMERIC_UMINUS:
		case F_NUMERIC_INT2:
		case F_NUMERIC_INT4:
		case F_NUMERIC_INT8:
		case F_FLOAT8PL:
		case F_FLOAT8MI:
		case F_FLOAT8MUL:
		case F_FLOAT8UM:
		case F_FLOAT8_INT2:
		case F_FLOAT8_INT4:
		case F_FLOAT8_INT8:
		case F_FLOAT8_FLOAT4:
		case F_INT4_INT2:
		case F_INT8_INT2:
		case F_INT8_INT4:
		case F_TEXTLIKE:
		case F_TEXTNLIKE:
		case F_BPCHARLIKE:
		case F_BPCHARNLIKE:
		case F_LOWER_TEXT:
		case F_UPPER_TEXT:
		case F_LENGTH_TEXT:
		case F_TEXT_BPCHAR:
			return true;
		default:
			return false;
	}
}

/* May the function fail for some arguments?  Checker for check_functions_in_node(). */
static bool
function_may_fail(Oid function, void *context)
{
	return !is_harmless_function(function) && !get_func_leakproof(function);
}

/* May the function fail although its arguments are constants? */
static bool
constant_function_may_fail(Oid function, void *context)
{
	return function >= FirstNormalObjectId && !get_func_leakproof(function);
}

/* A comparison (or its negation) of built-in types that are not made of others? */
static bool
is_plain_comparison(Oid opno)
{
	Oid left;
	Oid right;

	if (opno >= FirstNormalObjectId || compat_op_interpretations(opno) == NIL)
		return false;
	op_input_types(opno, &left, &right);
	return get_typtype(left) == TYPTYPE_BASE && get_typtype(right) == TYPTYPE_BASE;
}

static bool
find_var(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var) || IsA(node, Aggref) || IsA(node, SubLink))
		return true;
	return expression_tree_walker(node, find_var, context);
}

static bool
find_failure(Node *node, void *context)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_Aggref:
			/* judged by decorrelate_aggregate_may_fail(); here its result is a value as any */
			return false;

		case T_Var:
		case T_Const:
		case T_Param:
		case T_List:
		case T_TargetEntry:
		case T_ArrayExpr:
		case T_BoolExpr:
		case T_RelabelType:
		case T_CollateExpr:
		case T_CaseExpr:
		case T_CaseWhen:
		case T_CaseTestExpr:
		case T_CoalesceExpr:
		case T_NullTest:
		case T_BooleanTest:
		case T_SQLValueFunction:
			break;

		case T_OpExpr:
		case T_DistinctExpr:
		case T_NullIfExpr:
			if (is_plain_comparison(((OpExpr *) node)->opno))
				break;
			goto function;

		case T_ScalarArrayOpExpr:
			if (is_plain_comparison(((ScalarArrayOpExpr *) node)->opno))
				break;
			goto function;

		case T_FuncExpr:
		function:
			if (check_functions_in_node(node, function_may_fail, NULL) &&
				(check_functions_in_node(node, constant_function_may_fail, NULL) ||
				 expression_tree_walker(node, find_var, NULL)))
				return true;
			break;

		default:
			return true;
	}
	return expression_tree_walker(node, find_failure, context);
}

bool
decorrelate_may_fail(Node *node)
{
	return find_failure(node, NULL);
}

/* min() and max() of any type are the aggregates with a sort operator. */
static bool
is_extremum(Oid aggregate)
{
	HeapTuple tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggregate));
	bool result;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for aggregate %u", aggregate);
	result = OidIsValid(((Form_pg_aggregate) GETSTRUCT(tuple))->aggsortop);
	ReleaseSysCache(tuple);
	return result;
}

/* An aggregate that cannot fail, and gives NULL for no rows unless it counts? */
static bool
is_harmless_aggregate(Oid aggregate)
{
	switch (aggregate)
	{
		case F_COUNT_:
		case F_COUNT_ANY:
		case F_SUM_INT2:
		case F_SUM_INT4:
		case F_SUM_INT8:
		case F_SUM_NUMERIC:
		case F_SUM_FLOAT4:
		case F_SUM_FLOAT8:
		case F_AVG_INT2:
		case F_AVG_INT4:
		case F_AVG_INT8:
		case F_AVG_NUMERIC:
		case F_AVG_FLOAT4:
		case F_AVG_FLOAT8:
		case F_VARIANCE_INT2:
		case F_VARIANCE_INT4:
		case F_VARIANCE_INT8:
		case F_VARIANCE_NUMERIC:
		case F_VARIANCE_FLOAT4:
		case F_VARIANCE_FLOAT8:
		case F_VAR_SAMP_INT2:
		case F_VAR_SAMP_INT4:
		case F_VAR_SAMP_INT8:
		case F_VAR_SAMP_NUMERIC:
		case F_VAR_SAMP_FLOAT4:
		case F_VAR_SAMP_FLOAT8:
		case F_VAR_POP_INT2:
		case F_VAR_POP_INT4:
		case F_VAR_POP_INT8:
		case F_VAR_POP_NUMERIC:
		case F_VAR_POP_FLOAT4:
		case F_VAR_POP_FLOAT8:
		case F_STDDEV_INT2:
		case F_STDDEV_INT4:
		case F_STDDEV_INT8:
		case F_STDDEV_NUMERIC:
		case F_STDDEV_FLOAT4:
		case F_STDDEV_FLOAT8:
		case F_STDDEV_SAMP_INT2:
		case F_STDDEV_SAMP_INT4:
		case F_STDDEV_SAMP_INT8:
		case F_STDDEV_SAMP_NUMERIC:
		case F_STDDEV_SAMP_FLOAT4:
		case F_STDDEV_SAMP_FLOAT8:
		case F_STDDEV_POP_INT2:
		case F_STDDEV_POP_INT4:
		case F_STDDEV_POP_INT8:
		case F_STDDEV_POP_NUMERIC:
		case F_STDDEV_POP_FLOAT4:
		case F_STDDEV_POP_FLOAT8:
		case F_BOOL_AND:
		case F_BOOL_OR:
		case F_EVERY:
		case F_BIT_AND_INT2:
		case F_BIT_AND_INT4:
		case F_BIT_AND_INT8:
		case F_BIT_OR_INT2:
		case F_BIT_OR_INT4:
		case F_BIT_OR_INT8:
		case F_BIT_XOR_INT2:
		case F_BIT_XOR_INT4:
		case F_BIT_XOR_INT8:
			return true;
		default:
			return aggregate < FirstNormalObjectId && is_extremum(aggregate);
	}
}

/* Those that do neither give NULL for no rows, except for count(). */
bool
decorrelate_aggregate_may_fail(Aggref *aggregate)
{
	if (aggregate->aggkind != AGGKIND_NORMAL)
		return true;
	if (!is_harmless_aggregate(aggregate->aggfnoid))
	{
		/* a text or an array in an order that is told, not the one in which rows come */
		if (aggregate->aggorder == NIL || (aggregate->aggfnoid != F_STRING_AGG_TEXT_TEXT &&
										   aggregate->aggfnoid != F_STRING_AGG_BYTEA_BYTEA &&
										   aggregate->aggfnoid != F_ARRAY_AGG_ANYNONARRAY))
			return true;
	}
	return decorrelate_may_fail((Node *) aggregate->args) ||
		   decorrelate_may_fail((Node *) aggregate->aggfilter);
}
