/*
 * resolver.h
 *		Ends prepared transactions that their sessions could not end.
 */
#ifndef STRATA_RESOLVER_H
#define STRATA_RESOLVER_H

/* A task of the maintenance worker. */
extern void resolver_run(void);
extern int resolver_interval_ms(void);

#endif
