/*
 * group_catalog.h
 *		The catalog of one columnar table: its row groups, inline bytes and row
 *		vectors, as tuples of the table's TOAST relation.
 *
 * Why there: core creates a TOAST relation with the table and drops, truncates,
 * rewrites, moves, freezes, vacuums and upgrades it with the table, keeps its
 * persistence equal, and it is an ordinary heap: what a snapshot sees of the
 * table is what it sees of these tuples.
 *
 *		chunk_id				chunk_seq						chunk_data
 *		first_row >> 10			(first_row & 1023) << 16		GroupRecord
 *		first_row >> 10			... | part (1 ..)				group id, bytes of an inline group
 *		2^31 | row >> 10		running number					RowVector (see row_version.h)
 *
 * so the record of a row's group is the last one at or before it, and all
 * vectors of 1024 row numbers (a unit) are neighbours in the index.  Each tuple
 * ends with a CRC (see catalog_scan.h).
 *
 * Life of a record: inserted in state OPEN with a range of row numbers before the
 * first of them is used; overwritten in place (logged as a generic delta: only
 * the inserting transaction can do it, before it commits) when the range grows,
 * when an extent is taken and when the bytes are written; deleted by the
 * transaction that replaces it.  A committed record is never OPEN with rows.
 */
#ifndef COLUMNAR_GROUP_CATALOG_H
#define COLUMNAR_GROUP_CATALOG_H

#include "store/value/format.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup.h"
#include "storage/itemptr.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

#define UNIT_ROWS 1024 /* row numbers of a unit */

typedef enum RowGroupState
{
	GROUP_OPEN = 0,	  /* being collected: no rows stored; may name an extent */
	GROUP_STORED = 1, /* bytes in the extent */
	GROUP_INLINE = 2  /* bytes in part tuples */
} RowGroupState;

#define GROUP_HAS_ROW_NUMBERS \
	0x0001						 /* rows are not first_row + position: chunk 0 has the numbers */
#define GROUP_ROWS_ASCEND 0x0002 /* these ascend */
/*
 * Written by a compaction, which deletes the records that it replaces and does not
 * change rows: while it runs, the replaced records are the live ones for everybody else.
 */
#define GROUP_REWRITTEN 0x0004

/* Commands of the inserting transaction: `repeats` commands of `rows` rows, ids first, first + step ... */
typedef struct CommandRun
{
	uint32 first;
	uint32 step;
	uint32 rows;
	uint32 repeats;
} CommandRun;

#define GROUP_COMMAND_RUNS 6

/* Fixed size; stored as it is, 8-byte fields first. */
typedef struct GroupRecord
{
	uint64 group_id;
	uint64 first_row;
	uint64 row_span;		/* the group's row numbers are in [first_row, first_row + row_span) */
	uint64 length;			/* bytes of the group: chunks, then footer */
	uint64 footer_offset;	/* footer = bytes [footer_offset, length) */
	uint64 speculative_row; /* while speculative_token is not 0 */
	uint32 speculative_token;
	uint32 nrows;
	uint32 footer_crc;
	uint32 first_block; /* extent; InvalidBlockNumber without one */
	uint32 nblocks;
	uint16 version; /* FORMAT_VERSION */
	uint8 state;	/* RowGroupState */
	uint8 nruns;
	uint16 flags;
	uint16 natts;
	uint32 unused;
	CommandRun runs[GROUP_COMMAND_RUNS]; /* sums up to nrows; one run of one command: nruns = 0 */
} GroupRecord;

/* An open catalog; of a table without TOAST relation: toast is NULL, and it is empty. */
typedef struct GroupCatalog
{
	Relation relation;
	Relation toast;
	Relation *indexes;
	LOCKMODE lockmode; /* of all of them; writers keep it until the transaction ends */
	bool *ready;	   /* of each index: does it get entries of new tuples? */
	int nindexes;
	int valid; /* the index to search */
	BlockNumber
		nblocks; /* of the TOAST relation, at least; it does not shrink while we have it open */
	/* columns as the reader knows them; NULL: the relation's.  See row_scan_begin(). */
	TupleDesc descriptor;
	bool frozen; /* insert tuples that every snapshot sees: only into the new file of a rewrite */
} GroupCatalog;

static inline TupleDesc
group_catalog_descriptor(const GroupCatalog *catalog)
{
	return catalog->descriptor ? catalog->descriptor : RelationGetDescr(catalog->relation);
}

/* A record as found: where, and by whom written. */
typedef struct GroupEntry
{
	GroupRecord record;
	ItemPointerData tid;
	TransactionId xmin;
	CommandId cmin; /* of the own transaction's records; else InvalidCommandId */
	/* rows (from the first) that the snapshot sees: less than nrows only in the own transaction */
	uint32 visible_rows;
} GroupEntry;

/*
 * Opens the TOAST relation (AccessShareLock, or RowExclusiveLock to write).  To
 * write a table that has none (converted from a heap that needed none), makes it.
 */
extern GroupCatalog *group_catalog_open(Relation relation, LOCKMODE lockmode);
extern void group_catalog_close(GroupCatalog *catalog);

/* Inserts a record under the current (sub)transaction id with command id cid; sets *tid. */
extern void group_catalog_insert(GroupCatalog *catalog, const GroupRecord *record, CommandId cid,
								 ItemPointer tid);
/* Overwrites the record at tid, inserted by this transaction, in place. */
extern void
group_catalog_overwrite(GroupCatalog *catalog, ItemPointer tid, const GroupRecord *record);
/*
 * Marks a tuple (record, part or vector) deleted by this transaction, waiting for
 * others that have; false if one of them did.  The tuple is known to be there still:
 * a snapshot that sees it is held, or it is this transaction's.
 */
extern bool group_catalog_delete(GroupCatalog *catalog, ItemPointer tid);
/* The same for a tuple that this transaction inserted with command id cid, maybe the running command's. */
extern void group_catalog_delete_own(GroupCatalog *catalog, ItemPointer tid, CommandId cid);
/* Deletes the parts of an inline group (inserted by earlier commands). */
extern void group_catalog_delete_parts(GroupCatalog *catalog, const GroupRecord *record);

/*
 * Writes and reads the bytes of an inline group: up to 65535 parts.  Parts are found
 * by the group id, so they need no visibility of their own.
 */
extern void group_catalog_write_inline(GroupCatalog *catalog, const GroupRecord *record,
									   CommandId cid, const char *bytes);
/* palloc'ed, record->length bytes. ERROR when parts are missing. */
extern char *group_catalog_read_inline(GroupCatalog *catalog, const GroupRecord *record);

/*
 * All groups with rows that an MVCC snapshot sees, by first_row; palloc'ed array.
 * OPEN records are left out: flush the write buffers first.
 */
extern GroupEntry *group_catalog_list(GroupCatalog *catalog, Snapshot snapshot, uint32 *ngroups);

/* Everything physically present, dead or alive, with its state against a horizon (vacuum, compaction). */
typedef struct GroupTuple
{
	GroupEntry entry;
	TransactionId xmax;
	int status; /* HTSV_Result as of the horizon */
} GroupTuple;

/* May another transaction still be filling the range of row numbers? */
static inline bool
group_tuple_is_being_written(const GroupTuple *tuple)
{
	return tuple->status == HEAPTUPLE_INSERT_IN_PROGRESS ||
		   tuple->status == HEAPTUPLE_DELETE_IN_PROGRESS;
}

extern GroupTuple *
group_catalog_list_all(GroupCatalog *catalog, TransactionId oldest_xmin, uint32 *ntuples);

/*
 * The group whose range contains the row, as the snapshot sees it: MVCC, Self,
 * Dirty (sets snapshot->xmin and speculativeToken as heap does; xmax, which no group
 * has, to none) or Any and others (the version that is not dead, if there is one).
 * A compaction in progress is not seen by anybody else: see GROUP_REWRITTEN.
 * OPEN records are found, too, except by MVCC snapshots of other transactions.
 */
extern bool
group_catalog_find(GroupCatalog *catalog, uint64 row, Snapshot snapshot, GroupEntry *entry);

/*
 * For rewrites of a whole table into a new file: gives a tuple inserted by this
 * transaction the transaction and command ids of another one, so that old snapshots see
 * in the new file what they saw in the old.
 */
extern void group_catalog_copy_ids(GroupCatalog *catalog, ItemPointer tid, HeapTupleHeader source);

/* ---- tuples of a unit's vectors, for row_version.c ---------------------------------------------- */

extern void
group_catalog_insert_vector(GroupCatalog *catalog, uint32 unit, int32 number, const void *bytes,
							uint32 length, CommandId cid, ItemPointer tid);
extern void group_catalog_overwrite_vector(GroupCatalog *catalog, ItemPointer tid,
										   const void *bytes, uint32 length);

/*
 * Calls back for each vector tuple of a unit that is physically present and not
 * from an aborted transaction, in index order; the tuple is valid during the call,
 * its buffer share-locked: no catalog access inside.  Return false to stop.  Tuples
 * already deleted are among them, by the inserting transaction too.  A callback that
 * decides by an MVCC snapshot reports to HeapCheckForSerializableConflictOut().
 */
typedef bool (*VectorCallback)(void *argument, HeapTuple tuple, Buffer buffer, int32 number,
							   const char *bytes, uint32 length);
extern void group_catalog_each_vector(GroupCatalog *catalog, uint32 unit, VectorCallback callback,
									  void *argument);
/*
 * The same for all vectors of the table, or those of a unit and the following ones, unit by unit
 * (the index's range of them: next to nothing when there are none). The unit is passed as the number.
 */
extern void
group_catalog_all_vectors(GroupCatalog *catalog, VectorCallback callback, void *argument);
extern void group_catalog_vectors_from(GroupCatalog *catalog, uint32 unit, VectorCallback callback,
									   void *argument);

/* ---- row numbers and tids ---------------------------------------------------------------------- */

static inline void
row_number_to_tid(uint64 row, ItemPointer tid)
{
	ItemPointerSet(tid, (BlockNumber) (row / 291), (OffsetNumber) (row % 291 + 1));
}

static inline uint64
row_number_from_tid(ItemPointer tid)
{
	return (uint64) ItemPointerGetBlockNumberNoCheck(tid) * 291 +
		   ItemPointerGetOffsetNumberNoCheck(tid) - 1;
}

#endif
