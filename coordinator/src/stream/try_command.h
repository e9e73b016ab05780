/*
 * try_command.h
 *		One command on one worker whose failure the caller survives.
 */
#ifndef STRATA_TRY_COMMAND_H
#define STRATA_TRY_COMMAND_H

#include "transaction/remote_transaction.h"

/* What became of a command. */
typedef struct WorkerAnswer
{
	bool success;
	char *value;	  /* first column of the first row; NULL if none or SQL NULL */
	ErrorData *error; /* of a command that failed, else NULL */
} WorkerAnswer;

/*
 * Run a command on a worker in the local transaction, behind a savepoint of its own: an error
 * there (or an unreachable worker) undoes only this command.  Cancelling is still an error.
 * The answer is allocated in CurrentMemoryContext.
 */
extern WorkerAnswer try_command(int worker_id, RemoteAccess access, const char *sql);

#endif
