/*
 * shard_partition.h
 *		The partitions that a shard consists of, on the worker that it leaves and on the one that it goes to.
 */
#ifndef STRATA_SHARD_PARTITION_H
#define STRATA_SHARD_PARTITION_H

#include "postgres.h"

#include "nodes/pg_list.h"
#include "utils/relcache.h"

typedef struct ShardMove
{
	int colocation_id;
	int modulus;
	int remainder;
	int source; /* workers */
	int target;
	List *tables;	  /* the group's, ordered by OID */
	bool exclusive;	  /* writers wait */
	List *referenced; /* reference tables that are locked, then */
	List *periods;	  /* for each table: shard_partition_periods() */
	List *copies;	  /* for each table: list of ShardCopy */
	uint64 rows;
	int64 locked; /* since when readers wait */
} ShardMove;

/* The name of the shard's partition of a table on workers, quoted and qualified. */
extern char *shard_partition_name(const ShardMove *move, Relation relation);

/* Run a command in the move's transaction. */
extern void shard_partition_run(int worker_id, const char *sql);

/* Begins of the periods of which the source has leaves (String). */
extern List *shard_partition_periods(const ShardMove *move, Relation relation);

/*
 * Lock the source's partitions against writers, or for the switch.  Wait so long at most for each, in ms; 0: for ever.
 */
extern void shard_partition_lock(const ShardMove *move, bool for_switch, int timeout);

/* Whether foreign keys of what is written there next are checked. */
extern void shard_partition_enforce_keys(int worker_id, bool enforce);

/* Make a table's partition on the target, and begin its copies. */
extern void shard_partition_create(ShardMove *move, Oid relation);

/* Drop the source's partition of a table. */
extern void shard_partition_drop(const ShardMove *move, Oid relation);

#endif
