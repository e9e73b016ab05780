/*
 * try_command.c
 *		One command on one worker whose failure the caller survives.
 *
 * The command runs in a subtransaction: the transaction layer makes it a savepoint
 * on the worker, and rolls back to it when the command fails.
 */
#include "postgres.h"

#include "server/subtransaction.h"
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

typedef struct Command
{
	int worker_id;
	RemoteAccess access;
	const char *sql;
	char *value; /* result */
} Command;

static void
run_command(void *argument)
{
	Command *command = argument;

	command->value = fetch_first_value(connection_open(command->worker_id), command->access,
									   command->sql);
}

WorkerAnswer
try_command(int worker_id, RemoteAccess access, const char *sql)
{
	Command command = {worker_id, access, sql, NULL};
	ErrorData *error = subtransaction_try(run_command, &command);

	if (error == NULL)
		return (WorkerAnswer){true, command.value, NULL};
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		ReThrowError(error);
	return (WorkerAnswer){false, NULL, error};
}
