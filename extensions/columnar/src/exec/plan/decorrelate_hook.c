/*
 * decorrelate_hook.c
 *		Plans correlated sub-selects over columnar tables as joins, where that is cheaper.
 *
 * A columnar table is seldom indexed, so running a sub-select once per outer row reads it once per
 * outer row.  A statement with sub-selects that decorrelate_query() can turn into joins is planned
 * as it was written, with joins, and with joins restricted to the keys that are asked for; the
 * cheapest plan is taken.  With an index and few outer rows that is the one as it was written.
 * Sub-selects that read no columnar table stay as they are, so that plans of other statements do
 * not depend on whether this library is loaded.
 *
 * Whoever had the planner's hook before us is called for each form, the form as written first.
 */
#include "compat.h"

#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "commands/defrem.h"
#include "nodes/plannodes.h"
#include "optimizer/planmain.h"
#include "optimizer/planner.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"

#include "decorrelate.h"
#include "exec/plan/decorrelate_hook.h"

/* strata_columnar.enable_decorrelation */
typedef enum Decorrelation
{
	DECORRELATION_OFF,
	DECORRELATION_ON,	 /* where it is cheaper */
	DECORRELATION_ALWAYS /* where it is possible, for tests */
} Decorrelation;

static const struct config_enum_entry decorrelation_modes[] = {
	{"off", DECORRELATION_OFF, false},		 {"on", DECORRELATION_ON, false},
	{"always", DECORRELATION_ALWAYS, false}, {"false", DECORRELATION_OFF, true},
	{"true", DECORRELATION_ON, true},		 {"no", DECORRELATION_OFF, true},
	{"yes", DECORRELATION_ON, true},		 {"0", DECORRELATION_OFF, true},
	{"1", DECORRELATION_ON, true},			 {NULL, 0, false}};

static int enable_decorrelation = DECORRELATION_ON;
static planner_hook_type previous_planner_hook = NULL;

/* ---- which sub-selects ---------------------------------------------------------------------------- */

/* Is the table columnar, or a member of its tree? */
static bool
is_columnar(Oid relation)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Form_pg_class form;
	bool result;
	bool has_children;
	ListCell *cell;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_class) GETSTRUCT(tuple);
	result = form->relkind != RELKIND_PARTITIONED_TABLE && OidIsValid(form->relam) &&
			 form->relam == get_table_am_oid("columnar", true);
	has_children = form->relhassubclass;
	ReleaseSysCache(tuple);
	if (result || !has_children)
		return result;
	foreach(cell, find_inheritance_children(relation, NoLock))
	{
		if (is_columnar(lfirst_oid(cell)))
			return true;
	}
	return false;
}

static bool
judge_relation(RangeTblEntry *rte, void *context)
{
	return is_columnar(rte->relid);
}

/* ---- planning --------------------------------------------------------------------------------------- */

static PlannedStmt *
plan_query(Query *query, const char *query_string, int cursor_options, ParamListInfo params)
{
	if (previous_planner_hook)
		return previous_planner_hook(query, query_string, cursor_options, params);
	return standard_planner(query, query_string, cursor_options, params);
}

/* What the planner minimised: the cost of all rows, or of those that a cursor is expected to read. */
static Cost
plan_cost(PlannedStmt *plan, int cursor_options)
{
	Cost startup = plan->planTree->startup_cost;
	double fraction = 1;

	if (cursor_options & CURSOR_OPT_FAST_PLAN)
		fraction = cursor_tuple_fraction;
	return startup + fraction * (plan->planTree->total_cost - startup);
}

static PlannedStmt *
choose_cheaper(PlannedStmt *best, PlannedStmt *other, int cursor_options)
{
	int more = compat_disabled_nodes(other->planTree) - compat_disabled_nodes(best->planTree);

	if (more != 0)
		return more < 0 ? other : best;
	return plan_cost(other, cursor_options) < plan_cost(best, cursor_options) ? other : best;
}

static PlannedStmt *
plan_cheaper_form(Query *query, const char *query_string, int cursor_options, ParamListInfo params)
{
	Query *joined;
	Query *restricted;
	PlannedStmt *best;

	if (enable_decorrelation == DECORRELATION_OFF ||
		!decorrelate_may_apply(query, judge_relation, NULL))
		return plan_query(query, query_string, cursor_options, params);

	joined = copyObject(query);
	restricted = copyObject(query);
	if (!decorrelate_query(joined, judge_relation, NULL, false))
		return plan_query(query, query_string, cursor_options, params);
	if (!decorrelate_query(restricted, judge_relation, NULL, true))
		restricted = NULL;
	if (enable_decorrelation == DECORRELATION_ALWAYS)
		return plan_query(restricted ? restricted : joined, query_string, cursor_options, params);
	best = plan_query(query, query_string, cursor_options, params);
	best = choose_cheaper(best, plan_query(joined, query_string, cursor_options, params),
						  cursor_options);
	if (restricted != NULL)
		best = choose_cheaper(best, plan_query(restricted, query_string, cursor_options, params),
							  cursor_options);
	return best;
}

void
decorrelate_hook_initialize(void)
{
	DefineCustomEnumVariable("strata_columnar.enable_decorrelation",
							 "Lets the planner turn correlated sub-selects into joins.",
							 "Only those that read a columnar table. on: where it is cheaper. "
							 "always: where it is possible.",
							 &enable_decorrelation, DECORRELATION_ON, decorrelation_modes,
							 PGC_USERSET, GUC_EXPLAIN, NULL, NULL, NULL);
	previous_planner_hook = planner_hook;
	planner_hook = plan_cheaper_form;
}
