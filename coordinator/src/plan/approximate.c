/*
 * approximate.c
 *		Distinct counts by HyperLogLog.
 *
 * approx_count_distinct(x) is a slow but complete aggregate of its own (it works
 * on local tables too); here it becomes
 *
 *		strata.hll_estimate(hll_add_agg(strata.hll_hash(x)))
 *
 * whose state postgresql-hll keeps unpacked and whose partial states the
 * coordinator merges.  count(DISTINCT x) becomes the same, with as many registers
 * as the permitted error asks for: the standard error of HyperLogLog is
 * 1.04 / sqrt(registers).
 */
#include "postgres.h"

#include <math.h>

#include "catalog/namespace.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_func.h"
#include "parser/parse_node.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "plan/approximate.h"
#include "compat.h"
#include "plan/planner.h"
#include "server/settings.h"

/* Registers of a sketch, as a power of two; postgresql-hll's own bounds are wider but cost memory. */
#define MIN_LOG2M 4
#define MAX_LOG2M 17
#define DEFAULT_LOG2M 11

typedef struct ApproximateContext
{
	Oid approximate; /* strata.approx_count_distinct(anyelement) */
	bool counts_too; /* count(DISTINCT) as well */
} ApproximateContext;

/* A call of a function of schema strata, found by its argument types; arguments are coerced. */
static Expr *
make_call(char *name, List *args)
{
	List *qualified = list_make2(makeString("strata"), makeString(name));
	ParseState *pstate = make_parsestate(NULL);
	Node *call = ParseFuncOrColumn(pstate, qualified, args, NULL,
								   makeFuncCall(qualified, NIL, COERCE_EXPLICIT_CALL, -1), false,
								   -1);

	free_parsestate(pstate);
	return (Expr *) call;
}

/* The hash of the value to be counted. */
static Expr *
make_hash(Expr *value)
{
	Oid type = exprType((Node *) value);
	Oid base = getBaseType(type);

	/* an enum's own hash differs between nodes; a varchar counts as the text it is */
	if (type_is_enum(base))
	{
		CoerceViaIO *cast = makeNode(CoerceViaIO);

		cast->arg = value;
		cast->resulttype = TEXTOID;
		cast->resultcollid = DEFAULT_COLLATION_OID;
		cast->coerceformat = COERCE_EXPLICIT_CAST;
		cast->location = -1;
		value = (Expr *) cast;
	}
	else if (base == VARCHAROID)
		value = (Expr *) makeRelabelType(value, TEXTOID, -1, exprCollation((Node *) value),
										 COERCE_EXPLICIT_CAST);
	else if (base != type)
		value = (Expr *) makeRelabelType(value, base, -1, exprCollation((Node *) value),
										 COERCE_EXPLICIT_CAST);
	return make_call("hll_hash", list_make1(value));
}

static int
registers_for_error(double error_rate)
{
	int log2m = (int) ceil(2 * log2(1.04 / error_rate));

	return Min(Max(log2m, MIN_LOG2M), MAX_LOG2M);
}

/* The schema of postgresql-hll: that of its type hll_hashval. */
static char *
schema_of_type(Oid type)
{
	HeapTuple tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	char *schema;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for type %u", type);
	schema = get_namespace_name(((Form_pg_type) GETSTRUCT(tuple))->typnamespace);
	ReleaseSysCache(tuple);
	return schema;
}

/* hll_estimate(hll_add_agg(hash, log2m)) in place of an Aggref. */
static Node *
make_estimate(Aggref *aggref, int log2m)
{
	Aggref *sketch = makeNode(Aggref);
	Expr *value = ((TargetEntry *) linitial(aggref->args))->expr;
	Expr *hash = make_hash(value);
	Expr *registers = (Expr *) makeConst(INT4OID, -1, InvalidOid, sizeof(int32),
										 Int32GetDatum(log2m), false, true);
	Oid arg_types[2] = {exprType((Node *) hash), INT4OID};
	char *schema = schema_of_type(arg_types[0]);

	*sketch = *aggref;
	sketch->aggfnoid = LookupFuncName(list_make2(makeString(schema), makeString("hll_add_agg")), 2,
									  arg_types, false);
	sketch->aggtype = get_func_rettype(sketch->aggfnoid);
	sketch->aggtranstype = InvalidOid;
	sketch->aggcollid = InvalidOid;
	sketch->inputcollid = InvalidOid;
	sketch->aggargtypes = list_make2_oid(arg_types[0], arg_types[1]);
	sketch->args = list_make2(makeTargetEntry(hash, 1, NULL, false),
							  makeTargetEntry(registers, 2, NULL, false));
	sketch->aggdistinct = NIL;
	sketch->aggorder = NIL;

	return (Node *) make_call("hll_estimate", list_make1(sketch));
}

/* Is it count(DISTINCT x) of something that has a hash? */
static bool
is_countable(Aggref *aggref)
{
	Oid type;

	if (aggref->aggfnoid != F_COUNT_ANY || aggref->aggdistinct == NIL)
		return false;
	type = getBaseType(exprType((Node *) ((TargetEntry *) linitial(aggref->args))->expr));
	return type_is_enum(type) ||
		   (type != RECORDOID &&
			OidIsValid(lookup_type_cache(type, TYPECACHE_HASH_EXTENDED_PROC)->hash_extended_proc));
}

static Node *
mutate_counts(Node *node, ApproximateContext *context)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Query))
		return (Node *) query_tree_mutator((Query *) node, mutate_counts, context, 0);
	if (IsA(node, Aggref))
	{
		Aggref *aggref = (Aggref *) node;

		if (aggref->aggfnoid == context->approximate)
			return make_estimate(aggref, DEFAULT_LOG2M);
		if (context->counts_too && is_countable(aggref))
			return make_estimate(aggref, registers_for_error(strata_count_distinct_error_rate));
	}
	return expression_tree_mutator(node, mutate_counts, context);
}

/* Is there anything to replace? */
static bool
walk_counts(Node *node, ApproximateContext *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, walk_counts, context, 0);
	if (IsA(node, Aggref))
	{
		Aggref *aggref = (Aggref *) node;

		if (aggref->aggfnoid == context->approximate ||
			(context->counts_too && is_countable(aggref)))
			return true;
	}
	return expression_tree_walker(node, walk_counts, context);
}

Query *
approximate_rewrite(Query *query)
{
	ApproximateContext context = {.counts_too = strata_count_distinct_error_rate > 0};
	Oid any = ANYELEMENTOID;

	context.approximate = LookupFuncName(
		list_make2(makeString("strata"), makeString("approx_count_distinct")), 1, &any, true);
	if (!walk_counts((Node *) query, &context) || !planner_reads_distributed((Node *) query))
		return query;
	return (Query *) mutate_counts((Node *) query, &context);
}
