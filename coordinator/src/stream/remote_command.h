/*
 * remote_command.h
 *		Run a command on several workers at once and wait for all of them.
 */
#ifndef STRATA_REMOTE_COMMAND_H
#define STRATA_REMOTE_COMMAND_H

#include "transaction/remote_transaction.h"

/*
 * Runs `sql` (one command, or several without results) on each worker concurrently, in the local
 * transaction.
 * The first error is raised after all workers have answered or were cancelled.
 * Returns the sum of the affected rows of the command tags.
 */
extern uint64 remote_command_run(const Bitmapset *workers, RemoteAccess access, const char *sql);

/* The same on wires that are ready (remote_transaction_ready_all()). */
extern uint64 remote_command_run_on(const List *wires, RemoteAccess access, const char *sql);

/* The same with another SQL per worker: sqls[i] goes to worker_ids[i]. */
extern uint64
remote_command_run_each(const int *worker_ids, char **sqls, int count, RemoteAccess access);

/* One worker; the first column of the first row as text (palloc'd), NULL if none or SQL NULL. */
extern char *remote_command_fetch(int worker_id, const char *sql);

#endif
