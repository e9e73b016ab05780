/*
 * shard_space.h
 *		Whether there is room for a shard where it goes to, and whether it is not too large to move.
 */
#ifndef STRATA_SHARD_SPACE_H
#define STRATA_SHARD_SPACE_H

#include "workers/shard_move.h"

/* An error if a target has no room for what it gets, or if the shard is larger than strata.move_limit. */
extern void shard_space_check(const ShardMove *move);

#endif
