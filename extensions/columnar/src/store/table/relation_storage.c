/*
 * relation_storage.c
 *		Files of a columnar table: made, emptied, moved, measured.
 *
 * The main fork needs nothing when it is made: its metapage comes with the first
 * write (space.h), so the init fork of an unlogged table is an empty file, as a
 * heap's is.  No transaction ids are stored in the main fork, so VACUUM may advance
 * its relfrozenxid to the horizon; that of the TOAST relation is the real one.
 *
 * Buffered rows are stored before their file changes under them.
 */
#include "store/table/table_am.h"

#include <math.h>

#include "access/multixact.h"
#include "catalog/storage.h"
#include "catalog/storage_xlog.h"
#include "access/table.h"
#include "miscadmin.h"
#include "optimizer/plancat.h"
#include "storage/bufmgr.h"
#include "storage/smgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "store/rows/own_deletes.h"
#include "store/rows/row_fetch.h"
#include "store/catalog/row_group.h"
#include "store/rows/row_scan.h"
#include "store/rows/write_buffer.h"

/* Catalogs of at most so many pages are read at planning time; larger ones are estimated. */
#define CATALOG_PAGES_COUNTED 16

void
columnar_set_new_filelocator(Relation relation, const CompatFileLocator *locator, char persistence,
							 TransactionId *freeze_xid, MultiXactId *min_multi)
{
	SMgrRelation file;

	if (!write_buffer_is_empty(RelationGetRelid(relation)))
		write_buffer_flush(relation);

	*freeze_xid = RecentXmin;
	*min_multi = GetOldestMultiXactId();
	file = RelationCreateStorage(*locator, persistence, true);
	if (persistence == RELPERSISTENCE_UNLOGGED)
	{
		smgrcreate(file, INIT_FORKNUM, false);
		log_smgrcreate(locator, INIT_FORKNUM);
		smgrimmedsync(file, INIT_FORKNUM);
	}
	smgrclose(file);
}

/*
 * Only for files that this transaction made.  Core truncates the TOAST relation, too, but
 * after it has rebuilt the indexes: until then a table without blocks would have row
 * groups, which is what damage looks like.
 */
void
columnar_nontransactional_truncate(Relation relation)
{
	Oid toast_id = relation->rd_rel->reltoastrelid;

	write_buffer_discard(relation);
	own_deletes_forget();
	row_fetch_forget();
	row_group_cache_forget(compat_file_locator(relation));
	if (OidIsValid(toast_id))
	{
		Relation toast = table_open(toast_id, AccessExclusiveLock);

		table_relation_nontransactional_truncate(toast);
		table_close(toast, NoLock);
	}
	RelationTruncate(relation, 0);
}

void
columnar_copy_data(Relation relation, const CompatFileLocator *locator)
{
	SMgrRelation target;

	write_buffer_flush(relation);
	target = compat_smgr_open(*locator, relation);
	FlushRelationBuffers(relation);
	RelationCreateStorage(*locator, relation->rd_rel->relpersistence, true);
	RelationCopyStorage(RelationGetSmgr(relation), target, MAIN_FORKNUM,
						relation->rd_rel->relpersistence);
	for (ForkNumber fork = MAIN_FORKNUM + 1; fork <= MAX_FORKNUM; fork++)
	{
		if (!smgrexists(RelationGetSmgr(relation), fork))
			continue;
		smgrcreate(target, fork, false);
		if (RelationIsPermanent(relation) ||
			(relation->rd_rel->relpersistence == RELPERSISTENCE_UNLOGGED && fork == INIT_FORKNUM))
			log_smgrcreate(locator, fork);
		RelationCopyStorage(RelationGetSmgr(relation), target, fork,
							relation->rd_rel->relpersistence);
	}
	RelationDropStorage(relation);
	smgrclose(target);
}

/*
 * Size for the planner: pages of the file (the catalog's for a table that has only
 * inline groups), and rows: counted while the catalog is small, which is exact for
 * tables of some ten million rows, else by the density that VACUUM or ANALYZE saw.
 */
void
columnar_estimate_size(Relation relation, int32 *attr_widths, BlockNumber *pages, double *tuples,
					   double *allvisfrac)
{
	BlockNumber current = RelationGetNumberOfBlocks(relation);
	double rows = relation->rd_rel->reltuples;
	BlockNumber seen = (BlockNumber) relation->rd_rel->relpages;
	BlockNumber catalog_pages = 0;

	if (OidIsValid(relation->rd_rel->reltoastrelid))
	{
		Relation toast = table_open(relation->rd_rel->reltoastrelid, AccessShareLock);

		catalog_pages = RelationGetNumberOfBlocks(toast);
		table_close(toast, AccessShareLock);
	}
	*pages = Max(current, Min(catalog_pages, 1));
	*allvisfrac = 0; /* no visibility map: an index-only scan looks up every row */
	get_rel_data_width(relation, attr_widths);

	if (catalog_pages == 0)
		*tuples = 0;
	else if (catalog_pages <= CATALOG_PAGES_COUNTED || rows < 0 || seen == 0)
	{
		GroupCatalog *catalog = group_catalog_open(relation, AccessShareLock);
		Snapshot snapshot = RegisterSnapshot(ActiveSnapshotSet() ? GetActiveSnapshot()
																 : GetTransactionSnapshot());
		uint32 ngroups;
		GroupEntry *groups = group_catalog_list(catalog, snapshot, &ngroups);

		*tuples = 0;
		for (uint32 i = 0; i < ngroups; i++)
			*tuples += groups[i].visible_rows;
		pfree(groups);
		UnregisterSnapshot(snapshot);
		group_catalog_close(catalog);
	}
	else
		*tuples = rint(rows / seen * current);
}
