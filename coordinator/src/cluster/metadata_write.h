/*
 * metadata_write.h
 *		Columns of the tables of schema strata, and the only code that writes them.
 *
 * The attribute numbers follow coordinator/sql/strata--0.1.sql.  Writers use
 * CatalogTupleInsert() and its like, never SPI: the owner of a table may
 * distribute it although he may not write strata.*.  These writes fire no
 * triggers, therefore each function sends the invalidations itself.  None of
 * them makes its effect visible: callers run CommandCounterIncrement().
 */
#ifndef STRATA_METADATA_WRITE_H
#define STRATA_METADATA_WRITE_H

#include "postgres.h"

#include "access/attnum.h"
#include "nodes/pg_list.h"

#include "cluster/metadata.h"

/* strata.cluster */
#define CATALOG_CLUSTER_ID 1
#define CATALOG_CLUSTER_EPOCH 2
#define CATALOG_CLUSTER_DDL_VERSION 3
#define CATALOG_CLUSTER_HOLDER 5
#define CATALOG_CLUSTER_TIMELINE 6
#define CATALOG_CLUSTER_DATABASE 7

/* strata.worker */
#define CATALOG_WORKER_ID 1
#define CATALOG_WORKER_NAME 2
#define CATALOG_WORKER_CONNINFO 3
#define CATALOG_WORKER_STATE 4
#define CATALOG_WORKER_COLUMNS 4

/* strata.colocation */
#define CATALOG_COLOCATION_ID 1
#define CATALOG_COLOCATION_METHOD 2
#define CATALOG_COLOCATION_SHARD_COUNT 3
#define CATALOG_COLOCATION_KEY_TYPE 4
#define CATALOG_COLOCATION_KEY_COLLATION 5
#define CATALOG_COLOCATION_IS_DEFAULT 6
#define CATALOG_COLOCATION_NAME 7
#define CATALOG_COLOCATION_COLUMNS 7

/* strata.shard */
#define CATALOG_SHARD_COLOCATION 1
#define CATALOG_SHARD_MODULUS 2
#define CATALOG_SHARD_REMAINDER 3
#define CATALOG_SHARD_WORKER 4
#define CATALOG_SHARD_LOST_WITH 5
#define CATALOG_SHARD_MOVED_BY 6
#define CATALOG_SHARD_COLUMNS 6

/* strata.distributed_table */
#define CATALOG_TABLE_RELATION 1
#define CATALOG_TABLE_KIND 2
#define CATALOG_TABLE_KEY_ATTRIBUTE 3
#define CATALOG_TABLE_COLOCATION 4
#define CATALOG_TABLE_STORAGE 5
#define CATALOG_TABLE_PARTITION_ATTRIBUTE 6
#define CATALOG_TABLE_PARTITION_INTERVAL 7
#define CATALOG_TABLE_RETENTION 8
#define CATALOG_TABLE_PARTITION_UNIT 9
#define CATALOG_TABLE_CUTOFF 10
#define CATALOG_TABLE_MOVED_BY 11
#define CATALOG_TABLE_COLUMNS 11

#define CATALOG_KIND_DISTRIBUTED 'd'
#define CATALOG_KIND_REFERENCE 'r'

/*
 * Take the lock that orders all changes of placement against each other
 * (ShareRowExclusiveLock on strata.colocation), until the transaction's end.
 * Readers are not blocked.
 */
extern void metadata_write_lock_placement(void);

/* Add a worker; returns its new id, never one that was used before. */
extern int metadata_write_add_worker(const char *name, const char *conninfo);
extern void metadata_write_remove_worker(int worker_id);

/*
 * Make a colocation group whose shard i is on shard_workers[i]; returns its id.
 * name NULL: a default group, which tables with colocate_with 'default' may join.
 */
extern int metadata_write_add_colocation(int shard_count, Oid key_type, Oid key_collation,
										 const char *name, const int *shard_workers);

/* Shards of the worker become lost: they are nowhere, and keep its name. */
extern void metadata_write_lose_shards(int worker_id, const char *name);

/* A shard is on this worker from now on: empty in place of a lost one, or with its rows, by this transaction. */
extern void metadata_write_place_shard(int colocation_id, int remainder, int worker_id);

/* In place of a shard there are its parts from now on, or itself elsewhere, with its rows, by this transaction. */
typedef struct ShardPlace
{
	ShardBounds bounds;
	int worker_id;
} ShardPlace;

extern void metadata_write_replace_shard(int colocation_id, int remainder, const List *places);

/* The default group for this key and shard count, or 0 when there is none. */
extern int metadata_write_default_colocation(int shard_count, Oid key_type, Oid key_collation);

/* key_attribute InvalidAttrNumber and colocation_id 0 are stored as NULL (reference tables). */
extern void metadata_write_add_table(Oid relation, char kind, AttrNumber key_attribute,
									 int colocation_id, const char *storage);

/* The group of that name, or 0 when there is none. */
extern int metadata_write_named_colocation(const char *name);

/* How a table that is known already is divided into periods, or a new cut-off of it. */
extern void metadata_write_set_periods(Oid relation, const PeriodRule *rule);

/* Forget a table (nothing happens if it is unknown), and its group if that is empty now. */
extern void metadata_write_remove_table(Oid relation);

/* OIDs of all tables of one kind, ordered by OID. */
extern List *metadata_write_tables(char kind);

/* The same of one colocation group. */
extern List *metadata_write_group_tables(int colocation_id);

#endif
