/*
 * deparse_text.c
 *		Text of a Query for the workers.
 *
 * Core's pg_get_querydef() prints it; nothing of ruleutils is copied.  search_path is pg_catalog
 * meanwhile, and only then: all other names come out qualified.
 */
#include "postgres.h"

#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_func.h"
#include "utils/guc.h"
#include "utils/ruleutils.h"

#include "plan/deparse_text.h"
#include "plan/explicit_cast.h"
#include "plan/round_trip.h"
#include "plan/row_null_test.h"
#include "values/row_format.h"

/*
 * Append the string literal at p, printed under standard_conforming_strings, so that the
 * setting does not matter: with backslashes it becomes E''. Returns what follows it.
 */
static const char *
append_string(StringInfo buf, const char *p)
{
	const char *end = p + 1;
	bool escapes = false;

	while (*end && !(end[0] == '\'' && end[1] != '\''))
	{
		escapes = escapes || *end == '\\';
		end += *end == '\'' ? 2 : 1;
	}
	if (*end)
		end++;
	if (escapes)
		appendStringInfoString(buf, " E");
	for (; p < end; p++)
	{
		if (*p == '\\')
			appendStringInfoChar(buf, '\\');
		appendStringInfoChar(buf, *p);
	}
	return end;
}

/* Text of ruleutils that reads the same in every session, on one line. */
static char *
neutralize_text(const char *sql)
{
	StringInfoData buf;
	const char *p = sql;

	initStringInfo(&buf);
	while (*p)
	{
		if (*p == '\'')
			p = append_string(&buf, p);
		else if (*p == '"')
		{
			int length = strcspn(p + 1, "\"") + 2;

			appendBinaryStringInfo(&buf, p, length);
			p += length;
		}
		else if (isspace((unsigned char) *p))
		{
			if (buf.len > 0 && buf.data[buf.len - 1] != ' ')
				appendStringInfoChar(&buf, ' ');
			p++;
		}
		else
			appendStringInfoChar(&buf, *p++);
	}
	return buf.data;
}

char *
deparse_text(Query *query)
{
	int nest_level = row_format_enter_sql_mode();
	char *sql;

	(void) set_config_option("standard_conforming_strings", "on", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	query = explicit_cast_query(row_null_test_guard(query));
	sql = neutralize_text(pg_get_querydef(query, false));
	row_format_leave_sql_mode(nest_level);
	round_trip_check(query, sql);
	return sql;
}

/* strata.as_text(): what workers are asked for instead of a value that travels as text. */
static Expr *
make_text(Expr *value)
{
	Oid type = ANYELEMENTOID;
	Oid function = LookupFuncName(list_make2(makeString("strata"), makeString("as_text")), 1, &type,
								  false);

	return (Expr *) makeFuncExpr(function, TEXTOID, list_make1(value), DEFAULT_COLLATION_OID,
								 InvalidOid, COERCE_EXPLICIT_CALL);
}

List *
deparse_text_transport_tlist(List *tlist)
{
	ListCell *lc;

	foreach(lc, tlist)
	{
		TargetEntry *tle = lfirst(lc);

		if (!tle->resjunk && !row_format_is_binary(exprType((Node *) tle->expr)))
			tle->expr = make_text(tle->expr);
	}
	return tlist;
}

char *
deparse_text_transport(Query *query)
{
	StringInfoData buf;
	bool needs_cast = false;
	int column = 0;
	ListCell *lc;

	foreach(lc, query->targetList)
	{
		TargetEntry *tle = lfirst(lc);

		needs_cast = needs_cast ||
					 (!tle->resjunk && !row_format_is_binary(exprType((Node *) tle->expr)));
	}

	/* Sorting, grouping, windows and DISTINCT refer to the columns as they are: cast outside of them. */
	if (!needs_cast || (query->groupClause == NIL && query->distinctClause == NIL &&
						query->sortClause == NIL && query->windowClause == NIL))
	{
		query->targetList = deparse_text_transport_tlist(query->targetList);
		return deparse_text(query);
	}

	initStringInfo(&buf);
	appendStringInfoString(&buf, "SELECT ");
	foreach(lc, query->targetList)
	{
		TargetEntry *tle = lfirst(lc);

		if (tle->resjunk)
			continue;
		appendStringInfo(
			&buf,
			row_format_is_binary(exprType((Node *) tle->expr)) ? "%sc%d" : "%sstrata.as_text(c%d)",
			column == 0 ? "" : ", ", column + 1);
		column++;
	}
	appendStringInfo(&buf, " FROM (%s) q", deparse_text(query));
	return buf.data;
}
