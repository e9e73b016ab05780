/*
 * moved_rows.c
 *		Snapshots that are older than a move of rows from one table of a worker to another.
 *
 * Rows move between the leaves of a table with periods (services/period_maintenance.c), and with their shard to another
 * worker (workers/shard_move.c).  Where they are looked for is what the metadata and the workers' catalogs say now, so
 * an older snapshot would miss them: in their old place they are gone, in the new one it does not see them.
 *
 * Both moves hold AccessExclusiveLock on the shell: no statement of READ COMMITTED is between taking its snapshots, which it
 * does under its lock, and its end.  Snapshots that live longer (REPEATABLE READ; STABLE functions) are found here: the metadata says
 * which transaction moved, and who does not see that one begins again.
 */
#include "postgres.h"

#include "execute/moved_rows.h"

#include "access/transam.h"
#include "access/xact.h"
#include "nodes/parsenodes.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "cluster/metadata.h"

/* Has a transaction that the snapshot does not see moved rows?  Long ago: nobody has such a snapshot any more. */
static bool
is_unseen(FullTransactionId moved_by, Snapshot snapshot)
{
	uint64 oldest = U64FromFullTransactionId(ReadNextFullTransactionId()) - MaxTransactionId / 2;
	TransactionId xid = XidFromFullTransactionId(moved_by);

	return FullTransactionIdIsValid(moved_by) &&
		   (int64) (U64FromFullTransactionId(moved_by) - oldest) > 0 &&
		   !TransactionIdIsCurrentTransactionId(xid) && XidInMVCCSnapshot(xid, snapshot);
}

static void
check_table(Oid relation, Snapshot snapshot)
{
	const DistributedTable *table = metadata_table(relation);
	bool shard;

	if (table == NULL || table->kind != TABLE_DISTRIBUTED)
		return;
	shard = is_unseen(table->colocation->moved_by, snapshot);
	if (!shard && !is_unseen(table->periods.moved_by, snapshot))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access because rows of table \"%s\" moved",
					get_rel_name(relation)),
			 shard ? errdetail("They moved to another worker after the snapshot was taken.")
				   : errdetail("They moved to another partition after the snapshot was taken."),
			 errhint("The transaction might succeed if retried.")));
}

void
moved_rows_check(const QueryDesc *query, bool nested)
{
	ListCell *cell;

	/* else the snapshot is, or will be, taken under the locks of the statement's tables */
	if (!nested && !IsolationUsesXactSnapshot())
		return;
	if (query->snapshot == NULL || !IsMVCCSnapshot(query->snapshot))
		return;
	foreach(cell, query->plannedstmt->rtable)
	{
		const RangeTblEntry *rte = lfirst(cell);

		if (rte->rtekind == RTE_RELATION)
			check_table(rte->relid, query->snapshot);
	}
}

void
moved_rows_check_table(Oid relation)
{
	if (IsolationUsesXactSnapshot())
		check_table(relation, GetTransactionSnapshot());
}
