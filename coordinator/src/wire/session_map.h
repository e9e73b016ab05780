/*
 * session_map.h
 *		Which backend of which worker serves which session, and which sessions wait for workers.
 *
 * In shared memory, for the deadlock detector and for views.
 */
#ifndef STRATA_SESSION_MAP_H
#define STRATA_SESSION_MAP_H

#include "postgres.h"

#include "access/xact.h"

#include "wire/connection.h"
#include "datatype/timestamp.h"

/* Bytes kept of what a victim of a deadlock is told. */
#define SESSION_REPORT_SIZE 4096

extern void session_map_initialize(void); /* from _PG_init: shared memory, callbacks */

/* A connection to a worker is made, or is closed. */
extern void session_map_add(const WorkerConnection *conn);
extern void session_map_remove(const WorkerConnection *conn);

/* Does a session of this database have this backend of the worker, or is that not known? */
extern bool session_map_may_serve(int worker_id, int worker_pid);

/* This session has been waiting for these wires for so long already; may be repeated. */
extern void session_map_begin_wait(WorkerConnection **conns, int count, int waited_ms);

/* An answer came. */
extern void session_map_end_wait(void);

/* The running transaction prepares under this counter (0: it does not any more). */
extern void session_map_set_prepared(uint64 counter);

/* ERROR 40P01 if the detector chose this session's wait to end. */
extern void session_map_check_victim(void);

/* When the oldest and the youngest of the waits began; PG_INT64_MAX and 0 when nobody waits. */
extern TimestampTz session_map_first_wait(void);
extern TimestampTz session_map_last_wait(void);

/*
 * End the wait of a session; false if it is over already.  `wait` is its number as
 * strata.session_wires() tells it.  The report is the error's detail; the server log gets
 * log_report.
 */
extern bool
session_map_choose_victim(int pid, int64 wait, const char *report, const char *log_report);

/* Called at the ends of transactions, in the order of transaction_end.c. */
extern void session_map_transaction_event(XactEvent event);
extern void session_map_subtransaction_event(SubXactEvent event);

#endif
