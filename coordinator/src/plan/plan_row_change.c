/*
 * plan_row_change.c
 *		UPDATE and DELETE whose rows come here to be changed one by one.
 *
 * Triggers and other code of users sees each row on the coordinator.  The workers lock the rows and send
 *
 *		SELECT new values, all columns, tableoid, ctid FROM ... FOR NO KEY UPDATE OF t
 *
 * to core's own ModifyTable, which fires triggers, computes generated columns, checks policies and constraints, and evaluates
 * RETURNING.  The Gather holds each row and gives it a number (execute/hold_row.c); the access method finds by it which row of
 * which worker core has changed (stream/row_change.c).
 *
 * The lock comes first, and so the values are those of the row as it is then: there is nothing to recheck here.  New values
 * that workers cannot compute are computed here, once for each row.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/tlist.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "compat.h"
#include "plan/deparse_path.h"
#include "plan/deparse_statement.h"
#include "plan/deparse_text.h"
#include "plan/gather_plan.h"
#include "plan/plan_row_change.h"
#include "plan/shippable.h"

typedef struct RowChangePlan
{
	const DistributedTable *table;
	DistPath *dist;
	List *tlist; /* what core's ModifyTable is given */
	List *fetch; /* what the workers send of it */
	List *held;	 /* the table's columns, partition and tid in that (ints) */
	bool repeat; /* a row may come several times */
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

/* All columns of the table, its partition, and the tid there. */
static List *
list_held(PlannerInfo *root, Oid relid)
{
	Index target = root->parse->resultRelation;
	Relation relation = table_open(relid, NoLock);
	TupleDesc desc = RelationGetDescr(relation);
	List *exprs = NIL;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);

		exprs = lappend(exprs, column->attisdropped || is_virtual(column)
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

static void
make_lists(PlannerInfo *root, RowChangePlan *plan)
{
	List *held = list_held(root, plan->table->relation);
	List *exprs = list_computed(root, &plan->dist->locus, plan->tlist);
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

/* The statement for the workers. */
static char *
make_sql(PlannerInfo *root, RowChangePlan *change, List **params)
{
	const Query *parse = root->parse;
	List *values = list_truncate(list_copy(change->fetch), list_length(change->fetch) - 2);

	return deparse_text(deparse_path_locked(
		change->dist, values, parse->resultRelation,
		parse->commandType == CMD_UPDATE ? LCS_FORNOKEYUPDATE : LCS_FORUPDATE, params));
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
	root->processed_tlist = change->tlist;
	return gather_make_scan(&plan, copyObject(change->tlist), change->fetch, NIL, params,
							&change->dist->locus);
}

Path *
plan_row_change_path(PlannerInfo *root, RelOptInfo *final_rel, const DistributedTable *table,
					 DistPath *dist)
{
	RowChangePlan *change = palloc0(sizeof(RowChangePlan));
	ModifyTablePath *path = makeNode(ModifyTablePath);

	change->table = table;
	change->dist = dist;
	change->tlist = make_tlist(root);
	change->repeat = bms_membership(dist->relids) == BMS_MULTIPLE;
	make_lists(root, change);

	*path = *linitial_node(ModifyTablePath, final_rel->pathlist);
	path->subpath = gather_path_create_modify(root, final_rel, NIL, dist->rows, plan_changed_rows,
											  change);
	path->rowMarks = NIL;
	return (Path *) path;
}
