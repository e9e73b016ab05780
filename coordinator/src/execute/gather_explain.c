/*
 * gather_explain.c
 *		EXPLAIN of the custom scan that brings rows from the workers.
 *
 * Shows how many workers take part, the SQL they get, what came back (ANALYZE)
 * and the plan of one of them (VERBOSE).  A worker's plan is made by EXPLAIN of the
 * SQL there; with ANALYZE it runs once more, but never when it writes.
 */
#include "postgres.h"

#include "commands/explain.h"
#include "nodes/extensible.h"
#include "utils/builtins.h"

#include "compat.h"
#include "execute/gather.h"
#include "transaction/remote_transaction.h"

/* Lines of a worker's EXPLAIN as one text. */
static char *
fetch_remote_plan(GatherScanState *state, ExplainState *es)
{
	Bitmapset *workers = gather_current_workers(state);
	WorkerConnection *conn;
	RemoteRole saved;
	StringInfoData sql;
	StringInfoData plan;
	PGresult *result;

	initStringInfo(&sql);
	appendStringInfo(&sql, "EXPLAIN (VERBOSE, COSTS %s, ANALYZE %s%s) %s", es->costs ? "on" : "off",
					 es->analyze && !state->plan.writes ? "on" : "off",
					 es->analyze && !state->plan.writes
						 ? (es->timing ? ", TIMING on" : ", TIMING off, SUMMARY off")
						 : "",
					 gather_current_sql(state));
	saved = gather_enter_role(state);
	conn = connection_open(bms_next_member(workers, -1));
	remote_transaction_send(conn, REMOTE_READ, sql.data);
	(void) remote_role_enter(saved);

	initStringInfo(&plan);
	while ((result = connection_get_result(conn)) != NULL)
	{
		if (PQresultStatus(result) != PGRES_TUPLES_OK)
			connection_report(ERROR, conn, result, sql.data);
		for (int i = 0; i < PQntuples(result); i++)
		{
			if (plan.len > 0)
				appendStringInfoChar(&plan, '\n');
			appendStringInfoString(&plan, PQgetvalue(result, i, 0));
		}
		PQclear(result);
	}
	return plan.data;
}

/* In text format each line of the plan on its own, indented below the property. */
static void
show_remote_plan(const char *plan, ExplainState *es)
{
	const char *line = plan;

	if (es->format != EXPLAIN_FORMAT_TEXT)
	{
		ExplainPropertyText("Remote Plan", plan, es);
		return;
	}
	appendStringInfoSpaces(es->str, es->indent * 2);
	appendStringInfoString(es->str, "Remote Plan:\n");
	es->indent++;
	while (*line)
	{
		int length = strcspn(line, "\n");

		appendStringInfoSpaces(es->str, es->indent * 2);
		appendBinaryStringInfo(es->str, line, length);
		appendStringInfoChar(es->str, '\n');
		line += length;
		if (*line)
			line++;
	}
	es->indent--;
}

void
gather_explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
	GatherScanState *state = (GatherScanState *) node;
	int total = bms_num_members(metadata_colocation(state->plan.colocation_id)->workers);

	/* values that only another node of the running plan computes, or the client, are not known */
	bool generic = compat_explain_is_generic(es);
	bool known = state->started || (bms_is_empty(state->param_ids) && !generic);
	int count = total;

	if (state->started)
		count = state->worker_count;
	else if (known)
		count = bms_num_members(gather_current_workers(state));

	if (es->format == EXPLAIN_FORMAT_TEXT)
		ExplainPropertyText("Workers", psprintf("%s%d of %d", known ? "" : "up to ", count, total),
							es);
	else
	{
		ExplainPropertyInteger("Workers", NULL, count, es);
		ExplainPropertyInteger("Workers Total", NULL, total, es);
	}
	ExplainPropertyText("Remote SQL", state->plan.sql, es);
	if (es->analyze)
	{
		uint64 rows;
		uint64 bytes;

		gather_count_received(state, &rows, &bytes);
		ExplainPropertyInteger("Rows Received", NULL, rows, es);
		ExplainPropertyInteger("Bytes Received", NULL, bytes, es);
	}
	if (es->verbose && !generic && bms_is_empty(state->param_ids) &&
		state->plan.kind != GATHER_INSERT_ROWS)
		show_remote_plan(fetch_remote_plan(state, es), es);
}
