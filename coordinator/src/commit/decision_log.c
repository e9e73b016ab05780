/*
 * decision_log.c
 *		Names of distributed transactions in shared memory, and their decision rows.
 *
 * A prepared transaction is named by what is never handed out again: cluster id, an incarnation
 * drawn at random when shared memory is made, and a counter there.  The decision row holds
 * incarnation and counter: it exists if and only if the transaction committed.
 *
 * What every worker has acknowledged is kept in shared memory, and the next two-phase commit
 * of any session deletes those rows on its way; what does not fit there, or was there when the
 * server stopped, is the resolver's.
 */
#include "postgres.h"

#include "commit/decision_log.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "cluster/metadata.h"
#include "server/incarnation.h"
#include "server/shared_memory.h"

/* Columns of strata.distributed_transaction. */
#define DECISION_INCARNATION 1
#define DECISION_COUNTER 2
#define DECISION_COLUMNS 2

/* So many acknowledged decision rows are kept in mind; more are left to the resolver. */
#define ACKNOWLEDGED_MAX 1024

/* So many of them are deleted by one commit: more than one commit adds, so they never pile up. */
#define DELETED_MAX 32

/* A decision row that can go, in the database that has it. */
typedef struct Acknowledged
{
	Oid database;
	uint64 counter;
} Acknowledged;

/* Identities of transactions, in shared memory. */
typedef struct TransactionIdentity
{
	pg_atomic_uint64 counter;
	slock_t mutex; /* of what follows */
	int acknowledged_count;
	Acknowledged acknowledged[ACKNOWLEDGED_MAX];
	/* what a session is about to end, 0: nothing; by index of its PGPROC, written by it alone */
	pg_atomic_uint64 running[FLEXIBLE_ARRAY_MEMBER];
} TransactionIdentity;

static TransactionIdentity *identity = NULL;

/* Counters taken from shared memory, whose rows the running transaction deletes. */
static uint64 deleting[DELETED_MAX];
static int deleting_count = 0;

/* ----------------------------------------------------------------
 * Running commits
 * ----------------------------------------------------------------
 */

uint64
decision_log_take_counter(void)
{
	uint64 counter = pg_atomic_add_fetch_u64(&identity->counter, 1);

	pg_atomic_write_u64(&identity->running[compat_my_proc_index()], counter);
	pg_memory_barrier();
	return counter;
}

void
decision_log_leave(void)
{
	pg_memory_barrier();
	pg_atomic_write_u64(&identity->running[compat_my_proc_index()], 0);
}

/*
 * A session may begin or end meanwhile: one that has taken the counter and not left is always
 * found, others may be, too.
 */
bool
decision_log_is_running(uint64 incarnation, uint64 counter)
{
	if (incarnation != incarnation_get())
		return false;
	pg_memory_barrier();
	for (int i = 0; i < MaxBackends; i++)
	{
		if (pg_atomic_read_u64(&identity->running[i]) == counter)
			return true;
	}
	pg_memory_barrier();
	return false;
}

/* ----------------------------------------------------------------
 * Decision rows
 * ----------------------------------------------------------------
 */

void
decision_log_acknowledge(uint64 counter)
{
	SpinLockAcquire(&identity->mutex);
	if (identity->acknowledged_count < ACKNOWLEDGED_MAX)
		identity->acknowledged[identity->acknowledged_count++] = (Acknowledged){MyDatabaseId,
																				counter};
	SpinLockRelease(&identity->mutex);
}

/*
 * Take some counters of this database out of shared memory: nobody else will delete their rows.  They
 * are in no order: the last one fills the gap.
 */
static void
take_acknowledged(void)
{
	SpinLockAcquire(&identity->mutex);
	for (int i = identity->acknowledged_count - 1; i >= 0 && deleting_count < DELETED_MAX; i--)
	{
		Acknowledged *acknowledged = &identity->acknowledged[i];

		if (acknowledged->database != MyDatabaseId)
			continue;
		deleting[deleting_count++] = acknowledged->counter;
		*acknowledged = identity->acknowledged[--identity->acknowledged_count];
	}
	SpinLockRelease(&identity->mutex);
}

/* Look for one row; NULL as snapshot: the latest. */
static SysScanDesc
find_decision(Relation catalog, Decision decision, Snapshot snapshot)
{
	ScanKeyData keys[2];

	ScanKeyInit(&keys[0], DECISION_INCARNATION, BTEqualStrategyNumber, F_INT8EQ,
				Int64GetDatum((int64) decision.incarnation));
	ScanKeyInit(&keys[1], DECISION_COUNTER, BTEqualStrategyNumber, F_INT8EQ,
				Int64GetDatum((int64) decision.counter));
	return systable_beginscan(catalog, compat_primary_key_index(catalog), true, snapshot, 2, keys);
}

/* Whoever else deletes the row at the same time wins; we neither wait nor complain. */
static void
delete_decision(Relation catalog, Decision decision)
{
	SysScanDesc scan = find_decision(catalog, decision, NULL);
	HeapTuple tuple = systable_getnext(scan);

	if (HeapTupleIsValid(tuple))
	{
		TM_FailureData failure;

		(void) compat_heap_delete(catalog, &tuple->t_self, GetCurrentCommandId(true), false,
								  &failure);
	}
	systable_endscan(scan);
}

static void
delete_acknowledged(Relation catalog)
{
	take_acknowledged();
	for (int i = 0; i < deleting_count; i++)
		delete_decision(catalog, (Decision){incarnation_get(), deleting[i]});
}

void
decision_log_write(uint64 counter)
{
	Relation catalog = table_open(metadata_catalog_oid("distributed_transaction"),
								  RowExclusiveLock);
	Datum values[DECISION_COLUMNS];
	bool nulls[DECISION_COLUMNS] = {false};
	HeapTuple tuple;

	delete_acknowledged(catalog);
	values[DECISION_INCARNATION - 1] = Int64GetDatum((int64) incarnation_get());
	values[DECISION_COUNTER - 1] = Int64GetDatum((int64) counter);
	tuple = heap_form_tuple(RelationGetDescr(catalog), values, nulls);
	CatalogTupleInsert(catalog, tuple);
	heap_freetuple(tuple);
	table_close(catalog, NoLock);
}

/* ----------------------------------------------------------------
 * For the resolver
 * ----------------------------------------------------------------
 */

bool
decision_log_exists(Decision decision)
{
	Relation catalog = table_open(metadata_catalog_oid("distributed_transaction"), AccessShareLock);
	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
	SysScanDesc scan = find_decision(catalog, decision, snapshot);
	bool exists = HeapTupleIsValid(systable_getnext(scan));

	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(catalog, AccessShareLock);
	return exists;
}

List *
decision_log_list(void)
{
	Relation catalog = table_open(metadata_catalog_oid("distributed_transaction"), AccessShareLock);
	Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
	SysScanDesc scan = systable_beginscan(catalog, InvalidOid, false, snapshot, 0, NULL);
	List *decisions = NIL;
	HeapTuple tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Decision *decision = palloc(sizeof(Decision));
		bool isnull;

		decision->incarnation = DatumGetInt64(
			heap_getattr(tuple, DECISION_INCARNATION, RelationGetDescr(catalog), &isnull));
		decision->counter = DatumGetInt64(
			heap_getattr(tuple, DECISION_COUNTER, RelationGetDescr(catalog), &isnull));
		decisions = lappend(decisions, decision);
	}
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(catalog, AccessShareLock);
	return decisions;
}

void
decision_log_delete(List *decisions)
{
	Relation catalog = table_open(metadata_catalog_oid("distributed_transaction"),
								  RowExclusiveLock);
	ListCell *cell;

	foreach(cell, decisions)
		delete_decision(catalog, *(Decision *) lfirst(cell));
	table_close(catalog, NoLock);
}

/*
 * After a restart nothing counts as confirmed until a replica has answered once.  Whether there is
 * a synchronous one is read where core's own wait reads it, not in this session's settings, which
 * may be older; before the checkpointer has written it there, the settings must do.
 */
bool
decision_log_is_replicated(XLogRecPtr upto)
{
	bool needed;
	bool confirmed;

	if (max_wal_senders == 0)
		return true;
	LWLockAcquire(SyncRepLock, LW_SHARED);
	if (WalSndCtl->sync_standbys_status & SYNC_STANDBY_INIT)
		needed = (WalSndCtl->sync_standbys_status & SYNC_STANDBY_DEFINED) != 0;
	else
		needed = SyncRepStandbyNames != NULL && SyncRepStandbyNames[0] != '\0';
	confirmed = !needed || WalSndCtl->lsn[SYNC_REP_WAIT_FLUSH] >= upto;
	LWLockRelease(SyncRepLock);
	return confirmed;
}

void
decision_log_end(bool committed)
{
	if (!committed)
	{
		for (int i = 0; i < deleting_count; i++)
			decision_log_acknowledge(deleting[i]);
	}
	deleting_count = 0;
}

/* ----------------------------------------------------------------
 * Shared memory
 * ----------------------------------------------------------------
 */

static Size
identity_size(void)
{
	return add_size(offsetof(TransactionIdentity, running),
					mul_size(MaxBackends, sizeof(pg_atomic_uint64)));
}

static void
request_shared_memory(void)
{
	RequestAddinShmemSpace(MAXALIGN(identity_size()));
}

static void
create_shared_memory(void)
{
	bool found;

	identity = ShmemInitStruct("strata transaction identity", identity_size(), &found);
	if (!found)
	{
		pg_atomic_init_u64(&identity->counter, 0);
		SpinLockInit(&identity->mutex);
		identity->acknowledged_count = 0;
		for (int i = 0; i < MaxBackends; i++)
			pg_atomic_init_u64(&identity->running[i], 0);
	}
}

void
decision_log_initialize(void)
{
	shared_memory_register(request_shared_memory, create_shared_memory);
}
