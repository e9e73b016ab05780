/*
 * compat/storage.h
 *		Differences between major versions: files of relations, and their pages.
 */
#ifndef STRATA_COMPAT_STORAGE_H
#define STRATA_COMPAT_STORAGE_H

#include "storage/bufmgr.h"
#include "utils/rel.h"

/* Physical files of a relation: RelFileNode became RelFileLocator in 16. */
#if PG_VERSION_NUM >= 160000
typedef RelFileLocator CompatFileLocator;
#define compat_am_set_new_filelocator relation_set_new_filelocator
#else
typedef RelFileNode CompatFileLocator;
#define compat_am_set_new_filelocator relation_set_new_filenode
#endif

/* Files by tablespace and number: needs catalog/catalog.h, utils/relcache.h, utils/relfilenumbermap.h. */
#if PG_VERSION_NUM >= 160000
#define COMPAT_FILE_MAP_HEADER "utils/relfilenumbermap.h"
#define compat_make_file_locator(tablespace, database, number) \
	((CompatFileLocator){.spcOid = (tablespace), .dbOid = (database), .relNumber = (number)})
#define compat_file_tablespace(locator) ((locator).spcOid)
#define compat_file_number(locator) ((locator).relNumber)
#define compat_new_file_number(tablespace) \
	GetNewRelFileNumber(tablespace, NULL, RELPERSISTENCE_PERMANENT)
#define compat_relation_of_file(tablespace, number) RelidByRelfilenumber(tablespace, number)
#define compat_assume_new_file(relation) RelationAssumeNewRelfilelocator(relation)
#define compat_new_file_subtransaction(relation) ((relation)->rd_newRelfilelocatorSubid)
#define compat_set_new_file(relation, persistence) \
	RelationSetNewRelfilenumber(relation, persistence)
#else
#define COMPAT_FILE_MAP_HEADER "utils/relfilenodemap.h"
#define compat_make_file_locator(tablespace, database, number) \
	((CompatFileLocator){.spcNode = (tablespace), .dbNode = (database), .relNode = (number)})
#define compat_file_tablespace(locator) ((locator).spcNode)
#define compat_file_number(locator) ((locator).relNode)
#define compat_new_file_number(tablespace) \
	GetNewRelFileNode(tablespace, NULL, RELPERSISTENCE_PERMANENT)
#define compat_relation_of_file(tablespace, number) RelidByRelfilenode(tablespace, number)
#define compat_assume_new_file(relation) RelationAssumeNewRelfilenode(relation)
#define compat_new_file_subtransaction(relation) ((relation)->rd_newRelfilenodeSubid)
#define compat_set_new_file(relation, persistence) RelationSetNewRelfilenode(relation, persistence)
#endif

/* All indexes of a relation, built again; since 17 in the name of a statement.  Needs catalog/index.h. */
#if PG_VERSION_NUM >= 170000
#define compat_reindex_relation(oid, flags, options) reindex_relation(NULL, oid, flags, options)
#else
#define compat_reindex_relation(oid, flags, options) reindex_relation(oid, flags, options)
#endif

/* The name of a block in the table of shared buffers. */
#if PG_VERSION_NUM >= 160000
#define compat_init_buffer_tag(tag, file, block) InitBufferTag(tag, &(file), MAIN_FORKNUM, block)
#else
#define compat_init_buffer_tag(tag, file, block) INIT_BUFFERTAG(*(tag), file, MAIN_FORKNUM, block)
#endif

/* Direct I/O of data files, since 16: the kernel keeps nothing that was read ahead. */
#if PG_VERSION_NUM >= 160000
#define compat_reads_bypass_kernel() ((io_direct_flags & IO_DIRECT_DATA) != 0)
#else
#define compat_reads_bypass_kernel() false
#endif

/*
 * Consecutive blocks of a relation, pinned one after the other for the caller to release.  Since 17 up to
 * io_combine_limit of them are read at once.  Not by a read stream: that hands each piece to another process, or
 * to io_uring, and waits for it, which pays only where more pieces follow.
 */
#if PG_VERSION_NUM >= 170000

#define COMPAT_BLOCKS_AT_ONCE 16

#if PG_VERSION_NUM >= 180000
#define COMPAT_READ_AT_ONCE READ_BUFFERS_SYNCHRONOUSLY
#else
#define COMPAT_READ_AT_ONCE 0
#endif

typedef struct CompatBlockRun
{
	ReadBuffersOperation reading;
	BlockNumber next;
	BlockNumber end;
	int taken;
	int count; /* of the buffers that are pinned or have been taken */
	Buffer buffers[COMPAT_BLOCKS_AT_ONCE];
} CompatBlockRun;

/* Of the blocks [first, end). */
static inline void
compat_block_run_begin(CompatBlockRun *run, Relation relation, BufferAccessStrategy strategy,
					   BlockNumber first, BlockNumber end)
{
	run->reading.rel = relation;
	run->reading.forknum = MAIN_FORKNUM;
	run->reading.strategy = strategy;
#if PG_VERSION_NUM >= 180000
	run->reading.persistence = relation->rd_rel->relpersistence;
#endif
	run->next = first;
	run->end = end;
	run->taken = 0;
	run->count = 0;
	for (int i = 0; i < COMPAT_BLOCKS_AT_ONCE; i++)
		run->buffers[i] = InvalidBuffer;
}

static inline Buffer
compat_block_run_next(CompatBlockRun *run)
{
	if (run->taken == run->count)
	{
		uint32 count = Min(run->end - run->next, Min(COMPAT_BLOCKS_AT_ONCE, io_combine_limit));

		if (RelationUsesLocalBuffers(run->reading.rel))
			LimitAdditionalLocalPins(&count);
		else
			LimitAdditionalPins(&count);
		/* blocks that were pinned, and are yet to be read, come first */
		for (int i = 0; i < COMPAT_BLOCKS_AT_ONCE; i++)
			run->buffers[i] = i + run->count < COMPAT_BLOCKS_AT_ONCE ? run->buffers[i + run->count]
																	 : InvalidBuffer;
		run->taken = 0;
		run->count = (int) count;
		/* an invalidation may have closed it */
		run->reading.smgr = RelationGetSmgr(run->reading.rel);
		if (StartReadBuffers(&run->reading, run->buffers, run->next, &run->count,
							 COMPAT_READ_AT_ONCE))
			WaitReadBuffers(&run->reading);
		run->next += run->count;
	}
	return run->buffers[run->taken++];
}

#else

typedef struct CompatBlockRun
{
	Relation relation;
	BufferAccessStrategy strategy;
	BlockNumber next;
} CompatBlockRun;

#define compat_block_run_begin(run, its_relation, its_strategy, first, end) \
	(*(run) = (CompatBlockRun){.relation = its_relation, .strategy = its_strategy, .next = first})
#define compat_block_run_next(run) \
	ReadBufferExtended((run)->relation, MAIN_FORKNUM, (run)->next++, RBM_NORMAL, (run)->strategy)

#endif

/* The file of a relation, and opening another one of the same backend. */
#if PG_VERSION_NUM >= 160000
#define compat_file_locator(relation) ((relation)->rd_locator)
#else
#define compat_file_locator(relation) ((relation)->rd_node)
#endif
#define compat_smgr_open(locator, relation) smgropen(locator, (relation)->rd_backend)

/* The path of a relation's file, as a string to free; 18 returns an array. */
#if PG_VERSION_NUM >= 180000
#define compat_relation_path(relation) \
	pstrdup(relpathbackend((relation)->rd_locator, (relation)->rd_backend, MAIN_FORKNUM).str)
#else
#define compat_relation_path(relation) \
	relpathbackend(compat_file_locator(relation), (relation)->rd_backend, MAIN_FORKNUM)
#endif

/*
 * Appends nblocks zeroed blocks to the main fork through buffers of the ring, in one
 * piece, and returns the first.  The caller holds the relation extension lock.
 */
static inline BlockNumber
compat_extend_relation(Relation relation, BufferAccessStrategy strategy, uint32 nblocks)
{
	BlockNumber first = InvalidBlockNumber;
	uint32 done = 0;

	while (done < nblocks)
	{
#if PG_VERSION_NUM >= 160000
		Buffer buffers[64];
		uint32 count = Min(nblocks - done, lengthof(buffers));
		BlockNumber block = ExtendBufferedRelBy(BMR_REL(relation), MAIN_FORKNUM, strategy,
												EB_SKIP_EXTENSION_LOCK, count, buffers, &count);

		for (uint32 i = 0; i < count; i++)
			ReleaseBuffer(buffers[i]);
#else
		Buffer buffer = ReadBufferExtended(relation, MAIN_FORKNUM, P_NEW, RBM_NORMAL, strategy);
		BlockNumber block = BufferGetBlockNumber(buffer);
		uint32 count = 1;

		ReleaseBuffer(buffer);
#endif
		if (done == 0)
			first = block;
		else if (block != first + done)
			elog(ERROR, "relation was extended at block %u in place of %u", block, first + done);
		done += count;
	}
	return first;
}

#endif
