/*
 * auto_analyze.h
 *		ANALYZE of distributed tables in the background.
 */
#ifndef STRATA_AUTO_ANALYZE_H
#define STRATA_AUTO_ANALYZE_H

#include "postgres.h"

/* Autovacuum finds that this shell has changed enough. */
extern void auto_analyze_request(Oid relation);

/* The task of service "periods" (launcher.h). */
extern int auto_analyze_interval(void);
extern void auto_analyze_run(void);

extern void auto_analyze_initialize(void);

#endif
