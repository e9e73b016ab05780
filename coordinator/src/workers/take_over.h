/*
 * take_over.h
 *		Which coordinator has the workers.
 */
#ifndef STRATA_TAKE_OVER_H
#define STRATA_TAKE_OVER_H

#include "postgres.h"

/* What a coordinator tells its workers about itself, from strata.cluster. */
typedef struct ClusterIdentity
{
	char id[37]; /* uuid as text */
	char holder[37];
	int64 epoch;
	int64 timeline; /* 0: a copy, to which no workers belong */
	Oid database;	/* another one than ours: the same */
} ClusterIdentity;

/* As of now; ERROR when the table is empty. */
extern void cluster_identity_read(ClusterIdentity *identity);

/*
 * This server is about to use workers: waits while it has just been promoted and is about to take
 * over, ERROR when it is a copy of a coordinator.
 */
extern void take_over_require(void);

/* A worker has refused us: the maintenance worker is to tell all of them again.  Throws nothing. */
extern void take_over_request(void);

/* A task of the maintenance worker. */
extern int take_over_interval_ms(void);
extern void take_over_run(void);

extern void take_over_initialize(void); /* from _PG_init */

#endif
