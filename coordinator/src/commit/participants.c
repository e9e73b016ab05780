/*
 * participants.c
 *		The connections that a transaction's end concerns.
 *
 * The callbacks of commit and abort must not need memory: the arrays have room for all connections
 * that the session has, from before any of them is used.  Each selection overwrites the last.
 */
#include "postgres.h"

#include "commit/participants.h"

#include "utils/memutils.h"

#include "commit/decision_log.h"
#include "server/incarnation.h"
#include "server/launcher.h"
#include "wire/error_names.h"

WorkerConnection **participants = NULL;
const char **participant_commands = NULL;

static int capacity = 0;

void
participants_reserve(void)
{
	int needed = list_length(connection_list());
	WorkerConnection **connections;
	const char **commands;

	if (needed <= capacity)
		return;
	needed = Max(needed, 2 * capacity);

	/* the old ones stay in use when memory is short: the abort then needs them */
	connections = MemoryContextAlloc(TopMemoryContext, needed * sizeof(WorkerConnection *));
	commands = MemoryContextAlloc(TopMemoryContext, needed * sizeof(char *));
	if (capacity > 0)
	{
		pfree(participants);
		pfree(participant_commands);
	}
	participants = connections;
	participant_commands = commands;
	capacity = needed;
}

int
participants_select(ParticipantPredicate predicate)
{
	int count = 0;
	ListCell *lc;

	foreach(lc, connection_list())
	{
		WorkerConnection *conn = lfirst(lc);

		if (conn->pg != NULL && count < capacity && predicate(conn))
			participants[count++] = conn;
	}
	return count;
}

PreparedGid
participant_gid(const WorkerConnection *conn)
{
	return (PreparedGid){incarnation_get(), conn->prepared.counter, conn->worker_id};
}

/*
 * Nothing may be thrown, so the warning has no name that the client's encoding may lack: neither the
 * worker's, nor those of functions in the context.
 */
void
participant_leave_in_doubt(const WorkerConnection *conn, InDoubtDecision decision,
						   InDoubtReason reason)
{
	ErrorContextCallback *context = error_context_stack;
	PreparedGid gid = participant_gid(conn);

	(void) in_doubt_add(conn->worker_id, &gid, decision, reason);
	error_context_stack = NULL;
	ereport(WARNING,
			(errcode(ERRCODE_TRANSACTION_RESOLUTION_UNKNOWN),
			 errmsg("transaction on worker \"%s\" is in doubt",
					error_names_sendable(conn->worker_name, conn->worker_id)),
			 decision == IN_DOUBT_COMMIT
				 ? errdetail("It is prepared and will be committed when that is possible.")
				 : errdetail("It may be prepared and will be rolled back when that is possible."),
			 errhint("SELECT * FROM strata.in_doubt shows what it waits for.")));
	error_context_stack = context;
}

void
participant_forget_prepared(WorkerConnection *conn)
{
	conn->prepared = (WirePrepared){0};
}

void
participants_end(bool doubt)
{
	decision_log_leave();
	if (doubt)
		launcher_poke();
}
