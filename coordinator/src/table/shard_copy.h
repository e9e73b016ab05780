/*
 * shard_copy.h
 *		Copies a shard's rows from one worker to another, and keeps the copy up with the rows that change.
 */
#ifndef STRATA_SHARD_COPY_H
#define STRATA_SHARD_COPY_H

#include "postgres.h"

#include "utils/relcache.h"

/* One table of the worker that has rows: a shard, or a leaf of one. */
typedef struct ShardCopy ShardCopy;

/*
 * Begin: names on the workers, quoted and qualified.  The target is a new table, of which nobody but this transaction
 * knows.  The source is columnar, or a heap that VACUUM is kept away from.  `condition`: SQL that is true of the rows to be
 * copied, for the same row always; "": all.  Allocated in CurrentMemoryContext.
 */
extern ShardCopy *
shard_copy_begin(Oid relation, int source, const char *source_name, int target,
				 const char *target_name, bool is_columnar, const char *condition);

/*
 * Look at the source: how many rows are to be brought or taken away?  At first not 0, whatever there is.  May be called
 * again before these are, also when the last call has failed.
 */
extern uint64 shard_copy_look(ShardCopy *copy);

/* Has the last look found any that have not been brought or taken away? */
extern bool shard_copy_is_behind(const ShardCopy *copy);

/* Bring and take away what the last look has found.  `between` is called often, and may raise an error. */
extern void
shard_copy_catch_up(ShardCopy *copy, void (*between)(void *argument, int64 rows), void *argument);

/* Rows that the target has; ERROR unless these are what the source had when we last looked.  And what that had, with others. */
extern uint64 shard_copy_count(ShardCopy *copy);
extern uint64 shard_copy_count_source(const ShardCopy *copy);

/* SQL for both workers, after the first round and after the last: how they plan. */
extern const char *shard_copy_planning(bool copying);

#endif
