/*
 * row_group.h
 *		A row group as bytes: column chunks one after the other, then the footer.
 *
 *		chunk of attribute 1 | ... | chunk of attribute n | [row numbers] | footer
 *
 * The footer is the directory: format version, number of rows and attributes,
 * then a ChunkSummary per attribute (none for a dropped one) and, if the group has
 * GROUP_HAS_ROW_NUMBERS, one for the row numbers, which are stored as int8 differences to
 * first_row.  Its CRC is in the record.  Footers do not change and group ids are
 * not used again, so a backend keeps parsed footers (keyed by file, group id and CRC).
 */
#ifndef COLUMNAR_ROW_GROUP_H
#define COLUMNAR_ROW_GROUP_H

#include "store/chunk/chunk.h"
#include "store/catalog/group_catalog.h"
#include "store/options/options.h"
#include "store/pages/page_run.h"

/*
 * Encodes columns[0 .. natts - 1] (dropped attributes: type NULL) of nrows rows;
 * fills the record's nrows, natts, length, footer_*, flags.  row_numbers: NULL when row i is
 * record->first_row + i; where they turn out to be just these they are not stored either.
 * Does not place the bytes anywhere.
 */
extern void
row_group_encode(GroupRecord *record, const ColumnValues *columns, int natts, uint32 nrows,
				 const uint64 *row_numbers, const TableOptions *options, ByteBuffer *into);

/*
 * The order in which to store rows of a table with order_by: rows of one command
 * (record->runs) stay together, as older snapshots of the transaction see a prefix;
 * within it rows are sorted, equal ones keeping their order.  palloc'ed positions,
 * or NULL if the rows are in order already or there is none.
 */
extern uint32 *row_group_sort_order(const GroupRecord *record, const ColumnValues *columns,
									uint32 nrows, const TableOptions *options);

/*
 * Puts encoded bytes where they belong and overwrites the record at tid: inline
 * if small and allowed, else in an extent.  The record was inserted by this
 * transaction (see group_catalog.h).
 */
extern void row_group_store(GroupCatalog *catalog, GroupRecord *record, ItemPointer tid,
							CommandId cid, bool may_inline, const ByteBuffer *bytes);

typedef struct RowGroupReader RowGroupReader;

/*
 * Opens a stored group for reading (its footer, from the cache if it is there).
 * Memory: a child of the current context.  The catalog must stay open as long.
 * Sets format_place.relation and .group on every call into it.
 */
extern RowGroupReader *row_group_reader_open(GroupCatalog *catalog, const GroupRecord *record,
											 BufferAccessStrategy strategy);
extern void row_group_reader_close(RowGroupReader *reader);
/*
 * Goes on with the table opened again; false if the columns have other types by now.  The
 * group must still be visible to somebody's snapshot, or its extent may have been reused.
 */
extern bool row_group_reader_rebind(RowGroupReader *reader, GroupCatalog *catalog);
extern const GroupRecord *row_group_reader_record(const RowGroupReader *reader);
extern uint32 row_group_reader_nblocks(const RowGroupReader *reader);

/*
 * The caller's attributes are others than the table's: which of the table's, by attribute - 1; 0 if
 * it has none.  The array must live as long as the reader.
 */
extern void row_group_reader_set_attributes(RowGroupReader *reader, const AttrNumber *attributes,
											int nattributes);

/* Summary of an attribute (from 1); NULL if the group has no chunk of it (added later, dropped). */
extern const ChunkSummary *row_group_reader_summary(RowGroupReader *reader, AttrNumber attribute);
/* The attribute's chunk, opened at first use; NULL as above: the value is getmissingattr()'s. */
extern ChunkReader *row_group_reader_chunk(RowGroupReader *reader, AttrNumber attribute);
/* The column type used for the attribute (valid while the reader is). */
extern const ColumnType *row_group_reader_type(RowGroupReader *reader, AttrNumber attribute);
/* Starts reading the chunks of these attributes (all if NULL) ahead. */
extern void row_group_reader_prefetch(RowGroupReader *reader, const Bitmapset *attributes);

/* Row numbers of the rows of a block, into rows[BLOCK_ROWS]. */
extern void row_group_reader_row_numbers(RowGroupReader *reader, uint32 block, uint64 *rows);
/* Bounds of these, inclusive: as close as they can be told without reading the numbers. */
extern void row_group_reader_number_bounds(RowGroupReader *reader, uint32 block, uint64 *lowest,
										   uint64 *highest);
/* Position of a row in the group; false if it is not there (compacted away, never written). */
extern bool row_group_reader_position(RowGroupReader *reader, uint64 row, uint32 *position);
/* Bytes and pages read so far; those of chunks alone: a group that was pruned has none. */
extern uint64 row_group_reader_chunk_bytes_read(const RowGroupReader *reader);
extern uint64 row_group_reader_bytes_read(const RowGroupReader *reader);
extern uint64 row_group_reader_pages_read(const RowGroupReader *reader);

/* Forget cached footers of a file whose group ids start again (non-transactional truncation). */
extern void row_group_cache_forget(CompatFileLocator file);

#endif
