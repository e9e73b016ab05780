/*
 * query_form.c
 *		The normal form of a Query, in builds with assertions.
 *
 * A tree of lists of which equal() tells whether it is the same; equal() looks at types, modifiers,
 * collations and functions, not at places in the text or at how a cast is displayed.  The form
 *
 *	- numbers relations in the order of FROM, without entries for joins, whose columns are
 *	  replaced by what they stand for;
 *	- folds constants, as the planner has done on one side only;
 *	- replaces references between clauses (ORDER BY, GROUP BY, WINDOW) by the expressions;
 *	- leaves out what the analysis and the planner keep for themselves.
 */
#include "postgres.h"

#ifdef USE_ASSERT_CHECKING

#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "parser/parse_agg.h"
#include "parser/parse_coerce.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "plan/query_form.h"

/* One level of a query while its normal form is made. */
typedef struct FormLevel
{
	struct FormLevel *outer;
	Query *query;
	int *numbers; /* by range-table index: place in the normal form, 0 for none yet */
	List *relations;
	List *windows; /* normal forms of those that functions use */
} FormLevel;

static Node *form_expr(Node *node, FormLevel *level);
static Node *form_query(Query *query, FormLevel *outer);

/* ---------------------------------------------------------------- expressions */

/* Folded as by the planner, then in the normal form. */
static Node *
fold(Node *node, FormLevel *level)
{
	if (node == NULL)
		return NULL;
	return form_expr(eval_const_expressions(NULL, copyObject(node)), level);
}

static Node *
form_var(const Var *var, FormLevel *level)
{
	FormLevel *owner = level;
	RangeTblEntry *rte;
	Var *result = copyObject(unconstify(Var *, var));

	for (Index i = 0; i < var->varlevelsup; i++)
	{
		owner = owner->outer;
		if (owner == NULL)
			elog(ERROR, "column of no level of the query");
	}
	rte = rt_fetch(var->varno, owner->query->rtable);
	if (rte->rtekind == RTE_JOIN && var->varattno > 0)
	{
		Node *column = copyObject(list_nth(rte->joinaliasvars, var->varattno - 1));

		IncrementVarSublevelsUp(column, var->varlevelsup, 0);
		return fold(column, level);
	}
	result->varno = owner->numbers[var->varno];
	result->vartypmod = -1;
	compat_forget_nulling(result);
	return (Node *) result;
}

/* SortGroupClauses as lists of (expression, operator, nulls first), each expression once. */
static List *
form_sort_clauses(List *clauses, List *tlist, bool ordered, FormLevel *level)
{
	List *result = NIL;
	List *seen = NIL;
	ListCell *lc;

	foreach(lc, clauses)
	{
		SortGroupClause *clause = lfirst(lc);
		Node *expr = fold(get_sortgroupclause_expr(clause, tlist), level);
		List *item;

		if (list_member(seen, expr))
			continue;
		seen = lappend(seen, expr);
		item = list_make1(expr);
		if (ordered)
			item = list_concat(
				item, list_make2(makeInteger(clause->sortop), makeInteger(clause->nulls_first)));
		else
			item = lappend(item, makeInteger(clause->eqop));
		result = lappend(result, item);
	}
	return result;
}

/* The place of a window in level->windows. */
static int
form_window(Index winref, FormLevel *level)
{
	List *tlist = level->query->targetList;
	ListCell *lc;

	foreach(lc, level->query->windowClause)
	{
		WindowClause *window = lfirst(lc);
		List *form;
		int place = 0;
		ListCell *lc2;

		if (window->winref != winref)
			continue;
		form = list_make5(form_sort_clauses(window->partitionClause, tlist, false, level),
						  form_sort_clauses(window->orderClause, tlist, true, level),
						  makeInteger(window->frameOptions), fold(window->startOffset, level),
						  fold(window->endOffset, level));
		foreach(lc2, level->windows)
		{
			place++;
			if (equal(lfirst(lc2), form))
				return place;
		}
		level->windows = lappend(level->windows, form);
		return place + 1;
	}
	elog(ERROR, "window function without a window");
}

static Node *
form_aggref(Aggref *aggref, FormLevel *level)
{
	Aggref *result = copyObject(aggref);
	List *args = NIL;
	ListCell *lc;

	result->aggorder = form_sort_clauses(aggref->aggorder, aggref->args, true, level);
	result->aggdistinct = form_sort_clauses(aggref->aggdistinct, aggref->args, false, level);
	foreach(lc, aggref->args)
	{
		TargetEntry *tle = lfirst(lc);

		if (!tle->resjunk)
			args = lappend(args, form_expr((Node *) tle->expr, level));
	}
	result->args = args;
	result->aggdirectargs = (List *) form_expr((Node *) aggref->aggdirectargs, level);
	result->aggfilter = (Expr *) form_expr((Node *) aggref->aggfilter, level);
	result->aggsplit = AGGSPLIT_SIMPLE;
	result->aggtranstype = InvalidOid;
	result->aggno = result->aggtransno = 0;
	return (Node *) result;
}

/*
 * Is this the cast to a modifier of what has been cast to it already?  A domain's cast brings its own, where one
 * that is called by name is not known for it.
 */
static bool
is_repeated(FuncExpr *function)
{
	FuncExpr *inner = function->args != NIL ? linitial(function->args) : NULL;
	Oid cast;

	return inner != NULL && IsA(inner, FuncExpr) && inner->funcid == function->funcid &&
		   list_length(function->args) > 1 &&
		   equal(lsecond(function->args), lsecond(inner->args)) &&
		   find_typmod_coercion_function(function->funcresulttype, &cast) == COERCION_PATH_FUNC &&
		   cast == function->funcid;
}

/* A function that declares the types of its arguments does not see by which name they come. */
static Node *
form_function(FuncExpr *function, FormLevel *level)
{
	FuncExpr *result = (FuncExpr *) expression_tree_mutator((Node *) function, form_expr, level);
	Oid *types;
	int count;
	ListCell *lc;

	(void) get_func_signature(function->funcid, &types, &count);
	foreach(lc, result->args)
	{
		RelabelType *relabel = lfirst(lc);
		int i = foreach_current_index(lc);
		RelabelType *given = list_nth(function->args,
									  i); /* whose argument is an expression still */

		if (IsA(relabel, RelabelType) && IsA(given, RelabelType) && i < count &&
			!IsPolymorphicType(types[i]) && types[i] != ANYOID &&
			exprCollation((Node *) given->arg) == given->resultcollid)
			lfirst(lc) = relabel->arg;
	}
	return is_repeated(result) ? linitial(result->args) : (Node *) result;
}

/* What casts an element, with the element in its place. */
static Node *
put_element(Node *node, Node *element)
{
	if (node == NULL)
		return NULL;
	return IsA(node, CaseTestExpr) ? (Node *) copyObject(element)
								   : expression_tree_mutator(node, put_element, element);
}

/* ARRAY[...]::type[], for which the parser casts each element. */
static Node *
form_array_cast(ArrayCoerceExpr *cast, FormLevel *level)
{
	ArrayExpr *array = (ArrayExpr *) cast->arg;
	List *elements = NIL;
	ListCell *lc;

	if (!IsA(array, ArrayExpr) || array->multidims)
		return expression_tree_mutator((Node *) cast, form_expr, level);
	foreach(lc, array->elements)
		elements = lappend(elements, put_element((Node *) cast->elemexpr, lfirst(lc)));
	array = copyObject(array);
	array->array_typeid = cast->resulttype;
	array->array_collid = cast->resultcollid;
	array->element_typeid = get_element_type(cast->resulttype);
	array->elements = (List *) form_expr((Node *) elements, level);
	return (Node *) array;
}

static Node *
form_expr(Node *node, FormLevel *level)
{
	if (node == NULL)
		return NULL;
	switch (nodeTag(node))
	{
		case T_Var:
			return form_var((Var *) node, level);
		case T_Query:
			return form_query((Query *) node, level);
		case T_Aggref:
			return form_aggref((Aggref *) node, level);
		case T_FuncExpr:
			return form_function((FuncExpr *) node, level);
		case T_ArrayCoerceExpr:
			return form_array_cast((ArrayCoerceExpr *) node, level);
		case T_WindowFunc:
		{
			WindowFunc *function = (WindowFunc *) expression_tree_mutator(node, form_expr, level);

			function->winref = form_window(((WindowFunc *) node)->winref, level);
			return (Node *) function;
		}
		case T_SubLink:
		{
			SubLink *link = (SubLink *) expression_tree_mutator(node, form_expr, level);

			link->subLinkId = 0;
			link->operName = NIL;
			link->testexpr = fold(((SubLink *) node)->testexpr, level);
			return (Node *) link;
		}
		case T_RelabelType:
		{
			RelabelType *relabel = (RelabelType *) expression_tree_mutator(node, form_expr, level);
			Node *given =
				(Node *) ((RelabelType *) node)->arg; /* whose form may be no expression */

			/* only the modifier is another, and nothing reads it */
			relabel->resulttypmod = -1;
			if (exprType(given) == relabel->resulttype &&
				exprCollation(given) == relabel->resultcollid)
				return (Node *) relabel->arg;
			return (Node *) relabel;
		}
		case T_RowExpr:
		{
			RowExpr *row = (RowExpr *) expression_tree_mutator(node, form_expr, level);

			/* a named type has the names of its columns */
			if (row->row_typeid != RECORDOID)
				row->colnames = NIL;
			return (Node *) row;
		}
		case T_Const:
		{
			Const *value = (Const *) copyObject(node);

			value->consttypmod = -1;
			return (Node *) value;
		}
		default:
			node = expression_tree_mutator(node, form_expr, level);
			compat_forget_json_clauses(node);
			return node;
	}
}

/* ---------------------------------------------------------------- FROM */

/* VALUES in FROM are a sub-select of their own for the parser, not for the planner. */
static RangeTblEntry *
find_values(Query *query)
{
	RangeTblEntry *values;
	ListCell *lc;

	if (query->commandType != CMD_SELECT || list_length(query->rtable) != 1 ||
		query->sortClause != NIL || query->limitCount != NULL || query->limitOffset != NULL)
		return NULL;
	values = linitial(query->rtable);
	if (values->rtekind != RTE_VALUES)
		return NULL;
	foreach(lc, query->targetList)
	{
		Var *var = (Var *) ((TargetEntry *) lfirst(lc))->expr;

		if (!IsA(var, Var) || var->varattno != foreach_current_index(lc) + 1)
			return NULL;
	}
	return values;
}

static List *
form_lists(List *lists, FormLevel *level)
{
	List *result = NIL;
	ListCell *lc;

	foreach(lc, lists)
		result = lappend(result, fold(lfirst(lc), level));
	return result;
}

/* The target of INSERT, or `excluded`: to these it does not matter whether the table has children. */
static bool
is_inserted(const RangeTblEntry *rte, Query *query)
{
	return query->commandType == CMD_INSERT &&
		   (rte->relkind == RELKIND_COMPOSITE_TYPE ||
			rte == rt_fetch(query->resultRelation, query->rtable));
}

/* The columns of a set operation have the names that its own target list says, those of an INSERT the table's. */
static void
forget_names(Query *leaf)
{
	ListCell *lc;

	foreach(lc, leaf->targetList)
		((TargetEntry *) lfirst(lc))->resname = "";
}

/* A relation as a list: its kind, then what decides about its rows. */
static List *
form_relation(RangeTblEntry *rte, FormLevel *level)
{
	List *form = list_make1(makeInteger(rte->rtekind));
	RangeTblEntry *values = rte->rtekind == RTE_SUBQUERY ? find_values(rte->subquery) : NULL;
	ListCell *lc;

	if (values != NULL)
		return list_make2(makeInteger(RTE_VALUES), form_lists(values->values_lists, level));
	switch (rte->rtekind)
	{
		case RTE_RELATION:
			form = lappend(form, makeInteger(rte->relid));
			form = lappend(form, makeInteger(rte->inh || is_inserted(rte, level->query)));
			if (rte->tablesample == NULL)
				return form;
			form = lappend(form, makeInteger(rte->tablesample->tsmhandler));
			form = lappend(form, form_lists(rte->tablesample->args, level));
			return lappend(form, fold((Node *) rte->tablesample->repeatable, level));
		case RTE_SUBQUERY:
			if (level->query->setOperations == NULL && level->query->commandType != CMD_INSERT)
				form = lappend(form, rte->eref->colnames);
			else
				forget_names(rte->subquery);
			return lappend(form, form_query(rte->subquery, level));
		case RTE_FUNCTION:
			foreach(lc, rte->functions)
			{
				RangeTblFunction *function = lfirst(lc);

				form = lappend(form, fold(function->funcexpr, level));
				form = lappend(form, function->funccoltypes);
			}
			return lappend(form, makeInteger(rte->funcordinality));
		case RTE_VALUES:
			return lappend(form, form_lists(rte->values_lists, level));
		case RTE_CTE:
			form = lappend(form, makeString(rte->ctename));
			return lappend(form, makeInteger(rte->ctelevelsup));
		default:
			return form;
	}
}

/* Number the relations of a FROM item in the order of the text. */
static void
number_item(Node *item, FormLevel *level)
{
	ListCell *lc;

	if (item == NULL)
		return;
	if (IsA(item, RangeTblRef))
	{
		Index rti = ((RangeTblRef *) item)->rtindex;

		if (level->numbers[rti] != 0)
			return;
		level->relations = lappend(level->relations, rt_fetch(rti, level->query->rtable));
		level->numbers[rti] = list_length(level->relations);
	}
	else if (IsA(item, FromExpr))
	{
		foreach(lc, ((FromExpr *) item)->fromlist)
			number_item(lfirst(lc), level);
	}
	else if (IsA(item, SetOperationStmt))
	{
		number_item(((SetOperationStmt *) item)->larg, level);
		number_item(((SetOperationStmt *) item)->rarg, level);
	}
	else
	{
		number_item(((JoinExpr *) item)->larg, level);
		number_item(((JoinExpr *) item)->rarg, level);
	}
}

/* Number a relation that is not (only) named in FROM: the target, and `excluded`. */
static void
number_relation(Index rti, FormLevel *level)
{
	RangeTblRef ref = {.type = T_RangeTblRef, .rtindex = rti};

	if (rti != 0)
		number_item((Node *) &ref, level);
}

static Node *
form_item(Node *item, Index target, FormLevel *level)
{
	List *form = NIL;
	JoinExpr *join = (JoinExpr *) item;
	Node *quals;
	ListCell *lc;

	if (item == NULL)
		return NULL;
	if (IsA(item, RangeTblRef))
		return (Node *) makeInteger(level->numbers[((RangeTblRef *) item)->rtindex]);
	if (IsA(item, FromExpr))
	{
		foreach(lc, ((FromExpr *) item)->fromlist)
		{
			/* the target of UPDATE and DELETE is no item of the text's FROM */
			if (IsA(lfirst(lc), RangeTblRef) && ((RangeTblRef *) lfirst(lc))->rtindex == target)
				continue;
			form = lappend(form, form_item(lfirst(lc), target, level));
		}
		return (Node *) form;
	}
	quals = join->quals;
	if (quals != NULL && IsA(quals, List))
		quals = (Node *) make_ands_explicit((List *) quals);
	quals = fold(quals, level);
	/* the planner's inner joins without a condition are printed as ON true */
	if (quals == NULL)
		quals = makeBoolConst(true, false);
	return (Node *) list_make4(makeInteger(join->jointype), form_item(join->larg, target, level),
							   form_item(join->rarg, target, level), quals);
}

/* ---------------------------------------------------------------- queries */

static int
compare_columns(const ListCell *a, const ListCell *b)
{
	return ((TargetEntry *) lfirst(a))->resno - ((TargetEntry *) lfirst(b))->resno;
}

/* Visible entries: (number, name, expression); of a SELECT the names count, of others the numbers. */
static List *
form_target(List *tlist, bool named, FormLevel *level)
{
	List *sorted = list_copy(tlist);
	List *result = NIL;
	ListCell *lc;

	list_sort(sorted, compare_columns);
	foreach(lc, sorted)
	{
		TargetEntry *tle = lfirst(lc);

		if (tle->resjunk && !IsA(tle->expr, SubLink))
			continue;
		result = lappend(result, list_make3(makeInteger(tle->resjunk ? 0 : tle->resno),
											makeString(named ? tle->resname : ""),
											fold((Node *) tle->expr, level)));
	}
	return result;
}

/* A node as text, without what equal() does not look at: where it stood, and what a column was called. */
static char *
text_of(const void *node)
{
	static const char *const fields[] = {" :location ", " :varnosyn ", " :varattnosyn "};
	char *text = nodeToString(node);

	for (int i = 0; i < lengthof(fields); i++)
	{
		char *field = text;

		while ((field = strstr(field, fields[i])) != NULL)
		{
			char *rest = field + strlen(fields[i]);

			rest += strcspn(rest, " }");
			memmove(field, rest, strlen(rest) + 1);
		}
	}
	return text;
}

static int
compare_texts(const ListCell *a, const ListCell *b)
{
	return strcmp(text_of(lfirst(a)), text_of(lfirst(b)));
}

/* A tree of operations; leaves are the relations' numbers. */
static Node *
form_set_operation(Node *node, FormLevel *level)
{
	SetOperationStmt *operation = (SetOperationStmt *) node;

	if (node == NULL)
		return NULL;
	if (IsA(node, RangeTblRef))
		return (Node *) makeInteger(level->numbers[((RangeTblRef *) node)->rtindex]);
	return (Node *) list_concat(list_make4(makeInteger(operation->op), makeInteger(operation->all),
										   form_set_operation(operation->larg, level),
										   form_set_operation(operation->rarg, level)),
								list_make2(operation->colTypes, operation->colCollations));
}

/* Grouping sets as lists of expressions, whose order does not count. */
static List *
form_grouping_sets(Query *query, FormLevel *level)
{
	List *result = NIL;
	ListCell *lc;
	ListCell *lc2;

	foreach(lc, expand_grouping_sets(query->groupingSets, query->groupDistinct, -1))
	{
		List *set = NIL;

		foreach(lc2, (List *) lfirst(lc))
			set = lappend(
				set, fold((Node *) get_sortgroupref_tle(lfirst_int(lc2), query->targetList)->expr,
						  level));
		list_sort(set, compare_texts);
		result = lappend(result, set);
	}
	return result;
}

static List *
form_groups(Query *query, FormLevel *level)
{
	List *clauses = form_sort_clauses(query->groupClause, query->targetList, false, level);

	/* a text names each column where the first set does that has it */
	if (query->groupingSets != NIL)
		list_sort(clauses, compare_texts);
	return clauses;
}

static List *
form_exprs(List *tlist, FormLevel *level)
{
	List *result = NIL;
	ListCell *lc;

	foreach(lc, tlist)
		result = lappend(result, fold((Node *) ((TargetEntry *) lfirst(lc))->expr, level));
	return result;
}

static List *
form_conflict(OnConflictExpr *conflict, FormLevel *level)
{
	if (conflict == NULL)
		return NIL;
	return list_make5(makeInteger(conflict->action), form_lists(conflict->arbiterElems, level),
					  fold(conflict->arbiterWhere, level),
					  form_target(conflict->onConflictSet, false, level),
					  fold(conflict->onConflictWhere, level));
}

static List *
form_merge(List *actions, FormLevel *level)
{
	List *result = NIL;
	ListCell *lc;

	foreach(lc, actions)
	{
		MergeAction *action = lfirst(lc);

		result = lappend(result, list_make4(makeInteger(action->commandType),
											makeInteger(compat_merges_unmatched_source(action)),
											fold(action->qual, level),
											form_target(action->targetList, false, level)));
	}
	return result;
}

static List *
form_locks(Query *query, FormLevel *level)
{
	List *result = NIL;
	ListCell *lc;

	foreach(lc, query->rowMarks)
	{
		RowMarkClause *mark = lfirst(lc);

		if (!mark->pushedDown)
			result = lappend(result, list_make3(makeInteger(level->numbers[mark->rti]),
												makeInteger(mark->strength),
												makeInteger(mark->waitPolicy)));
	}
	return result;
}

static List *
form_ctes(List *ctes, FormLevel *level)
{
	List *result = NIL;
	ListCell *lc;

	foreach(lc, ctes)
	{
		CommonTableExpr *cte = lfirst(lc);

		result = lappend(result, list_make2(makeString(cte->ctename),
											form_query((Query *) cte->ctequery, level)));
	}
	return result;
}

/* The parts of a query, each with its name, for the message. */
static Node *
form_query(Query *given, FormLevel *outer)
{
	Query *query = compat_has_group_relation(given) ? copyObject(given) : given;
	FormLevel level = {.outer = outer, .query = query};
	bool select = query->commandType == CMD_SELECT;
	Node *where = query->jointree ? query->jointree->quals : NULL;
	List *relations = NIL;
	List *form = NIL;
	ListCell *lc;

	compat_flatten_groups(query);
	level.numbers = palloc0(sizeof(int) * (list_length(query->rtable) + 1));
	number_relation(query->resultRelation, &level);
	if (query->onConflict != NULL)
		number_relation(query->onConflict->exclRelIndex, &level);
	number_item((Node *) query->jointree, &level);
	number_item(query->setOperations, &level);

#define ADD_PART(name, part) form = lappend(form, list_make2(makeString(name), (part)))
	ADD_PART("command", makeInteger(query->commandType));
	ADD_PART("WITH", form_ctes(query->cteList, &level));
	foreach(lc, level.relations)
		relations = lappend(relations, form_relation(lfirst(lc), &level));
	ADD_PART("relations", relations);
	ADD_PART("set operations", form_set_operation(query->setOperations, &level));
	ADD_PART("FROM",
			 form_item((Node *) query->jointree, select ? 0 : query->resultRelation, &level));
	ADD_PART("WHERE", fold(where, &level));
	ADD_PART("target list", form_target(query->targetList, select, &level));
	ADD_PART("GROUP BY", form_groups(query, &level));
	ADD_PART("GROUPING SETS", form_grouping_sets(query, &level));
	ADD_PART("HAVING", fold(query->havingQual, &level));
	if (query->hasDistinctOn)
		ADD_PART("DISTINCT ON",
				 form_sort_clauses(query->distinctClause, query->targetList, false, &level));
	else
		ADD_PART("DISTINCT", makeInteger(query->distinctClause != NIL));
	ADD_PART("ORDER BY", form_sort_clauses(query->sortClause, query->targetList, true, &level));
	ADD_PART("LIMIT", list_make3(fold(query->limitCount, &level), fold(query->limitOffset, &level),
								 makeInteger(query->limitCount ? query->limitOption : 0)));
	ADD_PART("FOR UPDATE", form_locks(query, &level));
	ADD_PART("ON CONFLICT", form_conflict(query->onConflict, &level));
	ADD_PART("MERGE", form_merge(query->mergeActionList, &level));
	ADD_PART("RETURNING", form_exprs(query->returningList, &level));
	ADD_PART("windows", level.windows);
#undef ADD_PART
	return (Node *) form;
}

Node *
query_form(const Query *query)
{
	return form_query(copyObject(unconstify(Query *, query)), NULL);
}

#endif
