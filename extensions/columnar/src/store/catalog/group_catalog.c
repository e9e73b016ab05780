/*
 * group_catalog.c
 *		The catalog of one columnar table: opening it, changing it, listing it; see
 *		group_catalog.h.  Looking for the group of one row is in group_catalog_find.c.
 *
 * The catalog is a heap with a unique btree, so tuples are inserted as core inserts
 * chunks of TOAST values: heap_insert(), hidden from logical decoding, then an entry
 * in each index that is ready (there are two while one is rebuilt concurrently).
 *
 * Overwriting in place is possible because the inserting transaction is still
 * running: to all others the tuple does not exist, or they look at it under the
 * buffer's share lock (CatalogScan).  It is logged as a generic delta, which a
 * standby applies without this library, and which changes neither the tuple's header
 * nor its length.
 * The price: the developers' setting wal_consistency_checking = generic (or all) stops
 * recovery at such a record, since for generic records it does not leave out the hint
 * bits, in which a heap page on a standby may differ.
 *
 * Locks on the TOAST relation and its indexes are kept until the end of the
 * transaction by writers, so that a concurrent rebuild of the index can wait for
 * them, and given back at once by readers, as core does.
 *
 * Parallel workers may read: lists and scans use shared snapshots only.  heap_insert()
 * and heap_delete() refuse them.
 */
#include "store/catalog/group_catalog.h"

#include "access/generic_xlog.h"
#include "access/heapam.h"
#include "access/heaptoast.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/toast_internals.h"
#include "access/xact.h"
#include "catalog/toasting.h"
#include "store/catalog/catalog_scan.h"
#include "miscadmin.h"
#include "store/pages/page_patch.h"
#include "store/pages/space.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/inval.h"
#include "storage/predicate.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/* A part: the group's id, then bytes; as large as core's chunks, of which four fill a page. */
#define PART_HEADER CATALOG_PART_HEADER
#define PART_BYTES (TOAST_MAX_CHUNK_SIZE - PART_HEADER - CATALOG_CRC_BYTES)

/* ---- opening ----------------------------------------------------------------------------------- */

/*
 * Makes the TOAST relation of a table without one.  The lock conflicts with itself
 * and with DDL, not with writers, which may hold their lock and want this one.
 */
static void
make_toast_relation(Relation relation)
{
	LockRelation(relation, ShareUpdateExclusiveLock);
	if (OidIsValid(relation->rd_rel->reltoastrelid))
		return; /* somebody else did, and the lock brought the news */
	NewHeapCreateToastTable(RelationGetRelid(relation), (Datum) 0, ShareUpdateExclusiveLock,
							InvalidOid);
	if (!OidIsValid(relation->rd_rel->reltoastrelid))
		elog(ERROR, "could not make a TOAST relation for columnar table \"%s\"",
			 RelationGetRelationName(relation));
}

/* In a serializable transaction: that there are no rows is a fact that a writer may change. */
static void
note_empty_read(Relation relation)
{
	Relation toast;

	if (!IsolationIsSerializable() || !ActiveSnapshotSet() ||
		!OidIsValid(relation->rd_rel->reltoastrelid))
		return;
	toast = table_open(relation->rd_rel->reltoastrelid, AccessShareLock);
	PredicateLockRelation(toast, GetActiveSnapshot());
	table_close(toast, AccessShareLock);
}

/*
 * The flags that a concurrent rebuild changes.  Not as the relation cache has them: of an
 * index of a TOAST relation that is open when it hears of a change, it does not read
 * them again (RelationReloadIndexInfo() takes it for a system relation's), and we have it
 * open as long as a query runs.
 */
static void
read_index_flags(Relation index, bool *valid, bool *ready)
{
	HeapTuple tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(RelationGetRelid(index)));
	Form_pg_index form;

	*valid = *ready = false;
	if (!HeapTupleIsValid(tuple))
		return;
	form = (Form_pg_index) GETSTRUCT(tuple);
	*valid = form->indisvalid;
	*ready = form->indisready;
	ReleaseSysCache(tuple);
}

/*
 * Opens the TOAST relation's indexes.  False if none is valid as far as we know: a
 * concurrent rebuild makes the old one invalid and the new one valid at once, but we may
 * have heard of the one only.
 */
static bool
open_indexes(GroupCatalog *catalog)
{
	List *oids = RelationGetIndexList(catalog->toast);
	int nindexes = list_length(oids);
	bool found = false;
	ListCell *cell;

	if (nindexes == 0)
		elog(ERROR, "relation \"%s\" has no index", RelationGetRelationName(catalog->toast));
	catalog->nindexes = 0;
	catalog->indexes = palloc(nindexes * sizeof(Relation));
	catalog->ready = palloc(nindexes * sizeof(bool));
	foreach(cell, oids)
	{
		Relation index = try_relation_open(lfirst_oid(cell), catalog->lockmode);

		if (index != NULL)
			catalog->indexes[catalog->nindexes++] = index;
	}
	list_free(oids);
	for (int i = 0; i < catalog->nindexes; i++)
	{
		bool valid;

		read_index_flags(catalog->indexes[i], &valid, &catalog->ready[i]);
		if (valid)
			catalog->valid = i;
		found |= valid;
	}
	return found;
}

GroupCatalog *
group_catalog_open(Relation relation, LOCKMODE lockmode)
{
	GroupCatalog *catalog = palloc0(sizeof(GroupCatalog));

	catalog->relation = relation;
	catalog->lockmode = lockmode;
	/*
	 * No metapage, no rows.  Core truncates the table and its TOAST relation, then
	 * rebuilds the table's indexes, for which it is read, and only then that of the
	 * TOAST relation.
	 */
	if (lockmode == AccessShareLock && RelationGetNumberOfBlocks(relation) == 0)
	{
		space_check_empty(relation);
		note_empty_read(relation);
		return catalog;
	}
	if (!OidIsValid(relation->rd_rel->reltoastrelid))
	{
		if (lockmode == AccessShareLock)
			return catalog;
		make_toast_relation(relation);
	}
	catalog->toast = table_open(relation->rd_rel->reltoastrelid, lockmode);
	while (!open_indexes(catalog))
	{
		toast_close_indexes(catalog->indexes, catalog->nindexes, lockmode);
		pfree(catalog->ready);
		CHECK_FOR_INTERRUPTS();
		AcceptInvalidationMessages();
	}
	return catalog;
}

void
group_catalog_close(GroupCatalog *catalog)
{
	if (catalog->toast != NULL)
	{
		LOCKMODE release = catalog->lockmode == AccessShareLock ? AccessShareLock : NoLock;

		toast_close_indexes(catalog->indexes, catalog->nindexes, release);
		pfree(catalog->ready);
		table_close(catalog->toast, release);
	}
	pfree(catalog);
}

/* ---- tuples ------------------------------------------------------------------------------------ */

/* Inserts a tuple with its index entries. */
static void
insert_tuple(GroupCatalog *catalog, uint32 id, uint32 sequence, const void *bytes, uint32 length,
			 CommandId cid, ItemPointer tid)
{
	union
	{
		struct varlena header;
		char data[VARHDRSZ + TOAST_MAX_CHUNK_SIZE];
		int32 align_it;
	} chunk;
	Datum values[3];
	bool nulls[3] = {false, false, false};
	HeapTuple tuple;
	uint32 crc;

	if (catalog->toast == NULL || length > TOAST_MAX_CHUNK_SIZE - CATALOG_CRC_BYTES)
		elog(ERROR, "cannot insert %u bytes into the catalog of \"%s\"", length,
			 RelationGetRelationName(catalog->relation));
	SET_VARSIZE(&chunk, VARHDRSZ + length + CATALOG_CRC_BYTES);
	memcpy(VARDATA(&chunk), bytes, length);
	crc = catalog_tuple_crc(id, sequence, bytes, length);
	memcpy(VARDATA(&chunk) + length, &crc, sizeof(crc));
	values[0] = ObjectIdGetDatum(id);
	values[1] = Int32GetDatum((int32) sequence);
	values[2] = PointerGetDatum(&chunk);
	tuple = heap_form_tuple(RelationGetDescr(catalog->toast), values, nulls);
	heap_insert(catalog->toast, tuple, cid,
				HEAP_INSERT_NO_LOGICAL | (catalog->frozen ? HEAP_INSERT_FROZEN : 0), NULL);
	for (int i = 0; i < catalog->nindexes; i++)
	{
		Relation index = catalog->indexes[i];

		/*
		 * In a new file a record may stand beside the one that has replaced it.  A check for
		 * uniqueness would kill the entry of the older one: core believes of a relation
		 * that this transaction has made that no older snapshot can see it.
		 */
		if (catalog->ready[i])
			index_insert(index, values, nulls, &tuple->t_self, catalog->toast,
						 index->rd_index->indisunique && !catalog->frozen ? UNIQUE_CHECK_YES
																		  : UNIQUE_CHECK_NO,
						 false, NULL);
	}
	*tid = tuple->t_self;
	heap_freetuple(tuple);
}

/*
 * The tuple at tid on a page: this transaction's own, with `length` bytes of payload;
 * *columns points into the page.
 */
static void
locate_own_tuple(GroupCatalog *catalog, Page page, ItemPointer tid, uint32 length,
				 CatalogTuple *columns)
{
	OffsetNumber offset = ItemPointerGetOffsetNumber(tid);
	ItemId item = offset <= PageGetMaxOffsetNumber(page) ? PageGetItemId(page, offset) : NULL;
	HeapTupleData tuple;

	if (item == NULL || !ItemIdIsNormal(item))
		elog(ERROR, "catalog tuple (%u,%u) of \"%s\" is gone", ItemPointerGetBlockNumber(tid),
			 offset, RelationGetRelationName(catalog->relation));
	tuple.t_data = (HeapTupleHeader) PageGetItem(page, item);
	tuple.t_len = ItemIdGetLength(item);
	tuple.t_tableOid = RelationGetRelid(catalog->toast);
	tuple.t_self = *tid;
	if (!(catalog->frozen && HeapTupleHeaderXminFrozen(tuple.t_data)) &&
		!TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple.t_data)))
		elog(ERROR, "catalog tuple (%u,%u) of \"%s\" is another transaction's",
			 ItemPointerGetBlockNumber(tid), offset, RelationGetRelationName(catalog->relation));
	catalog_tuple_decode(catalog, &tuple, columns);
	if (columns->length != length)
		elog(ERROR, "catalog tuple (%u,%u) of \"%s\" has %u bytes in place of %u",
			 ItemPointerGetBlockNumber(tid), offset, RelationGetRelationName(catalog->relation),
			 columns->length, length);
}

/* Replaces the payload of a tuple of this transaction by as many bytes. */
static void
overwrite_tuple(GroupCatalog *catalog, ItemPointer tid, const void *bytes, uint32 length)
{
	Buffer buffer = ReadBuffer(catalog->toast, ItemPointerGetBlockNumber(tid));
	char payload[TOAST_MAX_CHUNK_SIZE];
	CatalogTuple columns;
	uint32 crc;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	locate_own_tuple(catalog, BufferGetPage(buffer), tid, length, &columns);
	memcpy(payload, bytes, length);
	crc = catalog_tuple_crc(columns.id, columns.sequence, bytes, length);
	memcpy(payload + length, &crc, sizeof(crc));
	page_patch(catalog->toast, buffer, unconstify(char *, columns.bytes), payload,
			   length + sizeof(crc));
	UnlockReleaseBuffer(buffer);
}

/* What is said about transactions in a tuple header, but locks and HOT. */
#define ID_BITS                                                                           \
	(HEAP_COMBOCID | HEAP_XMIN_COMMITTED | HEAP_XMIN_INVALID | HEAP_XMAX_COMMITTED |      \
	 HEAP_XMAX_INVALID | HEAP_XMAX_IS_MULTI | HEAP_XMAX_LOCK_ONLY | HEAP_XMAX_EXCL_LOCK | \
	 HEAP_XMAX_KEYSHR_LOCK)

void
group_catalog_copy_ids(GroupCatalog *catalog, ItemPointer tid, HeapTupleHeader source)
{
	Buffer buffer = ReadBuffer(catalog->toast, ItemPointerGetBlockNumber(tid));
	GenericXLogState *log;
	Page page;
	HeapTupleHeader header;

	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	log = GenericXLogStart(catalog->toast);
	page = GenericXLogRegisterBuffer(log, buffer, 0);
	header = (HeapTupleHeader) PageGetItem(page,
										   PageGetItemId(page, ItemPointerGetOffsetNumber(tid)));
	header->t_choice.t_heap = source->t_choice.t_heap;
	header->t_infomask = (header->t_infomask & ~ID_BITS) | (source->t_infomask & ID_BITS);
	GenericXLogFinish(log);
	UnlockReleaseBuffer(buffer);
}

/* Marks a tuple deleted by this transaction with this command id. */
static bool
delete_tuple(GroupCatalog *catalog, ItemPointer tid, CommandId cid)
{
	TM_FailureData failure;
	TM_Result result = compat_heap_delete(catalog->toast, tid, cid, true, &failure);

	switch (result)
	{
		case TM_Ok:
			return true;
		case TM_Updated:
		case TM_Deleted:
			return false;
		default:
			elog(ERROR, "catalog tuple (%u,%u) of \"%s\" cannot be deleted: result %d",
				 ItemPointerGetBlockNumber(tid), ItemPointerGetOffsetNumber(tid),
				 RelationGetRelationName(catalog->relation), result);
	}
	return false; /* keep compiler quiet */
}

/* ---- records ----------------------------------------------------------------------------------- */

void
group_catalog_insert(GroupCatalog *catalog, const GroupRecord *record, CommandId cid,
					 ItemPointer tid)
{
	insert_tuple(catalog, catalog_record_id(record->first_row),
				 catalog_record_sequence(record->first_row), record, sizeof(GroupRecord), cid, tid);
}

void
group_catalog_overwrite(GroupCatalog *catalog, ItemPointer tid, const GroupRecord *record)
{
	overwrite_tuple(catalog, tid, record, sizeof(GroupRecord));
}

bool
group_catalog_delete(GroupCatalog *catalog, ItemPointer tid)
{
	return delete_tuple(catalog, tid, GetCurrentCommandId(true));
}

void
group_catalog_delete_own(GroupCatalog *catalog, ItemPointer tid, CommandId cid)
{
	if (!delete_tuple(catalog, tid, cid + 1))
		elog(ERROR, "catalog tuple (%u,%u) of \"%s\" is another transaction's",
			 ItemPointerGetBlockNumber(tid), ItemPointerGetOffsetNumber(tid),
			 RelationGetRelationName(catalog->relation));
}

static int
compare_by_first_row(const void *left, const void *right)
{
	const GroupEntry *a = left;
	const GroupEntry *b = right;

	return a->record.first_row < b->record.first_row ? -1
													 : a->record.first_row > b->record.first_row;
}

/*
 * Somebody reads a table that has no rows yet.  In a serializable transaction that
 * conflicts with whoever inserts the first, as a scan of the catalog would.
 */
void
group_catalog_lock_empty(GroupCatalog *catalog, Snapshot snapshot)
{
	Oid toast_id = catalog->relation->rd_rel->reltoastrelid;
	Relation toast;
	TableScanDesc scan;

	if (!IsolationIsSerializable() || !OidIsValid(toast_id))
		return;
	PredicateLockRelation(catalog->relation, snapshot);
	toast = table_open(toast_id, AccessShareLock);
	scan = table_beginscan_strat(toast, snapshot, 0, NULL, true, false);
	while (heap_getnext(scan, ForwardScanDirection) != NULL)
		;
	table_endscan(scan);
	table_close(toast, AccessShareLock);
}

/*
 * A sequential scan, not one of the index: in a serializable transaction it locks
 * the whole catalog against writers, and notices those that came before.
 */
GroupEntry *
group_catalog_list(GroupCatalog *catalog, Snapshot snapshot, uint32 *ngroups)
{
	uint32 room = 64;
	GroupEntry *groups;
	TableScanDesc scan;
	HeapTuple tuple;

	Assert(IsMVCCSnapshot(snapshot));
	*ngroups = 0;
	if (catalog->toast == NULL)
	{
		group_catalog_lock_empty(catalog, snapshot);
		return NULL;
	}
	groups = palloc(room * sizeof(GroupEntry));
	/* against DDL, which only knows the table itself */
	PredicateLockRelation(catalog->relation, snapshot);
	scan = table_beginscan_strat(catalog->toast, snapshot, 0, NULL, true, false);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		GroupEntry *entry;
		CatalogTuple columns;

		catalog_tuple_decode(catalog, tuple, &columns);
		if (!catalog_tuple_is_record(&columns))
			continue;
		if (*ngroups == room)
		{
			room *= 2;
			groups = repalloc_huge(groups, (Size) room * sizeof(GroupEntry));
		}
		entry = &groups[*ngroups];
		catalog_entry_decode(catalog, tuple, &columns, snapshot, entry);
		if (entry->record.state != GROUP_OPEN && entry->visible_rows > 0)
			(*ngroups)++;
	}
	table_endscan(scan);
	qsort(groups, *ngroups, sizeof(GroupEntry), compare_by_first_row);
	catalog_check_records(catalog, groups, *ngroups);
	return groups;
}

/* Who deleted the tuple, or tries to; the buffer is locked. */
static TransactionId
tuple_deleter(HeapTupleHeader header)
{
	if ((header->t_infomask & HEAP_XMAX_INVALID) != 0 ||
		HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask))
		return InvalidTransactionId;
	return HeapTupleHeaderGetUpdateXid(header);
}

GroupTuple *
group_catalog_list_all(GroupCatalog *catalog, TransactionId oldest_xmin, uint32 *ntuples)
{
	uint32 room = 64;
	GroupTuple *tuples = palloc(room * sizeof(GroupTuple));
	TableScanDesc scan;
	HeapTuple tuple;

	*ntuples = 0;
	if (catalog->toast == NULL)
		return tuples;
	scan = table_beginscan_strat(catalog->toast, SnapshotAny, 0, NULL, true, false);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		/* still pinned by the scan: nothing moves on the page */
		Buffer buffer = ((HeapScanDesc) scan)->rs_cbuf;
		GroupTuple *entry;
		CatalogTuple columns;

		if (*ntuples == room)
		{
			room *= 2;
			tuples = repalloc_huge(tuples, (Size) room * sizeof(GroupTuple));
		}
		/* the tuple may be one that is just being overwritten */
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		catalog_tuple_decode(catalog, tuple, &columns);
		if (catalog_tuple_is_record(&columns))
		{
			entry = &tuples[(*ntuples)++];
			entry->status = HeapTupleSatisfiesVacuum(tuple, oldest_xmin, buffer);
			entry->xmax = tuple_deleter(tuple->t_data);
			catalog_entry_decode(catalog, tuple, &columns, SnapshotAny, &entry->entry);
		}
		LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	}
	table_endscan(scan);
	catalog_check_records(catalog, NULL, 0);
	return tuples;
}

/* ---- inline groups ----------------------------------------------------------------------------- */

/* Number of parts of an inline group; ERROR if there cannot be so many. */
static uint32
count_parts(GroupCatalog *catalog, const GroupRecord *record)
{
	uint64 parts = (record->length + PART_BYTES - 1) / PART_BYTES;

	if (parts > CATALOG_PARTS_MAX)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("row group %llu of columnar table \"%s\" is too large to be inline",
							   (unsigned long long) record->group_id,
							   RelationGetRelationName(catalog->relation))));
	return (uint32) parts;
}

void
group_catalog_write_inline(GroupCatalog *catalog, const GroupRecord *record, CommandId cid,
						   const char *bytes)
{
	uint32 nparts = count_parts(catalog, record);
	char part[PART_HEADER + PART_BYTES];

	memcpy(part, &record->group_id, PART_HEADER);
	for (uint32 i = 0; i < nparts; i++)
	{
		uint64 offset = (uint64) i * PART_BYTES;
		uint32 length = Min(record->length - offset, PART_BYTES);
		ItemPointerData tid;

		CHECK_FOR_INTERRUPTS();
		memcpy(part + PART_HEADER, bytes + offset, length);
		insert_tuple(catalog, catalog_record_id(record->first_row),
					 catalog_record_sequence(record->first_row) | (i + 1), part,
					 PART_HEADER + length, cid, &tid);
	}
}

/*
 * Advances a scan of parts to the next one that belongs to the group: other groups
 * that began at this row, by another transaction or before a compaction, have other
 * ids, and an aborted subtransaction's part may have the same.
 */
static bool
next_part(CatalogScan *scan, const GroupRecord *record)
{
	while (catalog_scan_next(scan))
	{
		uint64 group_id;

		if (scan->columns.length < PART_HEADER)
			continue;
		memcpy(&group_id, scan->columns.bytes, sizeof(group_id));
		if (group_id == record->group_id && catalog_scan_is_unaborted(scan))
			return true;
	}
	return false;
}

static void
begin_parts(CatalogScan *scan, GroupCatalog *catalog, const GroupRecord *record)
{
	uint32 sequence = catalog_record_sequence(record->first_row);

	catalog_scan_begin_range(scan, catalog, catalog_record_id(record->first_row), sequence | 1,
							 sequence | CATALOG_PARTS_MAX);
}

char *
group_catalog_read_inline(GroupCatalog *catalog, const GroupRecord *record)
{
	uint32 nparts = count_parts(catalog, record);
	uint32 found = 0;
	char *bytes;
	CatalogScan scan;

	format_place_set(RelationGetRelationName(catalog->relation), record->group_id, 0);
	if (catalog->toast == NULL)
		format_damaged("the table has no catalog");
	bytes = palloc(Max(record->length, 1));
	begin_parts(&scan, catalog, record);
	while (found < nparts && next_part(&scan, record))
	{
		uint64 offset = (uint64) found * PART_BYTES;
		uint32 length = Min(record->length - offset, PART_BYTES);

		if ((scan.columns.sequence & CATALOG_PARTS_MAX) != found + 1 ||
			scan.columns.length != PART_HEADER + length)
			format_damaged("its part %u has number %u and %u bytes", found + 1,
						   scan.columns.sequence & CATALOG_PARTS_MAX, scan.columns.length);
		memcpy(bytes + offset, scan.columns.bytes + PART_HEADER, length);
		found++;
	}
	catalog_scan_end(&scan);
	if (found < nparts)
		format_damaged("it has %u of its %u parts", found, nparts);
	return bytes;
}

void
group_catalog_delete_parts(GroupCatalog *catalog, const GroupRecord *record)
{
	uint32 nparts = count_parts(catalog, record);
	ItemPointerData *tids = palloc(Max(nparts, 1) * sizeof(ItemPointerData));
	uint32 found = 0;
	CatalogScan scan;

	/* the scan holds buffer locks, so first find, then delete */
	begin_parts(&scan, catalog, record);
	while (found < nparts && next_part(&scan, record))
		tids[found++] = scan.tuple.t_self;
	catalog_scan_end(&scan);
	for (uint32 i = 0; i < found; i++)
		group_catalog_delete(catalog, &tids[i]);
	pfree(tids);
}

/* ---- vectors ----------------------------------------------------------------------------------- */

void
group_catalog_insert_vector(GroupCatalog *catalog, uint32 unit, int32 number, const void *bytes,
							uint32 length, CommandId cid, ItemPointer tid)
{
	insert_tuple(catalog, CATALOG_VECTORS | unit, (uint32) number, bytes, length, cid, tid);
}

void
group_catalog_overwrite_vector(GroupCatalog *catalog, ItemPointer tid, const void *bytes,
							   uint32 length)
{
	overwrite_tuple(catalog, tid, bytes, length);
}

void
group_catalog_each_vector(GroupCatalog *catalog, uint32 unit, VectorCallback callback,
						  void *argument)
{
	CatalogScan scan;

	if (catalog->toast == NULL)
		return;
	catalog_scan_begin_range(&scan, catalog, CATALOG_VECTORS | unit, 0, PG_INT32_MAX);
	/* locks that ended pile up on a row that foreign keys refer to: skip what is dead for everybody */
	scan.index->ignore_killed_tuples = !scan.index->xactStartedInRecovery;
	while (catalog_scan_next(&scan))
	{
		catalog_scan_kill_if_dead(&scan);
		if (catalog_scan_is_unaborted(&scan) &&
			!callback(argument, &scan.tuple, scan.buffer, (int32) scan.columns.sequence,
					  scan.columns.bytes, scan.columns.length))
			break;
	}
	catalog_scan_end(&scan);
}

void
group_catalog_all_vectors(GroupCatalog *catalog, VectorCallback callback, void *argument)
{
	group_catalog_vectors_from(catalog, 0, callback, argument);
}

void
group_catalog_vectors_from(GroupCatalog *catalog, uint32 unit, VectorCallback callback,
						   void *argument)
{
	CatalogScan scan;

	if (catalog->toast == NULL)
		return;
	catalog_scan_begin_from(&scan, catalog, CATALOG_VECTORS | unit);
	while (catalog_scan_next(&scan))
	{
		if (catalog_scan_is_unaborted(&scan) &&
			!callback(argument, &scan.tuple, scan.buffer,
					  (int32) (scan.columns.id & ~CATALOG_VECTORS), scan.columns.bytes,
					  scan.columns.length))
			break;
	}
	catalog_scan_end(&scan);
}
