/*
 * aggregate_share.c
 *		The groups of a ColumnarAggregate shared out among the processes of a parallel query.
 *
 * With many groups the states that processes make of their share of the rows are nearly as many
 * as the rows, and putting them together takes longer than making them.  Instead each process
 * reads all rows, and aggregates a share of the groups, by a hash of their keys: what it returns
 * are results.
 *
 * There are as many shares as processes were planned.  Whoever runs the node takes the next one
 * that nobody has, and when it is done another: so it does not matter how many processes are
 * started, nor who reads the node first.  All processes see the same rows, as they have one
 * snapshot.
 */
#include "exec/aggregate/aggregate_internal.h"

#include "optimizer/optimizer.h"
#include "storage/dsm.h"

bool
aggregate_take_share(ColumnarAggregateState *state)
{
	if (state->shared != NULL)
	{
		state->nshares = state->shared->nshares;
		state->share = pg_atomic_fetch_add_u32(&state->shared->next, 1);
	}
	else
	{
		/* without other processes; or they are gone, and all shares are done */
		state->share = state->has_asked ? state->nshares : 0;
		state->nshares = state->has_asked ? state->nshares : 1;
	}
	state->has_asked = true;
	state->has_share = state->share < state->nshares;
	return state->has_share;
}

void
aggregate_choose_share(ColumnarAggregateState *state, VectorInput *input)
{
	uint32 kept = 0;

	aggregate_hash_rows(state, input->selection, input->nselected);
	for (uint32 i = 0; i < input->nselected; i++)
	{
		/* from the upper half of the hash */
		uint64 share = ((state->hashes[i] >> 32) * state->nshares) >> 32;

		state->chosen[kept] = input->selection[i];
		kept += share == state->share;
	}
	input->selection = state->chosen;
	input->nselected = kept;
}

/* ---- shared memory ------------------------------------------------------------------------------ */

/* The memory goes away. */
static void
forget_shared(dsm_segment *segment, Datum argument)
{
	((ColumnarAggregateState *) DatumGetPointer(argument))->shared = NULL;
}

Size
aggregate_estimate_dsm(CustomScanState *node, ParallelContext *pcxt)
{
	return sizeof(AggregateShared);
}

void
aggregate_initialize_dsm(CustomScanState *node, ParallelContext *pcxt, void *coordinate)
{
	ColumnarAggregateState *state = (ColumnarAggregateState *) node;
	AggregateShared *shared = coordinate;

	/* without a segment (none was left) the leader works alone */
	if (pcxt->seg == NULL)
		return;
	shared->nshares = (uint32) Max(pcxt->nworkers + (parallel_leader_participation ? 1 : 0), 1);
	pg_atomic_init_u32(&shared->next, 0);
	state->shared = shared;
	on_dsm_detach(pcxt->seg, forget_shared, PointerGetDatum(state));
}

void
aggregate_reinitialize_dsm(CustomScanState *node, ParallelContext *pcxt, void *coordinate)
{
	if (((ColumnarAggregateState *) node)->shared != NULL)
		pg_atomic_write_u32(&((AggregateShared *) coordinate)->next, 0);
}

void
aggregate_initialize_worker(CustomScanState *node, shm_toc *toc, void *coordinate)
{
	((ColumnarAggregateState *) node)->shared = coordinate;
}
