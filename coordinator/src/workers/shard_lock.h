/*
 * shard_lock.h
 *		What a move of a shard holds while it copies, and for whom it gives way.
 */
#ifndef STRATA_SHARD_LOCK_H
#define STRATA_SHARD_LOCK_H

#include "workers/shard_move.h"

/* Those of the tables that have foreign keys from or to them on the workers. */
extern List *shard_lock_list_with_keys(const List *tables);

/* Must writers of the group wait while rows are copied, because such a table has periods? */
extern bool shard_lock_must_exclude_writers(const List *with_keys);

/* Lock the move's tables; it learns the reference tables. */
extern void shard_lock_tables(ShardMove *move);

/*
 * Writers, and all who come after them, would wait behind DDL that waits for the move (ShardMove); and it is not that one which is in a
 * hurry: ERROR then.  Called often.
 */
extern void shard_lock_give_way(void *move);

extern void shard_lock_report_changed_group(Oid relation);

/* Does anybody wait for what the move holds? */
extern bool shard_lock_is_awaited(const ShardMove *move);

#endif
