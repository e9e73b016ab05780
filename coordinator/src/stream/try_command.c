/*
 * try_command.c
 *		One command on one worker whose failure the caller survives.
 *
 * The command runs in a subtransaction: the transaction layer makes it a savepoint
 * on the worker, and rolls back to it when the command fails.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "stream/try_command.h"
#include "wire/connection.h"

/* Run the command; its first value as text. */
static char *
fetch_first_value(WorkerConnection *conn, RemoteAccess access, const char *sql)
{
	char *value = NULL;
	bool first = true;
	PGresult *result;

	remote_transaction_send(conn, access, sql);
	while ((result = connection_get_result(conn)) != NULL)
	{
		ExecStatusType status = PQresultStatus(result);

		if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
			connection_report(ERROR, conn, result, sql);
		if (first && PQntuples(result) > 0 && PQnfields(result) > 0)
		{
			if (!PQgetisnull(result, 0, 0))
				value = pstrdup(PQgetvalue(result, 0, 0));
			first = false;
		}
		PQclear(result);
	}
	return value;
}

WorkerAnswer
try_command(int worker_id, RemoteAccess access, const char *sql)
{
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile WorkerAnswer answer = {false, NULL, NULL};

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(caller);
	PG_TRY();
	{
		answer.value = fetch_first_value(connection_open(worker_id), access, sql);
		ReleaseCurrentSubTransaction();
		answer.success = true;
	}
	PG_CATCH();
	{
		ErrorData *error;

		MemoryContextSwitchTo(caller);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
			ReThrowError(error);
		answer.error = error;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	CurrentResourceOwner = owner;
	return answer;
}
