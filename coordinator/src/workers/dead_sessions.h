/*
 * dead_sessions.h
 *		What sessions of this coordinator that are gone have left on a worker.
 */
#ifndef STRATA_DEAD_SESSIONS_H
#define STRATA_DEAD_SESSIONS_H

#include "wire/connection.h"

/* End them, over a superuser's wire; ERROR when the worker does not answer until the deadline. */
extern void dead_sessions_end(WorkerConnection *conn, int64 deadline);

#endif
