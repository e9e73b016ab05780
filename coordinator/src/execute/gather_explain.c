/*
 * gather_explain.c
 *		EXPLAIN of the custom scan that brings rows from the workers.
 *
 * Shows how many workers take part, the SQL they get, what came back from each and when (ANALYZE), and the plan of one of
 * them (VERBOSE) or of all (strata.explain_all_workers; since PostgreSQL 18 also the option STRATA).  A worker's plan is
 * made by EXPLAIN of the SQL there; with ANALYZE it runs once more, but never when it writes.
 */
#include "postgres.h"

#include "commands/explain.h"
#include "nodes/extensible.h"
#include "utils/builtins.h"

#include "compat.h"
#include "cluster/metadata.h"
#include "execute/gather.h"
#include "execute/partner_keys.h"
#include "server/settings.h"
#include "transaction/remote_transaction.h"
#include "transaction/standby_read.h"

/* Lines of a worker's EXPLAIN as one text. */
static char *
fetch_remote_plan(GatherScanState *state, ExplainState *es, int worker_id)
{
	Bitmapset *worker = bms_make_singleton(worker_id);
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
	standby_read_prepare(worker);
	conn = linitial(standby_read_ready(worker));
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
show_remote_plan(const char *plan, const char *worker, ExplainState *es)
{
	const char *line = plan;

	if (es->format != EXPLAIN_FORMAT_TEXT)
	{
		ExplainPropertyText("Remote Plan", plan, es);
		return;
	}
	appendStringInfoSpaces(es->str, es->indent * 2);
	if (worker != NULL)
		appendStringInfo(es->str, "Remote Plan of \"%s\":\n", worker);
	else
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

/* The plan of one worker, or of all. */
static void
show_remote_plans(GatherScanState *state, ExplainState *es, bool all)
{
	Bitmapset *workers = gather_current_workers(state);
	int worker_id = -1;

	if (!all)
	{
		show_remote_plan(fetch_remote_plan(state, es, bms_next_member(workers, -1)), NULL, es);
		return;
	}
	ExplainOpenGroup("Remote Plans", "Remote Plans", false, es);
	while ((worker_id = bms_next_member(workers, worker_id)) >= 0)
	{
		const char *name = metadata_worker(worker_id)->name;

		ExplainOpenGroup("Remote Plan", NULL, true, es);
		if (es->format != EXPLAIN_FORMAT_TEXT)
			ExplainPropertyText("Worker", name, es);
		show_remote_plan(fetch_remote_plan(state, es, worker_id), name, es);
		ExplainCloseGroup("Remote Plan", NULL, true, es);
	}
	ExplainCloseGroup("Remote Plans", "Remote Plans", false, es);
}

static void
show_worker_traffic(const RemoteTraffic *traffic, ExplainState *es)
{
	const char *name = metadata_worker(traffic->worker_id)->name;

	if (es->format == EXPLAIN_FORMAT_TEXT)
	{
		appendStringInfoSpaces(es->str, es->indent * 2);
		appendStringInfo(es->str, "From %s\"%s\": rows=" UINT64_FORMAT " bytes=" UINT64_FORMAT,
						 traffic->standby ? "standby of " : "", name, traffic->rows,
						 traffic->bytes);
		if (es->timing)
			appendStringInfo(es->str, " time=%.3f..%.3f", traffic->first, traffic->end);
		appendStringInfoChar(es->str, '\n');
		return;
	}
	ExplainOpenGroup("Received", NULL, true, es);
	ExplainPropertyText("Worker", name, es);
	if (traffic->standby)
		ExplainPropertyBool("Standby", true, es);
	ExplainPropertyUInteger("Rows", NULL, traffic->rows, es);
	ExplainPropertyUInteger("Bytes", NULL, traffic->bytes, es);
	if (es->timing)
	{
		ExplainPropertyFloat("First Row", "ms", traffic->first, 3, es);
		ExplainPropertyFloat("End", "ms", traffic->end, 3, es);
	}
	ExplainCloseGroup("Received", NULL, true, es);
}

/* What came back, from all of them and from each. */
static void
show_traffic(const GatherScanState *state, ExplainState *es)
{
	List *list = gather_list_traffic(state);
	uint64 rows = 0;
	uint64 bytes = 0;
	ListCell *cell;

	foreach(cell, list)
	{
		rows += ((const RemoteTraffic *) lfirst(cell))->rows;
		bytes += ((const RemoteTraffic *) lfirst(cell))->bytes;
	}
	ExplainPropertyUInteger("Rows Received", NULL, rows, es);
	ExplainPropertyUInteger("Bytes Received", NULL, bytes, es);
	ExplainOpenGroup("Received", "Received", false, es);
	foreach(cell, list)
		show_worker_traffic(lfirst(cell), es);
	ExplainCloseGroup("Received", "Received", false, es);
}

void
gather_explain(CustomScanState *node, List *ancestors, ExplainState *es)
{
	GatherScanState *state = (GatherScanState *) node;
	int total = bms_num_members(gather_all_workers(state));

	/* values that only another node of the running plan computes, or the client, are not known */
	bool generic = compat_explain_is_generic(es);
	bool all = strata_explain_all_workers || compat_explain_has_option(es);
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
	if (state->plan.reference)
		ExplainPropertyText("Plan Below",
							state->reads_here ? "runs here" : "runs if no worker answers", es);
	ExplainPropertyText("Remote SQL", state->plan.sql, es);
	if (state->keys != NULL && es->analyze)
		ExplainPropertyText("Keys Sent",
							state->keys->count < 0 ? "none, there are too many"
												   : psprintf("%d", state->keys->count),
							es);
	if (es->analyze)
		show_traffic(state, es);
	if ((es->verbose || all) && (state->plan.keys_param == 0 || state->keys != NULL) && !generic &&
		bms_is_empty(state->param_ids) && state->plan.kind != GATHER_INSERT_ROWS &&
		!state->reads_here)
		show_remote_plans(state, es, all);
}
