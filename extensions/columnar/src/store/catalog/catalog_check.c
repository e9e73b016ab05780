/*
 * catalog_check.c
 *		Is every record there that the index of a catalog names?  See catalog_scan.h.
 *
 * Each list of row groups asks, so the answer must cost next to nothing where all is
 * well and every record is one of the list: then a look at the leaf pages of the
 * index is enough, in which the records come in the order of the list.  Only if one
 * is not (it is dead, in progress, without rows, or lost) an ordinary scan looks at
 * the tuples, and marks the entries of those that are dead for everybody as killed;
 * so the next list is quick again.  The quick look cannot find damage, and need not
 * care for what changes under it: at worst it sends us to the scan.
 */
#include "store/catalog/catalog_scan.h"

#include "access/nbtree.h"
#include "access/xact.h"
#include "storage/bufmgr.h"

/* The listed groups that are passed in the order of the index. */
typedef struct ListedGroups
{
	const GroupEntry *next;
	const GroupEntry *end;
} ListedGroups;

/* Is the record of an index entry on the list?  Its key is behind those that were asked for before. */
static bool
is_listed(ListedGroups *groups, uint64 first_row, ItemPointerData tid)
{
	while (groups->next < groups->end && groups->next->record.first_row < first_row)
		groups->next++;
	if (groups->next < groups->end && groups->next->record.first_row == first_row)
	{
		ItemPointerData listed = groups->next->tid;

		return ItemPointerEquals(&listed, &tid);
	}
	return false;
}

/* The same for all live entries of a leaf page; *done: there are no more records behind it. */
static bool
lists_page(ListedGroups *groups, Page page, bool skip_killed, bool *done)
{
	BTPageOpaque opaque = BTPageGetOpaque(page);
	OffsetNumber last = P_IGNORE(opaque) ? InvalidOffsetNumber : PageGetMaxOffsetNumber(page);

	*done = P_RIGHTMOST(opaque);
	for (OffsetNumber offset = P_FIRSTDATAKEY(opaque); offset <= last; offset++)
	{
		ItemId item = PageGetItemId(page, offset);
		IndexTuple entry = (IndexTuple) PageGetItem(page, item);
		uint32 id;
		uint32 sequence;

		catalog_entry_key(entry, &id, &sequence);
		if (id >= CATALOG_VECTORS)
		{
			*done = true;
			return true;
		}
		if (!catalog_key_is_record(id, sequence) || (skip_killed && ItemIdIsDead(item)))
			continue;
		/* of several versions with one key one at most is listed */
		if (BTreeTupleIsPosting(entry) ||
			!is_listed(groups, catalog_first_row(id, sequence), entry->t_tid))
			return false;
	}
	return true;
}

/* Are all records on the list, as far as a look without locks between the pages can tell? */
static bool
lists_all(GroupCatalog *catalog, ListedGroups groups)
{
	Relation index = catalog->indexes[catalog->valid];
	bool skip_killed = !TransactionStartedDuringRecovery();
	Buffer buffer = compat_bt_leftmost_leaf(index);
	bool done = !BufferIsValid(buffer);
	bool listed = true;

	while (!done)
	{
		Page page = BufferGetPage(buffer);

		listed = lists_page(&groups, page, skip_killed, &done);
		done |= !listed;
		if (!done)
			buffer = _bt_relandgetbuf(index, buffer, BTPageGetOpaque(page)->btpo_next, BT_READ);
	}
	if (BufferIsValid(buffer))
		_bt_relbuf(index, buffer);
	return listed;
}

void
catalog_check_records(GroupCatalog *catalog, const GroupEntry *groups, uint32 ngroups)
{
	ListedGroups listed = {.next = groups, .end = groups + ngroups};
	CatalogScan scan;

	if (groups != NULL && lists_all(catalog, listed))
		return;
	catalog_scan_begin_groups(&scan, catalog);
	while (catalog_scan_step(&scan))
	{
		if (catalog_key_is_record(scan.id, scan.sequence) &&
			!is_listed(&listed, catalog_first_row(scan.id, scan.sequence), scan.tid) &&
			catalog_scan_fetch(&scan))
			catalog_scan_kill_if_dead(&scan);
	}
	catalog_scan_end(&scan);
}
