/*
 * join_probe.c
 *		What a ColumnarJoin makes of a probe batch: the rows of the result.
 *
 * The result has one of two layouts.  If no two build rows have the same keys, a probe row has
 * at most one partner, and the result has the positions of the probe batch: its columns
 * are handed through, and still not decoded if nobody asks for them.  Else pairs of a
 * probe row and a build row are listed, as many as a batch has room for, and the columns
 * of both sides are gathered.  In both cases a column is made when it is asked for.
 *
 * Conditions that are no keys are evaluated over candidates in the same layouts.  What
 * remains for outer, semi and anti joins is known when all candidates of a probe batch
 * are through (probe rows), or at the end (build rows, which are marked).
 */
#include "exec/join/join_internal.h"

#include "exec/join/vector_join_index.h"

/* ---- the result --------------------------------------------------------------------------------- */

static void
make_column(ColumnarJoinState *state, JoinColumn *column, AttrNumber number)
{
	VectorInput *probe = &state->input;

	if (!column->of_probe)
	{
		vector_store_gather(state->store, column->index, state->rows,
							state->layout == JOIN_LAYOUT_PAIRS ? NULL : state->positions,
							state->nrows, column->buffer, &column->vector);
		return;
	}
	if (state->phase == JOIN_PHASE_REST)
		vector_make_null(&column->type, column->buffer, &column->vector);
	else if (state->layout == JOIN_LAYOUT_PROBE)
		probe->batch->get_column(probe->batch, probe->attributes[number - 1], &column->vector);
	else
	{
		Vector whole;

		probe->batch->get_column(probe->batch, probe->attributes[number - 1], &whole);
		vector_gather(&whole, state->positions, state->nrows, column->buffer, &column->vector);
	}
}

void
join_get_column(VectorBatch *batch, AttrNumber number, Vector *into)
{
	ColumnarJoinState *state = batch->owner;
	JoinColumn *column = &state->columns[number - 1];

	if (column->number != state->number)
	{
		make_column(state, column, number);
		column->number = state->number;
	}
	*into = column->vector;
}

/* The candidates in positions[] and rows[] are a batch now, of all of them. */
static void
begin_batch(ColumnarJoinState *state, JoinLayout layout, uint32 nrows)
{
	VectorBatch *batch = &state->source.batch;

	state->number++;
	state->layout = layout;
	state->nrows = nrows;
	batch->nselected = nrows;
	if (layout == JOIN_LAYOUT_PROBE)
	{
		batch->nrows = state->input.batch->nrows;
		memcpy(state->selection, state->positions, sizeof(uint16) * nrows);
		return;
	}
	batch->nrows = nrows;
	for (uint32 i = 0; i < nrows; i++)
		state->selection[i] = (uint16) i;
}

/* Narrows the batch's selection to the rows that pass. */
static void
filter_batch(ColumnarJoinState *state, VectorExpression *condition, uint64 *removed)
{
	VectorBatch *batch = &state->source.batch;
	VectorInput input = {.batch = batch,
						 .selection = batch->selection,
						 .nselected = batch->nselected,
						 .number = state->number};
	uint32 kept = vector_expression_filter(condition, &input, batch->selection);

	*removed += batch->nselected - kept;
	batch->nselected = kept;
}

/* The batch as it is handed up; false if nothing of it is left. */
static bool
finish_batch(ColumnarJoinState *state)
{
	if (state->filters != NULL && state->source.batch.nselected > 0)
		filter_batch(state, state->filters, &state->removed_rows);
	return state->source.batch.nselected > 0;
}

/* ---- probe: at most one partner ----------------------------------------------------------------- */

static inline void
mark_build_row(ColumnarJoinState *state, uint32 row)
{
	state->marks[row >> 6] |= UINT64CONST(1) << (row & 63);
}

static uint32
list_matched(ColumnarJoinState *state)
{
	return join_list_found(state->found, state->input.selection, state->input.nselected,
						   state->positions, state->rows);
}

static uint32
list_unmatched(ColumnarJoinState *state)
{
	uint32 n = 0;

	for (uint32 i = 0; i < state->input.nselected; i++)
	{
		state->positions[n] = state->input.selection[i];
		state->rows[n] = VECTOR_NO_ROW;
		n += state->found[i] == VECTOR_NO_ROW;
	}
	return n;
}

static uint32
list_all(ColumnarJoinState *state)
{
	memcpy(state->positions, state->input.selection, sizeof(uint16) * state->input.nselected);
	memcpy(state->rows, state->found, sizeof(uint32) * state->input.nselected);
	return state->input.nselected;
}

/* Takes partners back with whom the conditions are not true. */
static void
check_conditions(ColumnarJoinState *state)
{
	uint32 kept = 0;
	const uint16 *passed = state->source.batch.selection;

	begin_batch(state, JOIN_LAYOUT_PROBE, list_matched(state));
	if (state->nrows > 0)
		filter_batch(state, state->conditions, &state->removed_candidates);
	for (uint32 i = 0; i < state->input.nselected; i++)
	{
		if (kept < state->source.batch.nselected && passed[kept] == state->input.selection[i])
			kept++;
		else
			state->found[i] = VECTOR_NO_ROW;
	}
}

/* Do those probe rows come out that have a partner, and no other? */
static bool
emits_matched_only(const ColumnarJoinState *state)
{
	return state->kind == JOIN_KIND_INNER || state->kind == JOIN_KIND_BUILD_OUTER ||
		   state->kind == JOIN_KIND_PROBE_SEMI;
}

/* The n probe rows in positions[] are all of the batch that have a partner, each its only one. */
static bool
emit_matched(ColumnarJoinState *state, uint32 n)
{
	if (join_emits_build_rows(state))
	{
		for (uint32 i = 0; i < n; i++)
			mark_build_row(state, state->rows[i]);
	}
	begin_batch(state, JOIN_LAYOUT_PROBE, n);
	return finish_batch(state);
}

/* Each row of the probe batch has its only partner in found[], or none; is there a batch to hand up? */
static bool
emit_single(ColumnarJoinState *state)
{
	uint32 n = 0;

	if (emits_matched_only(state))
		return emit_matched(state, list_matched(state));
	if (join_emits_build_rows(state))
	{
		for (uint32 i = 0; i < state->input.nselected; i++)
			if (state->found[i] != VECTOR_NO_ROW)
				mark_build_row(state, state->found[i]);
	}
	switch (state->kind)
	{
		case JOIN_KIND_PROBE_OUTER:
		case JOIN_KIND_FULL:
			n = list_all(state);
			break;
		case JOIN_KIND_PROBE_ANTI:
			n = list_unmatched(state);
			break;
		default: /* only build rows come out */
			break;
	}
	begin_batch(state, JOIN_LAYOUT_PROBE, n);
	return finish_batch(state);
}

/* ---- probe: pairs ------------------------------------------------------------------------------- */

/* Lists the next pairs of the probe batch, as many as there is room for. */
static uint32
list_pairs(ColumnarJoinState *state)
{
	uint32 n = 0;

	while (state->next < state->input.nselected && n < BLOCK_ROWS)
	{
		uint16 position = state->input.selection[state->next];
		uint32 row = state->next_row;

		for (; row != VECTOR_NO_ROW && n < BLOCK_ROWS; n++)
		{
			state->positions[n] = position;
			state->rows[n] = row;
			row = vector_join_table_next(state->table, row);
		}
		state->next_row = row;
		if (row == VECTOR_NO_ROW && ++state->next < state->input.nselected)
			state->next_row = state->found[state->next];
	}
	return n;
}

/* Notes which rows of both sides the pairs of the batch show to have a partner. */
static void
note_partners(ColumnarJoinState *state)
{
	const VectorBatch *batch = &state->source.batch;

	if (join_emits_build_rows(state))
	{
		for (uint32 i = 0; i < batch->nselected; i++)
			mark_build_row(state, state->rows[batch->selection[i]]);
	}
	for (uint32 i = 0; i < batch->nselected; i++)
		state->matched[state->positions[batch->selection[i]]] = true;
}

/* Do pairs of rows come out? */
static bool
emits_pairs(const ColumnarJoinState *state)
{
	return state->kind <= JOIN_KIND_FULL;
}

/* The rows of the probe batch that come out by themselves, when all their pairs are known. */
static bool
emit_remaining(ColumnarJoinState *state)
{
	bool wanted = state->kind == JOIN_KIND_PROBE_SEMI;
	uint32 n = 0;

	state->phase = JOIN_PHASE_PROBE;
	if (!wanted && !join_emits_unmatched_probe_rows(state))
		return false;
	for (uint32 i = 0; i < state->input.nselected; i++)
	{
		uint16 position = state->input.selection[i];

		state->positions[n] = position;
		state->rows[n] = VECTOR_NO_ROW;
		n += state->matched[position] == wanted;
	}
	begin_batch(state, JOIN_LAYOUT_PROBE, n);
	return finish_batch(state);
}

bool
join_emit_pairs(ColumnarJoinState *state)
{
	uint32 n = list_pairs(state);

	if (n == 0)
		return emit_remaining(state);
	begin_batch(state, JOIN_LAYOUT_PAIRS, n);
	if (state->conditions != NULL)
		filter_batch(state, state->conditions, &state->removed_candidates);
	note_partners(state);
	return emits_pairs(state) && finish_batch(state);
}

/* ---- probe -------------------------------------------------------------------------------------- */

/* Do semi and anti joins know all of a row from its first partner? */
static bool
needs_one_partner(const ColumnarJoinState *state)
{
	return state->conditions == NULL &&
		   (state->kind == JOIN_KIND_PROBE_SEMI || state->kind == JOIN_KIND_PROBE_ANTI);
}

/* Marks the build rows that have a partner in the batch; rows of equal keys are marked together. */
static void
mark_found(ColumnarJoinState *state)
{
	for (uint32 i = 0; i < state->input.nselected; i++)
	{
		uint32 row = state->found[i];

		if (row == VECTOR_NO_ROW || vector_bit(state->marks, row))
			continue;
		for (; row != VECTOR_NO_ROW; row = vector_join_table_next(state->table, row))
			mark_build_row(state, row);
	}
}

/* Looks up the batch's keys; how many of them have a partner. */
static uint32
find_partners(ColumnarJoinState *state)
{
	return vector_join_table_find(state->table, state->probe.key_values, state->input.selection,
								  state->input.nselected, state->found);
}

static uint32
list_partners(ColumnarJoinState *state)
{
	return vector_join_table_list(state->table, state->probe.key_values, state->input.selection,
								  state->input.nselected, state->positions, state->rows);
}

bool
join_probe_batch(ColumnarJoinState *state)
{
	MemoryContext caller = MemoryContextSwitchTo(
		state->source.custom.ss.ps.ps_ExprContext->ecxt_per_tuple_memory);
	bool single = vector_join_table_is_unique(state->table) || needs_one_partner(state);
	bool listed = single && state->conditions == NULL && emits_matched_only(state);
	uint32 nfound = listed ? list_partners(state) : find_partners(state);

	MemoryContextSwitchTo(caller);
	state->rate.asked += state->input.nselected;
	state->rate.passed += join_emits_unmatched_probe_rows(state) ? state->input.nselected : nfound;

	if (listed)
		return emit_matched(state, nfound);
	if (state->conditions == NULL &&
		(state->kind == JOIN_KIND_BUILD_SEMI || state->kind == JOIN_KIND_BUILD_ANTI))
	{
		mark_found(state);
		return false;
	}
	if (single)
	{
		if (state->conditions != NULL)
			check_conditions(state);
		return emit_single(state);
	}
	state->phase = JOIN_PHASE_PAIRS;
	state->next = 0;
	state->next_row = state->found[0];
	memset(state->matched, 0, sizeof(state->matched));
	return false;
}

bool
join_emit_rest(ColumnarJoinState *state)
{
	bool wanted = state->kind == JOIN_KIND_BUILD_SEMI;
	uint32 count = vector_store_count(state->store);
	uint32 n = 0;

	for (; state->next < count && n < BLOCK_ROWS; state->next++)
	{
		state->rows[n] = state->next;
		n += vector_bit(state->marks, state->next) == wanted;
	}
	begin_batch(state, JOIN_LAYOUT_PAIRS, n);
	return finish_batch(state);
}
