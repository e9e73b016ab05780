/*
 * row_scan.h
 *		A scan of a columnar table as batches of up to 1024 rows: row groups that the
 *		snapshot sees, blocks that may qualify, rows that are not deleted.
 *
 * The one reader under everything that reads sequentially: the access method's
 * scans, ANALYZE, index builds, compaction, the custom scan.  Columns are decoded
 * when they are first asked of a batch, stored row numbers too, so what nobody asks for is not read, and
 * what only the surviving rows need is read for blocks with survivors only.
 *
 * A scan begins with the session's write buffers stored, and lists the row
 * groups once, under its snapshot, which must stay registered meanwhile (extents
 * are reused when no snapshot can need them).
 */
#ifndef COLUMNAR_ROW_SCAN_H
#define COLUMNAR_ROW_SCAN_H

#include "store/codec/column_block.h"
#include "store/catalog/row_group.h"
#include "store/rows/row_version.h"

#include "access/sdir.h"
#include "executor/tuptable.h"
#include "port/atomics.h"

/* Decides what need not be read.  Embed it; NULL members keep everything. */
typedef struct RowPruner RowPruner;
struct RowPruner
{
	bool (*keep_group)(RowPruner *pruner, RowGroupReader *reader);
	bool (*keep_block)(RowPruner *pruner, RowGroupReader *reader, uint32 block);
	/* asked of a block that was kept, when its turn comes: less may be needed by then */
	bool (*keep_still)(RowPruner *pruner, RowGroupReader *reader, uint32 block);
	/* asked of a group that was kept, all of whose rows are visible: true if they need not be read */
	bool (*take_group)(RowPruner *pruner, RowGroupReader *reader);
};

typedef struct RowScanCounters
{
	uint64 groups; /* visible */
	uint64 groups_pruned;
	uint64 blocks; /* of the groups that were not pruned */
	uint64 blocks_pruned;
	uint64 bytes_read;
	uint64 pages_read;
} RowScanCounters;

/* What the processes of a parallel scan share: the next group to take. */
typedef struct RowScanShared
{
	pg_atomic_uint64 next_group;
} RowScanShared;

typedef struct RowScan RowScan;

typedef struct RowBatch
{
	RowGroupReader *reader;
	uint32 group; /* index into the scan's list */
	uint32 block;
	uint32 nrows;
	uint32 nselected;
	uint16 selection[BLOCK_ROWS]; /* positions of the rows to look at, ascending */
	/* private: */
	uint64 first_row;		   /* row number of row 0, if the group stores none */
	bool has_numbers;		   /* it does */
	const uint64 *row_numbers; /* these; NULL until one is asked for */
	RowScan *scan;
	ColumnBlock *columns; /* by attribute - 1 */
	bool *decoded;
} RowBatch;

/*
 * Begins a scan.  `descriptor`: the columns as the caller knows them, NULL for the
 * relation's; ALTER TABLE reads the old rows after the relation has its new columns.
 * `columns`: attribute numbers that will be asked for (for
 * read-ahead; NULL means all); `shared`: NULL for a scan of one process.  Memory:
 * a child of the current context.
 */
extern RowScan *row_scan_begin(Relation relation, TupleDesc descriptor, Snapshot snapshot,
							   const Bitmapset *columns, RowPruner *pruner, RowScanShared *shared);
/*
 * For index builds, under a lock that keeps writers and VACUUM away: the rows that are
 * alive, and those that are not (see row_batch_is_alive()) but that an older snapshot may
 * still see, so that it can use the index.
 */
extern RowScan *
row_scan_begin_build(Relation relation, const Bitmapset *columns, RowScanShared *shared);
extern void row_scan_rescan(RowScan *scan);
extern void row_scan_end(RowScan *scan);
/*
 * Before the first batch: the caller's attributes are others than the table's; see
 * row_group_reader_set_attributes().  `columns` of row_scan_begin() are the caller's, too.
 */
extern void row_scan_set_attributes(RowScan *scan, const AttrNumber *attributes, int nattributes);
/* Attaches the shared state before the first batch. */
extern void row_scan_set_shared(RowScan *scan, RowScanShared *shared);

/* The next batch with at least one selected row, or NULL at the end. Backward: rows descend in selection order. */
extern RowBatch *row_scan_next(RowScan *scan, ScanDirection direction);

/* Of a build's scan: is the row alive?  Else it was deleted, by this transaction or not long ago. */
extern bool row_batch_is_alive(RowBatch *batch, uint32 row);

/* A column of the batch, decoded now if it was not. Missing columns are a constant block. */
extern ColumnBlock *row_batch_column(RowBatch *batch, AttrNumber attribute);

/* The batch's row numbers of a group that stores them, read now if they were not. */
extern const uint64 *row_batch_stored_numbers(RowBatch *batch);

/* A scan that does not ask for numbers does not read those that are stored. */
static inline uint64
row_batch_row_number(RowBatch *batch, uint32 row)
{
	return batch->has_numbers ? row_batch_stored_numbers(batch)[row] : batch->first_row + row;
}

/*
 * Fills a virtual slot with row `row`: the attributes in `columns` (all if NULL),
 * others NULL; sets tts_tid and tts_tableOid.  Datums in the current context.
 */
extern void
row_batch_store(RowBatch *batch, uint32 row, const Bitmapset *columns, TupleTableSlot *slot);

/* Transaction that wrote the group of the batch returned last. */
extern TransactionId row_scan_xmin(const RowScan *scan);

extern const RowScanCounters *row_scan_counters(RowScan *scan);

/* Visible rows (deletes subtracted), from metadata alone. */
extern uint64 row_scan_count(Relation relation, Snapshot snapshot);
/* Deleted rows among those of a group that the snapshot sees. */
extern uint64
row_scan_count_deleted(GroupCatalog *catalog, const GroupEntry *entry, const DeletedRows *deleted);

#endif
