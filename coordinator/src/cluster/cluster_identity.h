/*
 * cluster_identity.h
 *		Which cluster this database coordinates, and whether its workers are ours.
 */
#ifndef STRATA_CLUSTER_IDENTITY_H
#define STRATA_CLUSTER_IDENTITY_H

#include "postgres.h"

#include "access/htup.h"
#include "utils/relcache.h"

/* What a coordinator tells its workers about itself, from strata.cluster. */
typedef struct ClusterIdentity
{
	char id[37]; /* uuid as text */
	char holder[37];
	int64 epoch;
	int64 timeline; /* 0: a copy, to which no workers belong */
	Oid database;	/* another one than ours: the same */
	int64
		schema_version; /* which DDL the workers have seen (stream/remote_ddl.c), as other transactions see it */
} ClusterIdentity;

/* The number of the change that a schema version stands for. */
#define SCHEMA_CHANGE_OF(version) ((version) >> 32)

/* As of now; ERROR when the table is empty. */
extern void cluster_identity_read(ClusterIdentity *identity);

/* The same of strata.cluster, which is open; returns a copy of its row. */
extern HeapTuple cluster_identity_row(Relation catalog, ClusterIdentity *identity);

/* Is this the coordinator, or a standby of it that was promoted and has not taken over yet? */
extern bool cluster_identity_is_member(const ClusterIdentity *identity);

/* Is it a copy that can be a cluster of its own? */
extern bool cluster_identity_is_free_copy(const ClusterIdentity *identity);

/*
 * This server is about to use workers: waits while it has just been promoted and is about to take
 * over (workers/take_over.c), ERROR when it is a copy of a coordinator.
 */
extern void cluster_identity_require(void);

/* A worker has refused us: the maintenance worker is to tell all of them again.  Throws nothing. */
extern void cluster_identity_request(void);

/* How often that was asked since the server started. */
extern uint32 cluster_identity_requests(void);

extern void cluster_identity_initialize(void); /* from _PG_init: shared memory */

#endif
