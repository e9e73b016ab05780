/*
 * shard_map.h
 *		Which worker holds a key: PostgreSQL's own partition hash, computed here.
 *
 * Pure functions of a Colocation.  The arithmetic equals core's
 * compute_partition_hash_value() and get_partition_for_tuple() for one hash
 * column, so a row routed here is accepted by the worker's own partitions.
 */
#ifndef STRATA_SHARD_MAP_H
#define STRATA_SHARD_MAP_H

#include "cluster/metadata.h"

/*
 * The hash by which rows are divided of a value of the key's type, or of another one of its hash operator family (an int8
 * constant against an int4 key).  ERROR when the family has no extended hash function for the type: check with
 * shard_map_type_hashable() when planning.
 */
extern uint64 shard_map_hash(const Colocation *colocation, Oid type, Datum key, bool isnull);
extern bool shard_map_type_hashable(const Colocation *colocation, Oid type);

/* Id of the worker that holds the key; ERROR when that shard is lost. */
extern int shard_map_worker(const Colocation *colocation, Datum key, bool isnull);

/* The same for a value of another type, as above. */
extern int
shard_map_worker_for_type(const Colocation *colocation, Oid type, Datum key, bool isnull);

/* A number that somebody names: ERROR when the table has no such shard. */
extern void shard_map_require_shard(const Colocation *colocation, Oid relation, int number);

/* For a statement that needs all shards: ERROR when one of them is lost. */
extern void shard_map_require_all(const Colocation *colocation);

/*
 * For every statement that finds rows by their keys, here or on a worker: ERROR when the operating system's version of the
 * key's collation is not the one by which rows were placed.
 */
extern void shard_map_require_collation(const Colocation *colocation);

/* The group's tables, for messages: table "a", tables "a" and "b" ... */
extern char *shard_map_describe_tables(const Colocation *colocation);

#endif
