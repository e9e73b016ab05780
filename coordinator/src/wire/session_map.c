/*
 * session_map.c
 *		Which backend of which worker serves which session, and which sessions wait for workers.
 *
 * A deadlock over several nodes shows as waits between backends of workers.  Only here is it known
 * which of them belong to one session.  So each session enters its connections into a
 * table of shared memory when it makes them; this is the only cost of a session that never
 * waits.
 *
 * A session that has waited for a worker for a while says so, with the wires that it waits for:
 * a backend that is stuck while its session does something else (the rows of a cursor nobody
 * fetches) holds nobody up.  Each such wait has a number.  Whoever ends a deadlock names the
 * number, so that it never hits a later wait of the same session.
 *
 * A table that is full (more than WIRES_PER_BACKEND connections for each possible session) loses
 * entries: deadlocks through such connections last until a timeout, and from then on no backend of a
 * worker is taken for one that nobody knows.
 *
 * A wire is entered before the worker hears that it is a coordinator's session: a registered one that
 * is not found here later has no session any more (dead_sessions.c).
 *
 * Locks: one lightweight lock for everything, held for the time of a few look-ups; nothing is
 * allocated, thrown or waited for under it.
 */
#include "postgres.h"

#include "wire/session_map.h"

#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "compat.h"
#include "server/incarnation.h"
#include "server/launcher.h"
#include "server/shared_memory.h"

/* Room in the table for so many connections per possible session, on average. */
#define WIRES_PER_BACKEND 16

#define LOCK_TRANCHE "strata sessions"

/* A backend of a worker.  Each database has a cluster, and so a worker 1, of its own. */
typedef struct WireKey
{
	Oid database;
	int worker_id;
	int worker_pid;
} WireKey;

typedef struct Wire
{
	WireKey key;
	int slot;	 /* of the session it serves */
	bool waited; /* the session waits for it */
} Wire;

/* What is known of a session; one for each possible backend. */
typedef struct SessionSlot
{
	int pid; /* 0: none */
	Oid database;
	int64 wait_number;
	TimestampTz waits_since; /* 0: it does not */
	TimestampTz transaction_start;
	bool interruptible; /* may the wait be ended by an error? */
	uint64 counter;		/* that it prepares under, 0: it does not */
	int64 victim_of;	/* number of the wait that is to end, 0 none */
	char report[SESSION_REPORT_SIZE];
	char log_report[SESSION_REPORT_SIZE];
} SessionSlot;

static LWLock *lock = NULL;
static SessionSlot *slots = NULL;
static HTAB *wires = NULL;
static pg_atomic_uint32 *lost_wires = NULL; /* has an entry not been made? */

/* Our own slot, and whether it says that we wait. */
static SessionSlot *my_slot = NULL;
static bool wait_published = false;

PG_FUNCTION_INFO_V1(strata_session_wires);

/* ----------------------------------------------------------------
 * What a session says of itself
 * ----------------------------------------------------------------
 */

static int
find_my_index(void)
{
	return MyProc - ProcGlobal->allProcs;
}

/*
 * At exit, when core has aborted the transaction, which may end a wait and drop wires.  An entry
 * whose key was taken over by another session since is not ours any more.
 */
static void
leave_map(int code, Datum arg)
{
	HASH_SEQ_STATUS scan;
	Wire *wire;

	if (my_slot == NULL)
		return;
	LWLockAcquire(lock, LW_EXCLUSIVE);
	hash_seq_init(&scan, wires);
	while ((wire = hash_seq_search(&scan)) != NULL)
	{
		if (wire->slot == my_slot - slots)
			hash_search(wires, &wire->key, HASH_REMOVE, NULL);
	}
	my_slot->pid = 0;
	my_slot->waits_since = 0;
	my_slot->counter = 0;
	LWLockRelease(lock);
	my_slot = NULL;
}

static void
enter_map(void)
{
	int index = find_my_index();

	if (my_slot != NULL || index < 0 || index >= MaxBackends)
		return;
	on_shmem_exit(leave_map, (Datum) 0); /* core aborts in before_shmem_exit() */
	LWLockAcquire(lock, LW_EXCLUSIVE);
	my_slot = &slots[index];
	my_slot->pid = MyProcPid;
	my_slot->database = MyDatabaseId;
	my_slot->waits_since = 0;
	my_slot->counter = 0;
	my_slot->victim_of = 0;
	LWLockRelease(lock);
}

/* A standby's process is none of the worker's, whose numbers are positive. */
static WireKey
make_key(const WorkerConnection *conn)
{
	WireKey key = {.database = MyDatabaseId,
				   .worker_id = conn->worker_id,
				   .worker_pid = conn->standby ? -conn->worker_pid : conn->worker_pid};

	return key;
}

void
session_map_add(const WorkerConnection *conn)
{
	WireKey key = make_key(conn);
	Wire *wire;

	enter_map();
	if (my_slot == NULL)
	{
		pg_atomic_write_u32(lost_wires, 1);
		return;
	}
	LWLockAcquire(lock, LW_EXCLUSIVE);
	wire = hash_search(wires, &key, HASH_ENTER_NULL, NULL);
	if (wire != NULL)
	{
		wire->slot = my_slot - slots;
		wire->waited = false;
	}
	else
		pg_atomic_write_u32(lost_wires, 1);
	LWLockRelease(lock);
}

void
session_map_remove(const WorkerConnection *conn)
{
	WireKey key;
	Wire *wire;

	if (my_slot == NULL)
		return;
	key = make_key(conn);
	LWLockAcquire(lock, LW_EXCLUSIVE);
	wire = hash_search(wires, &key, HASH_FIND, NULL);
	if (wire != NULL && wire->slot == my_slot - slots)
		hash_search(wires, &key, HASH_REMOVE, NULL);
	LWLockRelease(lock);
}

static bool
can_be_interrupted(void)
{
	return InterruptHoldoffCount == 0 && QueryCancelHoldoffCount == 0;
}

static void
clear_waited_wires(void)
{
	ListCell *cell;

	foreach(cell, connection_list())
	{
		const WorkerConnection *conn = lfirst(cell);
		WireKey key;
		Wire *wire;

		if (conn->pg == NULL)
			continue;
		key = make_key(conn);
		wire = hash_search(wires, &key, HASH_FIND, NULL);
		if (wire != NULL && wire->slot == my_slot - slots)
			wire->waited = false;
	}
}

void
session_map_begin_wait(WorkerConnection **conns, int count, int waited_ms)
{
	TimestampTz since = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), -waited_ms);
	bool interruptible = can_be_interrupted();

	if (my_slot == NULL)
		return;
	LWLockAcquire(lock, LW_EXCLUSIVE);
	if (wait_published)
		clear_waited_wires();
	else
	{
		my_slot->wait_number++;
		my_slot->waits_since = since;
	}
	my_slot->transaction_start = GetCurrentTransactionStartTimestamp();
	my_slot->interruptible = interruptible;
	for (int i = 0; i < count; i++)
	{
		WireKey key = make_key(conns[i]);
		Wire *wire = hash_search(wires, &key, HASH_FIND, NULL);

		if (wire != NULL && wire->slot == my_slot - slots)
			wire->waited = true;
	}
	LWLockRelease(lock);
	if (!wait_published)
		launcher_poke(); /* so that it looks when it is time */
	wait_published = true;
}

void
session_map_end_wait(void)
{
	if (!wait_published)
		return;
	wait_published = false;
	LWLockAcquire(lock, LW_EXCLUSIVE);
	my_slot->waits_since = 0;
	my_slot->victim_of = 0;
	clear_waited_wires();
	LWLockRelease(lock);
}

void
session_map_set_prepared(uint64 counter)
{
	if (my_slot == NULL)
		return;
	LWLockAcquire(lock, LW_EXCLUSIVE);
	my_slot->counter = counter;
	LWLockRelease(lock);
}

void
session_map_check_victim(void)
{
	static char report[SESSION_REPORT_SIZE];
	static char log_report[SESSION_REPORT_SIZE];
	bool chosen;

	if (!wait_published || !can_be_interrupted())
		return;
	LWLockAcquire(lock, LW_SHARED);
	chosen = my_slot->victim_of != 0 && my_slot->victim_of == my_slot->wait_number;
	if (chosen)
	{
		strlcpy(report, my_slot->report, sizeof(report));
		strlcpy(log_report, my_slot->log_report, sizeof(log_report));
	}
	LWLockRelease(lock);
	if (!chosen)
		return;

	session_map_end_wait();
	ereport(ERROR, (errcode(ERRCODE_T_R_DEADLOCK_DETECTED), errmsg("deadlock detected"),
					errdetail_internal("%s", has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS)
												 ? log_report
												 : report),
					errdetail_log("%s", log_report), errhint("See server log for query details.")));
}

/* ----------------------------------------------------------------
 * What others ask
 * ----------------------------------------------------------------
 */

bool
session_map_may_serve(int worker_id, int worker_pid)
{
	WireKey key = {.database = MyDatabaseId, .worker_id = worker_id, .worker_pid = worker_pid};
	bool found;

	LWLockAcquire(lock, LW_SHARED);
	found = hash_search(wires, &key, HASH_FIND, NULL) != NULL;
	LWLockRelease(lock);
	return found || pg_atomic_read_u32(lost_wires) != 0;
}

static void
find_waits(TimestampTz *first, TimestampTz *last)
{
	*first = PG_INT64_MAX;
	*last = 0;
	LWLockAcquire(lock, LW_SHARED);
	for (int i = 0; i < MaxBackends; i++)
	{
		if (slots[i].pid == 0 || slots[i].waits_since == 0 || slots[i].database != MyDatabaseId)
			continue;
		*first = Min(*first, slots[i].waits_since);
		*last = Max(*last, slots[i].waits_since);
	}
	LWLockRelease(lock);
}

TimestampTz
session_map_first_wait(void)
{
	TimestampTz first;
	TimestampTz last;

	find_waits(&first, &last);
	return first;
}

TimestampTz
session_map_last_wait(void)
{
	TimestampTz first;
	TimestampTz last;

	find_waits(&first, &last);
	return last;
}

bool
session_map_choose_victim(int pid, int64 wait, const char *report, const char *log_report)
{
	PGPROC *process = NULL;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int i = 0; i < MaxBackends; i++)
	{
		SessionSlot *slot = &slots[i];

		if (slot->pid != pid || slot->waits_since == 0 || slot->wait_number != wait)
			continue;
		strlcpy(slot->report, report, sizeof(slot->report));
		strlcpy(slot->log_report, log_report, sizeof(slot->log_report));
		slot->victim_of = wait;
		process = &ProcGlobal->allProcs[i];
		/* under the lock: the session cannot leave its slot meanwhile */
		SetLatch(&process->procLatch);
		break;
	}
	LWLockRelease(lock);
	return process != NULL;
}

/* A row of strata.session_wires(), copied out of shared memory. */
typedef struct WireRow
{
	WireKey key;
	bool waited;
	int pid;
	int64 wait_number;
	TimestampTz waits_since;
	TimestampTz transaction_start;
	bool interruptible;
	uint64 counter;
} WireRow;

static WireRow *
copy_wires(int *count)
{
	HASH_SEQ_STATUS scan;
	WireRow *rows;
	int capacity;
	Wire *wire;

	/* allocated without the lock: what is entered meanwhile may be missed */
	capacity = hash_get_num_entries(wires) + 64;
	rows = palloc(capacity * sizeof(WireRow));
	*count = 0;

	LWLockAcquire(lock, LW_SHARED);
	hash_seq_init(&scan, wires);
	while ((wire = hash_seq_search(&scan)) != NULL)
	{
		const SessionSlot *slot = &slots[wire->slot];
		WireRow *row;

		if (wire->key.database != MyDatabaseId)
			continue;
		if (*count == capacity)
		{
			hash_seq_term(&scan);
			break;
		}
		row = &rows[(*count)++];
		row->key = wire->key;
		row->pid = slot->pid;
		row->waited = wire->waited && slot->waits_since != 0;
		row->wait_number = slot->wait_number;
		row->waits_since = slot->waits_since;
		row->transaction_start = slot->transaction_start;
		row->interruptible = slot->interruptible;
		row->counter = slot->counter;
	}
	LWLockRelease(lock);
	return rows;
}

/* The beginning of the gids that the session prepares under, all but the worker's number. */
static Datum
name_committing(const WireRow *row, const char *cluster)
{
	return CStringGetTextDatum(psprintf("strata_%s_" UINT64_FORMAT "_" UINT64_FORMAT, cluster,
										incarnation_get(), row->counter));
}

/*
 * strata.session_wires(): the connections of all sessions to workers.
 */
Datum
strata_session_wires(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	const char *cluster = connection_cluster_id();
	WireRow *rows;
	int count;

	InitMaterializedSRF(fcinfo, 0);
	rows = copy_wires(&count);
	for (int i = 0; i < count; i++)
	{
		const WireRow *row = &rows[i];
		bool waits = row->waits_since != 0;
		Datum values[9] = {0};
		bool nulls[9] = {false};

		values[0] = Int32GetDatum(row->pid);
		values[1] = Int32GetDatum(row->key.worker_id);
		values[2] = Int32GetDatum(row->key.worker_pid);
		values[3] = BoolGetDatum(row->waited);
		values[4] = Int64GetDatum(row->wait_number);
		values[5] = TimestampTzGetDatum(row->waits_since);
		values[6] = TimestampTzGetDatum(row->transaction_start);
		nulls[4] = nulls[5] = nulls[6] = !waits;
		values[7] = BoolGetDatum(waits && row->interruptible);
		nulls[8] = row->counter == 0;
		if (row->counter != 0)
			values[8] = name_committing(row, cluster);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* ----------------------------------------------------------------
 * Shared memory, ends of transactions
 * ----------------------------------------------------------------
 */

static Size
slots_size(void)
{
	return mul_size(MaxBackends, sizeof(SessionSlot));
}

static int
wires_max(void)
{
	return MaxBackends * WIRES_PER_BACKEND;
}

static void
request_shared_memory(void)
{
	RequestAddinShmemSpace(slots_size());
	RequestAddinShmemSpace(hash_estimate_size(wires_max(), sizeof(Wire)));
	RequestAddinShmemSpace(MAXALIGN(sizeof(pg_atomic_uint32)));
	RequestNamedLWLockTranche(LOCK_TRANCHE, 1);
}

static void
create_shared_memory(void)
{
	HASHCTL options = {.keysize = sizeof(WireKey), .entrysize = sizeof(Wire)};
	bool found;

	slots = ShmemInitStruct("strata sessions", slots_size(), &found);
	if (!found)
		memset(slots, 0, slots_size());
	lost_wires = ShmemInitStruct("strata lost wires", sizeof(pg_atomic_uint32), &found);
	if (!found)
		pg_atomic_init_u32(lost_wires, 0);
	wires = compat_shmem_init_hash("strata session wires", wires_max(), &options,
								   HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
	lock = &GetNamedLWLockTranche(LOCK_TRANCHE)->lock;
}

/* An error may have ended the wait. */
void
session_map_transaction_event(XactEvent event)
{
	if (event == XACT_EVENT_ABORT || event == XACT_EVENT_COMMIT)
	{
		session_map_end_wait();
		if (my_slot != NULL && my_slot->counter != 0)
			session_map_set_prepared(0);
	}
}

void
session_map_subtransaction_event(SubXactEvent event)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		session_map_end_wait();
}

void
session_map_initialize(void)
{
	shared_memory_register(request_shared_memory, create_shared_memory);
}
