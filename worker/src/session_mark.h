/*
 * session_mark.h
 *		Which sessions here are a coordinator's, and of which epoch.
 */
#ifndef STRATA_WORKER_SESSION_MARK_H
#define STRATA_WORKER_SESSION_MARK_H

extern void session_mark_initialize(void); /* from _PG_init */

/* Is this session, or the one that this process is a parallel worker of, a coordinator's? */
extern bool session_is_marked(void);

#endif
