/*
 * shard_statistics.h
 *		Statistics of a distributed table for its shards.
 */
#ifndef STRATA_SHARD_STATISTICS_H
#define STRATA_SHARD_STATISTICS_H

#include "postgres.h"

#include "utils/relcache.h"

#include "cluster/metadata.h"
#include "transaction/remote_transaction.h"

/* Is a sample of the table one of each shard?  Else the workers have to analyse them. */
extern bool shard_statistics_are_alike(Relation relation, const DistributedTable *table);

/* The sum of what a query yields on each worker: one float8, NULL for nothing. */
extern double shard_statistics_sum(const Bitmapset *workers, RemoteAccess access, const char *sql);

/* The table's rows as the last VACUUM or ANALYZE of the shards left them on the workers; needs a role to ask as. */
extern double shard_statistics_rows(Relation relation, const DistributedTable *table);

/*
 * The workers get what ANALYZE has found, in the local transaction, as the table's owner, restricted.  Nothing happens
 * where they have analysed their shards.  The caller holds ShareUpdateExclusiveLock on the table.
 */
extern void shard_statistics_send(Oid relation);

#endif
