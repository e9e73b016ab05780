/*
 * cluster_identity.c
 *		Which cluster this database coordinates, and whether its workers are ours.
 *
 * The row of strata.cluster says it, together with the mark of the data directory (coordinator_mark.c): how
 * copies, restored backups and promoted standbys are told from the coordinator, and what follows, is in
 * workers/take_over.c, which alone changes the row.
 */
#include "postgres.h"

#include "cluster/cluster_identity.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xlog.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/atomics.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/uuid.h"

#include "cluster/coordinator_mark.h"
#include "cluster/metadata.h"
#include "cluster/metadata_write.h"
#include "server/clock.h"
#include "server/launcher.h"
#include "server/settings.h"
#include "server/shared_memory.h"

/* How often a session looks whether its server has taken over. */
#define LOOK_MS 10

/* In shared memory: how often sessions have asked that the workers be told again. */
static pg_atomic_uint32 *requests = NULL;

static void
copy_uuid(char *target, HeapTuple tuple, int column, TupleDesc desc)
{
	bool isnull;
	Datum value = heap_getattr(tuple, column, desc, &isnull);

	strlcpy(target, DatumGetCString(DirectFunctionCall1(uuid_out, value)), UUID_LEN * 2 + 5);
}

HeapTuple
cluster_identity_row(Relation catalog, ClusterIdentity *identity)
{
	TupleDesc desc = RelationGetDescr(catalog);
	SysScanDesc scan = systable_beginscan(catalog, InvalidOid, false, NULL, 0, NULL);
	HeapTuple tuple = systable_getnext(scan);
	bool isnull;
	Datum timeline;

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("the cluster has no identity"),
						errdetail("Table strata.cluster is empty.")));
	tuple = heap_copytuple(tuple);
	systable_endscan(scan);
	copy_uuid(identity->id, tuple, CATALOG_CLUSTER_ID, desc);
	copy_uuid(identity->holder, tuple, CATALOG_CLUSTER_HOLDER, desc);
	identity->epoch = DatumGetInt64(heap_getattr(tuple, CATALOG_CLUSTER_EPOCH, desc, &isnull));
	timeline = heap_getattr(tuple, CATALOG_CLUSTER_TIMELINE, desc, &isnull);
	identity->timeline = isnull ? 0 : DatumGetInt64(timeline);
	identity->database = DatumGetObjectId(
		heap_getattr(tuple, CATALOG_CLUSTER_DATABASE, desc, &isnull));
	identity->schema_version = DatumGetInt64(
		heap_getattr(tuple, CATALOG_CLUSTER_DDL_VERSION, desc, &isnull));
	return tuple;
}

void
cluster_identity_read(ClusterIdentity *identity)
{
	Relation catalog = table_open(metadata_catalog_oid("cluster"), AccessShareLock);

	heap_freetuple(cluster_identity_row(catalog, identity));
	table_close(catalog, AccessShareLock);
}

static void
report_copy(void)
{
	ereport(
		ERROR,
		(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
		 errmsg("this server does not have the workers of the cluster"),
		 errdetail("It is a copy of a coordinator, from a backup for example, which may still "
				   "use them."),
		 errhint("If it shall be the coordinator from now on, run SELECT strata.take_over().")));
}

bool
cluster_identity_is_member(const ClusterIdentity *identity)
{
	if (identity->timeline == 0 || identity->database != MyDatabaseId)
		return false;
	return coordinator_mark_exists() ||
		   (identity->timeline != GetWALInsertionTimeLine() && coordinator_mark_was_standby());
}

bool
cluster_identity_is_free_copy(const ClusterIdentity *identity)
{
	return !cluster_identity_is_member(identity) && metadata_all_workers() == NULL;
}

void
cluster_identity_require(void)
{
	int64 deadline = clock_now() + strata_connect_timeout * INT64CONST(1000);
	ClusterIdentity identity;

	if (RecoveryInProgress())
		return; /* its primary's */
	for (;;)
	{
		bool is_new;

		cluster_identity_read(&identity);
		is_new = cluster_identity_is_free_copy(&identity);
		if (!is_new && !cluster_identity_is_member(&identity))
			report_copy();
		if (!is_new && identity.timeline == GetWALInsertionTimeLine())
			return;
		if (MyBgworkerEntry != NULL || clock_now() > deadline)
			ereport(ERROR,
					(errcode(ERRCODE_CANNOT_CONNECT_NOW),
					 is_new ? errmsg("this database is not a cluster of its own yet")
							: errmsg("this server has not taken over the workers yet"),
					 errdetail("It was %s, and its process \"strata maintenance\" is to note that.",
							   is_new ? "copied" : "promoted")));
		launcher_require();
		if (is_new)
			cluster_identity_request();
		else
			launcher_poke();
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, LOOK_MS,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

void
cluster_identity_request(void)
{
	pg_atomic_fetch_add_u32(requests, 1);
	launcher_poke();
}

uint32
cluster_identity_requests(void)
{
	return pg_atomic_read_u32(requests);
}

static void
request_shared_memory(void)
{
	RequestAddinShmemSpace(MAXALIGN(sizeof(pg_atomic_uint32)));
}

static void
create_shared_memory(void)
{
	bool found;

	requests = ShmemInitStruct("strata cluster identity", sizeof(pg_atomic_uint32), &found);
	if (!found)
		pg_atomic_init_u32(requests, 0);
}

void
cluster_identity_initialize(void)
{
	coordinator_mark_initialize();
	shared_memory_register(request_shared_memory, create_shared_memory);
}
