/*
 * catalog_scan.h
 *		The tuples of a table's catalog as they physically lie there: their keys, their
 *		bytes, and scans of the index that show every version.
 *
 * Private to group_catalog*.c, and to verify.c, which reads the tuples page by page.
 *
 * A CatalogScan leaves visibility to its caller: it yields dead tuples, those of
 * aborted transactions and those in progress alike.  Between two calls of
 * catalog_scan_next() the tuple's buffer is share-locked, so that its bytes hold
 * still (records and vectors are overwritten in place) and its state can be asked
 * for.  Index pages stay pinned while the scan is on them, which keeps VACUUM from
 * giving a line pointer to another tuple in between.
 *
 * A page that is lost (zeroed, empty, cut off, an older or another one) is valid to
 * PostgreSQL, and says nothing of the tuples that it had.  The index does: an entry
 * is inserted after its tuple and removed before the tuple's line pointer is given
 * away, in the WAL as well; so each leads to a tuple with its key, or, once that was
 * pruned, to a dead line pointer.  Whoever scans the index is told by an ERROR of
 * entries that do not; whoever reads the heap checks the entries afterwards
 * (group_catalog_list()).  Before an entry is believed to be wrong it is looked for
 * once more: on a standby nothing keeps the removal of a dead entry that a scan has
 * in its hands from being replayed, with that of the tuple.
 *
 * Nothing else checks these tuples: pages need not have checksums, and what a record
 * says (its number of rows, say) is used without reading its row group.  So each
 * tuple ends with a CRC of its key and bytes, and whoever takes a tuple apart
 * verifies it.  Of a part of an inline group it covers the key and the group's id;
 * the bytes behind are those of a row group, which has CRCs of its own.
 */
#ifndef COLUMNAR_CATALOG_SCAN_H
#define COLUMNAR_CATALOG_SCAN_H

#include "store/catalog/group_catalog.h"

#include "access/itup.h"
#include "access/relscan.h"
#include "access/sdir.h"
#include "access/skey.h"
#include "utils/snapmgr.h"

/* chunk_id: units of row numbers from 0 on, and from here on those of the vectors. */
#define CATALOG_VECTORS 0x80000000u

/* chunk_seq of a record has zeroes here; of an inline group's parts: 1 .. CATALOG_PARTS_MAX. */
#define CATALOG_PART_BITS 16
#define CATALOG_PARTS_MAX 0xFFFF

/* At the beginning of a part: the group's id. */
#define CATALOG_PART_HEADER sizeof(uint64)

/* Behind a tuple's bytes. */
#define CATALOG_CRC_BYTES sizeof(uint32)

/* A tuple's columns; `bytes` points into its page, `length` is without the CRC. */
typedef struct CatalogTuple
{
	uint32 id;
	uint32 sequence;
	const char *bytes;
	uint32 length;
} CatalogTuple;

static inline uint32
catalog_record_id(uint64 first_row)
{
	return (uint32) (first_row / UNIT_ROWS);
}

static inline uint32
catalog_record_sequence(uint64 first_row)
{
	return (uint32) (first_row % UNIT_ROWS) << CATALOG_PART_BITS;
}

/* The key of an index entry: two columns of 4 bytes, never NULL. */
static inline void
catalog_entry_key(IndexTuple entry, uint32 *id, uint32 *sequence)
{
	const char *key = (const char *) entry + IndexInfoFindDataOffset(entry->t_info);

	memcpy(id, key, sizeof(uint32));
	memcpy(sequence, key + sizeof(uint32), sizeof(uint32));
}

/* The first row of the group that a record or part with this key belongs to. */
static inline uint64
catalog_first_row(uint32 id, uint32 sequence)
{
	return (uint64) id * UNIT_ROWS + (sequence >> CATALOG_PART_BITS);
}

static inline bool
catalog_key_is_record(uint32 id, uint32 sequence)
{
	return id < CATALOG_VECTORS && (sequence & CATALOG_PARTS_MAX) == 0;
}

static inline bool
catalog_tuple_is_record(const CatalogTuple *columns)
{
	return catalog_key_is_record(columns->id, columns->sequence);
}

/* The CRC that a tuple ends with. */
extern uint32 catalog_tuple_crc(uint32 id, uint32 sequence, const char *bytes, uint32 length);

/*
 * Takes a tuple apart without copying; returns what is wrong with it, or NULL.
 * Who calls it has the buffer locked, unless the tuple is known to be complete.
 * If the tuple has no columns to speak of, columns->bytes is NULL.
 */
extern const char *catalog_tuple_parse(HeapTuple tuple, CatalogTuple *columns);
/* Where the tuple lies and what its key says that it is, for messages; palloc'ed. */
extern char *
catalog_tuple_describe(GroupCatalog *catalog, HeapTuple tuple, const CatalogTuple *columns);
/* What is wrong with the bytes of a record, or NULL. */
extern const char *catalog_record_problem(const CatalogTuple *columns);

/* catalog_tuple_parse(); ERROR if something is wrong. */
extern void catalog_tuple_decode(GroupCatalog *catalog, HeapTuple tuple, CatalogTuple *columns);

/*
 * Copies a record with what is known of its inserter; ERROR if it is damaged.  Rows
 * of later commands than an MVCC snapshot's are left out of visible_rows.
 */
extern void catalog_entry_decode(GroupCatalog *catalog, HeapTuple tuple,
								 const CatalogTuple *columns, Snapshot snapshot, GroupEntry *entry);

/* For a serializable transaction that reads a table without rows. */
extern void group_catalog_lock_empty(GroupCatalog *catalog, Snapshot snapshot);

/* An index scan with what it stands on. */
typedef struct CatalogScan
{
	GroupCatalog *catalog;
	IndexScanDesc index;
	ScanDirection direction;
	ScanKeyData keys[3];
	ScanKeyData members[2]; /* of a row comparison */
	GlobalVisState *horizon;
	/* the entry that it stands on */
	ItemPointerData tid;
	uint32 id;
	uint32 sequence;
	/* and its tuple */
	Buffer buffer;
	bool locked;
	HeapTupleData tuple;
	CatalogTuple columns;
	const char *problem; /* what catalog_tuple_parse() has found wrong with it */
} CatalogScan;

/* Tuples of one chunk_id with chunk_seq in [from, to]; the entries marked as killed, too. */
extern void catalog_scan_begin_range(CatalogScan *scan, GroupCatalog *catalog, uint32 id,
									 uint32 from, uint32 to);
/* Tuples of row groups: records and parts. */
extern void catalog_scan_begin_groups(CatalogScan *scan, GroupCatalog *catalog);
/* All tuples with a chunk_id of at least id; the entries marked as killed, too. */
extern void catalog_scan_begin_from(CatalogScan *scan, GroupCatalog *catalog, uint32 id);
/* Tuples at or before the place of a record with this first row, the last one first. */
extern void catalog_scan_begin_backward(CatalogScan *scan, GroupCatalog *catalog, uint64 first_row);

/* What an entry of the index leads to. */
typedef enum EntryState
{
	ENTRY_TUPLE, /* a tuple with its key */
	ENTRY_STUB,	 /* a line pointer whose tuple was pruned, or the entry is gone as well */
	ENTRY_LOST	 /* nothing, or another tuple: damage */
} EntryState;

/* The next tuple that is there, with its buffer locked; false at the end. ERROR if one is lost. */
extern bool catalog_scan_next(CatalogScan *scan);
/* The next entry, without a look at its tuple; false at the end. */
extern bool catalog_scan_step(CatalogScan *scan);
/* Looks at the tuple of the entry, and locks its buffer if there is one; see `problem`. */
extern EntryState catalog_scan_look(CatalogScan *scan);
/* The same; false without a tuple, ERROR if it is lost or damaged. */
extern bool catalog_scan_fetch(CatalogScan *scan);
/* Is the tuple's inserter running or committed?  (Deleted the tuple may be.) */
extern bool catalog_scan_is_unaborted(CatalogScan *scan);
/* Marks the tuple's index entry as killed if the tuple is dead for everybody. */
extern void catalog_scan_kill_if_dead(CatalogScan *scan);
extern void catalog_scan_end(CatalogScan *scan);

/*
 * Raises an ERROR if the index names a record that is not there.  `groups`, by first row, were
 * read from the heap a moment ago and need no second look.
 */
extern void catalog_check_records(GroupCatalog *catalog, const GroupEntry *groups, uint32 ngroups);

#endif
