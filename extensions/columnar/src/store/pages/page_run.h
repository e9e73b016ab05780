/*
 * page_run.h
 *		Bytes on ordinary pages: a run of consecutive blocks of the main fork as one
 *		byte stream, written with full-page images and read through shared buffers.
 *
 * Each page carries PAGE_PAYLOAD bytes after its header (pd_lower behind the last
 * one), so checksums, hole compression, replicas and backups work as for a heap,
 * and a standby replays the pages without this library.
 */
#ifndef COLUMNAR_PAGE_RUN_H
#define COLUMNAR_PAGE_RUN_H

#include "store/value/format.h"

#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "utils/rel.h"

#define PAGE_PAYLOAD (BLCKSZ - SizeOfPageHeaderData)

static inline uint32
page_run_blocks(uint64 length)
{
	return (uint32) ((length + PAGE_PAYLOAD - 1) / PAGE_PAYLOAD);
}

/*
 * Appends nblocks zeroed blocks to the main fork, contiguous (under the relation
 * extension lock), and returns the first.  Not logged: page_run_write() is.
 */
extern BlockNumber page_run_extend(Relation relation, uint32 nblocks);

/*
 * Fills the blocks from `first` on with the bytes and logs them as full-page
 * images, up to 32 per record, unless the relation needs no WAL.  Nobody else may
 * know the blocks.  Uses a bulk-write ring.
 */
extern void page_run_write(Relation relation, BlockNumber first, const char *bytes, uint64 length);

/* A ByteSource over a run; `strategy` may be NULL. Holds no pin between reads. */
typedef struct PageSource
{
	ByteSource source; /* first member */
	Relation relation;
	BlockNumber first;
	BlockNumber end; /* blocks of the relation, asked for at the first use; 0 before */
	BufferAccessStrategy strategy;
	uint64 pages_read; /* buffers asked for, for EXPLAIN and tests */
	/* the page where the read before ended, which the next one usually begins on */
	BlockNumber kept_block;
	uint32 kept_length; /* bytes of its payload; 0: none kept */
	char kept[PAGE_PAYLOAD];
} PageSource;

extern void page_source_init(PageSource *source, Relation relation, BlockNumber first,
							 uint64 length, BufferAccessStrategy strategy);

#endif
