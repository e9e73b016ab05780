/*
 * planner.c
 *		Installs the planner hooks and keeps them out of queries that are not ours.
 *
 * planner_hook keeps two things per planned statement.  The Query as it was before
 * planning, of which shipped DML is made (deparse_statement.c).  And the planner roots of
 * derived tables that went to the workers whole: no node of the plan refers to
 * them, so core leaves their relations out of the plan's range table, by which
 * permissions are checked, locks taken and cached plans invalidated.
 */
#include "postgres.h"

#include "nodes/nodeFuncs.h"
#include "optimizer/pathnode.h"
#include "optimizer/plancat.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"

#include "plan/approximate.h"
#include "plan/distinct_branches.h"
#include "plan/eager_aggregation.h"
#include "compat.h"
#include "decorrelate.h"
#include "cluster/metadata.h"
#include "expression_estimate.h"
#include "join_estimate.h"
#include "key_range_estimate.h"
#include "plan/gather_plan.h"
#include "plan/late_columns.h"
#include "plan/local_keys.h"
#include "plan/period_cutoff.h"
#include "plan/planner.h"
#include "plan/query_levels.h"
#include "plan/statement_parts.h"
#include "plan/unnest_any.h"
#include "server/settings.h"
#include "window_names.h"

typedef struct PlannerCall
{
	struct PlannerCall *outer;
	Query *original;
	List *hidden_roots;
	List *read;	   /* OIDs of tables that workers read */
	List *written; /* ... and change */
	bool shares;   /* statement_parts_share() */
} PlannerCall;

static PlannerCall *current_call = NULL;

static planner_hook_type previous_planner_hook;
static CompatRelationHook previous_relation_hook;
static set_rel_pathlist_hook_type previous_pathlist_hook;
static set_join_pathlist_hook_type previous_join_hook;
static create_upper_paths_hook_type previous_upper_hook;

static void
on_relation(COMPAT_RELATION_ARGUMENTS)
{
	if (previous_relation_hook)
		previous_relation_hook(COMPAT_PASS_RELATION);
	if (rel->rtekind == RTE_RELATION && metadata_available())
		plan_scan_relation_info(root, rel);
}

static void
on_scan_paths(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	bool is_ours;

	if (previous_pathlist_hook)
		previous_pathlist_hook(root, rel, rti, rte);
	if (!metadata_available())
		return;
	is_ours = rte->rtekind == RTE_RELATION && metadata_table(rte->relid) != NULL;
	join_estimate_relation(root, rel, rte, is_ours);
	if (is_ours)
		expression_estimate_relation(root, rel);
	plan_scan(root, rel, rti, rte);
}

static void
on_join_paths(PlannerInfo *root, RelOptInfo *joinrel, RelOptInfo *outerrel, RelOptInfo *innerrel,
			  JoinType jointype, JoinPathExtraData *extra)
{
	if (previous_join_hook)
		previous_join_hook(root, joinrel, outerrel, innerrel, jointype, extra);
	plan_join(root, joinrel, outerrel, innerrel, jointype, extra);
}

static void
on_upper_paths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input_rel,
			   RelOptInfo *output_rel, void *extra)
{
	if (previous_upper_hook)
		previous_upper_hook(root, stage, input_rel, output_rel, extra);

	/* set operations have no input relation */
	if (input_rel == NULL)
	{
		if (stage == UPPERREL_SETOP && metadata_available())
			plan_set_operation(root, output_rel);
		return;
	}
	if (stage == UPPERREL_FINAL && root->parse->commandType != CMD_SELECT)
	{
		if (metadata_available())
			plan_modify(root, input_rel, output_rel);
	}
	else
		plan_upper(root, stage, input_rel, output_rel, extra);
}

bool
planner_is_active(void)
{
	return current_call != NULL;
}

Query *
planner_original_query(void)
{
	return current_call ? current_call->original : NULL;
}

void
planner_add_hidden_root(PlannerInfo *root)
{
	if (current_call && !list_member_ptr(current_call->hidden_roots, root))
		current_call->hidden_roots = lappend(current_call->hidden_roots, root);
}

bool
planner_changes_here(void)
{
	return current_call != NULL && current_call->shares;
}

void
planner_note_access(Oid relation, bool writes)
{
	if (current_call == NULL)
		return;
	if (writes)
		current_call->written = list_append_unique_oid(current_call->written, relation);
	else
		current_call->read = list_append_unique_oid(current_call->read, relation);
}

/* What the planner has found in functions, too late for changes that run on the workers. */
static void
check_functions_reads(const PlannerCall *call)
{
	ListCell *lc;

	if (call->original == NULL || !call->original->hasModifyingCTE || call->shares)
		return;
	foreach(lc, call->read)
	{
		if (list_member_oid(call->written, lfirst_oid(lc)))
			statement_parts_report(lfirst_oid(lc),
								   "A function or a sub-select reads what a part changes.");
	}
}

/* Append the relations of hidden roots to the plan. */
static void
add_hidden_relations(PlannedStmt *plan, List *roots)
{
	ListCell *lc;

	foreach(lc, roots)
	{
		PlannerInfo *root = lfirst(lc);
		ListCell *lc2;

		foreach(lc2, root->parse->rtable)
		{
			RangeTblEntry *rte = lfirst(lc2);

			if (rte->rtekind != RTE_RELATION)
				continue;
			plan->rtable = lappend(plan->rtable, compat_copy_rte(plan, root->parse, rte));
			plan->relationOids = list_append_unique_oid(plan->relationOids, rte->relid);
		}
	}
}

/* What core does not know of a plan that it has made. */
static void
complete_plan(PlannedStmt *plan, const PlannerCall *call)
{
	add_hidden_relations(plan, call->hidden_roots);
	window_names_give(plan, GetCustomScanMethods(GATHER_NAME, false));
}

/* Plan with `call` as the current one, which ends with the planning, by success or error. */
static PlannedStmt *
run_planner(PlannerCall *call, COMPAT_PLAN_ARGUMENTS(parse))
{
	PlannedStmt *plan = NULL;

	current_call = call;
	PG_TRY();
	{
		if (previous_planner_hook)
			plan = previous_planner_hook(COMPAT_PASS_PLAN(parse));
		else
			plan = standard_planner(COMPAT_PASS_PLAN(parse));
	}
	PG_FINALLY();
	{
		current_call = call->outer;
	}
	PG_END_TRY();
	return plan;
}

bool
planner_is_distributed(const RangeTblEntry *rte)
{
	const DistributedTable *table = rte->rtekind == RTE_RELATION ? metadata_table(rte->relid)
																 : NULL;

	return table != NULL && table->kind == TABLE_DISTRIBUTED;
}

static bool
walk_distributed(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
		return planner_is_distributed((RangeTblEntry *) node);
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, walk_distributed, context,
								 QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, walk_distributed, context);
}

bool
planner_reads_distributed(Node *node)
{
	return walk_distributed(node, NULL);
}

/* A sub-select over the workers' rows, or a copy of a reference table, that becomes a join is not searched for each outer row. */
static bool
judge_entry(RangeTblEntry *rte)
{
	return metadata_table(rte->relid) != NULL;
}

/* Plan a form of a SELECT that changes nothing, apart from other forms. */
static PlannedStmt *
plan_form(COMPAT_PLAN_ARGUMENTS(query))
{
	PlannerCall call = {.outer = current_call};
	PlannedStmt *plan = run_planner(&call, COMPAT_PASS_PLAN(query));

	complete_plan(plan, &call);
	return plan;
}

static PlannedStmt *
plan_decorrelated(COMPAT_PLAN_ARGUMENTS(query))
{
	return decorrelate_plan(COMPAT_PASS_PLAN(query), strata_enable_decorrelation, judge_entry,
							plan_form);
}

/* A way to write a query, of the same rows. */
typedef struct Form
{
	const int *setting; /* DecorrelateMode */
	bool (*may_apply)(Query *level);
	bool (*rewrite)(Query *level); /* in place; false: it does not apply */
} Form;

static const Form forms[] = {
	{&strata_enable_eager_aggregation, eager_aggregation_may_apply, eager_aggregation_rewrite},
	{&strata_enable_distinct_branches, distinct_branches_may_apply, distinct_branches_rewrite},
	{&strata_enable_late_columns, late_columns_may_apply, late_columns_rewrite},
};

/* The query in that form; NULL if it has none. */
static Query *
write_form(const Form *form, Query *query)
{
	Query *written;

	if (*form->setting == DECORRELATE_OFF || !query_levels_visit(query, form->may_apply))
		return NULL;
	written = copyObject(query);
	return query_levels_visit(written, form->rewrite) ? written : NULL;
}

/* The cheapest form of a SELECT that changes nothing. */
static PlannedStmt *
plan_select(COMPAT_PLAN_ARGUMENTS(query))
{
	List *others = NIL;
	PlannedStmt *plan;
	ListCell *cell;

	for (int i = 0; i < lengthof(forms); i++)
	{
		Query *written = write_form(&forms[i], query);

		if (written == NULL)
			continue;
		if (*forms[i].setting == DECORRELATE_ALWAYS)
			query = written;
		else
			others = lappend(others, written);
	}
	plan = plan_decorrelated(COMPAT_PASS_PLAN(query));
	foreach(cell, others)
		plan = decorrelate_choose(plan, plan_decorrelated(COMPAT_PASS_PLAN(lfirst(cell))),
								  cursor_options);
	return plan;
}

static PlannedStmt *
plan_statement(COMPAT_PLAN_ARGUMENTS(parse))
{
	PlannerCall call = {.outer = current_call};
	PlannedStmt *plan;

	if (metadata_available())
	{
		parse = approximate_rewrite(parse);
		unnest_any_rewrite(parse);
		period_cutoff_apply(parse);
		if (parse->commandType == CMD_SELECT && !parse->hasModifyingCTE)
			return plan_select(COMPAT_PASS_PLAN(parse));
		local_keys_add(parse);
		call.original = copyObject(parse);
		call.shares = parse->hasModifyingCTE && statement_parts_share(call.original);
	}
	plan = run_planner(&call, COMPAT_PASS_PLAN(parse));
	check_functions_reads(&call);
	complete_plan(plan, &call);
	return plan;
}

void
planner_initialize(void)
{
	previous_planner_hook = planner_hook;
	planner_hook = plan_statement;

	previous_relation_hook = compat_relation_hook;
	compat_relation_hook = on_relation;
	previous_pathlist_hook = set_rel_pathlist_hook;
	set_rel_pathlist_hook = on_scan_paths;
	previous_join_hook = set_join_pathlist_hook;
	set_join_pathlist_hook = on_join_paths;
	previous_upper_hook = create_upper_paths_hook;
	create_upper_paths_hook = on_upper_paths;
	expression_estimate_initialize();
	key_range_estimate_initialize();
}
