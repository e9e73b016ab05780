/*
 * shard_fill.h
 *		The rounds in which rows of a shard that moves are copied.
 */
#ifndef STRATA_SHARD_FILL_H
#define STRATA_SHARD_FILL_H

#include "workers/shard_move.h"

/* SELECT of the tables on the source that hold the shard's rows, as column relid. */
extern char *shard_fill_leaves_sql(const ShardMove *move);

/* How many rows are to be copied, as far as the source knows. */
extern int64 shard_fill_estimate(const ShardMove *move);

/* The first and longest round, and others until one is short. */
extern void shard_fill_first(ShardMove *move);
extern void shard_fill_until_short(ShardMove *move);

/* A round is a look at the source, which tells how many rows have changed, and bringing what it has seen. */
extern uint64 shard_fill_look(const ShardMove *move);
extern void shard_fill(ShardMove *move);

/* How the workers plan: for rounds after the first, or as ever. */
extern void shard_fill_plan(const ShardMove *move, bool copying);

#endif
