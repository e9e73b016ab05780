/*
 * file_copy.c
 *		The main fork of a relation in another file; see file_copy.h.
 *
 * Pages are written through shared buffers and logged as full images, WAL before data: so a standby
 * makes the same file without this library, and no fsync is waited for under a lock.
 */
#include "store/pages/file_copy.h"

#include "access/xlogutils.h"
#include "access/xloginsert.h"
#include "access/xlogutils.h"
#include "catalog/pg_class.h"
#include "catalog/storage.h"
#include "commands/tablecmds.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/relcache.h"

#include "store/pages/page_run.h"

Relation
file_create(Oid tablespace, Oid number)
{
	CompatFileLocator locator = compat_make_file_locator(tablespace, MyDatabaseId, number);

	RelationCreateStorage(locator, RELPERSISTENCE_PERMANENT, true);
	return CreateFakeRelcacheEntry(locator);
}

void
file_discard(Relation file)
{
	FreeFakeRelcacheEntry(file);
}

void
file_install(Relation relation, Relation file)
{
	CompatFileLocator locator = compat_file_locator(file);

	RelationDropStorage(relation);
	SetRelationTableSpace(relation, compat_file_tablespace(locator), compat_file_number(locator));
	compat_assume_new_file(relation);
}

void
file_copy_begin(FileCopy *copy, Relation source, Relation file)
{
	copy->source = source;
	copy->file = file;
	copy->ncopied = 0;
	copy->capacity = 16;
	copy->copied = palloc(copy->capacity * sizeof(XLogRecPtr));
}

/* Makes the copy as long as the source; all pages behind its end are to be copied. */
static void
extend_copy(FileCopy *copy, BlockNumber nblocks)
{
	if (nblocks <= copy->ncopied)
		return;
	page_run_extend(copy->file, nblocks - copy->ncopied);
	if (nblocks > copy->capacity)
	{
		copy->capacity = Max(nblocks, copy->capacity * 2);
		copy->copied = repalloc_huge(copy->copied, copy->capacity * sizeof(XLogRecPtr));
	}
	while (copy->ncopied < nblocks)
		copy->copied[copy->ncopied++] = InvalidXLogRecPtr;
}

/* Takes a page that has changed since it was copied; false if it has not. */
static bool
take_page(FileCopy *copy, BlockNumber block, PGAlignedBlock *page, XLogRecPtr *lsn)
{
	Buffer buffer = ReadBuffer(copy->source, block);
	bool changed;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	*lsn = PageGetLSN(BufferGetPage(buffer));
	changed = XLogRecPtrIsInvalid(copy->copied[block]) || *lsn != copy->copied[block];
	if (changed)
		memcpy(page->data, BufferGetPage(buffer), BLCKSZ);
	UnlockReleaseBuffer(buffer);
	return changed;
}

static void
write_page(Relation file, BlockNumber block, const PGAlignedBlock *page)
{
	Buffer buffer = ReadBufferExtended(file, MAIN_FORKNUM, block, RBM_ZERO_AND_LOCK, NULL);

	START_CRIT_SECTION();
	memcpy(BufferGetPage(buffer), page->data, BLCKSZ);
	MarkBufferDirty(buffer);
	log_newpage_buffer(buffer, true);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
}

uint32
file_copy_catch_up(FileCopy *copy, FileCopyPatch patch, void *argument)
{
	uint32 written = 0;

	extend_copy(copy, RelationGetNumberOfBlocks(copy->source));
	for (BlockNumber block = 0; block < copy->ncopied; block++)
	{
		PGAlignedBlock page;
		XLogRecPtr lsn;

		CHECK_FOR_INTERRUPTS();
		if (!take_page(copy, block, &page, &lsn))
			continue;
		if (patch != NULL && !patch(argument, block, page.data))
			lsn = InvalidXLogRecPtr;
		write_page(copy->file, block, &page);
		copy->copied[block] = lsn;
		written++;
	}
	return written;
}
