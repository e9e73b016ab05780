/*
 * shard_move.h
 *		A shard that moves, or is split, while it does.
 */
#ifndef STRATA_SHARD_MOVE_H
#define STRATA_SHARD_MOVE_H

#include "postgres.h"

#include "nodes/pg_list.h"

#include "cluster/metadata.h"

/* What becomes of the shard on one worker: all of it, or a half. */
typedef struct ShardPart
{
	ShardBounds bounds;
	int worker_id;
	List *copies; /* for each table: list of ShardCopy */
} ShardPart;

typedef struct ShardMove
{
	int colocation_id;
	ShardBounds bounds;
	int source;		  /* worker */
	List *parts;	  /* of ShardPart */
	List *tables;	  /* the group's, ordered by OID */
	List *late;		  /* those of them that become partitions of the targets at the switch */
	bool exclusive;	  /* writers wait */
	bool keeps;		  /* the source does, what leaves it (stream/kept_shard.h) */
	char *kept;		  /* ... under this name */
	List *referenced; /* reference tables to which the tables refer */
	List *periods;	  /* for each table: shard_partition_periods() */
	uint64 rows;
	int64 begun;
	int64 locked; /* since when readers wait */
} ShardMove;

#define shard_move_is_split(move) (list_length((move)->parts) > 1)

#endif
