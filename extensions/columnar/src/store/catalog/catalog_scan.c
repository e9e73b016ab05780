/*
 * catalog_scan.c
 *		The tuples of a table's catalog as they physically lie there; see
 *		catalog_scan.h.
 *
 *		0	chunk_id	4
 *		4	chunk_seq	4
 *		8	length		4	of a varlena with a 4-byte header: the column's storage is plain
 *		12	bytes
 *			CRC			4	of key and bytes; see catalog_scan.h
 *
 * The bytes begin at a multiple of 4, so records are copied out before their 8-byte
 * fields are used.
 */
#include "store/catalog/catalog_scan.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/nbtree.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "store/pages/page_run.h"
#include "port/pg_crc32c.h"
#include "store/pages/space.h"
#include "storage/bufmgr.h"
#include "utils/fmgroids.h"

#define CHUNK_ID 1
#define CHUNK_SEQ 2
#define CHUNK_COLUMNS 3

/* Bytes before the varlena. */
#define KEY_BYTES 8

/* ---- tuples ------------------------------------------------------------------------------------ */

char *
catalog_tuple_describe(GroupCatalog *catalog, HeapTuple tuple, const CatalogTuple *columns)
{
	char *place = psprintf("tuple (%u,%u) of \"%s\"", ItemPointerGetBlockNumber(&tuple->t_self),
						   ItemPointerGetOffsetNumber(&tuple->t_self),
						   RelationGetRelationName(catalog->toast));

	if (columns->bytes == NULL)
		return place;
	if (columns->id >= CATALOG_VECTORS)
		return psprintf("%s, a vector of the rows from " UINT64_FORMAT " on", place,
						(uint64) (columns->id - CATALOG_VECTORS) * UNIT_ROWS);
	return psprintf("%s, %s of the row group from row " UINT64_FORMAT " on", place,
					catalog_tuple_is_record(columns) ? "the record" : "a part",
					catalog_first_row(columns->id, columns->sequence));
}

/* Not format_damaged(): it is not known for sure which row group the tuple belongs to. */
static void
report_damaged_tuple(GroupCatalog *catalog, HeapTuple tuple, const CatalogTuple *columns,
					 const char *problem)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("columnar table \"%s\" is damaged in its catalog",
					RelationGetRelationName(catalog->relation)),
			 errdetail("Found %s: %s.", catalog_tuple_describe(catalog, tuple, columns), problem),
			 errhint("Check the disk, and restore the table from a standby or a backup.")));
}

uint32
catalog_tuple_crc(uint32 id, uint32 sequence, const char *bytes, uint32 length)
{
	uint32 key[2] = {id, sequence};
	bool is_part = id < CATALOG_VECTORS && (sequence & CATALOG_PARTS_MAX) != 0;
	pg_crc32c crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, key, sizeof(key));
	COMP_CRC32C(crc, bytes, is_part ? Min(length, CATALOG_PART_HEADER) : length);
	FIN_CRC32C(crc);
	return crc;
}

const char *
catalog_tuple_parse(HeapTuple tuple, CatalogTuple *columns)
{
	HeapTupleHeader header = tuple->t_data;
	const char *data = (const char *) header + header->t_hoff;
	const char *bytes = data + KEY_BYTES;
	int64 left = (int64) tuple->t_len - header->t_hoff - KEY_BYTES;
	uint32 crc;

	columns->bytes = NULL;
	if (HeapTupleHeaderGetNatts(header) != CHUNK_COLUMNS || HeapTupleHasNulls(tuple) ||
		left < (int64) (VARHDRSZ + CATALOG_CRC_BYTES) || !VARATT_IS_4B_U(bytes) ||
		VARSIZE_4B(bytes) < VARHDRSZ + CATALOG_CRC_BYTES || VARSIZE_4B(bytes) > left)
		return "it does not have the three columns of a catalog";
	memcpy(&columns->id, data, sizeof(uint32));
	memcpy(&columns->sequence, data + sizeof(uint32), sizeof(uint32));
	columns->bytes = VARDATA_4B(bytes);
	columns->length = VARSIZE_4B(bytes) - VARHDRSZ - CATALOG_CRC_BYTES;
	memcpy(&crc, columns->bytes + columns->length, sizeof(crc));
	if (catalog_tuple_crc(columns->id, columns->sequence, columns->bytes, columns->length) != crc)
		return "its checksum is wrong";
	return NULL;
}

void
catalog_tuple_decode(GroupCatalog *catalog, HeapTuple tuple, CatalogTuple *columns)
{
	const char *problem = catalog_tuple_parse(tuple, columns);

	if (problem != NULL)
		report_damaged_tuple(catalog, tuple, columns, problem);
}

/* What is wrong with a record of the right version: its fields contradict each other or its place. */
static const char *
find_contradiction(const CatalogTuple *columns, const GroupRecord *record)
{
	if (record->first_row >= ROW_NUMBER_MAX ||
		record->row_span > ROW_NUMBER_MAX - record->first_row ||
		catalog_record_id(record->first_row) != columns->id ||
		catalog_record_sequence(record->first_row) != columns->sequence)
		return "its row numbers do not belong to its place in the catalog";
	if (record->nrows > ROW_GROUP_ROWS_MAX || record->nrows > record->row_span)
		return "it has more rows than row numbers";
	if (record->footer_offset > record->length)
		return "its footer begins behind its end";
	if (record->state > GROUP_INLINE || record->nruns > GROUP_COMMAND_RUNS)
		return "its state or number of command runs is unknown";
	if (record->state == GROUP_STORED && record->nrows > 0 &&
		(record->first_block == 0 || record->first_block > MaxBlockNumber ||
		 record->length > (uint64) record->nblocks * PAGE_PAYLOAD))
		return "its bytes do not fit into its blocks";
	return NULL;
}

const char *
catalog_record_problem(const CatalogTuple *columns)
{
	GroupRecord record;

	if (columns->length != sizeof(GroupRecord))
		return "it does not have the length of a row group's record";
	memcpy(&record, columns->bytes, sizeof(GroupRecord));
	if (record.version != FORMAT_VERSION)
		return "its format version is unknown";
	return find_contradiction(columns, &record);
}

/* How many of the record's rows, from the first on, are of commands before curcid? */
static uint32
count_rows_before(const GroupRecord *record, CommandId curcid)
{
	uint64 rows = 0;

	if (record->nruns == 0)
		return record->nrows;
	for (int i = 0; i < record->nruns; i++)
	{
		const CommandRun *run = &record->runs[i];
		uint64 seen;

		if (run->first >= curcid)
			break;
		seen = run->step == 0 ? run->repeats : ((uint64) curcid - run->first - 1) / run->step + 1;
		rows += Min(seen, run->repeats) * run->rows;
		if (seen < run->repeats)
			break;
	}
	return (uint32) Min(rows, record->nrows);
}

void
catalog_entry_decode(GroupCatalog *catalog, HeapTuple tuple, const CatalogTuple *columns,
					 Snapshot snapshot, GroupEntry *entry)
{
	const char *problem = catalog_record_problem(columns);
	bool own;

	if (problem != NULL)
		report_damaged_tuple(catalog, tuple, columns, problem);
	memcpy(&entry->record, columns->bytes, sizeof(GroupRecord));
	entry->tid = tuple->t_self;
	entry->xmin = HeapTupleHeaderGetXmin(tuple->t_data);
	own = TransactionIdIsCurrentTransactionId(entry->xmin);
	entry->cmin = own ? HeapTupleHeaderGetCmin(tuple->t_data) : InvalidCommandId;
	entry->visible_rows = own && IsMVCCSnapshot(snapshot)
							  ? count_rows_before(&entry->record, snapshot->curcid)
							  : entry->record.nrows;
}

/* ---- scans ------------------------------------------------------------------------------------- */

/* Begins a scan with the first nkeys of scan->keys. */
static void
begin_scan(CatalogScan *scan, GroupCatalog *catalog, int nkeys, ScanDirection direction)
{
	Assert(nkeys <= lengthof(scan->keys));
	scan->catalog = catalog;
	scan->direction = direction;
	scan->horizon = NULL;
	scan->buffer = InvalidBuffer;
	scan->locked = false;
	scan->index = compat_index_beginscan(catalog->toast, catalog->indexes[catalog->valid],
										 SnapshotAny, nkeys, 0);
	scan->index->xs_want_itup = true; /* the entries' keys */
	index_rescan(scan->index, scan->keys, nkeys, NULL, 0);
}

void
catalog_scan_begin_range(CatalogScan *scan, GroupCatalog *catalog, uint32 id, uint32 from,
						 uint32 to)
{
	ScanKeyInit(&scan->keys[0], CHUNK_ID, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(id));
	ScanKeyInit(&scan->keys[1], CHUNK_SEQ, BTGreaterEqualStrategyNumber, F_INT4GE,
				Int32GetDatum((int32) from));
	ScanKeyInit(&scan->keys[2], CHUNK_SEQ, BTLessEqualStrategyNumber, F_INT4LE,
				Int32GetDatum((int32) to));
	begin_scan(scan, catalog, 3, ForwardScanDirection);
	scan->index->ignore_killed_tuples = false;
}

void
catalog_scan_begin_groups(CatalogScan *scan, GroupCatalog *catalog)
{
	ScanKeyInit(&scan->keys[0], CHUNK_ID, BTLessStrategyNumber, F_OIDLT,
				ObjectIdGetDatum(CATALOG_VECTORS));
	begin_scan(scan, catalog, 1, ForwardScanDirection);
}

void
catalog_scan_begin_from(CatalogScan *scan, GroupCatalog *catalog, uint32 id)
{
	ScanKeyInit(&scan->keys[0], CHUNK_ID, BTGreaterEqualStrategyNumber, F_OIDGE,
				ObjectIdGetDatum(id));
	begin_scan(scan, catalog, 1, ForwardScanDirection);
	scan->index->ignore_killed_tuples = false;
}

/* (chunk_id, chunk_seq) <= (id, sequence): a row comparison, so that one descent finds the place. */
void
catalog_scan_begin_backward(CatalogScan *scan, GroupCatalog *catalog, uint64 first_row)
{
	ScanKeyEntryInitialize(&scan->members[0], SK_ROW_MEMBER, CHUNK_ID, BTLessEqualStrategyNumber,
						   InvalidOid, InvalidOid, F_BTOIDCMP,
						   ObjectIdGetDatum(catalog_record_id(first_row)));
	ScanKeyEntryInitialize(&scan->members[1], SK_ROW_MEMBER | SK_ROW_END, CHUNK_SEQ,
						   BTLessEqualStrategyNumber, InvalidOid, InvalidOid, F_BTINT4CMP,
						   Int32GetDatum((int32) catalog_record_sequence(first_row)));
	memset(&scan->keys[0], 0, sizeof(ScanKeyData));
	scan->keys[0].sk_flags = SK_ROW_HEADER;
	scan->keys[0].sk_attno = CHUNK_ID;
	scan->keys[0].sk_strategy = BTLessEqualStrategyNumber;
	scan->keys[0].sk_argument = PointerGetDatum(scan->members);
	begin_scan(scan, catalog, 1, BackwardScanDirection);
}

bool
catalog_scan_step(CatalogScan *scan)
{
	ItemPointer tid;

	if (scan->locked)
		LockBuffer(scan->buffer, BUFFER_LOCK_UNLOCK);
	scan->locked = false;
	CHECK_FOR_INTERRUPTS();
	tid = index_getnext_tid(scan->index, scan->direction);
	if (tid == NULL)
		return false;
	scan->tid = *tid;
	catalog_entry_key(scan->index->xs_itup, &scan->id, &scan->sequence);
	return true;
}

/* Adds the table to errors of the buffer manager (checksums, I/O). */
static void
describe_read(void *argument)
{
	errcontext("reading the catalog of columnar table \"%s\"",
			   RelationGetRelationName((Relation) argument));
}

/* What the entry leads to: a tuple, whose buffer is then locked, or not. */
static EntryState
look_at_tuple(CatalogScan *scan)
{
	Relation toast = scan->catalog->toast;
	ErrorContextCallback context = {
		.previous = error_context_stack, .callback = describe_read, .arg = scan->catalog->relation};
	BlockNumber block = ItemPointerGetBlockNumber(&scan->tid);
	OffsetNumber offset = ItemPointerGetOffsetNumber(&scan->tid);
	EntryState state = ENTRY_LOST;
	ItemId item;
	Page page;

	/* not even tried to be read: in 17 that leaves a buffer which is in the way of an extension */
	if (block >= scan->catalog->nblocks)
		scan->catalog->nblocks = RelationGetNumberOfBlocks(toast);
	if (block >= scan->catalog->nblocks)
		return ENTRY_LOST;
	error_context_stack = &context;
	scan->buffer = ReleaseAndReadBuffer(scan->buffer, toast, block);
	error_context_stack = context.previous;
	LockBuffer(scan->buffer, BUFFER_LOCK_SHARE);
	scan->locked = true;
	page = BufferGetPage(scan->buffer);
	item = PageIsNew(page) || offset > PageGetMaxOffsetNumber(page) ? NULL
																	: PageGetItemId(page, offset);
	if (item != NULL && ItemIdIsNormal(item))
	{
		scan->tuple.t_data = (HeapTupleHeader) PageGetItem(page, item);
		scan->tuple.t_len = ItemIdGetLength(item);
		scan->tuple.t_tableOid = RelationGetRelid(toast);
		scan->tuple.t_self = scan->tid;
		scan->problem = catalog_tuple_parse(&scan->tuple, &scan->columns);
		if (scan->problem != NULL ||
			(scan->columns.id == scan->id && scan->columns.sequence == scan->sequence))
			return ENTRY_TUPLE;
	}
	else if (item != NULL && ItemIdIsDead(item))
		state = ENTRY_STUB;
	LockBuffer(scan->buffer, BUFFER_LOCK_UNLOCK);
	scan->locked = false;
	return state;
}

/* Does a second look at the index find the scan's entry, too? */
static bool
is_in_index(CatalogScan *scan)
{
	CatalogScan again;
	bool found = false;

	catalog_scan_begin_range(&again, scan->catalog, scan->id, scan->sequence, scan->sequence);
	while (!found && catalog_scan_step(&again))
		found = ItemPointerEquals(&again.tid, &scan->tid);
	catalog_scan_end(&again);
	return found;
}

EntryState
catalog_scan_look(CatalogScan *scan)
{
	EntryState state = look_at_tuple(scan);

	if (state == ENTRY_LOST)
		state = is_in_index(scan) ? look_at_tuple(scan) : ENTRY_STUB;
	else if (state == ENTRY_STUB && !scan->index->xactStartedInRecovery)
		scan->index->kill_prior_tuple = true;
	return state;
}

bool
catalog_scan_fetch(CatalogScan *scan)
{
	EntryState state = catalog_scan_look(scan);

	if (state == ENTRY_LOST)
	{
		CatalogTuple columns = {.id = scan->id, .sequence = scan->sequence, .bytes = ""};
		HeapTupleData tuple = {.t_self = scan->tid};

		report_damaged_tuple(scan->catalog, &tuple, &columns,
							 "its page has lost it, and the catalog's index names it");
	}
	if (state == ENTRY_TUPLE && scan->problem != NULL)
		report_damaged_tuple(scan->catalog, &scan->tuple, &scan->columns, scan->problem);
	return state == ENTRY_TUPLE;
}

bool
catalog_scan_next(CatalogScan *scan)
{
	while (catalog_scan_step(scan))
	{
		if (catalog_scan_fetch(scan))
			return true;
	}
	return false;
}

/* Against no horizon, only what an aborted transaction inserted is dead. */
bool
catalog_scan_is_unaborted(CatalogScan *scan)
{
	TransactionId dead_after;

	return HeapTupleSatisfiesVacuumHorizon(&scan->tuple, scan->buffer, &dead_after) !=
		   HEAPTUPLE_DEAD;
}

void
catalog_scan_kill_if_dead(CatalogScan *scan)
{
	/* of a relation that this transaction has made core takes no older snapshot into account */
	if (scan->index->xactStartedInRecovery || RELATION_IS_LOCAL(scan->catalog->toast))
		return;
	if (scan->horizon == NULL)
		scan->horizon = GlobalVisTestFor(scan->catalog->toast);
	if (HeapTupleIsSurelyDead(&scan->tuple, scan->horizon))
		scan->index->kill_prior_tuple = true;
}

void
catalog_scan_end(CatalogScan *scan)
{
	if (scan->locked)
		LockBuffer(scan->buffer, BUFFER_LOCK_UNLOCK);
	if (BufferIsValid(scan->buffer))
		ReleaseBuffer(scan->buffer);
	index_endscan(scan->index);
}
