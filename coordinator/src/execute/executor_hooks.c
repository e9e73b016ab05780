/*
 * executor_hooks.c
 *		What the executor must do differently for statements that write shells.
 *
 * A shell has indexes and constraint triggers like any table, so that the planner
 * and clients know about keys, but no rows: the executor must not put entries
 * into these indexes, and must not check foreign keys row by row here, since the
 * workers' tables have the same constraints (but those of local tables that refer to
 * a shell: fired_trigger.c).  The rows of a statement leave for the
 * workers at its end at the latest, so that their errors are the statement's.
 *
 * For reference tables the foreign keys between them and to shells differ: a delete is
 * replicated to the workers, whose own constraints check or cascade to their shards;
 * the coordinator's trigger on the referenced side would ask the shell for each row.
 *
 * Parallel workers pass through: nothing here is for them.
 */
#include "postgres.h"

#include "execute/executor_hooks.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "cluster/fired_trigger.h"
#include "cluster/metadata.h"
#include "execute/moved_rows.h"
#include "execute/statement_reads.h"
#include "execute/statement_snapshot.h"
#include "server/statement_depth.h"
#include "stream/reference_write.h"
#include "stream/remote_insert.h"
#include "stream/row_change.h"
#include "transaction/held_rows.h"
#include "transaction/pending_rows.h"
#include "transaction/serializable.h"
#include "transaction/standby_read.h"

bool executor_runs_prepared = false;

static ExecutorStart_hook_type previous_executor_start = NULL;
static ExecutorRun_hook_type previous_executor_run = NULL;
static ExecutorFinish_hook_type previous_executor_finish = NULL;

/* Drop the triggers of constraints that the workers have, too, from a result relation's own copy. */
static void
remove_constraint_triggers(ResultRelInfo *result, bool shell)
{
	TriggerDesc *desc = result->ri_TrigDesc;
	int kept = 0;

	if (desc == NULL)
		return;
	for (int i = 0; i < desc->numtriggers; i++)
	{
		if (fired_trigger_is_here(&desc->triggers[i], shell))
			desc->triggers[kept++] = desc->triggers[i];
	}
	if (kept == desc->numtriggers)
		return;
	desc->numtriggers = kept;

	/* Constraint triggers are AFTER ROW triggers, so only these flags can change. */
	desc->trig_insert_after_row = false;
	desc->trig_update_after_row = false;
	desc->trig_delete_after_row = false;
	for (int i = 0; i < kept; i++)
	{
		int16 type = desc->triggers[i].tgtype;

		desc->trig_insert_after_row |= TRIGGER_TYPE_MATCHES(
			type, TRIGGER_TYPE_ROW, TRIGGER_TYPE_AFTER, TRIGGER_TYPE_INSERT);
		desc->trig_update_after_row |= TRIGGER_TYPE_MATCHES(
			type, TRIGGER_TYPE_ROW, TRIGGER_TYPE_AFTER, TRIGGER_TYPE_UPDATE);
		desc->trig_delete_after_row |= TRIGGER_TYPE_MATCHES(
			type, TRIGGER_TYPE_ROW, TRIGGER_TYPE_AFTER, TRIGGER_TYPE_DELETE);
	}
}

void
executor_prepare_result_relation(ResultRelInfo *result)
{
	/* ExecInsert() opens the indexes of a relation whose array is still NULL. */
	static RelationPtr no_indexes[1] = {NULL};
	Relation relation = result->ri_RelationDesc;

	if (metadata_is_shell(relation))
	{
		remove_constraint_triggers(result, true);
		result->ri_NumIndices = 0;
		result->ri_IndexRelationDescs = (RelationPtr) no_indexes;
	}
	else if (metadata_table(RelationGetRelid(relation)) != NULL)
		remove_constraint_triggers(result, false);
}

/*
 * A statement's snapshot is taken when its tables are locked, so that no rows move between leaves of workers
 * behind it; but EXECUTE, a command, has one before it gets its plan, and may have waited for locks since.
 */
static void
renew_snapshot(QueryDesc *query)
{
	if (query->operation != CMD_SELECT || query->plannedstmt->hasModifyingCTE ||
		IsolationUsesXactSnapshot())
		return;
	UnregisterSnapshot(query->snapshot);
	query->snapshot = RegisterSnapshot(GetTransactionSnapshot());
}

static bool
scans_tables_here(Plan *plan)
{
	ListCell *cell;

	switch (nodeTag(plan))
	{
		case T_LockRows:
			return scans_tables_here(outerPlan(plan));
		case T_SeqScan:
		case T_IndexScan:
		case T_IndexOnlyScan:
			return true;
		case T_Append:
			foreach(cell, ((Append *) plan)->appendplans)
			{
				if (!scans_tables_here(lfirst(cell)))
					return false;
			}
			return true;
		default:
			return false;
	}
}

/*
 * Send changes of reference tables before a query, or after it.  One as a foreign key's check, which sees nothing of the
 * workers and changes nothing, may come between rows of one statement, and between the two halves of a row's move to
 * another partition.
 */
static void
flush_changes(const QueryDesc *query)
{
	const PlannedStmt *plan = query->plannedstmt;

	if (statement_reads_writes(plan) || statement_reads_functions(plan) || plan->subplans != NIL ||
		!scans_tables_here(plan->planTree))
		reference_write_flush();
}

static void
start_query(QueryDesc *query, int eflags)
{
	bool nested = statement_depth > (executor_runs_prepared ? 1 : 0);
	ListCell *cell;

	if (!IsParallelWorker())
	{
		flush_changes(query);
		if (IsolationIsSerializable() && metadata_available())
			serializable_check_plan(query->plannedstmt);
		if (executor_runs_prepared && !nested)
			renew_snapshot(query);
	}

	if (previous_executor_start)
		previous_executor_start(query, eflags);
	else
		standard_ExecutorStart(query, eflags);

	if (IsParallelWorker() || !metadata_available())
		return;
	if (!(eflags & EXEC_FLAG_EXPLAIN_ONLY))
		moved_rows_check(query, nested);
	statement_snapshot_start(query, eflags);
	foreach(cell, query->estate->es_opened_result_relations)
		executor_prepare_result_relation(lfirst(cell));
}

static void
run_query(COMPAT_RUN_ARGUMENTS(query))
{
	RunningQuery running = {.query = query, .outer = statement_snapshot_running};

	if (!IsParallelWorker())
		flush_changes(query);

	statement_depth++;
	statement_snapshot_running = &running;
	PG_TRY();
	{
		if (previous_executor_run)
			previous_executor_run(COMPAT_PASS_RUN(query));
		else
			standard_ExecutorRun(COMPAT_PASS_RUN(query));
	}
	PG_FINALLY();
	{
		statement_snapshot_running = running.outer;
		statement_depth--;
	}
	PG_END_TRY();
	if (statement_depth == 0 && !IsParallelWorker())
		standby_read_end_statement();
}

static void
finish_query(QueryDesc *query)
{
	/* triggers that are fired now see what the statement has done */
	if (!IsParallelWorker())
	{
		row_change_end_statement();
		if (held_rows_exist(statement_depth + 1))
			pending_rows_flush();
	}
	statement_depth++;
	PG_TRY();
	{
		if (previous_executor_finish)
			previous_executor_finish(query);
		else
			standard_ExecutorFinish(query);
	}
	PG_FINALLY();
	{
		statement_depth--;
	}
	PG_END_TRY();

	if (IsParallelWorker())
		return;
	held_rows_end_statement(statement_depth + 1);
	flush_changes(query);
	if (statement_depth == 0)
		pending_rows_flush();
	else
		remote_insert_end_nested_statement();
}

void
executor_hooks_initialize(void)
{
	previous_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = start_query;
	previous_executor_run = ExecutorRun_hook;
	ExecutorRun_hook = run_query;
	previous_executor_finish = ExecutorFinish_hook;
	ExecutorFinish_hook = finish_query;
}
