/*
 * aggregate_distinct.c
 *		Aggregates of distinct values in a ColumnarAggregate: count(DISTINCT x) and its like.
 *
 * Each has a set of the pairs of group and argument that it has met; a row whose pair is new
 * advances the states.  When the sets outgrow their part of memory no pairs are added any more:
 * rows of pairs that are there go on being left out, the others are written, pair by pair, to one
 * of 16 files by a hash of the pair.  When all input was read, and before groups are returned,
 * each file is read with an empty set, and split by the next bits of the hash if it is too large
 * for one, too.  A pair is counted once: it is in the set, or in one file.
 *
 * The numbers of groups in the files are those of the groups in memory, so all files are done
 * before groups are forgotten (aggregate_spill.c makes others of rows that it put aside).
 *
 * Rows of a pair keep their order, so it is the first one that counts, where equal values differ.
 * States are not advanced in the order of the rows: the planner leaves sums of floats to core.
 */
#include "exec/aggregate/aggregate_internal.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/* A set may have so much of memory (1 / n), whatever groups and states take. */
#define SET_SHARE 4

/* Columns of a file, and keys of a set. */
enum
{
	PAIR_GROUP,
	PAIR_ARGUMENT,
	PAIR_COLUMNS
};

struct AggregateDistinct
{
	VectorGroups *pairs;
	VectorKey types[PAIR_COLUMNS];
	MemoryContext context;
	VectorHash *hash;	/* NULL until it is needed */
	VectorFile **files; /* the rows of other pairs, by hash; NULL: pairs are added */
	List *parts; /* AggregatePart that are to be done; at the end of input, the first is at work */
};

AggregateDistinct *
aggregate_distinct_create(const Aggref *aggref)
{
	AggregateDistinct *distinct = palloc0(sizeof(AggregateDistinct));

	distinct->context = CurrentMemoryContext;
	distinct->types[PAIR_GROUP] = (VectorKey){.type = INT8OID, .typmod = -1};
	distinct->types[PAIR_ARGUMENT] = vector_key_of(
		(Node *) linitial_node(TargetEntry, aggref->args)->expr);
	distinct->pairs = vector_groups_create(PAIR_COLUMNS, distinct->types);
	return distinct;
}

/* ---- files -------------------------------------------------------------------------------------- */

/* Bits of the hash by which the rows at work were chosen. */
static int
used_bits(const AggregateDistinct *distinct)
{
	return distinct->parts == NIL ? 0 : ((AggregatePart *) linitial(distinct->parts))->nbits;
}

/* No pairs are added any more, unless the hash cannot divide them further. */
static void
close_set(ColumnarAggregateState *state, AggregateDistinct *distinct)
{
	MemoryContext caller;

	if (distinct->files != NULL || used_bits(distinct) + SPLIT_BITS > SPLIT_BITS_MAX)
		return;
	caller = MemoryContextSwitchTo(distinct->context);
	if (distinct->hash == NULL)
		distinct->hash = vector_hash_create(PAIR_COLUMNS, distinct->types);
	distinct->files = palloc(sizeof(VectorFile *) * SPLIT_PARTS);
	for (int i = 0; i < SPLIT_PARTS; i++)
		distinct->files[i] = vector_file_create(PAIR_COLUMNS, distinct->types);
	vector_groups_close(distinct->pairs);
	MemoryContextSwitchTo(caller);
	state->spills++;
}

/* Writes rows whose pairs are not in the set, each to the file of its hash. */
static void
put_aside(AggregateDistinct *distinct, Vector *const *pair, const uint16 *rows, uint32 n)
{
	int shift = used_bits(distinct);
	uint16 of_file[SPLIT_PARTS][BLOCK_ROWS];
	uint32 counts[SPLIT_PARTS] = {0};
	uint64 hashes[BLOCK_ROWS];

	vector_hash_rows(distinct->hash, pair, rows, n, hashes);
	for (uint32 i = 0; i < n; i++)
	{
		uint32 file = (uint32) (hashes[i] >> shift) & (SPLIT_PARTS - 1);

		of_file[file][counts[file]++] = rows[i];
	}
	for (int i = 0; i < SPLIT_PARTS; i++)
		if (counts[i] > 0)
			vector_file_write(distinct->files[i], pair, of_file[i], counts[i]);
}

/* Makes parts of the files that have rows, for after the part at work, whose bits are `nbits`. */
static void
add_parts(AggregateDistinct *distinct, int nbits)
{
	MemoryContext caller = MemoryContextSwitchTo(distinct->context);

	for (int i = 0; i < SPLIT_PARTS; i++)
	{
		AggregatePart *part;

		if (vector_file_count(distinct->files[i]) == 0)
		{
			vector_file_close(distinct->files[i]);
			continue;
		}
		part = palloc(sizeof(AggregatePart));
		part->nbits = nbits + SPLIT_BITS;
		part->file = distinct->files[i];
		distinct->parts = lcons(part, distinct->parts);
	}
	pfree(distinct->files);
	distinct->files = NULL;
	MemoryContextSwitchTo(caller);
}

static void
drop_first_part(AggregateDistinct *distinct)
{
	AggregatePart *part = linitial(distinct->parts);

	vector_file_close(part->file);
	pfree(part);
	distinct->parts = list_delete_first(distinct->parts);
}

/* ---- rows --------------------------------------------------------------------------------------- */

/* Of rows whose argument is not NULL, those of new pairs, into state->filtered; returns how many. */
static uint32
choose_new_pairs(ColumnarAggregateState *state, AggregateDistinct *distinct, Vector *argument,
				 uint32 present)
{
	Vector *pair[PAIR_COLUMNS] = {&state->group_vector, argument};
	uint32 known = vector_groups_count(distinct->pairs);
	uint16 others[BLOCK_ROWS];
	uint32 nothers = 0;
	uint32 kept = 0;
	uint32 pairs[BLOCK_ROWS];

	vector_groups_assign(distinct->pairs, pair, state->filtered, present, pairs);
	/* pairs are numbered as they appear */
	for (uint32 i = 0; i < present; i++)
	{
		uint16 row = state->filtered[i];

		if (pairs[i] == VECTOR_NO_GROUP)
			others[nothers++] = row;
		else if (pairs[i] == known)
		{
			known++;
			state->filtered[kept] = row;
			state->filtered_numbers[kept++] = (uint32) state->group_words[row];
		}
	}
	if (nothers > 0)
		put_aside(distinct, pair, others, nothers);
	return kept;
}

uint32
aggregate_distinct_choose(ColumnarAggregateState *state, AggregateDistinct *distinct,
						  Vector *argument, const VectorRows *rows)
{
	uint32 present = 0;

	for (uint32 i = 0; i < rows->nselected; i++)
	{
		uint16 row = rows->selection[i];

		state->group_words[row] = rows->groups ? rows->groups[i] : 0;
		state->filtered[present] = row;
		present += !vector_is_null(argument, row);
	}
	return choose_new_pairs(state, distinct, argument, present);
}

/* ---- memory ------------------------------------------------------------------------------------- */

Size
aggregate_distinct_memory(const ColumnarAggregateState *state)
{
	Size memory = 0;

	for (int i = 0; i < state->ntransitions; i++)
		if (state->transitions[i].distinct != NULL)
			memory += vector_groups_memory(state->transitions[i].distinct->pairs);
	return memory;
}

bool
aggregate_distinct_close(ColumnarAggregateState *state)
{
	Size sets = 0;
	uint32 nopen = 0;
	bool closed = false;

	for (int i = 0; i < state->ntransitions; i++)
	{
		const AggregateDistinct *distinct = state->transitions[i].distinct;

		if (distinct == NULL || distinct->files != NULL)
			continue;
		sets += vector_groups_memory(distinct->pairs);
		nopen++;
	}
	if (sets <= state->limit / SET_SHARE)
		return false;
	/* those that are not smaller than others */
	for (int i = 0; i < state->ntransitions; i++)
	{
		AggregateDistinct *distinct = state->transitions[i].distinct;

		if (distinct == NULL || distinct->files != NULL ||
			vector_groups_memory(distinct->pairs) < sets / nopen)
			continue;
		close_set(state, distinct);
		closed = true;
	}
	return closed;
}

void
aggregate_distinct_forget(AggregateDistinct *distinct)
{
	if (distinct->files != NULL)
		add_parts(distinct, 0);
	while (distinct->parts != NIL)
		drop_first_part(distinct);
	vector_groups_reset(distinct->pairs);
}

/* ---- what was put aside ------------------------------------------------------------------------- */

/* Advances the states by a batch of a file. */
static void
take_pairs(ColumnarAggregateState *state, AggregateTransition *transition, VectorBatch *batch)
{
	Vector argument;
	Vector *arguments[] = {&argument};
	Vector groups;
	VectorRows rows;
	uint32 kept;

	batch->get_column(batch, PAIR_GROUP + 1, &groups);
	batch->get_column(batch, PAIR_ARGUMENT + 1, &argument);
	for (uint32 i = 0; i < batch->nselected; i++)
	{
		uint16 row = batch->selection[i];
		bool isnull;

		state->group_words[row] = DatumGetInt64(vector_datum(&groups, row, &isnull));
		state->filtered[i] = row;
	}
	kept = choose_new_pairs(state, transition->distinct, &argument, batch->nselected);
	if (kept == 0)
		return;
	vector_rows_init(&rows, batch->nrows, state->filtered, kept,
					 state->groups ? state->filtered_numbers : NULL, state->ngroups);
	vector_aggregate_advance(transition->states, arguments, &rows);
}

/* The first part, with an empty set. */
static void
take_part(ColumnarAggregateState *state, AggregateTransition *transition, Size limit)
{
	AggregateDistinct *distinct = transition->distinct;
	VectorFile *file = ((AggregatePart *) linitial(distinct->parts))->file;
	int nbits = used_bits(distinct);
	ExprContext *econtext = state->custom.ss.ps.ps_ExprContext;
	VectorBatch *batch;

	vector_groups_reset(distinct->pairs);
	while ((batch = vector_file_read(file)) != NULL)
	{
		MemoryContext caller;

		CHECK_FOR_INTERRUPTS();
		ResetExprContext(econtext);
		caller = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
		take_pairs(state, transition, batch);
		MemoryContextSwitchTo(caller);
		if (vector_groups_memory(distinct->pairs) > limit)
			close_set(state, distinct);
	}
	/* before those that it was divided into take its place */
	drop_first_part(distinct);
	if (distinct->files != NULL)
		add_parts(distinct, nbits);
}

void
aggregate_distinct_finish(ColumnarAggregateState *state, Size others)
{
	Size limit = Max(state->limit - Min(others, state->limit), state->limit / SET_SHARE);

	/* all pairs in the sets were counted; those in files are others */
	for (int i = 0; i < state->ntransitions; i++)
	{
		AggregateDistinct *distinct = state->transitions[i].distinct;

		if (distinct == NULL || distinct->files == NULL)
			continue;
		add_parts(distinct, 0);
		vector_groups_reset(distinct->pairs);
	}
	for (int i = 0; i < state->ntransitions; i++)
	{
		AggregateDistinct *distinct = state->transitions[i].distinct;

		if (distinct == NULL)
			continue;
		while (distinct->parts != NIL)
			take_part(state, &state->transitions[i], limit);
		vector_groups_reset(distinct->pairs);
	}
}
