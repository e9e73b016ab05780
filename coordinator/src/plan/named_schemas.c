/*
 * named_schemas.c
 *		Which schemas a text for workers names.
 */
#include "postgres.h"

#include "plan/named_schemas.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "nodes/parsenodes.h"
#include "parser/parser.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

static void
add_schema(List **schemas, char *name)
{
	if (name != NULL && strcmp(name, "pg_catalog") != 0)
		*schemas = list_append_unique(*schemas, makeString(name));
}

/* The schema of a qualified name. */
static void
add_schema_of(List **schemas, List *name)
{
	if (list_length(name) > 1)
		add_schema(schemas, strVal(linitial(name)));
}

static bool
collect_schemas(Node *node, List **schemas)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_RangeVar:
			add_schema(schemas, ((RangeVar *) node)->schemaname);
			break;
		case T_FuncCall:
			add_schema_of(schemas, ((FuncCall *) node)->funcname);
			break;
		case T_A_Expr:
			add_schema_of(schemas, ((A_Expr *) node)->name);
			break;
		case T_SubLink:
			add_schema_of(schemas, ((SubLink *) node)->operName);
			break;
		case T_TypeName:
			add_schema_of(schemas, ((TypeName *) node)->names);
			break;
		case T_CollateClause:
			add_schema_of(schemas, ((CollateClause *) node)->collname);
			break;
		case T_SortBy:
			add_schema_of(schemas, ((SortBy *) node)->useOp);
			break;
		default:
			break;
	}
	return raw_expression_tree_walker(node, collect_schemas, schemas);
}

List *
named_schemas_find(const char *sql, List *params)
{
	List *schemas = NIL;
	ListCell *lc;

	foreach(lc, raw_parser(sql, RAW_PARSE_DEFAULT))
		(void) collect_schemas(lfirst_node(RawStmt, lc)->stmt, &schemas);
	foreach(lc, params)
	{
		HeapTuple tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(exprType(lfirst(lc))));

		if (!HeapTupleIsValid(tuple))
			continue;
		add_schema(&schemas, get_namespace_name(((Form_pg_type) GETSTRUCT(tuple))->typnamespace));
		ReleaseSysCache(tuple);
	}
	return schemas;
}
