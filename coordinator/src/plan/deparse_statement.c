/*
 * deparse_statement.c
 *		SQL of a whole statement, from the Query the user wrote.
 *
 * DML is shipped as the statement itself, not rebuilt from paths: plan_modify.c
 * proves by the paths that every worker can run it over its own rows, then the
 * original text of the Query does everything, in any shape that PostgreSQL knows.
 *
 * But the Query is not quite what the user wrote, and ruleutils is made for Queries before the rewriter's work:
 *
 *	- assignments to parts of one column (SET a[1] = 1, a[2] = 2) are nested in one expression, of which it would
 *	  print the last only, and SET of a generated column = DEFAULT is gone: deparse_statement_assignments();
 *	- what rules and views have brought in stands in FROM, but does not say so, or under another name, or too late for
 *	  what refers to it, and the rows that are to be inserted are there under their name twice: mend_names(),
 *	  put_lateral_last();
 *	- a view's condition has no place of its own in MERGE: mend_merge().
 */
#include "postgres.h"

#include "access/table.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_coerce.h"
#include "parser/parse_collate.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "compat.h"
#include "plan/deparse_path.h"
#include "plan/deparse_returning.h"
#include "plan/deparse_statement.h"
#include "plan/deparse_text.h"
#include "plan/planner.h"
#include "plan/shippable.h"

typedef struct StatementContext
{
	PlannerInfo *root;
	List **params;
	int offset; /* parameters that stand for a row's columns come first */
} StatementContext;

static Node *
make_value_param(Node *expr, StatementContext *context)
{
	*context->params = lappend(*context->params, copyObject(expr));
	return deparse_path_param(expr, context->offset + list_length(*context->params));
}

static bool
walk_from_items(Node *node, Query *query)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblRef))
	{
		Index rti = ((RangeTblRef *) node)->rtindex;

		/* written through a view, the target stands among the FROM items, too */
		rt_fetch(rti, query->rtable)->inFromCl = rti != query->resultRelation;
		return false;
	}
	if (IsA(node, Query))
		return false;
	return expression_tree_walker(node, walk_from_items, query);
}

typedef struct NamesContext
{
	List *rtable;
	Index level;
} NamesContext;

/* NEW.a of a rule, where a is not assigned to, has become OLD.a, but ruleutils would still print NEW. */
static bool
walk_replaced_names(Node *node, NamesContext *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var))
	{
		Var *var = (Var *) node;

		if (var->varlevelsup == context->level && var->varnosyn > 0 &&
			var->varnosyn != var->varno &&
			rt_fetch(var->varnosyn, context->rtable)->rtekind != RTE_JOIN)
			var->varnosyn = 0;
		return false;
	}
	if (IsA(node, Query))
	{
		bool result;

		context->level++;
		result = query_tree_walker((Query *) node, walk_replaced_names, context, 0);
		context->level--;
		return result;
	}
	return expression_tree_walker(node, walk_replaced_names, context);
}

/* FROM is what the join tree says; and of relations called "excluded" it is the one that ON CONFLICT means. */
static void
mend_names(Query *query)
{
	Index excluded = query->onConflict == NULL ? 0 : query->onConflict->exclRelIndex;
	NamesContext names = {.rtable = query->rtable};
	Index rti = 0;
	ListCell *lc;

	(void) walk_from_items((Node *) query->jointree, query);
	(void) query_tree_walker(query, walk_replaced_names, &names, 0);
	if (excluded == 0)
		return;
	foreach(lc, query->rtable)
	{
		RangeTblEntry *rte = lfirst(lc);

		rti++;
		if (rti != excluded && rti != query->resultRelation && !rte->inFromCl)
			rte->alias = rte->eref = makeAlias("unused", rte->eref->colnames);
	}
}

static bool
walk_lateral_items(Node *node, Query *query)
{
	if (node == NULL || IsA(node, Query))
		return false;
	if (IsA(node, RangeTblRef))
		return rt_fetch(((RangeTblRef *) node)->rtindex, query->rtable)->lateral;
	return expression_tree_walker(node, walk_lateral_items, query);
}

/* A rule's sub-select may name OLD, which the rewriter puts behind it: in SQL LATERAL items come last. */
static void
put_lateral_last(Query *query)
{
	List *first = NIL;
	List *last = NIL;
	ListCell *lc;

	foreach(lc, query->jointree->fromlist)
	{
		if (walk_lateral_items(lfirst(lc), query))
			last = lappend(last, lfirst(lc));
		else
			first = lappend(first, lfirst(lc));
	}
	query->jointree->fromlist = list_concat(first, last);
}

static Node *
mutate_statement(Node *node, StatementContext *context)
{
	if (node == NULL)
		return NULL;

	switch (nodeTag(node))
	{
		case T_Query:
		{
			Query *query = query_tree_mutator((Query *) node, mutate_statement, context, 0);
			ListCell *lc;

			/* shells have no children here, but their tables on the workers do */
			foreach(lc, query->rtable)
			{
				RangeTblEntry *rte = lfirst(lc);

				rte->inh = rte->inh ||
						   (rte->rtekind == RTE_RELATION && !shippable_has_tree(rte->relid));
			}
			mend_names(query);
			put_lateral_last(query);
			return (Node *) query;
		}
		case T_Param:
			if (((Param *) node)->paramkind == PARAM_EXTERN ||
				((Param *) node)->paramkind == PARAM_EXEC)
				return make_value_param(node, context);
			break;
		default:
			if (shippable_is_shipped_value(context->root, node))
				return make_value_param(node, context);
			break;
	}
	return expression_tree_mutator(node, mutate_statement, context);
}

/* What an assignment to a part of a column assigns to: its input; NULL for another expression. */
static Expr **
assignment_input(Expr *expr)
{
	if (IsA(expr, FieldStore))
		return &((FieldStore *) expr)->arg;
	if (IsA(expr, SubscriptingRef) && ((SubscriptingRef *) expr)->refassgnexpr != NULL)
		return &((SubscriptingRef *) expr)->refexpr;
	return NULL;
}

static bool
walk_assigned_parts(Node *node, void *context)
{
	if (node == NULL)
		return false;
	return assignment_input((Expr *) node) != NULL ||
		   expression_tree_walker(node, walk_assigned_parts, context);
}

bool
deparse_statement_assigns_part(Node *expr)
{
	return walk_assigned_parts(expr, NULL);
}

/* The last assignments of `part` as a list, all of them to `column`: one field each. */
static List *
split_fields(Expr *part, Expr *column)
{
	List *result = NIL;
	ListCell *lc;
	ListCell *lc2;

	if (!IsA(part, FieldStore))
	{
		part = (Expr *) copyObject(part);
		*assignment_input(part) = column;
		return list_make1(part);
	}
	forboth(lc, ((FieldStore *) part)->newvals, lc2, ((FieldStore *) part)->fieldnums)
	{
		FieldStore *store = makeNode(FieldStore);

		store->arg = column;
		store->newvals = list_make1(lfirst(lc));
		store->fieldnums = list_make1_int(lfirst_int(lc2));
		store->resulttype = ((FieldStore *) part)->resulttype;
		result = lappend(result, store);
	}
	return result;
}

/* An entry for each assignment that the rewriter has nested in this one, the innermost first. */
static List *
split_entry(TargetEntry *entry)
{
	CoerceToDomain *domain = NULL;
	Expr *expr = entry->expr;
	List *parts = NIL; /* innermost first */
	List *result = NIL;
	Expr **input;
	ListCell *lc;

	if (IsA(expr, CoerceToDomain) &&
		((CoerceToDomain *) expr)->coercionformat == COERCE_IMPLICIT_CAST)
	{
		domain = (CoerceToDomain *) expr;
		expr = domain->arg;
	}
	while ((input = assignment_input(expr)) != NULL)
	{
		parts = lcons(expr, parts);
		expr = *input;
	}
	if (parts == NIL)
		return list_make1(entry);

	foreach(lc, parts)
	{
		ListCell *lc2;

		foreach(lc2, split_fields(lfirst(lc), expr))
		{
			TargetEntry *part = flatCopyTargetEntry(entry);

			part->expr = lfirst(lc2);
			if (domain != NULL)
			{
				CoerceToDomain *copy = makeNode(CoerceToDomain);

				*copy = *domain;
				copy->arg = part->expr;
				part->expr = (Expr *) copy;
			}
			result = lappend(result, part);
		}
	}
	return result;
}

/* SET column = DEFAULT for a generated column: the rows are to be written, and nothing else. */
static TargetEntry *
assign_generated(Oid relid)
{
	Relation relation = table_open(relid, NoLock);
	TupleDesc desc = RelationGetDescr(relation);
	TargetEntry *entry = NULL;

	for (int i = 0; i < desc->natts && entry == NULL; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);
		SetToDefault *value;

		if (column->attgenerated == '\0' || column->attisdropped)
			continue;
		value = makeNode(SetToDefault);
		value->typeId = column->atttypid;
		value->typeMod = column->atttypmod;
		value->collation = column->attcollation;
		value->location = -1;
		entry = makeTargetEntry((Expr *) value, column->attnum, pstrdup(NameStr(column->attname)),
								false);
	}
	table_close(relation, NoLock);
	if (entry == NULL)
		elog(ERROR, "statement assigns nothing");
	return entry;
}

List *
deparse_statement_assignments(List *tlist, Oid relation)
{
	List *split = NIL;
	ListCell *lc;

	foreach(lc, tlist)
		split = list_concat(split, split_entry(lfirst(lc)));
	if (split == NIL)
		split = list_make1(assign_generated(relation));
	return split;
}

static void
mend_assignments(Query *query)
{
	Oid target = rt_fetch(query->resultRelation, query->rtable)->relid;
	ListCell *lc;

	if (query->commandType == CMD_UPDATE)
		query->targetList = deparse_statement_assignments(query->targetList, target);
	if (query->onConflict != NULL && query->onConflict->action == ONCONFLICT_UPDATE)
		query->onConflict->onConflictSet = deparse_statement_assignments(
			query->onConflict->onConflictSet, target);
	foreach(lc, query->mergeActionList)
	{
		MergeAction *action = lfirst(lc);

		if (action->commandType == CMD_UPDATE || action->targetList != NIL)
			action->targetList = deparse_statement_assignments(action->targetList, target);
	}
}

static bool
walk_full_using(Node *node, void *context)
{
	if (node == NULL || IsA(node, Query))
		return false;
	if (IsA(node, JoinExpr) && ((JoinExpr *) node)->jointype == JOIN_FULL &&
		((JoinExpr *) node)->usingClause != NIL)
		return true;
	return expression_tree_walker(node, walk_full_using, context);
}

/* ON in the place of USING, in this FROM item and those inside it, whose entries get other numbers. */
static void
replace_using(Node *item, Query *query)
{
	JoinExpr *join = (JoinExpr *) item;
	int old;

	if (IsA(item, FromExpr))
	{
		ListCell *lc;

		foreach(lc, ((FromExpr *) item)->fromlist)
			replace_using(lfirst(lc), query);
	}
	if (!IsA(item, JoinExpr))
		return;
	replace_using(join->larg, query);
	replace_using(join->rarg, query);
	old = join->rtindex;
	join->usingClause = NIL;
	join->join_using_alias = NULL;
	join->isNatural = false;
	join->alias = NULL;
	deparse_path_join_rte(query, join);
	lfirst(list_nth_cell(query->rtable, old - 1)) = deparse_path_unused_rte();
}

/*
 * A column that FULL JOIN ... USING merges has a name of its own, and ruleutils renames all others of that
 * name: those of the target, too, which SQL cannot.  So the statement says ON.
 */
static void
spell_out_using(Query *query)
{
	ListCell *lc;

	if (!walk_full_using((Node *) query->jointree, NULL))
		return;
	query->targetList = (List *) compat_flatten_joins(query, query->targetList);
	query->returningList = (List *) compat_flatten_joins(query, query->returningList);
	query->jointree = (FromExpr *) compat_flatten_joins(query, query->jointree);
	query->mergeActionList = (List *) compat_flatten_joins(query, query->mergeActionList);
	foreach(lc, query->rtable)
	{
		RangeTblEntry *rte = lfirst(lc);

		if (rte->rtekind == RTE_SUBQUERY && rte->lateral)
			rte->subquery = (Query *) compat_flatten_joins(query, rte->subquery);
		rte->functions = (List *) compat_flatten_joins(query, rte->functions);
	}
	replace_using((Node *) query->jointree, query);
}

/* A view's condition says which rows of the target there are: no more of them are matched, where ON says so. */
static void
mend_merge(Query *query)
{
	Node **on = compat_merge_condition(query);
	FromExpr *from = query->jointree;

	if (query->commandType != CMD_MERGE || on == &from->quals || from->quals == NULL)
		return;
	*on = make_and_qual(*on, from->quals);
	from->quals = NULL;
}

typedef struct StandIn
{
	Node *node;
	Node *value;
} StandIn;

static Node *
replace_stand_in(Node *node, StandIn *context)
{
	if (node == NULL || node == context->node)
		return node == NULL ? NULL : context->value;
	return expression_tree_mutator(node, replace_stand_in, context);
}

Node *
deparse_statement_coerce(Node *value, Oid relation, AttrNumber attno)
{
	StandIn context = {.node = deparse_path_param(value, 1), .value = value};
	Oid type;
	int32 typmod;
	Oid collation;
	Node *coerced;

	get_atttypetypmodcoll(relation, attno, &type, &typmod, &collation);
	coerced = coerce_to_target_type(NULL, context.node, exprType(value), type, typmod,
									COERCION_ASSIGNMENT, COERCE_IMPLICIT_CAST, -1);
	assign_expr_collations(NULL, coerced); /* the value has its own, and may be planned already */
	return replace_stand_in(coerced, &context);
}

char *
deparse_statement_text(PlannerInfo *root, Query *query, List **params)
{
	StatementContext context = {.root = root, .params = params};

	query = (Query *) mutate_statement((Node *) query, &context);
	mend_merge(query);
	spell_out_using(query);
	mend_assignments(query);
	query->returningList = deparse_text_transport_tlist(
		deparse_returning(query->returningList, query->resultRelation));
	return deparse_text(query);
}

char *
statement_deparse_row_insert(PlannerInfo *root, Query *query, List *attributes, List **params)
{
	StatementContext context = {.root = root, .params = params, .offset = list_length(attributes)};
	RangeTblEntry *target = rt_fetch(query->resultRelation, query->rtable);
	List *columns = NIL;
	int position = 0;
	ListCell *lc;

	/* the rows come as values: no SELECT, no VALUES */
	query->targetList = NIL;
	query->cteList = NIL;
	query->jointree = makeFromExpr(NIL, NULL);
	query->override = OVERRIDING_NOT_SET;
	foreach(lc, query->rtable)
	{
		RangeTblEntry *rte = lfirst(lc);

		if (rte->rtekind == RTE_SUBQUERY || rte->rtekind == RTE_VALUES)
		{
			rte->rtekind = RTE_RESULT;
			rte->subquery = NULL;
			rte->values_lists = NIL;
		}
	}
	query = (Query *) mutate_statement((Node *) query, &context);
	mend_assignments(query);

	foreach(lc, attributes)
	{
		AttrNumber attno = lfirst_int(lc);
		Oid type = get_atttype(target->relid, attno);
		Node *value = deparse_path_param((Node *) makeNullConst(type, -1, get_typcollation(type)),
										 ++position);

		value = deparse_statement_coerce(value, target->relid, attno);
		columns = lappend(columns,
						  makeTargetEntry((Expr *) value, attno,
										  get_attname(target->relid, attno, false), false));
	}
	query->targetList = columns;
	query->returningList = deparse_text_transport_tlist(
		deparse_returning(query->returningList, query->resultRelation));
	return deparse_text(query);
}

Query *
deparse_statement_original(PlannerInfo *root)
{
	PlannerInfo *parent = root->parent_root;

	if (parent == NULL)
		return copyObject(planner_original_query());

	/* WITH queries are planned one after the other, from copies: the next one is this */
	if (list_length(parent->cte_plan_ids) < list_length(parent->parse->cteList))
	{
		CommonTableExpr *cte = list_nth(parent->parse->cteList, list_length(parent->cte_plan_ids));

		return copyObject((Query *) cte->ctequery);
	}
	return NULL;
}
