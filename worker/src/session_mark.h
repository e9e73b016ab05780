/*
 * session_mark.h
 *		Which sessions here are a coordinator's, and of which epoch.
 */
#ifndef STRATA_WORKER_SESSION_MARK_H
#define STRATA_WORKER_SESSION_MARK_H

extern void session_mark_initialize(void); /* from _PG_init */

#endif
