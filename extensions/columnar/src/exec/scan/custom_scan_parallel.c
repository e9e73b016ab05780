/*
 * custom_scan_parallel.c
 *		ColumnarScan in several processes, and what they have counted.
 *
 * Each process lists the same row groups under the same snapshot and takes the next one by a shared counter.
 */
#include "exec/scan/custom_scan.h"

#include "access/parallel.h"
#include "port/atomics.h"
#include "storage/dsm.h"

#include "exec/scan/tree_scan.h"

#define SCAN_SHARED_COUNTERS (sizeof(ScanCounters) / sizeof(uint64))

/* In dynamic shared memory. */
struct ScanShared
{
	RowScanShared scan;
	pg_atomic_uint64 counters[SCAN_SHARED_COUNTERS]; /* ScanCounters of the workers, added up */
	/* behind it, aligned: what tree_scan.c shares */
};

#define SCAN_SHARED_SIZE MAXALIGN(sizeof(ScanShared))

StaticAssertDecl(sizeof(ScanCounters) % sizeof(uint64) == 0, "ScanCounters is all uint64");

RowScanShared *
custom_scan_shared(ColumnarScanState *state)
{
	return state->shared ? &state->shared->scan : NULL;
}

ScanCounters
custom_scan_counters(ColumnarScanState *state)
{
	ScanCounters counters = {0};

	if (state->pruner != NULL)
		counters.prune = *pruner_counters(state->pruner);
	if (state->tree != NULL)
	{
		counters.bytes_read = tree_scan_counters(state->tree)->bytes_read;
		counters.pages_read = tree_scan_counters(state->tree)->pages_read;
	}
	if (state->scan != NULL)
	{
		const RowScanCounters *scan = row_scan_counters(state->scan);

		counters.bytes_read += scan->bytes_read;
		counters.pages_read += scan->pages_read;
	}
	counters.removed_by_keys = state->removed_by_keys;
	return counters;
}

/* A worker adds what it did since it last did so. */
void
custom_scan_report(ColumnarScanState *state)
{
	ScanCounters counters;
	const uint64 *now = (const uint64 *) &counters;
	uint64 *before = (uint64 *) &state->reported;

	if (state->shared == NULL || !IsParallelWorker())
		return;
	counters = custom_scan_counters(state);
	for (int i = 0; i < SCAN_SHARED_COUNTERS; i++)
	{
		pg_atomic_fetch_add_u64(&state->shared->counters[i], now[i] - before[i]);
		before[i] = now[i];
	}
}

/*
 * The leader's shared memory goes away, after all workers have finished: core
 * collects its own instrumentation then, but asks no custom scan for its.
 */
static void
collect_counters(dsm_segment *segment, Datum argument)
{
	ColumnarScanState *state = (ColumnarScanState *) DatumGetPointer(argument);
	uint64 *sum = (uint64 *) &state->workers;

	for (int i = 0; i < SCAN_SHARED_COUNTERS; i++)
		sum[i] += pg_atomic_read_u64(&state->shared->counters[i]);
	state->shared = NULL;
	if (state->tree != NULL)
		tree_scan_unshare(state);
	else if (state->scan != NULL)
		row_scan_set_shared(state->scan, NULL);
}

Size
custom_scan_estimate_dsm(CustomScanState *node, ParallelContext *pcxt)
{
	const ColumnarScanState *state = (ColumnarScanState *) node;

	return SCAN_SHARED_SIZE + (state->tree ? tree_scan_shared_size(state->tree) : 0);
}

void
custom_scan_initialize_dsm(CustomScanState *node, ParallelContext *pcxt, void *coordinate)
{
	ColumnarScanState *state = (ColumnarScanState *) node;

	state->shared = coordinate;
	pg_atomic_init_u64(&state->shared->scan.next_group, 0);
	for (int i = 0; i < SCAN_SHARED_COUNTERS; i++)
		pg_atomic_init_u64(&state->shared->counters[i], 0);
	if (state->tree != NULL)
		tree_scan_share(state, (char *) coordinate + SCAN_SHARED_SIZE);
	else if (state->scan != NULL)
		row_scan_set_shared(state->scan, &state->shared->scan);
	/* without a segment (none was left) the leader works alone, in its own memory */
	if (pcxt->seg != NULL)
		on_dsm_detach(pcxt->seg, collect_counters, PointerGetDatum(state));
}

void
custom_scan_reinitialize_dsm(CustomScanState *node, ParallelContext *pcxt, void *coordinate)
{
	ColumnarScanState *state = (ColumnarScanState *) node;

	pg_atomic_write_u64(&((ScanShared *) coordinate)->scan.next_group, 0);
	if (state->tree != NULL)
		tree_scan_reshare(state);
}

void
custom_scan_initialize_worker(CustomScanState *node, shm_toc *toc, void *coordinate)
{
	ColumnarScanState *state = (ColumnarScanState *) node;

	state->shared = coordinate;
	if (state->tree != NULL)
		tree_scan_join(state, (char *) coordinate + SCAN_SHARED_SIZE);
}

void
custom_scan_shut_down(CustomScanState *node)
{
	custom_scan_report((ColumnarScanState *) node);
}
