/*
 * group_catalog_find.c
 *		The row group of one row, as a snapshot sees it; see group_catalog.h.
 *
 * The index is read backward from the row: the group of a row is the last one that
 * begins at or before it.  But several records may lie on the way that are not
 * alive for the snapshot - of aborted and of running transactions, and those that a
 * compaction has replaced - and their ranges may overlap.  Ranges of records that
 * one snapshot sees never do, so the first one seen decides: it contains the row, or
 * no group does.
 *
 * An MVCC snapshot does not change while the index is read.  The present does: a
 * compaction may commit between the reading of an index page, on which its new
 * records are not yet or are still in progress, and the look at the old records, which
 * are deleted by then or lie behind a new one.  A unique index that misses a row that
 * way would accept its key a second time.  So a search of the present that finds
 * nothing is believed only if the one before it came to the same end: it passed the
 * same deleted records whose ranges contain the row and stopped at the same live one.
 * Why that is enough: suppose that a record A of the row was alive when the second
 * search began.  Its index entry was there, so A was passed, and then it was found
 * alive, or deleted meanwhile - which the first search did not see; or A was not
 * reached, because the search stopped at a record X behind A.  X was alive in the
 * first search already, and A overlaps it: they cannot both have been alive.  (A
 * cannot have been pruned: the caller holds a snapshot, older than A's deletion.)
 * A search that passed no such record and stopped at none needs no second one.
 *
 * Entries of records that are dead for everybody are marked as killed, so that later
 * searches pass them without a look at the heap; after a merge of many small groups
 * there are many of them in front of the large one.
 */
#include "store/catalog/group_catalog.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/xact.h"
#include "store/catalog/catalog_scan.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "store/pages/space.h"
#include "storage/predicate.h"

static inline bool
record_contains(const GroupRecord *record, uint64 row)
{
	return row >= record->first_row && row - record->first_row < record->row_span;
}

/*
 * Does a record that the search sees end it?  A reservation that came to nothing, and
 * that another transaction committed, has no rows, and its range may have been given back.
 */
static inline bool
entry_decides(const GroupEntry *entry)
{
	return entry->record.nrows > 0 || TransactionIdIsCurrentTransactionId(entry->xmin);
}

/* ---- MVCC snapshots ---------------------------------------------------------------------------- */

static bool
find_visible(GroupCatalog *catalog, uint64 row, Snapshot snapshot, GroupEntry *entry)
{
	bool found = false;
	CatalogScan scan;

	/* in a serializable transaction: against every change of the catalog from now on */
	PredicateLockRelation(catalog->toast, snapshot);
	PredicateLockRelation(catalog->relation, snapshot);
	catalog_scan_begin_backward(&scan, catalog, row);
	while (catalog_scan_next(&scan))
	{
		bool visible;

		if (!catalog_tuple_is_record(&scan.columns))
			continue;
		visible = HeapTupleSatisfiesVisibility(&scan.tuple, snapshot, scan.buffer);
		HeapCheckForSerializableConflictOut(visible, catalog->toast, &scan.tuple, scan.buffer,
											snapshot);
		if (!visible)
		{
			catalog_scan_kill_if_dead(&scan);
			continue;
		}
		catalog_entry_decode(catalog, &scan.tuple, &scan.columns, snapshot, entry);
		if (entry_decides(entry))
		{
			found = record_contains(&entry->record, row);
			break;
		}
	}
	catalog_scan_end(&scan);
	return found;
}

/* ---- the present ------------------------------------------------------------------------------- */

/* What a record is to a search of the present. */
typedef enum RecordFate
{
	FATE_DEAD,		/* aborted, deleted, or deleted by this transaction */
	FATE_INSERTING, /* another transaction inserted it and runs */
	FATE_ALIVE		/* committed or this transaction's; a deleter that runs is a compaction */
} RecordFate;

/* The scan's tuple against the present; *inserter is set for FATE_INSERTING. */
static RecordFate
judge_record(CatalogScan *scan, TransactionId *inserter)
{
	SnapshotData dirty;

	InitDirtySnapshot(dirty);
	if (!HeapTupleSatisfiesVisibility(&scan->tuple, &dirty, scan->buffer))
		return FATE_DEAD;
	*inserter = dirty.xmin;
	return TransactionIdIsValid(dirty.xmin) ? FATE_INSERTING : FATE_ALIVE;
}

/* A digest of what a search in vain came across, 0 for nothing; see the head of this file. */
typedef uint64 SearchTrace;

static SearchTrace
add_to_trace(SearchTrace trace, const CatalogScan *scan, RecordFate fate)
{
	uint64 place = ((uint64) ItemPointerGetBlockNumberNoCheck(&scan->tuple.t_self) << 32) |
				   (uint64) ItemPointerGetOffsetNumberNoCheck(&scan->tuple.t_self) << 8 | fate;

	return hash_combine64(trace, hash_bytes_extended((unsigned char *) &place, sizeof(place), 1));
}

/* Sets what a Dirty snapshot tells of a row that another transaction is inserting. */
static void
report_inserter(Snapshot snapshot, const GroupRecord *record, uint64 row, TransactionId inserter)
{
	snapshot->xmin = inserter;
	if (record->speculative_token != 0 && record->speculative_row == row)
		snapshot->speculativeToken = record->speculative_token;
}

/* One pass over the index; true if the group was found. */
static bool
search_present(GroupCatalog *catalog, uint64 row, Snapshot snapshot, GroupEntry *entry,
			   SearchTrace *trace)
{
	bool found = false;
	CatalogScan scan;

	*trace = 0;
	catalog_scan_begin_backward(&scan, catalog, row);
	while (!found && catalog_scan_next(&scan))
	{
		TransactionId inserter = InvalidTransactionId;
		RecordFate fate;
		bool contains;

		if (!catalog_tuple_is_record(&scan.columns))
			continue;
		fate = judge_record(&scan, &inserter);
		catalog_entry_decode(catalog, &scan.tuple, &scan.columns, snapshot, entry);
		contains = record_contains(&entry->record, row);
		if (fate == FATE_DEAD)
		{
			if (contains && catalog_scan_is_unaborted(&scan))
				*trace = add_to_trace(*trace, &scan, fate);
			catalog_scan_kill_if_dead(&scan);
		}
		else if (fate == FATE_ALIVE && entry_decides(entry))
		{
			found = contains;
			if (!found)
				*trace = add_to_trace(*trace, &scan, fate);
			break;
		}
		else if (fate == FATE_INSERTING && contains && snapshot->snapshot_type != SNAPSHOT_SELF &&
				 (entry->record.flags & GROUP_REWRITTEN) == 0)
		{
			if (snapshot->snapshot_type == SNAPSHOT_DIRTY)
				report_inserter(snapshot, &entry->record, row, inserter);
			found = true;
		}
	}
	catalog_scan_end(&scan);
	return found;
}

static bool
find_present(GroupCatalog *catalog, uint64 row, Snapshot snapshot, GroupEntry *entry)
{
	SearchTrace previous = 0;

	for (;;)
	{
		SearchTrace trace;

		if (search_present(catalog, row, snapshot, entry, &trace))
			return true;
		if (trace == previous)
			return false;
		previous = trace;
		CHECK_FOR_INTERRUPTS();
	}
}

bool
group_catalog_find(GroupCatalog *catalog, uint64 row, Snapshot snapshot, GroupEntry *entry)
{
	if (snapshot->snapshot_type == SNAPSHOT_DIRTY)
	{
		snapshot->xmin = snapshot->xmax = InvalidTransactionId;
		snapshot->speculativeToken = 0;
	}
	if (catalog->toast == NULL || row >= ROW_NUMBER_MAX)
	{
		if (catalog->toast == NULL && IsMVCCSnapshot(snapshot))
			group_catalog_lock_empty(catalog, snapshot);
		return false;
	}
	if (IsMVCCSnapshot(snapshot))
		return find_visible(catalog, row, snapshot, entry);
	return find_present(catalog, row, snapshot, entry);
}
