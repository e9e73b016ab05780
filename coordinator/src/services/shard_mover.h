/*
 * shard_mover.h
 *		Task "moves": shards move as strata.rebalance_start() has planned.
 */
#ifndef STRATA_SHARD_MOVER_H
#define STRATA_SHARD_MOVER_H

/* Of service_tasks.c. */
extern int shard_mover_interval(void);
extern void shard_mover_run(void);

#endif
