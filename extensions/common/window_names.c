/*
 * window_names.c
 *		Stand-ins for the window functions in the lists of custom scans, see the header.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_aggregate.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_agg.h"
#include "utils/syscache.h"

#include "compat.h"
#include "window_names.h"

Aggref *
window_names_make_aggref(const WindowFunc *function)
{
	Aggref *aggref = makeNode(Aggref);
	HeapTuple tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(function->winfnoid));
	Oid types[FUNC_MAX_ARGS];
	Oid state;
	ListCell *cell;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for aggregate %u", function->winfnoid);
	state = ((Form_pg_aggregate) GETSTRUCT(tuple))->aggtranstype;
	ReleaseSysCache(tuple);
	foreach(cell, function->args)
	{
		int number = foreach_current_index(cell);

		types[number] = exprType(lfirst(cell));
		aggref->aggargtypes = lappend_oid(aggref->aggargtypes, types[number]);
		aggref->args = lappend(aggref->args,
							   makeTargetEntry(copyObject(lfirst(cell)), number + 1, NULL, false));
	}
	aggref->aggfnoid = function->winfnoid;
	aggref->aggtype = function->wintype;
	aggref->aggcollid = function->wincollid;
	aggref->inputcollid = function->inputcollid;
	aggref->aggtranstype = resolve_aggregate_transtype(function->winfnoid, state, types,
													   list_length(function->args));
	aggref->aggfilter = copyObject(function->aggfilter);
	aggref->aggstar = function->winstar;
	aggref->aggkind = AGGKIND_NORMAL;
	aggref->aggsplit = AGGSPLIT_SIMPLE;
	aggref->location = -1;
	return aggref;
}

static Node *
make_stand_in(const WindowFunc *function)
{
	FuncExpr *call;

	if (function->winagg)
		return (Node *) window_names_make_aggref(function);
	call = makeNode(FuncExpr);
	call->funcid = function->winfnoid;
	call->funcresulttype = function->wintype;
	call->funcformat = COERCE_EXPLICIT_CALL;
	call->funccollid = function->wincollid;
	call->inputcollid = function->inputcollid;
	call->args = function->args;
	call->location = -1;
	return (Node *) call;
}

/* A copy of the expression with stand-ins; a window function's arguments hold no other. */
static Node *
replace_functions(Node *node, void *context)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, WindowFunc))
		return make_stand_in((WindowFunc *) node);
	return expression_tree_mutator(node, replace_functions, context);
}

static void walk_plans(List *plans, const CustomScanMethods *methods);

static void
walk_plan(Plan *plan, const CustomScanMethods *methods)
{
	if (plan == NULL)
		return;
	if (IsA(plan, CustomScan))
	{
		CustomScan *scan = (CustomScan *) plan;

		if (scan->methods == methods)
			scan->custom_scan_tlist = (List *) replace_functions((Node *) scan->custom_scan_tlist,
																 NULL);
		walk_plans(scan->custom_plans, methods);
	}
	else if (IsA(plan, Append))
		walk_plans(((Append *) plan)->appendplans, methods);
	else if (IsA(plan, MergeAppend))
		walk_plans(((MergeAppend *) plan)->mergeplans, methods);
	else if (IsA(plan, SubqueryScan))
		walk_plan(((SubqueryScan *) plan)->subplan, methods);
	walk_plan(plan->lefttree, methods);
	walk_plan(plan->righttree, methods);
}

static void
walk_plans(List *plans, const CustomScanMethods *methods)
{
	ListCell *cell;

	foreach(cell, plans)
		walk_plan(lfirst(cell), methods);
}

void
window_names_give(PlannedStmt *plan, const CustomScanMethods *methods)
{
	if (!COMPAT_WINDOWS_HAVE_NAMES)
		return;
	walk_plan(plan->planTree, methods);
	walk_plans(plan->subplans, methods);
}
