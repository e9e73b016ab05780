/*
 * plan_row_change.c
 *		UPDATE, DELETE and MERGE whose rows come here to be changed one by one.
 *
 * Triggers and other code of users sees each row on the coordinator, and there are rows that only the coordinator can bring
 * together.  The workers lock the rows and send
 *
 *		SELECT new values, all columns, tableoid, ctid FROM ... FOR NO KEY UPDATE OF t
 *
 * to core's own ModifyTable, which fires triggers, computes generated columns, checks policies and constraints, and evaluates
 * RETURNING.  The Gather holds each row and gives it a number (execute/hold_row.c); the access method finds by it which row of
 * which worker core has changed (stream/row_change.c).
 *
 * Where the workers can find the statement's rows (plan_row_change_path), they compute what they can of the new values, too.
 * Else the table is read so, with what the workers can join to it (plan_row_change_scan), and core joins, filters and
 * computes the rest here.
 *
 * The lock comes first, and so the values are those of the row as it is then: there is nothing to recheck here.  The price are
 * locks of rows that then are not changed, where the workers cannot tell which ones will be.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "compat.h"
#include "cluster/fired_trigger.h"
#include "plan/deparse_path.h"
#include "plan/deparse_statement.h"
#include "plan/deparse_text.h"
#include "plan/gather_plan.h"
#include "plan/plan_row_change.h"
#include "plan/planner.h"
#include "plan/shippable.h"

typedef struct RowChangePlan
{
	const DistributedTable *table;
	DistPath *dist;
	List *tlist; /* what core's ModifyTable is given; NIL: core computes it from the scan */
	List *quals; /* what the workers cannot evaluate of a scan's clauses */
	List *fetch; /* what the workers send of it */
	List *held;	 /* the table's columns, partition and tid in that (ints) */
	bool repeat; /* a row may come several times */
	bool keep;	 /* core may join it before it is changed */
} RowChangePlan;

static bool
is_tid_of_target(PlannerInfo *root, Expr *expr)
{
	const Var *var = (const Var *) expr;

	return IsA(expr, Var) && var->varno == root->parse->resultRelation &&
		   var->varattno == SelfItemPointerAttributeNumber;
}

/* Does RETURNING need it of another table? */
static bool
is_returned(PlannerInfo *root, Expr *expr)
{
	return list_member(
		pull_var_clause((Node *) root->parse->returningList, PVC_INCLUDE_PLACEHOLDERS), expr);
}

/*
 * Core's target list without what its row marks of other tables need: where a row was changed meanwhile, the worker that has
 * locked it has read it anew, with the rows that it is joined to.
 */
static List *
make_tlist(PlannerInfo *root)
{
	List *result = NIL;
	ListCell *lc;

	foreach(lc, root->processed_tlist)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);

		if (entry->resjunk && !IsA(entry->expr, SubPlan) && !is_tid_of_target(root, entry->expr) &&
			!is_returned(root, entry->expr))
			continue;
		entry = flatCopyTargetEntry(entry);
		entry->resno = list_length(result) + 1;
		result = lappend(result, entry);
	}
	return result;
}

/* Parameters that one sub-select of SET (a, b) = (SELECT ...) sets for several columns. */
static bool
walk_multiexpr(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Param))
		return ((Param *) node)->paramkind == PARAM_MULTIEXPR;
	if (IsA(node, SubPlan) && ((SubPlan *) node)->subLinkType == MULTIEXPR_SUBLINK)
		return true;
	return expression_tree_walker(node, walk_multiexpr, context);
}

/* Workers compute what they can; constants are known here, and SQL has no expression for SET a[1] = value. */
static List *
list_computed(PlannerInfo *root, const Locus *locus, List *tlist)
{
	List *exprs = NIL;
	ListCell *lc;

	foreach(lc, tlist)
	{
		Node *expr = (Node *) lfirst_node(TargetEntry, lc)->expr;

		if (IsA(expr, Const) || is_tid_of_target(root, (Expr *) expr))
			continue;
		if (deparse_statement_assigns_part(expr) || walk_multiexpr(expr, NULL) ||
			!shippable_type(exprType(expr)) || !shippable_new_value(root, locus, expr))
			exprs = list_concat(exprs, pull_var_clause(expr, PVC_INCLUDE_PLACEHOLDERS));
		else
			exprs = lappend(exprs, expr);
	}
	return exprs;
}

/* A column that is computed whenever it is read, and that triggers do not see. */
static bool
is_virtual(Form_pg_attribute column)
{
	return column->attgenerated != '\0' && column->attgenerated != ATTRIBUTE_GENERATED_STORED;
}

/* Columns of a row that core looks at when it changes it (attribute numbers, offset as usual); NULL: all of them. */
static Bitmapset *
find_used_columns(PlannerInfo *root, const DistributedTable *table)
{
	Index target = root->parse->resultRelation;
	Bitmapset *columns = bms_make_singleton(table->key_attribute -
											FirstLowInvalidHeapAttributeNumber);

	if (root->parse->commandType != CMD_DELETE ||
		plan_row_change_fires(root->parse, TRIGGER_TYPE_DELETE))
		return NULL;
	pull_varattnos((Node *) root->parse->returningList, target, &columns);
	return bms_is_member(InvalidAttrNumber - FirstLowInvalidHeapAttributeNumber, columns) ? NULL
																						  : columns;
}

/* The columns of the table that are used, its partition, and the tid there. */
static List *
list_held(PlannerInfo *root, const DistributedTable *table)
{
	Index target = root->parse->resultRelation;
	const Bitmapset *used = find_used_columns(root, table);
	Relation relation = table_open(table->relation, NoLock);
	TupleDesc desc = RelationGetDescr(relation);
	List *exprs = NIL;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);
		bool left_out = used != NULL &&
						!bms_is_member(column->attnum - FirstLowInvalidHeapAttributeNumber, used);

		exprs = lappend(exprs, column->attisdropped || is_virtual(column) || left_out
								   ? NULL
								   : makeVar(target, column->attnum, column->atttypid,
											 column->atttypmod, column->attcollation, 0));
	}
	table_close(relation, NoLock);
	/* not to be taken for the tableoid that the user asks for */
	exprs = lappend(exprs, makeRelabelType((Expr *) makeVar(target, TableOidAttributeNumber, OIDOID,
															-1, InvalidOid, 0),
										   OIDOID, -1, InvalidOid, COERCE_IMPLICIT_CAST));
	return lappend(exprs,
				   makeVar(target, SelfItemPointerAttributeNumber, TIDOID, -1, InvalidOid, 0));
}

/* Add the columns that are held to the others (exprs) that the workers send. */
static void
make_lists(PlannerInfo *root, RowChangePlan *plan, List *exprs)
{
	List *held = list_held(root, plan->table);
	ListCell *lc;

	foreach(lc, held)
	{
		if (lfirst(lc) != NULL)
			exprs = lappend(exprs, lfirst(lc));
	}
	plan->fetch = gather_scan_tlist(exprs);
	foreach(lc, held)
		plan->held = lappend_int(
			plan->held, lfirst(lc) == NULL ? 0 : tlist_member(lfirst(lc), plan->fetch)->resno);
}

static int16
get_event(CmdType command)
{
	switch (command)
	{
		case CMD_INSERT:
			return TRIGGER_TYPE_INSERT;
		case CMD_UPDATE:
			return TRIGGER_TYPE_UPDATE;
		case CMD_DELETE:
			return TRIGGER_TYPE_DELETE;
		default:
			return 0;
	}
}

int16
plan_row_change_events(const Query *parse)
{
	int16 events = get_event(parse->commandType);
	ListCell *lc;

	foreach(lc, parse->mergeActionList)
		events |= get_event(lfirst_node(MergeAction, lc)->commandType);
	return events;
}

bool
plan_row_change_fires(Query *parse, int16 events)
{
	RangeTblEntry *target = rt_fetch(parse->resultRelation, parse->rtable);
	const CompatPermissions *permissions = compat_get_permissions(parse, target);

	return fired_trigger_find(target->relid, events,
							  permissions == NULL ? NULL : permissions->updatedCols, false) != NULL;
}

/* The statement for the workers. */
static char *
make_sql(PlannerInfo *root, RowChangePlan *change, List **params)
{
	const Query *parse = root->parse;
	List *values = list_truncate(list_copy(change->fetch), list_length(change->fetch) - 2);

	bool deletes = (plan_row_change_events(parse) & TRIGGER_TYPE_DELETE) != 0;

	return deparse_text(deparse_path_locked(change->dist, values, parse->resultRelation,
											deletes ? LCS_FORUPDATE : LCS_FORNOKEYUPDATE, params));
}

/* PlanCustomPath of the Gather below core's ModifyTable. */
static CustomScan *
plan_changed_rows(PlannerInfo *root, CustomPath *best_path, void *arg)
{
	RowChangePlan *change = arg;
	GatherPlan plan = {.kind = GATHER_SELECT, .writes = true};
	List *params = NIL;

	gather_add_hidden_roots(change->dist);
	plan.sql = make_sql(root, change, &params);
	plan.held_relation = change->table->relation;
	plan.held_columns = change->held;
	plan.held_repeat = change->repeat;
	plan.held_keep = change->keep;
	if (change->tlist != NIL)
		root->processed_tlist = change->tlist;
	return gather_make_scan(&plan, copyObject(change->tlist), change->fetch, change->quals, params,
							&change->dist->locus);
}

bool
plan_row_change_is_target(PlannerInfo *root, const DistPath *dist)
{
	const Query *parse = root->parse;

	return parse->commandType != CMD_INSERT && bms_is_member(parse->resultRelation, dist->relids) &&
		   plan_scan_changed_table(parse) != NULL;
}

static RowChangePlan *
make_change(const DistributedTable *table, DistPath *dist)
{
	RowChangePlan *change = palloc0(sizeof(RowChangePlan));

	change->table = table;
	change->dist = dist;
	change->repeat = bms_membership(dist->relids) == BMS_MULTIPLE;
	return change;
}

Path *
plan_row_change_scan(PlannerInfo *root, RelOptInfo *rel, DistPath *dist, List *fetch, List *quals)
{
	RowChangePlan *change;
	const Path *scan;
	List *exprs = NIL;
	Path *path;
	ListCell *lc;

	if (!from_list_has(dist->from, root->parse->resultRelation))
		return NULL;
	change = make_change(plan_scan_changed_table(root->parse), dist);
	change->quals = quals;
	change->keep = true;
	foreach(lc, fetch)
	{
		if (!is_tid_of_target(root, lfirst(lc)))
			exprs = lappend(exprs, lfirst(lc));
	}
	make_lists(root, change, exprs);

	scan = gather_path_create(root, rel, dist, rel->reltarget, fetch, quals, NIL);
	path = gather_path_create_modify(root, rel, NIL, scan->rows, plan_changed_rows, change);
	path->startup_cost = scan->startup_cost;
	path->total_cost = scan->total_cost;
	return path;
}

Path *
plan_row_change_path(PlannerInfo *root, RelOptInfo *final_rel, const DistributedTable *table,
					 DistPath *dist)
{
	RowChangePlan *change = make_change(table, dist);
	ModifyTablePath *path = makeNode(ModifyTablePath);

	change->tlist = make_tlist(root);
	make_lists(root, change, list_computed(root, &dist->locus, change->tlist));

	*path = *linitial_node(ModifyTablePath, final_rel->pathlist);
	path->subpath = gather_path_create_modify(root, final_rel, NIL, dist->rows, plan_changed_rows,
											  change);
	path->rowMarks = NIL;
	return (Path *) path;
}
