/*
 * deparse_returning.c
 *		RETURNING of a statement for workers.
 *
 * Of a view, old and new name expressions over its table, which are NULL where there is no such row, whatever they say
 * (a constant, for one).  The parser knows that by a node that no SQL stands for, so the text asks for the row:
 * CASE WHEN old.tableoid IS NOT NULL THEN expression END.
 */
#include "postgres.h"

#include "plan/deparse_returning.h"

#include "access/sysattr.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"

#include "compat.h"

static Node *
make_case(Node *node, Node *value, Index target)
{
	Var *row = makeVar((int) target, TableOidAttributeNumber, OIDOID, -1, InvalidOid,
					   compat_returned_level(node));
	NullTest *exists = makeNode(NullTest);
	CaseWhen *when = makeNode(CaseWhen);
	CaseExpr *result = makeNode(CaseExpr);

	compat_name_row_of(row, node);
	exists->arg = (Expr *) row;
	exists->nulltesttype = IS_NOT_NULL;
	exists->location = -1;
	when->expr = (Expr *) exists;
	when->result = (Expr *) value;
	when->location = -1;
	result->casetype = exprType(value);
	result->casecollid = exprCollation(value);
	result->args = list_make1(when);
	result->defresult = (Expr *) makeNullConst(result->casetype, -1, result->casecollid);
	result->location = -1;
	return (Node *) result;
}

static Node *
spell_out(Node *node, void *context)
{
	Node *value;

	if (node == NULL)
		return NULL;
	value = compat_returned_value(node);
	if (value != NULL)
		return make_case(node, spell_out(value, context), *(Index *) context);
	if (IsA(node, Query))
		return (Node *) query_tree_mutator((Query *) node, spell_out, context, 0);
	return expression_tree_mutator(node, spell_out, context);
}

List *
deparse_returning(List *returning, Index target)
{
	return (List *) spell_out((Node *) returning, &target);
}
