/*
 * decorrelate_hook.c
 *		Plans correlated sub-selects over columnar tables as joins, where that is cheaper.
 *
 * A columnar table is seldom indexed, so running a sub-select once per outer row reads it once per
 * outer row.  A statement with sub-selects that decorrelate_query() can turn into joins is planned
 * as it was written, with joins, and with joins restricted to the keys that are asked for; the
 * cheapest plan is taken.  With an index and few outer rows that is the one as it was written.
 * Sub-selects that read no columnar table, nor a WITH that does, stay as they are, so that plans of other statements do
 * not depend on whether this library is loaded.
 *
 * Whoever had the planner's hook before us is called for each form, the form as written first.
 */
#include "compat.h"

#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "commands/defrem.h"
#include "nodes/plannodes.h"
#include "optimizer/planner.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"

#include "decorrelate.h"
#include "exec/plan/decorrelate_hook.h"

/* strata_columnar.enable_decorrelation */
static int enable_decorrelation = DECORRELATE_ON;
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
judge_relation(RangeTblEntry *rte)
{
	return is_columnar(rte->relid);
}

/* ---- planning --------------------------------------------------------------------------------------- */

static PlannedStmt *
plan_cheaper_form(COMPAT_PLAN_ARGUMENTS(query))
{
	return decorrelate_plan(COMPAT_PASS_PLAN(query), enable_decorrelation, judge_relation,
							previous_planner_hook ? previous_planner_hook : standard_planner);
}

void
decorrelate_hook_initialize(void)
{
	DefineCustomEnumVariable("strata_columnar.enable_decorrelation",
							 "Lets the planner turn correlated sub-selects into joins.",
							 "Only those that read a columnar table. on: where it is cheaper. "
							 "always: where it is possible.",
							 &enable_decorrelation, DECORRELATE_ON, decorrelate_modes, PGC_USERSET,
							 GUC_EXPLAIN, NULL, NULL, NULL);
	previous_planner_hook = planner_hook;
	planner_hook = plan_cheaper_form;
}
