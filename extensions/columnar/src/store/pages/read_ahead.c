/*
 * read_ahead.c
 *		Asking the kernel for consecutive blocks of a table before they are read; see
 *		read_ahead.h.
 *
 * Why not PrefetchBuffer(): it asks for one block at a time, and a disk that does few
 * requests per second (any that turns, most that are rented) then reads 8 kB with
 * each of them: a scan becomes slower than without any read-ahead.  A column's
 * blocks lie side by side, so a request may be as large as the kernel takes it.
 *
 * Blocks in shared buffers are not asked for, as the kernel may no longer have them.
 * Those of a temporary table are: local buffers are few.  A column's blocks come and go
 * together, so one of LOOK_BLOCKS is looked up for all of them: the middle one, since a first
 * or last block may be there for the neighbour that shares it.
 *
 * The file is opened beside the storage manager's own descriptors, which only that can
 * use; what goes wrong here is left to the read that follows.
 */
#include "store/pages/read_ahead.h"

#include <fcntl.h>

#include "common/relpath.h"
#include "miscadmin.h"
#include "storage/buf_internals.h"
#include "storage/fd.h"
#include "utils/wait_event.h"

/* Blocks of a request: kernels cut off what is more than they like to read at once. */
#define REQUEST_BLOCKS (1024 * 1024 / BLCKSZ)

#define LOOK_BLOCKS 8

static bool
is_buffered(Relation relation, BlockNumber block)
{
	CompatFileLocator locator = compat_file_locator(relation);
	BufferTag tag;
	uint32 hash;
	LWLock *lock;
	bool found;

	if (RelationUsesLocalBuffers(relation))
		return false;
	compat_init_buffer_tag(&tag, locator, block);
	hash = BufTableHashCode(&tag);
	lock = BufMappingPartitionLock(hash);
	LWLockAcquire(lock, LW_SHARED);
	found = BufTableLookup(&tag, hash) >= 0;
	LWLockRelease(lock);
	return found;
}

/* Asks for blocks of one segment file. */
static void
request_in_segment(const char *path, BlockNumber segment, BlockNumber first, uint32 nblocks)
{
	char *segment_path = segment == 0 ? pstrdup(path) : psprintf("%s.%u", path, segment);
	File file = PathNameOpenFile(segment_path, O_RDONLY | PG_BINARY);

	pfree(segment_path);
	if (file < 0)
		return;
	while (nblocks > 0)
	{
		uint32 count = Min(nblocks, REQUEST_BLOCKS);

		(void) FilePrefetch(file, (off_t) first * BLCKSZ, count * BLCKSZ,
							WAIT_EVENT_DATA_FILE_PREFETCH);
		first += count;
		nblocks -= count;
	}
	FileClose(file);
}

/* Asks for the blocks [first, end). */
static void
request(Relation relation, BlockNumber first, BlockNumber end)
{
	char *path = compat_relation_path(relation);

	while (first < end)
	{
		BlockNumber segment = first / RELSEG_SIZE;
		uint32 count = Min(end - first, RELSEG_SIZE - first % RELSEG_SIZE);

		request_in_segment(path, segment, first % RELSEG_SIZE, count);
		first += count;
	}
	pfree(path);
}

void
read_ahead_blocks(Relation relation, BlockNumber first, BlockNumber end)
{
	BlockNumber start = InvalidBlockNumber; /* of the request that is being put together */

	if (compat_reads_bypass_kernel())
		return;
	for (BlockNumber block = first; block < end; block += LOOK_BLOCKS)
	{
		BlockNumber next = Min(block + LOOK_BLOCKS, end);

		CHECK_FOR_INTERRUPTS();
		if (!is_buffered(relation, block + (next - block) / 2))
		{
			if (start == InvalidBlockNumber)
				start = block;
			continue;
		}
		if (start != InvalidBlockNumber)
			request(relation, start, block);
		start = InvalidBlockNumber;
	}
	if (start != InvalidBlockNumber)
		request(relation, start, end);
}
