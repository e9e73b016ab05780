/*
 * newest_change.c
 *		Has this server a newer schema than a coordinator, or a standby of it?
 *
 * A coordinator has each change before its workers commit it (coordinator/src/stream/remote_ddl.c).  One that lacks a change was
 * restored to an earlier time, or is a replica that its primary's last commits had not reached; it asks when it logs in.
 *
 * A standby of it reads the workers, and its own idea of where rows are is as old as it is.  Locks that it holds do not keep
 * the coordinator from moving rows.  But whoever moves rows, or changes tables, takes a lock here that its statements
 * hold, too, once they read, and records a new version in the same transaction: if there is none after the
 * statement, it has read what it meant to.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "fmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(strata_worker_check_after_read);
PG_FUNCTION_INFO_V1(strata_worker_newest_change);

/* The upper half counts, the rest tells apart two coordinators that go on from one backup. */
#define COUNT_OF(version) ((version) >> 32)

/* Whatever the transaction's snapshot shows. */
static int64
find_last_version(void)
{
	Oid namespace = get_namespace_oid("strata_worker", false);
	Relation versions = table_open(get_relname_relid("schema_version", namespace), AccessShareLock);
	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
	SysScanDesc scan = systable_beginscan(versions, InvalidOid, false, snapshot, 0, NULL);
	HeapTuple tuple;
	int64 last = 0;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool isnull;

		last = Max(last,
				   DatumGetInt64(heap_getattr(tuple, 1, RelationGetDescr(versions), &isnull)));
	}
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(versions, AccessShareLock);
	return last;
}

/* strata_worker.check_after_read(version): ERROR (40001) if this server has a newer one. */
Datum
strata_worker_check_after_read(PG_FUNCTION_ARGS)
{
	int64 version = PG_GETARG_INT64(0);
	int64 last = find_last_version();

	if (COUNT_OF(last) > COUNT_OF(version))
		ereport(
			ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("the coordinator's standby has not replayed the schema that the worker has"),
			 errdetail("It knows change number " INT64_FORMAT
					   " of the schema, and the worker has number " INT64_FORMAT ".",
					   COUNT_OF(version), COUNT_OF(last)),
			 errhint("The transaction might succeed if retried, or on the coordinator.")));
	PG_RETURN_VOID();
}

/* strata_worker.newest_change(): its number, 0 if there was none */
Datum
strata_worker_newest_change(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(COUNT_OF(find_last_version()));
}
