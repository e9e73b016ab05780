/*
 * reference_statistics.h
 *		ANALYZE of reference tables on the workers.
 */
#ifndef STRATA_REFERENCE_STATISTICS_H
#define STRATA_REFERENCE_STATISTICS_H

#include "postgres.h"

#include "nodes/bitmapset.h"
#include "nodes/pg_list.h"

/*
 * The workers analyse their copies in the local transaction, as the table's owner, restricted, and say nothing about it.
 * `options` ("", or in parentheses) and `columns` (likewise) are those of the command.  The caller holds
 * ShareUpdateExclusiveLock on the table.
 */
extern void reference_statistics_analyze(Oid relation, const Bitmapset *workers,
										 const char *options, const char *columns);

/*
 * Reference tables whose copy on this worker has statistics that are behind those of the coordinator's copy: OIDs, in the
 * current context.  A worker that does not answer has none.
 */
extern List *reference_statistics_find_behind(int worker_id);

#endif
