/*
 * compaction.h
 *		Few large row groups out of many small ones, and without the rows that are dead.
 *
 * Rows keep their numbers, so indexes and delete vectors stay right, and readers
 * and writers go on: whoever has an older snapshot sees the old row groups, whose
 * records this transaction deletes, everybody else the new ones, from the moment of its
 * commit.  Only compaction, VACUUM and DDL exclude each other
 * (ShareUpdateExclusiveLock).
 */
#ifndef COLUMNAR_COMPACTION_H
#define COLUMNAR_COMPACTION_H

#include "store/catalog/group_catalog.h"
#include "store/options/options.h"
#include "store/rows/row_version.h"

typedef struct CompactionResult
{
	uint32 groups_read; /* groups that were replaced */
	uint32 groups_written;
	uint64 rows_removed; /* dead for every snapshot, now gone */
	bool more;			 /* stopped at the limit */
} CompactionResult;

typedef enum CompactionMode
{
	/*
	 * In the background: a group that is many times larger than its neighbours to come
	 * waits until these have grown, so that a row is rewritten a few times only.
	 */
	COMPACT_THRIFTY,
	COMPACT_DUE, /* all that is small or worn */
	COMPACT_ALL	 /* good groups, too, to apply new options */
} CompactionMode;

/*
 * Compacts the table in the current transaction; the caller holds
 * ShareUpdateExclusiveLock (or more).  `limit`: stop after so many groups read (0: none).
 */
extern void
compaction_run(Relation relation, CompactionMode mode, uint32 limit, CompactionResult *result);

/* Is it worth running in the background?  From the catalog alone. */
extern bool compaction_is_due(Relation relation);

/* ---- for relation_rewrite.c and relation_vacuum.c ----------------------------------------------- */

/* Live or dead, by first_row; entries without rows left out. */
extern GroupTuple *
compaction_list(GroupCatalog *catalog, TransactionId oldest_xmin, uint32 *ntuples);

/* Rows collected from groups to be written as one. */
typedef struct RowCollector RowCollector;

extern RowCollector *row_collector_begin(Relation relation);
/* Adds the rows of a stored group that are not in `dead` (NULL: all); returns how many were left out. */
extern uint64 row_collector_add(RowCollector *collector, GroupCatalog *catalog,
								const GroupRecord *record, const DeletedRows *dead);
extern bool row_collector_is_full(const RowCollector *collector, uint32 more_rows);
/*
 * Writes the collected rows, if there are any, as one group of the catalog (its
 * own relation's or a new file's), and empties the collector.  Returns whether a group was written.
 */
extern bool row_collector_write(RowCollector *collector, GroupCatalog *catalog, uint16 flags);
extern void row_collector_end(RowCollector *collector);

/*
 * Encodes a stored group once more, with values in all columns of the table, all rows as they stand and
 * where they stood: changes what the record says of its bytes, but of their place.
 */
extern void row_collector_encode_again(GroupCatalog *catalog, const TableOptions *options,
									   GroupRecord *record, ByteBuffer *bytes);

#endif
