/*
 * space.c
 *		The metapage: next row number, next row group, free extents; see space.h.
 *
 *		0	page header (24 bytes; pd_lower behind the last extent)
 *		24	magic			4		"Strc"
 *		28	version			2		FORMAT_VERSION
 *		30	unused			2
 *		32	next_row		8
 *		40	next_group		8
 *		48	unused			8
 *		56	nfree			4
 *		60	crc				4		of all other bytes from 24 up to pd_lower
 *		64	extents			8 each	first block, number of blocks; ascending, apart
 *
 * Pages need not have checksums, and row numbers that are given out a second time
 * would make wrong rows: hence the CRC.
 *
 * A file without blocks, or with an empty page as its only one, is that of an empty
 * table only if the catalog has no tuples either: the second is what a crash between
 * the extension of the file and the logging of the metapage leaves.  Else it is damage:
 * row numbers must not start again below those of stored rows.  To tell the two apart,
 * the first metapage's record is flushed before anybody can extend the file further
 * or write into the catalog.
 *
 * Lock order: the space lock before buffer locks and the relation extension lock.
 * Readers take only the buffer's share lock.
 */
#include "store/pages/space.h"

#include "access/generic_xlog.h"
#include "access/table.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "store/pages/page_run.h"
#include "port/pg_crc32c.h"
#include "storage/lmgr.h"

#define METAPAGE_BLOCK 0
#define METAPAGE_MAGIC 0x63727453

typedef struct Metapage
{
	uint32 magic;
	uint16 version;
	uint16 unused;
	uint64 next_row;
	uint64 next_group;
	uint64 unused2;
	uint32 nfree;
	uint32 crc;
	Extent extents[FLEXIBLE_ARRAY_MEMBER];
} Metapage;

#define METAPAGE_EXTENTS ((PAGE_PAYLOAD - offsetof(Metapage, extents)) / sizeof(Extent))

StaticAssertDecl(MAXALIGN(SizeOfPageHeaderData) == SizeOfPageHeaderData,
				 "the metapage follows the page header at once");

static inline Metapage *
page_metapage(Page page)
{
	return (Metapage *) PageGetContents(page);
}

/* pd_lower of a metapage with nfree extents. */
static inline uint32
metapage_end(uint32 nfree)
{
	return SizeOfPageHeaderData + offsetof(Metapage, extents) + nfree * sizeof(Extent);
}

static uint32
metapage_crc(const Metapage *meta)
{
	pg_crc32c crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, meta, offsetof(Metapage, crc));
	COMP_CRC32C(crc, meta->extents, meta->nfree * sizeof(Extent));
	FIN_CRC32C(crc);
	return crc;
}

void
space_lock(Relation relation)
{
	LockPage(relation, METAPAGE_BLOCK, ExclusiveLock);
}

void
space_unlock(Relation relation)
{
	UnlockPage(relation, METAPAGE_BLOCK, ExclusiveLock);
}

/* ---- checks ------------------------------------------------------------------------------------ */

_Noreturn static void
report_damage(Relation relation, const char *detail, ...) pg_attribute_printf(2, 3);

/* Not format_damaged(): no row group is at fault. */
static void
report_damage(Relation relation, const char *detail, ...)
{
	char text[256];
	va_list arguments;

	va_start(arguments, detail);
	vsnprintf(text, sizeof(text), detail, arguments);
	va_end(arguments);
	ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
					errmsg("columnar table \"%s\" is damaged in its metapage",
						   RelationGetRelationName(relation)),
					errdetail("Found: %s.", text),
					errhint("Check the disk, and restore the table from a standby or a backup.")));
}

/* Raises an ERROR unless the page is a metapage that this version can read. */
static void
check_metapage(Relation relation, Page page)
{
	const Metapage *meta = page_metapage(page);
	PageHeader header = (PageHeader) page;

	if (PageGetPageSize(page) != BLCKSZ ||
		PageGetPageLayoutVersion(page) != PG_PAGE_LAYOUT_VERSION || header->pd_special != BLCKSZ)
		report_damage(relation, "the page has an unknown layout");
	if (meta->magic != METAPAGE_MAGIC)
		report_damage(relation, "the magic number is %08x", meta->magic);
	if (meta->nfree > METAPAGE_EXTENTS || header->pd_lower != metapage_end(meta->nfree))
		report_damage(relation, "%u free extents end at byte %u", meta->nfree, header->pd_lower);
	if (meta->crc != metapage_crc(meta))
		report_damage(relation, "its checksum is wrong");
	if (meta->version != FORMAT_VERSION)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("columnar table \"%s\" has format version %u",
							   RelationGetRelationName(relation), meta->version),
						errdetail("This library reads version %d.", FORMAT_VERSION)));
	if (meta->next_row > ROW_NUMBER_MAX)
		report_damage(relation, "the next row number is %llu", (unsigned long long) meta->next_row);
}

/* Raises an ERROR unless the extent lies in the file and behind the metapage. */
static void
check_extent(Relation relation, const Extent *extent, BlockNumber nblocks)
{
	if (extent->first == METAPAGE_BLOCK || extent->nblocks == 0 || extent->first >= nblocks ||
		extent->nblocks > nblocks - extent->first)
		report_damage(relation, "an extent of %u blocks from block %u is free in a file of %u",
					  extent->nblocks, extent->first, nblocks);
}

/* ---- reading ----------------------------------------------------------------------------------- */

/* Adds the place to errors of the buffer manager (checksums, short files, I/O). */
static void
describe_read(void *argument)
{
	errcontext("reading the metapage of columnar table \"%s\"",
			   RelationGetRelationName((Relation) argument));
}

/* Block 0, which is there, locked. */
static Buffer
read_metapage(Relation relation, int lockmode)
{
	ErrorContextCallback context = {
		.previous = error_context_stack, .callback = describe_read, .arg = relation};
	Buffer buffer;

	error_context_stack = &context;
	buffer = ReadBuffer(relation, METAPAGE_BLOCK);
	error_context_stack = context.previous;
	LockBuffer(buffer, lockmode);
	return buffer;
}

/* The metapage, locked and checked; InvalidBuffer if there is none, maybe because it was lost. */
static Buffer
find_metapage(Relation relation, int lockmode)
{
	Buffer buffer;

	if (RelationGetNumberOfBlocks(relation) == 0)
		return InvalidBuffer;
	buffer = read_metapage(relation, lockmode);
	if (PageIsNew(BufferGetPage(buffer)))
	{
		UnlockReleaseBuffer(buffer);
		return InvalidBuffer;
	}
	check_metapage(relation, BufferGetPage(buffer));
	return buffer;
}

void
space_check_empty(Relation relation)
{
	Oid toast_id = relation->rd_rel->reltoastrelid;
	bool has_groups = false;
	Buffer buffer;

	if (OidIsValid(toast_id))
	{
		Relation toast = table_open(toast_id, AccessShareLock);

		has_groups = RelationGetNumberOfBlocks(toast) > 0;
		table_close(toast, AccessShareLock);
	}
	if (!has_groups && RelationGetNumberOfBlocks(relation) <= 1)
		return;
	/* or has somebody made it meanwhile? */
	buffer = find_metapage(relation, BUFFER_LOCK_SHARE);
	if (!BufferIsValid(buffer))
		report_damage(relation, "it is empty or missing");
	UnlockReleaseBuffer(buffer);
}

void
space_read(Relation relation, SpaceState *state)
{
	Buffer buffer = find_metapage(relation, BUFFER_LOCK_SHARE);
	const Metapage *meta;

	memset(state, 0, sizeof(*state));
	if (!BufferIsValid(buffer))
	{
		space_check_empty(relation);
		return;
	}
	meta = page_metapage(BufferGetPage(buffer));
	state->next_row = meta->next_row;
	state->next_group = meta->next_group;
	state->nfree = meta->nfree;
	UnlockReleaseBuffer(buffer);
}

Extent *
space_list_free(Relation relation, uint32 *nextents)
{
	Buffer buffer = find_metapage(relation, BUFFER_LOCK_SHARE);
	Extent *extents;
	const Metapage *meta;

	*nextents = 0;
	if (!BufferIsValid(buffer))
		return NULL;
	meta = page_metapage(BufferGetPage(buffer));
	*nextents = meta->nfree;
	extents = palloc(Max(meta->nfree, 1) * sizeof(Extent));
	memcpy(extents, meta->extents, meta->nfree * sizeof(Extent));
	UnlockReleaseBuffer(buffer);
	return extents;
}

/* ---- changing ---------------------------------------------------------------------------------- */

/* A change of the metapage: `meta` is a copy until finish_change(). */
typedef struct MetapageChange
{
	Buffer buffer;
	GenericXLogState *log;
	Page page;
	Metapage *meta;
} MetapageChange;

/* Fills the metapage, without free extents; the buffer is locked. */
static XLogRecPtr
init_metapage(Relation relation, Buffer buffer, uint64 next_row, uint64 next_group)
{
	GenericXLogState *log = GenericXLogStart(relation);
	Page page = GenericXLogRegisterBuffer(log, buffer, GENERIC_XLOG_FULL_IMAGE);
	Metapage *meta = page_metapage(page);

	PageInit(page, BLCKSZ, 0);
	meta->magic = METAPAGE_MAGIC;
	meta->version = FORMAT_VERSION;
	meta->next_row = next_row;
	meta->next_group = next_group;
	meta->crc = metapage_crc(meta);
	((PageHeader) page)->pd_lower = metapage_end(0);
	return GenericXLogFinish(log);
}

void
space_write_copy(Relation file, const SpaceState *state)
{
	Buffer buffer = read_metapage(file, BUFFER_LOCK_EXCLUSIVE);

	init_metapage(file, buffer, state->next_row, state->next_group);
	UnlockReleaseBuffer(buffer);
}

/* Makes the metapage of a table without one; returns it locked. */
static Buffer
create_metapage(Relation relation)
{
	Buffer buffer;
	XLogRecPtr lsn;

	space_check_empty(relation);
	if (RelationGetNumberOfBlocks(relation) == 0 && page_run_extend(relation, 1) != METAPAGE_BLOCK)
		elog(ERROR, "the first block of relation \"%s\" is not block %d",
			 RelationGetRelationName(relation), METAPAGE_BLOCK);
	buffer = read_metapage(relation, BUFFER_LOCK_EXCLUSIVE);
	lsn = init_metapage(relation, buffer, 0, 0);
	if (RelationNeedsWAL(relation))
		XLogFlush(lsn);
	return buffer;
}

/* Locks the metapage, made if it is missing, for a change. */
static void
begin_change(Relation relation, MetapageChange *change)
{
	change->buffer = find_metapage(relation, BUFFER_LOCK_EXCLUSIVE);
	if (!BufferIsValid(change->buffer))
		change->buffer = create_metapage(relation);
	change->log = GenericXLogStart(relation);
	change->page = GenericXLogRegisterBuffer(change->log, change->buffer, 0);
	change->meta = page_metapage(change->page);
}

static void
finish_change(MetapageChange *change)
{
	((PageHeader) change->page)->pd_lower = metapage_end(change->meta->nfree);
	change->meta->crc = metapage_crc(change->meta);
	GenericXLogFinish(change->log);
	UnlockReleaseBuffer(change->buffer);
}

static void
cancel_change(MetapageChange *change)
{
	GenericXLogAbort(change->log);
	UnlockReleaseBuffer(change->buffer);
}

/* The metapage is made before, alone: of two who find none, one only may make it. */
void
space_lock_shared(Relation relation)
{
	Buffer buffer = find_metapage(relation, BUFFER_LOCK_SHARE);

	if (BufferIsValid(buffer))
		UnlockReleaseBuffer(buffer);
	else
	{
		space_lock(relation);
		buffer = find_metapage(relation, BUFFER_LOCK_SHARE);
		if (!BufferIsValid(buffer))
			buffer = create_metapage(relation);
		UnlockReleaseBuffer(buffer);
		space_unlock(relation);
	}
	LockPage(relation, METAPAGE_BLOCK, ShareLock);
}

void
space_unlock_shared(Relation relation)
{
	UnlockPage(relation, METAPAGE_BLOCK, ShareLock);
}

/* ---- row numbers ------------------------------------------------------------------------------- */

/* Raises an ERROR unless nrows more rows can be numbered from next_row on. */
static void
check_rows_left(Relation relation, uint64 next_row, uint64 nrows)
{
	if (nrows > ROW_NUMBER_MAX - next_row)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("columnar table \"%s\" has no row numbers left",
							   RelationGetRelationName(relation)),
						errdetail("A table can number %llu rows, deleted ones included.",
								  (unsigned long long) ROW_NUMBER_MAX),
						errhint("Rewrite the table with VACUUM FULL, or partition it.")));
}

uint64
space_take_rows(Relation relation, uint64 nrows, uint64 *group_id)
{
	MetapageChange change;
	uint64 first;

	begin_change(relation, &change);
	first = change.meta->next_row;
	check_rows_left(relation, first, nrows);
	change.meta->next_row += nrows;
	*group_id = change.meta->next_group++;
	finish_change(&change);
	return first;
}

bool
space_extend_rows(Relation relation, uint64 end, uint64 nrows)
{
	MetapageChange change;
	bool ours;

	begin_change(relation, &change);
	ours = change.meta->next_row == end;
	if (!ours)
	{
		cancel_change(&change);
		return false;
	}
	check_rows_left(relation, end, nrows);
	change.meta->next_row += nrows;
	finish_change(&change);
	return true;
}

void
space_return_rows(Relation relation, uint64 from, uint64 end)
{
	MetapageChange change;

	Assert(from <= end);
	begin_change(relation, &change);
	if (change.meta->next_row != end)
	{
		cancel_change(&change);
		return;
	}
	change.meta->next_row = from;
	finish_change(&change);
}

/* ---- extents ----------------------------------------------------------------------------------- */

/* Index of the smallest extent with at least nblocks, the first of equal ones; -1 without. */
static int
find_best_fit(const Extent *extents, uint32 nextents, uint32 nblocks)
{
	int best = -1;

	for (uint32 i = 0; i < nextents; i++)
	{
		if (extents[i].nblocks >= nblocks &&
			(best < 0 || extents[i].nblocks < extents[best].nblocks))
			best = i;
	}
	return best;
}

/* Takes the first nblocks of extents[index]; an extent that is used up leaves the list. */
static void
cut_extent(Extent *extents, uint32 *nextents, int index, uint32 nblocks)
{
	extents[index].first += nblocks;
	extents[index].nblocks -= nblocks;
	if (extents[index].nblocks > 0)
		return;
	(*nextents)--;
	memmove(&extents[index], &extents[index + 1], (*nextents - index) * sizeof(Extent));
}

BlockNumber
space_take_extent(Relation relation, uint32 nblocks)
{
	MetapageChange change;
	BlockNumber first;
	int best;

	Assert(nblocks > 0);
	begin_change(relation, &change);
	best = find_best_fit(change.meta->extents, change.meta->nfree, nblocks);
	if (best < 0)
	{
		cancel_change(&change);
		return page_run_extend(relation, nblocks);
	}
	check_extent(relation, &change.meta->extents[best], RelationGetNumberOfBlocks(relation));
	first = change.meta->extents[best].first;
	cut_extent(change.meta->extents, &change.meta->nfree, best, nblocks);
	finish_change(&change);
	return first;
}

static int
compare_by_position(const void *left, const void *right)
{
	const Extent *a = left;
	const Extent *b = right;

	return a->first < b->first ? -1 : a->first > b->first;
}

/* Larger ones first. */
static int
compare_by_size(const void *left, const void *right)
{
	const Extent *a = left;
	const Extent *b = right;

	if (a->nblocks != b->nblocks)
		return a->nblocks > b->nblocks ? -1 : 1;
	return compare_by_position(left, right);
}

/* Joins neighbours of a list sorted by position; returns how many are left. */
static uint32
join_neighbours(Extent *extents, uint32 nextents)
{
	uint32 kept = 0;

	for (uint32 i = 0; i < nextents; i++)
	{
		Extent *last = kept > 0 ? &extents[kept - 1] : NULL;

		if (last != NULL && extents[i].first < last->first + last->nblocks)
			elog(ERROR, "free extents overlap at block %u", extents[i].first);
		if (last != NULL && extents[i].first == last->first + last->nblocks)
			last->nblocks += extents[i].nblocks;
		else
			extents[kept++] = extents[i];
	}
	return kept;
}

void
space_set_free(Relation relation, const Extent *extents, uint32 nextents)
{
	BlockNumber nblocks = RelationGetNumberOfBlocks(relation);
	MetapageChange change;
	Extent *sorted;

	/* a table without rows needs no metapage to say that nothing is free */
	if (nblocks == 0 && nextents == 0)
		return;
	sorted = palloc(Max(nextents, 1) * sizeof(Extent));
	for (uint32 i = 0; i < nextents; i++)
	{
		check_extent(relation, &extents[i], nblocks);
		sorted[i] = extents[i];
	}
	qsort(sorted, nextents, sizeof(Extent), compare_by_position);
	nextents = join_neighbours(sorted, nextents);
	if (nextents > METAPAGE_EXTENTS)
	{
		qsort(sorted, nextents, sizeof(Extent), compare_by_size);
		nextents = METAPAGE_EXTENTS;
		qsort(sorted, nextents, sizeof(Extent), compare_by_position);
	}

	begin_change(relation, &change);
	memcpy(change.meta->extents, sorted, nextents * sizeof(Extent));
	change.meta->nfree = nextents;
	finish_change(&change);
	pfree(sorted);
}
