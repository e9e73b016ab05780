/*
 * sort_merge.c
 *		Sorted rows in files, merged: for what ColumnarSort cannot keep in memory.
 *
 * What fits into memory is sorted and written, a run.  In the end the runs are read side by side;
 * a heap tells which of them has the next row.  Rows are taken until the vectors of one run
 * are used up; then the chosen rows of each run are copied to a store, all at once, and the order
 * in which they were chosen is that of the result.
 *
 * Each run that is read has a block in memory, so there must not be too many: when there are
 * MERGE_RUNS of one level, they become one of the next.
 *
 * Memory: runs live in the merge's context; what compared values refer to, in one of the run.
 */
#include "exec/sort/sort_internal.h"

#include "lib/binaryheap.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/* Runs of a level that are merged into one. */
#define MERGE_RUNS 16

typedef struct SortRun
{
	VectorFile *file;
	int level;
	MemoryContext values; /* of the keys of the row that is next */
	VectorBatch *batch;	  /* NULL: nothing was read yet */
	Vector *columns;	  /* of the batch */
	uint32 position;	  /* of the row that is next */
	uint32 nchosen;
	uint16 chosen[BLOCK_ROWS]; /* positions of rows that go into the result */
	uint32 first;			   /* their place in it */
} SortRun;

struct SortMerge
{
	MemoryContext context;
	int ncolumns;
	VectorKey *types;
	int nkeys;
	SortKey *keys; /* entry i: the next row of merged[i] */
	const int *key_columns;
	int count;	/* runs that were added */
	List *runs; /* SortRun */

	bool is_merging;
	int nmerged;
	SortRun **merged;
	binaryheap *heap;
	VectorStore *store;
	uint32 order[BLOCK_ROWS];

	Vector **columns; /* of rows that are written */
	VectorBuffer **buffers;
};

/* ---- runs --------------------------------------------------------------------------------------- */

SortMerge *
sort_merge_create(int ncolumns, const VectorKey *types, int nkeys, SortKey *keys,
				  const int *columns)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "columnar sort merge",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	SortMerge *merge = palloc0(sizeof(SortMerge));

	merge->context = context;
	merge->ncolumns = ncolumns;
	merge->types = palloc(sizeof(VectorKey) * Max(ncolumns, 1));
	memcpy(merge->types, types, sizeof(VectorKey) * ncolumns);
	merge->nkeys = nkeys;
	merge->keys = keys;
	merge->key_columns = columns;
	merge->store = vector_store_create(ncolumns, types);
	merge->columns = palloc(sizeof(Vector *) * Max(ncolumns, 1));
	merge->buffers = palloc(sizeof(VectorBuffer *) * Max(ncolumns, 1));
	for (int i = 0; i < ncolumns; i++)
	{
		merge->columns[i] = palloc(sizeof(Vector));
		merge->buffers[i] = vector_buffer_create();
	}
	MemoryContextSwitchTo(caller);
	return merge;
}

int
sort_merge_count(const SortMerge *merge)
{
	return merge->count;
}

static SortRun *
create_run(SortMerge *merge, int level)
{
	SortRun *run = palloc0(sizeof(SortRun));

	run->file = vector_file_create(merge->ncolumns, merge->types);
	run->level = level;
	run->columns = palloc(sizeof(Vector) * Max(merge->ncolumns, 1));
	run->values = AllocSetContextCreate(CurrentMemoryContext, "columnar sort run's values",
										ALLOCSET_SMALL_SIZES);
	return run;
}

static void
close_run(SortRun *run)
{
	vector_file_close(run->file);
	MemoryContextDelete(run->values);
	pfree(run->columns);
	pfree(run);
}

/* Writes rows of the store to the run, in this order. */
static void
write_rows(SortMerge *merge, SortRun *run, VectorStore *store, const uint32 *order, uint32 nrows)
{
	uint16 selection[BLOCK_ROWS];

	for (uint32 i = 0; i < BLOCK_ROWS; i++)
		selection[i] = (uint16) i;
	for (uint32 first = 0; first < nrows; first += BLOCK_ROWS)
	{
		uint32 n = Min(BLOCK_ROWS, nrows - first);

		CHECK_FOR_INTERRUPTS();
		for (int i = 0; i < merge->ncolumns; i++)
			vector_store_gather(store, i, order + first, NULL, n, merge->buffers[i],
								merge->columns[i]);
		vector_file_write(run->file, merge->columns, selection, n);
	}
}

/* ---- merging ------------------------------------------------------------------------------------ */

static int
compare_runs(Datum a, Datum b, void *argument)
{
	SortMerge *merge = argument;

	/* the heap has the largest on top */
	for (int i = 0; i < merge->nkeys; i++)
	{
		int order = sort_key_compare(&merge->keys[i], (uint32) DatumGetInt32(a),
									 (uint32) DatumGetInt32(b));

		if (order != 0)
			return -order;
	}
	return 0;
}

/* Takes the keys of the run's next row. */
static void
take_keys(SortMerge *merge, int number)
{
	SortRun *run = merge->merged[number];
	MemoryContext caller = MemoryContextSwitchTo(run->values);

	MemoryContextReset(run->values);
	for (int i = 0; i < merge->nkeys; i++)
		sort_key_take(&merge->keys[i], (uint32) number, &run->columns[merge->key_columns[i]],
					  run->batch->selection[run->position]);
	MemoryContextSwitchTo(caller);
}

/* Reads the run's next batch; false at its end. */
static bool
read_run(SortMerge *merge, SortRun *run)
{
	run->position = 0;
	run->batch = vector_file_read(run->file);
	for (int i = 0; run->batch != NULL && i < merge->ncolumns; i++)
		run->batch->get_column(run->batch, (AttrNumber) (i + 1), &run->columns[i]);
	return run->batch != NULL;
}

/* Begins to merge the runs of the level and those below; all of them if it is negative. */
static void
begin_merge(SortMerge *merge, int level)
{
	MemoryContext caller = MemoryContextSwitchTo(merge->context);
	ListCell *cell;

	merge->nmerged = 0;
	merge->merged = palloc(sizeof(SortRun *) * Max(list_length(merge->runs), 1));
	foreach(cell, merge->runs)
	{
		SortRun *run = lfirst(cell);

		if (level < 0 || run->level <= level)
			merge->merged[merge->nmerged++] = run;
	}
	for (int i = 0; i < merge->nkeys; i++)
		sort_key_reserve(&merge->keys[i], merge->context, (uint32) Max(merge->nmerged, 1));
	merge->heap = binaryheap_allocate(Max(merge->nmerged, 1), compare_runs, merge);
	for (int i = 0; i < merge->nmerged; i++)
	{
		if (!read_run(merge, merge->merged[i]))
			continue;
		take_keys(merge, i);
		binaryheap_add_unordered(merge->heap, Int32GetDatum(i));
	}
	binaryheap_build(merge->heap);
	merge->is_merging = true;
	MemoryContextSwitchTo(caller);
}

/* Closes what was merged. */
static void
end_merge(SortMerge *merge)
{
	for (int i = 0; i < merge->nmerged; i++)
	{
		merge->runs = list_delete_ptr(merge->runs, merge->merged[i]);
		close_run(merge->merged[i]);
	}
	pfree(merge->merged);
	binaryheap_free(merge->heap);
	vector_store_reset(merge->store);
	merge->nmerged = 0;
	merge->is_merging = false;
}

/*
 * Chooses the next rows, until there are BLOCK_ROWS or a run has no more in memory: *used_up is its
 * number, or -1.  runs[i] is the run of row i.
 */
static uint32
choose_rows(SortMerge *merge, int *runs, int *used_up)
{
	uint32 n = 0;

	*used_up = -1;
	while (n < BLOCK_ROWS && *used_up < 0 && !binaryheap_empty(merge->heap))
	{
		int number = DatumGetInt32(binaryheap_first(merge->heap));
		SortRun *run = merge->merged[number];

		runs[n] = number;
		merge->order[n++] = run->nchosen;
		run->chosen[run->nchosen++] = run->batch->selection[run->position++];
		if (run->position == run->batch->nselected)
			*used_up = number;
		else
		{
			take_keys(merge, number);
			binaryheap_replace_first(merge->heap, Int32GetDatum(number));
		}
	}
	return n;
}

/* Copies the chosen rows to the store, run by run. */
static void
store_chosen(SortMerge *merge, const int *runs, uint32 n)
{
	Vector **columns = palloc(sizeof(Vector *) * Max(merge->ncolumns, 1));

	vector_store_reset(merge->store);
	for (int i = 0; i < merge->nmerged; i++)
	{
		SortRun *run = merge->merged[i];

		run->first = vector_store_count(merge->store);
		if (run->nchosen == 0)
			continue;
		for (int column = 0; column < merge->ncolumns; column++)
			columns[column] = &run->columns[column];
		vector_store_append(merge->store, columns, run->chosen, run->nchosen);
		run->nchosen = 0;
	}
	for (uint32 i = 0; i < n; i++)
		merge->order[i] += merge->merged[runs[i]]->first;
	pfree(columns);
}

/* The run on top of the heap has no more rows in memory. */
static void
refill(SortMerge *merge, int number)
{
	if (!read_run(merge, merge->merged[number]))
	{
		binaryheap_remove_first(merge->heap);
		return;
	}
	take_keys(merge, number);
	binaryheap_replace_first(merge->heap, Int32GetDatum(number));
}

/* The next merged rows; see sort_merge_next(). */
static uint32
merge_rows(SortMerge *merge)
{
	int runs[BLOCK_ROWS];
	int used_up;
	uint32 n = choose_rows(merge, runs, &used_up);

	store_chosen(merge, runs, n);
	if (used_up >= 0)
		refill(merge, used_up);
	return n;
}

/* Makes one of the runs of a level, if there are so many. */
static void
reduce_runs(SortMerge *merge, int level)
{
	int count = 0;
	SortRun *run;
	uint32 n;
	ListCell *cell;

	foreach(cell, merge->runs)
		count += ((SortRun *) lfirst(cell))->level == level;
	if (count < MERGE_RUNS)
		return;
	begin_merge(merge, level);
	run = create_run(merge, level + 1);
	while ((n = merge_rows(merge)) > 0)
		write_rows(merge, run, merge->store, merge->order, n);
	end_merge(merge);
	merge->runs = lappend(merge->runs, run);
	reduce_runs(merge, level + 1);
}

void
sort_merge_add(SortMerge *merge, VectorStore *store, const uint32 *order)
{
	MemoryContext caller = MemoryContextSwitchTo(merge->context);
	SortRun *run = create_run(merge, 0);

	write_rows(merge, run, store, order, vector_store_count(store));
	merge->runs = lappend(merge->runs, run);
	merge->count++;
	reduce_runs(merge, 0);
	MemoryContextSwitchTo(caller);
}

VectorStore *
sort_merge_next(SortMerge *merge, uint32 **order, uint32 *n)
{
	MemoryContext caller = MemoryContextSwitchTo(merge->context);

	if (!merge->is_merging)
		begin_merge(merge, -1);
	*n = merge_rows(merge);
	*order = merge->order;
	MemoryContextSwitchTo(caller);
	return merge->store;
}

void
sort_merge_reset(SortMerge *merge)
{
	ListCell *cell;

	if (merge->is_merging)
		end_merge(merge);
	foreach(cell, merge->runs)
		close_run(lfirst(cell));
	list_free(merge->runs);
	merge->runs = NIL;
	merge->count = 0;
}
