/*
 * remote_command.c
 *		Commands whose results are only counted: DDL, DML without RETURNING, checks.
 *
 * All workers start before any is waited for.  A command that is still running occupies its
 * wire, so two commands for one worker in one call simply follow each other.
 * When one worker reports an error the others are cancelled and drained before it is raised.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "stream/remote_command.h"
#include "transaction/snapshot_pin.h"
#include "wire/wire_cleanup.h"

/* A command on its way. */
typedef struct Command
{
	WireOccupant occupant;
	WorkerConnection *conn;
	PGresult *error; /* first error it gave */
	uint64 rows;
	bool done;
} Command;

/* Take what has arrived, without waiting. */
static void
advance_command(Command *command)
{
	PGresult *result;

	while (!command->done && connection_poll_result(command->conn, &result))
	{
		ExecStatusType status = PQresultStatus(result);

		if (result == NULL)
		{
			command->done = true;
			command->conn->occupant = NULL;
		}
		else if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)
		{
			command->rows += strtou64(PQcmdTuples(result), NULL, 10);
			PQclear(result);
		}
		else if (command->error == NULL)
		{
			command->error = result;
			if (PQstatus(command->conn->pg) != CONNECTION_OK || status == PGRES_COPY_IN ||
				status == PGRES_COPY_OUT)
				command->done = true;
		}
		else
			PQclear(result);
	}
}

/* WireOccupant: the wire is needed for the next command of the same call. */
static void
finish_command(void *occupant)
{
	Command *command = occupant;

	for (;;)
	{
		advance_command(command);
		if (command->done)
			break;
		connection_wait_any(&command->conn, 1);
	}
	command->conn->occupant = NULL;
	if (command->error != NULL)
	{
		PGresult *error = command->error;

		command->error = NULL;
		connection_report(ERROR, command->conn, error, NULL);
	}
}

/* Cancel those that still run; the caller raises the error that is the reason. */
static void
stop_commands(Command *commands, int count, WorkerConnection **conns)
{
	int64 deadline = wire_end_deadline();
	int running = 0;

	for (int i = 0; i < count; i++)
	{
		if (commands[i].conn == NULL)
			continue;
		commands[i].conn->occupant = NULL;
		if (!commands[i].done && !wire_drain_arrived(commands[i].conn))
			conns[running++] = commands[i].conn;
	}
	wire_stop(conns, running, deadline);
}

static void
wait_for_commands(Command *commands, int count, WorkerConnection **conns)
{
	for (;;)
	{
		int waiting = 0;

		for (int i = 0; i < count; i++)
		{
			Command *command = &commands[i];

			advance_command(command);
			if (command->error != NULL)
			{
				PGresult *error = command->error;

				command->error = NULL;
				stop_commands(commands, count, conns);
				connection_report(ERROR, command->conn, error, NULL);
			}
			if (!command->done)
				conns[waiting++] = command->conn;
		}
		if (waiting == 0)
			return;
		connection_wait_any(conns, waiting);
	}
}

/* Forget wires whose commands we shall not wait for: abort drains them. */
static void
abandon_commands(Command *commands, int count)
{
	for (int i = 0; i < count; i++)
	{
		if (commands[i].conn != NULL && commands[i].conn->occupant == &commands[i].occupant)
			commands[i].conn->occupant = NULL;
		PQclear(commands[i].error);
		commands[i].error = NULL;
	}
}

/*
 * Send sqls[i] on the wire of that number and wait for all.  The wires are ready; one that is there again is
 * vacated, which waits for its command before.
 */
static uint64
run_commands(const List *wires, char **sqls, RemoteAccess access)
{
	int count = list_length(wires);
	Command *commands = palloc0((count + 1) * sizeof(Command));
	WorkerConnection **waiting = palloc((count + 1) * sizeof(WorkerConnection *));
	uint64 rows = 0;

	PG_TRY();
	{
		for (int i = 0; i < count; i++)
		{
			Command *command = &commands[i];
			WorkerConnection *conn = list_nth(wires, i);

			command->occupant.yield = finish_command;
			command->conn = conn;
			if (conn->occupant != NULL)
				remote_transaction_send(conn, access, sqls[i]);
			else
				remote_transaction_send_ready(conn, access, sqls[i]);
			conn->occupant = &command->occupant;
		}
		snapshot_pin_sent();
		wait_for_commands(commands, count, waiting);
	}
	PG_CATCH();
	{
		abandon_commands(commands, count);
		PG_RE_THROW();
	}
	PG_END_TRY();

	for (int i = 0; i < count; i++)
		rows += commands[i].rows;
	pfree(waiting);
	pfree(commands);
	return rows;
}

uint64
remote_command_run_on(const List *wires, RemoteAccess access, const char *sql)
{
	char **sqls = palloc((list_length(wires) + 1) * sizeof(char *));
	uint64 rows;

	for (int i = 0; i < list_length(wires); i++)
		sqls[i] = unconstify(char *, sql);
	rows = run_commands(wires, sqls, access);
	pfree(sqls);
	return rows;
}

uint64
remote_command_run(const Bitmapset *workers, RemoteAccess access, const char *sql)
{
	List *wires = remote_transaction_ready_all(workers);
	uint64 rows = remote_command_run_on(wires, access, sql);

	list_free(wires);
	return rows;
}

uint64
remote_command_run_each(const int *worker_ids, char **sqls, int count, RemoteAccess access)
{
	List *wires = remote_transaction_ready_each(worker_ids, count);
	uint64 rows = run_commands(wires, sqls, access);

	list_free(wires);
	return rows;
}

char *
remote_command_fetch(int worker_id, const char *sql)
{
	WorkerConnection *conn = connection_open(worker_id);
	PGresult *result;
	char *value = NULL;

	remote_transaction_send(conn, REMOTE_READ, sql);
	while ((result = connection_get_result(conn)) != NULL)
	{
		if (PQresultStatus(result) != PGRES_TUPLES_OK && PQresultStatus(result) != PGRES_COMMAND_OK)
			connection_report(ERROR, conn, result, NULL);
		if (PQntuples(result) > 0 && PQnfields(result) > 0 && !PQgetisnull(result, 0, 0))
			value = pstrdup(PQgetvalue(result, 0, 0));
		PQclear(result);
	}
	return value;
}
