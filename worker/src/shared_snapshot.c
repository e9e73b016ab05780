/*
 * shared_snapshot.c
 *		Snapshots that sessions of one coordinator's session share.
 *
 * A statement of the coordinator that acts as two roles has two sessions here, which must see one state.  Two
 * snapshots that are taken one after the other will not do: transactions that wrote on this server
 * alone are committed between them at any time.  So one session takes the snapshot, and the others get it:
 *
 *		READ COMMITTED		pin_snapshot(7, 7)	share_snapshot(7) -> '2f-1'
 *							adopt_snapshot('2f-1', 7, 7), then use_snapshot(7, ...)
 *		REPEATABLE READ		share_snapshot(0) -> '2f-1'
 *							BEGIN ...; SET TRANSACTION SNAPSHOT 'strata 2f-1'
 *
 * pg_export_snapshot() is of no use for that: a transaction that has called it cannot be prepared, it is refused
 * within savepoints, and nothing can be imported in READ COMMITTED.  It has these limits because
 * anybody may import such a snapshot at any time.  Here the coordinator imports what it has just exported.
 *
 * A snapshot goes through a file in the directory where core keeps exported ones (and which it empties when the
 * server starts): nobody can have one installed that no session of this server has taken.  Its
 * writer removes the file when its transaction ends.  There is nothing to learn from it that pg_export_snapshot()
 * would not tell, so anybody may call these functions.
 *
 * Which rows are still there.  The importer's xmin must not be newer than the snapshot's.  If the importer's own
 * is not older, it is set back, which is allowed while the writer's transaction runs and has one that old:
 * ProcArrayInstallImportedXmin() sees to that, as it does for core.
 *
 * What the writer itself has not committed must not be visible to others.  Core leaves a transaction's own id
 * out of its snapshots; what was written after the snapshot was taken is too new for it anyway.  A transaction that
 * had written before does not share.
 */
#include "postgres.h"

#include <unistd.h>

#include "access/transam.h"
#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/fd.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "tcop/utility.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "shared_snapshot.h"

/* As SNAPSHOT_EXPORT_DIR of snapmgr.c; core's own names have other forms. */
#define DIRECTORY "pg_snapshots"
#define PREFIX "strata "

typedef struct Header
{
	Oid database;
	int pid;
	VirtualTransactionId transaction;
	Size size;
} Header;

static uint32 last_number = 0; /* of the names that this session has given */
static int written = 0;		   /* files of this transaction */

static ProcessUtility_hook_type previous_utility = NULL;

static void
make_path(char *path, unsigned int pid, uint32 number)
{
	snprintf(path, MAXPGPATH, DIRECTORY "/strata-%x-%x", pid, number);
}

char *
shared_snapshot_write(Snapshot snapshot)
{
	TransactionId own = GetTopTransactionIdIfAny();
	Header header = {.database = MyDatabaseId, .pid = MyProcPid};
	char path[MAXPGPATH];
	char *content;
	FILE *file;

	if (TransactionIdIsValid(own) && TransactionIdPrecedes(own, snapshot->xmax))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("cannot share a snapshot that was taken after the transaction had "
							   "written")));

	GET_VXID_FROM_PGPROC(header.transaction, *MyProc);
	header.size = EstimateSnapshotSpace(snapshot);
	content = palloc0(header.size);
	SerializeSnapshot(snapshot, content);
	make_path(path, MyProcPid, ++last_number);
	written++;
	file = AllocateFile(path, PG_BINARY_W);
	if (file == NULL)
		ereport(ERROR,
				(errcode_for_file_access(), errmsg("could not create file \"%s\": %m", path)));
	if (fwrite(&header, sizeof(header), 1, file) != 1 ||
		fwrite(content, header.size, 1, file) != 1 || FreeFile(file) != 0)
		ereport(ERROR,
				(errcode_for_file_access(), errmsg("could not write file \"%s\": %m", path)));
	pfree(content);
	return psprintf("%x-%x", MyProcPid, last_number);
}

static void
report_missing(const char *name)
{
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("there is no shared snapshot \"%s\"", name),
					errdetail("The transaction that wrote it does not run any more.")));
}

/* What the file says, in the current memory context. */
static Snapshot
read_file(const char *name, Header *header)
{
	unsigned int pid;
	uint32 number;
	char path[MAXPGPATH];
	char *content;
	FILE *file;
	bool complete;

	/* no path of the caller's is used, only numbers */
	if (sscanf(name, "%x-%x", &pid, &number) != 2)
		report_missing(name);
	make_path(path, pid, number);
	file = AllocateFile(path, PG_BINARY_R);
	if (file == NULL)
		report_missing(name);
	complete = fread(header, sizeof(*header), 1, file) == 1 && AllocSizeIsValid(header->size);
	content = palloc(complete ? header->size : 1);
	complete = complete && fread(content, header->size, 1, file) == 1;
	FreeFile(file);
	if (!complete || header->database != MyDatabaseId)
		report_missing(name);
	return RestoreSnapshot(content);
}

Snapshot
shared_snapshot_read(const char *name)
{
	Header header;
	Snapshot snapshot = read_file(name, &header);

	Assert(TransactionIdIsValid(MyProc->xmin));
	if (!TransactionIdPrecedesOrEquals(MyProc->xmin, snapshot->xmin) &&
		!ProcArrayInstallImportedXmin(snapshot->xmin, &header.transaction))
		report_missing(name);
	return snapshot;
}

/* SET TRANSACTION SNAPSHOT with a name of ours: no snapshot has been taken in the transaction. */
static void
set_transaction_snapshot(const char *name)
{
	Header header;
	Snapshot snapshot;
	PGPROC *source;

	if (FirstSnapshotSet || GetTopTransactionIdIfAny() != InvalidTransactionId ||
		IsSubTransaction() || !IsolationUsesXactSnapshot() || IsolationIsSerializable())
		ereport(ERROR, (errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
						errmsg("a shared snapshot is for the beginning of a transaction in "
							   "REPEATABLE READ")));
	snapshot = read_file(name, &header);
	source = BackendPidGetProc(header.pid);
	if (source == NULL)
		report_missing(name);
	RestoreTransactionSnapshot(snapshot, source);
	pfree(snapshot);
}

/* The name in a SET TRANSACTION SNAPSHOT that is meant for us; else NULL. */
static const char *
shared_name(const Node *statement)
{
	const VariableSetStmt *set = (const VariableSetStmt *) statement;
	const A_Const *value;

	if (!IsA(statement, VariableSetStmt) || set->kind != VAR_SET_MULTI ||
		strcmp(set->name, "TRANSACTION SNAPSHOT") != 0)
		return NULL;
	value = linitial_node(A_Const, set->args);
	if (nodeTag(&value->val) != T_String ||
		strncmp(strVal(&value->val), PREFIX, strlen(PREFIX)) != 0)
		return NULL;
	return strVal(&value->val) + strlen(PREFIX);
}

static void
process_utility(PlannedStmt *statement, const char *text, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *environment,
				DestReceiver *receiver, QueryCompletion *completion)
{
	const char *name = shared_name(statement->utilityStmt);

	if (name != NULL)
		set_transaction_snapshot(name);
	else if (previous_utility != NULL)
		previous_utility(statement, text, read_only_tree, context, params, environment, receiver,
						 completion);
	else
		standard_ProcessUtility(statement, text, read_only_tree, context, params, environment,
								receiver, completion);
}

static void
end_transaction(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_PREPARE && event != XACT_EVENT_ABORT)
		return;
	for (; written > 0; written--)
	{
		char path[MAXPGPATH];

		make_path(path, MyProcPid, last_number - written + 1);
		(void) unlink(path); /* what remains is removed when the server starts */
	}
}

void
shared_snapshot_initialize(void)
{
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
	RegisterXactCallback(end_transaction, NULL);
}
