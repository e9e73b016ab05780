/*
 * reference_read.c
 *		A Gather of reference tables alone: which worker reads its copies, or do we read ours?
 *
 * Every worker has all rows, and so has this server.  A worker is chosen when the executor starts, before the statement's
 * snapshots are taken (statement_snapshot.c), by the number of this process: sessions spread over the workers, and each comes back
 * to the same.  The rows of this server are read
 *
 *	- if the heartbeat knows of no worker that is up, as on a standby and on a copy of a coordinator, if none can be reached, or
 *	  the chosen one is lost before it has given a row;
 *	- if the transaction has written anything: its changes of reference tables may still wait here (reference_write.c);
 *	- in SERIALIZABLE, where this server checks who read what, and under an imported snapshot, which workers do not have;
 *	- in REPEATABLE READ, if no worker has taken the transaction's snapshot.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/executor.h"
#include "miscadmin.h"

#include "cluster/metadata.h"
#include "cluster/worker_state.h"
#include "execute/reference_read.h"
#include "transaction/remote_transaction.h"
#include "transaction/snapshot_pin.h"
#include "transaction/standby_read.h"
#include "wire/worker_use.h"

static bool
has_written(void)
{
	return TransactionIdIsValid(GetTopTransactionIdIfAny());
}

/* Parallel mode is another statement's then: ours is chosen before it begins, whatever the plan below would do. */
static bool
must_read_here(void)
{
	return has_written() || IsolationIsSerializable() || IsInParallelMode() ||
		   snapshot_pin_is_imported();
}

/* Can the worker be asked in this transaction, without waiting for it? */
static bool
is_usable(int worker_id)
{
	WorkerState state;
	WorkerConnection *conn;

	if (standby_read_is_active())
		return true; /* whether it can be read is found out when it is */
	if (!worker_state_get(worker_id, &state) || state.status != WORKER_UP ||
		worker_use_is_wanted(worker_id))
		return false;
	conn = connection_try(worker_id, true);
	/* an idle wire was looked at when it was taken */
	if (conn == NULL || connection_is_silent(conn) ||
		(remote_transaction_participates(conn) && connection_is_closed(conn)))
		return false;
	return !IsolationUsesXactSnapshot() || remote_transaction_participates(conn);
}

void
reference_read_choose(GatherScanState *state)
{
	const Bitmapset *workers = metadata_all_workers();
	int count = bms_num_members(workers);
	int first = count > 0 ? MyProcPid % count : 0;
	RemoteRole saved;

	state->reads_here = true;
	if (must_read_here())
		return;
	saved = gather_enter_role(state);
	for (int i = 0; i < count && state->reads_here; i++)
	{
		int worker_id = -1;

		for (int skip = (first + i) % count; skip >= 0; skip--)
			worker_id = bms_next_member(workers, worker_id);
		if (!is_usable(worker_id))
			continue;
		state->copy_worker = worker_id;
		state->reads_here = false;
	}
	(void) remote_role_enter(saved);
}

bool
reference_read_is_here(GatherScanState *state)
{
	if (!state->started && has_written())
		state->reads_here = true;
	return state->reads_here;
}

Bitmapset *
reference_read_worker(const GatherScanState *state)
{
	if (state->reads_here)
		return NULL;
	if (state->copy_worker > 0)
		return bms_make_singleton(state->copy_worker);
	return bms_make_singleton(bms_next_member(metadata_all_workers(), -1));
}

bool
reference_read_next(GatherScanState *state, TupleTableSlot *slot)
{
	TupleTableSlot *row = ExecProcNode(state->child);
	int natts = slot->tts_tupleDescriptor->natts;

	ExecClearTuple(slot);
	if (TupIsNull(row))
		return false;
	slot_getallattrs(row);
	memcpy(slot->tts_values, row->tts_values, sizeof(Datum) * natts);
	memcpy(slot->tts_isnull, row->tts_isnull, sizeof(bool) * natts);
	ExecStoreVirtualTuple(slot);
	return true;
}

void
reference_read_rescan(GatherScanState *state)
{
	PlanState *node = &state->css.ss.ps;

	if (node->chgParam != NULL)
		UpdateChangedParamSet(state->child, node->chgParam);
	if (state->child->chgParam == NULL)
		ExecReScan(state->child);
}
