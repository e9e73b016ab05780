/*
 * new_row_checks.c
 *		Policies and WITH CHECK OPTION for rows that workers change.
 *
 * The rewriter has added conditions that new rows have to satisfy.  The workers know neither policies nor views; so the text
 * has them, where they are evaluated when core evaluates them.  A policy's condition comes before the row is changed, and before
 * constraints and unique keys tell anything about it, and once more if the row has changed meanwhile:
 *
 *		SET column = strata.checked_value(value, condition with the new values in the place of columns, ...)
 *
 * A view's comes when it has been changed:
 *
 *		RETURNING strata.checked_value(what is returned, or NULL, condition, ...)
 *
 * For policies new values are computed twice, to be stored and to be checked.  Code of users could give two different ones, whatever it
 * has been declared, and would see how far the condition was evaluated.  Hence only PostgreSQL's own functions may
 * compute them, of its own types: domains have users' code, too.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/transam.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_func.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteHandler.h"
#include "rewrite/rewriteManip.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "compat.h"
#include "plan/deparse_statement.h"
#include "plan/new_row_checks.h"
#include "plan/shippable.h"

typedef struct NewRow
{
	Index target;
	Relation relation;
	List *assignments;
	bool is_whole; /* something names what is more than a column: the whole row, tableoid */
	bool collates; /* a value had to be given its column's collation */
} NewRow;

static TargetEntry *
find_assignment(const NewRow *row, AttrNumber attno)
{
	ListCell *lc;

	foreach(lc, row->assignments)
	{
		TargetEntry *entry = lfirst(lc);

		if (entry->resno == attno)
			return entry;
	}
	return NULL;
}

/* The value as the column has it: under the column's collation. */
static Node *
collate_for_column(Node *value, const Var *column, NewRow *row)
{
	if (exprCollation(value) == column->varcollid || !OidIsValid(column->varcollid))
		return value;
	row->collates = true;
	return (Node *) makeRelabelType((Expr *) value, exprType(value), exprTypmod(value),
									column->varcollid, COERCE_IMPLICIT_CAST);
}

/* Does the planned expression say COLLATE? */
static bool
walk_collate(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, RelabelType) &&
		exprCollation(node) != exprCollation((Node *) ((RelabelType *) node)->arg))
		return true;
	return expression_tree_walker(node, walk_collate, context);
}

/* The expression with the new row's values. */
static Node *
mutate_new_values(Node *node, NewRow *row)
{
	Var *var = (Var *) node;
	TargetEntry *assigned;

	if (node == NULL)
		return NULL;
	if (!IsA(node, Var) || var->varno != row->target || var->varlevelsup != 0)
		return expression_tree_mutator(node, mutate_new_values, row);
	if (var->varattno <= 0)
	{
		row->is_whole = true;
		return node;
	}
	assigned = find_assignment(row, var->varattno);
	if (assigned != NULL)
		return collate_for_column(copyObject((Node *) assigned->expr), var, row);
	if (TupleDescAttr(RelationGetDescr(row->relation), var->varattno - 1)->attgenerated != '\0')
	{
		Node *generated = build_column_default(row->relation, var->varattno);

		ChangeVarNodes(generated, 1, row->target, 0);
		return mutate_new_values(eval_const_expressions(NULL, generated), row);
	}
	return node;
}

static Node *
make_text_const(const char *value)
{
	if (value == NULL)
		return (Node *) makeNullConst(TEXTOID, -1, DEFAULT_COLLATION_OID);
	return (Node *) makeConst(TEXTOID, -1, DEFAULT_COLLATION_OID, -1, CStringGetTextDatum(value),
							  false, false);
}

/* Is it checked after the row has been changed? */
static bool
is_checked_late(const WithCheckOption *option)
{
	return option->kind == WCO_VIEW_CHECK;
}

/* value, if the condition holds */
static Expr *
check_value(Expr *value, const WithCheckOption *option, Node *condition)
{
	Oid type = exprType((Node *) value);
	Oid collation = exprCollation((Node *) value);
	Oid types[] = {ANYELEMENTOID, BOOLOID, BOOLOID, TEXTOID, TEXTOID};
	Oid function = LookupFuncName(list_make2(makeString("strata"), makeString("checked_value")),
								  lengthof(types), types, false);
	List *args = list_make5(value, condition, makeBoolConst(is_checked_late(option), false),
							make_text_const(option->relname), make_text_const(option->polname));

	/* the names are text of the default collation */
	return (Expr *) makeFuncExpr(function, type, args, collation,
								 OidIsValid(collation) ? collation : DEFAULT_COLLATION_OID,
								 COERCE_EXPLICIT_CALL);
}

/* Callback of check_functions_in_node() */
static bool
is_users_function(Oid function, void *context)
{
	return function >= FirstNormalObjectId;
}

/* Rows of functions and documents whose columns are of types that the statement names. */
static bool
has_named_types(const RangeTblEntry *rte)
{
	ListCell *lc;

	foreach(lc, rte->functions)
	{
		if (lfirst_node(RangeTblFunction, lc)->funccoltypes != NIL)
			return true;
	}
	return rte->rtekind == RTE_TABLEFUNC;
}

/* May anything but PostgreSQL's own code compute it, or see that it is computed? */
static bool
walk_users_code(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
		return has_named_types((RangeTblEntry *) node);
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, walk_users_code, context, QTW_EXAMINE_RTES_BEFORE);
	if (IsA(node, CoerceToDomain) || check_functions_in_node(node, is_users_function, NULL))
		return true;
	if ((IsA(node, FuncExpr) || IsA(node, CoerceViaIO) || IsA(node, Aggref) ||
		 IsA(node, WindowFunc) || compat_is_json_function(node)) &&
		exprType(node) >= FirstNormalObjectId)
		return true;
	return expression_tree_walker(node, walk_users_code, context);
}

/*
 * The same of all that the planner may put into the new values of an UPDATE: what it assigns, and what its FROM items compute.
 * Conditions of the target's policies are their owner's.
 */
static bool
has_users_values(const Query *update)
{
	ListCell *lc;

	foreach(lc, update->rtable)
	{
		RangeTblEntry *rte = lfirst(lc);

		if (has_named_types(rte) || walk_users_code((Node *) rte->subquery, NULL) ||
			walk_users_code((Node *) rte->functions, NULL) ||
			walk_users_code((Node *) rte->values_lists, NULL))
			return true;
	}
	foreach(lc, update->cteList)
	{
		if (walk_users_code(lfirst_node(CommonTableExpr, lc)->ctequery, NULL))
			return true;
	}
	return walk_users_code((Node *) update->targetList, NULL);
}

/* An assignment of a whole column: of a part of one SQL has no expression.  NULL if there is none. */
static TargetEntry *
choose_assignment(List *assignments)
{
	ListCell *lc;

	foreach(lc, assignments)
	{
		TargetEntry *entry = lfirst(lc);

		if (!deparse_statement_assigns_part((Node *) entry->expr))
			return entry;
	}
	return NULL;
}

/* The assignments, of which one is checked by the policies; NIL: they cannot be. */
static List *
add_policies(PlannerInfo *root, const Locus *locus, const Query *original, List *assignments)
{
	RangeTblEntry *rte = rt_fetch(root->parse->resultRelation, root->parse->rtable);
	List *result = copyObject(assignments);
	TargetEntry *chosen = choose_assignment(result);
	NewRow row = {.target = root->parse->resultRelation, .assignments = assignments};
	bool possible = true;
	bool found = false;
	ListCell *lc;

	row.relation = table_open(rte->relid, NoLock);
	foreach(lc, root->parse->withCheckOptions)
	{
		const WithCheckOption *option = lfirst(lc);
		List *quals;

		if (is_checked_late(option))
			continue;
		found = true;
		quals = (List *) mutate_new_values(option->qual, &row);
		/* of two explicit collations SQL takes neither */
		possible = possible && chosen != NULL && !row.is_whole &&
				   !(row.collates && walk_collate(option->qual, NULL)) &&
				   !deparse_statement_assigns_part((Node *) quals) &&
				   shippable_expr(root, locus, (Node *) quals, NULL);
		if (possible)
			chosen->expr = check_value(chosen->expr, option, (Node *) make_ands_explicit(quals));
	}
	table_close(row.relation, NoLock);
	if (!possible || (found && (original == NULL || has_users_values(original))))
		return NIL;
	if (found)
		chosen->expr = (Expr *) deparse_statement_coerce((Node *) chosen->expr, rte->relid,
														 chosen->resno);
	return result;
}

/* RETURNING, whose first column is checked by the views; false: it cannot be. */
static bool
add_views(PlannerInfo *root, const Locus *locus, List **returning)
{
	ListCell *lc;

	foreach(lc, root->parse->withCheckOptions)
	{
		const WithCheckOption *option = lfirst(lc);
		TargetEntry *chosen;

		if (!is_checked_late(option))
			continue;
		if (*returning == NIL)
			*returning = list_make1(makeTargetEntry((Expr *) makeNullConst(BOOLOID, -1, InvalidOid),
													1, pstrdup("checked"), false));
		if (!shippable_expr(root, locus, option->qual, NULL))
			return false;
		chosen = linitial(*returning);
		chosen->expr = check_value(chosen->expr, option,
								   (Node *) make_ands_explicit(copyObject((List *) option->qual)));
	}
	return true;
}

bool
new_row_checks_add(PlannerInfo *root, const Locus *locus, const Query *original, List **assignments,
				   List **returning)
{
	*assignments = add_policies(root, locus, original, *assignments);
	return *assignments != NIL && add_views(root, locus, returning);
}

List *
new_row_checks_of_insert(List *options)
{
	List *result = copyObject(options);
	ListCell *lc;

	foreach(lc, result)
	{
		WithCheckOption *option = lfirst_node(WithCheckOption, lc);

		if (option->kind == WCO_RLS_UPDATE_CHECK)
			option->kind = WCO_RLS_INSERT_CHECK;
	}
	return result;
}
