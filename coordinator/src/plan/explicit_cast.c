/*
 * explicit_cast.c
 *		Casts that ruleutils would leave out and parsing would not bring back.
 *
 * An implicit cast inside of another cast is not printed: the parser makes n::whole, of a domain over
 * numeric(10,0), a cast to the domain around one to numeric(10,0), and brings the inner one back.  But
 * the planner takes off a domain without constraints, puts the bodies of SQL functions in
 * the place of their calls, and the clauses of views and policies where other types are.  Then the
 * inner cast is all that is left, and the text has lost it: x::text over a real is not what
 * x::double precision::text was.
 *
 * So each cast is printed as what it is: implicit ones become explicit; and where the parser would
 * take another function for an explicit one, or other arguments (a varchar that must not be too long
 * is cut by an explicit cast), the function is called by its name.
 *
 * Not those that the syntax around them hides: what stands for the tested value in CASE and for
 * a column of IN (SELECT ...), and the casts to a column's type in INSERT, UPDATE and MERGE, if the
 * parser brings them back there.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_coerce.h"
#include "parser/parse_collate.h"
#include "parser/parse_node.h"
#include "parser/parsetree.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "compat.h"
#include "plan/explicit_cast.h"

/* Where a cast says how it is displayed; NULL: the node is none. */
static CoercionForm *
find_form(Node *node)
{
	switch (nodeTag(node))
	{
		case T_FuncExpr:
		{
			CoercionForm *form = &((FuncExpr *) node)->funcformat;

			return *form == COERCE_EXPLICIT_CAST || *form == COERCE_IMPLICIT_CAST ? form : NULL;
		}
		case T_RelabelType:
			return &((RelabelType *) node)->relabelformat;
		case T_CoerceViaIO:
			return &((CoerceViaIO *) node)->coerceformat;
		case T_ArrayCoerceExpr:
			return &((ArrayCoerceExpr *) node)->coerceformat;
		case T_CoerceToDomain:
			return &((CoerceToDomain *) node)->coercionformat;
		default:
			return NULL;
	}
}

static Node *
cast_argument(Node *cast)
{
	switch (nodeTag(cast))
	{
		case T_FuncExpr:
			return linitial(((FuncExpr *) cast)->args);
		case T_RelabelType:
			return (Node *) ((RelabelType *) cast)->arg;
		case T_CoerceViaIO:
			return (Node *) ((CoerceViaIO *) cast)->arg;
		case T_ArrayCoerceExpr:
			return (Node *) ((ArrayCoerceExpr *) cast)->arg;
		default:
			return (Node *) castNode(CoerceToDomain, cast)->arg;
	}
}

/*
 * Are these the same casts of the same value?  Collations, which a new cast has not got yet, do not count,
 * nor that a function is given a type by another name (varchar's are given text, too).
 */
static bool
is_same_cast(Node *a, Node *b)
{
	if (equal(a, b))
		return true;
	if (a != NULL && b != NULL && IsA(a, RelabelType) && !IsA(b, RelabelType))
		return is_same_cast((Node *) ((RelabelType *) a)->arg, b);
	if (a == NULL || b == NULL || nodeTag(a) != nodeTag(b))
		return false;
	if (IsA(a, CaseTestExpr))
		return ((CaseTestExpr *) a)->typeId == ((CaseTestExpr *) b)->typeId;
	if (find_form(a) == NULL || find_form(b) == NULL || exprType(a) != exprType(b))
		return false;
	if (IsA(a, FuncExpr))
	{
		FuncExpr *left = (FuncExpr *) a;
		FuncExpr *right = (FuncExpr *) b;

		if (left->funcid != right->funcid || list_length(left->args) != list_length(right->args))
			return false;
		for (int i = 1; i < list_length(left->args); i++)
		{
			if (!equal(list_nth(left->args, i), list_nth(right->args, i)))
				return false;
		}
	}
	else if (exprTypmod(a) != exprTypmod(b))
		return false;
	if (IsA(a, ArrayCoerceExpr) && !is_same_cast((Node *) ((ArrayCoerceExpr *) a)->elemexpr,
												 (Node *) ((ArrayCoerceExpr *) b)->elemexpr))
		return false;
	return is_same_cast(cast_argument(a), cast_argument(b));
}

/* Is `cast` what the parser makes of its argument where this type is wanted? */
static bool
is_brought_back(Node *cast, Node *argument, Oid type, int32 typmod, CoercionContext context)
{
	Node *made = coerce_to_target_type(NULL, copyObject(argument), exprType(argument), type, typmod,
									   context, COERCE_EXPLICIT_CAST, -1);

	return is_same_cast(made, cast);
}

/* Is it what the parser makes of argument::type? */
static bool
is_explicit_cast(Node *cast)
{
	return is_brought_back(cast, cast_argument(cast), exprType(cast), exprTypmod(cast),
						   COERCION_EXPLICIT);
}

bool
explicit_cast_is_possible(Node *node)
{
	/* a function can be called by its name; types that differ by name only, and domains, have one cast */
	return !(IsA(node, ArrayCoerceExpr) || IsA(node, CoerceViaIO)) || is_explicit_cast(node);
}

static Node *mark_casts(Node *node, void *context);

/* Does the syntax print something else in the place of this expression? */
static bool
is_hidden(Node *node)
{
	Param *param;

	node = strip_implicit_coercions(node);
	if (node == NULL || !IsA(node, Param))
		return node != NULL && IsA(node, CaseTestExpr);
	param = (Param *) node;
	return param->paramkind == PARAM_SUBLINK || param->paramkind == PARAM_MULTIEXPR;
}

/* A copy of the cast, over another argument. */
static Node *
replace_argument(Node *cast, Node *argument)
{
	Node *copy;

	switch (nodeTag(cast))
	{
		case T_FuncExpr:
			copy = (Node *) makeNode(FuncExpr);
			*(FuncExpr *) copy = *(FuncExpr *) cast;
			((FuncExpr *) copy)->args = list_copy(((FuncExpr *) cast)->args);
			linitial(((FuncExpr *) copy)->args) = argument;
			break;
		case T_RelabelType:
			copy = (Node *) makeNode(RelabelType);
			*(RelabelType *) copy = *(RelabelType *) cast;
			((RelabelType *) copy)->arg = (Expr *) argument;
			break;
		case T_CoerceViaIO:
			copy = (Node *) makeNode(CoerceViaIO);
			*(CoerceViaIO *) copy = *(CoerceViaIO *) cast;
			((CoerceViaIO *) copy)->arg = (Expr *) argument;
			break;
		case T_ArrayCoerceExpr:
			copy = (Node *) makeNode(ArrayCoerceExpr);
			*(ArrayCoerceExpr *) copy = *(ArrayCoerceExpr *) cast;
			((ArrayCoerceExpr *) copy)->arg = (Expr *) argument;
			break;
		default:
			copy = (Node *) makeNode(CoerceToDomain);
			*(CoerceToDomain *) copy = *castNode(CoerceToDomain, cast);
			((CoerceToDomain *) copy)->arg = (Expr *) argument;
			break;
	}
	return copy;
}

RowExpr *
explicit_cast_row(const Const *record)
{
	RowExpr *row = makeNode(RowExpr);
	HeapTupleHeader header;
	HeapTupleData tuple;
	TupleDesc desc;

	if (record->constisnull)
		return NULL;
	header = DatumGetHeapTupleHeader(record->constvalue);
	desc = lookup_rowtype_tupdesc(HeapTupleHeaderGetTypeId(header),
								  HeapTupleHeaderGetTypMod(header));
	tuple.t_len = HeapTupleHeaderGetDatumLength(header);
	tuple.t_data = header;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);
		bool isnull;
		Datum value = heap_getattr(&tuple, i + 1, desc, &isnull);

		row->args = lappend(row->args, makeConst(attribute->atttypid, attribute->atttypmod,
												 attribute->attcollation, attribute->attlen, value,
												 isnull, attribute->attbyval));
		row->colnames = lappend(row->colnames, makeString(pstrdup(NameStr(attribute->attname))));
	}
	row->row_typeid = record->consttype;
	row->row_format = COERCE_EXPLICIT_CALL;
	row->location = -1;
	ReleaseTupleDesc(desc);
	return row;
}

/* ROW(...), cast to its type if it has one. */
static Node *
mark_row(RowExpr *row)
{
	RowExpr *result = makeNode(RowExpr);

	*result = *row;
	result->args = (List *) mark_casts((Node *) row->args, NULL);
	result->row_format = row->row_typeid == RECORDOID ? COERCE_EXPLICIT_CALL : COERCE_EXPLICIT_CAST;
	return (Node *) result;
}

static bool
is_record(Node *node)
{
	return IsA(node, RowExpr) && ((RowExpr *) node)->row_typeid == RECORDOID;
}

/* Two rows side by side would be compared column by column: the operator compares records. */
static Node *
mark_operator(OpExpr *operator)
{
	OpExpr *result = (OpExpr *) expression_tree_mutator((Node *) operator, mark_casts, NULL);
	RelabelType *record;

	if (list_length(result->args) != 2 || !is_record(linitial(result->args)) ||
		!is_record(lsecond(result->args)))
		return (Node *) result;
	record = makeRelabelType(lsecond(result->args), RECORDOID, -1, InvalidOid,
							 COERCE_EXPLICIT_CAST);
	lsecond(result->args) = record;
	return (Node *) result;
}

/* Is it a name that was made of text, and has kept the text's collation?  COLLATE in its place would overrule others. */
static bool
is_name_of_text(Node *node)
{
	const Const *value = (const Const *) node;

	return IsA(node, Const) && (value->consttype == NAMEOID || value->consttype == NAMEARRAYOID) &&
		   value->constcollid == DEFAULT_COLLATION_OID;
}

static Datum
names_as_text(Datum names)
{
	ArrayType *array = DatumGetArrayTypeP(names);
	Datum *values;
	bool *nulls;
	int count;

	deconstruct_array(array, NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR, &values, &nulls, &count);
	for (int i = 0; i < count; i++)
		if (!nulls[i])
			values[i] = CStringGetTextDatum(NameStr(*DatumGetName(values[i])));
	return PointerGetDatum(construct_md_array(values, nulls, ARR_NDIM(array), ARR_DIMS(array),
											  ARR_LBOUND(array), TEXTOID, -1, false, TYPALIGN_INT));
}

/* As the cast of a text, by which the parser gives it that collation again. */
static Node *
mark_name(const Const *name)
{
	bool is_array = name->consttype == NAMEARRAYOID;
	Const *text = makeNullConst(is_array ? TEXTARRAYOID : TEXTOID, -1, DEFAULT_COLLATION_OID);
	ParseState *pstate = make_parsestate(NULL);
	Node *cast;

	text->constisnull = name->constisnull;
	if (!name->constisnull)
		text->constvalue = is_array ? names_as_text(name->constvalue)
									: CStringGetTextDatum(NameStr(*DatumGetName(name->constvalue)));
	cast = coerce_to_target_type(pstate, (Node *) text, text->consttype, name->consttype, -1,
								 COERCION_EXPLICIT, COERCE_EXPLICIT_CAST, -1);
	assign_expr_collations(pstate, cast);
	free_parsestate(pstate);
	return cast;
}

static Node *
mark_casts(Node *node, void *context)
{
	CoercionForm *form;

	if (node == NULL)
		return NULL;
	if (IsA(node, OpExpr) || IsA(node, DistinctExpr) || IsA(node, NullIfExpr))
		return mark_operator((OpExpr *) node);
	if (IsA(node, Const) && ((Const *) node)->consttype == RECORDOID &&
		!((Const *) node)->constisnull)
		return mark_row(explicit_cast_row((Const *) node));
	if (is_name_of_text(node))
		return mark_name((Const *) node);
	if (IsA(node, RowExpr))
		return mark_row((RowExpr *) node);
	if (IsA(node, Query))
		return (Node *) explicit_cast_query((Query *) node);
	form = find_form(node);
	if (form == NULL)
		return expression_tree_mutator(node, mark_casts, context);
	if (is_hidden(node))
		return node;

	/* what else there is to a cast are constants, and what it does to an element */
	node = replace_argument(node, mark_casts(cast_argument(node), context));
	form = find_form(node);
	*form = COERCE_EXPLICIT_CAST;
	if (IsA(node, FuncExpr) && !is_explicit_cast(node))
		*form = COERCE_EXPLICIT_CALL;
	return node;
}

/* ---------------------------------------------------------------- assignments */

static Node *mark_assignment(Node *node, Oid type, int32 typmod);

/* The new values of a composite column's fields. */
static Node *
mark_fields(FieldStore *store)
{
	FieldStore *result = makeNode(FieldStore);
	TupleDesc desc = lookup_rowtype_tupdesc_domain(store->resulttype, -1, false);
	ListCell *lc;
	ListCell *lc2;

	*result = *store;
	result->newvals = NIL;
	forboth(lc, store->newvals, lc2, store->fieldnums)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, lfirst_int(lc2) - 1);

		result->newvals = lappend(result->newvals, mark_assignment(lfirst(lc), attribute->atttypid,
																   attribute->atttypmod));
	}
	ReleaseTupleDesc(desc);
	return (Node *) result;
}

static Node *
mark_element(SubscriptingRef *ref)
{
	SubscriptingRef *result = makeNode(SubscriptingRef);

	*result = *ref;
	result->refupperindexpr = (List *) mark_casts((Node *) ref->refupperindexpr, NULL);
	result->reflowerindexpr = (List *) mark_casts((Node *) ref->reflowerindexpr, NULL);
	result->refassgnexpr = (Expr *) mark_assignment((Node *) ref->refassgnexpr, ref->refrestype,
													ref->reftypmod);
	return (Node *) result;
}

/* The casts stay implicit; what they are applied to does not. */
static Node *
keep_implicit(Node *node)
{
	CoercionForm *form = find_form(node);

	if (form == NULL || *form != COERCE_IMPLICIT_CAST)
		return mark_casts(node, NULL);
	return replace_argument(node, keep_implicit(cast_argument(node)));
}

/* Is this the assignment to a part of a column, with the rest of it as its input? */
static bool
is_part(Node *node)
{
	return IsA(node, FieldStore) ||
		   (IsA(node, SubscriptingRef) && ((SubscriptingRef *) node)->refassgnexpr != NULL);
}

/* A new value for something of this type. */
static Node *
mark_assignment(Node *node, Oid type, int32 typmod)
{
	CoercionForm *form = find_form(node);
	Node *result;

	if (is_part(node))
		return IsA(node, FieldStore) ? mark_fields((FieldStore *) node)
									 : mark_element((SubscriptingRef *) node);
	if (form == NULL || *form != COERCE_IMPLICIT_CAST || is_hidden(node))
		return mark_casts(node, NULL);
	if (is_part(cast_argument(node)))
		return replace_argument(node, mark_assignment(cast_argument(node), type, typmod));

	/* all of the implicit casts are brought back, or the outermost one, or none */
	if (is_brought_back(node, strip_implicit_coercions(node), type, typmod, COERCION_ASSIGNMENT))
		return keep_implicit(node);
	result = replace_argument(node, mark_casts(cast_argument(node), NULL));
	if (is_brought_back(result, cast_argument(result), type, typmod, COERCION_ASSIGNMENT))
		return result;
	return mark_casts(node, NULL);
}

static List *
mark_columns(List *tlist, Oid relation)
{
	List *result = NIL;
	ListCell *lc;

	foreach(lc, tlist)
	{
		TargetEntry *tle = flatCopyTargetEntry(lfirst(lc));
		Oid type;
		int32 typmod;
		Oid collation;

		if (tle->resjunk)
			tle->expr = (Expr *) mark_casts((Node *) tle->expr, NULL);
		else
		{
			get_atttypetypmodcoll(relation, tle->resno, &type, &typmod, &collation);
			tle->expr = (Expr *) mark_assignment((Node *) tle->expr, type, typmod);
		}
		result = lappend(result, tle);
	}
	return result;
}

/* The rows of INSERT ... VALUES: each of their values is assigned to the column that names it. */
static List *
mark_values(List *lists, List *tlist, Oid relation)
{
	List *result = NIL;
	ListCell *lc;
	ListCell *lc2;

	foreach(lc, lists)
	{
		List *row = list_copy(lfirst(lc));

		foreach(lc2, tlist)
		{
			TargetEntry *tle = lfirst(lc2);
			ListCell *value;
			Oid type;
			int32 typmod;
			Oid collation;

			if (!IsA(tle->expr, Var))
				continue;
			value = list_nth_cell(row, ((Var *) tle->expr)->varattno - 1);
			get_atttypetypmodcoll(relation, tle->resno, &type, &typmod, &collation);
			lfirst(value) = mark_assignment(lfirst(value), type, typmod);
		}
		result = lappend(result, row);
	}
	return result;
}

/* What a statement assigns to the columns of its target, in the copy that has been marked. */
static void
mark_target(Query *result, Query *query)
{
	Oid relation = rt_fetch(query->resultRelation, query->rtable)->relid;
	ListCell *lc;
	ListCell *lc2;

	if (query->commandType != CMD_DELETE)
		result->targetList = mark_columns(query->targetList, relation);
	if (query->onConflict != NULL)
		result->onConflict->onConflictSet = mark_columns(query->onConflict->onConflictSet,
														 relation);
	forboth(lc, result->mergeActionList, lc2, query->mergeActionList)
		((MergeAction *) lfirst(lc))->targetList = mark_columns(
			((MergeAction *) lfirst(lc2))->targetList, relation);
	if (query->commandType != CMD_INSERT)
		return;
	forboth(lc, result->rtable, lc2, query->rtable)
	{
		RangeTblEntry *rte = lfirst(lc2);

		if (rte->rtekind == RTE_VALUES)
			((RangeTblEntry *) lfirst(lc))->values_lists = mark_values(rte->values_lists,
																	   query->targetList, relation);
	}
}

Query *
explicit_cast_query(Query *query)
{
	Query *result = query_tree_mutator(query, mark_casts, NULL, QTW_IGNORE_JOINALIASES);

	if (query->commandType != CMD_SELECT && query->resultRelation != 0)
		mark_target(result, query);
	return result;
}

Node *
explicit_cast_expression(Node *expression)
{
	return mark_casts(expression, NULL);
}
