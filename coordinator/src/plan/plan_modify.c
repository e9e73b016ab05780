/*
 * plan_modify.c
 *		UPDATE, DELETE, MERGE and INSERT ... ON CONFLICT as shipped statements.
 *
 * Core has planned the statement's joins; if all of it has a DistPath, then each
 * worker can run the statement itself over its own rows, and together they do what
 * one PostgreSQL would.  That proof is all the path is used for: the text is the
 * user's (deparse_statement.c).  Unless the coordinator knows more than the text says: the
 * value of an uncorrelated sub-select, which a worker would compute over its slice,
 * or the clauses of row security.  Then UPDATE and DELETE are rebuilt from the path.
 *
 * Statements whose rows meet only here, and those of tables with triggers, are core's own, over the rows that the workers
 * lock (plan_row_change.c).  UPDATE of the distribution key: plan_move.c.
 *
 * Plain INSERT needs none of this: core's ModifyTable hands the rows to the access
 * method, which routes them.  INSERT ... SELECT is shipped when source and target
 * rows are on the same worker.  ON CONFLICT rows that are not, are computed here,
 * routed, and sent as one INSERT statement per worker (upsert_rows.c).
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "compat.h"
#include "cluster/shard_map.h"
#include "plan/conflict_obstacle.h"
#include "plan/deparse_path.h"
#include "plan/deparse_statement.h"
#include "plan/deparse_text.h"
#include "plan/gather_plan.h"
#include "plan/new_row_checks.h"
#include "plan/only_here.h"
#include "plan/plan_move.h"
#include "plan/plan_row_change.h"
#include "plan/planner.h"
#include "plan/shippable.h"
#include "plan/slice_path.h"
#include "plan/statement_text.h"

typedef struct ModifyPlan
{
	Query *original;
	DistPath *path;			 /* rebuild the statement from this; NULL: ship the original */
	List *checked;			 /* its assignments, with the checks of policies; NIL: there are none */
	List *checked_returning; /* ... and RETURNING, with those of views */
	Locus locus;
	const DistributedTable *table;
} ModifyPlan;

/* ON CONFLICT ends on the workers: there it cannot be told to triggers, policies and views what becomes of a row. */
static void
check_conflict_rows(Query *parse, const DistributedTable *table)
{
	const char *detail = NULL;

	if (plan_row_change_fires(parse, TRIGGER_TYPE_INSERT | TRIGGER_TYPE_UPDATE))
		detail = "The statement ends on the workers, where the table's triggers do not exist.";
	else if (parse->withCheckOptions != NIL)
		detail = "The statement ends on the workers, where its new rows cannot be checked against "
				 "policies and a view's CHECK OPTION.";
	if (detail != NULL)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("cannot run this INSERT ... ON CONFLICT on distributed table \"%s\"",
							   get_rel_name(table->relation)),
						errdetail_internal("%s", detail), errhint("Use MERGE.")));
}

/* The new value of the key, where columns (ints) get those of tlist, in its order; NULL if they are others. */
static Node *
updated_key(List *columns, List *tlist, const DistributedTable *table)
{
	ListCell *lc;
	ListCell *lc2;

	forboth(lc, columns, lc2, tlist)
	{
		if (lfirst_int(lc) == table->key_attribute)
			return (Node *) lfirst_node(TargetEntry, lc2)->expr;
	}
	return NULL;
}

/* Column numbers of a target list. */
static List *
target_columns(List *tlist)
{
	List *columns = NIL;
	ListCell *lc;

	foreach(lc, tlist)
		columns = lappend_int(columns, ((TargetEntry *) lfirst(lc))->resno);
	return columns;
}

/* Do rows certainly keep their key: SET key = key? */
static bool
keeps_key(List *columns, List *tlist, const DistributedTable *table)
{
	Var *value = (Var *) updated_key(columns, tlist, table);

	return value == NULL ||
		   (IsA(value, Var) && value->varattno == table->key_attribute && value->varlevelsup == 0);
}

/* ON CONFLICT: a row cannot move to the worker of its new key. */
static void
check_conflict_update(OnConflictExpr *conflict, const DistributedTable *table)
{
	List *tlist = conflict->onConflictSet;

	if (conflict->action != ONCONFLICT_UPDATE || keeps_key(target_columns(tlist), tlist, table))
		return;
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("cannot update the distribution key \"%s\" of table \"%s\"",
						   get_attname(table->relation, table->key_attribute, false),
						   get_rel_name(table->relation)),
					errdetail("The row would have to move to another shard."),
					errhint("Use UPDATE, which moves rows.")));
}

static bool
walk_current_of(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, CurrentOfExpr))
		return true;
	return expression_tree_walker(node, walk_current_of, context);
}

static void
check_current_of(Query *original, const DistributedTable *table)
{
	if (original != NULL && walk_current_of((Node *) original->jointree, NULL))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("WHERE CURRENT OF is not supported for distributed table \"%s\"",
							   get_rel_name(table->relation)),
						errdetail("A cursor does not know where on the workers its rows are."),
						errhint("Select the row by its key.")));
}

/* UPDATE ... SET (a, b) = (SELECT ...): the parameters that stand for the sub-select's columns. */
static Node *
resolve_multiexpr(Node *node, PlannerInfo *root)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Param) && ((Param *) node)->paramkind == PARAM_MULTIEXPR)
	{
		Param *param = (Param *) node;
		List *columns = list_nth(root->multiexpr_params, (param->paramid >> 16) - 1);

		return copyObject(list_nth(columns, (param->paramid & 0xFFFF) - 1));
	}
	return expression_tree_mutator(node, resolve_multiexpr, root);
}

static int
compare_sources(const ListCell *a, const ListCell *b)
{
	const TargetEntry *entries[] = {lfirst(a), lfirst(b)};
	AttrNumber columns[2];

	for (int i = 0; i < 2; i++)
		columns[i] = castNode(Var, strip_implicit_coercions((Node *) entries[i]->expr))->varattno;
	return columns[0] - columns[1];
}

/*
 * The target list of the one SELECT whose rows a statement inserts; NIL if there is more to it: a rule has given
 * it conditions, or other relations, for which INSERT has no text.
 */
static List *
get_insert_source(const Query *insert)
{
	const FromExpr *from = insert->jointree;
	const RangeTblEntry *rte;

	if (from->quals != NULL || list_length(from->fromlist) != 1 ||
		!IsA(linitial(from->fromlist), RangeTblRef))
		return NIL;
	rte = rt_fetch(linitial_node(RangeTblRef, from->fromlist)->rtindex, insert->rtable);
	return rte->rtekind == RTE_SUBQUERY ? rte->subquery->targetList : NIL;
}

/*
 * Can the text of INSERT ... SELECT name the columns that its SELECT gives, in that order?  The rewriter has
 * sorted the target list by column, and added defaults, of which the SELECT knows nothing.  Puts the target
 * list in the SELECT's order.
 */
static bool
match_insert_columns(Query *original)
{
	List *tlist = get_insert_source(original);
	bool in_order = true;
	bool only_vars = true;
	int i = 0;
	ListCell *lc;

	if (ExecCleanTargetListLength(tlist) != list_length(original->targetList))
		return false;
	foreach(lc, original->targetList)
	{
		TargetEntry *entry = lfirst(lc);
		TargetEntry *given = list_nth(tlist, i++);
		Node *value = strip_implicit_coercions((Node *) entry->expr);

		if (IsA(value, Var))
			in_order &= ((Var *) value)->varattno == i;
		else
		{
			/* core has copied the SELECT's literal, which has kept its place in the text */
			only_vars = false;
			in_order &= IsA(value, Const) && IsA(given->expr, Const) &&
						((Const *) value)->location >= 0 &&
						((Const *) value)->location == ((Const *) given->expr)->location;
		}
	}
	if (only_vars && !in_order)
		list_sort(original->targetList, compare_sources);
	return only_vars || in_order;
}

/*
 * Can what an INSERT ... ON CONFLICT says of rows that exist be sent?  Its rows are computed here, and so are sub-selects without
 * outer columns, in whose place the statement as it was before planning gets the values that they are planned as.
 */
static bool
complete_conflict(PlannerInfo *root, Query *original)
{
	const OnConflictExpr *planned = root->parse->onConflict;
	OnConflictExpr *conflict;
	List *returning;

	if (original == NULL)
		return false;
	conflict = copyObject(original->onConflict);
	returning = original->returningList;
	if (contain_subplans((Node *) conflict->onConflictSet))
		conflict->onConflictSet = (List *) resolve_multiexpr((Node *) planned->onConflictSet, root);
	if (contain_subplans(conflict->onConflictWhere))
		conflict->onConflictWhere = (Node *) make_ands_explicit((List *) planned->onConflictWhere);
	if (contain_subplans((Node *) returning))
		returning = copyObject(root->parse->returningList);
	if (contain_subplans((Node *) conflict) || contain_subplans((Node *) returning) ||
		!statement_text_names_all((Node *) conflict) ||
		!statement_text_names_all((Node *) returning))
		return false;
	original->onConflict = conflict;
	original->returningList = returning;
	return true;
}

/* What is evaluated for a row that is there already, and for what is returned. */
static bool
returning_is_shippable(PlannerInfo *root, const Locus *locus)
{
	Query *parse = root->parse;
	ListCell *lc;

	if (parse->onConflict != NULL &&
		(!shippable_new_value(root, locus,
							  resolve_multiexpr((Node *) parse->onConflict->onConflictSet, root)) ||
		 !shippable_expr(root, locus, parse->onConflict->onConflictWhere, NULL)))
		return false;
	foreach(lc, parse->returningList)
	{
		TargetEntry *tle = lfirst(lc);

		if (!shippable_expr(root, locus, (Node *) tle->expr, NULL) ||
			!shippable_type(exprType((Node *) tle->expr)))
			return false;
	}
	return true;
}

/* The expressions that the statement evaluates per row. */
static bool
expressions_are_shippable(PlannerInfo *root, const Locus *locus)
{
	Query *parse = root->parse;
	ListCell *lc;

	foreach(lc, root->processed_tlist)
	{
		TargetEntry *tle = lfirst(lc);

		if (!tle->resjunk &&
			!shippable_new_value(root, locus, resolve_multiexpr((Node *) tle->expr, root)))
			return false;
	}
	foreach(lc, parse->mergeActionList)
	{
		MergeAction *action = lfirst(lc);

		if (!shippable_expr(root, locus, action->qual, NULL) ||
			!shippable_new_value(root, locus, (Node *) action->targetList))
			return false;
	}
	return returning_is_shippable(root, locus);
}

/* The value that an INSERT's target list gives the distribution key. */
static Node *
key_value(List *tlist, const DistributedTable *table)
{
	ListCell *lc;

	foreach(lc, tlist)
	{
		TargetEntry *tle = lfirst(lc);

		if (tle->resno == table->key_attribute && !tle->resjunk)
			return (Node *) tle->expr;
	}
	return NULL;
}

/* Are both constants, or one expression, that have the same key hash? */
static bool
have_same_hash(const Colocation *colocation, const Node *a, const Node *b)
{
	uint64 hashes[2];

	if (!IsA(a, Const) || !IsA(b, Const))
		return equal(a, b);
	for (int i = 0; i < 2; i++)
	{
		const Const *value = (const Const *) (i == 0 ? a : b);

		hashes[i] = shard_map_hash(colocation, getBaseType(value->consttype), value->constvalue,
								   value->constisnull);
	}
	return hashes[0] == hashes[1];
}

/* Does a row with this key belong to the worker where the path's row is? */
static bool
key_stays(PlannerInfo *root, const Locus *locus, const DistributedTable *table, Node *key)
{
	ListCell *lc;

	if (locus_has_key(root, locus, key))
		return true;
	foreach(lc, locus->routes) /* SET key = 1 WHERE key = 1: as by tools that write all columns */
	{
		if (have_same_hash(table->colocation, lfirst(lc), key))
			return true;
	}
	return false;
}

/* Do the rows that MERGE inserts or updates belong to the worker where it found a match, or none? */
static bool
merged_rows_stay(PlannerInfo *root, const Locus *locus, const DistributedTable *table)
{
	ListCell *lc;

	foreach(lc, root->parse->mergeActionList)
	{
		MergeAction *action = lfirst(lc);
		Node *key;

		if (action->commandType == CMD_UPDATE &&
			!keeps_key(action->updateColnos, action->targetList, table))
			return false;
		if (action->commandType != CMD_INSERT)
			continue;
		key = key_value(action->targetList, table);
		if (key == NULL || !key_stays(root, locus, table, key))
			return false;
	}
	return true;
}

/* The path by which all of the statement's rows meet on the workers; NULL when there is none. */
static DistPath *
find_colocated_path(PlannerInfo *root, RelOptInfo *input_rel, const DistributedTable *table)
{
	ListCell *lc;

	foreach(lc, dist_paths(input_rel))
	{
		DistPath *path = lfirst(lc);

		if (path->locus.kind != LOCUS_HASHED || path->outer_params != NULL ||
			path->locus.colocation_id != table->colocation->id)
			continue;
		if (expressions_are_shippable(root, &path->locus) &&
			merged_rows_stay(root, &path->locus, table))
			return path;
	}
	return NULL;
}

/* Does a colocated SELECT give each row's key as it is: may INSERT ... SELECT run on the workers? */
static DistPath *
find_colocated_source(PlannerInfo *root, RelOptInfo *input_rel, const DistributedTable *table)
{
	DistPath *path = find_colocated_path(root, input_rel, table);
	Node *key = key_value(root->processed_tlist, table);

	if (path == NULL || key == NULL || root->parse->hasTargetSRFs || limit_needed(root->parse) ||
		path->locks != NIL || root->parse->override != OVERRIDING_NOT_SET)
		return NULL;
	return locus_has_key(root, &path->locus, key) ? path : NULL;
}

/* The new values of an UPDATE, each with the number of its column. */
static List *
list_assignments(PlannerInfo *root)
{
	Oid relation = planner_rt_fetch(root->parse->resultRelation, root)->relid;
	List *result = NIL;
	ListCell *lc;
	ListCell *lc2;

	forboth(lc, root->update_colnos, lc2, root->processed_tlist)
	{
		TargetEntry *tle = lfirst(lc2);

		result = lappend(result,
						 makeTargetEntry((Expr *) resolve_multiexpr((Node *) tle->expr, root),
										 lfirst_int(lc),
										 get_attname(relation, lfirst_int(lc), false), false));
	}
	return result;
}

static List *
make_set_list(PlannerInfo *root, List *checked)
{
	if (root->parse->commandType != CMD_UPDATE)
		return NIL;
	return deparse_statement_assignments(
		checked != NIL ? checked : list_assignments(root),
		planner_rt_fetch(root->parse->resultRelation, root)->relid);
}

/*
 * RETURNING for a node that gets its values ready made.  Core takes old.a and new.a for one column of what a custom
 * scan reads, so these are no columns.
 */
static List *
list_returning(PlannerInfo *root)
{
	List *result = copyObject(root->parse->returningList);
	ListCell *cell;

	foreach(cell, result)
	{
		TargetEntry *target = lfirst_node(TargetEntry, cell);
		Var *var = (Var *) target->expr;

		if (IsA(var, Var) && compat_names_old_or_new(var))
			target->expr = (Expr *) makeRelabelType((Expr *) var, var->vartype, var->vartypmod,
													var->varcollid, COERCE_IMPLICIT_CAST);
	}
	return result;
}

/*
 * A row that every worker has, and that matches nothing there, is inserted by the one that holds its key: the others have not
 * seen the rows that it could have matched.
 */
static void
insert_where_owned(List *actions, const DistributedTable *table)
{
	ListCell *lc;

	foreach(lc, actions)
	{
		MergeAction *action = lfirst(lc);
		Node *key;

		if (action->commandType != CMD_INSERT)
			continue;
		key = key_value(action->targetList, table);
		if (contain_vars_of_level(key, 0)) /* else one worker is asked */
			action->qual = make_and_qual(action->qual,
										 (Node *) slice_path_owns(table->relation, key));
	}
}

/* PlanCustomPath of a statement that is shipped as it was written. */
static CustomScan *
plan_shipped_statement(PlannerInfo *root, CustomPath *best_path, void *arg)
{
	ModifyPlan *modify = arg;
	GatherPlan plan = {.kind = GATHER_MODIFY, .writes = true};
	List *returning = list_returning(root);
	List *params = NIL;

	plan.can_set_tag = root->parse->canSetTag;
	plan.returning = returning != NIL;
	if (modify->path != NULL)
	{
		gather_add_hidden_roots(modify->path);
		plan.sql = deparse_text(deparse_path_modify(
			modify->path, root->parse->commandType, root->parse->resultRelation,
			make_set_list(root, modify->checked), modify->checked_returning, &params));
	}
	else
	{
		statement_text_strip_ctes(root, modify->original);
		insert_where_owned(modify->original->mergeActionList, modify->table);
		plan.sql = deparse_statement_text(root, modify->original, &params);
	}
	root->processed_tlist = copyObject(returning);
	return gather_make_scan(&plan, copyObject(returning), returning, NIL, params, &modify->locus);
}

/* PlanCustomPath of INSERT ... ON CONFLICT whose rows are routed here. */
static CustomScan *
plan_row_insert(PlannerInfo *root, CustomPath *best_path, void *arg)
{
	ModifyPlan *modify = arg;
	GatherPlan plan = {.kind = GATHER_INSERT_ROWS, .writes = true};
	List *returning = list_returning(root);
	List *params = NIL;
	List *attributes = NIL;
	Relation relation = table_open(modify->table->relation, NoLock);
	TupleDesc desc = RelationGetDescr(relation);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);

		if (!attribute->attisdropped && attribute->attgenerated == '\0')
			attributes = lappend_int(attributes, attribute->attnum);
	}
	table_close(relation, NoLock);

	plan.can_set_tag = root->parse->canSetTag;
	plan.returning = returning != NIL;
	plan.row_columns = attributes;
	plan.key_attribute = modify->table->key_attribute;
	plan.sql = statement_deparse_row_insert(root, modify->original, attributes, &params);
	root->processed_tlist = copyObject(returning);
	return gather_make_scan(&plan, copyObject(returning), returning, NIL, params, &modify->locus);
}

static void
replace_path(RelOptInfo *final_rel, Path *path)
{
	final_rel->pathlist = final_rel->partial_pathlist = NIL;
	add_path(final_rel, path);
}

static void
replace_paths(PlannerInfo *root, RelOptInfo *final_rel, ModifyPlan *modify,
			  GatherModifyPlanner planner, List *subpaths)
{
	replace_path(final_rel,
				 gather_path_create_modify(root, final_rel, subpaths, 1, planner, modify));
}

static void
plan_insert(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *final_rel, ModifyPlan *modify)
{
	DistPath *source = find_colocated_source(root, input_rel, modify->table);
	ModifyTablePath *core = linitial(final_rel->pathlist);
	OnConflictExpr *conflict = root->parse->onConflict;

	if (conflict != NULL)
		check_conflict_update(conflict, modify->table);
	modify->locus.kind = LOCUS_HASHED;
	modify->locus.colocation_id = modify->table->colocation->id;

	if (source != NULL && !planner_changes_here() &&
		statement_text_is_complete(root, modify->original) &&
		statement_text_is_readable(root, modify->original) &&
		root->parse->withCheckOptions == NIL &&
		!plan_row_change_fires(root->parse, TRIGGER_TYPE_INSERT) &&
		match_insert_columns(modify->original))
	{
		modify->locus = source->locus;
		replace_paths(root, final_rel, modify, plan_shipped_statement, NIL);
		return;
	}
	if (conflict == NULL)
		return;
	check_conflict_rows(root->parse, modify->table);
	if (!returning_is_shippable(root, &modify->locus) || !IsA(core, ModifyTablePath) ||
		!complete_conflict(root, modify->original))
		conflict_obstacle_report(root, modify->original, modify->table);
	replace_paths(root, final_rel, modify, plan_row_insert, list_make1(core->subpath));
}

/* Does an UPDATE give rows a key that may belong to another worker? */
static bool
rows_may_move(PlannerInfo *root, DistPath *path, const DistributedTable *table)
{
	Node *key = NULL;

	if (root->parse->commandType == CMD_UPDATE)
		key = updated_key(root->update_colnos, root->processed_tlist, table);
	return key != NULL && !key_stays(root, &path->locus, table, key);
}

/* A path that brings the statement's rows together, wherever its new values are computed. */
static DistPath *
find_row_path(PlannerInfo *root, RelOptInfo *input_rel, const DistributedTable *table)
{
	ListCell *lc;

	foreach(lc, dist_paths(input_rel))
	{
		DistPath *path = lfirst(lc);

		if (path->locus.kind == LOCUS_HASHED && path->outer_params == NULL &&
			path->locus.colocation_id == table->colocation->id &&
			from_list_has(path->from, root->parse->resultRelation))
			return path;
	}
	return NULL;
}

/*
 * Core changes the rows one by one here.  Without a path that brings them together on the workers, it does that, too, and the
 * path that it has made is right as it is.
 */
static void
plan_row_change(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *final_rel, ModifyPlan *modify)
{
	DistPath *path = NULL;

	if (root->parse->commandType != CMD_MERGE)
		path = find_row_path(root, input_rel, modify->table);
	if (path != NULL)
		replace_path(final_rel, plan_row_change_path(root, final_rel, modify->table, path));
}

/* Take the checks of policies and of a view's CHECK OPTION into the statement; false if workers cannot make them. */
static bool
add_new_row_checks(PlannerInfo *root, DistPath *path, ModifyPlan *modify)
{
	Query *parse = root->parse;

	modify->checked_returning = copyObject(parse->returningList);
	if (parse->withCheckOptions == NIL)
		return true;
	if (parse->commandType != CMD_UPDATE)
		return false;
	modify->checked = list_assignments(root);
	return new_row_checks_add(root, &path->locus, modify->original, &modify->checked,
							  &modify->checked_returning);
}

/* Plan the statement as one of the workers over the path's rows; false if they cannot do all of it. */
static bool
plan_on_workers(PlannerInfo *root, RelOptInfo *final_rel, ModifyPlan *modify, DistPath *path)
{
	Query *parse = root->parse;

	if (rows_may_move(root, path, modify->table))
	{
		replace_path(final_rel,
					 plan_move_path(root, final_rel, modify->table, path, list_assignments(root)));
		return true;
	}
	if (!add_new_row_checks(root, path, modify))
		return false;
	if (modify->checked != NIL || !statement_text_is_complete(root, modify->original) ||
		!statement_text_is_readable(root, modify->original))
	{
		if (parse->commandType == CMD_MERGE || !from_list_has(path->from, parse->resultRelation))
			return false;
		modify->path = path;
	}
	modify->locus = path->locus;
	replace_paths(root, final_rel, modify, plan_shipped_statement, NIL);
	return true;
}

void
plan_modify(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *final_rel)
{
	Query *parse = root->parse;
	RangeTblEntry *rte = planner_rt_fetch(parse->resultRelation, root);
	ModifyPlan *modify;
	DistPath *path = NULL;

	if (rte->rtekind != RTE_RELATION)
		return;
	modify = palloc0(sizeof(ModifyPlan));
	modify->table = metadata_table(rte->relid);
	if (modify->table != NULL)
		planner_note_access(rte->relid, true);
	if (modify->table == NULL || modify->table->kind != TABLE_DISTRIBUTED ||
		IS_DUMMY_REL(input_rel))
		return;
	plan_scan_check_ctid(root, parse->resultRelation);
	modify->original = deparse_statement_original(root);

	if (parse->commandType == CMD_INSERT)
	{
		plan_insert(root, input_rel, final_rel, modify);
		return;
	}

	check_current_of(modify->original, modify->table);
	if (!planner_changes_here() && !plan_row_change_fires(parse, plan_row_change_events(parse)))
		path = find_colocated_path(root, input_rel, modify->table);
	if (path == NULL || !plan_on_workers(root, final_rel, modify, path))
		plan_row_change(root, input_rel, final_rel, modify);
}
