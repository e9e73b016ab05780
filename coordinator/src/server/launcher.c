/*
 * launcher.c
 *		The launcher, and the processes that it keeps in each database with the extension.
 *
 * Which databases have the extension can only be seen from inside them.  The launcher, which is
 * connected to none, therefore starts the first service in each database; that looks, and
 * leaves at once when the extension is missing.  The launcher remembers this for a minute, or
 * until a session creates or uses the extension and pokes it.
 *
 * Shared memory has a slot per service process.  The launcher gives it away (STARTING), the
 * process fills in its pid and latch (RUNNING) and leaves it ENDED, and the launcher frees it.
 *
 * Commands that need a database for themselves (DROP DATABASE and others) must not fail because of
 * us.  They take ShareLock on the object (pg_database, oid, 1), which core does not use, until their
 * transaction ends, and send away what runs there.  A service takes RowExclusiveLock on it, without
 * waiting, while it starts, and gives up if it does not get it.  So no state is left
 * behind if the command fails or its session dies.
 *
 * On a standby nothing runs: the launcher starts when recovery has ended.
 */
#include "postgres.h"

#include "server/launcher.h"

#include <signal.h>

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "nodes/value.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "server/shared_memory.h"

/* Processes of services at a time, in all databases. */
#define SLOT_COUNT 128

/* How long a database without the extension is left alone, if nobody pokes. */
#define ABSENT_MS 60000

/* A service that ended is started again so long after its last start, if nothing is wrong. */
#define RESTART_MS 1000

/* A launcher that died may have left slots STARTING; so long their processes may still come. */
#define START_TIMEOUT_MS 10000

/* How long a command waits for services to leave a database. */
#define LEAVE_TIMEOUT_MS 10000

/* Which object of a database's lock tags is ours: core uses 0. */
#define SERVICE_LOCK 1

typedef enum SlotState
{
	SLOT_FREE,
	SLOT_STARTING,
	SLOT_RUNNING,
	SLOT_ENDED
} SlotState;

typedef struct ServiceSlot
{
	SlotState state;
	Oid database;
	int service;
	pid_t pid;		   /* while RUNNING */
	Latch *latch;	   /* while RUNNING */
	bool found;		   /* the process has seen the extension */
	bool missing;	   /* it has seen that there is none */
	TimestampTz start; /* when it was given away */
} ServiceSlot;

typedef struct LauncherShared
{
	slock_t mutex;
	Latch *launcher_latch; /* NULL while there is no launcher */
	bool poked;
	ServiceSlot slots[SLOT_COUNT];
} LauncherShared;

/* The launcher's memory of databases without the extension, and of failed starts. */
typedef struct DatabaseNote
{
	Oid database;
	TimestampTz look_again;
} DatabaseNote;

static const LauncherService *services = NULL;
static int service_count = 0;
static bool (*extension_exists)(void) = NULL;

static LauncherShared *shared = NULL;

static ServiceSlot *my_slot = NULL;

/* The launcher's own. */
static BackgroundWorkerHandle *handles[SLOT_COUNT];
static List *notes = NIL; /* of DatabaseNote, in TopMemoryContext */
static TimestampTz last_poke = 0;
static bool shortage_logged = false;

/* Shall the extension be looked for when this transaction has committed? */
static bool poke_at_commit = false;

/* ----------------------------------------------------------------
 * Shared memory
 * ----------------------------------------------------------------
 */

static void
request_shared_memory(void)
{
	RequestAddinShmemSpace(MAXALIGN(sizeof(LauncherShared)));
}

static void
create_shared_memory(void)
{
	bool found;

	shared = ShmemInitStruct("strata maintenance", sizeof(LauncherShared), &found);
	if (!found)
	{
		memset(shared, 0, sizeof(LauncherShared));
		SpinLockInit(&shared->mutex);
	}
}

/* Latches are processes' own, which are never freed: one that is set late does no harm. */
static void
wake(Latch *latch)
{
	if (latch != NULL)
		SetLatch(latch);
}

static void
wake_launcher(bool look_everywhere)
{
	Latch *latch;

	SpinLockAcquire(&shared->mutex);
	if (look_everywhere)
		shared->poked = true;
	latch = shared->launcher_latch;
	SpinLockRelease(&shared->mutex);
	wake(latch);
}

/* ----------------------------------------------------------------
 * Calls from sessions
 * ----------------------------------------------------------------
 */

void
launcher_require(void)
{
	bool present = false;

	if (RecoveryInProgress())
		return;
	SpinLockAcquire(&shared->mutex);
	for (int i = 0; i < SLOT_COUNT && !present; i++)
		present = shared->slots[i].state != SLOT_FREE && shared->slots[i].database == MyDatabaseId;
	SpinLockRelease(&shared->mutex);
	if (!present)
		wake_launcher(true);
}

void
launcher_poke(void)
{
	Latch *latches[SLOT_COUNT];
	int count = 0;

	SpinLockAcquire(&shared->mutex);
	for (int i = 0; i < SLOT_COUNT; i++)
	{
		ServiceSlot *slot = &shared->slots[i];

		if (slot->state == SLOT_RUNNING && slot->database == MyDatabaseId)
			latches[count++] = slot->latch;
	}
	SpinLockRelease(&shared->mutex);
	for (int i = 0; i < count; i++)
		wake(latches[i]);
}

void
launcher_transaction_event(XactEvent event)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT)
		return;
	if (poke_at_commit && event == XACT_EVENT_COMMIT)
		wake_launcher(true);
	poke_at_commit = false;
}

/* ----------------------------------------------------------------
 * Leaving a database
 * ----------------------------------------------------------------
 */

/* Ask the services of a database to end; is there still one? */
static bool
dismiss_services(Oid database)
{
	bool present = false;

	SpinLockAcquire(&shared->mutex);
	for (int i = 0; i < SLOT_COUNT; i++)
	{
		ServiceSlot *slot = &shared->slots[i];

		if (slot->state != SLOT_RUNNING || slot->database != database)
			continue;
		present = true;
		(void) kill(slot->pid, SIGTERM);
	}
	SpinLockRelease(&shared->mutex);
	return present;
}

/* If they do not leave in time the command goes on, and fails as it does for any other session. */
static void
leave_database(Oid database)
{
	TimestampTz start = GetCurrentTimestamp();

	if (!OidIsValid(database))
		return;
	LockSharedObject(DatabaseRelationId, database, SERVICE_LOCK, ShareLock);
	while (dismiss_services(database) &&
		   !TimestampDifferenceExceeds(start, GetCurrentTimestamp(), LEAVE_TIMEOUT_MS))
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/* Leave for those only who may do such things with the database; others get core's error. */
static void
leave_named_database(const char *name)
{
	Oid database = get_database_oid(name, true);
	HeapTuple tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	bool allowed = false;

	if (HeapTupleIsValid(tuple))
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);

		allowed = form->datistemplate || has_privs_of_role(GetUserId(), form->datdba);
		ReleaseSysCache(tuple);
	}
	if (allowed)
		leave_database(database);
}

static const char *
find_template(const CreatedbStmt *create)
{
	ListCell *cell;

	foreach(cell, create->options)
	{
		DefElem *option = lfirst(cell);

		if (strcmp(option->defname, "template") == 0 && option->arg != NULL &&
			IsA(option->arg, String))
			return strVal(option->arg);
	}
	return NULL;
}

static bool
drops_extension(const DropStmt *drop)
{
	ListCell *cell;

	if (drop->removeType != OBJECT_EXTENSION)
		return false;
	foreach(cell, drop->objects)
	{
		if (strcmp(strVal(lfirst(cell)), "strata") == 0)
			return true;
	}
	return false;
}

void
launcher_before_command(Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_DropdbStmt:
			leave_named_database(((DropdbStmt *) statement)->dbname);
			break;
		case T_CreatedbStmt:
			if (find_template((CreatedbStmt *) statement) != NULL)
				leave_named_database(find_template((CreatedbStmt *) statement));
			break;
		case T_RenameStmt:
			if (((RenameStmt *) statement)->renameType == OBJECT_DATABASE)
				leave_named_database(((RenameStmt *) statement)->subname);
			break;
		case T_AlterDatabaseStmt:
			leave_named_database(((AlterDatabaseStmt *) statement)->dbname);
			break;
		case T_DropStmt:
			if (drops_extension((DropStmt *) statement) && extension_exists() && superuser())
				leave_database(MyDatabaseId);
			break;
		case T_CreateExtensionStmt:
			poke_at_commit = true;
			break;
		default:
			break;
	}
}

/* ----------------------------------------------------------------
 * A service's process
 * ----------------------------------------------------------------
 */

/* Idle processes see the request and leave without a word; elsewhere it is as for any session. */
static void
handle_termination(SIGNAL_ARGS)
{
	ShutdownRequestPending = true;
	die(COMPAT_PASS_SIGNAL);
}

static void
free_my_slot(int code, Datum argument)
{
	SpinLockAcquire(&shared->mutex);
	my_slot->state = SLOT_ENDED;
	my_slot->pid = 0;
	my_slot->latch = NULL;
	SpinLockRelease(&shared->mutex);
	wake_launcher(false);
}

/* Make the slot ours; false when the launcher has given it to somebody else meanwhile. */
static bool
attach_slot(int index, Oid database)
{
	ServiceSlot *slot = &shared->slots[index];
	bool ours;

	SpinLockAcquire(&shared->mutex);
	ours = slot->state == SLOT_STARTING && slot->database == database;
	if (ours)
	{
		slot->state = SLOT_RUNNING;
		slot->pid = MyProcPid;
		slot->latch = MyLatch;
	}
	SpinLockRelease(&shared->mutex);
	if (ours)
	{
		my_slot = slot;
		before_shmem_exit(free_my_slot, (Datum) 0);
	}
	return ours;
}

/* Does the extension exist, and does nobody want the database for himself? */
static bool
may_stay(Oid database)
{
	LOCKTAG tag;
	bool wanted = true;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, database, SERVICE_LOCK);
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	if (LockAcquire(&tag, RowExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		wanted = false;
	else
	{
		bool found;

		(void) GetTransactionSnapshot();
		found = extension_exists();
		SpinLockAcquire(&shared->mutex);
		my_slot->found = found;
		my_slot->missing = !found;
		SpinLockRelease(&shared->mutex);
		wanted = found;
	}
	CommitTransactionCommand();
	return wanted;
}

void
launcher_service_main(Datum argument)
{
	int index = DatumGetInt32(argument);
	Oid database;

	memcpy(&database, MyBgworkerEntry->bgw_extra, sizeof(Oid));
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, handle_termination);
	BackgroundWorkerUnblockSignals();
	if (!attach_slot(index, database))
		proc_exit(0);
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	if (!may_stay(database))
		proc_exit(0);
	wake_launcher(false);
	services[my_slot->service].main();
	proc_exit(0);
}

/* ----------------------------------------------------------------
 * The launcher
 * ----------------------------------------------------------------
 */

static DatabaseNote *
find_note(Oid database)
{
	ListCell *cell;

	foreach(cell, notes)
	{
		DatabaseNote *note = lfirst(cell);

		if (note->database == database)
			return note;
	}
	return NULL;
}

/* Leave the database alone for a while. */
static void
note_database(Oid database, int milliseconds)
{
	DatabaseNote *note = find_note(database);

	if (note == NULL)
	{
		MemoryContext previous = MemoryContextSwitchTo(TopMemoryContext);

		note = palloc(sizeof(DatabaseNote));
		note->database = database;
		notes = lappend(notes, note);
		MemoryContextSwitchTo(previous);
	}
	note->look_again = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), milliseconds);
}

/* Databases that sessions may connect to and that are no templates, as a list of OIDs. */
static List *
list_databases(MemoryContext context)
{
	List *databases = NIL;
	Relation catalog = table_open(DatabaseRelationId, AccessShareLock);
	TableScanDesc scan = table_beginscan_catalog(catalog, 0, NULL);
	HeapTuple tuple;

	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);
		MemoryContext previous;

		if (!form->datallowconn || form->datistemplate || database_is_invalid_form(form))
			continue;
		previous = MemoryContextSwitchTo(context);
		databases = lappend_oid(databases, form->oid);
		MemoryContextSwitchTo(previous);
	}
	table_endscan(scan);
	table_close(catalog, AccessShareLock);
	return databases;
}

static bool
is_lost(int index, const ServiceSlot *slot, TimestampTz now)
{
	pid_t pid;

	if (slot->state != SLOT_STARTING)
		return false;
	if (handles[index] != NULL)
		return GetBackgroundWorkerPid(handles[index], &pid) == BGWH_STOPPED;
	return TimestampDifferenceExceeds(slot->start, now, START_TIMEOUT_MS);
}

/* Free slots whose processes are gone, and note what those have seen. */
static void
collect_slots(void)
{
	TimestampTz now = GetCurrentTimestamp();

	for (int i = 0; i < SLOT_COUNT; i++)
	{
		ServiceSlot seen;

		SpinLockAcquire(&shared->mutex);
		seen = shared->slots[i];
		SpinLockRelease(&shared->mutex);
		if (seen.state != SLOT_ENDED && !is_lost(i, &seen, now))
			continue;

		/* a process may have ended between our two looks, but nobody else frees or gives slots */
		SpinLockAcquire(&shared->mutex);
		seen = shared->slots[i];
		if (seen.state != SLOT_RUNNING)
			shared->slots[i].state = SLOT_FREE;
		SpinLockRelease(&shared->mutex);
		if (seen.state == SLOT_RUNNING)
			continue;
		if (handles[i] != NULL)
			pfree(handles[i]);
		handles[i] = NULL;
		/* one that began to look before the poke may have looked too early */
		note_database(seen.database,
					  seen.missing && seen.start > last_poke ? ABSENT_MS : RESTART_MS);
	}
}

/* The slot of a service, -1 when it has none; *found tells whether it has seen the extension. */
static int
find_slot(Oid database, int service, bool *found)
{
	int index = -1;

	*found = false;
	SpinLockAcquire(&shared->mutex);
	for (int i = 0; i < SLOT_COUNT && index < 0; i++)
	{
		ServiceSlot *slot = &shared->slots[i];

		if (slot->state == SLOT_FREE || slot->database != database || slot->service != service)
			continue;
		index = i;
		*found = slot->state == SLOT_RUNNING && slot->found;
	}
	SpinLockRelease(&shared->mutex);
	return index;
}

static int
take_slot(Oid database, int service)
{
	TimestampTz now = GetCurrentTimestamp();
	int index = -1;

	SpinLockAcquire(&shared->mutex);
	for (int i = 0; i < SLOT_COUNT && index < 0; i++)
	{
		if (shared->slots[i].state != SLOT_FREE)
			continue;
		index = i;
		memset(&shared->slots[i], 0, sizeof(ServiceSlot));
		shared->slots[i].state = SLOT_STARTING;
		shared->slots[i].database = database;
		shared->slots[i].service = service;
		shared->slots[i].start = now;
	}
	SpinLockRelease(&shared->mutex);
	return index;
}

static void
return_slot(int index)
{
	SpinLockAcquire(&shared->mutex);
	shared->slots[index].state = SLOT_FREE;
	SpinLockRelease(&shared->mutex);
}

static void
report_shortage(Oid database, int service, const char *detail, const char *hint)
{
	if (!shortage_logged)
		ereport(LOG, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					  errmsg("could not start the process \"strata %s\" of database with OID %u",
							 services[service].name, database),
					  errdetail_internal("%s", detail), errhint("%s", hint)));
	shortage_logged = true;
}

/* False when there is no room for one more process. */
static bool
start_service(Oid database, int service)
{
	BackgroundWorker worker;
	MemoryContext previous;
	bool started;
	int index = take_slot(database, service);

	if (index < 0)
	{
		report_shortage(database, service, "There are too many databases with the extension.",
						"Drop the extension strata where it is not needed.");
		return false;
	}
	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker.bgw_library_name, "strata", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "launcher_service_main", sizeof(worker.bgw_function_name));
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "strata %s", services[service].name);
	strlcpy(worker.bgw_type, worker.bgw_name, sizeof(worker.bgw_type));
	worker.bgw_main_arg = Int32GetDatum(index);
	memcpy(worker.bgw_extra, &database, sizeof(Oid));
	worker.bgw_notify_pid = MyProcPid;

	previous = MemoryContextSwitchTo(TopMemoryContext);
	started = RegisterDynamicBackgroundWorker(&worker, &handles[index]);
	MemoryContextSwitchTo(previous);
	if (started)
		return true;
	return_slot(index);
	report_shortage(database, service, "All background worker processes are in use.",
					"Raise max_worker_processes and restart the server.");
	return false;
}

/* Does a command want the database for itself? */
static bool
is_locked(Oid database)
{
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, database, SERVICE_LOCK);
	return LockAcquire(&tag, RowExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL;
}

/* Start what is wanted in one database and does not run; when to look again, in milliseconds. */
static int
serve_database(Oid database, TimestampTz now)
{
	DatabaseNote *note = find_note(database);
	bool extension_found;

	if (note != NULL && note->look_again > now)
		return TimestampDifferenceMilliseconds(now, note->look_again);

	/* the first service tells whether the others are wanted */
	for (int i = 0; i < service_count; i++)
	{
		bool found;

		if (find_slot(database, i, &found) < 0)
		{
			if (is_locked(database))
				return RESTART_MS;
			if (!start_service(database, i))
				return ABSENT_MS / 10;
		}
		if (i == 0)
			extension_found = found;
		if (!extension_found)
			return ABSENT_MS;
	}
	return ABSENT_MS;
}

/* Look after all databases; how long to wait until the next time. */
static int
serve_databases(MemoryContext context)
{
	int wait = ABSENT_MS;
	TimestampTz now;
	List *databases;
	ListCell *cell;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	databases = list_databases(context);
	now = GetCurrentTimestamp();
	foreach(cell, databases)
		wait = Min(wait, serve_database(lfirst_oid(cell), now));
	CommitTransactionCommand();
	return Max(wait, 10);
}

static void
detach_launcher(int code, Datum argument)
{
	SpinLockAcquire(&shared->mutex);
	shared->launcher_latch = NULL;
	SpinLockRelease(&shared->mutex);
}

/* Somebody says that there is something new: forget what databases were like. */
static void
take_poke(void)
{
	bool poked;

	SpinLockAcquire(&shared->mutex);
	poked = shared->poked;
	shared->poked = false;
	SpinLockRelease(&shared->mutex);
	if (!poked)
		return;
	list_free_deep(notes);
	notes = NIL;
	last_poke = GetCurrentTimestamp();
}

void
launcher_main(Datum argument)
{
	MemoryContext context;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, handle_termination);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	before_shmem_exit(detach_launcher, (Datum) 0);
	SpinLockAcquire(&shared->mutex);
	shared->launcher_latch = MyLatch;
	SpinLockRelease(&shared->mutex);

	context = AllocSetContextCreate(TopMemoryContext, "strata launcher", ALLOCSET_DEFAULT_SIZES);
	while (!ShutdownRequestPending)
	{
		int wait;

		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		MemoryContextReset(context);
		collect_slots();
		take_poke();
		wait = serve_databases(context);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, wait,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
	proc_exit(1); /* 0 would mean that it is not to be started again */
}

void
launcher_initialize(const LauncherService *list, int count, bool (*exists)(void))
{
	BackgroundWorker worker = {
		.bgw_name = "strata launcher",
		.bgw_type = "strata launcher",
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = 5,
		.bgw_library_name = "strata",
		.bgw_function_name = "launcher_main",
	};

	services = list;
	service_count = count;
	extension_exists = exists;
	shared_memory_register(request_shared_memory, create_shared_memory);
	if (!IsBinaryUpgrade)
		RegisterBackgroundWorker(&worker);
}
