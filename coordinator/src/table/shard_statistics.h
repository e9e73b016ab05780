/*
 * shard_statistics.h
 *		Statistics of a distributed table for its shards.
 */
#ifndef STRATA_SHARD_STATISTICS_H
#define STRATA_SHARD_STATISTICS_H

#include "postgres.h"

#include "utils/relcache.h"

#include "cluster/metadata.h"

/* Is a sample of the table one of each shard?  Else the workers have to analyse them. */
extern bool shard_statistics_are_alike(Relation relation, const DistributedTable *table);

/*
 * The workers get what ANALYZE has found, in the local transaction, as the table's owner, restricted.  Nothing happens
 * where they have analysed their shards.  The caller holds ShareUpdateExclusiveLock on the table.
 */
extern void shard_statistics_send(Oid relation);

#endif
