/*
 * write_buffer_encode.c
 *		From the rows of a write buffer to the bytes and the record of a row group.
 *
 * Also keeps which commands the rows are from, which ends up in the record (see
 * CommandRun): runs of commands of equally many rows, at regular steps.
 */
#include "store/rows/write_buffer_internal.h"

#include "store/catalog/row_group.h"

/* ---- commands ---------------------------------------------------------------------------------- */

/* Adds a finished command to runs[], to the last run if it continues that. */
static void
add_command(CommandRun *runs, int *nruns, CommandId command, uint32 rows)
{
	CommandRun *last = *nruns > 0 ? &runs[*nruns - 1] : NULL;

	if (last != NULL && last->rows == rows)
	{
		if (last->repeats == 1)
			last->step = command - last->first;
		if (command == last->first + last->step * last->repeats)
		{
			last->repeats++;
			return;
		}
	}
	Assert(*nruns < GROUP_COMMAND_RUNS);
	runs[*nruns] = (CommandRun){.first = command, .step = 0, .rows = rows, .repeats = 1};
	(*nruns)++;
}

static void
finish_command(WriteBuffer *buffer)
{
	if (buffer->command_rows > 0)
		add_command(buffer->runs, &buffer->nruns, buffer->command, buffer->command_rows);
	buffer->command_rows = 0;
	buffer->command_first = buffer->nrows;
}

bool
write_buffer_begin_command(WriteBuffer *buffer, CommandId command)
{
	if (command < buffer->command)
		return false;
	finish_command(buffer);
	buffer->command = command;
	return buffer->nruns < GROUP_COMMAND_RUNS;
}

CommandId
write_buffer_find_command(const WriteBuffer *buffer, uint32 position)
{
	uint32 stored = position; /* rows before it that were not taken back */
	int removed = -1;

	if (position >= buffer->command_first)
		return buffer->command;
	while ((removed = bms_next_member(buffer->removed, removed)) >= 0 && removed < position)
		stored--;
	for (int i = 0; i < buffer->nruns; i++)
	{
		const CommandRun *run = &buffer->runs[i];

		if (stored < (uint64) run->rows * run->repeats)
			return run->first + run->step * (stored / run->rows);
		stored -= run->rows * run->repeats;
	}
	return buffer->command;
}

/* ---- rows --------------------------------------------------------------------------------------- */

static ColumnValues *
select_rows(const ColumnValues *columns, int natts, const uint32 *order, uint32 nrows)
{
	ColumnValues *selected = palloc0(sizeof(ColumnValues) * Max(natts, 1));

	for (int i = 0; i < natts; i++)
	{
		if (columns[i].type != NULL)
			column_values_select(&selected[i], &columns[i], order, nrows);
	}
	return selected;
}

/* Positions of the rows that were not taken back. */
static uint32 *
list_kept_rows(const WriteBuffer *buffer)
{
	uint32 *order = palloc(sizeof(uint32) * buffer->nrows);
	uint32 n = 0;

	for (uint32 i = 0; i < buffer->nrows; i++)
	{
		if (!bms_is_member((int) i, buffer->removed))
			order[n++] = i;
	}
	return order;
}

/* The record's runs: none if one command wrote all rows, or nobody will ask any more. */
static void
set_runs(WriteBuffer *buffer, GroupRecord *record, bool is_final)
{
	finish_command(buffer);
	record->nruns = 0;
	memset(record->runs, 0, sizeof(record->runs));
	if (is_final || (buffer->nruns == 1 && buffer->runs[0].repeats == 1 &&
					 buffer->runs[0].first == buffer->first_command))
		return;
	record->nruns = buffer->nruns;
	memcpy(record->runs, buffer->runs, sizeof(CommandRun) * buffer->nruns);
}

void
write_buffer_encode(WriteBuffer *buffer, GroupRecord *record, bool is_final, ByteBuffer *bytes)
{
	uint32 nrows = buffer->nrows - buffer->nremoved;
	const ColumnValues *columns = buffer->columns;
	uint32 *order = NULL; /* positions in the buffer; NULL: 0, 1, 2 ... */
	uint32 *sorted;
	uint64 *row_numbers = NULL;

	set_runs(buffer, record, is_final);
	if (buffer->nremoved > 0)
	{
		order = list_kept_rows(buffer);
		columns = select_rows(columns, buffer->natts, order, nrows);
		/* if only the last rows were taken back, the others keep their places */
		if (order[nrows - 1] == nrows - 1)
			order = NULL;
	}

	sorted = row_group_sort_order(record, columns, nrows, buffer->options);
	if (sorted != NULL)
	{
		columns = select_rows(columns, buffer->natts, sorted, nrows);
		if (order != NULL)
		{
			for (uint32 i = 0; i < nrows; i++)
				sorted[i] = order[sorted[i]];
		}
		order = sorted;
	}
	if (order != NULL)
	{
		row_numbers = palloc(sizeof(uint64) * nrows);
		for (uint32 i = 0; i < nrows; i++)
			row_numbers[i] = record->first_row + order[i];
	}
	row_group_encode(record, columns, buffer->natts, nrows, row_numbers, buffer->options, bytes);
}
