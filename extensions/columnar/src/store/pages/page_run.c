/*
 * page_run.c
 *		Bytes on ordinary pages; see page_run.h.
 *
 *		0		24						 24 + n				8192
 *		| page header | n <= 8168 bytes of the stream | zeroes |
 *
 * Every page of a run but the last one is full.  pd_lower stands behind the bytes
 * and pd_upper at the end of the page, so the rest is the "hole" that full-page
 * images leave out.
 *
 * Writing: the pages of a batch are locked together, filled, marked dirty and
 * logged by one XLOG_FPI record in one critical section, as WAL before data
 * demands.  Nobody else may know the blocks, hence a failure before that leaves
 * nothing to repair.  A batch is smaller where buffers are few, and a single page
 * where nothing is logged: local buffers are scarcer than shared ones.
 *
 * The ring lives as long as the session, not as long as a call: a load that writes
 * one row group after the other goes round in the same 16 MB of buffers.
 *
 * Reading: a page is share-locked while its bytes are copied, and checked first: a
 * page of zeroes, of another layout or with too few bytes is damage, not data.
 * What lies in the bytes is the format's business (footers and frames have CRCs).
 */
#include "store/pages/page_run.h"

#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/pg_control.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/spccache.h"

#include "store/pages/read_ahead.h"

/* ---- writing ----------------------------------------------------------------------------------- */

/* The session's ring for writing. */
static BufferAccessStrategy
bulk_write_ring(void)
{
	static BufferAccessStrategy ring = NULL;

	if (ring == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

		ring = GetAccessStrategy(BAS_BULKWRITE);
		MemoryContextSwitchTo(old);
	}
	return ring;
}

BlockNumber
page_run_extend(Relation relation, uint32 nblocks)
{
	bool shared = !RELATION_IS_LOCAL(relation);
	BlockNumber first;

	Assert(nblocks > 0);
	if (nblocks > MaxBlockNumber - RelationGetNumberOfBlocks(relation))
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("cannot extend columnar table \"%s\" by %u blocks",
							   RelationGetRelationName(relation), nblocks),
						errdetail("A table has at most %u blocks.", MaxBlockNumber),
						errhint("Free space with VACUUM, or partition the table.")));
	if (shared)
		LockRelationForExtension(relation, ExclusiveLock);
	first = compat_extend_relation(relation, bulk_write_ring(), nblocks);
	if (shared)
		UnlockRelationForExtension(relation, ExclusiveLock);
	return first;
}

/* How many pages may be locked and logged together. */
static int
batch_size(Relation relation)
{
	if (!RelationNeedsWAL(relation))
		return 1;
	return Max(1, Min(XLR_MAX_BLOCK_ID, NBuffers / 16));
}

/* Puts the bytes on a page that is locked, or local. */
static void
fill_page(Page page, const char *bytes, uint32 length)
{
	PageInit(page, BLCKSZ, 0);
	memcpy((char *) page + SizeOfPageHeaderData, bytes, length);
	((PageHeader) page)->pd_lower = SizeOfPageHeaderData + length;
}

/* Writes and logs count consecutive pages, which together hold the length bytes. */
static void
write_batch(Relation relation, BlockNumber first, int count, const char *bytes, uint64 length)
{
	Buffer buffers[XLR_MAX_BLOCK_ID];
	bool logged = RelationNeedsWAL(relation);

	for (int i = 0; i < count; i++)
		buffers[i] = ReadBufferExtended(relation, MAIN_FORKNUM, first + i, RBM_ZERO_AND_LOCK,
										bulk_write_ring());
	if (logged)
		XLogBeginInsert();

	START_CRIT_SECTION();
	for (int i = 0; i < count; i++)
	{
		uint64 offset = (uint64) i * PAGE_PAYLOAD;

		fill_page(BufferGetPage(buffers[i]), bytes + offset, Min(length - offset, PAGE_PAYLOAD));
		MarkBufferDirty(buffers[i]);
		if (logged)
			XLogRegisterBuffer(i, buffers[i], REGBUF_FORCE_IMAGE | REGBUF_STANDARD);
	}
	if (logged)
	{
		XLogRecPtr lsn = XLogInsert(RM_XLOG_ID, XLOG_FPI);

		for (int i = 0; i < count; i++)
			PageSetLSN(BufferGetPage(buffers[i]), lsn);
	}
	END_CRIT_SECTION();

	for (int i = 0; i < count; i++)
		UnlockReleaseBuffer(buffers[i]);
}

void
page_run_write(Relation relation, BlockNumber first, const char *bytes, uint64 length)
{
	uint32 nblocks = page_run_blocks(length);
	int batch = batch_size(relation);

	if (RelationNeedsWAL(relation))
		XLogEnsureRecordSpace(XLR_MAX_BLOCK_ID - 1, 0);
	for (uint32 done = 0; done < nblocks; done += batch)
	{
		int count = Min(batch, nblocks - done);
		uint64 offset = (uint64) done * PAGE_PAYLOAD;
		uint64 part = Min(length - offset, (uint64) count * PAGE_PAYLOAD);

		CHECK_FOR_INTERRUPTS();
		write_batch(relation, first + done, count, bytes + offset, part);
	}
}

/* ---- reading ----------------------------------------------------------------------------------- */

/* What the error context callback tells of: blocks that are read together. */
typedef struct ReadPosition
{
	PageSource *source;
	BlockNumber first;
	BlockNumber last;
} ReadPosition;

/* Adds the place to errors of the buffer manager (checksums, short files, I/O). */
static void
describe_read(void *argument)
{
	ReadPosition *position = argument;
	const char *table = RelationGetRelationName(position->source->relation);

	if (format_place.relation[0] != '\0')
		errcontext("reading blocks %u to %u of columnar table \"%s\", row group %llu",
				   position->first, position->last, table, (unsigned long long) format_place.group);
	else
		errcontext("reading blocks %u to %u of columnar table \"%s\"", position->first,
				   position->last, table);
}

/* Blocks that the relation has; the run was written before the source was made. */
static BlockNumber
relation_end(PageSource *source)
{
	if (source->end == 0)
		source->end = RelationGetNumberOfBlocks(source->relation);
	return source->end;
}

/* Raises damage unless the page is one of ours with at least `length` bytes. */
static void
check_page(Page page, BlockNumber block, uint32 length)
{
	PageHeader header = (PageHeader) page;

	if (PageIsNew(page))
		format_damaged("page %u is empty", block);
	if (PageGetPageSize(page) != BLCKSZ || PageGetPageLayoutVersion(page) != PG_PAGE_LAYOUT_VERSION)
		format_damaged("page %u has an unknown layout", block);
	if (header->pd_lower < SizeOfPageHeaderData || header->pd_lower > BLCKSZ ||
		header->pd_upper != BLCKSZ || header->pd_special != BLCKSZ)
		format_damaged("page %u has a header that does not belong to a row group", block);
	if (header->pd_lower - SizeOfPageHeaderData < length)
		format_damaged("page %u has %u bytes where %u are expected", block,
					   (uint32) (header->pd_lower - SizeOfPageHeaderData), length);
}

/*
 * Copies `length` bytes from position `skip` of a page's payload, and releases its buffer.  The rest of a
 * page that is not read to its end is kept: pages of an extent do not change.
 */
static void
copy_from_page(PageSource *source, Buffer buffer, uint32 skip, uint32 length, char *into)
{
	BlockNumber block = BufferGetBlockNumber(buffer);
	Page page = BufferGetPage(buffer);

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	check_page(page, block, skip + length);
	/* of a length with a bound gcc makes memcpy() an instruction that is slow at odd addresses */
	memmove(into, (char *) page + SizeOfPageHeaderData + skip, length);
	if (skip + length < PAGE_PAYLOAD)
	{
		source->kept_block = block;
		source->kept_length = ((PageHeader) page)->pd_lower - SizeOfPageHeaderData;
		memcpy(source->kept, (char *) page + SizeOfPageHeaderData, source->kept_length);
	}
	UnlockReleaseBuffer(buffer);
}

/* What of the bytes lies on the page that was kept is copied from there; how many they are. */
static uint32
copy_kept(const PageSource *source, uint64 offset, uint64 length, char *into)
{
	uint32 skip = offset % PAGE_PAYLOAD;
	uint32 part = Min(length, PAGE_PAYLOAD - skip);

	if (source->kept_length < skip + part ||
		source->kept_block != source->first + offset / PAGE_PAYLOAD)
		return 0;
	memcpy(into, source->kept + skip, part);
	return part;
}

/* Number of the block with this byte of the run; damage if the relation does not have it. */
static BlockNumber
locate_block(PageSource *source, uint64 offset)
{
	uint64 block = source->first + offset / PAGE_PAYLOAD;

	if (block >= relation_end(source))
		format_damaged("it lies in block %llu, and the table's file has %u blocks",
					   (unsigned long long) block, source->end);
	return (BlockNumber) block;
}

static void
read_pages(ByteSource *byte_source, uint64 offset, uint64 length, char *into)
{
	PageSource *source = (PageSource *) byte_source;
	uint32 kept = copy_kept(source, offset, length, into);
	ReadPosition position = {.source = source};
	ErrorContextCallback context = {
		.previous = error_context_stack, .callback = describe_read, .arg = &position};
	CompatBlockRun run;

	if (kept == length)
		return;
	offset += kept;
	into += kept;
	length -= kept;
	position.first = locate_block(source, offset);
	position.last = locate_block(source, offset + length - 1);
	error_context_stack = &context;
	compat_block_run_begin(&run, source->relation, source->strategy, position.first,
						   position.last + 1);
	while (length > 0)
	{
		uint32 skip = offset % PAGE_PAYLOAD;
		uint32 part = Min(length, PAGE_PAYLOAD - skip);

		CHECK_FOR_INTERRUPTS();
		copy_from_page(source, compat_block_run_next(&run), skip, part, into);
		source->pages_read++;
		offset += part;
		into += part;
		length -= part;
	}
	error_context_stack = context.previous;
}

/* Only a hint: bytes that are not there are left for read_pages() to complain about. */
static void
prefetch_pages(ByteSource *byte_source, uint64 offset, uint64 length)
{
	PageSource *source = (PageSource *) byte_source;
	uint64 block;
	uint64 end;

	if (length == 0 || offset >= byte_source->length ||
		get_tablespace_io_concurrency(source->relation->rd_rel->reltablespace) == 0)
		return;
	length = Min(length, byte_source->length - offset);
	block = source->first + offset / PAGE_PAYLOAD;
	end = source->first + (offset + length - 1) / PAGE_PAYLOAD + 1;
	end = Min(end, relation_end(source));
	if (block < end)
		read_ahead_blocks(source->relation, (BlockNumber) block, (BlockNumber) end);
}

void
page_source_init(PageSource *source, Relation relation, BlockNumber first, uint64 length,
				 BufferAccessStrategy strategy)
{
	source->source.length = length;
	source->source.read = read_pages;
	source->source.prefetch = prefetch_pages;
	source->relation = relation;
	source->first = first;
	source->end = 0;
	source->strategy = strategy;
	source->pages_read = 0;
	source->kept_block = InvalidBlockNumber;
	source->kept_length = 0;
}
