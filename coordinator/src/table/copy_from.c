/*
 * copy_from.c
 *		COPY FROM into a shell.
 *
 * Core's CopyFrom() opens the indexes of its target and puts entries into them, and the
 * indexes of a shell must stay empty.  So the loop is our own, around core's
 * parser of the input (NextCopyFrom()), with the same order of things: WHERE, BEFORE ROW
 * triggers, generated columns, constraints, and then the row leaves for its worker.
 * Errors of the input carry core's context, with line and column.  Errors of the
 * workers come later than the row that caused them; they are not given a line.
 *
 * The permission checks follow core's DoCopy(), which makes them before it knows where
 * the rows go.
 *
 * FREEZE is checked, and left out: rows that other snapshots see before the commit would be half of a commit, on
 * this node or that, and the workers store them as they store any row.  Of a reference table, core checks what is refused.
 *
 * Memory: one row at a time, in the executor's per-tuple context.
 */
#include "postgres.h"

#include "table/copy_from.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_authid_d.h"
#include "catalog/pg_trigger.h"
#include "commands/copy.h"
#include "commands/copyfrom_internal.h"
#include "commands/defrem.h"
#include "commands/progress.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "executor/nodeModifyTable.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_coerce.h"
#include "parser/parse_collate.h"
#include "parser/parse_expr.h"
#include "parser/parse_relation.h"
#include "pgstat.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "execute/executor_hooks.h"
#include "stream/remote_insert.h"
#include "server/statement_depth.h"
#include "transaction/held_rows.h"
#include "transaction/pending_rows.h"

/* Report progress, and look at the clock, once in this many rows. */
#define PROGRESS_ROWS 64

/* May the user read this file or run this program? */
static void
check_source_privilege(const CopyStmt *statement)
{
	bool program = statement->is_program;

	if (statement->filename == NULL ||
		has_privs_of_role(GetUserId(),
						  program ? ROLE_PG_EXECUTE_SERVER_PROGRAM : ROLE_PG_READ_SERVER_FILES))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 program
				 ? errmsg("must be superuser or have privileges of the pg_execute_server_program "
						  "role to COPY to or from an external program")
				 : errmsg("must be superuser or have privileges of the pg_read_server_files role "
						  "to COPY from a file"),
			 errhint("Anyone can COPY to stdout or from stdin. "
					 "psql's \\copy command also works for anyone.")));
}

/*
 * The columns a WHERE clause reads must exist already when it is evaluated.
 */
static void
check_where_columns(Relation relation, Node *clause)
{
	TupleDesc desc = RelationGetDescr(relation);
	Bitmapset *columns = NULL;
	bool whole_row;

	pull_varattnos(clause, 1, &columns);
	whole_row = bms_is_member(0 - FirstLowInvalidHeapAttributeNumber, columns);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);

		if (column->attgenerated != '\0' &&
			(whole_row || bms_is_member(i + 1 - FirstLowInvalidHeapAttributeNumber, columns)))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_COLUMN_REFERENCE),
					 errmsg("generated columns are not supported in COPY FROM WHERE conditions"),
					 errdetail("Column \"%s\" is a generated column.", NameStr(column->attname))));
	}
}

/* The WHERE clause, ready for execution as a list of conjuncts; NULL when there is none. */
static Node *
transform_where(ParseState *pstate, Relation relation, ParseNamespaceItem *item, Node *raw)
{
	Node *clause;

	if (raw == NULL)
		return NULL;
	addNSItemToQuery(pstate, item, false, true, true);
	clause = transformExpr(pstate, raw, EXPR_KIND_COPY_WHERE);
	clause = coerce_to_boolean(pstate, clause, "WHERE");
	assign_expr_collations(pstate, clause);
	check_where_columns(relation, clause);
	clause = eval_const_expressions(NULL, clause);
	clause = (Node *) canonicalize_qual((Expr *) clause, false);
	return (Node *) make_ands_implicit((Expr *) clause);
}

/* ERROR unless the user may insert into the columns; adds the table to pstate. */
static void
check_table_privilege(ParseState *pstate, Relation relation, ParseNamespaceItem *item,
					  List *column_names)
{
	CompatPermissions *permissions = compat_nsitem_permissions(item);
	ListCell *cell;

	permissions->requiredPerms = ACL_INSERT;
	foreach(cell, CopyGetAttnums(RelationGetDescr(relation), relation, column_names))
		permissions->insertedCols = bms_add_member(
			permissions->insertedCols, lfirst_int(cell) - FirstLowInvalidHeapAttributeNumber);
	compat_check_permissions(pstate, permissions);

	if (check_enable_rls(RelationGetRelid(relation), InvalidOid, false) == RLS_ENABLED)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("COPY FROM not supported with row-level security"),
						errhint("Use INSERT statements instead.")));
}

/*
 * Run the BEFORE ROW triggers and check the constraints of one row; false when a
 * trigger suppressed it.
 */
static bool
complete_row(EState *estate, ResultRelInfo *result, TupleTableSlot *slot)
{
	TriggerDesc *triggers = result->ri_TrigDesc;
	TupleConstr *constraints = RelationGetDescr(result->ri_RelationDesc)->constr;

	if (triggers != NULL && triggers->trig_insert_before_row &&
		!ExecBRInsertTriggers(estate, result, slot))
		return false;
	if (constraints == NULL)
		return true;

	/* The workers compute generated columns themselves; only constraints need them here. */
	if (constraints->has_generated_stored &&
		(constraints->num_check > 0 || constraints->has_not_null ||
		 (triggers != NULL &&
		  (triggers->trig_insert_new_table || triggers->trig_insert_after_row))))
		ExecComputeStoredGenerated(result, estate, slot, CMD_INSERT);
	ExecConstraints(result, slot, estate);
	return true;
}

/*
 * Read the next row that passes the WHERE clause into the slot; false at the end of
 * the input.  *excluded counts the others.
 */
static bool
read_row(CopyFromState cstate, EState *estate, TupleTableSlot *slot, uint64 *excluded)
{
	ExprContext *context = GetPerTupleExprContext(estate);

	for (;;)
	{
		MemoryContext old;
		bool found;

		CHECK_FOR_INTERRUPTS();
		ResetPerTupleExprContext(estate);
		ExecClearTuple(slot);

		old = MemoryContextSwitchTo(GetPerTupleMemoryContext(estate));
		found = NextCopyFrom(cstate, context, slot->tts_values, slot->tts_isnull);
		MemoryContextSwitchTo(old);
		if (!found)
			return false;
		if (compat_copy_line_is_bad(cstate))
		{
			compat_copy_forget_bad_line(cstate);
			compat_copy_report_bad_line(cstate);
			if (compat_copy_has_too_many_bad_lines(cstate))
				ereport(ERROR, (errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
								errmsg("skipped more than REJECT_LIMIT (" INT64_FORMAT
									   ") rows due to data type incompatibility",
									   compat_copy_reject_limit(cstate))));
			continue;
		}

		ExecStoreVirtualTuple(slot);
		slot->tts_tableOid = RelationGetRelid(cstate->rel);
		if (cstate->qualexpr == NULL)
			return true;
		context->ecxt_scantuple = slot;
		if (ExecQual(cstate->qualexpr, context))
			return true;
		pgstat_progress_update_param(PROGRESS_COPY_TUPLES_EXCLUDED, ++(*excluded));
	}
}

/* The loop over the rows; returns how many were sent. */
static uint64
send_rows(CopyFromState cstate, EState *estate, ResultRelInfo *result)
{
	TupleTableSlot *slot = table_slot_create(result->ri_RelationDesc, &estate->es_tupleTable);
	ErrorContextCallback context;
	uint64 processed = 0;
	uint64 excluded = 0;

	/* Off the stack while a row is sent: what a worker says then is about earlier rows. */
	context.callback = CopyFromErrorCallback;
	context.arg = cstate;
	context.previous = error_context_stack;
	error_context_stack = &context;

	while (read_row(cstate, estate, slot, &excluded))
	{
		if (!complete_row(estate, result, slot))
			continue;

		error_context_stack = context.previous;
		remote_insert_row(result->ri_RelationDesc, slot);
		held_rows_add_new(result->ri_RelationDesc, TRIGGER_TYPE_INSERT, slot, &slot->tts_tid);
		error_context_stack = &context;

		if (cstate->transition_capture != NULL ||
			(result->ri_TrigDesc != NULL && result->ri_TrigDesc->trig_insert_after_row))
			ExecARInsertTriggers(estate, result, slot, NIL, cstate->transition_capture);
		if (++processed % PROGRESS_ROWS == 0)
			pgstat_progress_update_param(PROGRESS_COPY_TUPLES_PROCESSED, processed);
	}

	error_context_stack = context.previous;
	pgstat_progress_update_param(PROGRESS_COPY_TUPLES_PROCESSED, processed);
	return processed;
}

/*
 * Execute the COPY: set up an executor state for one result relation, fire the
 * statement triggers around the loop, and wait for the workers.
 */
static uint64
copy_rows(CopyFromState cstate)
{
	EState *estate = CreateExecutorState();
	ResultRelInfo *result = makeNode(ResultRelInfo);
	ModifyTableState *state = makeNode(ModifyTableState);
	uint64 processed;

	(void) GetCurrentCommandId(true);
	compat_copy_init_range_table(estate, cstate);
	ExecInitResultRelation(estate, result, 1);
	executor_prepare_result_relation(result);

	state->ps.state = estate;
	state->operation = CMD_INSERT;
	state->mt_nrels = 1;
	state->resultRelInfo = result;
	state->rootResultRelInfo = result;

	AfterTriggerBeginQuery();
	cstate->transition_capture = state->mt_transition_capture = MakeTransitionCaptureState(
		cstate->rel->trigdesc, RelationGetRelid(cstate->rel), CMD_INSERT);
	if (cstate->whereClause != NULL)
		cstate->qualexpr = ExecInitQual(castNode(List, cstate->whereClause), &state->ps);

	ExecBSInsertTriggers(estate, result);
	processed = send_rows(cstate, estate, result);
	ExecASInsertTriggers(estate, result, cstate->transition_capture);
	if (held_rows_exist(statement_depth))
		pending_rows_flush();
	AfterTriggerEndQuery(estate);
	held_rows_end_statement(statement_depth);

	pending_rows_flush();
	pgstat_count_heap_insert(cstate->rel, processed);
	if (compat_copy_bad_lines(cstate) > 0 && !compat_copy_is_silent(cstate))
		ereport(NOTICE, errmsg_plural("%llu row was skipped due to data type incompatibility",
									  "%llu rows were skipped due to data type incompatibility",
									  (unsigned long) compat_copy_bad_lines(cstate),
									  (unsigned long long) compat_copy_bad_lines(cstate)));

	ExecResetTupleTable(estate->es_tupleTable, false);
	ExecCloseResultRelations(estate);
	ExecCloseRangeTableRelations(estate);
	FreeExecutorState(estate);
	return processed;
}

/* With a snapshot that may be used again, the new rows would be seen too early. */
static bool
has_snapshots(void)
{
	InvalidateCatalogSnapshot(); /* counts as registered, and is no scan's */
	return !ThereAreNoPriorRegisteredSnapshots() || !ThereAreNoReadyPortals();
}

/* Would nobody else find rows in the table, whatever he sees? */
static bool
is_new_here(Relation relation)
{
	SubTransactionId current = GetCurrentSubTransactionId();

	return relation->rd_createSubid == current ||
		   compat_new_file_subtransaction(relation) == current;
}

/* ERROR unless rows may be frozen, as in core's CopyFrom(). */
static void
check_freeze(Relation relation)
{
	if (has_snapshots())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				 errmsg("cannot perform COPY FREEZE because of prior transaction activity")));
	if (!is_new_here(relation))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("cannot perform COPY FREEZE because the table was not created or "
							   "truncated in the current subtransaction")));
}

void
copy_from_leave_freeze_out(CopyStmt *statement, Relation relation)
{
	ListCell *cell;

	foreach(cell, statement->options)
	{
		DefElem *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, "freeze") == 0 && defGetBoolean(option) &&
			relation->rd_rel->relkind == RELKIND_RELATION && !has_snapshots() &&
			is_new_here(relation))
			option->arg = (Node *) makeString("off");
	}
}

uint64
copy_from_run(ParseState *pstate, const CopyStmt *statement)
{
	Relation relation;
	ParseNamespaceItem *item;
	Node *where;
	CopyFromState cstate;
	uint64 processed;

	check_source_privilege(statement);
	relation = table_openrv(statement->relation, RowExclusiveLock);
	item = addRangeTableEntryForRelation(pstate, relation, RowExclusiveLock, NULL, false, false);
	where = transform_where(pstate, relation, item, statement->whereClause);
	check_table_privilege(pstate, relation, item, statement->attlist);
	if (XactReadOnly)
		PreventCommandIfReadOnly("COPY FROM");

	cstate = BeginCopyFrom(pstate, relation, where, statement->filename, statement->is_program,
						   NULL, statement->attlist, statement->options);
	if (cstate->opts.freeze)
		check_freeze(relation);
	processed = copy_rows(cstate);
	EndCopyFrom(cstate);
	table_close(relation, NoLock);
	return processed;
}
