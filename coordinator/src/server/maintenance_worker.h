/*
 * maintenance_worker.h
 *		Background processes: one launcher, and per database with the extension its services.
 *
 * A service is a process with a main function of its own.  Services "maintenance" and "periods" run the
 * tasks listed in maintenance_tasks.c in turn.
 */
#ifndef STRATA_MAINTENANCE_WORKER_H
#define STRATA_MAINTENANCE_WORKER_H

#include "postgres.h"

#include "nodes/nodes.h"

/*
 * A piece of work of service "maintenance".  run() is called in a transaction of its own with an
 * active snapshot, as the bootstrap superuser; its errors are logged, repeated ones once.
 * interval_ms() is asked after each run and whenever the process is poked: so long after the
 * end of the last run the next one begins.
 */
typedef struct MaintenanceTask
{
	const char *name;
	int (*interval_ms)(void);
	void (*run)(void);
} MaintenanceTask;

/* From _PG_init: registers the launcher and its shared memory. */
extern void maintenance_worker_initialize(void);

/* A session uses the extension in this database: its services ought to run.  Cheap. */
extern void maintenance_worker_require(void);

/* The services of this database are to ask their tasks now.  Throws nothing. */
extern void maintenance_worker_poke(void);

/*
 * Before a utility command: where it wants a database, or the extension, for itself, the services
 * leave, and come back when its transaction has ended.
 */
extern void maintenance_worker_before_command(Node *statement);

/* Main functions of services "maintenance" and "periods". */
extern void maintenance_main(void);
extern void maintenance_periods_main(void);

/* Entry points of the processes, which PostgreSQL calls by name. */
extern PGDLLEXPORT void maintenance_worker_launcher_main(Datum argument);
extern PGDLLEXPORT void maintenance_worker_service_main(Datum argument);

#endif
