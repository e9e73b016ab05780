/*
 * upsert_rows.c
 *		INSERT ... ON CONFLICT: rows of a child plan, routed and sent as statements.
 *
 * Each worker gets all of its rows in one statement, so that PostgreSQL itself
 * notices when a statement would touch a row twice.  Equal keys go to the same
 * worker, and every arbiter contains the key, so that no conflict spans workers.
 * The rows are held as SQL text until the child plan has ended; their number is
 * limited by that, with a clear error.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "compat.h"
#include "cluster/shard_map.h"
#include "execute/upsert_rows.h"
#include "stream/remote_command.h"
#include "values/row_format.h"

typedef struct WorkerRows
{
	int worker_id;
	StringInfoData values;
} WorkerRows;

/* The worker's buffer, made at its first row. */
static WorkerRows *
rows_of_worker(List **buffers, int worker_id)
{
	WorkerRows *rows;
	ListCell *lc;

	foreach(lc, *buffers)
	{
		rows = lfirst(lc);
		if (rows->worker_id == worker_id)
			return rows;
	}
	rows = palloc(sizeof(WorkerRows));
	rows->worker_id = worker_id;
	initStringInfo(&rows->values);
	*buffers = lappend(*buffers, rows);
	return rows;
}

/* Append one row as (literal, literal, ...). */
static void
append_row(WorkerRows *rows, TupleTableSlot *slot, List *columns)
{
	StringInfo buf = &rows->values;
	ListCell *lc;

	appendStringInfoString(buf, buf->len > 0 ? ", (" : "(");
	foreach(lc, columns)
	{
		int column = lfirst_int(lc) - 1;

		if (foreach_current_index(lc) > 0)
			appendStringInfoString(buf, ", ");
		row_format_append_literal(buf, TupleDescAttr(slot->tts_tupleDescriptor, column)->atttypid,
								  slot->tts_values[column], slot->tts_isnull[column]);
	}
	appendStringInfoChar(buf, ')');
	if (buf->len > ROW_LITERALS_BYTES_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many rows for one INSERT ... ON CONFLICT into a distributed table"),
				 errdetail("All rows of one worker travel in one statement of at most %d MB.",
						   (int) (ROW_LITERALS_BYTES_MAX / (1024 * 1024))),
				 errhint("Insert the rows in several statements.")));
}

/* Run the child plan and sort its rows by worker. */
static List *
collect_rows(GatherScanState *state)
{
	const Colocation *colocation = metadata_colocation(state->plan.colocation_id);
	int key = state->plan.key_attribute - 1;
	MemoryContext row_context = AllocSetContextCreate(state->context, "strata insert row",
													  ALLOCSET_DEFAULT_SIZES);
	List *buffers = NIL;
	TupleTableSlot *slot;

	for (;;)
	{
		MemoryContext old_context;
		WorkerRows *rows;

		CHECK_FOR_INTERRUPTS();
		slot = ExecProcNode(state->child);
		if (TupIsNull(slot))
			break;
		slot_getallattrs(slot);
		rows = rows_of_worker(
			&buffers, shard_map_worker(colocation, slot->tts_values[key], slot->tts_isnull[key]));
		old_context = MemoryContextSwitchTo(row_context);
		append_row(rows, slot, state->plan.row_columns);
		MemoryContextSwitchTo(old_context);
		MemoryContextReset(row_context);
	}
	MemoryContextDelete(row_context);
	return buffers;
}

RemoteScan *
upsert_rows_run(GatherScanState *state)
{
	MemoryContext old_context = MemoryContextSwitchTo(state->context);
	RemoteScan *scan = NULL;
	StringInfoData marker;
	char *position;
	char *prefix;
	char *suffix;
	List *buffers;
	int width = list_length(state->plan.row_columns);
	int *worker_ids;
	char **sqls;
	int count = 0;
	RemoteRole saved;
	ListCell *lc;

	/* the statement's text has one row of placeholders */
	initStringInfo(&marker);
	appendStringInfoString(&marker, "VALUES (");
	for (int i = 1; i <= width; i++)
		appendStringInfo(&marker, "%s$%d", i > 1 ? ", " : "", i);
	appendStringInfoChar(&marker, ')');
	position = strstr(state->plan.sql, marker.data);
	if (position == NULL)
		elog(ERROR, "remote INSERT has no row of placeholders: %s", state->plan.sql);
	prefix = pnstrdup(state->plan.sql, position - state->plan.sql);
	suffix = gather_substitute(state, position + marker.len, width);

	buffers = collect_rows(state);
	worker_ids = palloc(sizeof(int) * Max(list_length(buffers), 1));
	sqls = palloc(sizeof(char *) * Max(list_length(buffers), 1));
	foreach(lc, buffers)
	{
		WorkerRows *rows = lfirst(lc);

		worker_ids[count] = rows->worker_id;
		sqls[count++] = psprintf("%sVALUES %s%s", prefix, rows->values.data, suffix);
		pfree(rows->values.data);
	}

	state->worker_count = count;
	saved = gather_enter_role(state);
	if (count > 0 && state->plan.returning)
		scan = remote_scan_begin_each(remote_transaction_ready_each(worker_ids, count), sqls,
									  REMOTE_WRITE,
									  state->css.ss.ss_ScanTupleSlot->tts_tupleDescriptor);
	else if (count > 0)
	{
		uint64 rows = remote_command_run_each(worker_ids, sqls, count, REMOTE_WRITE);

		if (state->plan.can_set_tag)
			state->css.ss.ps.state->es_processed += rows;
		gather_count_changes(state, rows);
	}
	(void) remote_role_enter(saved);
	MemoryContextSwitchTo(old_context);
	return scan;
}
