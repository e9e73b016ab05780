/*
 * metadata.h
 *		What the coordinator knows: workers, colocation groups, shards, tables.
 *
 * The truth is in the heap tables of schema strata (README.md lists them); this
 * module caches it per backend.  Look-ups use systable scans, never SPI: SPI
 * would run as the session's user, who may not read the catalog.
 *
 * Invalidation: a change of placement or of a worker invalidates the relcache
 * entry of strata.worker, strata.colocation or strata.shard (triggers on those
 * tables do it) and drops the whole cache; a change of one table invalidates
 * the relcache entry of that table.  Pointers handed out stay valid until the
 * end of the transaction even when the entry was invalidated meanwhile.
 */
#ifndef STRATA_METADATA_H
#define STRATA_METADATA_H

#include "postgres.h"

#include "access/xact.h"

#include "access/attnum.h"
#include "access/transam.h"
#include "fmgr.h"
#include "nodes/bitmapset.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"

typedef enum TableKind
{
	TABLE_LOCAL,	   /* not ours */
	TABLE_DISTRIBUTED, /* hashed over the shards of a colocation group */
	TABLE_REFERENCE	   /* a full copy on every node, this one included */
} TableKind;

typedef struct Worker
{
	int id;
	char *name;
	char *conninfo;
} Worker;

typedef struct Colocation
{
	int id;
	char *name;		 /* NULL: a default group, which tables join that name none */
	int first_count; /* of shards, when it was made: by that tables find it */
	int shard_count;
	int modulus; /* the greatest one of a shard; they are multiples of each other */
	Oid key_type;
	Oid key_collation;
	Oid key_opfamily; /* hash operator family of the key */

	/* of the shard of the keys with this remainder of `modulus` */
	int *shard_numbers; /* [modulus]: its own remainder, by which it is known */
	int *shard_moduli;	/* [modulus] */
	int *shard_workers; /* [modulus]: worker id, 0: the shard is lost */
	char **lost_with;	/* [modulus]: the worker that it was lost with; NULL: it is not lost */

	int lost_count;				/* how many are lost */
	Bitmapset *workers;			/* ids of the workers that hold a shard */
	FullTransactionId moved_by; /* who has moved a shard last; 0: nobody */
	FmgrInfo hash;				/* the key's extended hash function */
} Colocation;

/* Which keys a shard has: those whose hash has this remainder. */
typedef struct ShardBounds
{
	int modulus;
	int remainder;
} ShardBounds;

/* Is there a shard of this number? */
#define colocation_has_shard(colocation, number)          \
	((number) >= 0 && (number) < (colocation)->modulus && \
	 (colocation)->shard_numbers[number] == (number))

/* The next one after it, from -1 on; -1: that was the last. */
extern int colocation_next_shard(const Colocation *colocation, int number);

/* The shards (ShardBounds) that are on a worker by these places, by number: the group's shard_workers, or others. */
extern List *colocation_list_shards(const Colocation *colocation, const int *places, int worker_id);

extern ShardBounds *
colocation_shard_bounds(const Colocation *colocation, int number); /* palloc'd */

/* Texts of a PeriodRule end within so many bytes. */
#define PERIOD_TEXT_BYTES 64

/* How a table is divided into periods; without pointers, so that memcmp() compares it. */
typedef struct PeriodRule
{
	AttrNumber attribute;			   /* InvalidAttrNumber: it is not */
	char interval[PERIOD_TEXT_BYTES];  /* as PostgreSQL writes it */
	char unit[PERIOD_TEXT_BYTES];	   /* "none"; of numbers that are times "seconds", ... */
	char retention[PERIOD_TEXT_BYTES]; /* "": for ever */
	char cutoff[PERIOD_TEXT_BYTES];	   /* smaller values do not exist any more; "": all do */
	FullTransactionId moved_by;		   /* who has moved rows between leaves last; 0: nobody */
} PeriodRule;

typedef struct DistributedTable
{
	Oid relation;
	TableKind kind;				  /* TABLE_DISTRIBUTED or TABLE_REFERENCE */
	AttrNumber key_attribute;	  /* InvalidAttrNumber for reference tables */
	const Colocation *colocation; /* NULL for reference tables */
	bool is_columnar;			  /* its shards' storage: columnar, or heap */
	PeriodRule periods;
} DistributedTable;

/* Storage of distributed tables whose creator does not say. */
#define METADATA_DEFAULT_STORAGE "columnar"

/* Is the table divided into periods?  Also for NULL. */
#define metadata_has_periods(table) \
	((table) != NULL && AttributeNumberIsValid((table)->periods.attribute))

/* The cached entry, or NULL for a relation that is not ours.  Cheap: one hash look-up. */
extern const DistributedTable *metadata_table(Oid relation);

/* ERROR when there is no such worker. */
extern const Worker *metadata_worker(int worker_id);

/* The colocation group, ERROR when there is none. */
extern const Colocation *metadata_colocation(int colocation_id);

/* Ids of all workers, never to be modified by the caller; NULL when there is none. */
extern const Bitmapset *metadata_all_workers(void);

/* Workers that hold rows of the table: its colocation's, or all for a reference table. */
extern const Bitmapset *metadata_table_workers(const DistributedTable *table);

/* The table's entry; ERROR unless it is a distributed table. */
extern const DistributedTable *metadata_require_distributed(Oid relation);

/* Is the extension created in this database (and are we not inside its CREATE)? */
extern bool metadata_available(void);

/* OID of a table of schema strata, cached; ERROR when it does not exist. */
extern Oid metadata_catalog_oid(const char *name);

/* OID of the table access method "distributed", InvalidOid while the extension does not exist. */
extern Oid metadata_distributed_am(void);

/* Is the relation's access method ours?  (True also before it has metadata.) */
extern bool metadata_is_shell(Relation relation);

extern void metadata_initialize(void); /* from _PG_init: registers callbacks */

/* The table that a relation is, or whose index it is, when it is ours; else NULL. */
extern const DistributedTable *metadata_find_table(Oid relation);

/* Called at the ends of transactions, in the order of transaction_end.c. */
extern void metadata_transaction_event(XactEvent event);

#endif
