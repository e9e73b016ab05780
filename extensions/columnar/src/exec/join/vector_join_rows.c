/*
 * vector_join_rows.c
 *		The words of the keys of a join's rows, by row.
 *
 * Memory: all in the context that join_rows_forget() was told.
 */
#include "exec/join/vector_join_rows.h"

#include "utils/memutils.h"

/* The first segment begins with so much room, and doubles. */
#define FIRST_ROWS GROUP_ROWS

void
join_rows_forget(JoinRows *rows, MemoryContext context, int nkeys)
{
	memset(rows, 0, sizeof(*rows));
	rows->context = context;
	rows->nkeys = nkeys;
}

/* Room for more in the first segment. */
static void
grow_first_segment(JoinRows *rows)
{
	rows->capacity *= 2;
	for (int i = 0; i < rows->nkeys; i++)
	{
		JoinColumn *column = &rows->segments[0][i];

		column->words = repalloc(column->words, sizeof(*column->words) * rows->capacity);
		if (column->tags != NULL)
			column->tags = repalloc(column->tags, sizeof(*column->tags) * rows->capacity);
	}
}

static void
add_segment(JoinRows *rows)
{
	uint32 nrows = rows->nsegments == 0 ? FIRST_ROWS : JOIN_SEGMENT_ROWS;
	JoinColumn *columns = MemoryContextAllocZero(rows->context,
												 sizeof(JoinColumn) * (Size) rows->nkeys);

	for (int i = 0; i < rows->nkeys; i++)
		columns[i].words = MemoryContextAlloc(rows->context, sizeof(*columns[i].words) * nrows);
	if (rows->nsegments == rows->segments_capacity)
	{
		rows->segments_capacity = Max(64, 2 * rows->segments_capacity);
		if (rows->segments == NULL)
			rows->segments = MemoryContextAlloc(rows->context,
												sizeof(JoinColumn *) * rows->segments_capacity);
		else
			rows->segments = repalloc(rows->segments,
									  sizeof(JoinColumn *) * rows->segments_capacity);
	}
	rows->segments[rows->nsegments++] = columns;
	rows->capacity += nrows;
}

/* Keeps words from[first .. first + n - 1] of a key, in its segment's column from row `row` on. */
static void
append_words(const JoinRows *rows, JoinColumn *column, const WordColumn *from, uint32 first,
			 uint32 n, uint32 row)
{
	memcpy(column->words + row, from->words + first, sizeof(int64) * n);
	if (column->tags == NULL && from->tags != NULL)
	{
		uint32 nrows = rows->nsegments == 1 ? rows->capacity : JOIN_SEGMENT_ROWS;

		column->tags = MemoryContextAlloc(rows->context, sizeof(*column->tags) * nrows);
		memset(column->tags, TAG_VALUE, row);
	}
	if (column->tags == NULL)
		return;
	if (from->tags != NULL)
		memcpy(column->tags + row, from->tags + first, n);
	else
		memset(column->tags + row, TAG_VALUE, n);
}

void
join_rows_append(JoinRows *rows, const WordColumn *columns, uint32 n)
{
	for (uint32 done = 0; done < n;)
	{
		uint32 row = rows->count % JOIN_SEGMENT_ROWS;
		uint32 nrows;

		if (rows->count == rows->capacity)
		{
			if (rows->capacity == 0 || rows->capacity >= JOIN_SEGMENT_ROWS)
				add_segment(rows);
			else
				grow_first_segment(rows);
		}
		nrows = Min(n - done, rows->capacity - rows->count);
		for (int i = 0; i < rows->nkeys; i++)
			append_words(rows, &rows->segments[rows->nsegments - 1][i], &columns[i], done, nrows,
						 row);
		rows->count += nrows;
		done += nrows;
	}
}

uint32
join_rows_read(const JoinRows *rows, uint32 first, WordColumn *columns)
{
	const JoinColumn *segment = rows->segments[first / JOIN_SEGMENT_ROWS];
	uint32 row = first % JOIN_SEGMENT_ROWS;

	Assert(first % GROUP_ROWS == 0);
	for (int i = 0; i < rows->nkeys; i++)
	{
		columns[i].words = segment[i].words + row;
		columns[i].tags = segment[i].tags == NULL ? NULL : segment[i].tags + row;
	}
	return Min(rows->count - first, GROUP_ROWS);
}

void
join_rows_approach(const JoinRows *rows, int key, const uint32 *which, uint32 n)
{
	if (sizeof(int64) * (Size) rows->count <= GROUP_CACHE_BYTES)
		return;
	for (uint32 i = 0; i < n; i++)
	{
		uint32 row = which[i] == VECTOR_NO_ROW ? 0 : which[i];

		__builtin_prefetch(
			&rows->segments[row / JOIN_SEGMENT_ROWS][key].words[row % JOIN_SEGMENT_ROWS]);
	}
}

void
join_rows_free(JoinRows *rows)
{
	for (uint32 i = 0; i < rows->nsegments; i++)
	{
		for (int k = 0; k < rows->nkeys; k++)
		{
			pfree(rows->segments[i][k].words);
			if (rows->segments[i][k].tags != NULL)
				pfree(rows->segments[i][k].tags);
		}
		pfree(rows->segments[i]);
	}
	if (rows->segments != NULL)
		pfree(rows->segments);
	join_rows_forget(rows, rows->context, rows->nkeys);
}
