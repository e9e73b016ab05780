/*
 * shard_partition.h
 *		The partitions that a shard consists of, on the worker that it leaves and on the one that it goes to.
 */
#ifndef STRATA_SHARD_PARTITION_H
#define STRATA_SHARD_PARTITION_H

#include "postgres.h"

#include "nodes/pg_list.h"
#include "utils/relcache.h"

#include "workers/shard_move.h"

/* Run a command in the move's transaction. */
extern void shard_partition_run(int worker_id, const char *sql);

/* Has the worker's SQL this function of strata_worker?  Libraries serve the version before, on all nodes. */
extern bool shard_partition_worker_has(int worker_id, const char *function);

/* Begins of the periods of which the source has leaves (String). */
extern List *shard_partition_periods(const ShardMove *move, Relation relation);

/*
 * Lock the source's partitions against writers.  For the switch, against everybody, and on the targets what is locked when partitions
 * become some; wait so long at most for each, in ms.
 */
extern void shard_partition_lock(const ShardMove *move);
extern void shard_partition_lock_for_switch(const ShardMove *move, int timeout);

/* Whether foreign keys of what is written there next are checked. */
extern void shard_partition_enforce_keys(int worker_id, bool enforce);

/* Make a table's partition for a part on its worker, and begin its copies. */
extern void shard_partition_create(const ShardMove *move, ShardPart *part, Oid relation);

/* It becomes one, with its rows, if it is a late one. */
extern void shard_partition_attach(const ShardMove *move, const ShardPart *part, Oid relation);

/* Does the source go on keeping what leaves it? */
extern bool shard_partition_must_keep(const ShardMove *move);

/* The source's partition of a table is none any more: it is dropped, or kept. */
extern void shard_partition_leave(const ShardMove *move, Oid relation);

#endif
