/*
 * aggregate_spill.c
 *		Rows of a ColumnarAggregate whose groups do not fit into memory.
 *
 * When memory is full no groups are added any more.  Rows of groups that are there go on being
 * aggregated; the others are written to one of 16 files, by a hash of their keys.  At the end of
 * its input the node returns the groups that it has, and then does the same for each file:
 * a file whose groups do not fit either is split by the next bits of the hash.  Each round keeps
 * some groups, so there are fewer rows in the next one; when the bits are used up, which takes
 * more groups than there can be, the rest takes the memory that it needs.
 *
 * Rows of a group keep their order, all of them in memory, or all in one file, which exact sums
 * of floats depend on.  What is written are the columns that the node reads, not what is computed
 * from them: it is computed again.  (So nothing is for rows that a FILTER leaves out.)
 *
 * The limit is for adding groups; states of groups that are there may outgrow it.
 */
#include "exec/aggregate/aggregate_internal.h"

#include "nodes/nodeFuncs.h"
#include "utils/memutils.h"

void
aggregate_hash_rows(ColumnarAggregateState *state, const uint16 *selection, uint32 nselected)
{
	Vector **keys = palloc(sizeof(Vector *) * state->nkeys);

	if (state->hash == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(state->context);

		state->hash = vector_hash_create(state->nkeys, state->key_types);
		MemoryContextSwitchTo(caller);
	}
	for (int i = 0; i < state->nkeys; i++)
		keys[i] = state->inputs[state->keys[i]].values;
	vector_hash_rows(state->hash, keys, selection, nselected, state->hashes);
}

/* ---- writing ------------------------------------------------------------------------------------ */

static void
create_files(ColumnarAggregateState *state)
{
	MemoryContext caller = MemoryContextSwitchTo(state->context);
	int ncolumns = list_length(state->columns);
	VectorKey *types = palloc(sizeof(VectorKey) * Max(ncolumns, 1));
	ListCell *cell;

	foreach(cell, state->columns)
		types[foreach_current_index(cell)] = (VectorKey){.type = exprType(lfirst(cell)),
														 .typmod = exprTypmod(lfirst(cell)),
														 .collation = exprCollation(lfirst(cell))};
	state->files = palloc(sizeof(VectorFile *) * SPLIT_PARTS);
	for (int i = 0; i < SPLIT_PARTS; i++)
		state->files[i] = vector_file_create(ncolumns, types);
	pfree(types);
	MemoryContextSwitchTo(caller);
}

void
aggregate_close_groups(ColumnarAggregateState *state)
{
	const AggregatePart *part = linitial(state->parts);

	if (state->files != NULL || part->nbits + SPLIT_BITS > SPLIT_BITS_MAX)
		return;
	vector_groups_close(state->groups);
	create_files(state);
	state->spills++;
}

/* The columns of the batch that the node reads. */
static Vector **
collect_columns(const ColumnarAggregateState *state, const VectorInput *input)
{
	int ncolumns = list_length(state->columns);
	Vector *vectors = palloc(sizeof(Vector) * Max(ncolumns, 1));
	Vector **columns = palloc(sizeof(Vector *) * Max(ncolumns, 1));

	for (int i = 0; i < ncolumns; i++)
	{
		AttrNumber number = input->attributes ? input->attributes[i] : (AttrNumber) (i + 1);

		columns[i] = &vectors[i];
		input->batch->get_column(input->batch, number, columns[i]);
	}
	return columns;
}

/* Writes rows, each to the file of its hash. */
static void
write_rows(ColumnarAggregateState *state, const VectorInput *input, const uint16 *rows, uint32 n)
{
	const AggregatePart *part = linitial(state->parts);
	uint16 of_file[SPLIT_PARTS][BLOCK_ROWS];
	uint32 counts[SPLIT_PARTS] = {0};
	Vector **columns = collect_columns(state, input);

	aggregate_hash_rows(state, rows, n);
	for (uint32 i = 0; i < n; i++)
	{
		uint32 file = (uint32) (state->hashes[i] >> part->nbits) & (SPLIT_PARTS - 1);

		of_file[file][counts[file]++] = rows[i];
	}
	for (int i = 0; i < SPLIT_PARTS; i++)
		if (counts[i] > 0)
			vector_file_write(state->files[i], columns, of_file[i], counts[i]);
}

void
aggregate_put_aside(ColumnarAggregateState *state, VectorInput *input)
{
	uint16 others[BLOCK_ROWS];
	uint32 nothers = 0;
	uint32 kept = 0;

	for (uint32 i = 0; i < input->nselected; i++)
	{
		uint16 row = input->selection[i];

		if (state->numbers[i] == VECTOR_NO_GROUP)
			others[nothers++] = row;
		else
		{
			state->numbers[kept] = state->numbers[i];
			state->chosen[kept++] = row;
		}
	}
	if (nothers > 0)
		write_rows(state, input, others, nothers);
	input->selection = state->chosen;
	input->nselected = kept;
}

/* ---- parts -------------------------------------------------------------------------------------- */

static void
drop_part(ColumnarAggregateState *state)
{
	AggregatePart *part = linitial(state->parts);

	if (part->file != NULL)
		vector_file_close(part->file);
	pfree(part);
	state->parts = list_delete_first(state->parts);
}

/* Makes parts of the files that rows were put into. */
static void
add_files(ColumnarAggregateState *state)
{
	int nbits = ((AggregatePart *) linitial(state->parts))->nbits + SPLIT_BITS;

	for (int i = 0; i < SPLIT_PARTS; i++)
	{
		AggregatePart *part;

		if (vector_file_count(state->files[i]) == 0)
		{
			vector_file_close(state->files[i]);
			continue;
		}
		part = palloc(sizeof(AggregatePart));
		part->nbits = nbits;
		part->file = state->files[i];
		/* behind the part at work */
		state->parts = list_insert_nth(state->parts, 1, part);
	}
	pfree(state->files);
	state->files = NULL;
}

void
aggregate_end_parts(ColumnarAggregateState *state)
{
	MemoryContext caller = MemoryContextSwitchTo(state->context);

	if (state->files != NULL)
		add_files(state);
	while (state->parts != NIL)
		drop_part(state);
	MemoryContextSwitchTo(caller);
}

void
aggregate_begin_parts(ColumnarAggregateState *state)
{
	MemoryContext caller;

	aggregate_end_parts(state);
	caller = MemoryContextSwitchTo(state->context);
	state->parts = list_make1(palloc0(sizeof(AggregatePart)));
	MemoryContextSwitchTo(caller);
}

bool
aggregate_next_part(ColumnarAggregateState *state)
{
	MemoryContext caller = MemoryContextSwitchTo(state->context);
	bool has_next;

	if (state->files != NULL)
		add_files(state);
	has_next = list_length(state->parts) > 1;
	if (has_next)
		drop_part(state);
	MemoryContextSwitchTo(caller);
	return has_next;
}

bool
aggregate_next_input(ColumnarAggregateState *state, VectorInput *input)
{
	const AggregatePart *part = linitial(state->parts);
	VectorBatch *batch;

	if (part->file == NULL)
		return batch_reader_next(&state->reader, input);
	batch = vector_file_read(part->file);
	if (batch == NULL)
		return false;
	input->batch = batch;
	input->attributes = NULL;
	input->selection = batch->selection;
	input->nselected = batch->nselected;
	input->number = ++state->reader.number;
	return true;
}
