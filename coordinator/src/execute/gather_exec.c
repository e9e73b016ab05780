/*
 * gather_exec.c
 *		Execution of the custom scan that brings rows from the workers.
 *
 * The remote statement starts at the first row asked for, so that a node that is
 * never executed sends nothing.  Rows come from whichever worker has one, or
 * merged in order through a binary heap of the streams' current rows.
 *
 * Rescans.  A statement is sent again only when a parameter it depends on has
 * changed.  Otherwise its rows are kept in a tuplestore: from the first scan on
 * when the executor announced rewinds, else from the second scan on (a
 * correlated sub-plan filters them by the node's own quals).
 *
 * Statements that write (GATHER_MODIFY) always run to their end, even if nobody
 * reads their RETURNING rows: such nodes register with es_auxmodifytables, as
 * core's ModifyTable does for WITH.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "lib/binaryheap.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "pgstat.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/sortsupport.h"
#include "utils/tuplestore.h"

#include "compat.h"
#include "cluster/metadata.h"
#include "execute/count_once.h"
#include "execute/gather.h"
#include "execute/gather_retry.h"
#include "execute/hold_row.h"
#include "execute/partner_keys.h"
#include "execute/reference_read.h"
#include "execute/statement_snapshot.h"
#include "execute/upsert_rows.h"
#include "stream/remote_command.h"

static void begin_gather(CustomScanState *node, EState *estate, int eflags);
static TupleTableSlot *exec_gather(CustomScanState *node);
static void end_gather(CustomScanState *node);
static void rescan_gather(CustomScanState *node);

static const CustomExecMethods gather_exec_methods = {
	.CustomName = GATHER_NAME,
	.BeginCustomScan = begin_gather,
	.ExecCustomScan = exec_gather,
	.EndCustomScan = end_gather,
	.ReScanCustomScan = rescan_gather,
	.ExplainCustomScan = gather_explain,
};

static Node *
create_state(CustomScan *scan)
{
	GatherScanState *state = (GatherScanState *) palloc0(sizeof(GatherScanState));

	NodeSetTag(state, T_CustomScanState);
	state->css.methods = &gather_exec_methods;
	gather_plan_from_list(scan->custom_private, &state->plan);
	return (Node *) state;
}

static const CustomScanMethods gather_scan_methods = {
	.CustomName = GATHER_NAME,
	.CreateCustomScanState = create_state,
};

void
gather_initialize(void)
{
	RegisterCustomScanMethods(&gather_scan_methods);
}

/* Collects the ids of PARAM_EXEC parameters. */
static bool
walk_exec_params(Node *node, Bitmapset **ids)
{
	if (node == NULL)
		return false;
	if (IsA(node, Param))
	{
		if (((Param *) node)->paramkind == PARAM_EXEC)
			*ids = bms_add_member(*ids, ((Param *) node)->paramid);
		return false;
	}
	return expression_tree_walker(node, walk_exec_params, ids);
}

static List *
init_exprs(List *exprs, int start, int count, PlanState *parent)
{
	List *states = NIL;

	for (int i = start; i < start + count; i++)
		states = lappend(states, ExecInitExpr(list_nth(exprs, i), parent));
	return states;
}

static void
begin_gather(CustomScanState *node, EState *estate, int eflags)
{
	GatherScanState *state = (GatherScanState *) node;
	CustomScan *scan = (CustomScan *) node->ss.ps.plan;
	GatherPlan *plan = &state->plan;
	int position = 0;

	state->params = init_exprs(scan->custom_exprs, position, plan->param_count, &node->ss.ps);
	position += plan->param_count;
	state->routes = init_exprs(scan->custom_exprs, position, plan->route_count, &node->ss.ps);
	position += plan->route_count;
	state->array_routes = init_exprs(scan->custom_exprs, position, plan->array_route_count,
									 &node->ss.ps);
	walk_exec_params((Node *) scan->custom_exprs, &state->param_ids);

	state->context = AllocSetContextCreate(estate->es_query_cxt, "strata gather",
										   ALLOCSET_DEFAULT_SIZES);
	/* rows that core changes are asked for, locked and held once */
	state->store_rows = (eflags & EXEC_FLAG_REWIND) != 0 || state->plan.held_keep;
	state->last_stream = -1;
	state->subtransaction = GetCurrentSubTransactionId();

	if (scan->custom_plans != NIL)
	{
		state->child = ExecInitNode(linitial(scan->custom_plans), estate,
									eflags &
										~(EXEC_FLAG_REWIND | EXEC_FLAG_BACKWARD | EXEC_FLAG_MARK));
		node->custom_ps = list_make1(state->child);
	}
	if (plan->reference && !(eflags & EXEC_FLAG_EXPLAIN_ONLY))
		reference_read_choose(state);
	if (plan->kind != GATHER_SELECT && !(eflags & EXEC_FLAG_EXPLAIN_ONLY))
		estate->es_auxmodifytables = lcons(state, estate->es_auxmodifytables);
}

GatherScanState *
gather_from_plan_state(PlanState *state)
{
	if (IsA(state, CustomScanState) && ((CustomScanState *) state)->methods == &gather_exec_methods)
		return (GatherScanState *) state;
	return NULL;
}

static int
compare_streams(Datum a, Datum b, void *arg)
{
	GatherScanState *state = arg;
	TupleTableSlot *slot_a = state->stream_slots[DatumGetInt32(a)];
	TupleTableSlot *slot_b = state->stream_slots[DatumGetInt32(b)];

	for (int i = 0; i < list_length(state->plan.sort_columns); i++)
	{
		SortSupport key = &state->sort_keys[i];
		int column = key->ssup_attno - 1;
		int compare = ApplySortComparator(slot_a->tts_values[column], slot_a->tts_isnull[column],
										  slot_b->tts_values[column], slot_b->tts_isnull[column],
										  key);

		/* binaryheap keeps the largest on top */
		if (compare != 0)
			return compare < 0 ? 1 : -1;
	}
	return 0;
}

RemoteRole
gather_enter_role(const GatherScanState *state)
{
	return remote_role_enter(remote_role_for_schemas(state->plan.schemas));
}

/* Prepare the merge: one current row of each stream. */
static void
start_merge(GatherScanState *state)
{
	int streams = remote_scan_stream_count(state->scan);
	int keys = list_length(state->plan.sort_columns);
	TupleDesc desc = state->css.ss.ss_ScanTupleSlot->tts_tupleDescriptor;

	state->sort_keys = palloc0(sizeof(SortSupportData) * keys);
	for (int i = 0; i < keys; i++)
	{
		SortSupport key = &state->sort_keys[i];

		key->ssup_cxt = CurrentMemoryContext;
		key->ssup_collation = list_nth_oid(state->plan.sort_collations, i);
		key->ssup_nulls_first = list_nth_int(state->plan.sort_nulls_first, i);
		key->ssup_attno = list_nth_int(state->plan.sort_columns, i);
		PrepareSortSupportFromOrderingOp(list_nth_oid(state->plan.sort_operators, i), key);
	}

	state->heap = binaryheap_allocate(streams, compare_streams, state);
	state->stream_slots = palloc(sizeof(TupleTableSlot *) * streams);
	for (int i = 0; i < streams; i++)
	{
		state->stream_slots[i] = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
		if (remote_scan_next_from(state->scan, i, state->stream_slots[i]))
			binaryheap_add_unordered(state->heap, Int32GetDatum(i));
	}
	binaryheap_build(state->heap);
	state->last_stream = -1;
}

/* Send the statement. */
static void
start_gather(GatherScanState *state)
{
	MemoryContext old_context;
	Bitmapset *workers;
	List *wires;
	char *sql;
	TupleDesc desc = state->css.ss.ss_ScanTupleSlot->tts_tupleDescriptor;
	RemoteAccess access = state->plan.writes ? REMOTE_WRITE : REMOTE_READ;
	RemoteRole saved;

	old_context = MemoryContextSwitchTo(state->context);
	workers = gather_current_workers(state);
	sql = gather_current_sql(state);
	state->worker_count = bms_num_members(workers);
	state->started = true;

	statement_snapshot_take_pending(state->css.ss.ps.state);
	saved = gather_enter_role(state);
	wires = statement_snapshot_prepare(state->css.ss.ps.state, workers);
	state->scan = remote_scan_begin(wires, access, sql, desc);
	(void) remote_role_enter(saved);
	/* a cursor from outside of a savepoint goes on when that is rolled back, but the wires do not */
	if (state->subtransaction != GetCurrentSubTransactionId())
		remote_scan_keep(state->scan);
	if (state->plan.sort_columns != NIL && state->worker_count > 1)
		start_merge(state);
	if (state->plan.once_columns != NIL)
		state->once = count_once_create(desc, state->sort_keys,
										state->heap ? list_length(state->plan.sort_columns) : 0,
										state->plan.once_columns);
	MemoryContextSwitchTo(old_context);
}

/* The next row of the smallest stream, as pointers into that stream's memory. */
static bool
next_merged_row(GatherScanState *state, TupleTableSlot *slot)
{
	TupleTableSlot *source;
	int natts = slot->tts_tupleDescriptor->natts;

	if (state->last_stream >= 0)
	{
		if (remote_scan_next_from(state->scan, state->last_stream,
								  state->stream_slots[state->last_stream]))
			binaryheap_replace_first(state->heap, Int32GetDatum(state->last_stream));
		else
			(void) binaryheap_remove_first(state->heap);
	}
	ExecClearTuple(slot);
	if (binaryheap_empty(state->heap))
	{
		state->last_stream = -1;
		return false;
	}
	state->last_stream = DatumGetInt32(binaryheap_first(state->heap));
	source = state->stream_slots[state->last_stream];
	memcpy(slot->tts_values, source->tts_values, sizeof(Datum) * natts);
	memcpy(slot->tts_isnull, source->tts_isnull, sizeof(bool) * natts);
	ExecStoreVirtualTuple(slot);
	return true;
}

static List *
add_traffic(List *list, const RemoteTraffic *new)
{
	RemoteTraffic *traffic;
	ListCell *cell;

	foreach(cell, list)
	{
		traffic = lfirst(cell);
		if (traffic->worker_id != new->worker_id)
			continue;
		traffic->rows += new->rows;
		traffic->bytes += new->bytes;
		traffic->first += new->first;
		traffic->end += new->end;
		return list;
	}
	traffic = palloc(sizeof(RemoteTraffic));
	*traffic = *new;
	return lappend(list, traffic);
}

List *
gather_list_traffic(const GatherScanState *state)
{
	List *list = NIL;
	ListCell *cell;

	foreach(cell, state->traffic)
		list = add_traffic(list, lfirst(cell));
	for (int i = 0; state->scan != NULL && i < remote_scan_stream_count(state->scan); i++)
	{
		RemoteTraffic traffic = remote_scan_traffic(state->scan, i);

		list = add_traffic(list, &traffic);
	}
	return list;
}

/* Adds what the scan received to the totals and ends it. */
static void
stop_scan(GatherScanState *state)
{
	MemoryContext old;

	if (state->scan == NULL)
		return;
	old = MemoryContextSwitchTo(state->css.ss.ps.state->es_query_cxt);
	for (int i = 0; i < remote_scan_stream_count(state->scan); i++)
	{
		RemoteTraffic traffic = remote_scan_traffic(state->scan, i);

		state->traffic = add_traffic(state->traffic, &traffic);
	}
	MemoryContextSwitchTo(old);
	if (state->stream_slots != NULL)
	{
		for (int i = 0; i < remote_scan_stream_count(state->scan); i++)
			ExecDropSingleTupleTableSlot(state->stream_slots[i]);
	}
	remote_scan_end(state->scan);
	state->scan = NULL;
	state->heap = NULL;
	state->stream_slots = NULL;
	state->once = NULL;
	state->last_stream = -1;
}

static inline bool
next_remote_row(GatherScanState *state, TupleTableSlot *slot)
{
	bool found = state->heap != NULL ? next_merged_row(state, slot)
									 : remote_scan_next(state->scan, slot);

	if (found && state->once != NULL)
		count_once_apply(state->once, slot);
	return found;
}

/* An error ended the scan before its first row: all of it is in one memory context. */
static void
forget_failed_scan(GatherScanState *state)
{
	MemoryContextReset(state->context);
	state->scan = NULL;
	state->heap = NULL;
	state->stream_slots = NULL;
	state->once = NULL;
	state->last_stream = -1;
	state->started = false;
}

/* Send the statement and wait for its first row; again, if a worker is lost (gather_retry.c). */
static bool
receive_first_row(GatherScanState *state, TupleTableSlot *slot)
{
	MemoryContext context = CurrentMemoryContext;
	GatherRetry retry = {0};
	bool patient = gather_retry_may_wait(state);
	RemoteRole role = remote_role_current();

	if (!gather_retry_is_possible(state))
	{
		start_gather(state);
		return next_remote_row(state, slot);
	}
	for (;;)
	{
		volatile bool found = false;
		volatile bool again = false;

		PG_TRY();
		{
			start_gather(state);
			if (patient)
				remote_scan_await_all(state->scan);
			found = next_remote_row(state, slot);
		}
		PG_CATCH();
		{
			(void) remote_role_enter(role);
			if (!gather_retry_accept(&retry, state))
				PG_RE_THROW();
			MemoryContextSwitchTo(context);
			FlushErrorState();
			again = true;
		}
		PG_END_TRY();
		if (!again)
			return found;
		forget_failed_scan(state);
		gather_retry_begin(&retry);
		if (state->plan.reference)
		{
			state->reads_here = true;
			return reference_read_next(state, slot);
		}
	}
}

/* What the other side of the join asks for, once; if that is nothing, no worker is asked. */
static void
read_keys(GatherScanState *state)
{
	MemoryContext old = MemoryContextSwitchTo(state->css.ss.ps.state->es_query_cxt);

	state->keys = partner_keys_read(state);
	state->finished = state->keys->count == 0;
	MemoryContextSwitchTo(old);
}

/* The next row from the network; keeps it if rows are kept. */
static bool
receive_row(GatherScanState *state, TupleTableSlot *slot)
{
	bool found;

	if (state->plan.keys_param > 0 && state->keys == NULL)
		read_keys(state);
	if (state->finished)
	{
		ExecClearTuple(slot);
		return false;
	}
	found = state->started ? next_remote_row(state, slot) : receive_first_row(state, slot);
	if (!found)
	{
		state->finished = true;
		stop_scan(state);
		return false;
	}
	if (OidIsValid(state->plan.held_relation))
		hold_row(state, slot);
	if (state->store_rows)
	{
		if (state->store == NULL)
		{
			MemoryContext old_context = MemoryContextSwitchTo(state->css.ss.ps.state->es_query_cxt);

			state->store = tuplestore_begin_heap(false, false, work_mem);
			tuplestore_set_eflags(state->store, EXEC_FLAG_REWIND);
			state->store_slot = MakeSingleTupleTableSlot(slot->tts_tupleDescriptor,
														 &TTSOpsMinimalTuple);
			MemoryContextSwitchTo(old_context);
		}
		tuplestore_puttupleslot(state->store, slot);
	}
	return found;
}

static bool
read_stored_row(GatherScanState *state, TupleTableSlot *slot)
{
	ExecClearTuple(slot);
	if (state->store == NULL ||
		!tuplestore_gettupleslot(state->store, true, false, state->store_slot))
		return false;
	slot_getallattrs(state->store_slot);
	memcpy(slot->tts_values, state->store_slot->tts_values,
		   sizeof(Datum) * slot->tts_tupleDescriptor->natts);
	memcpy(slot->tts_isnull, state->store_slot->tts_isnull,
		   sizeof(bool) * slot->tts_tupleDescriptor->natts);
	ExecStoreVirtualTuple(slot);
	return true;
}

/* Count changes of a table, from which autovacuum tells when to analyse it. */
static void
count_table_changes(Oid relid, CmdType command, uint64 rows)
{
	Relation relation = table_open(relid, NoLock);

	pgstat_count_heap_insert(relation, command == CMD_INSERT ? rows : 0);
	if (relation->pgstat_info != NULL && relation->pgstat_info->trans != NULL)
	{
		if (command == CMD_DELETE)
			relation->pgstat_info->trans->tuples_deleted += rows;
		else if (command != CMD_INSERT)
			relation->pgstat_info->trans->tuples_updated += rows;
	}
	table_close(relation, NoLock);
}

/* Of several tables that one statement changes each gets all changes: an estimate. */
void
gather_count_changes(GatherScanState *state, uint64 rows)
{
	EState *estate = state->css.ss.ps.state;
	CmdType command = state->plan.can_set_tag ? estate->es_plannedstmt->commandType : CMD_UPDATE;
	ListCell *cell;

	if (state->plan.kind == GATHER_INSERT_ROWS)
		command = CMD_INSERT;
	foreach(cell, estate->es_range_table)
	{
		const RangeTblEntry *rte = lfirst_node(RangeTblEntry, cell);
		const DistributedTable *table = NULL;

		if (rte->rtekind == RTE_RELATION && rte->rellockmode == RowExclusiveLock)
			table = metadata_table(rte->relid);
		if (table != NULL && table->kind == TABLE_DISTRIBUTED)
			count_table_changes(rte->relid, command, rows);
	}
}

/* Run a statement that writes and returns nothing. */
static void
run_modify(GatherScanState *state)
{
	Bitmapset *workers = gather_current_workers(state);
	List *wires;
	char *sql;
	RemoteRole saved;
	uint64 rows;

	state->worker_count = bms_num_members(workers);
	state->started = true;
	sql = gather_current_sql(state);
	saved = gather_enter_role(state);
	wires = statement_snapshot_prepare(state->css.ss.ps.state, workers);
	rows = remote_command_run_on(wires, REMOTE_WRITE, sql);
	(void) remote_role_enter(saved);
	if (state->plan.can_set_tag)
		state->css.ss.ps.state->es_processed += rows;
	gather_count_changes(state, rows);
	state->finished = true;
}

static TupleTableSlot *
next_row(ScanState *node)
{
	GatherScanState *state = (GatherScanState *) node;
	TupleTableSlot *slot = node->ss_ScanTupleSlot;
	bool found;

	if (state->plan.reference && reference_read_is_here(state))
	{
		(void) reference_read_next(state, slot);
		return slot;
	}
	if (state->plan.kind == GATHER_INSERT_ROWS && !state->started)
	{
		state->scan = upsert_rows_run(state);
		state->started = true;
		state->finished = state->scan == NULL;
	}
	else if (state->plan.kind == GATHER_MODIFY && !state->plan.returning)
	{
		if (!state->started)
			run_modify(state);
		return ExecClearTuple(slot);
	}

	found = state->reading_store ? read_stored_row(state, slot) : receive_row(state, slot);
	if (found && state->plan.kind != GATHER_SELECT)
	{
		if (state->plan.can_set_tag)
			node->ps.state->es_processed++;
		state->changed_rows++;
	}
	else if (state->changed_rows > 0)
	{
		gather_count_changes(state, state->changed_rows);
		state->changed_rows = 0;
	}
	return slot;
}

/*
 * A row of a local table that this one was joined to has been changed by another
 * transaction meanwhile.  The row that came from a worker is not at hand to be joined
 * once more; to say "no row" would lose an update without a word.
 */
static bool
recheck_row(ScanState *node, TupleTableSlot *slot)
{
	ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					errmsg("could not serialize access due to concurrent update"),
					errdetail("The changed row was joined to rows of a distributed table."),
					errhint("The statement might succeed if retried.")));
	return false;
}

static TupleTableSlot *
exec_gather(CustomScanState *node)
{
	return ExecScan(&node->ss, next_row, recheck_row);
}

static void
end_gather(CustomScanState *node)
{
	GatherScanState *state = (GatherScanState *) node;

	stop_scan(state);
	if (state->store != NULL)
	{
		tuplestore_end(state->store);
		ExecDropSingleTupleTableSlot(state->store_slot);
		state->store = NULL;
	}
	if (state->child != NULL)
		ExecEndNode(state->child);
}

static void
rescan_gather(CustomScanState *node)
{
	GatherScanState *state = (GatherScanState *) node;

	ExecScanReScan(&node->ss);
	if (state->reads_here)
		reference_read_rescan(state);
	if (state->reads_here || !state->started)
		return;

	if (bms_overlap(node->ss.ps.chgParam, state->param_ids) ||
		(!state->store_rows && !state->reading_store))
	{
		/* from now on keep the rows, unless they depend on what changes */
		bool keep = !bms_overlap(node->ss.ps.chgParam, state->param_ids);

		stop_scan(state);
		if (state->store != NULL)
		{
			tuplestore_end(state->store);
			ExecDropSingleTupleTableSlot(state->store_slot);
			state->store = NULL;
		}
		MemoryContextReset(state->context);
		state->started = false;
		state->finished = false;
		state->reading_store = false;
		state->store_rows = keep;
		return;
	}

	/* complete the store, then read it from its start */
	if (!state->reading_store)
	{
		while (receive_row(state, node->ss.ss_ScanTupleSlot))
			CHECK_FOR_INTERRUPTS();
		state->reading_store = true;
	}
	if (state->store != NULL)
		tuplestore_rescan(state->store);
}
