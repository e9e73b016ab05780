/*
 * shard_switch.h
 *		The moment in which a shard that moves is in its new place.
 */
#ifndef STRATA_SHARD_SWITCH_H
#define STRATA_SHARD_SWITCH_H

#include "workers/shard_move.h"

/* The targets' replicas have stored what was copied; those of the coordinator are asked at the commit. */
extern void shard_switch_wait_for_replicas(ShardMove *move);

/* The locks, with pauses in which nobody waits; ERROR if they are not to be had. */
extern void shard_switch_lock(ShardMove *move);

/* Under these: the last round, and the other place. */
extern void shard_switch(ShardMove *move);

#endif
