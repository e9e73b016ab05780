/*
 * kept_shard.h
 *		What the worker that a shard has left keeps of it for a while.
 */
#ifndef STRATA_KEPT_SHARD_H
#define STRATA_KEPT_SHARD_H

#include "postgres.h"

#include "cluster/metadata.h"

/* Can this be noted?  Not by the SQL of version 0.1. */
extern bool kept_shard_is_known(void);

/* Wait here for whoever drops what is kept, before others wait for us. */
extern void kept_shard_lock(void);

/* Note that `worker_id` keeps a shard that goes to `target`: the name of what it keeps. */
extern char *
kept_shard_add(int colocation_id, ShardBounds bounds, int worker_id, const char *target);

/* The schema in which a table's rows are kept there. */
extern char *kept_shard_schema(const char *name, Oid relation);

/* Tables are about to change on all workers: in this transaction nothing is kept any more but of shards that are lost. */
extern void kept_shard_drop_for_change(void);

#endif
