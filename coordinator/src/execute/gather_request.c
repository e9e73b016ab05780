/*
 * gather_request.c
 *		What a Gather asks for, and of whom: parameters become literals of the text, routes choose the workers.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "nodes/nodeFuncs.h"
#include "utils/array.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "cluster/metadata.h"
#include "cluster/shard_map.h"
#include "execute/gather.h"
#include "execute/partner_keys.h"
#include "execute/reference_read.h"
#include "values/row_format.h"

/* The parameters' current values as SQL literals. */
static char **
make_literals(GatherScanState *state)
{
	ExprContext *econtext = state->css.ss.ps.ps_ExprContext;
	char **literals = palloc(sizeof(char *) * list_length(state->params));
	int count = 0;
	ListCell *lc;

	foreach(lc, state->params)
	{
		ExprState *expr = lfirst(lc);
		StringInfoData buf;
		bool isnull;
		Datum value;

		if (count + 1 == state->plan.keys_param && state->keys != NULL &&
			state->keys->literal != NULL)
		{
			literals[count++] = pstrdup(state->keys->literal);
			continue;
		}
		value = ExecEvalExprSwitchContext(expr, econtext, &isnull);
		initStringInfo(&buf);
		row_format_append_literal(&buf, exprType((Node *) expr->expr), value, isnull);
		literals[count++] = buf.data;
	}
	return literals;
}

char *
gather_substitute(GatherScanState *state, const char *sql, int offset)
{
	char **literals = make_literals(state);
	StringInfoData buf;
	const char *p = sql;

	initStringInfo(&buf);
	while (*p)
	{
		if (*p == '\'' || *p == '"')
		{
			/* E'' strings escape by backslash; a doubled quote reads as two adjacent strings */
			char quote = *p;
			bool escapes = quote == '\'' && p > sql && (p[-1] == 'E' || p[-1] == 'e');

			appendStringInfoChar(&buf, *p++);
			while (*p && *p != quote)
			{
				if (escapes && *p == '\\' && p[1])
					appendStringInfoChar(&buf, *p++);
				appendStringInfoChar(&buf, *p++);
			}
			if (*p)
				appendStringInfoChar(&buf, *p++);
		}
		else if (*p == '$' && p[1] >= '1' && p[1] <= '9' &&
				 !(p > sql && (isalnum((unsigned char) p[-1]) || p[-1] == '_' || p[-1] == '$')))
		{
			char *end;
			long n = strtol(p + 1, &end, 10) - offset;

			if (n < 1 || n > list_length(state->params))
				elog(ERROR, "parameter $%ld of the remote query has no value", n + offset);
			appendStringInfoString(&buf, literals[n - 1]);
			p = end;
		}
		else
			appendStringInfoChar(&buf, *p++);
	}
	for (int i = 0; i < list_length(state->params); i++)
		pfree(literals[i]);
	pfree(literals);
	return buf.data;
}

char *
gather_current_sql(GatherScanState *state)
{
	char *sql = state->plan.sql;

	if (state->keys != NULL && state->keys->count < 0)
		sql = state->plan.unfiltered_sql;
	return state->params == NIL ? sql : gather_substitute(state, sql, 0);
}

/* Workers that hold one of an array's elements. */
static Bitmapset *
workers_of_array(const Colocation *colocation, Oid array_type, Datum array)
{
	ArrayType *values = DatumGetArrayTypeP(array);
	Oid type = get_element_type(array_type);
	Bitmapset *workers = NULL;
	int16 typlen;
	bool typbyval;
	char typalign;
	Datum *elements;
	bool *nulls;
	int count;

	get_typlenbyvalalign(type, &typlen, &typbyval, &typalign);
	deconstruct_array(values, type, typlen, typbyval, typalign, &elements, &nulls, &count);
	for (int i = 0; i < count; i++)
	{
		if (!nulls[i])
			workers = bms_add_member(
				workers,
				shard_map_worker_for_type(colocation, getBaseType(type), elements[i], false));
	}
	return workers;
}

const Bitmapset *
gather_all_workers(const GatherScanState *state)
{
	return state->plan.reference ? metadata_all_workers()
								 : metadata_colocation(state->plan.colocation_id)->workers;
}

Bitmapset *
gather_current_workers(GatherScanState *state)
{
	const Colocation *colocation;
	ExprContext *econtext = state->css.ss.ps.ps_ExprContext;
	Bitmapset *workers;
	ListCell *lc;

	if (state->plan.reference)
		return reference_read_worker(state);
	colocation = metadata_colocation(state->plan.colocation_id);
	workers = bms_copy(colocation->workers);
	shard_map_require_collation(colocation);

	/* without a route all shards are needed; rows to be inserted are routed one by one */
	if ((state->routes == NIL && state->array_routes == NIL &&
		 state->plan.kind != GATHER_INSERT_ROWS) ||
		bms_is_empty(workers))
		shard_map_require_all(colocation);
	foreach(lc, state->routes)
	{
		ExprState *expr = lfirst(lc);
		bool isnull;
		Datum value = ExecEvalExprSwitchContext(expr, econtext, &isnull);

		if (isnull)
			workers = bms_int_members(workers, NULL);
		else
			workers = bms_int_members(
				workers,
				bms_make_singleton(shard_map_worker_for_type(
					colocation, getBaseType(exprType((Node *) expr->expr)), value, false)));
	}
	foreach(lc, state->array_routes)
	{
		ExprState *expr = lfirst(lc);
		bool isnull;
		Datum value = ExecEvalExprSwitchContext(expr, econtext, &isnull);

		workers = bms_int_members(
			workers,
			isnull ? NULL : workers_of_array(colocation, exprType((Node *) expr->expr), value));
	}

	/* no worker has such rows: one still answers, as an aggregate over no rows has a result */
	if (bms_is_empty(workers))
		workers = bms_make_singleton(bms_next_member(colocation->workers, -1));
	return workers;
}

Bitmapset *
gather_possible_workers(GatherScanState *state)
{
	if (!bms_is_empty(state->param_ids) && !state->plan.reference)
		return bms_copy(gather_all_workers(state));
	return gather_current_workers(state);
}
