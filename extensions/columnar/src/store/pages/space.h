/*
 * space.h
 *		The metapage: next row number, next row group, free extents.
 *
 * Block 0 of the main fork.  A relation without blocks is an empty table: the
 * metapage is made by the first write, so unlogged tables need no init fork of
 * their own kind.  All changes are logged (generic deltas of block 0) and made
 * under the space lock, a heavyweight page lock on block 0 that is held for
 * moments and under which nobody waits for another transaction.  Who only takes row
 * numbers has it shared, so that many sessions insert at once: the metapage's
 * buffer lock keeps their changes apart.
 *
 * Row numbers and group ids only grow; the tail of a reservation that nobody has
 * seen may be given back.  An extent is free when no row group record that is
 * physically present names it, dead ones included: a standby query that could
 * still read the extent is cancelled by the pruning of that record, which is
 * replayed before the overwrite.  So who takes an extent keeps the space lock until
 * a record names it, and who replaces the free list has listed the records under
 * the same holding of the lock; else a taken extent looks free for a moment.
 */
#ifndef COLUMNAR_SPACE_H
#define COLUMNAR_SPACE_H

#include "store/value/format.h"

#include "storage/block.h"
#include "utils/rel.h"

/* Rows of a logical block, as tidbitmap requires; see row_number_to_tid(). */
#define TID_ROWS_PER_BLOCK 291
#define ROW_NUMBER_MAX ((uint64) TID_ROWS_PER_BLOCK * (MaxBlockNumber - 1))

typedef struct Extent
{
	BlockNumber first;
	uint32 nblocks;
} Extent;

typedef struct SpaceState
{
	uint64 next_row;
	uint64 next_group;
	uint32 nfree; /* free extents known */
} SpaceState;

extern void space_lock(Relation relation);
extern void space_unlock(Relation relation);
/*
 * Shared, for space_take_rows(), space_extend_rows(), space_return_rows() and the record
 * that names the rows: whoever lists the records under the lock sees them all.
 */
extern void space_lock_shared(Relation relation);
extern void space_unlock_shared(Relation relation);

/* What the metapage says; zeroes for a relation without blocks.  No lock needed. ERROR on damage. */
extern void space_read(Relation relation, SpaceState *state);

/* The free extents that the metapage names; palloc'ed. */
extern Extent *space_list_free(Relation relation, uint32 *nextents);
/* ERROR if a table whose file has no metapage has row groups: then the file is damaged. */
extern void space_check_empty(Relation relation);

/* Fills block 0, which is there, of the copy of a table that nobody writes now: without free extents. */
extern void space_write_copy(Relation file, const SpaceState *state);

/* The functions below need the space lock, and make the metapage if it is missing. */

/* Takes nrows row numbers and a group id; ERROR program_limit_exceeded past ROW_NUMBER_MAX. */
extern uint64 space_take_rows(Relation relation, uint64 nrows, uint64 *group_id);
/* Takes nrows more directly behind `end`: false when somebody else took these. */
extern bool space_extend_rows(Relation relation, uint64 end, uint64 nrows);
/* Gives back [from, end) if nobody took numbers behind end. */
extern void space_return_rows(Relation relation, uint64 from, uint64 end);
/* An extent of nblocks: a free one (best fit), else new blocks at the end of the file. */
extern BlockNumber space_take_extent(Relation relation, uint32 nblocks);
/* Replaces the list of free extents (the largest are kept when they do not all fit). */
extern void space_set_free(Relation relation, const Extent *extents, uint32 nextents);

#endif
