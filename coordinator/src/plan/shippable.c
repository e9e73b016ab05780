/*
 * shippable.c
 *		Which expressions mean the same when a worker evaluates them.
 *
 * The rule is "never wrong, if in doubt stay here": what is not shippable is
 * evaluated on the coordinator over gathered rows.
 *
 *	- Functions, operators and aggregates are shipped as shippable_object.c says.
 *	- Volatile functions stay above the gather.
 *	- Stable expressions without columns (now(), current_user, a setting) are
 *	  evaluated once on the coordinator and shipped as values (deparse_path.c).
 *	- Temporary types, functions and collations, those of local tables' rows and of local
 *	  extensions are the coordinator's alone (only_here.c).
 *	- Values of object identifier types (regclass and its like), and what is made of them, are
 *	  passed along by their names; what looks at them, or sorts by them, stays here.
 *	- PlaceHolderVars mark values that an outer join nulls although their
 *	  expression is not strict; evaluating them elsewhere would lose that.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/planner.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "plan/explicit_cast.h"
#include "plan/only_here.h"
#include "plan/partial_aggregate.h"
#include "plan/shippable.h"
#include "plan/shippable_object.h"
#include "values/row_format.h"

typedef struct ShippableContext
{
	PlannerInfo *root;
	const Locus *locus;
	Relids *outer_params;
	Relids subplan_params; /* PARAM_EXEC ids that belong to a SubPlan's test expression */
	bool of_new_row;	   /* it is evaluated once for each row that is written */
} ShippableContext;

static bool walk_unshippable(Node *node, ShippableContext *context);

bool
shippable_type(Oid type)
{
	return type != RECORDOID && type != RECORDARRAYOID && type != UNKNOWNOID && type != VOIDOID &&
		   get_typtype(type) != TYPTYPE_PSEUDO && !only_here_type(type);
}

bool
shippable_param_is_outer(PlannerInfo *root, Param *param)
{
	if (param->paramkind != PARAM_EXEC)
		return false;
	for (PlannerInfo *level = root; level != NULL; level = level->parent_root)
	{
		ListCell *lc;

		foreach(lc, level->init_plans)
		{
			SubPlan *init_plan = lfirst(lc);

			if (init_plan->subLinkType != CTE_SUBLINK &&
				list_member_int(init_plan->setParam, param->paramid))
				return false;
		}
	}
	return true;
}

/* Does the tree hold anything whose value changes from row to row? */
static bool
walk_not_constant(Node *node, PlannerInfo *root)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_Var:
		case T_Aggref:
		case T_WindowFunc:
		case T_GroupingFunc:
		case T_SubPlan:
		case T_AlternativeSubPlan:
		case T_SubLink:
		case T_PlaceHolderVar:
		case T_CaseTestExpr:
		case T_CoerceToDomainValue:
		case T_SetToDefault:
		case T_CurrentOfExpr:
		case T_NextValueExpr:
			return true;
		case T_Param:
			return ((Param *) node)->paramkind != PARAM_EXTERN &&
				   (((Param *) node)->paramkind != PARAM_EXEC ||
					shippable_param_is_outer(root, (Param *) node));
		case T_FuncExpr:
			if (((FuncExpr *) node)->funcretset)
				return true;
			break;
		default:
			if (compat_is_merge_action(node))
				return true;
			break;
	}
	return expression_tree_walker(node, walk_not_constant, root);
}

/* Is the node one that has a value (not a clause that only holds such nodes)? */
static bool
is_scalar_expression(Node *node)
{
	switch (nodeTag(node))
	{
		case T_FuncExpr:
		case T_OpExpr:
		case T_DistinctExpr:
		case T_NullIfExpr:
		case T_ScalarArrayOpExpr:
		case T_BoolExpr:
		case T_RelabelType:
		case T_CoerceViaIO:
		case T_ArrayCoerceExpr:
		case T_CaseExpr:
		case T_ArrayExpr:
		case T_CoalesceExpr:
		case T_MinMaxExpr:
		case T_SQLValueFunction:
		case T_NullTest:
		case T_BooleanTest:
		case T_CoerceToDomain:
			return true;
		default:
			return false;
	}
}

bool
shippable_is_runtime_constant(PlannerInfo *root, Node *expr)
{
	return (is_scalar_expression(expr) || IsA(expr, Const) || IsA(expr, Param)) &&
		   !walk_not_constant(expr, root) && !contain_volatile_functions(expr) &&
		   shippable_type(exprType(expr));
}

static bool
walk_only_here(Node *node, void *context)
{
	if (node == NULL)
		return false;
	return only_here_node(node) || expression_tree_walker(node, walk_only_here, context);
}

bool
shippable_is_shipped_value(PlannerInfo *root, Node *expr)
{
	return is_scalar_expression(expr) &&
		   (contain_mutable_functions(expr) || walk_only_here(expr, NULL)) &&
		   shippable_is_runtime_constant(root, expr);
}

/* The clause `key = $outer` of the sub-query meets the outer row's worker. */
static bool
subplan_meets_locus(PlannerInfo *root, const Locus *locus, SubPlan *subplan, const Locus *sub)
{
	ListCell *lc;
	ListCell *lc2;

	if (sub->kind == LOCUS_REPLICATED)
		return true;
	if (locus->kind != LOCUS_HASHED)
		return false;
	if (locus_same_worker(locus, sub))
		return true;
	if (locus->colocation_id != sub->colocation_id)
		return false;
	forboth(lc, subplan->parParam, lc2, subplan->args)
	{
		if (list_member_int(sub->outer_routes, lfirst_int(lc)) &&
			locus_has_key(root, locus, lfirst(lc2)))
			return true;
	}
	return false;
}

static List *
subplan_paths(PlannerInfo *root, SubPlan *subplan)
{
	PlannerInfo *subroot = list_nth(root->glob->subroots, subplan->plan_id - 1);

	if (subplan->subLinkType == CTE_SUBLINK || subplan->subLinkType == MULTIEXPR_SUBLINK ||
		subplan->subLinkType == ROWCOMPARE_SUBLINK)
		return NIL;
	return dist_paths(fetch_upper_rel(subroot, UPPERREL_FINAL, NULL));
}

DistPath *
shippable_subplan_path(PlannerInfo *root, SubPlan *subplan)
{
	ListCell *lc;

	foreach(lc, subplan_paths(root, subplan))
	{
		DistPath *path = lfirst(lc);

		if (path->locks == NIL)
			return path;
	}
	return NULL;
}

/* The path of a SubPlan's query that meets rows at `locus`; NULL when there is none. */
static DistPath *
find_meeting_path(PlannerInfo *root, const Locus *locus, SubPlan *subplan)
{
	ListCell *lc;

	foreach(lc, subplan_paths(root, subplan))
	{
		DistPath *path = lfirst(lc);

		if (path->locks == NIL && subplan_meets_locus(root, locus, subplan, &path->locus))
			return path;
	}
	return NULL;
}

/* Can ruleutils print the test of `x op ANY (SELECT ...)`: operators of the outer side and the columns? */
static bool
test_is_printable(SubPlan *subplan)
{
	List *tests;
	ListCell *lc;

	if (subplan->testexpr == NULL)
		return true;
	if (IsA(subplan->testexpr, BoolExpr))
		tests = ((BoolExpr *) subplan->testexpr)->args;
	else
		tests = list_make1(subplan->testexpr);
	foreach(lc, tests)
	{
		OpExpr *test = lfirst(lc);
		Param *column;

		if (!IsA(test, OpExpr) || list_length(test->args) != 2)
			return false;
		column = (Param *) strip_implicit_coercions(lsecond(test->args));
		if (!IsA(column, Param) || !list_member_int(subplan->paramIds, column->paramid))
			return false;
	}
	return true;
}

static bool
is_unshippable_subplan(SubPlan *subplan, ShippableContext *context)
{
	DistPath *path;
	ShippableContext test_context = *context;
	ListCell *lc;
	int id = -1;

	if (context->locus == NULL || !test_is_printable(subplan))
		return true;
	path = find_meeting_path(context->root, context->locus, subplan);
	if (path == NULL)
		return true;

	/* parameters of queries further out than this one stay parameters here */
	while ((id = bms_next_member(path->outer_params, id)) >= 0)
	{
		if (list_member_int(subplan->parParam, id))
			continue;
		if (context->outer_params == NULL)
			return true;
		*context->outer_params = bms_add_member(*context->outer_params, id);
	}

	foreach(lc, subplan->paramIds)
		test_context.subplan_params = bms_add_member(bms_copy(test_context.subplan_params),
													 lfirst_int(lc));
	return walk_unshippable(subplan->testexpr, &test_context) ||
		   walk_unshippable((Node *) subplan->args, context);
}

bool
shippable_has_tree(Oid relation)
{
	const DistributedTable *table = metadata_table(relation);

	return table != NULL && table->kind == TABLE_REFERENCE && has_subclass(relation);
}

bool
shippable_system_column(PlannerInfo *root, Var *var)
{
	RangeTblEntry *rte = planner_rt_fetch(var->varno, root);
	const DistributedTable *table;

	/* deparse_path.c gives it the coordinator's value; but which table of a tree has the row? */
	if (var->varattno == TableOidAttributeNumber)
		return rte->rtekind != RTE_RELATION || !rte->inh || !shippable_has_tree(rte->relid);
	if (rte->rtekind != RTE_RELATION)
		return false;
	table = metadata_table(rte->relid);
	return table != NULL && table->kind == TABLE_DISTRIBUTED;
}

static bool
is_unshippable_var(Var *var, PlannerInfo *root)
{
	if (var->varlevelsup != 0 || IS_SPECIAL_VARNO(var->varno))
		return true;
	if (var->varattno < 0)
		return !shippable_system_column(root, var) ||
			   (var->varattno != SelfItemPointerAttributeNumber &&
				var->varattno != TableOidAttributeNumber);
	if (var->varattno == 0)
		return var->vartype == RECORDOID ||
			   planner_rt_fetch(var->varno, root)->rtekind != RTE_RELATION;
	return false;
}

/* Are these the names that the columns of ROW(...) have? */
static bool
are_row_names(List *names)
{
	ListCell *lc;

	foreach(lc, names)
	{
		char name[NAMEDATALEN];

		snprintf(name, sizeof(name), "f%d", foreach_current_index(lc) + 1);
		if (strcmp(strVal(lfirst(lc)), name) != 0)
			return false;
	}
	return true;
}

bool
shippable_row_type(Oid type)
{
	Oid relation = get_typ_typrelid(getBaseType(type));
	char kind;

	if (!OidIsValid(relation)) /* a record */
		return true;
	kind = get_rel_relkind(relation);
	return kind == RELKIND_COMPOSITE_TYPE ||
		   ((kind == RELKIND_RELATION || kind == RELKIND_PARTITIONED_TABLE) &&
			metadata_table(relation) != NULL);
}

/*
 * Rows that SQL cannot say: ROW(...) gives its columns names of its own, which to_json() and its
 * like show; and a whole row of a view or sub-select, whose columns have others, is one, when the
 * planner has put the columns in the view's place.
 */
static bool
is_unshippable_row(Node *node)
{
	RowExpr *row = IsA(node, RowExpr) ? (RowExpr *) node : explicit_cast_row((Const *) node);

	if (row == NULL) /* a constant NULL */
		return false;
	return row->row_typeid == RECORDOID ? !are_row_names(row->colnames)
										: !shippable_row_type(row->row_typeid);
}

/* ---------------------------------------------------------------- names of objects */

/* Is an expression's value an object's OID, or made of some?  Callback of expression_tree_walker(), for arguments. */
static bool
names_objects(Node *node, void *context)
{
	Oid type;

	if (node == NULL || IsA(node, SortGroupClause) || compat_is_run_condition(node))
		return false;
	if (IsA(node, List) || IsA(node, TargetEntry))
		return expression_tree_walker(node, names_objects, context);
	type = exprType(node);
	if (type != RECORDOID && type != RECORDARRAYOID)
		return OidIsValid(row_format_find_object_identifier(type));
	if (IsA(node, Const))
		return type == RECORDOID &&
			   names_objects((Node *) explicit_cast_row((Const *) node), context);
	return expression_tree_walker(node, names_objects, context);
}

/* A function that is given a configuration or a dictionary uses it: that is the same one on the workers. */
static bool
searches_text(const FuncExpr *call)
{
	Oid *types;
	int count;

	(void) get_func_signature(call->funcid, &types, &count);
	return count > 1 && (types[0] == REGCONFIGOID || types[0] == REGDICTIONARYOID);
}

bool
shippable_looks_at_names(Node *node)
{
	switch (nodeTag(node))
	{
		case T_RelabelType:
			return names_objects((Node *) ((RelabelType *) node)->arg, NULL) !=
				   names_objects(node, NULL);
		case T_FuncExpr:
			if (searches_text((FuncExpr *) node))
				return names_objects(node, NULL);
			break;
		case T_Aggref:
		case T_WindowFunc:
		case T_OpExpr:
		case T_DistinctExpr:
		case T_NullIfExpr:
		case T_ScalarArrayOpExpr:
		case T_MinMaxExpr:
		case T_RowCompareExpr:
		case T_CoerceViaIO:
		case T_ArrayCoerceExpr:
		case T_CoerceToDomain:
		case T_XmlExpr:
			break;
		default:
			if (!compat_is_json_function(node))
				return false;
	}
	return names_objects(node, NULL) || expression_tree_walker(node, names_objects, NULL);
}

bool
shippable_order(List *clauses, List *tlist)
{
	ListCell *lc;

	foreach(lc, clauses)
	{
		if (names_objects(get_sortgroupclause_expr(lfirst(lc), tlist), NULL))
			return false;
	}
	return true;
}

/* The arguments by whose collations the parser chose that of an operator or function. */
static List *
find_arguments(Node *node)
{
	switch (nodeTag(node))
	{
		case T_OpExpr:
		case T_DistinctExpr:
		case T_NullIfExpr:
			return ((OpExpr *) node)->args;
		case T_ScalarArrayOpExpr:
			return ((ScalarArrayOpExpr *) node)->args;
		case T_FuncExpr:
			return ((FuncExpr *) node)->args;
		default:
			return NIL;
	}
}

/*
 * Does the node use another collation than parsing would choose?  The planner has put an expression in the place of a
 * column of a UNION ALL, which has a collation of its own.
 */
static bool
uses_other_collation(Node *node)
{
	Oid collation = exprInputCollation(node);
	bool found = false;
	bool conflict = false;
	ListCell *lc;

	if (!OidIsValid(collation))
		return false;
	foreach(lc, find_arguments(node))
	{
		Node *arg = lfirst(lc);
		Oid other = exprCollation(arg);

		if (IsA(arg, RelabelType) && other == collation &&
			exprCollation((Node *) ((RelabelType *) arg)->arg) != collation)
			return false; /* printed as COLLATE */
		found = found || other == collation;
		conflict = conflict ||
				   (OidIsValid(other) && other != collation && other != DEFAULT_COLLATION_OID);
	}
	return find_arguments(node) != NIL && (!found || conflict);
}

/* Callback of check_functions_in_node(). */
static bool
is_unshippable_function(Oid function, void *context)
{
	return !shippable_function(function);
}

/* Does the tree hold anything that must not be evaluated by a worker? */
static bool
walk_unshippable(Node *node, ShippableContext *context)
{
	if (node == NULL || compat_is_run_condition(node))
		return false;
	if (only_here_node(node))
		return !shippable_is_shipped_value(context->root, node);
	if (compat_is_json_array_of_query(node))
		return true;

	switch (nodeTag(node))
	{
		case T_Var:
			return is_unshippable_var((Var *) node, context->root);
		case T_Const:
			/* arrays of records have no literals either */
			return (((Const *) node)->consttype == RECORDOID && is_unshippable_row(node)) ||
				   (((Const *) node)->consttype == RECORDARRAYOID &&
					!((Const *) node)->constisnull);
		case T_RowExpr:
			if (is_unshippable_row(node))
				return true;
			break;
		case T_Param:
		{
			Param *param = (Param *) node;

			if (param->paramkind == PARAM_EXTERN)
				return !shippable_type(param->paramtype);
			if (param->paramkind != PARAM_EXEC)
				return true;
			if (bms_is_member(param->paramid, context->subplan_params))
				return false;
			if (shippable_param_is_outer(context->root, param))
			{
				if (context->outer_params == NULL)
					return true;
				*context->outer_params = bms_add_member(*context->outer_params, param->paramid);
				return false;
			}
			return !shippable_type(param->paramtype);
		}
		case T_PlaceHolderVar:
		case T_NextValueExpr:
		case T_CurrentOfExpr:
		case T_SetToDefault:
		case T_ConvertRowtypeExpr:
		case T_SubLink:
			return true;
		case T_AlternativeSubPlan:
			return walk_unshippable(linitial(((AlternativeSubPlan *) node)->subplans), context);
		case T_SubPlan:
			return is_unshippable_subplan((SubPlan *) node, context);
		case T_Aggref:
			/* a partial form tells that DDL propagation has brought the aggregate to the workers */
			if (!shippable_object(ProcedureRelationId, ((Aggref *) node)->aggfnoid) &&
				(only_here_object(ProcedureRelationId, ((Aggref *) node)->aggfnoid) ||
				 !OidIsValid(partial_aggregate_lookup(((Aggref *) node)->aggfnoid))))
				return true;
			break;
		case T_WindowFunc:
			if (!shippable_object(ProcedureRelationId, ((WindowFunc *) node)->winfnoid))
				return true;
			break;
		case T_FuncExpr:
			if (((FuncExpr *) node)->funcretset)
				return true;
			if (context->of_new_row && shippable_stateless_function(((FuncExpr *) node)->funcid))
				return walk_unshippable((Node *) ((FuncExpr *) node)->args, context);
			break;
		case T_OpExpr:
		case T_DistinctExpr:
		case T_NullIfExpr:
			if (!shippable_object(OperatorRelationId, ((OpExpr *) node)->opno))
				return true;
			break;
		case T_ScalarArrayOpExpr:
			if (!shippable_object(OperatorRelationId, ((ScalarArrayOpExpr *) node)->opno))
				return true;
			break;
		default:
			break;
	}

	/* One value for the whole execution: evaluated here, shipped as that value. */
	if (shippable_is_shipped_value(context->root, node))
		return false;
	if (!explicit_cast_is_possible(node))
		return true;

	if (shippable_looks_at_names(node) || uses_other_collation(node))
		return true;
	if (check_functions_in_node(node, is_unshippable_function, context))
		return true;
	return expression_tree_walker(node, walk_unshippable, context);
}

bool
shippable_expr(PlannerInfo *root, const Locus *locus, Node *expr, Relids *outer_params)
{
	ShippableContext context = {.root = root, .locus = locus, .outer_params = outer_params};

	return !walk_unshippable(expr, &context);
}

bool
shippable_new_value(PlannerInfo *root, const Locus *locus, Node *expr)
{
	ShippableContext context = {.root = root, .locus = locus, .of_new_row = true};

	return !walk_unshippable(expr, &context);
}
