/*
 * verify.c
 *		columnar_verify(): reads everything of a columnar table and tells what is damaged.
 *
 *	 - the metapage;
 *	 - the catalog, page by page: every tuple, the dead ones too, because VACUUM and
 *	   look-ups by index come across these;
 *	 - the catalog's index, whether all tuples that it names are there: a page that
 *	   was lost does not tell;
 *	 - the row groups that the snapshot sees, all bytes of them, and whether the
 *	   catalog's index finds them;
 *	 - that ranges of row numbers and extents do not overlap, nor free extents with these.
 *
 * Each of these but the last is done in a subtransaction: an ERROR becomes a row of the
 * result, and the next page or row group is read.  What must outlive it is in the
 * verification's memory context; no lock, pin or open relation does.
 *
 * Free extents need no lock: while a snapshot sees a record, nobody prunes it, hence
 * nobody finds its extent free.
 */
#include "compat.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

#include "store/catalog/catalog_scan.h"
#include "store/table/introspect.h"
#include "store/catalog/row_group.h"
#include "store/rows/row_state.h"
#include "store/pages/space.h"

PG_FUNCTION_INFO_V1(columnar_verify);

typedef struct Verification
{
	Relation relation;
	GroupCatalog *catalog;
	Snapshot snapshot;
	ReturnSetInfo *result;
	MemoryContext context; /* current in the checks */
	SpaceState space;
	Extent *free_extents;
	uint32 nfree;
	GroupEntry *groups; /* that the snapshot sees, by first row once all are there */
	uint32 ngroups;
	uint32 room;
} Verification;

/* A check; `number` is a block of the catalog or an index of groups[]. */
typedef void (*Check)(Verification *verification, uint32 number);

/* A row of the result; record: NULL if no row group is at fault. */
static void
put_problem(Verification *verification, const GroupRecord *record, const char *problem)
{
	ReturnSetInfo *result = verification->result;
	Datum values[2] = {0, CStringGetTextDatum(problem)};
	bool nulls[2] = {record == NULL, false};

	if (record != NULL)
		values[0] = Int64GetDatum((int64) record->group_id);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* An error of the reading itself is passed on; all others tell of damage. */
static bool
is_damage(const ErrorData *error)
{
	int category = ERRCODE_TO_CATEGORY(error->sqlerrcode);

	return category != ERRCODE_OPERATOR_INTERVENTION &&
		   category != ERRCODE_INSUFFICIENT_RESOURCES && category != ERRCODE_TRANSACTION_ROLLBACK;
}

static char *
describe_error(const ErrorData *error)
{
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfoString(&text, error->message);
	if (error->detail != NULL)
		appendStringInfo(&text, ": %s", error->detail);
	if (error->context != NULL)
		appendStringInfo(&text, " (%s)", error->context);
	return text.data;
}

/* Run a check in a subtransaction; false if it failed, which is then in the result. */
static bool
run_check(Verification *verification, Check check, uint32 number, const GroupRecord *record)
{
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	char *volatile problem = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(verification->context);
	PG_TRY();
	{
		check(verification, number);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData *error;

		MemoryContextSwitchTo(verification->context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		CurrentResourceOwner = owner;
		MemoryContextDeleteChildren(verification->context);
		if (!is_damage(error))
			ReThrowError(error);
		MemoryContextSwitchTo(verification->context);
		problem = describe_error(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	CurrentResourceOwner = owner;
	if (problem != NULL)
		put_problem(verification, record, problem);
	return problem == NULL;
}

/* ---- metapage ---------------------------------------------------------------------------------- */

static void
check_metapage(Verification *verification, uint32 unused)
{
	space_read(verification->relation, &verification->space);
	verification->free_extents = space_list_free(verification->relation, &verification->nfree);
}

/* ---- catalog ----------------------------------------------------------------------------------- */

/* What is wrong with a tuple, or NULL; its columns if they can be read. */
static const char *
find_tuple_problem(HeapTuple tuple, CatalogTuple *columns)
{
	const char *problem;
	RowVector vector;

	columns->bytes = NULL;
	if (tuple->t_len < SizeofHeapTupleHeader || tuple->t_data->t_hoff > tuple->t_len)
		return "it is shorter than its header";
	problem = catalog_tuple_parse(tuple, columns);
	if (problem != NULL)
		return problem;
	if (catalog_tuple_is_record(columns))
		return catalog_record_problem(columns);
	if (columns->id >= CATALOG_VECTORS &&
		!row_vector_parse(&vector, columns->id - CATALOG_VECTORS, columns->bytes, columns->length))
		return "it is no vector of its rows";
	return NULL;
}

static void
add_group(Verification *verification, HeapTuple tuple, const CatalogTuple *columns)
{
	GroupEntry *entry;

	if (verification->ngroups == verification->room)
	{
		verification->room = Max(64, verification->room * 2);
		verification->groups = verification->groups == NULL
								   ? palloc(sizeof(GroupEntry) * verification->room)
								   : repalloc_huge(verification->groups,
												   sizeof(GroupEntry) * verification->room);
	}
	entry = &verification->groups[verification->ngroups];
	catalog_entry_decode(verification->catalog, tuple, columns, verification->snapshot, entry);
	if (entry->record.state != GROUP_OPEN && entry->visible_rows > 0)
		verification->ngroups++;
}

/* Check the tuples of a page of the catalog, and collect the row groups that
 * the snapshot sees. */
static void
check_catalog_page(Verification *verification, uint32 block)
{
	Relation toast = verification->catalog->toast;
	Buffer buffer = ReadBuffer(toast, block);
	Page page = BufferGetPage(buffer);
	OffsetNumber last;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	last = PageIsNew(page) ? InvalidOffsetNumber : PageGetMaxOffsetNumber(page);
	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
	{
		ItemId item = PageGetItemId(page, offset);
		HeapTupleData tuple;
		CatalogTuple columns;
		const char *problem;

		if (!ItemIdIsNormal(item))
			continue;
		ItemPointerSet(&tuple.t_self, block, offset);
		tuple.t_tableOid = RelationGetRelid(toast);
		tuple.t_len = Min(ItemIdGetLength(item), BLCKSZ - ItemIdGetOffset(item));
		tuple.t_data = (HeapTupleHeader) ((char *) page + ItemIdGetOffset(item));
		problem = find_tuple_problem(&tuple, &columns);
		if (problem != NULL)
			put_problem(verification, NULL,
						psprintf("the catalog is damaged: %s: %s",
								 catalog_tuple_describe(verification->catalog, &tuple, &columns),
								 problem));
		else if (catalog_tuple_is_record(&columns) &&
				 HeapTupleSatisfiesVisibility(&tuple, verification->snapshot, buffer))
			add_group(verification, &tuple, &columns);
	}
	UnlockReleaseBuffer(buffer);
}

static int
compare_blocks(const void *left, const void *right)
{
	BlockNumber a = *(const BlockNumber *) left;
	BlockNumber b = *(const BlockNumber *) right;

	return a < b ? -1 : a > b;
}

/* The blocks of the catalog that lack tuples which the index names, one for each; palloc'ed. */
static BlockNumber *
find_lost_tuples(GroupCatalog *catalog, uint32 *nlost)
{
	uint32 room = 64;
	BlockNumber *blocks = palloc(room * sizeof(BlockNumber));
	CatalogScan scan;

	*nlost = 0;
	catalog_scan_begin_from(&scan, catalog, 0);
	while (catalog_scan_step(&scan))
	{
		if (catalog_scan_look(&scan) != ENTRY_LOST)
			continue;
		if (*nlost == room)
		{
			room *= 2;
			blocks = repalloc_huge(blocks, (Size) room * sizeof(BlockNumber));
		}
		blocks[(*nlost)++] = ItemPointerGetBlockNumber(&scan.tid);
	}
	catalog_scan_end(&scan);
	return blocks;
}

/* Check that the tuples are there that the catalog's index names. */
static void
check_catalog_index(Verification *verification, uint32 unused)
{
	uint32 nlost;
	BlockNumber *blocks = find_lost_tuples(verification->catalog, &nlost);
	uint32 next;

	qsort(blocks, nlost, sizeof(BlockNumber), compare_blocks);
	for (uint32 i = 0; i < nlost; i = next)
	{
		for (next = i + 1; next < nlost && blocks[next] == blocks[i]; next++)
			;
		put_problem(verification, NULL,
					psprintf("the catalog is damaged: block %u of \"%s\" has lost %u tuples, "
							 "which its index names",
							 blocks[i], RelationGetRelationName(verification->catalog->toast),
							 next - i));
	}
	pfree(blocks);
}

/* ---- row groups -------------------------------------------------------------------------------- */

/* Are the row numbers in the group's range, and ascending if they are said to
 * be? */
static void
check_row_numbers(RowGroupReader *reader)
{
	const GroupRecord *record = row_group_reader_record(reader);
	uint64 *rows = palloc(sizeof(uint64) * BLOCK_ROWS);
	uint64 previous = 0;

	for (uint32 block = 0; block < row_group_reader_nblocks(reader); block++)
	{
		uint32 nrows = Min(BLOCK_ROWS, record->nrows - block * BLOCK_ROWS);

		CHECK_FOR_INTERRUPTS();
		row_group_reader_row_numbers(reader, block, rows);
		for (uint32 i = 0; i < nrows; i++)
		{
			if (rows[i] < record->first_row || rows[i] - record->first_row >= record->row_span)
				format_damaged("row number %llu is out of range", (unsigned long long) rows[i]);
			if ((record->flags & GROUP_ROWS_ASCEND) && block + i > 0 && rows[i] <= previous)
				format_damaged("row number %llu is out of order", (unsigned long long) rows[i]);
			previous = rows[i];
		}
	}
	pfree(rows);
}

/* Decode all values of a column, and count its NULLs. */
static void
check_column(RowGroupReader *reader, AttrNumber attribute)
{
	ChunkReader *chunk = row_group_reader_chunk(reader, attribute);
	const ChunkSummary *summary = row_group_reader_summary(reader, attribute);
	ColumnBlock decoded;
	uint64 nnulls = 0;

	if (chunk == NULL)
		return;
	memset(&decoded, 0, sizeof(decoded));
	column_block_init(&decoded, row_group_reader_type(reader, attribute));
	for (uint32 block = 0; block < chunk_reader_nblocks(chunk); block++)
	{
		CHECK_FOR_INTERRUPTS();
		chunk_reader_decode(chunk, block, &decoded);
		for (uint32 i = 0; i < decoded.nrows; i++)
			nnulls += column_block_is_null(&decoded, i);
		(void) chunk_reader_zone(chunk, block);
	}
	(void) chunk_reader_may_contain(chunk, 0);
	if (nnulls != summary->zone.nnulls)
		format_damaged("%llu values are NULL instead of %u", (unsigned long long) nnulls,
					   summary->zone.nnulls);
}

/* Read everything of a group; damage is an ERROR. */
static void
read_group(Verification *verification, const GroupRecord *record)
{
	Relation relation = verification->relation;
	MemoryContext column = AllocSetContextCreate(CurrentMemoryContext, "columnar verify column",
												 ALLOCSET_DEFAULT_SIZES);
	RowGroupReader *reader = row_group_reader_open(verification->catalog, record, NULL);
	GroupEntry found;

	if (!group_catalog_find(verification->catalog, record->first_row, verification->snapshot,
							&found) ||
		found.record.group_id != record->group_id)
		format_damaged("its record is not found by the index of the catalog");
	if (record->state == GROUP_STORED &&
		(uint64) record->first_block + record->nblocks > RelationGetNumberOfBlocks(relation))
		format_damaged("its extent ends at block %llu, behind the end of the file",
					   (unsigned long long) record->first_block + record->nblocks);
	check_row_numbers(reader);
	for (int attribute = 1; attribute <= RelationGetDescr(relation)->natts; attribute++)
	{
		MemoryContext caller = MemoryContextSwitchTo(column);

		check_column(reader, attribute);
		MemoryContextSwitchTo(caller);
		MemoryContextReset(column);
	}
	row_group_reader_close(reader);
}

static void
check_group(Verification *verification, uint32 number)
{
	MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext, "columnar verify group",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(scratch);

	read_group(verification, &verification->groups[number].record);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(scratch);
}

/* ---- row groups among each other --------------------------------------------------------------- */

static int
compare_groups_by_row(const void *left, const void *right)
{
	uint64 a = ((const GroupEntry *) left)->record.first_row;
	uint64 b = ((const GroupEntry *) right)->record.first_row;

	return a < b ? -1 : a > b;
}

static int
compare_groups_by_block(const void *left, const void *right)
{
	uint32 a = ((const GroupEntry *) left)->record.first_block;
	uint32 b = ((const GroupEntry *) right)->record.first_block;

	return a < b ? -1 : a > b;
}

static void
check_ranges(Verification *verification, bool has_metapage)
{
	const GroupRecord *before = NULL;

	for (uint32 i = 0; i < verification->ngroups; i++)
	{
		const GroupRecord *record = &verification->groups[i].record;

		if (before != NULL && record->first_row < before->first_row + before->row_span)
			put_problem(verification, record,
						psprintf("row numbers overlap those of row group " UINT64_FORMAT,
								 before->group_id));
		if (has_metapage && record->first_row + record->row_span > verification->space.next_row)
			put_problem(verification, record, "row numbers are beyond those given out");
		before = record;
	}
}

static bool
is_overlapping(const GroupRecord *record, const Extent *extent)
{
	return (uint64) record->first_block + record->nblocks > extent->first &&
		   (uint64) extent->first + extent->nblocks > record->first_block;
}

/* Sorts the groups by their blocks. */
static void
check_extents(Verification *verification)
{
	const GroupRecord *before = NULL;

	qsort(verification->groups, verification->ngroups, sizeof(GroupEntry), compare_groups_by_block);
	for (uint32 i = 0; i < verification->ngroups; i++)
	{
		const GroupRecord *record = &verification->groups[i].record;

		if (record->state != GROUP_STORED)
			continue;
		if (before != NULL && before->first_block + before->nblocks > record->first_block)
			put_problem(
				verification, record,
				psprintf("extent overlaps that of row group " UINT64_FORMAT, before->group_id));
		for (uint32 j = 0; j < verification->nfree; j++)
			if (is_overlapping(record, &verification->free_extents[j]))
				put_problem(verification, record,
							psprintf("extent is said to be free from block %u on",
									 verification->free_extents[j].first));
		before = record;
	}
}

/* ---- the function ------------------------------------------------------------------------------ */

static void
verify_catalog(Verification *verification, bool has_metapage)
{
	Relation toast = verification->catalog->toast;
	BlockNumber npages = toast == NULL ? 0 : RelationGetNumberOfBlocks(toast);

	if (toast != NULL)
		run_check(verification, check_catalog_index, 0, NULL);
	for (BlockNumber block = 0; block < npages; block++)
	{
		CHECK_FOR_INTERRUPTS();
		run_check(verification, check_catalog_page, block, NULL);
	}
	qsort(verification->groups, verification->ngroups, sizeof(GroupEntry), compare_groups_by_row);
	for (uint32 i = 0; i < verification->ngroups; i++)
	{
		GroupRecord record = verification->groups[i].record;

		run_check(verification, check_group, i, &record);
	}
	check_ranges(verification, has_metapage);
	check_extents(verification);
}

Datum
columnar_verify(PG_FUNCTION_ARGS)
{
	Verification verification = {.result = (ReturnSetInfo *) fcinfo->resultinfo,
								 .relation = columnar_open_to_read(PG_GETARG_OID(0)),
								 .snapshot = GetActiveSnapshot()};
	bool has_metapage;

	InitMaterializedSRF(fcinfo, 0);
	verification.context = AllocSetContextCreate(CurrentMemoryContext, "columnar verify",
												 ALLOCSET_DEFAULT_SIZES);
	has_metapage = run_check(&verification, check_metapage, 0, NULL);
	/* without any blocks there is nothing more to read, and the catalog cannot be
   * opened */
	if (RelationGetNumberOfBlocks(verification.relation) > 0)
	{
		verification.catalog = group_catalog_open(verification.relation, AccessShareLock);
		verify_catalog(&verification, has_metapage);
		group_catalog_close(verification.catalog);
	}
	table_close(verification.relation, NoLock);
	MemoryContextDelete(verification.context);
	return (Datum) 0;
}
