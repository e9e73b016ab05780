/*
 * plan_move.c
 *		UPDATE of a distribution key: rows move to the workers of their new keys.
 *
 * In one statement the workers lock the rows, compute the new ones, and take the old ones away:
 *
 *		SELECT new values FROM (SELECT ..., tableoid, ctid FROM ... OFFSET 0 FOR UPDATE) WHERE strata_worker.take_row(...)
 *
 * The lock comes first, so that the values are those of the row as it is then; OFFSET keeps the planner from calling take_row()
 * before it.  What the workers send is inserted by core's own ModifyTable, as the rows of INSERT ... SELECT are: it computes
 * generated columns, checks policies and constraints, evaluates RETURNING, and the access method routes the rows.  A wire has
 * sent all of its rows before it is given others, and so a row that is still to be taken conflicts with none that has
 * moved, as it may in core.
 *
 * Who waits for a row that moves gets error 40001, as for rows that move to another partition (worker/src/take_row.c).  Tables
 * to which foreign keys of distributed tables refer are refused: there the old row must be neither deleted nor kept while the
 * new one is on its way.
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
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "compat.h"
#include "cluster/key_change.h"
#include "plan/deparse_path.h"
#include "plan/deparse_statement.h"
#include "plan/deparse_text.h"
#include "plan/gather_plan.h"
#include "plan/new_row_checks.h"
#include "plan/plan_move.h"

typedef struct MovePlan
{
	DistPath *dist;
	List *row;	 /* what core inserts */
	List *fetch; /* what the workers send of it */
} MovePlan;

static bool
walk_old_row(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var) && compat_names_old_or_new((Var *) node))
		return true;
	return expression_tree_walker(node, walk_old_row, context);
}

static Expr *
new_value(PlannerInfo *root, List *assignments, Form_pg_attribute column)
{
	ListCell *lc;

	if (column->attisdropped)
		return (Expr *) makeNullConst(INT4OID, -1, InvalidOid);
	if (column->attgenerated != '\0')
		return (Expr *) makeNullConst(column->atttypid, -1, column->attcollation);
	foreach(lc, assignments)
	{
		TargetEntry *entry = lfirst(lc);

		if (entry->resno == column->attnum)
			return entry->expr;
	}
	return (Expr *) makeVar(root->parse->resultRelation, column->attnum, column->atttypid,
							column->atttypmod, column->attcollation, 0);
}

/* The new rows as core's INSERT wants them: a value for each column, then what RETURNING needs of other tables. */
static List *
make_row(PlannerInfo *root, Oid relid, List *assignments)
{
	Relation relation = table_open(relid, NoLock);
	TupleDesc desc = RelationGetDescr(relation);
	List *tlist = NIL;
	ListCell *lc;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);

		tlist = lappend(tlist, makeTargetEntry(new_value(root, assignments, column), i + 1,
											   pstrdup(NameStr(column->attname)), false));
	}
	table_close(relation, NoLock);
	foreach(lc, pull_var_clause((Node *) root->parse->returningList, PVC_INCLUDE_PLACEHOLDERS))
	{
		Expr *expr = lfirst(lc);

		if (IsA(expr, Var) && ((Var *) expr)->varno == root->parse->resultRelation)
			continue;
		if (tlist_member(expr, tlist) == NULL)
			tlist = lappend(tlist, makeTargetEntry(expr, list_length(tlist) + 1, NULL, true));
	}
	return tlist;
}

/* What the workers send of them: constants are known here, and SQL has no expression for SET a[1] = value. */
static List *
make_fetch_list(List *row)
{
	List *exprs = NIL;
	ListCell *lc;

	foreach(lc, row)
	{
		Expr *expr = lfirst_node(TargetEntry, lc)->expr;

		if (deparse_statement_assigns_part((Node *) expr))
			exprs = list_concat(exprs, pull_var_clause((Node *) expr, PVC_INCLUDE_PLACEHOLDERS));
		else if (!IsA(expr, Const))
			exprs = lappend(exprs, expr);
	}
	return gather_scan_tlist(exprs);
}

/* The statement for the workers. */
static char *
make_sql(PlannerInfo *root, DistPath *dist, List *fetch, List **params)
{
	Index target = root->parse->resultRelation;
	int count = list_length(fetch);
	Query *query = deparse_path_locked(dist, fetch, target, LCS_FORUPDATE, params);
	StringInfoData sql;

	query->limitOffset = (Node *) makeConst(INT8OID, -1, InvalidOid, sizeof(int64),
											Int64GetDatum(0), false, FLOAT8PASSBYVAL);

	initStringInfo(&sql);
	appendStringInfoString(&sql, "SELECT ");
	for (int i = 1; i <= count; i++)
		appendStringInfo(&sql, "%sc%d", i > 1 ? ", " : "", i);
	appendStringInfo(&sql, " FROM (%s) q WHERE strata_worker.take_row(c%d, c%d)",
					 deparse_text(query), count + 1, count + 2);
	return sql.data;
}

/* PlanCustomPath of the Gather below core's ModifyTable. */
static CustomScan *
plan_moved_rows(PlannerInfo *root, CustomPath *best_path, void *arg)
{
	MovePlan *move = arg;
	GatherPlan plan = {.kind = GATHER_SELECT, .writes = true};
	List *params = NIL;

	gather_add_hidden_roots(move->dist);
	plan.sql = make_sql(root, move->dist, move->fetch, &params);
	root->processed_tlist = move->row;
	return gather_make_scan(&plan, copyObject(move->row), move->fetch, NIL, params,
							&move->dist->locus);
}

Path *
plan_move_path(PlannerInfo *root, RelOptInfo *final_rel, const DistributedTable *table,
			   DistPath *dist, List *assignments)
{
	Query *parse = root->parse;
	MovePlan *move = palloc(sizeof(MovePlan));
	ModifyTablePath *path = makeNode(ModifyTablePath);

	move->dist = dist;
	move->row = make_row(root, table->relation, assignments);
	move->fetch = make_fetch_list(move->row);
	key_change_check_references(table->relation, table->key_attribute);
	if (walk_old_row((Node *) parse->returningList, NULL))
		key_change_refuse(table->relation, table->key_attribute,
						  "RETURNING names the old or the new row, which are on different workers.",
						  "Name columns without OLD and NEW: they are the new row's.");
	if (!gather_can_fetch(get_tlist_exprs(move->fetch, false)))
		key_change_refuse(
			table->relation, table->key_attribute,
			"RETURNING names a row of another table that has no type which workers know.",
			"Name its columns.");

	*path = *linitial_node(ModifyTablePath, final_rel->pathlist);
	/* core's INSERT takes columns for RETURNING only from a node that hands on what is below it */
	path->subpath = (Path *) compat_create_material_path(
		final_rel,
		gather_path_create_modify(root, final_rel, NIL, dist->rows, plan_moved_rows, move));
	path->operation = CMD_INSERT;
	compat_forget_partition_update(path);
	path->updateColnosLists = NIL;
	path->rowMarks = NIL;
	if (parse->withCheckOptions != NIL)
		path->withCheckOptionLists = list_make1(new_row_checks_of_insert(parse->withCheckOptions));
	return (Path *) path;
}
