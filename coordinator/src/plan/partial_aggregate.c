/*
 * partial_aggregate.c
 *		The aggregates of schema strata_partial, which return transition states.
 *
 * strata_partial.f(args) has the transition function of the aggregate f and,
 * as its final function, f's serialization function: it returns on the worker
 * exactly what core's partial aggregation would send to its Finalize node, which
 * then runs unchanged on the coordinator.  The twin is found by the original's
 * name and declared argument types, not by the types of a call: count("any") and
 * count(text) are one aggregate.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/namespace.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "nodes/nodeFuncs.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "compat.h"
#include "plan/partial_aggregate.h"

/* A part of a twin's name, as strata_partial.partial_name() writes it. */
static void
append_name(StringInfo name, const char *part)
{
	for (; *part != '\0'; part++)
	{
		if (*part == '%')
			appendStringInfoString(name, "%25");
		else if (*part == '.')
			appendStringInfoString(name, "%2E");
		else
			appendStringInfoChar(name, *part);
	}
}

static Oid
get_transition_function(Oid aggregate)
{
	HeapTuple tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggregate));
	Oid function;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	function = ((Form_pg_aggregate) GETSTRUCT(tuple))->aggtransfn;
	ReleaseSysCache(tuple);
	return function;
}

Oid
partial_aggregate_lookup(Oid aggregate)
{
	HeapTuple tuple;
	Form_pg_proc proc;
	Oid schema = get_namespace_oid("strata_partial", true);
	Oid twin;
	StringInfoData name;

	if (!OidIsValid(schema))
		return InvalidOid;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(aggregate));
	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	proc = (Form_pg_proc) GETSTRUCT(tuple);

	initStringInfo(&name);
	if (proc->pronamespace == PG_CATALOG_NAMESPACE)
		appendStringInfoString(&name, NameStr(proc->proname));
	else
	{
		append_name(&name, get_namespace_name(proc->pronamespace));
		appendStringInfoChar(&name, '.');
		append_name(&name, NameStr(proc->proname));
	}
	twin = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(name.data),
						   PointerGetDatum(&proc->proargtypes), ObjectIdGetDatum(schema));
	ReleaseSysCache(tuple);
	pfree(name.data);

	/* one that outlived its original, while event triggers were off, is no other's */
	if (OidIsValid(twin) && get_transition_function(twin) != get_transition_function(aggregate))
		return InvalidOid;
	return twin;
}

/*
 * May the serialized state hold OIDs that differ between nodes?  array_agg() writes the type of its
 * elements into its state (PostgreSQL 16 and later): only those of pg_catalog are the same everywhere.
 */
static bool
names_user_types(const Aggref *aggref)
{
	Oid *declared;
	int count;
	bool found = false;

	if (aggref->aggtranstype != INTERNALOID)
		return false;
	(void) get_func_signature(aggref->aggfnoid, &declared, &count);
	for (int i = 0; i < Min(count, list_length(aggref->aggargtypes)); i++)
		found |= IsPolymorphicType(declared[i]) &&
				 list_nth_oid(aggref->aggargtypes, i) >= FirstNormalObjectId;
	pfree(declared);
	return found;
}

static bool
walk_not_partial(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Aggref))
	{
		Aggref *aggref = (Aggref *) node;

		return aggref->aggdistinct != NIL || aggref->aggorder != NIL ||
			   aggref->aggkind != AGGKIND_NORMAL || names_user_types(aggref) ||
			   !OidIsValid(partial_aggregate_lookup(aggref->aggfnoid));
	}
	return expression_tree_walker(node, walk_not_partial, context);
}

bool
partial_aggregate_possible(Node *expr)
{
	return !walk_not_partial(expr, NULL);
}

/*
 * Does a built-in aggregate's value depend on the order of rows?  What depends on it has no combine
 * function, but for these since PostgreSQL 16.
 */
static bool
minds_order(Oid aggregate)
{
	HeapTuple tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggregate));
	bool can_combine;
	char *name;

	if (!HeapTupleIsValid(tuple))
		return true;
	can_combine = OidIsValid(((Form_pg_aggregate) GETSTRUCT(tuple))->aggcombinefn);
	ReleaseSysCache(tuple);
	name = get_func_name(aggregate);
	return !can_combine || strcmp(name, "array_agg") == 0 || strcmp(name, "string_agg") == 0 ||
		   strcmp(name, "any_value") == 0;
}

static bool
walk_differs(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Aggref))
	{
		Aggref *aggref = (Aggref *) node;

		if (aggref->aggfnoid >= FirstNormalObjectId)
			return walk_not_partial(node, context);
		return aggref->aggorder != NIL || minds_order(aggref->aggfnoid);
	}
	return expression_tree_walker(node, walk_differs, context);
}

bool
partial_aggregate_same_on_copies(Node *expr)
{
	return !walk_differs(expr, NULL);
}

static bool
walk_minds_order(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Aggref))
	{
		Aggref *aggref = (Aggref *) node;

		if (aggref->aggorder != NIL)
			return false;
		return aggref->aggfnoid >= FirstNormalObjectId || minds_order(aggref->aggfnoid);
	}
	return expression_tree_walker(node, walk_minds_order, context);
}

bool
partial_aggregate_ignores_order(Node *expr)
{
	return !walk_minds_order(expr, NULL);
}

Aggref *
partial_aggregate_rename(Aggref *aggref)
{
	if (aggref->aggsplit != AGGSPLIT_INITIAL_SERIAL)
		return aggref;
	aggref->aggfnoid = partial_aggregate_lookup(aggref->aggfnoid);
	aggref->aggsplit = AGGSPLIT_SIMPLE;
	if (!type_is_collatable(aggref->aggtype)) /* a state that is serialized */
		aggref->aggcollid = InvalidOid;
	if (!OidIsValid(aggref->aggfnoid))
		elog(ERROR, "aggregate has no partial form");
	return aggref;
}

static Node *
mutate_undistinct(Node *node, AggSplit *split)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Aggref) && ((Aggref *) node)->aggsplit == *split)
	{
		Aggref *aggref = copyObject((Aggref *) node);

		aggref->aggdistinct = NIL;
		compat_forget_presorted(aggref);
		return (Node *) aggref;
	}
	return expression_tree_mutator(node, mutate_undistinct, split);
}

Node *
partial_aggregate_undistinct(Node *expr, AggSplit split)
{
	return mutate_undistinct(expr, &split);
}
