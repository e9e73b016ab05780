/*
 * write_buffer.h
 *		Rows of this transaction that are not yet stored: one buffer per table and
 *		subtransaction, which becomes a row group.
 *
 * A row has its number from the moment it is appended: the buffer reserves row
 * numbers by inserting an OPEN record (64 at first, then more and more, growing
 * the range in place while nobody else reserves behind it).  A buffer is stored
 *	 - when it is full (rows, or bytes, or the session's write memory),
 *	 - when its subtransaction ends, at pre-commit and at pre-prepare,
 *	 - before this session reads the table (write_buffer_flush()),
 *	 - before the table's file changes (truncate, rewrite, tablespace).
 * Only the subtransaction that owns a buffer may store it inline (part tuples
 * carry the current subtransaction's id); in a child it is stored in an extent.
 * On abort the buffers of the subtransaction are forgotten; their records die
 * with it.
 *
 * Rows of several commands may share a buffer; the record keeps which (see
 * CommandRun), so that an older cursor of this transaction does not see later rows.
 */
#ifndef COLUMNAR_WRITE_BUFFER_H
#define COLUMNAR_WRITE_BUFFER_H

#include "store/value/column_values.h"
#include "store/catalog/group_catalog.h"

#include "executor/tuptable.h"

/* Registers the transaction callbacks; called by _PG_init(). */
extern void write_buffer_initialize(void);

/* Appends the slot's row and returns its number.  `bulk`: many rows are likely (COPY). */
extern uint64
write_buffer_append(Relation relation, TupleTableSlot *slot, CommandId cid, bool bulk);

/*
 * Room at the end of the buffer for rows of a command: whoever has them by columns appends up to
 * `nrows` values to each column whose type is not NULL (the others are dropped), and says with
 * write_buffer_take_back() how many.  In between nothing else may be done with the table.
 */
typedef struct WriteRoom
{
	struct WriteBuffer *buffer;
	ColumnValues *columns; /* by attribute - 1 */
	int natts;
	uint32 nrows; /* at least 1 */
} WriteRoom;

extern void write_buffer_lend(Relation relation, CommandId cid, WriteRoom *room);
extern void write_buffer_take_back(Relation relation, const WriteRoom *room, uint32 nrows);

/* Marks the row appended last as speculative with a token, and ends that (killed: the row is gone). */
extern void write_buffer_set_speculative(Relation relation, uint64 row, uint32 token);
extern void write_buffer_end_speculative(Relation relation, uint64 row, bool killed);

/* Stores all buffers of the table, of all subtransactions. */
extern void write_buffer_flush(Relation relation);
/* Forgets them (the file that they were for was truncated in place). */
extern void write_buffer_discard(Relation relation);
/* Is anything buffered for the table? Cheap. */
extern bool write_buffer_is_empty(Oid relation);

/*
 * Is the row in a buffer of this session?  Then its values go into the slot (if not
 * NULL; a virtual slot, datums in its context) and *cid is the command that appended it.
 */
extern bool write_buffer_fetch(Relation relation, uint64 row, TupleTableSlot *slot, CommandId *cid);

#endif
