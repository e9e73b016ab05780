/*
 * launcher.h
 *		Background processes: one launcher, and per database with the extension its services.
 *
 * A service is a process with a main function of its own.  Services "maintenance" and "periods" run the
 * tasks listed in service_tasks.c in turn.
 */
#ifndef STRATA_LAUNCHER_H
#define STRATA_LAUNCHER_H

#include "postgres.h"

#include "access/xact.h"

#include "nodes/nodes.h"

/* A kind of process of which each database with the extension has one. */
typedef struct LauncherService
{
	const char *name;
	void (*main)(void);
} LauncherService;

/*
 * From _PG_init: registers the launcher and its shared memory.  The first service looks whether the
 * extension exists, and is the only one that runs in databases without.
 */
extern void
launcher_initialize(const LauncherService *services, int count, bool (*extension_exists)(void));

/* A session uses the extension in this database: its services ought to run.  Cheap. */
extern void launcher_require(void);

/* The services of this database are to ask their tasks now.  Throws nothing. */
extern void launcher_poke(void);

/*
 * Before a utility command: where it wants a database, or the extension, for itself, the services
 * leave, and come back when its transaction has ended.
 */
extern void launcher_before_command(Node *statement);

/* Entry points of the processes, which PostgreSQL calls by name. */
extern PGDLLEXPORT void launcher_main(Datum argument);
extern PGDLLEXPORT void launcher_service_main(Datum argument);

/* Called at the ends of transactions, in the order of transaction_end.c. */
extern void launcher_transaction_event(XactEvent event);

#endif
