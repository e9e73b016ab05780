/*
 * vector_join_rows.h
 *		The words of the keys of a join's rows, by row.
 *
 * What words and tags are, see vector_groups_internal.h.  They lie in segments, so that nothing
 * is copied when rows come, and little memory waits for rows that never do.
 */
#ifndef COLUMNAR_VECTOR_JOIN_ROWS_H
#define COLUMNAR_VECTOR_JOIN_ROWS_H

#include "exec/keys/vector_groups_internal.h"
#include "exec/collection/vector_store.h"

/* A multiple of GROUP_ROWS: no batch of join_rows_read() is in two segments. */
#define JOIN_SEGMENT_ROWS 16384

typedef struct JoinColumn
{
	int64 *words;
	uint8 *tags; /* made with the first that is not TAG_VALUE */
} JoinColumn;

typedef struct JoinRows
{
	MemoryContext context;
	int nkeys;
	uint32 count;
	uint32 capacity; /* of all segments; only the first can be smaller than others */
	uint32 nsegments;
	uint32 segments_capacity;
	JoinColumn **segments; /* each with a column for each key */
} JoinRows;

/* Forgets all rows: the memory, in `context`, was reset. */
extern void join_rows_forget(JoinRows *rows, MemoryContext context, int nkeys);

/* Adds n rows, whose words of key i are columns[i]. */
extern void join_rows_append(JoinRows *rows, const WordColumn *columns, uint32 n);

/* The words of up to GROUP_ROWS rows from `first` on, which is a multiple of that; returns how many. */
extern uint32 join_rows_read(const JoinRows *rows, uint32 first, WordColumn *columns);

/* A key's words of n rows will be looked at soon; VECTOR_NO_ROW is no row. */
extern void join_rows_approach(const JoinRows *rows, int key, const uint32 *which, uint32 n);

/* Frees all words. */
extern void join_rows_free(JoinRows *rows);

static inline int64
join_rows_word(const JoinRows *rows, int key, uint32 row)
{
	return rows->segments[row / JOIN_SEGMENT_ROWS][key].words[row % JOIN_SEGMENT_ROWS];
}

static inline uint8
join_rows_tag(const JoinRows *rows, int key, uint32 row)
{
	const uint8 *tags = rows->segments[row / JOIN_SEGMENT_ROWS][key].tags;

	return tags == NULL ? TAG_VALUE : tags[row % JOIN_SEGMENT_ROWS];
}

#endif
